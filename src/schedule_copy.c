/*
 * Deep copies of commands. The four lists of a command share one block of memory that begins at
 * `deps`, so a copied command is one allocation and one free.
 */
#include "schedule_copy.h"

#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

static bool add_list(uint64_t *total, uint64_t count, uint64_t element_bytes)
{
	uint64_t bytes;
	return tc_mul_u64(count, element_bytes, &bytes) && tc_add_u64(*total, bytes, total);
}

bool tci_command_list_bytes(const struct tc_command *command, uint64_t *bytes)
{
	*bytes = 0;
	return add_list(bytes, command->dep_count, sizeof *command->deps) &&
	       add_list(bytes, command->bind_count, sizeof *command->binds) &&
	       add_list(bytes, command->served_count, sizeof *command->served) &&
	       add_list(bytes, command->memory_count, sizeof *command->memory) &&
	       *bytes <= SIZE_MAX;
}

/** Copy `bytes` to *cursor and move it on; NULL for an empty list. */
static const void *take_list(char **cursor, const void *items, size_t bytes)
{
	if (bytes == 0)
		return NULL;
	void *copy = memcpy(*cursor, items, bytes);
	*cursor += bytes;
	return copy;
}

void tci_command_copy_into(struct tc_command *target, const struct tc_command *source, void *block)
{
	/* Every element has a size that is a multiple of its alignment's maximum, 8 bytes. */
	_Static_assert(sizeof(struct tc_dependency) % 8 == 0 && sizeof(struct tc_bind) % 8 == 0 &&
	                   sizeof(struct tc_served) % 8 == 0,
	               "lists follow each other in one block");
	char *cursor = block;
	*target = *source;
	target->deps = take_list(&cursor, source->deps, source->dep_count * sizeof *source->deps);
	target->binds =
	    take_list(&cursor, source->binds, source->bind_count * sizeof *source->binds);
	target->served =
	    take_list(&cursor, source->served, source->served_count * sizeof *source->served);
	target->memory =
	    take_list(&cursor, source->memory, source->memory_count * sizeof *source->memory);
}

enum tc_status tc_command_copy(struct tc_command *target, const struct tc_command *source,
                               struct tc_error *error)
{
	uint64_t bytes;
	if (!tci_command_list_bytes(source, &bytes))
		return tc_error_set(error, TC_TOO_LARGE,
		                    "command %llu: its lists do not fit in memory",
		                    (unsigned long long)source->id);
	void *block = NULL;
	if (bytes > 0) {
		block = malloc((size_t)bytes);
		if (block == NULL)
			return tc_error_no_memory(error, "the copy of a command", bytes);
	}
	tci_command_copy_into(target, source, block);
	target->deps = block; /* the owner, even of an empty list of dependencies */
	return TC_OK;
}

void tc_command_clear(struct tc_command *command)
{
	if (command == NULL)
		return;
	free((void *)(uintptr_t)command->deps);
	*command = (struct tc_command){0};
}
