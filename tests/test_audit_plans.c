/*
 * Real plans under audit: every policy on small random traces, where the oracle
 * (tests/support/oracle.h) judges the plan and its mutants as well, and on every shipped trace at
 * several memory sizes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "oracle.h"
#include "random.h"
#include "schedule_check.h"
#include "tencache/audit.h"
#include "tencache/planner.h"
#include "trace_builder.h"

#define MUTANTS_PER_KIND 3u
#define SEEDS 8u

static const char *const small_policies[] = {
    "ideal",
    "lru",
    "belady",
    "lru:optimizer=gpu",
    "lru:state=nvme",
    "10cache",
    "zero-infinity:device=cpu:reduce-bucket-size=64:sub-group-size=64:"
    "prefetch-bucket-size=64:param-persistence-threshold=8",
    "zero-infinity:device=nvme:reduce-bucket-size=64:buffer-size=64:sub-group-size=64:"
    "prefetch-bucket-size=64:param-persistence-threshold=8:max-in-cpu=40:min-nvme-bytes=1",
};

/** What one plan needs; all borrowed by the schedule. */
struct planned {
	struct tc_trace *trace;
	struct tc_steps *steps;
	struct tc_machine *machine;
	struct tc_policy_choice *choice;
	struct tc_schedule *schedule;
};

static void planned_clear(struct planned *planned)
{
	tc_schedule_free(planned->schedule);
	tc_policy_choice_free(planned->choice);
	tc_machine_free(planned->machine);
	tc_steps_free(planned->steps);
	tc_trace_free(planned->trace);
}

static void must(enum tc_status status, const struct tc_error *error)
{
	if (status != TC_OK)
		fail_msg("%s", error->text);
}

static enum tc_status plan_into(const struct planned *planned, uint32_t iterations,
                                uint64_t alignment, const struct tc_sink *sink,
                                struct tc_error *error)
{
	const struct tc_plan_options options = {.trace = planned->trace,
	                                        .steps = planned->steps,
	                                        .machine = planned->machine,
	                                        .policy = planned->choice,
	                                        .iterations = iterations,
	                                        .alignment = alignment,
	                                        .sink = sink};
	return tc_plan(&options, NULL, error);
}

/** A machine of a few kilobytes whose GPU is the smallest that the plan fits on. */
static bool plan_small(struct planned *planned, const char *policy, uint64_t seed)
{
	const struct test_limits limits = {.layers = 2,
	                                   .modules_per_layer = 2,
	                                   .params_per_module = 2,
	                                   .param_bytes = 96,
	                                   .activation_bytes = 96};
	struct tc_error error = {0};
	*planned = (struct planned){.trace = test_random_trace(seed, &limits)};
	must(tc_steps_derive(planned->trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                     TC_FREES_LAST_USE, &planned->steps, &error),
	     &error);
	must(tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines", &planned->machine,
	                     &error),
	     &error);
	must(tc_policy_parse(policy, &planned->choice, &error), &error);
	struct tc_machine *machine = planned->machine;
	machine->chunk_bytes = 48;
	machine->framework_bytes[TC_GPU] = machine->framework_bytes[TC_CPU] = 0;
	machine->capacity_bytes[TC_CPU] = 1 << 16;
	machine->capacity_bytes[TC_NVME] = 1 << 20;
	for (uint64_t bytes = 128; bytes < 1 << 16; bytes += bytes / 8) {
		machine->capacity_bytes[TC_GPU] = bytes;
		error = (struct tc_error){0};
		must(tc_schedule_create(&planned->schedule, &error), &error);
		struct tc_sink sink = tc_schedule_sink(planned->schedule);
		enum tc_status status = plan_into(planned, 1 + seed % 2, 16, &sink, &error);
		if (status == TC_OK)
			return planned->schedule->command_count < ORACLE_MAX_COMMANDS - 1;
		tc_schedule_free(planned->schedule);
		planned->schedule = NULL;
		if (status != TC_INFEASIBLE)
			fail_msg("%s, seed %d: %s", policy, (int)seed, error.text);
	}
	fail_msg("%s, seed %d fits no machine: %s", policy, (int)seed, error.text);
	return false;
}

static uint64_t audit(const struct tc_schedule *schedule, char *text, size_t bytes)
{
	struct tc_audit *auditor;
	struct tc_error error = {0};
	must(tc_audit_create(false, &auditor, &error), &error);
	struct tc_sink sink = tc_audit_sink(auditor);
	must(tc_schedule_play(schedule, &sink, &error), &error);
	uint64_t findings = tc_audit_result(auditor)->findings;
	(void)snprintf(text, bytes, "%s", tc_audit_result(auditor)->first);
	tc_audit_free(auditor);
	return findings;
}

static bool well_formed(const struct tc_schedule *schedule)
{
	struct tc_error error = {0};
	bool fine = tci_plan_info_check(&schedule->info, &error) == TC_OK;
	for (uint64_t c = 0; fine && c < schedule->command_count; c++)
		fine =
		    tci_command_check(&schedule->info, &schedule->commands[c], c, &error) == TC_OK;
	return fine && tci_plan_end_check(&schedule->info, &schedule->end, schedule->command_count,
	                                  &error) == TC_OK;
}

/** Both judges on one schedule; true when the oracle finds it wrong. */
static bool agree(const struct tc_schedule *schedule, const char *what, uint64_t seed)
{
	char text[TC_ERROR_TEXT_BYTES];
	struct oracle_verdict verdict = oracle_judge(schedule, 3, seed);
	uint64_t findings = audit(schedule, text, sizeof text);
	if (verdict.wrong != (findings > 0))
		fail_msg("%s, seed %d: oracle: %s; auditor: %s", what, (int)seed,
		         verdict.wrong ? verdict.why : "sound", findings > 0 ? text : "sound");
	return verdict.wrong;
}

static void test_small_plans(void **state)
{
	(void)state;
	for (size_t p = 0; p < sizeof small_policies / sizeof *small_policies; p++) {
		unsigned judged = 0, wrong = 0, sound = 0, refused = 0;
		for (uint64_t seed = 1; seed <= SEEDS; seed++) {
			struct planned planned;
			bool fits = plan_small(&planned, small_policies[p], seed);
			if (fits && agree(planned.schedule, small_policies[p], seed))
				fail_msg("%s, seed %d: the plan is unsafe", small_policies[p],
				         (int)seed);
			judged += fits;
			uint64_t random = seed;
			for (unsigned m = 0; fits && m < ORACLE_MUTATION_COUNT * MUTANTS_PER_KIND;
			     m++) {
				struct tc_machine changed;
				struct tc_schedule *mutant =
				    oracle_mutate(planned.schedule, m % ORACLE_MUTATION_COUNT,
				                  test_random(&random), &changed);
				if (mutant == NULL)
					continue;
				if (!well_formed(mutant))
					refused++;
				else if (agree(mutant,
				               oracle_mutation_name(m % ORACLE_MUTATION_COUNT),
				               seed))
					wrong++;
				else
					sound++;
				tc_schedule_free(mutant);
			}
			planned_clear(&planned);
		}
		print_message("%-26.26s %2u plans sound; mutants: %4u wrong, %3u sound, %3u "
		              "refused\n",
		              small_policies[p], judged, wrong, sound, refused);
		assert_true(judged >= SEEDS / 2);
		assert_true(wrong > 0);
	}
}

/* ---------------------------------------------------------------- shipped traces */

static const char *const shipped[] = {"opt13b.json", "opt13b-full.jsonl.gz",
                                      "opt6.7b-paper.jsonl.gz", "opt13b-paper.jsonl.gz",
                                      "gpt2.jsonl.gz"};
static const char *const policies[] = {
    "ideal", "lru", "belady", "zero-infinity:device=cpu", "zero-infinity:device=nvme", "10cache"};
static const char *const memories[] = {"24GiB", "40GiB", "80GiB"};

static void test_shipped_traces(void **state)
{
	(void)state;
	for (size_t t = 0; t < sizeof shipped / sizeof *shipped; t++) {
		struct planned planned = {0};
		struct tc_error error = {0};
		char path[512];
		unsigned feasible = 0;
		(void)snprintf(path, sizeof path, TENCACHE_SOURCE_DIR "/traces/%s", shipped[t]);
		must(tc_trace_read(path, &planned.trace, &error), &error);
		must(tc_steps_derive(planned.trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
		                     TC_FREES_LAST_USE, &planned.steps, &error),
		     &error);
		must(tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines",
		                     &planned.machine, &error),
		     &error);
		for (size_t m = 0; m < sizeof memories / sizeof *memories; m++)
			for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
				struct tc_audit *audit;
				must(tc_machine_override(planned.machine, "gpu-memory", memories[m],
				                         &error),
				     &error);
				must(tc_policy_parse(policies[p], &planned.choice, &error), &error);
				must(tc_audit_create(true, &audit, &error), &error);
				struct tc_sink sink = tc_audit_sink(audit);
				enum tc_status status = plan_into(&planned, 3, 0, &sink, &error);
				if (status != TC_OK && status != TC_INFEASIBLE)
					fail_msg("%s, %s, %s: %s", shipped[t], policies[p],
					         memories[m], error.text);
				assert_int_equal(tc_audit_result(audit)->findings, 0);
				feasible += status == TC_OK;
				error = (struct tc_error){0};
				tc_audit_free(audit);
				tc_policy_choice_free(planned.choice);
				planned.choice = NULL;
			}
		print_message("%-24s %2u of %zu plans feasible, all safe\n", shipped[t], feasible,
		              sizeof memories / sizeof *memories *
		                  (sizeof policies / sizeof *policies));
		assert_true(feasible >= sizeof policies / sizeof *policies);
		planned_clear(&planned);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_small_plans),
	                                   cmocka_unit_test(test_shipped_traces)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
