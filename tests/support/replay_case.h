/** @file replay_case.h
 * Small plans for tests of the replayer, and one run of a schedule.
 */
#ifndef TENCACHE_TEST_REPLAY_CASE_H
#define TENCACHE_TEST_REPLAY_CASE_H

#include "tencache/planner.h"
#include "tencache/replay.h"
#include "trace_builder.h"

/** What one plan needs; all borrowed by the schedule. */
struct replay_case {
	struct tc_trace *trace;
	struct tc_steps *steps;
	struct tc_machine *machine;
	struct tc_policy_choice *choice;
	struct tc_schedule *schedule;
};

/**
 * Plan a random trace of the seed on the smallest GPU that the policy fits (in steps of an eighth).
 * What a test relies on ends the program when it fails.
 */
struct replay_case replay_case_plan(const char *policy, const struct test_limits *limits,
                                    uint64_t seed, uint32_t iterations);
void replay_case_free(struct replay_case *planned);

/** Run to the end with memory storage unless `options` name another. @return its status */
enum tc_status replay_case_run(const struct tc_replay_options *options, struct tc_error *error);

#endif
