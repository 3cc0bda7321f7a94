/* Blocks of growing size, filled from the front, and an open-addressing table of strings. */
#include "blocks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

#define FIRST_BLOCK_BYTES 16384u
#define LARGEST_BLOCK_BYTES (1024u * 1024u)
#define ALIGNMENT (sizeof(max_align_t))

struct block {
	struct block *next;
	size_t used, bytes;
	max_align_t memory[];
};

struct tci_blocks {
	struct block *blocks; /* the newest first */
	const char **strings; /* power of two slots, at most half full */
	size_t string_slots, string_count;
};

struct tci_blocks *tci_blocks_create(void)
{
	return calloc(1, sizeof(struct tci_blocks));
}

void tci_blocks_free(struct tci_blocks *blocks)
{
	if (blocks == NULL)
		return;
	while (blocks->blocks != NULL) {
		struct block *next = blocks->blocks->next;
		free(blocks->blocks);
		blocks->blocks = next;
	}
	free(blocks->strings);
	free(blocks);
}

static bool add_block(struct tci_blocks *blocks, size_t bytes)
{
	size_t size = FIRST_BLOCK_BYTES;
	if (blocks->blocks != NULL)
		size = blocks->blocks->bytes * 2;
	if (size > LARGEST_BLOCK_BYTES)
		size = LARGEST_BLOCK_BYTES;
	if (size < bytes)
		size = bytes;
	if (size > SIZE_MAX - sizeof(struct block))
		return false;
	struct block *block = calloc(1, sizeof *block + size);
	if (block == NULL)
		return false;
	block->next = blocks->blocks;
	block->bytes = size;
	blocks->blocks = block;
	return true;
}

void *tci_blocks_take(struct tci_blocks *blocks, size_t count, size_t element_bytes)
{
	uint64_t bytes;
	if (!tc_mul_u64(count, element_bytes, &bytes) || bytes > SIZE_MAX / 2)
		return NULL;
	bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	struct block *block = blocks->blocks;
	if (block == NULL || block->bytes - block->used < bytes) {
		if (!add_block(blocks, (size_t)bytes))
			return NULL;
		block = blocks->blocks;
	}
	unsigned char *memory = (unsigned char *)block->memory + block->used;
	block->used += (size_t)bytes;
	return memory;
}

/** FNV-1a: short keys, no adversary gains more than slow look-ups of names it wrote itself. */
static size_t hash_of(const char *text)
{
	uint64_t hash = 14695981039346656037u;
	for (; *text != '\0'; text++)
		hash = (hash ^ (unsigned char)*text) * 1099511628211u;
	return (size_t)(hash ^ (hash >> 32));
}

static const char **slot_of(const char **strings, size_t slots, const char *text)
{
	size_t index = hash_of(text) & (slots - 1);
	while (strings[index] != NULL && strcmp(strings[index], text) != 0)
		index = (index + 1) & (slots - 1);
	return &strings[index];
}

static bool grow_strings(struct tci_blocks *blocks)
{
	size_t slots = blocks->string_slots == 0 ? 256 : blocks->string_slots * 2;
	const char **strings = tc_alloc_array(slots, sizeof *strings);
	if (strings == NULL)
		return false;
	for (size_t i = 0; i < blocks->string_slots; i++) {
		if (blocks->strings[i] != NULL)
			*slot_of(strings, slots, blocks->strings[i]) = blocks->strings[i];
	}
	free(blocks->strings);
	blocks->strings = strings;
	blocks->string_slots = slots;
	return true;
}

const char *tci_blocks_string(struct tci_blocks *blocks, const char *text)
{
	if (blocks->string_count * 2 >= blocks->string_slots && !grow_strings(blocks))
		return NULL;
	const char **slot = slot_of(blocks->strings, blocks->string_slots, text);
	if (*slot != NULL)
		return *slot;
	size_t bytes = strlen(text) + 1;
	char *copy = tci_blocks_take(blocks, bytes, 1);
	if (copy == NULL)
		return NULL;
	memcpy(copy, text, bytes);
	*slot = copy;
	blocks->string_count++;
	return copy;
}
