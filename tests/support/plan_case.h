/**
 * @file plan_case.h
 * One plan for a test: a trace, a machine, a policy; run into a sink, or kept as a schedule beside
 * what it was made from. What a test relies on (a file that loads, a text that parses) ends the
 * program with a message when it fails.
 */
#ifndef TENCACHE_TEST_PLAN_CASE_H
#define TENCACHE_TEST_PLAN_CASE_H

#include "tencache/audit.h"
#include "tencache/planner.h"

/** A trace of traces/ by its file name; free with tc_trace_free(). */
struct tc_trace *plan_case_shipped(const char *file);
/** Machine a100-40 with overrides "name=value", "..." and a final NULL; free with
 * tc_machine_free(). */
struct tc_machine *plan_case_machine(const char *override, ...);
/** Change one value afterwards, in bytes. */
void plan_case_override(struct tc_machine *machine, const char *name, uint64_t value);

struct plan_case {
	const struct tc_trace *trace;
	const struct tc_machine *machine;
	const char *policy;                    /**< text, unless `choice` is given */
	const struct tc_policy_choice *choice; /**< for policies of the test itself */
	uint32_t iterations;
	uint64_t alignment;
	enum tc_granularity granularity;
	enum tc_request_mode requests;
	enum tc_frees frees;
};

/** Plan into a sink (NULL: nobody listens). @return the planner's status */
enum tc_status plan_case_run(const struct plan_case *plan, const struct tc_sink *sink,
                             struct tc_plan_notes *notes, struct tc_error *error);

/** A plan that was kept. */
struct plan_kept {
	struct tc_steps *steps;
	struct tc_schedule *schedule;
	struct tc_plan_notes notes;
};
/** As above, keeping all commands; any status but TC_OK fails the test. Free with plan_kept_free().
 */
struct plan_kept plan_case_keep(const struct plan_case *plan);
void plan_kept_free(struct plan_kept *planned);

/** Plan and audit. @return the planner's status; `report` is filled where that is TC_OK */
enum tc_status plan_case_audit(const struct plan_case *plan, struct tc_audit_report *report,
                               struct tc_error *error);

/** Steps as the plan derives them; free with tc_steps_free(). */
struct tc_steps *plan_case_steps(const struct plan_case *plan);
/** A policy by its text; free with tc_policy_choice_free(). */
struct tc_policy_choice *plan_case_choice(const char *text);
/** What the auditor finds in a schedule that was kept or read. */
uint64_t plan_case_findings(const struct tc_schedule *schedule);

/** A sink that hashes every field of every command (FNV-1a), and counts them. */
struct plan_hash {
	uint64_t hash, commands;
};
struct tc_sink plan_hash_sink(struct plan_hash *hash);

#endif
