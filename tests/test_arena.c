/*
 * The arena against a byte map: one entry per byte says whether it is taken, which release vector
 * the split and join rules give it, and what its last user really left there. Every answer of the
 * arena is compared with a scan of that map.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pool.h"
#include "random.h"
#include "range_tree.h"

#define MAP_BYTES 512
#define LANES 5
#define MAX_HELD MAP_BYTES

struct held {
	uint64_t offset, bytes;
};

struct map {
	uint64_t bytes;
	bool taken[MAP_BYTES];
	struct tci_release rule[MAP_BYTES];  /* equal for all bytes of a free range */
	struct tci_release truth[MAP_BYTES]; /* what the last user of this byte left */
	struct held held[MAX_HELD];
	uint32_t held_count;
	uint32_t clock;
};

/* End of the free run that starts at `start`. */
static uint64_t run_end(const struct map *map, uint64_t start)
{
	uint64_t end = start;
	while (end < map->bytes && !map->taken[end])
		end++;
	return end;
}

/* Smallest free run that holds `bytes`, the first of equals; map->bytes if there is none. */
static uint64_t best_fit(const struct map *map, uint64_t bytes)
{
	uint64_t best = map->bytes;
	uint64_t best_bytes = UINT64_MAX;
	for (uint64_t at = 0; at < map->bytes; at++) {
		if (map->taken[at])
			continue;
		uint64_t end = run_end(map, at);
		if (end - at >= bytes && end - at < best_bytes) {
			best = at;
			best_bytes = end - at;
		}
		at = end;
	}
	return best;
}

static uint64_t largest_run(const struct map *map)
{
	uint64_t largest = 0;
	for (uint64_t at = 0; at < map->bytes; at++) {
		uint64_t end = run_end(map, at);
		if (end - at > largest)
			largest = end - at;
		at = end;
	}
	return largest;
}

static uint64_t free_count(const struct map *map)
{
	uint64_t count = 0;
	for (uint64_t at = 0; at < map->bytes; at++)
		count += !map->taken[at];
	return count;
}

/* The taken range must get exactly the vector of its run, at least the truth of each byte. */
static void check_release(const struct map *map, uint64_t offset, uint64_t bytes,
                          const struct tci_release *release)
{
	assert_memory_equal(release, &map->rule[offset], sizeof *release);
	for (uint64_t at = offset; at < offset + bytes; at++) {
		for (uint32_t lane = 0; lane < LANES; lane++)
			assert_true(release->last[lane] >= map->truth[at].last[lane]);
	}
}

static void mark_taken(struct map *map, uint64_t offset, uint64_t bytes)
{
	for (uint64_t at = offset; at < offset + bytes; at++) {
		assert_false(map->taken[at]);
		map->taken[at] = true;
	}
	map->held[map->held_count++] = (struct held){offset, bytes};
}

static void mark_free(struct map *map, uint64_t offset, uint64_t bytes,
                      const struct tci_release *release)
{
	for (uint64_t at = offset; at < offset + bytes; at++) {
		map->taken[at] = false;
		map->rule[at] = *release;
		map->truth[at] = *release;
	}
	uint64_t start = offset;
	while (start > 0 && !map->taken[start - 1])
		start--;
	uint64_t end = run_end(map, start);
	struct tci_release joined = {{0}};
	for (uint64_t at = start; at < end; at++)
		tci_release_merge(&joined, &map->rule[at], LANES);
	for (uint64_t at = start; at < end; at++)
		map->rule[at] = joined;
}

static void try_take(struct tci_arena *arena, struct map *map, uint64_t *random)
{
	uint64_t bytes = 1 + test_random_below(random, 1 + test_random_below(random, 64));
	uint64_t offset = UINT64_MAX;
	struct tci_release release = {{0}};
	uint64_t expected = best_fit(map, bytes);
	bool taken = tci_arena_take(arena, bytes, &offset, &release, NULL);
	assert_int_equal(taken, expected < map->bytes);
	if (!taken)
		return;
	assert_int_equal(offset, expected);
	check_release(map, offset, bytes, &release);
	mark_taken(map, offset, bytes);
}

static void give_back(struct tci_arena *arena, struct map *map, uint64_t *random)
{
	if (map->held_count == 0)
		return;
	uint32_t index = (uint32_t)test_random_below(random, map->held_count);
	struct held held = map->held[index];
	map->held[index] = map->held[--map->held_count];
	struct tci_release release = {{0}};
	for (uint32_t lane = 0; lane < LANES; lane++) {
		if (test_random_below(random, 2) == 0)
			release.last[lane] = ++map->clock;
	}
	struct tc_error error = {0};
	assert_int_equal(tci_arena_put(arena, held.offset, held.bytes, &release, &error), TC_OK);
	mark_free(map, held.offset, held.bytes, &release);
}

static void check_queries(const struct tci_arena *arena, const struct map *map)
{
	assert_int_equal(tci_arena_free_bytes(arena), free_count(map));
	assert_int_equal(tci_arena_largest_free(arena), largest_run(map));
}

static void test_random_sequences(void **state)
{
	(void)state;
	static struct map map;
	uint64_t random = 20251114;
	for (uint32_t round = 0; round < 400; round++) {
		memset(&map, 0, sizeof map);
		map.bytes = 1 + test_random_below(&random, MAP_BYTES);
		/* From nearly empty to nearly full: how often a range is given back. */
		uint64_t puts = 1 + test_random_below(&random, 9);
		struct tci_arena *arena;
		struct tc_error error = {0};
		assert_int_equal(tci_arena_create(map.bytes, LANES, &arena, &error), TC_OK);
		for (uint32_t step = 0; step < 300; step++) {
			uint64_t choice = test_random_below(&random, 14);
			if (choice < puts)
				give_back(arena, &map, &random);
			else
				try_take(arena, &map, &random);
			check_queries(arena, &map);
		}
		while (map.held_count > 0)
			give_back(arena, &map, &random);
		/* Everything is one range again, with the largest clock ever left per lane. */
		uint64_t start;
		struct tci_release release;
		assert_true(tci_arena_take(arena, map.bytes, &start, &release, NULL));
		assert_int_equal(start, 0);
		check_release(&map, 0, map.bytes, &release);
		tci_arena_free(arena);
	}
}

/* All of an arena that is free as a whole; holes are made by giving parts back. */
static void take_all(struct tci_arena *arena, uint64_t bytes)
{
	uint64_t offset;
	struct tci_release release;
	assert_true(tci_arena_take(arena, bytes, &offset, &release, NULL));
	assert_int_equal(offset, 0);
}

static void put(struct tci_arena *arena, uint64_t offset, uint64_t bytes, uint32_t clock)
{
	struct tci_release release = {{0}};
	release.last[0] = clock;
	release.last[1] = 100 - clock;
	assert_int_equal(tci_arena_put(arena, offset, bytes, &release, NULL), TC_OK);
}

/* Ties go to the lowest offset, and a smaller hole wins over a lower one. */
static void test_best_fit_ties(void **state)
{
	(void)state;
	struct tci_arena *arena;
	assert_int_equal(tci_arena_create(1000, LANES, &arena, NULL), TC_OK);
	struct tci_release release;
	uint64_t offset;
	take_all(arena, 1000);
	put(arena, 500, 40, 1); /* holes: 500+40, 200+40, 800+20 */
	put(arena, 200, 40, 2);
	put(arena, 800, 20, 3);
	assert_true(tci_arena_take(arena, 30, &offset, &release, NULL));
	assert_int_equal(offset, 200);
	assert_true(tci_arena_take(arena, 10, &offset, &release, NULL)); /* 230+10 fits exactly */
	assert_int_equal(offset, 230);
	assert_true(tci_arena_take(arena, 20, &offset, &release, NULL));
	assert_int_equal(offset, 800);
	assert_false(tci_arena_take(arena, 41, &offset, &release, NULL));
	assert_false(tci_arena_take(arena, 0, &offset, &release, NULL));
	tci_arena_free(arena);
}

/* Splitting copies a vector, joining takes the element-wise maximum (worked by hand). */
static void test_release_rules(void **state)
{
	(void)state;
	struct tci_arena *arena;
	assert_int_equal(tci_arena_create(100, LANES, &arena, NULL), TC_OK);
	struct tci_release release;
	uint64_t offset;
	assert_true(tci_arena_take(arena, 100, &offset, &release, NULL));
	assert_int_equal(release.last[0], 0);
	put(arena, 0, 40, 10); /* lane 0: 10, lane 1: 90 */
	assert_true(tci_arena_take(arena, 20, &offset, &release, NULL));
	assert_int_equal(offset, 0);
	assert_int_equal(release.last[0], 10);
	assert_int_equal(release.last[1], 90);
	put(arena, 0, 10, 5);   /* 10-20 stays taken */
	put(arena, 60, 40, 70); /* lane 0: 70, lane 1: 30 */
	put(arena, 40, 20, 50); /* joins 20-40, 40-60, 60-100 */
	assert_true(tci_arena_take(arena, 80, &offset, &release, NULL));
	assert_int_equal(offset, 20);
	assert_int_equal(release.last[0], 70);
	assert_int_equal(release.last[1], 90);
	assert_true(tci_arena_take(arena, 10, &offset, &release, NULL)); /* untouched by the join */
	assert_int_equal(offset, 0);
	assert_int_equal(release.last[0], 5);
	assert_int_equal(release.last[1], 95);
	tci_arena_free(arena);
}

static void expect_refused(struct tci_arena *arena, uint64_t offset, uint64_t bytes)
{
	struct tci_release release = {{0}};
	struct tc_error error = {0};
	assert_int_equal(tci_arena_put(arena, offset, bytes, &release, &error), TC_INTERNAL);
	assert_non_null(strstr(error.text, "not all of them were taken"));
}

static void test_wrong_put_is_refused(void **state)
{
	(void)state;
	struct tci_arena *arena;
	assert_int_equal(tci_arena_create(100, LANES, &arena, NULL), TC_OK);
	take_all(arena, 100);
	put(arena, 0, 20, 1);
	put(arena, 40, 60, 1);
	expect_refused(arena, 20, 21);
	expect_refused(arena, 19, 5);
	expect_refused(arena, 19, 40);
	expect_refused(arena, 50, 10);
	expect_refused(arena, 20, 0);
	expect_refused(arena, 101, 1);
	expect_refused(arena, 20, UINT64_MAX);
	put(arena, 30, 10, 1);
	expect_refused(arena, 30, 10);
	assert_int_equal(tci_arena_free_bytes(arena), 90);
	tci_arena_free(arena);

	assert_int_equal(tci_arena_create(0, LANES, &arena, NULL), TC_OK);
	uint64_t offset;
	struct tci_release release;
	assert_false(tci_arena_take(arena, 1, &offset, &release, NULL));
	assert_int_equal(tci_arena_largest_free(arena), 0);
	tci_arena_free(arena);
	tci_arena_free(NULL);
}

/* Offsets far above 4 GiB, and a range at the very end. */
static void test_large_offsets(void **state)
{
	(void)state;
	struct tci_arena *arena;
	uint64_t all = UINT64_MAX;
	assert_int_equal(tci_arena_create(all, LANES, &arena, NULL), TC_OK);
	uint64_t offset;
	struct tci_release release;
	take_all(arena, all);
	put(arena, 0, all - 7, 1);
	assert_false(tci_arena_take(arena, all - 6, &offset, &release, NULL));
	assert_int_equal(tci_arena_largest_free(arena), all - 7);
	put(arena, all - 7, 7, 1);
	assert_int_equal(tci_arena_largest_free(arena), all);
	tci_arena_free(arena);
}

/* Height of the order by offset, without recursion: nodes are visited with their depth. */
static uint32_t height(const struct tci_range_tree *tree, enum tci_range_order order)
{
	uint32_t *stack = malloc(sizeof *stack * 2 * tree->used);
	assert_non_null(stack);
	uint32_t highest = 0;
	size_t top = 0;
	stack[top++] = tree->root[order];
	stack[top++] = 1;
	while (top > 0) {
		uint32_t depth = stack[--top];
		const struct tci_range *node = &tree->nodes[stack[--top]];
		highest = depth > highest ? depth : highest;
		const uint32_t children[] = {node->left[order], node->right[order]};
		for (int side = 0; side < 2; side++) {
			if (children[side] == TCI_NO_RANGE)
				continue;
			stack[top++] = children[side];
			stack[top++] = depth + 1;
		}
	}
	free(stack);
	return highest;
}

/*
 * Ranges entered in ascending order, the worst case of an unbalanced tree (height 65,536 here).
 * A treap has the height of a random binary search tree: about 4.311 ln n for large n (Devroye
 * 1986); 4.311 ln 65536 = 47.8.
 */
static void test_trees_stay_shallow(void **state)
{
	(void)state;
	struct tci_range_tree tree;
	tci_range_tree_init(&tree);
	for (uint32_t index = 0; index < 65536; index++) {
		uint32_t node;
		assert_int_equal(tci_range_new(&tree, index * 4ull, 1 + index, &node, NULL), TC_OK);
		tci_range_insert(&tree, TCI_BY_OFFSET, node);
		tci_range_insert(&tree, TCI_BY_SIZE, node);
	}
	assert_in_range(height(&tree, TCI_BY_OFFSET), 17, 47);
	assert_in_range(height(&tree, TCI_BY_SIZE), 17, 47);
	for (uint32_t node = 0; node < 65536; node += 2) {
		tci_range_erase(&tree, TCI_BY_OFFSET, node);
		tci_range_erase(&tree, TCI_BY_SIZE, node);
		tci_range_release(&tree, node);
	}
	assert_in_range(height(&tree, TCI_BY_OFFSET), 16, 47);
	assert_int_equal(tree.nodes[tci_range_best_fit(&tree, 1001)].bytes, 1002);
	tci_range_tree_clear(&tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_random_sequences), cmocka_unit_test(test_best_fit_ties),
	    cmocka_unit_test(test_release_rules),    cmocka_unit_test(test_wrong_put_is_refused),
	    cmocka_unit_test(test_large_offsets),    cmocka_unit_test(test_trees_stay_shallow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
