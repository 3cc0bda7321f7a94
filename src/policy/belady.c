/*
 * belady: fetch on demand, evict the tensor whose next use lies farthest ahead (ties: larger
 * bytes, then smaller id). Optimal in the number of misses for equal sizes; with sizes that differ
 * it is size-blind and no bound.
 */
#include <stdlib.h>

#include "demand.h"
#include "order.h"
#include "policies.h"
#include "tencache/units.h"

struct tci_belady {
	struct tci_next_use *heap;
	uint32_t *set_aside; /**< pinned tensors met on the way to a victim */
	uint32_t cache;
};

static enum tc_status tci_belady_begin(void *self, struct tc_planner *planner,
                                       struct tc_error *error)
{
	struct tci_belady *belady = self;
	uint32_t tensors = tc_plan_trace(planner)->tensor_count;
	TC_TRY(tci_next_use_create(tensors, &belady->heap, error));
	belady->set_aside = tc_alloc_array((size_t)tensors + 1, sizeof *belady->set_aside);
	if (belady->set_aside == NULL)
		return tc_error_no_memory(error, "belady", tensors);
	return tci_demand_begin(planner, &belady->cache, error);
}

/** Next use counted over all iterations, so that keys of different iterations compare. */
static uint64_t tci_belady_key(const struct tc_planner *planner, uint32_t tensor)
{
	uint64_t next = tc_plan_next_use(planner, tensor);
	uint64_t start = (uint64_t)tc_plan_iteration(planner) * tc_plan_steps(planner)->step_count;
	return next == UINT64_MAX ? next : start + next;
}

static void tci_belady_visit(void *self, struct tc_planner *planner, uint32_t tensor)
{
	struct tci_belady *belady = self;
	tci_next_use_set(belady->heap, tensor, tci_belady_key(planner, tensor),
	                 tc_plan_tensor(planner, tensor).bytes);
}

static enum tc_status tci_belady_after_step(void *self, struct tc_planner *planner, uint32_t step,
                                            struct tc_ids closing, struct tc_error *error)
{
	(void)closing;
	(void)error;
	tci_demand_visit(planner, step, tci_belady_visit, self);
	return TC_OK;
}

static enum tc_status tci_belady_make_room(void *self, struct tc_planner *planner, uint32_t pool,
                                           uint64_t bytes, uint32_t for_tensor, bool *made,
                                           struct tc_error *error)
{
	struct tci_belady *belady = self;
	size_t aside = 0;
	enum tc_status status = TC_OK;
	(void)bytes;
	(void)for_tensor;
	*made = false;
	if (pool != belady->cache)
		return TC_OK;
	for (;;) {
		uint32_t t = tci_next_use_farthest(belady->heap);
		if (t == UINT32_MAX)
			break;
		tci_next_use_remove(belady->heap, t);
		if (!tc_plan_has(planner, t, TC_GPU))
			continue; /* left on its own: a gradient */
		if (tc_plan_is_pinned(planner, t)) {
			belady->set_aside[aside++] = t;
			continue;
		}
		status = tc_plan_evict(planner, t, TC_WHY_VICTIM, made, error);
		break;
	}
	while (aside > 0)
		tci_belady_visit(belady, planner, belady->set_aside[--aside]);
	return status;
}

static void tci_belady_end(void *self)
{
	struct tci_belady *belady = self;
	tci_next_use_free(belady->heap);
	free(belady->set_aside);
}

static const struct tc_policy_parameter tci_belady_parameters[] = {TCI_DEMAND_PARAMETERS};

const struct tc_policy tci_policy_belady = {
    .name = "belady",
    .summary = "fetch on demand, evict the tensor with the farthest next use",
    .source = "L. A. Belady, A study of replacement algorithms, IBM Systems Journal 5 (1966)",
    .parameters = tci_belady_parameters,
    .parameter_count = sizeof tci_belady_parameters / sizeof *tci_belady_parameters,
    .period = 1,
    .state_bytes = sizeof(struct tci_belady),
    .begin = tci_belady_begin,
    .after_step = tci_belady_after_step,
    .make_room = tci_belady_make_room,
    .end = tci_belady_end,
};
