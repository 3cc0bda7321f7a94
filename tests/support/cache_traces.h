/**
 * Request sequences with published results for caches that only count bytes, and two such caches
 * over the library's own orders. The sequences T1 and T2 are defined by their generators; the
 * results to compare with come from libCacheSim (https://github.com/1a1a11a/libCacheSim, commit
 * aa0fc40) and an independent naive simulator.
 */
#ifndef TENCACHE_TEST_CACHE_TRACES_H
#define TENCACHE_TEST_CACHE_TRACES_H

#include <stddef.h>
#include <stdint.h>

struct test_request {
	uint32_t id;
	uint64_t bytes;
	uint64_t next; /**< index of the next request for the same id, or UINT64_MAX */
};

struct test_requests {
	struct test_request *items;
	size_t count;
	uint32_t id_count; /**< ids are below this */
};

/** T1: 100,000 requests for 1,000 ids, skewed to small ids. Free with test_requests_free(). */
struct test_requests test_requests_t1(void);
/** T2: 20 iterations of a training loop over 48 layers. */
struct test_requests test_requests_t2(void);
/** Fill in `next` of hand-made requests. */
void test_requests_link(struct test_requests *requests);
void test_requests_free(struct test_requests *requests);

struct test_cache_result {
	uint64_t hits, missed_bytes, evictions, objects, occupied;
};

/**
 * Least recently used, and farthest next use, under libCacheSim's rules: a miss evicts one at a
 * time while occupied + size > capacity; a size above the capacity is a miss and not admitted.
 */
struct test_cache_result test_cache_lru(const struct test_requests *requests, uint64_t capacity);
struct test_cache_result test_cache_belady(const struct test_requests *requests, uint64_t capacity);

#endif
