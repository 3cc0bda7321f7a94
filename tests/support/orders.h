/**
 * @file orders.h
 * Orders of steps for tests of reordering: which keep the dataflow, judged step by step and op by
 * op without any of the planner's short cuts; random ones that do; and policies that ask for them.
 */
#ifndef TENCACHE_TEST_ORDERS_H
#define TENCACHE_TEST_ORDERS_H

#include "tencache/planner.h"

/**
 * Does every op, and every unpack, find as many writes and births (and, with `deaths`, deaths) of
 * each of its tensors before it as in the trace? Counts both orders from the start.
 */
bool orders_keep_dataflow(const struct tc_steps *steps, const uint32_t *order, bool deaths);

/** Must these two steps stay in order? Some tensor is touched by both and changed by one. */
bool orders_conflict(const struct tc_steps *steps, uint32_t a, uint32_t b);

/** A random order in which conflicting steps stay in order: any that can be drawn. */
void orders_random_valid(const struct tc_steps *steps, uint64_t *random, uint32_t *order);
/** Few changes of some order: `changes` times two steps swapped or one moved, most near by. */
void orders_disturb(uint64_t *random, uint32_t count, uint32_t changes, uint32_t *order);
/**
 * Each update of an optimizer moved directly behind the step whose boundary holds the gradient
 * event of its last parameter, or behind the last step that it must follow if that is later.
 */
void orders_updates_in_backward(const struct tc_steps *steps, uint32_t *order);

/**
 * A random trace of forward passes over modules with and without parameters, some calling another
 * in between: several micro-batches, buffers and activations written again in place, unpacked
 * tensors; half of them with updates that need no gradient.
 */
struct tc_trace *orders_random_trace(uint64_t seed);

/** What the policy that asks for an order does, and what it heard. */
struct orders_wish {
	const uint32_t *order;
	uint32_t count;
	bool unchecked;   /**< walk the order without asking whether it keeps the dataflow */
	bool late, twice; /**< ask after tc_plan_manage(), ask again */
};
/** Policy `base` with this wish in its begin(). The wish is kept until the next call. */
struct tc_policy orders_policy(const struct tc_policy *base, struct orders_wish wish);

#endif
