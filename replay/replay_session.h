/**
 * @file replay_session.h
 * One run of tencache-replay: what it works with, step by step, and its two results.
 */
#ifndef TENCACHE_REPLAY_SESSION_H
#define TENCACHE_REPLAY_SESSION_H

#include <jansson.h>
#include <stdio.h>

#include "queue_stats.h"
#include "replay_options.h"
#include "tencache/report.h"
#include "tencache/timeline.h"

/** Prediction and measurement have one each. */
struct tci_outcome {
	const char *name; /**< "predicted", "measured" */
	struct tc_report *report;
	struct tci_queue_stats *stats;
	struct tc_timeline_process *process; /**< or NULL */
	struct tc_timing_sink sinks[3];
	size_t sink_count;
	struct tc_result result;
	bool has_result;
};

struct tci_session {
	struct tci_replay_options options;
	struct tc_trace *trace; /**< NULL: a schedule file without its trace */
	struct tc_steps *steps;
	struct tc_machine *machine;
	struct tc_policy_choice *policy; /**< NULL for a schedule file */
	struct tc_schedule *schedule;
	struct tc_plan_notes notes;
	uint32_t iterations; /**< measured ones */
	struct tc_timeline *timeline;
	struct tci_outcome predicted, measured;
	struct tc_replay_facts facts; /**< of the finished replay */
};

/** Machine, trace, schedule: read or planned, scaled and audited. */
enum tc_status tci_session_load(struct tci_session *session, struct tc_error *error);
void tci_session_clear(struct tci_session *session);

/** Prepare an outcome for the session's schedule, which is played into its report. */
enum tc_status tci_outcome_create(struct tci_session *session, struct tci_outcome *outcome,
                                  const char *name, struct tc_error *error);
/** Takes times for report, statistics and timeline. */
struct tc_timing_sink tci_outcome_sink(struct tci_outcome *outcome);
enum tc_status tci_outcome_finish(const struct tci_session *session, struct tci_outcome *outcome,
                                  struct tc_error *error);

/** Measured time of an iteration against the predicted one, in parts per million: 1,000,000 is
 * equal.
 */
uint64_t tci_session_ratio_ppm(const struct tci_session *session);
/** CPU nanoseconds for each 10^9 bytes that links and drives moved in the whole run; 0: none. */
uint64_t tci_session_cpu_ns_per_gb(const struct tci_session *session);
enum tc_status tci_session_print(FILE *out, struct tci_session *session, struct tc_error *error);
enum tc_status tci_session_print_json(FILE *out, struct tci_session *session,
                                      struct tc_error *error);

#endif
