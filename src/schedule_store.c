/*
 * A schedule in memory: a sink that keeps everything, and playing it into another sink.
 *
 * Lists and strings live in large blocks that are freed together; commands in one array.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule_copy.h"
#include "tencache/units.h"

#define BLOCK_BYTES ((size_t)256 * 1024)

struct block {
	struct block *next;
	size_t used, size;
	_Alignas(8) char data[];
};

enum stage { STAGE_NEW, STAGE_BEGUN, STAGE_ENDED };

struct store {
	struct block *blocks;
	size_t command_capacity;
	enum stage stage;
};

/** 8-byte aligned memory that lives as long as the schedule; NULL when out of memory. */
static void *take(struct store *store, uint64_t bytes)
{
	uint64_t rounded;
	if (!tc_align_up(bytes, 8, &rounded) || rounded > SIZE_MAX / 2)
		return NULL;
	struct block *block = store->blocks;
	if (block == NULL || block->size - block->used < rounded) {
		size_t size = rounded > BLOCK_BYTES ? (size_t)rounded : BLOCK_BYTES;
		block = malloc(sizeof *block + size);
		if (block == NULL)
			return NULL;
		block->size = size;
		block->used = 0;
		block->next = store->blocks;
		store->blocks = block;
	}
	void *result = block->data + block->used;
	block->used += (size_t)rounded;
	return result;
}

static enum tc_status copy_list(struct store *store, const void *items, uint64_t count,
                                size_t element_bytes, const char *what, const void **copy,
                                struct tc_error *error)
{
	*copy = NULL;
	if (count == 0)
		return TC_OK;
	uint64_t bytes;
	if (!tc_mul_u64(count, element_bytes, &bytes))
		return tc_error_set(error, TC_TOO_LARGE, "%s: %llu do not fit in memory", what,
		                    (unsigned long long)count);
	void *memory = take(store, bytes);
	if (memory == NULL)
		return tc_error_no_memory(error, what, bytes);
	*copy = memcpy(memory, items, (size_t)bytes);
	return TC_OK;
}

static enum tc_status copy_text(struct store *store, const char *text, const char **copy,
                                struct tc_error *error)
{
	const void *memory = NULL;
	if (text != NULL)
		TC_TRY(copy_list(store, text, strlen(text) + 1, 1, "a name in a schedule", &memory,
		                 error));
	*copy = memory;
	return TC_OK;
}

static enum tc_status copy_pools(struct store *store, struct tc_plan_info *info,
                                 struct tc_error *error)
{
	const void *copy;
	TC_TRY(copy_list(store, info->pools, info->pool_count, sizeof *info->pools,
	                 "the pools of a schedule", &copy, error));
	struct tc_pool_info *pools = (struct tc_pool_info *)(uintptr_t)copy;
	info->pools = pools;
	for (uint32_t p = 0; p < info->pool_count; p++)
		TC_TRY(copy_text(store, pools[p].name, &pools[p].name, error));
	return TC_OK;
}

static enum tc_status copy_tensors(struct store *store, struct tc_plan_info *info,
                                   struct tc_error *error)
{
	const void *copy;
	TC_TRY(copy_list(store, info->tensors, info->tensor_count, sizeof *info->tensors,
	                 "the tensors of a schedule", &copy, error));
	struct tc_plan_tensor *tensors = (struct tc_plan_tensor *)(uintptr_t)copy;
	info->tensors = tensors;
	for (uint32_t t = 0; t < info->tensor_count; t++)
		TC_TRY(copy_text(store, tensors[t].name, &tensors[t].name, error));
	TC_TRY(copy_list(store, info->copies, info->copy_count, sizeof *info->copies,
	                 "the initial copies of a schedule", &copy, error));
	info->copies = copy;
	return TC_OK;
}

static enum tc_status store_begin(void *self, const struct tc_plan_info *info,
                                  struct tc_error *error)
{
	struct tc_schedule *schedule = self;
	struct store *store = schedule->storage;
	if (store->stage != STAGE_NEW)
		return tc_error_set(error, TC_ARGUMENT,
		                    "a stored schedule takes one plan only; create another one");
	store->stage = STAGE_BEGUN;
	schedule->info = *info;
	struct tc_plan_info *copy = &schedule->info;
	TC_TRY(copy_text(store, info->policy, &copy->policy, error));
	TC_TRY(copy_text(store, info->trace_name, &copy->trace_name, error));
	TC_TRY(copy_text(store, info->trace_sha256, &copy->trace_sha256, error));
	TC_TRY(copy_text(store, info->events_sha256, &copy->events_sha256, error));
	TC_TRY(copy_text(store, info->machine_sha256, &copy->machine_sha256, error));
	TC_TRY(copy_pools(store, copy, error));
	return copy_tensors(store, copy, error);
}

static enum tc_status store_command(void *self, const struct tc_command *command,
                                    struct tc_error *error)
{
	struct tc_schedule *schedule = self;
	struct store *store = schedule->storage;
	if (store->stage != STAGE_BEGUN)
		return tc_error_set(error, TC_INTERNAL,
		                    "command %llu came before the schedule began or after it ended",
		                    (unsigned long long)command->id);
	size_t needed = (size_t)schedule->command_count + 1;
	if (!tc_grow_array(&schedule->commands, &store->command_capacity, needed,
	                   sizeof *schedule->commands))
		return tc_error_no_memory(error, "the commands of a schedule",
		                          needed * sizeof *schedule->commands);
	uint64_t bytes;
	if (!tci_command_list_bytes(command, &bytes))
		return tc_error_set(error, TC_TOO_LARGE,
		                    "command %llu: its lists do not fit in memory",
		                    (unsigned long long)command->id);
	void *block = take(store, bytes);
	if (block == NULL)
		return tc_error_no_memory(error, "the lists of a command", bytes);
	tci_command_copy_into(&schedule->commands[schedule->command_count++], command, block);
	return TC_OK;
}

static enum tc_status store_end(void *self, const struct tc_plan_end *end, struct tc_error *error)
{
	struct tc_schedule *schedule = self;
	struct store *store = schedule->storage;
	const void *places;
	TC_TRY(copy_list(store, end->places, end->place_count, sizeof *end->places,
	                 "the final places of a schedule", &places, error));
	schedule->end = *end;
	schedule->end.places = places;
	store->stage = STAGE_ENDED;
	return TC_OK;
}

enum tc_status tc_schedule_create(struct tc_schedule **schedule, struct tc_error *error)
{
	*schedule = NULL;
	struct tc_schedule *created = calloc(1, sizeof *created);
	struct store *store = calloc(1, sizeof *store);
	if (created == NULL || store == NULL) {
		free(created);
		free(store);
		return tc_error_no_memory(error, "a schedule", sizeof *created + sizeof *store);
	}
	created->storage = store;
	*schedule = created;
	return TC_OK;
}

struct tc_sink tc_schedule_sink(struct tc_schedule *schedule)
{
	return (struct tc_sink){schedule, store_begin, store_command, store_end};
}

void tc_schedule_free(struct tc_schedule *schedule)
{
	if (schedule == NULL)
		return;
	struct store *store = schedule->storage;
	for (struct block *block = store->blocks; block != NULL;) {
		struct block *next = block->next;
		free(block);
		block = next;
	}
	free(store);
	free(schedule->commands);
	free(schedule);
}

enum tc_status tc_schedule_play(const struct tc_schedule *schedule, const struct tc_sink *sink,
                                struct tc_error *error)
{
	if (sink->begin != NULL)
		TC_TRY(sink->begin(sink->self, &schedule->info, error));
	for (uint64_t c = 0; sink->command != NULL && c < schedule->command_count; c++)
		TC_TRY(sink->command(sink->self, &schedule->commands[c], error));
	if (sink->end != NULL)
		TC_TRY(sink->end(sink->self, &schedule->end, error));
	return TC_OK;
}
