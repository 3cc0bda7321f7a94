/*
 * The ordered map of segments: per pool, blocks of up to BLOCK_SEGMENTS sorted starts, and a sorted
 * list of the blocks' first starts. Both are searched without branches on the data. Since most
 * accesses begin where they began the last time, a table of shortcuts is tried before.
 */
#include "audit_map.h"

#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

#define BLOCK_SEGMENTS 64u
#define SHORTCUT_BITS 12u /* at first: twice the segments later on */

struct block {
	uint32_t count;
	uint32_t ids[BLOCK_SEGMENTS];
	uint64_t starts[BLOCK_SEGMENTS];
};

struct tci_map_pool {
	struct block **blocks;
	uint64_t *firsts; /**< smallest start of each block */
	size_t block_capacity, first_capacity;
	uint32_t block_count;
};

/** Index of the last of `count` > 0 sorted values that is at most `value`; the first is. */
static uint32_t last_at_most(const uint64_t *values, uint32_t count, uint64_t value)
{
	uint32_t low = 0;
	while (count > 1) {
		uint32_t half = count / 2;
		low += values[low + half] <= value ? half : 0;
		count -= half;
	}
	return low;
}

static uint32_t take_segment(struct tci_map *map)
{
	uint32_t id = map->free_segment;
	if (id != TC_NONE) {
		map->free_segment = map->segments[id].next;
	} else {
		size_t needed = (size_t)map->count + 1;
		if (needed >= TC_NONE ||
		    !tci_grow_lines(&map->segments, &map->capacity, needed,
		                    sizeof *map->segments) ||
		    !tci_grow_lines(&map->readers, &map->reader_capacity, needed,
		                    map->reader_stride * sizeof *map->readers))
			return TC_NONE;
		id = map->count++;
	}
	map->used++;
	return id;
}

/** Keep the table of shortcuts sparse; it fills again as segments are looked up. */
static void grow_shortcuts(struct tci_map *map)
{
	size_t size = (size_t)1 << map->shortcut_bits;
	if ((size_t)map->used * 2 <= size || map->shortcut_bits > 24)
		return;
	uint32_t *grown = tc_alloc_array(2 * size, sizeof *grown);
	if (grown == NULL)
		return; /* slower, not wrong */
	free(map->shortcuts);
	map->shortcuts = grown;
	map->shortcut_bits++;
}

static void release_segment(struct tci_map *map, uint32_t id)
{
	map->segments[id].pool = TC_NO_POOL; /* no shortcut leads here any more */
	map->segments[id].next = map->free_segment;
	map->free_segment = id;
	map->used--;
}

static bool insert_block(struct tci_map_pool *pool, uint32_t at, struct block *block)
{
	size_t needed = (size_t)pool->block_count + 1;
	if (!tc_grow_array(&pool->blocks, &pool->block_capacity, needed, sizeof *pool->blocks) ||
	    !tc_grow_array(&pool->firsts, &pool->first_capacity, needed, sizeof *pool->firsts))
		return false;
	size_t behind = pool->block_count - at;
	memmove(pool->blocks + at + 1, pool->blocks + at, behind * sizeof *pool->blocks);
	memmove(pool->firsts + at + 1, pool->firsts + at, behind * sizeof *pool->firsts);
	pool->blocks[at] = block;
	pool->firsts[at] = block->starts[0];
	pool->block_count++;
	return true;
}

/** Make room in a full block by moving its upper half into a new one behind it. */
static bool split_block(struct tci_map_pool *pool, uint32_t at)
{
	struct block *full = pool->blocks[at];
	struct block *upper = malloc(sizeof *upper);
	if (upper == NULL)
		return false;
	uint32_t half = BLOCK_SEGMENTS / 2;
	upper->count = BLOCK_SEGMENTS - half;
	memcpy(upper->ids, full->ids + half, upper->count * sizeof *upper->ids);
	memcpy(upper->starts, full->starts + half, upper->count * sizeof *upper->starts);
	if (!insert_block(pool, at + 1, upper)) {
		free(upper);
		return false;
	}
	full->count = half;
	return true;
}

static bool index_insert(struct tci_map_pool *pool, uint64_t start, uint32_t id)
{
	uint32_t b = last_at_most(pool->firsts, pool->block_count, start);
	if (pool->blocks[b]->count == BLOCK_SEGMENTS) {
		if (!split_block(pool, b))
			return false;
		b = last_at_most(pool->firsts, pool->block_count, start);
	}
	struct block *block = pool->blocks[b];
	uint32_t i = last_at_most(block->starts, block->count, start) + 1;
	memmove(block->starts + i + 1, block->starts + i,
	        (block->count - i) * sizeof *block->starts);
	memmove(block->ids + i + 1, block->ids + i, (block->count - i) * sizeof *block->ids);
	block->starts[i] = start;
	block->ids[i] = id;
	block->count++;
	return true;
}

static void index_remove(struct tci_map_pool *pool, uint64_t start)
{
	uint32_t b = last_at_most(pool->firsts, pool->block_count, start);
	struct block *block = pool->blocks[b];
	uint32_t i = last_at_most(block->starts, block->count, start);
	block->count--;
	memmove(block->starts + i, block->starts + i + 1,
	        (block->count - i) * sizeof *block->starts);
	memmove(block->ids + i, block->ids + i + 1, (block->count - i) * sizeof *block->ids);
	if (block->count > 0) {
		pool->firsts[b] = block->starts[0];
		return;
	}
	free(block);
	pool->block_count--;
	size_t behind = pool->block_count - b;
	memmove(pool->blocks + b, pool->blocks + b + 1, behind * sizeof *pool->blocks);
	memmove(pool->firsts + b, pool->firsts + b + 1, behind * sizeof *pool->firsts);
}

static bool start_pool(struct tci_map *map, uint32_t p, uint64_t bytes)
{
	struct block *block = malloc(sizeof *block);
	uint32_t id = block == NULL ? TC_NONE : take_segment(map);
	if (id == TC_NONE) {
		free(block);
		return false;
	}
	map->segments[id] = (struct tci_segment){.end = bytes,
	                                         .version = TCI_NO_CONTENT,
	                                         .tensor = TC_NONE,
	                                         .pool = p,
	                                         .next = TC_NONE,
	                                         .previous = TC_NONE};
	block->count = 1;
	block->starts[0] = 0;
	block->ids[0] = id;
	if (!insert_block(&map->pools[p], 0, block)) {
		free(block);
		return false;
	}
	return true;
}

bool tci_map_start(struct tci_map *map, const struct tc_pool_info *pools, uint32_t pool_count,
                   uint32_t lanes)
{
	enum { IN_LINE = TCI_LINE_BYTES / sizeof *map->readers };
	*map = (struct tci_map){.free_segment = TC_NONE,
	                        .reader_stride = ((size_t)lanes + IN_LINE - 1) / IN_LINE * IN_LINE};
	map->pools = tc_alloc_array(pool_count > 0 ? pool_count : 1, sizeof *map->pools);
	map->shortcut_bits = SHORTCUT_BITS;
	map->shortcuts = tc_alloc_array((size_t)1 << SHORTCUT_BITS, sizeof *map->shortcuts);
	if (map->pools == NULL || map->shortcuts == NULL)
		return false;
	map->pool_count = pool_count;
	for (uint32_t p = 0; p < pool_count; p++)
		if (!start_pool(map, p, pools[p].bytes))
			return false;
	return true;
}

void tci_map_clear(struct tci_map *map)
{
	for (uint32_t p = 0; p < map->pool_count; p++) {
		for (uint32_t b = 0; b < map->pools[p].block_count; b++)
			free(map->pools[p].blocks[b]);
		free(map->pools[p].blocks);
		free(map->pools[p].firsts);
	}
	free(map->pools);
	free(map->shortcuts);
	free(map->segments);
	free(map->readers);
	*map = (struct tci_map){0};
}

uint32_t tci_map_search(struct tci_map *map, uint32_t pool, uint64_t offset)
{
	const struct tci_map_pool *index = &map->pools[pool];
	const struct block *block =
	    index->blocks[last_at_most(index->firsts, index->block_count, offset)];
	uint32_t id = block->ids[last_at_most(block->starts, block->count, offset)];
	if (map->segments[id].start == offset)
		*tci_map_shortcut(map, pool, offset) = id;
	return id;
}

static void copy_readers(const struct tci_map *map, uint32_t to, uint32_t from)
{
	const uint64_t *source = tci_map_readers(map, from);
	uint64_t *target = tci_map_readers(map, to);
	uint32_t lane = 0;
	for (uint32_t left = map->segments[from].reader_lanes; left != 0; left >>= 1, lane++)
		if ((left & 1) != 0)
			target[lane] = source[lane];
}

/** The segment that begins at `start`, after cutting the one that holds it in two if needed.
 * TC_NONE when out of memory. */
static uint32_t cut(struct tci_map *map, uint32_t id, uint64_t start)
{
	if (map->segments[id].start == start)
		return id;
	uint32_t pool = map->segments[id].pool;
	grow_shortcuts(map);
	uint32_t upper = take_segment(map);
	if (upper == TC_NONE)
		return TC_NONE;
	if (!index_insert(&map->pools[pool], start, upper)) {
		release_segment(map, upper);
		return TC_NONE;
	}
	struct tci_segment *below = &map->segments[id], *above = &map->segments[upper];
	*above = *below;
	copy_readers(map, upper, id);
	above->start = start;
	above->tensor_offset += start - below->start;
	above->previous = id;
	below->end = start;
	below->next = upper;
	if (above->next != TC_NONE)
		map->segments[above->next].previous = upper;
	*tci_map_shortcut(map, pool, start) = upper;
	return upper;
}

/** The segment that holds the byte before `end`, from one before it: often the next few are it. */
static uint32_t find_last(struct tci_map *map, uint32_t id, uint64_t end)
{
	enum { NEAR = 4 };
	for (int step = 0; step < NEAR; step++) {
		if (map->segments[id].end >= end)
			return id;
		id = map->segments[id].next;
	}
	return tci_map_find(map, map->segments[id].pool, end - 1);
}

uint32_t tci_map_cut_range(struct tci_map *map, uint32_t id, uint64_t start, uint64_t end)
{
	uint32_t first = cut(map, id, start);
	if (first == TC_NONE || map->segments[first].end == end)
		return first;
	uint32_t last = find_last(map, first, end);
	if (map->segments[last].end != end && cut(map, last, end) == TC_NONE)
		return TC_NONE;
	return first;
}

void tci_map_join(struct tci_map *map, uint32_t first, uint64_t end)
{
	struct tci_segment *segment = &map->segments[first];
	while (segment->end < end) {
		uint32_t swallowed = segment->next;
		const struct tci_segment *other = &map->segments[swallowed];
		index_remove(&map->pools[segment->pool], other->start);
		segment->end = other->end;
		segment->next = other->next;
		if (other->next != TC_NONE)
			map->segments[other->next].previous = first;
		release_segment(map, swallowed);
	}
}
