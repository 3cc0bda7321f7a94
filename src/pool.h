/**
 * @file pool.h
 * Memory at plan time: who may have which bytes of a pool, and which commands touched them last.
 *
 * A *release vector* is kept with every free range: for each lane, the last command that touched
 * the bytes (readers included). Whoever writes there next must wait for those commands. Splitting
 * a range copies its vector; joining two takes the element-wise maximum.
 */
#ifndef TENCACHE_SRC_POOL_H
#define TENCACHE_SRC_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tencache/error.h"
#include "tencache/machine.h"

/** Per lane: command id + 1 of the last command that touched the bytes; 0: none. 32 bits (the
 * planner refuses longer plans): a vector is a cache line, and there are as many as slots. */
struct tci_release {
	uint32_t last[TC_MAX_LANES];
};

/** Most machines have no more lanes; then only so many entries are touched, half a cache line. */
#define TCI_FEW_LANES 8u

/** Entries of a vector that are looked at where there are `lanes`: constants, so that loops over
 * them unroll. */
static inline uint32_t tci_release_width(uint32_t lanes)
{
	return lanes <= TCI_FEW_LANES ? TCI_FEW_LANES : TC_MAX_LANES;
}

/** The first `width` entries, which is one of the two above. */
static inline void tci_release_copy(uint32_t *target, const uint32_t *source, uint32_t width)
{
	if (width == TCI_FEW_LANES)
		memcpy(target, source, TCI_FEW_LANES * sizeof *target);
	else
		memcpy(target, source, TC_MAX_LANES * sizeof *target);
}

/** Element-wise maximum of `lanes` entries into `target`. */
void tci_release_merge(struct tci_release *target, const struct tci_release *source,
                       uint32_t lanes);

/* ---------------------------------------------------------------- arena: best fit, coalescing */

struct tci_arena;

/** `bytes` in all; `lanes` entries of each release vector count. Free with tci_arena_free(). */
enum tc_status tci_arena_create(uint64_t bytes, uint32_t lanes, struct tci_arena **arena,
                                struct tc_error *error);
void tci_arena_free(struct tci_arena *arena);
/**
 * Take `bytes` (already aligned, > 0) from the smallest free range that fits, ties by lowest
 * offset, at its low end. O(log ranges). `release` receives what must be waited for.
 * @return false when no range fits (nothing changes) or memory runs out (`*error` set)
 */
bool tci_arena_take(struct tci_arena *arena, uint64_t bytes, uint64_t *offset,
                    struct tci_release *release, struct tc_error *error);
/** Give back a range that was taken. */
enum tc_status tci_arena_put(struct tci_arena *arena, uint64_t offset, uint64_t bytes,
                             const struct tci_release *release, struct tc_error *error);
uint64_t tci_arena_free_bytes(const struct tci_arena *arena);
uint64_t tci_arena_largest_free(const struct tci_arena *arena);

/* ---------------------------------------------------------------- buffers of fixed sizes */

struct tci_buffers;

struct tci_buffer_class {
	uint64_t bytes;        /**< exact size that asks for this class */
	uint64_t buffer_bytes; /**< aligned size of each buffer */
	uint64_t count;
};

/** Buffers laid out class after class from offset 0. `fifo`: reuse the one given back first
 * instead of last. Free with tci_buffers_free(). */
enum tc_status tci_buffers_create(const struct tci_buffer_class *classes, size_t class_count,
                                  bool fifo, uint32_t lanes, struct tci_buffers **buffers,
                                  struct tc_error *error);
void tci_buffers_free(struct tci_buffers *buffers);
/** Take a buffer of exactly the class `bytes`; false when the class is unknown or empty.
 * A pool with a single class serves every size up to it (ZeRO's staging buffers). */
bool tci_buffers_take(struct tci_buffers *buffers, uint64_t bytes, uint64_t *offset,
                      struct tci_release *release);
/** Give back the buffer at `offset`. */
void tci_buffers_put(struct tci_buffers *buffers, uint64_t offset,
                     const struct tci_release *release);
/** Free buffers of the class that would serve `bytes`. */
uint64_t tci_buffers_available(const struct tci_buffers *buffers, uint64_t bytes);
/** Smallest number of free buffers that class ever had since creation. */
uint64_t tci_buffers_low_water(const struct tci_buffers *buffers, uint64_t bytes);
uint64_t tci_buffers_total_bytes(const struct tci_buffers *buffers);
uint64_t tci_buffers_free_bytes(const struct tci_buffers *buffers);

#endif
