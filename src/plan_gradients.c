/*
 * How large an arena for gradients must be. The sum of those alive at once is not enough: best fit
 * leaves holes. The order of births and departures is the same in every iteration, so it is tried
 * out on an arena, from the sum upwards, until everything finds a place.
 */
#include <stdlib.h>

#include "plan.h"

/** Far above any sum of gradients, so that best fit prefers every hole to the end. */
#define TCI_UNBOUNDED (UINT64_C(1) << 60)

struct tci_gradient_trial {
	struct tc_planner *planner;
	const uint32_t *until;
	uint64_t *offset; /**< per tensor of the trace; UINT64_MAX: not there */
	struct tci_arena *arena;
	uint64_t end;     /**< highest byte ever used */
	uint64_t refused; /**< bytes that found no place; 0: none */
	struct tci_release none;
	struct tc_error *error;
};

static enum tc_status tci_trial_leave(struct tci_gradient_trial *trial, uint32_t gradient)
{
	uint64_t offset = trial->offset[gradient];
	if (offset == UINT64_MAX)
		return TC_OK;
	trial->offset[gradient] = UINT64_MAX;
	return tci_arena_put(
	    trial->arena, offset,
	    tci_align(trial->planner, TC_GPU, trial->planner->table[gradient].bytes), &trial->none,
	    trial->error);
}

static enum tc_status tci_trial_event(struct tci_gradient_trial *trial, uint32_t event)
{
	const struct tc_planner *planner = trial->planner;
	const struct tc_event *e = &planner->trace->events[event];
	if (e->kind != TC_EVENT_GRADIENT)
		return TC_OK;
	uint32_t own = planner->relations[e->tensor].gradient_of_param;
	if (trial->until == NULL)
		return own == TC_NONE ? TC_OK : tci_trial_leave(trial, own);
	for (uint32_t t = 0; t < planner->trace->tensor_count; t++)
		if (trial->offset[t] != UINT64_MAX && trial->until[t] == event)
			TC_TRY(tci_trial_leave(trial, t));
	return TC_OK;
}

static void tci_trial_births(struct tci_gradient_trial *trial, const struct tc_op *op)
{
	struct tc_planner *planner = trial->planner;
	struct tci_release ignored;
	for (uint32_t i = 0; i < op->allocates.count && trial->refused == 0; i++) {
		uint32_t t = op->allocates.items[i];
		if (planner->table[t].kind != TC_GRAD || trial->offset[t] != UINT64_MAX)
			continue;
		uint64_t bytes = tci_align(planner, TC_GPU, planner->table[t].bytes);
		if (!tci_arena_take(trial->arena, bytes, &trial->offset[t], &ignored,
		                    trial->error)) {
			trial->offset[t] = UINT64_MAX;
			trial->refused = bytes;
		} else if (trial->offset[t] + bytes > trial->end) {
			trial->end = trial->offset[t] + bytes;
		}
	}
}

static enum tc_status tci_trial_walk(struct tci_gradient_trial *trial)
{
	const struct tc_planner *planner = trial->planner;
	for (uint32_t t = 0; t < planner->trace->tensor_count; t++)
		trial->offset[t] = UINT64_MAX;
	for (uint32_t s = 0; s <= planner->steps->step_count && trial->refused == 0; s++) {
		const struct tc_step *step = &planner->steps->steps[s];
		for (uint32_t e = 0; e < step->event_count; e++)
			TC_TRY(tci_trial_event(trial, step->first_event + e));
		if (s == planner->steps->step_count || !tci_step_computes(planner, s))
			continue;
		for (uint32_t o = step->first_op; o <= step->last_op; o++)
			tci_trial_births(trial, &planner->trace->ops[o]);
	}
	return TC_OK;
}

/** One iteration in an arena of `bytes`. */
static enum tc_status tci_trial_run(struct tci_gradient_trial *trial, uint64_t bytes)
{
	trial->end = trial->refused = 0;
	TC_TRY(tci_arena_create(bytes, 1, &trial->arena, trial->error));
	enum tc_status status = tci_trial_walk(trial);
	tci_arena_free(trial->arena);
	return status;
}

static enum tc_status tci_trial_search(struct tci_gradient_trial *trial, uint64_t *bytes)
{
	uint64_t size = trial->planner->gradient_peak;
	TC_TRY(tci_trial_run(trial, size));
	if (trial->refused > 0) {
		TC_TRY(tci_trial_run(trial, TCI_UNBOUNDED));
		size = trial->end;
		TC_TRY(tci_trial_run(trial, size));
	}
	/* A shorter end than the boundless one may be taken before a hole: then a little more. */
	while (trial->refused > 0) {
		size += trial->refused;
		TC_TRY(tci_trial_run(trial, size));
	}
	*bytes = size;
	return TC_OK;
}

enum tc_status tc_plan_gradient_arena_bytes(struct tc_planner *planner, const uint32_t *until,
                                            uint64_t *bytes, struct tc_error *error)
{
	struct tci_gradient_trial trial = {.planner = planner, .until = until, .error = error};
	trial.offset =
	    tc_alloc_array((size_t)planner->trace->tensor_count + 1, sizeof *trial.offset);
	if (trial.offset == NULL)
		return tc_error_no_memory(error, "places of gradients",
		                          planner->trace->tensor_count);
	enum tc_status status = tci_trial_search(&trial, bytes);
	free(trial.offset);
	return status;
}
