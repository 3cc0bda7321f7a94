/*
 * Simulation injected into planning: a policy that tries candidates in begin(), and one that looks
 * at the timing of each iteration. Both stand on `lru`, whose hooks they pass on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "policy/policies.h"
#include "tencache/simulate.h"
#include "trace_builder.h"

/** What the test policies saw; a hook's self is the policy's own state, so it goes through here. */
static struct {
	struct tc_evaluation first, candidate;
	uint32_t calls;
	enum tc_status refused;
	const struct tc_policy_choice *other;
} seen;

static enum tc_status curious_begin(void *self, struct tc_planner *planner, struct tc_error *error)
{
	struct tc_error refusal = {0};
	seen.refused = tc_plan_evaluate(planner, seen.other, 4, &seen.candidate, &refusal);
	return tci_policy_lru.begin(self, planner, error);
}

static enum tc_status patient_end(void *self, struct tc_planner *planner,
                                  const struct tc_evaluation *timing, struct tc_error *error)
{
	(void)self;
	(void)planner;
	(void)error;
	assert_non_null(timing);
	seen.calls++;
	seen.first = *timing;
	return TC_OK;
}

static struct tc_policy_choice *choice_of(const char *text)
{
	struct tc_policy_choice *choice = NULL;
	struct tc_error error = {0};
	assert_int_equal(tc_policy_parse(text, &choice, &error), TC_OK);
	return choice;
}

struct fixture {
	struct tc_trace *trace;
	struct tc_steps *steps;
	struct tc_machine *machine;
};

static struct fixture fixture_new(void)
{
	struct test_model model = {
	    .layers = 3, .forward_us = 10, .backward_us = 20, .optimizer_us = 5};
	struct fixture f = {.trace = test_model_trace(&model)};
	struct tc_error error = {0};
	assert_int_equal(tc_steps_derive(f.trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                                 TC_FREES_LAST_USE, &f.steps, &error),
	                 TC_OK);
	assert_int_equal(
	    tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines", &f.machine, &error),
	    TC_OK);
	return f;
}

static void fixture_free(struct fixture *f)
{
	tc_machine_free(f->machine);
	tc_steps_free(f->steps);
	tc_trace_free(f->trace);
}

/** A candidate's period is what simulating that candidate by itself gives. */
static void test_candidate(void **state)
{
	(void)state;
	struct fixture f = fixture_new();
	struct tc_policy curious = tci_policy_lru;
	curious.begin = curious_begin;
	struct tc_policy_choice *choice = choice_of("lru"), *other = choice_of("ideal");
	choice->policy = &curious;
	seen.other = other;
	struct tc_result result, alone;
	struct tc_error error = {0};
	struct tc_simulation simulation = {.trace = f.trace,
	                                   .steps = f.steps,
	                                   .machine = f.machine,
	                                   .policy = choice,
	                                   .iterations = 2};
	assert_int_equal(tc_simulate(&simulation, &result, &error), TC_OK);
	assert_int_equal(seen.refused, TC_OK);
	simulation.policy = other;
	assert_int_equal(tc_simulate(&simulation, &alone, &error), TC_OK);
	assert_int_equal(seen.candidate.period_ps, alone.iteration_ps);
	assert_true(seen.candidate.steady);
	assert_int_equal(seen.candidate.busy_ps[TC_QUEUE_COMPUTE], alone.compute_ps);
	tc_result_clear(&result);
	tc_result_clear(&alone);
	tc_policy_choice_free(choice);
	tc_policy_choice_free(other);
	fixture_free(&f);
}

/** Each iteration is followed by the timing of all so far; the last one's period is the report's.
 */
static void test_every_iteration(void **state)
{
	(void)state;
	struct fixture f = fixture_new();
	struct tc_policy patient = tci_policy_lru;
	patient.wants_timing = true;
	patient.end_of_iteration = patient_end;
	struct tc_policy_choice *choice = choice_of("lru");
	choice->policy = &patient;
	memset(&seen, 0, sizeof seen);
	struct tc_result result;
	struct tc_error error = {0};
	struct tc_simulation simulation = {.trace = f.trace,
	                                   .steps = f.steps,
	                                   .machine = f.machine,
	                                   .policy = choice,
	                                   .iterations = 3};
	assert_int_equal(tc_simulate(&simulation, &result, &error), TC_OK);
	assert_int_equal(seen.calls, 5);
	assert_int_equal(seen.first.period_ps, result.iteration_ps);
	tc_result_clear(&result);
	tc_policy_choice_free(choice);
	fixture_free(&f);
}

/** Without a simulator such a policy is refused, and the message says what helps. */
static void test_without_simulator(void **state)
{
	(void)state;
	struct fixture f = fixture_new();
	struct tc_policy patient = tci_policy_lru, curious = tci_policy_lru;
	patient.wants_timing = true;
	curious.begin = curious_begin;
	struct tc_policy_choice *choice = choice_of("lru"), *other = choice_of("ideal");
	struct tc_sink sink = {0};
	struct tc_plan_options options = {.trace = f.trace,
	                                  .steps = f.steps,
	                                  .machine = f.machine,
	                                  .policy = choice,
	                                  .iterations = 3,
	                                  .sink = &sink};
	struct tc_error error = {0};
	choice->policy = &patient;
	assert_int_equal(tc_plan(&options, NULL, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "needs a simulator"));
	choice->policy = &curious;
	seen.other = other;
	error = (struct tc_error){0};
	assert_int_equal(tc_plan(&options, NULL, &error), TC_OK);
	assert_int_equal(seen.refused, TC_ARGUMENT);
	tc_policy_choice_free(choice);
	tc_policy_choice_free(other);
	fixture_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_candidate),
	    cmocka_unit_test(test_every_iteration),
	    cmocka_unit_test(test_without_simulator),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
