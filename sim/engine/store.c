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
#define STEP_BYTES 64u
/* Classes 0 ... 31: one to 32 steps. Anything larger is a block of its own. */
#define CLASS_COUNT 32u
#define CLASS_LARGE CLASS_COUNT

struct chunk {
	struct chunk *next;
	alignas(max_align_t) unsigned char bytes[CHUNK_BYTES];
};

struct free_block {
	struct free_block *next;
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

static enum tc_status widen_window(struct tci_store *store, struct tc_error *error)
{
	uint64_t size = store->mask + 1;
	if (store->next_id - store->base_id < size)
		return TC_OK;
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

static void *take_block(struct tci_store *store, size_t bytes, uint32_t *block_class)
{
	size_t steps = (bytes + STEP_BYTES - 1) / STEP_BYTES;
	if (steps > CLASS_COUNT) {
		*block_class = CLASS_LARGE;
		return malloc(bytes);
	}
	*block_class = (uint32_t)steps - 1;
	struct free_block *block = store->free_blocks[steps - 1];
	if (block != NULL) {
		store->free_blocks[steps - 1] = block->next;
		return block;
	}
	size_t rounded = steps * STEP_BYTES;
	if (store->fresh_bytes < rounded) {
		struct chunk *chunk = malloc(sizeof *chunk);
		if (chunk == NULL)
			return NULL;
		chunk->next = store->chunks;
		store->chunks = chunk;
		store->fresh = chunk->bytes;
		store->fresh_bytes = CHUNK_BYTES;
	}
	void *taken = store->fresh;
	store->fresh += rounded;
	store->fresh_bytes -= rounded;
	return taken;
}

/** Reserve `count` elements behind `*bytes`; false when the sum does not fit. */
static bool reserve(size_t *bytes, size_t *offset, size_t count, size_t element_bytes)
{
	uint64_t list = 0, sum = 0;
	*offset = *bytes;
	if (!tc_mul_u64(count, element_bytes, &list) || !tc_add_u64(*bytes, list, &sum) ||
	    sum > SIZE_MAX - 8)
		return false;
	*bytes = ((size_t)sum + 7) & ~(size_t)7;
	return true;
}

static void *copy_list(unsigned char *block, size_t offset, const void *list, size_t bytes)
{
	if (bytes == 0)
		return NULL;
	memcpy(block + offset, list, bytes);
	return block + offset;
}

static struct tci_node *copy_command(struct tci_store *store, const struct tc_command *command,
                                     size_t *bytes)
{
	size_t deps, edges, served, memory, ready;
	*bytes = sizeof(struct tci_node);
	if (!reserve(bytes, &deps, command->dep_count, sizeof *command->deps) ||
	    !reserve(bytes, &edges, command->dep_count, sizeof(struct tci_edge)) ||
	    !reserve(bytes, &served, command->served_count, sizeof *command->served) ||
	    !reserve(bytes, &memory, command->memory_count, sizeof *command->memory) ||
	    !reserve(bytes, &ready, command->served_count, sizeof(bool))) {
		*bytes = SIZE_MAX;
		return NULL;
	}
	uint32_t block_class;
	unsigned char *block = take_block(store, *bytes, &block_class);
	if (block == NULL)
		return NULL;
	struct tci_node *node = (struct tci_node *)(void *)block;
	node->command = *command;
	memset((unsigned char *)node + sizeof node->command, 0,
	       sizeof *node - sizeof node->command);
	node->block_class = block_class;
	node->command.binds = NULL;
	node->command.bind_count = 0;
	node->command.deps =
	    copy_list(block, deps, command->deps, command->dep_count * sizeof *command->deps);
	node->command.served = copy_list(block, served, command->served,
	                                 command->served_count * sizeof *command->served);
	node->command.memory = copy_list(block, memory, command->memory,
	                                 command->memory_count * sizeof *command->memory);
	node->edges = (struct tci_edge *)(void *)(block + edges);
	node->ready = (bool *)(void *)(block + ready);
	return node;
}

enum tc_status tci_store_add(struct tci_store *store, const struct tc_command *command,
                             struct tci_node **node, struct tc_error *error)
{
	TC_TRY(widen_window(store, error));
	size_t bytes;
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
	TC_TRY(widen_window(store, error));
	store->window[store->next_id & store->mask] = NULL;
	store->next_id++;
	move_base(store);
	return TC_OK;
}

void tci_store_remove(struct tci_store *store, struct tci_node *node)
{
	store->window[node->command.id & store->mask] = NULL;
	move_base(store);
	if (node->block_class == CLASS_LARGE) {
		free(node);
		return;
	}
	struct free_block *block = (struct free_block *)(void *)node;
	uint32_t block_class = node->block_class;
	block->next = store->free_blocks[block_class];
	store->free_blocks[block_class] = block;
}
