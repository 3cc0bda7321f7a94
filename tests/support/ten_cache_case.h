/**
 * @file ten_cache_case.h
 * Plans of 10cache on the shipped traces, and what lies in their GPU pool.
 */
#ifndef TENCACHE_TEST_TEN_CACHE_CASE_H
#define TENCACHE_TEST_TEN_CACHE_CASE_H

#include "plan_case.h"

/** Iterations planned, and the steady one that is looked at: the one before the closing one. */
#define TEN_CACHE_PLANNED 5u
#define TEN_CACHE_STEADY 3u

/** Classes of OPT-6.7B: biases and norms, fc1 biases, attention, feed-forward, score, embeddings.
 */
#define OPT67_BIAS UINT64_C(8192)
#define OPT67_FC1_BIAS UINT64_C(32768)
#define OPT67_SCORE UINT64_C(16384)
#define OPT67_ATTENTION UINT64_C(33554432)
#define OPT67_FC UINT64_C(134217728)
#define OPT67_POSITIONS UINT64_C(16793600)
#define OPT67_WORDS UINT64_C(411828224)

/** A plan of a shipped trace under one policy, audited along the way; free with plan_kept_free().
 */
struct plan_kept ten_cache_plan(const struct tc_trace *trace, const struct tc_machine *machine,
                                const char *policy);
uint32_t ten_cache_pool(const struct plan_kept *planned, const char *name);

struct class_count {
	uint64_t bytes, count;
};

/** Bytes of all buffers; sizes are multiples of the alignment. */
uint64_t ten_cache_class_sum(const struct class_count *classes, size_t count);

/** Occupants of the GPU pool by class, followed in the order of issue. */
struct occupancy {
	uint32_t pool;
	const struct class_count *classes;
	size_t class_count;
	uint64_t now[16], most[16];
};

/** One tensor of `bytes` more or fewer. */
void ten_cache_occupy(struct occupancy *o, uint64_t bytes, int64_t change);
/** Walk the whole plan; `most` is taken from the steady iteration on. */
void ten_cache_occupancy(const struct plan_kept *planned, struct occupancy *o);

#endif
