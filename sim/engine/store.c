/** @file store.c
 * Memory of the engine. A waiting command is one block: the node, then the lists of its command.
 * Blocks come from chunks by size class and return to a free list, so that a long run allocates no
 * more than its widest moment. A ring of pointers finds a node by id.
 */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define CHUNK_BYTES 65536u
#define STEP_BYTES 64u /* a cache line */
/* Classes 0 ... 31: one to 32 steps. Anything larger is a block of its own. */
#define CLASS_COUNT 32u
#define CLASS_LARGE CLASS_COUNT

struct chunk {
	struct chunk *next;
	alignas(STEP_BYTES) unsigned char bytes[CHUNK_BYTES];
};

enum tc_status tci_store_init(struct tci_store *store, struct tc_error *error)
{
	enum { FIRST_WINDOW = 1024 };
	store->window = tc_alloc_array(FIRST_WINDOW, sizeof *store->window);
	if (store->window == NULL)
		return tc_error_no_memory(error, "the engine's window",
		                          FIRST_WINDOW * sizeof *store->window);
	store->mask = FIRST_WINDOW - 1;
	return TC_OK;
}

void tci_store_clear(struct tci_store *store)
{
	for (uint64_t id = store->base_id; id < store->next_id; id++) {
		struct tci_node *node = store->window[id & store->mask];
		if (node != NULL && node->block_class == CLASS_LARGE)
			free(node);
	}
	for (struct chunk *chunk = store->chunks; chunk != NULL;) {
		struct chunk *next = chunk->next;
		free(chunk);
		chunk = next;
	}
	free(store->window);
	*store = (struct tci_store){0};
}

static bool window_is_full(const struct tci_store *store)
{
	return store->next_id - store->base_id > store->mask;
}

static enum tc_status widen_window(struct tci_store *store, struct tc_error *error)
{
	uint64_t size = store->mask + 1;
	struct tci_node **wider = NULL;
	if (size <= SIZE_MAX / 2)
		wider = tc_alloc_array((size_t)size * 2, sizeof *wider);
	if (wider == NULL)
		return tc_error_no_memory(error, "the engine's window", size * 2 * sizeof *wider);
	uint64_t mask = size * 2 - 1;
	for (uint64_t id = store->base_id; id < store->next_id; id++)
		wider[id & mask] = store->window[id & store->mask];
	free(store->window);
	store->window = wider;
	store->mask = mask;
	return TC_OK;
}

/** Which block comes next is known, and that all of it will be written: have it at hand then. */
static void fetch_ahead(const void *block, size_t bytes)
{
	for (size_t line = 0; line < bytes; line += STEP_BYTES)
		__builtin_prefetch((const unsigned char *)block + line, 1);
}

static void *take_block(struct tci_store *store, size_t bytes, uint32_t *block_class)
{
	size_t steps = (bytes + STEP_BYTES - 1) / STEP_BYTES;
	if (steps > CLASS_COUNT) {
		*block_class = CLASS_LARGE;
		return malloc(bytes);
	}
	*block_class = (uint32_t)steps - 1;
	size_t rounded = steps * STEP_BYTES;
	struct tci_free *block = store->free_first[steps - 1];
	if (block != NULL) {
		store->free_first[steps - 1] = block->next;
		if (block->next != NULL)
			fetch_ahead(block->next, rounded);
		return block;
	}
	if (store->fresh_bytes < rounded) {
		struct chunk *chunk = aligned_alloc(STEP_BYTES, sizeof *chunk);
		if (chunk == NULL)
			return NULL;
		chunk->next = store->chunks;
		store->chunks = chunk;
		store->chunk_count++;
		store->fresh = chunk->bytes;
		store->fresh_bytes = CHUNK_BYTES;
	}
	void *taken = store->fresh;
	store->fresh += rounded;
	store->fresh_bytes -= rounded;
	return taken;
}

/* Blocks return in about the order in which they were taken. First in, first out keeps it so: new
 * commands then lie one behind the other in memory, and are read in that order. */
static void return_block(struct tci_store *store, void *memory, uint32_t block_class)
{
	if (block_class == CLASS_LARGE) {
		free(memory);
		return;
	}
	struct tci_free *block = memory;
	block->next = NULL;
	if (store->free_first[block_class] == NULL)
		store->free_first[block_class] = block;
	else
		store->free_last[block_class]->next = block;
	store->free_last[block_class] = block;
}

/** Where the lists of a command lie in its block. */
struct layout {
	uint64_t deps, edges, served, memory, ready, bytes;
};

/* Counts have 32 bits and elements less than 2^16 bytes: the sums fit 64 bits. */
static struct layout lay_out(const struct tc_command *command)
{
	struct layout layout;
	layout.deps = sizeof(struct tci_node);
	layout.edges = layout.deps + (uint64_t)command->dep_count * sizeof *command->deps;
	layout.served = layout.edges + (uint64_t)command->dep_count * sizeof(struct tci_edge);
	layout.memory = layout.served + (uint64_t)command->served_count * sizeof *command->served;
	layout.ready = layout.memory + (uint64_t)command->memory_count * sizeof *command->memory;
	layout.bytes = layout.ready + (uint64_t)command->served_count * sizeof(bool);
	return layout;
}

_Static_assert(sizeof(struct tci_node) % 8 == 0 && sizeof(struct tci_edge) % 8 == 0 &&
                   sizeof(struct tc_dependency) % 8 == 0 && sizeof(struct tc_served) % 8 == 0 &&
                   sizeof(struct tc_memory_change) % 8 == 0,
               "the lists of a block are aligned because their elements are");

static void *copy_list(unsigned char *block, uint64_t offset, const void *list, size_t bytes)
{
	if (bytes == 0)
		return NULL;
	memcpy(block + offset, list, bytes);
	return block + offset;
}

static struct tci_node *copy_command(struct tci_store *store, const struct tc_command *command,
                                     uint64_t *bytes)
{
	struct layout layout = lay_out(command);
	*bytes = layout.bytes;
	if (layout.bytes > SIZE_MAX / 2)
		return NULL;
	uint32_t block_class;
	unsigned char *block = take_block(store, (size_t)layout.bytes, &block_class);
	if (block == NULL)
		return NULL;
	struct tci_node *node = (struct tci_node *)(void *)block;
	node->next = NULL;
	node->dependants = NULL;
	node->remaining = 0;
	node->state = TCI_WAITING;
	node->asked = command->served_count == 0;
	node->bound = NULL;
	node->bound_id = TC_NO_COMMAND;
	node->bound_end_ps = 0;
	node->block_class = block_class;
	node->edges = (struct tci_edge *)(void *)(block + layout.edges);
	node->ready = (bool *)(void *)(block + layout.ready);
	node->command = *command;
	node->command.binds = NULL;
	node->command.bind_count = 0;
	node->command.deps = copy_list(block, layout.deps, command->deps,
	                               command->dep_count * sizeof *command->deps);
	node->command.served = copy_list(block, layout.served, command->served,
	                                 command->served_count * sizeof *command->served);
	node->command.memory = copy_list(block, layout.memory, command->memory,
	                                 command->memory_count * sizeof *command->memory);
	return node;
}

enum tc_status tci_store_add(struct tci_store *store, const struct tc_command *command,
                             struct tci_node **node, struct tc_error *error)
{
	if (window_is_full(store))
		TC_TRY(widen_window(store, error));
	uint64_t bytes;
	*node = copy_command(store, command, &bytes);
	if (*node == NULL)
		return tc_error_no_memory(error, "a waiting command", bytes);
	store->window[store->next_id & store->mask] = *node;
	store->next_id++;
	return TC_OK;
}

static void move_base(struct tci_store *store)
{
	while (store->base_id < store->next_id &&
	       store->window[store->base_id & store->mask] == NULL)
		store->base_id++;
}

enum tc_status tci_store_skip(struct tci_store *store, struct tc_error *error)
{
	if (window_is_full(store))
		TC_TRY(widen_window(store, error));
	store->window[store->next_id & store->mask] = NULL;
	store->next_id++;
	move_base(store);
	return TC_OK;
}

void tci_store_remove(struct tci_store *store, struct tci_node *node)
{
	store->window[node->command.id & store->mask] = NULL;
	if (node->command.id == store->base_id)
		move_base(store);
	return_block(store, node, node->block_class);
}
