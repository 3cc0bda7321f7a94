#include "common.h"

#include <string.h>

bool tci_value_is(const struct tc_planner *planner, const char *name, const char *word)
{
	const struct tc_policy_value *value = tc_plan_value(planner, name);
	return value != NULL && value->text != NULL && strcmp(value->text, word) == 0;
}

bool tci_value_barrier(const struct tc_planner *planner)
{
	const struct tc_policy_value *value = tc_plan_value(planner, "barrier");
	const struct tc_trace *trace = tc_plan_trace(planner);
	if (value != NULL && !value->is_auto)
		return value->number != 0;
	return trace->has_clip || trace->compute_dtype == TC_FLOAT16;
}

bool tci_more_backward(const struct tc_planner *planner)
{
	const struct tc_steps *steps = tc_plan_steps(planner);
	for (uint32_t s = tc_plan_step(planner); s < steps->step_count; s++)
		if (steps->steps[s].phase == TC_BACKWARD)
			return true;
	return false;
}

enum tc_status tci_place_at_home(struct tc_planner *planner, uint32_t tensor, uint32_t pool,
                                 enum tc_tier home, struct tc_error *error)
{
	tc_plan_home(planner, tensor, home);
	return tc_plan_place(planner, tensor, pool, error);
}
