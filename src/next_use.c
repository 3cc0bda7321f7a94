/*
 * An indexed 4-ary heap: four children share a cache line or two, and the tree is half as deep as a
 * binary one, which pays because keys are mostly re-set downwards from near the top.
 */
#include "order.h"

#include <stdlib.h>

#include "tencache/units.h"

#define CHILDREN 4u
#define ABSENT UINT32_MAX

struct entry {
	uint64_t next_use;
	uint64_t bytes;
	uint32_t id;
};

struct tci_next_use {
	struct entry *entries;
	uint32_t *position; /* of each id in `entries`, or ABSENT */
	uint32_t capacity;
	uint32_t count;
};

enum tc_status tci_next_use_create(uint32_t capacity, struct tci_next_use **heap,
                                   struct tc_error *error)
{
	if (capacity == ABSENT)
		return tc_error_set(error, TC_TOO_LARGE,
		                    "a next-use heap of %lu ids; expected at most %lu",
		                    (unsigned long)capacity, (unsigned long)ABSENT - 1);
	struct tci_next_use *created = calloc(1, sizeof *created);
	if (created == NULL)
		return tc_error_no_memory(error, "a next-use heap", sizeof *created);
	created->capacity = capacity;
	created->entries = tc_alloc_array((size_t)capacity + 1, sizeof *created->entries);
	created->position = tc_alloc_array((size_t)capacity + 1, sizeof *created->position);
	if (created->entries == NULL || created->position == NULL) {
		tci_next_use_free(created);
		return tc_error_no_memory(error, "a next-use heap",
		                          ((uint64_t)capacity + 1) * sizeof *created->entries);
	}
	for (uint32_t id = 0; id < capacity; id++)
		created->position[id] = ABSENT;
	*heap = created;
	return TC_OK;
}

void tci_next_use_free(struct tci_next_use *heap)
{
	if (heap == NULL)
		return;
	free(heap->entries);
	free(heap->position);
	free(heap);
}

/* Does `a` belong above `b`? */
static bool is_farther(const struct entry *a, const struct entry *b)
{
	if (a->next_use != b->next_use)
		return a->next_use > b->next_use;
	if (a->bytes != b->bytes)
		return a->bytes > b->bytes;
	return a->id < b->id;
}

static void put_at(struct tci_next_use *heap, uint32_t at, const struct entry *entry)
{
	heap->entries[at] = *entry;
	heap->position[entry->id] = at;
}

/* Move the hole `at` up until `entry` may fill it; returns where. */
static uint32_t sift_up(struct tci_next_use *heap, uint32_t at, const struct entry *entry)
{
	while (at > 0) {
		uint32_t parent = (at - 1) / CHILDREN;
		if (!is_farther(entry, &heap->entries[parent]))
			break;
		put_at(heap, at, &heap->entries[parent]);
		at = parent;
	}
	return at;
}

/* Move the hole `at` down until `entry` may fill it; returns where. */
static uint32_t sift_down(struct tci_next_use *heap, uint32_t at, const struct entry *entry)
{
	for (;;) {
		uint64_t first = (uint64_t)at * CHILDREN + 1;
		if (first >= heap->count)
			break;
		uint64_t end = first + CHILDREN < heap->count ? first + CHILDREN : heap->count;
		uint32_t best = (uint32_t)first;
		for (uint64_t child = first + 1; child < end; child++) {
			if (is_farther(&heap->entries[child], &heap->entries[best]))
				best = (uint32_t)child;
		}
		if (!is_farther(&heap->entries[best], entry))
			break;
		put_at(heap, at, &heap->entries[best]);
		at = best;
	}
	return at;
}

/* Fill the hole `at` with `entry`, wherever it belongs now. */
static void settle(struct tci_next_use *heap, uint32_t at, const struct entry *entry)
{
	uint32_t up = sift_up(heap, at, entry);
	put_at(heap, up != at ? up : sift_down(heap, at, entry), entry);
}

void tci_next_use_set(struct tci_next_use *heap, uint32_t id, uint64_t next_use, uint64_t bytes)
{
	const struct entry entry = {.next_use = next_use, .bytes = bytes, .id = id};
	uint32_t at = heap->position[id];
	if (at == ABSENT)
		at = heap->count++;
	settle(heap, at, &entry);
}

void tci_next_use_remove(struct tci_next_use *heap, uint32_t id)
{
	uint32_t at = heap->position[id];
	if (at == ABSENT)
		return;
	heap->position[id] = ABSENT;
	heap->count--;
	if (at == heap->count)
		return;
	const struct entry last = heap->entries[heap->count];
	settle(heap, at, &last);
}

bool tci_next_use_contains(const struct tci_next_use *heap, uint32_t id)
{
	return heap->position[id] != ABSENT;
}

uint32_t tci_next_use_farthest(const struct tci_next_use *heap)
{
	return heap->count > 0 ? heap->entries[0].id : UINT32_MAX;
}

uint64_t tci_next_use_key(const struct tci_next_use *heap, uint32_t id)
{
	uint32_t at = heap->position[id];
	return at != ABSENT ? heap->entries[at].next_use : 0;
}

size_t tci_next_use_count(const struct tci_next_use *heap)
{
	return heap->count;
}
