/*
 * Every shipped trace under every policy of the library, at several sizes of GPU memory: whatever
 * is feasible is safe and fetches no less than any policy must; more memory never makes it
 * infeasible; and somewhere each policy is feasible on each trace.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "plan_bound.h"
#include "plan_check.h"

static const char *const traces[] = {"gpt2.jsonl.gz", "opt6.7b-paper.jsonl.gz",
                                     "opt13b-paper.jsonl.gz", "opt13b.json",
                                     "opt13b-full.jsonl.gz"};
enum { TRACES = sizeof traces / sizeof *traces };

/** GPU memory in GiB, ascending. */
static const uint64_t sizes[] = {3, 8, 12, 20, 30, 40, 80, 320};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void try_policy(const struct tc_trace *trace, struct tc_machine *machine, const char *policy,
                       bool with_bound)
{
	unsigned feasible = 0;
	struct plan_case plan = {
	    .trace = trace, .machine = machine, .policy = policy, .iterations = 3};
	for (size_t i = 0; i < SIZES; i++) {
		plan_case_override(machine, "gpu-memory", sizes[i] << 30);
		struct outcome outcome = plan_and_check(&plan, sizes[i]);
		if (feasible > 0 && outcome.status != TC_OK)
			fail_msg("%s, %s: feasible with less than %llu GiB, but now: %s",
			         trace->name, policy, (unsigned long long)sizes[i], outcome.text);
		if (outcome.status != TC_OK)
			continue;
		feasible++;
		uint64_t capacity = (sizes[i] << 30) - outcome.notes.unmanaged_bytes -
		                    machine->framework_bytes[TC_GPU];
		if (with_bound && strcmp(policy, "ideal") != 0 &&
		    plan_bound_fetched(&plan, capacity) > outcome.fetched_bytes)
			fail_msg("%s, %s, %llu GiB: fetches less than any policy can", trace->name,
			         policy, (unsigned long long)sizes[i]);
	}
	print_message("%-24s %-16s feasible at %u of %d sizes\n", trace->name, policy, feasible,
	              SIZES);
	assert_true(feasible > 0);
}

static void test_every_policy_on_every_trace(void **state)
{
	(void)state;
	size_t count;
	const struct tc_policy *const *policies = tc_policies(&count);
	struct tc_machine *machine = plan_case_machine(NULL);
	for (size_t t = 0; t < TRACES; t++) {
		struct tc_trace *trace = plan_case_shipped(traces[t]);
		for (size_t p = 0; p < count; p++)
			try_policy(trace, machine, policies[p]->name, t < 2);
		tc_trace_free(trace);
	}
	tc_machine_free(machine);
}

/** Rules: the default machine fits the standard set on the trace that is used when none is named.
 */
static void test_standard_set_on_default_machine(void **state)
{
	(void)state;
	static const char *const standard[] = {
	    "ideal",  "lru", "belady", "zero-infinity:device=cpu", "zero-infinity:device=nvme",
	    "10cache"};
	struct tc_trace *trace = plan_case_shipped("opt13b.json");
	struct tc_machine *machine = plan_case_machine(NULL);
	assert_string_equal(machine->name, TC_DEFAULT_MACHINE);
	for (size_t p = 0; p < sizeof standard / sizeof *standard; p++) {
		struct plan_case plan = {
		    .trace = trace, .machine = machine, .policy = standard[p], .iterations = 3};
		struct outcome outcome = plan_and_check(&plan, 0);
		if (outcome.status != TC_OK)
			fail_msg("%s: %s", standard[p], outcome.text);
	}
	tc_machine_free(machine);
	tc_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_policy_on_every_trace),
	    cmocka_unit_test(test_standard_set_on_default_machine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
