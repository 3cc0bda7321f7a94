/**
 * @file plan_check.h
 * A plan with every check that needs no expected value: the auditor finds nothing, ids are dense,
 * dependencies fall and do not repeat, every op runs exactly once an iteration.
 */
#ifndef TENCACHE_TEST_PLAN_CHECK_H
#define TENCACHE_TEST_PLAN_CHECK_H

#include "plan_case.h"

struct outcome {
	enum tc_status status;
	uint64_t hash, fetched_bytes, kinds[TC_COMMAND_KIND_COUNT];
	struct tc_plan_notes notes;
	char text[600]; /**< the planner's message */
};

/**
 * Plan and check; a failing check, or a status other than TC_OK and TC_INFEASIBLE, fails the test
 * with a message that names the case. `policy` of the plan must be given as text.
 */
struct outcome plan_and_check(const struct plan_case *plan, uint64_t seed);
/** Say which case fails: enough to run it again. */
void plan_blame(const struct plan_case *plan, uint64_t seed, const char *what);

#endif
