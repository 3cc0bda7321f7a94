/*
 * Policies that look at simulated times: they try candidates in begin(), or adapt from iteration
 * to iteration. The simulator comes in from outside, so that the library does not depend on it;
 * only simulated times are ever used, so that a plan is the same on every machine.
 */
#include <stdlib.h>

#include "plan.h"

static enum tc_status tci_needs_simulator(const struct tc_planner *planner, struct tc_error *error)
{
	if (planner->options->evaluate != NULL)
		return TC_OK;
	return tc_error_set(
	    error, TC_ARGUMENT,
	    "policy %s looks at simulated times and so needs a simulator; plan it with "
	    "tencache-sim, which writes a schedule file with --schedule",
	    planner->choice->text);
}

enum tc_status tci_recorder_create(struct tc_planner *planner, struct tc_error *error)
{
	if (!planner->policy->wants_timing)
		return TC_OK;
	TC_TRY(tci_needs_simulator(planner, error));
	TC_TRY(tc_schedule_create(&planner->record, error));
	planner->recorder = tc_schedule_sink(planner->record);
	return planner->recorder.begin(planner->recorder.self, &planner->info, error);
}

enum tc_status tci_recorder_evaluate(struct tc_planner *planner, struct tc_evaluation *evaluation,
                                     struct tc_error *error)
{
	return planner->options->evaluate(planner->options->evaluate_self, planner->record,
	                                  evaluation, error);
}

enum tc_status tc_plan_evaluate(struct tc_planner *planner,
                                const struct tc_policy_choice *candidate, uint32_t iterations,
                                struct tc_evaluation *evaluation, struct tc_error *error)
{
	struct tc_schedule *schedule = NULL;
	struct tc_error why = {0};
	TC_TRY(tci_needs_simulator(planner, error));
	TC_TRY(tc_schedule_create(&schedule, error));
	struct tc_sink sink = tc_schedule_sink(schedule);
	struct tc_plan_options options = *planner->options;
	options.policy = candidate;
	options.iterations = iterations;
	options.sink = &sink;
	enum tc_status status = tc_plan(&options, NULL, &why);
	if (status == TC_OK)
		status = options.evaluate(options.evaluate_self, schedule, evaluation, &why);
	tc_schedule_free(schedule);
	return status == TC_OK
	           ? TC_OK
	           : tc_error_set(error, status, "candidate %s: %s", candidate->text, why.text);
}
