/** @file audit_map.h
 * Private: what lies where. Every pool is cut into segments without gaps; each knows its content,
 * who wrote it and who read it last on each lane.
 */
#ifndef TENCACHE_SRC_AUDIT_MAP_H
#define TENCACHE_SRC_AUDIT_MAP_H

#include "lines.h"
#include "tencache/schedule.h"

/** A cache line; who read it stands apart, see tci_map_readers(). */
struct tci_segment {
	uint64_t start, end;
	uint64_t version;       /**< of the tensor; TCI_NO_CONTENT: bytes that mean nothing */
	uint64_t tensor_offset; /**< of the first byte */
	uint64_t writer;        /**< command id + 1; 0: there before the first command */
	uint32_t tensor;        /**< or TC_NONE */
	uint32_t pool;
	uint32_t next, previous; /**< neighbours in the pool, or TC_NONE */
	uint16_t reader_lanes;   /**< bit l: the reader of lane l counts */
	uint8_t writer_lane;
};
_Static_assert(sizeof(struct tci_segment) == TCI_LINE_BYTES, "a segment is a cache line");

#define TCI_NO_CONTENT UINT64_MAX

struct tci_map_pool;

struct tci_map {
	struct tci_segment *segments;
	uint64_t *readers;    /**< of each segment: `reader_stride` of them */
	size_t reader_stride; /**< lanes, rounded up to whole cache lines */
	size_t capacity, reader_capacity;
	uint32_t count, free_segment, used;
	struct tci_map_pool *pools;
	uint32_t pool_count;
	uint32_t *shortcuts; /**< by hash of pool and start: a segment to try first */
	unsigned shortcut_bits;
};

/** Pools as planned, without content, for commands on `lanes` lanes. False when out of memory;
 * clear in any case. */
bool tci_map_start(struct tci_map *map, const struct tc_pool_info *pools, uint32_t pool_count,
                   uint32_t lanes);
void tci_map_clear(struct tci_map *map);
/** The segment that holds byte `offset` of a pool, through the ordered lists. */
uint32_t tci_map_search(struct tci_map *map, uint32_t pool, uint64_t offset);

/** By lane: command id + 1 of the last reader of a segment. */
static inline uint64_t *tci_map_readers(const struct tci_map *map, uint32_t id)
{
	return map->readers + id * map->reader_stride;
}

static inline uint32_t *tci_map_shortcut(const struct tci_map *map, uint32_t pool, uint64_t start)
{
	uint64_t key = (start + pool) * 0x9E3779B97F4A7C15u;
	return &map->shortcuts[key >> (64 - map->shortcut_bits)];
}

/** The segment that holds byte `offset` of a pool (offset < bytes). */
static inline uint32_t tci_map_find(struct tci_map *map, uint32_t pool, uint64_t offset)
{
	uint32_t id = *tci_map_shortcut(map, pool, offset);
	if (id < map->count && map->segments[id].pool == pool && map->segments[id].start == offset)
		return id;
	return tci_map_search(map, pool, offset);
}
/** tci_map_range() where the borders are not there yet; `id` is the segment that holds `start`. */
uint32_t tci_map_cut_range(struct tci_map *map, uint32_t id, uint64_t start, uint64_t end);
/** Segments may move in memory; ids stay. Cut so that `start` and `end` are borders; returns the
 * first segment inside, or TC_NONE. */
static inline uint32_t tci_map_range(struct tci_map *map, uint32_t pool, uint64_t start,
                                     uint64_t end)
{
	uint32_t id = tci_map_find(map, pool, start);
	if (map->segments[id].start == start && map->segments[id].end == end)
		return id;
	return tci_map_cut_range(map, id, start, end);
}
/** Let segment `first` reach to `end`, a border, and remove those it swallows. */
void tci_map_join(struct tci_map *map, uint32_t first, uint64_t end);

#endif
