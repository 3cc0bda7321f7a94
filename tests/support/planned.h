/**
 * A trace planned by a policy on a machine, audited and kept. For tests that look at the commands
 * of a policy.
 */
#ifndef TENCACHE_TEST_PLANNED_H
#define TENCACHE_TEST_PLANNED_H

#include "tencache/audit.h"
#include "tencache/planner.h"

struct planned {
	struct tc_trace *trace;
	struct tc_steps *steps;
	struct tc_machine *machine;
	struct tc_policy_choice *choice;
	struct tc_schedule *schedule;
	struct tc_plan_notes notes;
	uint64_t findings; /**< of the auditor */
	enum tc_status status;
	struct tc_error error;
};

/** How to plan; zero means the default. */
struct planned_options {
	const char *policy;
	const char *const *overrides;  /**< option, value, ..., NULL: of machine a100-40 */
	uint32_t iterations;           /**< in all; default 3 */
	uint64_t alignment;            /**< default 512 */
	enum tc_request_mode requests; /**< default hook */
};

/**
 * Plan `trace`, which belongs to the result from now on. A plan that fails leaves its message in
 * `error`; mistakes of the test itself (unknown policy or machine) end the program. A plan that
 * succeeds has no findings, or the program ends with the first of them.
 * @return free with planned_free()
 */
struct planned *planned_new(struct tc_trace *trace, const struct planned_options *options);
void planned_free(struct planned *planned);

#endif
