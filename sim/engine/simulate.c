/*
 * One pass: the planner pushes commands into report, auditor, file, timeline and engine at once;
 * the engine hands finished commands to report and timeline. Nothing keeps the schedule.
 */
#include "tencache/simulate.h"

#include "tencache/audit.h"
#include "tencache/engine.h"

enum { TCI_SINKS = 5, TCI_TIMING_SINKS = 2 };

struct tci_pass {
	struct tc_report *report;
	struct tc_engine *engine;
	struct tc_audit *audit;
	struct tc_schedule_writer *writer;
	struct tc_sink sinks[TCI_SINKS];
	struct tc_tee tee;
	struct tc_timing_sink timing_sinks[TCI_TIMING_SINKS];
	struct tc_timing_tee timing_tee;
};

/** The timeline sees the plan before the engine does, and the times after the report. */
static enum tc_status tci_pass_timeline(struct tci_pass *pass, struct tc_timeline *timeline,
                                        size_t *sinks, struct tc_error *error)
{
	struct tc_timeline_process *process;
	if (timeline == NULL)
		return TC_OK;
	TC_TRY(tc_timeline_add(timeline, "predicted", &process, error));
	pass->sinks[(*sinks)++] = tc_timeline_plan_sink(process);
	pass->timing_sinks[pass->timing_tee.count++] = tc_timeline_timing_sink(process);
	return TC_OK;
}

static enum tc_status tci_pass_create(struct tci_pass *pass, const struct tc_simulation *simulation,
                                      struct tc_error *error)
{
	size_t count = 0;
	uint32_t period = simulation->policy->policy->period;
	TC_TRY(tc_report_create(simulation->iterations, &pass->report, error));
	TC_TRY(tc_report_set_period(pass->report, period > 0 ? period : 1, error));
	pass->timing_tee.sinks = pass->timing_sinks;
	pass->timing_sinks[pass->timing_tee.count++] = tc_report_timing_sink(pass->report);
	pass->sinks[count++] = tc_report_plan_sink(pass->report);
	TC_TRY(tci_pass_timeline(pass, simulation->timeline, &count, error));
	/* One consumer needs no tee between. */
	struct tc_timing_sink timing = pass->timing_tee.count == 1
	                                   ? pass->timing_sinks[0]
	                                   : tc_timing_tee_sink(&pass->timing_tee);
	TC_TRY(tc_engine_create(simulation->machine, &timing, &pass->engine, error));
	if (simulation->audit) {
		TC_TRY(tc_audit_create(true, &pass->audit, error));
		pass->sinks[count++] = tc_audit_sink(pass->audit);
	}
	if (simulation->schedule_path != NULL) {
		TC_TRY(tc_schedule_writer_create(simulation->schedule_path, &pass->writer, error));
		pass->sinks[count++] = tc_schedule_writer_sink(pass->writer);
	}
	pass->sinks[count++] = tc_engine_sink(pass->engine);
	pass->tee = (struct tc_tee){.sinks = pass->sinks, .count = count};
	return TC_OK;
}

static void tci_pass_free(struct tci_pass *pass)
{
	tc_report_free(pass->report);
	tc_engine_free(pass->engine);
	tc_audit_free(pass->audit);
	tc_schedule_writer_free(pass->writer);
}

static enum tc_status tci_pass_evaluate(void *self, const struct tc_schedule *schedule,
                                        struct tc_evaluation *evaluation, struct tc_error *error)
{
	const struct tc_machine **machine = self;
	return tc_evaluate(*machine, schedule, evaluation, error);
}

static enum tc_status tci_pass_run(struct tci_pass *pass, const struct tc_simulation *simulation,
                                   struct tc_result *result, struct tc_error *error)
{
	struct tc_sink sink = tc_tee_sink(&pass->tee);
	const struct tc_machine *machine = simulation->machine;
	struct tc_plan_options options = {.trace = simulation->trace,
	                                  .steps = simulation->steps,
	                                  .machine = simulation->machine,
	                                  .policy = simulation->policy,
	                                  .iterations = simulation->iterations + 2,
	                                  .alignment = simulation->alignment,
	                                  .sink = &sink,
	                                  .evaluate = tci_pass_evaluate,
	                                  .evaluate_self = &machine};
	struct tc_plan_notes notes;
	TC_TRY(tc_plan(&options, &notes, error));
	TC_TRY(tc_report_finish(pass->report, result, error));
	result->notes = notes;
	return TC_OK;
}

enum tc_status tc_simulate(const struct tc_simulation *simulation, struct tc_result *result,
                           struct tc_error *error)
{
	struct tci_pass pass = {0};
	struct tc_error why = {0};
	*result = (struct tc_result){0};
	if (simulation->iterations == 0 || simulation->iterations > UINT32_MAX - 2)
		return tc_error_set(error, TC_ARGUMENT,
		                    "iterations must be between 1 and 2^32 - 3, found %u",
		                    simulation->iterations);
	enum tc_status status = tci_pass_create(&pass, simulation, &why);
	if (status == TC_OK)
		status = tci_pass_run(&pass, simulation, result, &why);
	result->choice = simulation->policy;
	tci_pass_free(&pass);
	if (status == TC_INFEASIBLE)
		return tc_result_infeasible(simulation->policy, &why, result, error);
	if (status != TC_OK)
		tc_result_clear(result);
	return status == TC_OK ? TC_OK : tc_error_set(error, status, "%s", why.text);
}
