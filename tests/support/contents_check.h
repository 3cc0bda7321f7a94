/**
 * @file contents_check.h
 * A sink that follows what lies in the cache of lru or belady by the commands alone, and compares
 * it with the naive reference at every step, and the outcome of every request.
 */
#ifndef TENCACHE_TEST_CONTENTS_CHECK_H
#define TENCACHE_TEST_CONTENTS_CHECK_H

#include "naive_cache.h"

struct contents_totals {
	uint64_t steps, requests, hits, evictions;
};

/**
 * Plan `trace` under `policy` ("lru" or "belady" with parameters) with a cache of `capacity` bytes
 * and compare; a difference fails the test and names the seed. gpu-memory of `machine` is changed.
 */
void contents_compare(const struct tc_trace *trace, struct tc_machine *machine, const char *policy,
                      uint64_t capacity, uint64_t seed, struct contents_totals *totals);
/** Bytes that the cache needs at least, and with which nothing is ever evicted. */
void contents_range(const struct tc_trace *trace, struct tc_machine *machine, const char *policy,
                    uint64_t *least, uint64_t *most);

#endif
