/**
 * @file order.h
 * Two orders over dense ids that cache policies need: by recency and by next use.
 */
#ifndef TENCACHE_SRC_ORDER_H
#define TENCACHE_SRC_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tencache/error.h"

/* ---------------------------------------------------------------- recency list */

/** A doubly linked list over ids 0 ... capacity-1 in two flat arrays; all operations O(1). */
struct tci_recency;
enum tc_status tci_recency_create(uint32_t capacity, struct tci_recency **recency,
                                  struct tc_error *error);
void tci_recency_free(struct tci_recency *recency);
/** Make `id` the most recent one, inserting it if absent. */
void tci_recency_touch(struct tci_recency *recency, uint32_t id);
void tci_recency_remove(struct tci_recency *recency, uint32_t id); /**< absent: no effect */
bool tci_recency_contains(const struct tci_recency *recency, uint32_t id);
/** Least recent id, or UINT32_MAX when empty. */
uint32_t tci_recency_oldest(const struct tci_recency *recency);
/** The next more recent id after `id`, or UINT32_MAX. */
uint32_t tci_recency_newer(const struct tci_recency *recency, uint32_t id);

/* ---------------------------------------------------------------- next-use heap */

/** An indexed 4-ary heap of ids by next use: the top has the farthest; ties: larger bytes first,
 * then smaller id. */
struct tci_next_use;
enum tc_status tci_next_use_create(uint32_t capacity, struct tci_next_use **heap,
                                   struct tc_error *error);
void tci_next_use_free(struct tci_next_use *heap);
/** Insert or re-key. UINT64_MAX: never used again. */
void tci_next_use_set(struct tci_next_use *heap, uint32_t id, uint64_t next_use, uint64_t bytes);
void tci_next_use_remove(struct tci_next_use *heap, uint32_t id); /**< absent: no effect */
bool tci_next_use_contains(const struct tci_next_use *heap, uint32_t id);
/** Farthest id, or UINT32_MAX when empty. */
uint32_t tci_next_use_farthest(const struct tci_next_use *heap);
uint64_t tci_next_use_key(const struct tci_next_use *heap, uint32_t id);
size_t tci_next_use_count(const struct tci_next_use *heap);

#endif
