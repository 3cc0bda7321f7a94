#include "plan_bound.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct bound {
	const struct tc_trace *trace;
	uint32_t *accesses; /**< parameters in the order of one iteration */
	size_t count, capacity;
	uint64_t *cached, *next; /**< per tensor: bytes there, position of the next access */
	bool *seen;
	uint64_t fetched;
};

static void access_list(struct bound *bound, struct tc_ids ids)
{
	for (uint32_t i = 0; i < ids.count; i++) {
		if (bound->trace->tensors[ids.items[i]].kind != TC_PARAM)
			continue;
		if (bound->count == bound->capacity) {
			bound->capacity = 2 * bound->capacity + 64;
			bound->accesses =
			    realloc(bound->accesses, bound->capacity * sizeof *bound->accesses);
			assert_non_null(bound->accesses);
		}
		bound->accesses[bound->count++] = ids.items[i];
	}
}

/** Position of the next access at or after `from` of the endless repetition; UINT64_MAX: none. */
static uint64_t next_access(const struct bound *bound, uint32_t tensor, uint64_t from)
{
	for (size_t i = 0; i < bound->count; i++)
		if (bound->accesses[(from + i) % bound->count] == tensor)
			return from + i;
	return UINT64_MAX;
}

static void trim(struct bound *bound, uint64_t capacity)
{
	uint64_t sum = 0;
	for (uint32_t t = 0; t < bound->trace->tensor_count; t++)
		sum += bound->cached[t];
	while (sum > capacity) {
		uint32_t victim = TC_NONE;
		for (uint32_t t = 0; t < bound->trace->tensor_count; t++)
			if (bound->cached[t] > 0 &&
			    (victim == TC_NONE || bound->next[t] > bound->next[victim]))
				victim = t;
		uint64_t gone = sum - capacity;
		if (gone > bound->cached[victim])
			gone = bound->cached[victim];
		bound->cached[victim] -= gone;
		sum -= gone;
	}
}

static void run(struct bound *bound, uint32_t iterations, uint64_t capacity)
{
	for (uint64_t at = 0; at < bound->count * iterations; at++) {
		uint32_t t = bound->accesses[at % bound->count];
		uint64_t bytes = bound->trace->tensors[t].bytes;
		if (bound->seen[t])
			bound->fetched += bytes - bound->cached[t];
		bound->seen[t] = true;
		bound->cached[t] = bytes;
		bound->next[t] = next_access(bound, t, at + 1);
		trim(bound, capacity);
	}
}

uint64_t plan_bound_fetched(const struct plan_case *plan, uint64_t capacity)
{
	struct tc_steps *steps = NULL;
	struct tc_error error = {0};
	assert_int_equal(tc_steps_derive(plan->trace, plan->granularity, plan->requests,
	                                 plan->frees, &steps, &error),
	                 TC_OK);
	size_t tensors = plan->trace->tensor_count + 1u;
	struct bound bound = {.trace = plan->trace,
	                      .cached = calloc(tensors, sizeof(uint64_t)),
	                      .next = calloc(tensors, sizeof(uint64_t)),
	                      .seen = calloc(tensors, sizeof(bool))};
	assert_true(bound.cached != NULL && bound.next != NULL && bound.seen != NULL);
	for (uint32_t s = 0; s < steps->step_count; s++) {
		if (steps->steps[s].phase == TC_OPTIMIZER)
			continue;
		access_list(&bound, steps->steps[s].requested);
		access_list(&bound, steps->steps[s].reads);
	}
	run(&bound, plan->iterations, capacity);
	free(bound.accesses);
	free(bound.cached);
	free(bound.next);
	free(bound.seen);
	tc_steps_free(steps);
	return bound.fetched;
}
