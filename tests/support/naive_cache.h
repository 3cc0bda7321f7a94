/**
 * @file naive_cache.h
 * What lru and belady keep on the GPU, worked out the slow and obvious way from the rules alone:
 * flat arrays, searched from end to end, a use found by walking the ops. Shares no code with the
 * policies or the planner; only the steps and their requests are given.
 */
#ifndef TENCACHE_TEST_NAIVE_CACHE_H
#define TENCACHE_TEST_NAIVE_CACHE_H

#include "plan_case.h"

struct naive_cache;

struct naive_rules {
	bool belady;        /**< else least recently used */
	bool gpu_optimizer; /**< else optimizer steps compute nothing, and gradients leave at their
	                         event */
	bool activations;   /**< managed, too */
	uint64_t capacity, alignment; /**< bytes of the cache; sizes are rounded up */
};

struct naive_cache *naive_new(const struct tc_steps *steps, struct naive_rules rules);
void naive_free(struct naive_cache *cache);

/** Does the step run on the GPU? */
bool naive_computes(const struct naive_cache *cache, uint32_t step);
/**
 * The boundary before `step`, and the step's fetches and births. Call for every step in order,
 * iteration after iteration.
 * @param hits receives for each managed row that opens here whether its tensor was there
 * @return their number
 */
size_t naive_boundary(struct naive_cache *cache, uint32_t step, bool *hits);
/** Transient tensors die with the last op that uses them; recency is brought up to date. */
void naive_step_ends(struct naive_cache *cache, uint32_t step);
bool naive_manages(const struct naive_cache *cache, uint32_t tensor);
bool naive_holds(const struct naive_cache *cache, uint32_t tensor);

#endif
