/*
 * Random traces whose gradients persist, under every policy: the auditor judges safety, sizes of
 * memory that must suffice or not come from the largest need of a step, and the engine's sums are
 * checked by equality. No expected value comes from a plan itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "plan_check.h"
#include "random.h"
#include "tencache/simulate.h"
#include "trace_builder.h"

#define FRAMEWORK_GPU (UINT64_C(1) << 30)

static const char *const refusing[] = {"zero-infinity:device=cpu", "zero-infinity:device=nvme",
                                       "10cache"};
enum { REFUSING = sizeof refusing / sizeof *refusing };

static const char *const planning[] = {"ideal",
                                       "lru",
                                       "belady",
                                       "lru:optimizer=gpu",
                                       "belady:optimizer=gpu",
                                       "lru:state=nvme",
                                       "belady:state=nvme:barrier=1",
                                       "lru:state=nvme:optimizer=gpu",
                                       "lru:activations=1",
                                       "belady:activations=1:optimizer=gpu"};
enum { PLANNING = sizeof planning / sizeof *planning };

struct random_totals {
	unsigned plans;
	uint64_t gradient_copies, repacks;
};

/** Sound at exactly the largest need, below it refused, and sound with more memory. */
static void check_random(struct plan_case *plan, struct tc_machine *machine, uint64_t seed,
                         uint64_t *random, struct random_totals *totals)
{
	plan_case_override(machine, "gpu-memory", UINT64_C(30) << 30);
	struct outcome roomy = plan_and_check(plan, seed);
	if (roomy.status != TC_OK)
		plan_blame(plan, seed, roomy.text);
	assert_int_equal(roomy.status, TC_OK);
	totals->plans++;
	if (strcmp(plan->policy, "ideal") == 0)
		return;
	uint64_t least = roomy.notes.unmanaged_bytes + roomy.notes.largest_need_bytes;
	for (int k = 0; k < 3; k++) {
		uint64_t more =
		    k == 0 ? 0 : test_random_below(random, roomy.notes.largest_need_bytes);
		plan_case_override(machine, "gpu-memory", FRAMEWORK_GPU + least + more);
		struct outcome outcome = plan_and_check(plan, seed);
		if (outcome.status != TC_OK)
			plan_blame(plan, seed, outcome.text);
		assert_int_equal(outcome.status, TC_OK);
		totals->plans++;
		totals->gradient_copies += outcome.kinds[TC_GRADIENT];
		totals->repacks += outcome.notes.repacks;
	}
	plan_case_override(machine, "gpu-memory", FRAMEWORK_GPU + least - 1);
	assert_int_equal(plan_and_check(plan, seed).status, TC_INFEASIBLE);
}

static void test_random_traces(void **state)
{
	(void)state;
	struct tc_machine *machine = plan_case_machine(NULL);
	struct random_totals totals = {0};
	for (uint64_t seed = 1; seed <= 150; seed++) {
		uint64_t random = seed;
		const struct test_limits limits = {.no_optimizer = seed % 11 == 0,
		                                   .no_events = seed % 6 == 0,
		                                   .persistent_gradients = true};
		struct tc_trace *trace = test_random_trace(seed, &limits);
		struct plan_case plan = {
		    .trace = trace,
		    .machine = machine,
		    .iterations = 3,
		    .alignment = UINT64_C(1) << (2 * test_random_below(&random, 7)),
		    .granularity = (enum tc_granularity)(
		        seed % 5 == 0 ? test_random_below(&random, 3) : TC_GRANULARITY_MODULE),
		    .requests =
		        limits.no_events || seed % 7 == 0 ? TC_REQUESTS_READS : TC_REQUESTS_HOOK,
		    .frees = seed % 2 == 0 ? TC_FREES_EAGER : TC_FREES_LAST_USE,
		};
		for (int p = 0; p < PLANNING; p++) {
			plan.policy = planning[p];
			/* Without events and updates nobody says what the CPU would do. */
			if (limits.no_events && limits.no_optimizer)
				continue;
			check_random(&plan, machine, seed, &random, &totals);
		}
		for (int p = 0; p < REFUSING; p++) {
			plan.policy = refusing[p];
			struct outcome outcome = plan_and_check(&plan, seed);
			assert_int_equal(outcome.status, TC_INFEASIBLE);
			assert_non_null(strstr(outcome.text, "set_to_none=True"));
		}
		tc_trace_free(trace);
	}
	print_message("%u plans, %llu copies of gradients, %llu repacks\n", totals.plans,
	              (unsigned long long)totals.gradient_copies,
	              (unsigned long long)totals.repacks);
	assert_true(totals.plans > 4000);
	assert_true(totals.gradient_copies > 50000);
	tc_machine_free(machine);
}

/** Compute and stalls add up to the iteration in the engine, and no policy with the optimizer on
 * the GPU beats the bound. */
static void test_simulated(void **state)
{
	(void)state;
	struct tc_machine *machine = plan_case_machine(NULL);
	for (uint64_t seed = 1; seed <= 20; seed++) {
		static const struct test_limits limits = {.persistent_gradients = true};
		struct tc_trace *trace = test_random_trace(seed, &limits);
		struct plan_case plan = {.trace = trace, .machine = machine};
		struct tc_steps *steps = plan_case_steps(&plan);
		uint64_t ideal_ps = 0;
		for (int p = 0; p < PLANNING; p++) {
			struct tc_policy_choice *choice = plan_case_choice(planning[p]);
			struct tc_simulation simulation = {.trace = trace,
			                                   .steps = steps,
			                                   .machine = machine,
			                                   .policy = choice,
			                                   .iterations = 3,
			                                   .audit = true};
			struct tc_result result;
			struct tc_error error = {0};
			if (tc_simulate(&simulation, &result, &error) != TC_OK)
				fail_msg("seed %llu, %s: %s", (unsigned long long)seed, planning[p],
				         error.text);
			assert_int_equal(result.status, TC_OK);
			assert_int_equal(result.compute_ps + result.stall_ps, result.iteration_ps);
			if (p == 0)
				ideal_ps = result.iteration_ps;
			if (strstr(planning[p], "optimizer=gpu") != NULL)
				assert_true(result.iteration_ps >= ideal_ps);
			tc_result_clear(&result);
			tc_policy_choice_free(choice);
		}
		tc_steps_free(steps);
		tc_trace_free(trace);
	}
	tc_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_random_traces),
	    cmocka_unit_test(test_simulated),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
