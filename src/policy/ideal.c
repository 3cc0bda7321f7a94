/*
 * ideal: all ops back to back on a GPU of unlimited memory; nothing moves. A bound for every
 * policy that runs the optimizer on the GPU.
 */
#include "policies.h"
#include "tencache/planner.h"

static enum tc_status tci_ideal_begin(void *self, struct tc_planner *planner,
                                      struct tc_error *error)
{
	(void)self;
	tc_plan_unlimited_memory(planner);
	tc_plan_optimizer_on_cpu(planner, false);
	return tc_plan_manage(planner, 0, error);
}

const struct tc_policy tci_policy_ideal = {
    .name = "ideal",
    .summary = "everything stays on a GPU of unlimited memory: no transfer, no stall",
    .source = "a bound, not a system",
    .period = 1,
    .begin = tci_ideal_begin,
};
