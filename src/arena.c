/*
 * Best fit with coalescing.
 *
 * Free ranges never touch each other: giving a range back joins it with both neighbours. They are
 * kept in two orders (range_tree.h): by offset to find neighbours, by (bytes, offset) to find the
 * smallest that fits. Taking the low end of a range and growing a range change its offset or size
 * without overtaking a neighbour, so only the order by size is rebuilt there.
 */
#include "pool.h"

#include <stdlib.h>

#include "range_tree.h"
#include "tencache/units.h"

struct tci_arena {
	uint64_t bytes;
	uint64_t free_bytes;
	uint32_t lanes, width;
	struct tci_range_tree tree;
	struct tci_release *releases; /* parallel to tree.nodes: of each free range */
	size_t release_capacity;
};

static struct tci_range *range_at(const struct tci_arena *arena, uint32_t node)
{
	return &arena->tree.nodes[node];
}

/* A new free range in both orders, with its release vector. */
static enum tc_status add_range(struct tci_arena *arena, uint64_t offset, uint64_t bytes,
                                const struct tci_release *release, struct tc_error *error)
{
	uint32_t node;
	TC_TRY(tci_range_new(&arena->tree, offset, bytes, &node, error));
	if (!tc_grow_array(&arena->releases, &arena->release_capacity, (size_t)node + 1,
	                   sizeof *arena->releases)) {
		tci_range_release(&arena->tree, node);
		return tc_error_no_memory(error, "the release vectors of free memory ranges",
		                          ((uint64_t)node + 1) * sizeof *arena->releases);
	}
	tci_release_copy(arena->releases[node].last, release->last, arena->width);
	tci_range_insert(&arena->tree, TCI_BY_OFFSET, node);
	tci_range_insert(&arena->tree, TCI_BY_SIZE, node);
	return TC_OK;
}

static void remove_range(struct tci_arena *arena, uint32_t node)
{
	tci_range_erase(&arena->tree, TCI_BY_OFFSET, node);
	tci_range_erase(&arena->tree, TCI_BY_SIZE, node);
	tci_range_release(&arena->tree, node);
}

/* Move the ends of a range without overtaking a neighbour: its place by offset stays. */
static void reshape_range(struct tci_arena *arena, uint32_t node, uint64_t offset, uint64_t bytes)
{
	tci_range_erase(&arena->tree, TCI_BY_SIZE, node);
	range_at(arena, node)->offset = offset;
	range_at(arena, node)->bytes = bytes;
	tci_range_insert(&arena->tree, TCI_BY_SIZE, node);
}

enum tc_status tci_arena_create(uint64_t bytes, uint32_t lanes, struct tci_arena **arena,
                                struct tc_error *error)
{
	struct tci_arena *created = calloc(1, sizeof *created);
	if (created == NULL)
		return tc_error_no_memory(error, "an arena", sizeof *created);
	created->bytes = bytes;
	created->free_bytes = bytes;
	created->lanes = lanes < TC_MAX_LANES ? lanes : TC_MAX_LANES;
	created->width = tci_release_width(created->lanes);
	tci_range_tree_init(&created->tree);
	if (bytes > 0) {
		enum tc_status status =
		    add_range(created, 0, bytes, &(struct tci_release){{0}}, error);
		if (status != TC_OK) {
			tci_arena_free(created);
			return status;
		}
	}
	*arena = created;
	return TC_OK;
}

void tci_arena_free(struct tci_arena *arena)
{
	if (arena == NULL)
		return;
	tci_range_tree_clear(&arena->tree);
	free(arena->releases);
	free(arena);
}

/* Take the low `bytes` of a free range. */
static void take_low(struct tci_arena *arena, uint32_t node, uint64_t bytes,
                     struct tci_release *release)
{
	const struct tci_range *range = range_at(arena, node);
	tci_release_copy(release->last, arena->releases[node].last, arena->width);
	if (range->bytes == bytes)
		remove_range(arena, node);
	else
		reshape_range(arena, node, range->offset + bytes, range->bytes - bytes);
	arena->free_bytes -= bytes;
}

bool tci_arena_take(struct tci_arena *arena, uint64_t bytes, uint64_t *offset,
                    struct tci_release *release, struct tc_error *error)
{
	(void)error; /* taking the low end of a range never needs memory */
	uint32_t node = bytes > 0 ? tci_range_best_fit(&arena->tree, bytes) : TCI_NO_RANGE;
	if (node == TCI_NO_RANGE)
		return false;
	*offset = range_at(arena, node)->offset;
	take_low(arena, node, bytes, release);
	return true;
}

/* The range [offset, offset + bytes) overlaps nothing that is free and lies in the arena. */
static bool is_taken(const struct tci_arena *arena, uint64_t offset, uint64_t bytes,
                     uint32_t before, uint32_t after)
{
	if (bytes == 0 || offset > arena->bytes || bytes > arena->bytes - offset)
		return false;
	if (before != TCI_NO_RANGE) {
		const struct tci_range *range = range_at(arena, before);
		if (offset - range->offset < range->bytes)
			return false;
	}
	return after == TCI_NO_RANGE || range_at(arena, after)->offset >= offset + bytes;
}

enum tc_status tci_arena_put(struct tci_arena *arena, uint64_t offset, uint64_t bytes,
                             const struct tci_release *release, struct tc_error *error)
{
	uint32_t before = tci_range_before(&arena->tree, offset);
	uint32_t after = tci_range_after(&arena->tree, offset);
	if (!is_taken(arena, offset, bytes, before, after))
		return tc_error_set(error, TC_INTERNAL,
		                    "arena of %llu bytes: bytes %llu to %llu were given back, but "
		                    "not all of them were taken; please report this",
		                    (unsigned long long)arena->bytes, (unsigned long long)offset,
		                    (unsigned long long)offset + bytes);
	bool joins_before =
	    before != TCI_NO_RANGE &&
	    range_at(arena, before)->offset + range_at(arena, before)->bytes == offset;
	bool joins_after =
	    after != TCI_NO_RANGE && range_at(arena, after)->offset == offset + bytes;

	if (joins_before && joins_after) {
		uint64_t after_bytes = range_at(arena, after)->bytes;
		tci_release_merge(&arena->releases[before], release, arena->lanes);
		tci_release_merge(&arena->releases[before], &arena->releases[after], arena->lanes);
		remove_range(arena, after);
		reshape_range(arena, before, range_at(arena, before)->offset,
		              range_at(arena, before)->bytes + bytes + after_bytes);
	} else if (joins_before) {
		tci_release_merge(&arena->releases[before], release, arena->lanes);
		reshape_range(arena, before, range_at(arena, before)->offset,
		              range_at(arena, before)->bytes + bytes);
	} else if (joins_after) {
		tci_release_merge(&arena->releases[after], release, arena->lanes);
		reshape_range(arena, after, offset, range_at(arena, after)->bytes + bytes);
	} else {
		TC_TRY(add_range(arena, offset, bytes, release, error));
	}
	arena->free_bytes += bytes;
	return TC_OK;
}

uint64_t tci_arena_free_bytes(const struct tci_arena *arena)
{
	return arena->free_bytes;
}

uint64_t tci_arena_largest_free(const struct tci_arena *arena)
{
	uint32_t node = tci_range_largest(&arena->tree);
	return node != TCI_NO_RANGE ? range_at(arena, node)->bytes : 0;
}
