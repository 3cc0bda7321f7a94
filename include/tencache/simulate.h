/**
 * @file simulate.h
 * Plan, audit and simulate one policy in one pass: what `tencache-sim run` does for each row, and
 * what policies that refine by simulation get as `evaluate`.
 */
#ifndef TENCACHE_SIMULATE_H
#define TENCACHE_SIMULATE_H

#include "tencache/report.h"
#include "tencache/timeline.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tc_simulation {
	const struct tc_trace *trace;
	const struct tc_steps *steps;
	const struct tc_machine *machine;
	const struct tc_policy_choice *policy;
	uint32_t iterations; /**< N; N + 2 are planned: a cold one, and one that ends the N-th */
	uint64_t alignment;  /**< 0: 512 */
	bool audit;          /**< stop with TC_UNSAFE at the first finding */
	const char *schedule_path; /**< write the schedule there; NULL: do not */
	struct tc_timeline
	    *timeline; /**< borrowed: add a process "predicted" to it; NULL: do not */
};

/**
 * Run it. TC_OK with result->status TC_INFEASIBLE and a message where the policy cannot fit; any
 * other failure is returned. Free the result with tc_result_clear() in either case of TC_OK.
 */
enum tc_status tc_simulate(const struct tc_simulation *simulation, struct tc_result *result,
                           struct tc_error *error);

/** Simulate a stored schedule, complete or as far as it goes: what tc_simulate() hands the planner
 * as `evaluate`. */
enum tc_status tc_evaluate(const struct tc_machine *machine, const struct tc_schedule *schedule,
                           struct tc_evaluation *evaluation, struct tc_error *error);

#ifdef __cplusplus
}
#endif
#endif
