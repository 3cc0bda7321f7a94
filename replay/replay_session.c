/** @file replay_session.c
 * From the command line to a schedule that can run, and the sinks that take times.
 */
#include "replay_session.h"

#include <stdlib.h>

#include "tencache/audit.h"
#include "tencache/scale.h"
#include "tencache/units.h"

static uint64_t scale_of(const struct tci_session *session)
{
	return session->options.scale > 0 ? session->options.scale : 1;
}

/* ---------------------------------------------------------------- loading */

static enum tc_status load_machine(struct tci_session *session, struct tc_error *error)
{
	const struct tci_replay_options *options = &session->options;
	TC_TRY(tc_machine_load(options->common.machine_name, NULL, &session->machine, error));
	TC_TRY(tc_machine_override_all(session->machine, options->common.overrides,
	                               options->common.override_count, error));
	return tc_machine_scale(session->machine, scale_of(session), options->throttle, error);
}

/** Its sizes are those of parameters of the trace, which is not scaled yet. */
static enum tc_status choose_policy(struct tci_session *session, struct tc_error *error)
{
	const char *policy = session->options.policy;
	TC_TRY(tc_policy_parse(policy != NULL ? policy : "10cache", &session->policy, error));
	return tc_policy_scale(session->policy, session->trace, scale_of(session), error);
}

static enum tc_status load_trace(struct tci_session *session, struct tc_error *error)
{
	const struct tci_replay_options *options = &session->options;
	if (options->common.trace_path == NULL)
		return TC_OK;
	TC_TRY(tc_trace_read(options->common.trace_path, &session->trace, error));
	if (options->schedule_path == NULL)
		TC_TRY(choose_policy(session, error));
	TC_TRY(tc_trace_scale(session->trace, scale_of(session), !options->throttle, error));
	return tc_steps_derive(session->trace, options->common.granularity,
	                       options->common.request_mode, options->common.frees, &session->steps,
	                       error);
}

static enum tc_status plan(struct tci_session *session, const struct tc_sink *sink,
                           struct tc_error *error)
{
	const struct tci_replay_options *options = &session->options;
	session->iterations = options->common.iterations;
	const struct tc_plan_options plan_options = {.trace = session->trace,
	                                             .steps = session->steps,
	                                             .machine = session->machine,
	                                             .policy = session->policy,
	                                             .iterations = options->common.iterations + 2,
	                                             .alignment = options->common.alignment,
	                                             .sink = sink};
	return tc_plan(&plan_options, &session->notes, error);
}

static enum tc_status plan_into(struct tci_session *session, struct tc_audit *audit,
                                struct tc_schedule_writer *writer, struct tc_error *error)
{
	struct tc_sink sinks[3] = {tc_schedule_sink(session->schedule), tc_audit_sink(audit)};
	struct tc_tee tee = {sinks, 2};
	if (writer != NULL)
		sinks[tee.count++] = tc_schedule_writer_sink(writer);
	struct tc_sink sink = tc_tee_sink(&tee);
	return plan(session, &sink, error);
}

/** Nothing runs that was not proven safe. */
static enum tc_status plan_and_audit(struct tci_session *session, struct tc_error *error)
{
	struct tc_audit *audit;
	struct tc_schedule_writer *writer = NULL;
	enum tc_status status = TC_OK;
	TC_TRY(tc_audit_create(true, &audit, error));
	if (session->options.write_path != NULL)
		status = tc_schedule_writer_create(session->options.write_path, &writer, error);
	if (status == TC_OK)
		status = plan_into(session, audit, writer, error);
	tc_schedule_writer_free(writer);
	tc_audit_free(audit);
	return status;
}

static enum tc_status read_schedule(struct tci_session *session, struct tc_error *error)
{
	const struct tci_replay_options *options = &session->options;
	TC_TRY(tc_schedule_read(options->schedule_path, session->trace, NULL, &session->schedule,
	                        error));
	uint64_t scale = session->schedule->info.scale;
	if (options->scale > 0 && options->scale != scale)
		return tc_error_set(error, TC_ARGUMENT,
		                    "%s was planned with scale %llu, --scale asks for %llu: leave "
		                    "it out, or plan anew from the trace",
		                    options->schedule_path, (unsigned long long)scale,
		                    (unsigned long long)options->scale);
	if (session->schedule->info.iterations < 3)
		return tc_error_set(error, TC_ARGUMENT,
		                    "%s holds %u iterations: expected a cold one, one to measure "
		                    "and one that ends it",
		                    options->schedule_path, session->schedule->info.iterations);
	session->iterations = session->schedule->info.iterations - 2;
	return TC_OK;
}

/** A schedule file says its scale: trace and machine have to follow it. */
static enum tc_status peek_scale(struct tci_session *session, struct tc_error *error)
{
	struct tc_schedule *schedule;
	if (session->options.schedule_path == NULL || session->options.scale > 0)
		return TC_OK;
	TC_TRY(tc_schedule_read(session->options.schedule_path, NULL, NULL, &schedule, error));
	session->options.scale = schedule->info.scale > 0 ? schedule->info.scale : 1;
	tc_schedule_free(schedule);
	return TC_OK;
}

enum tc_status tci_session_load(struct tci_session *session, struct tc_error *error)
{
	TC_TRY(peek_scale(session, error));
	TC_TRY(load_machine(session, error));
	TC_TRY(load_trace(session, error));
	if (session->options.schedule_path != NULL) {
		TC_TRY(read_schedule(session, error));
	} else {
		TC_TRY(tc_schedule_create(&session->schedule, error));
		TC_TRY(plan_and_audit(session, error));
	}
	if (session->options.common.timeline_path != NULL)
		TC_TRY(tc_timeline_create(session->options.common.timeline_path, &session->timeline,
		                          error));
	return TC_OK;
}

static void outcome_clear(struct tci_outcome *outcome)
{
	if (outcome->has_result)
		tc_result_clear(&outcome->result);
	tc_report_free(outcome->report);
	tci_queue_stats_free(outcome->stats);
}

void tci_session_clear(struct tci_session *session)
{
	outcome_clear(&session->predicted);
	outcome_clear(&session->measured);
	tc_timeline_free(session->timeline);
	tc_schedule_free(session->schedule);
	tc_policy_choice_free(session->policy);
	tc_steps_free(session->steps);
	tc_trace_free(session->trace);
	tc_machine_free(session->machine);
	tci_replay_options_clear(&session->options);
}

/* ---------------------------------------------------------------- outcomes */

enum tc_status tci_outcome_create(struct tci_session *session, struct tci_outcome *outcome,
                                  const char *name, struct tc_error *error)
{
	outcome->name = name;
	TC_TRY(tc_report_create(session->iterations, &outcome->report, error));
	uint32_t period = session->policy != NULL ? session->policy->policy->period : 1;
	TC_TRY(tc_report_set_period(outcome->report, period > 0 ? period : 1, error));
	TC_TRY(tci_queue_stats_create(session->iterations, &outcome->stats, error));
	outcome->sinks[outcome->sink_count++] = tc_report_timing_sink(outcome->report);
	outcome->sinks[outcome->sink_count++] = tci_queue_stats_sink(outcome->stats);
	struct tc_sink plan_sink = tc_report_plan_sink(outcome->report);
	TC_TRY(tc_schedule_play(session->schedule, &plan_sink, error));
	if (session->timeline == NULL)
		return TC_OK;
	TC_TRY(tc_timeline_add(session->timeline, name, &outcome->process, error));
	outcome->sinks[outcome->sink_count++] = tc_timeline_timing_sink(outcome->process);
	plan_sink = tc_timeline_plan_sink(outcome->process);
	return tc_schedule_play(session->schedule, &plan_sink, error);
}

static enum tc_status take(void *self, const struct tc_command *command,
                           const struct tc_timing *timing, struct tc_error *error)
{
	struct tci_outcome *outcome = self;
	for (size_t i = 0; i < outcome->sink_count; i++)
		TC_TRY(outcome->sinks[i].finished(outcome->sinks[i].self, command, timing, error));
	return TC_OK;
}

struct tc_timing_sink tci_outcome_sink(struct tci_outcome *outcome)
{
	return (struct tc_timing_sink){outcome, take};
}

enum tc_status tci_outcome_finish(const struct tci_session *session, struct tci_outcome *outcome,
                                  struct tc_error *error)
{
	TC_TRY(tc_report_finish(outcome->report, &outcome->result, error));
	outcome->has_result = true;
	outcome->result.choice = session->policy;
	outcome->result.notes = session->notes;
	return TC_OK;
}

uint64_t tci_session_ratio_ppm(const struct tci_session *session)
{
	uint64_t ratio;
	uint64_t predicted = session->predicted.result.iteration_ps;
	if (!tc_mul_div_half_even(session->measured.result.iteration_ps, 1000000, predicted,
	                          &ratio))
		return UINT64_MAX;
	return ratio;
}

uint64_t tci_session_cpu_ns_per_gb(const struct tci_session *session)
{
	uint64_t bytes = 0, result = 0;
	for (uint64_t c = 0; c < session->schedule->command_count; c++)
		bytes += session->schedule->commands[c].bytes;
	(void)tc_mul_div_floor(session->facts.cpu_ps / TC_PS_PER_NS, 1000000000, bytes, &result);
	return result;
}
