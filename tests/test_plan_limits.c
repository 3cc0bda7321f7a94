/*
 * A plan ends where its numbers do: ids of commands have 32 bits inside the planner.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan.h"
#include "policy/policies.h"
#include "trace_builder.h"

/** The command with the last id that fits. */
static struct {
	uint64_t last_id;
	uint64_t count;
} seen;

static enum tc_status count_command(void *self, const struct tc_command *command,
                                    struct tc_error *error)
{
	(void)self;
	(void)error;
	seen.last_id = command->id;
	seen.count++;
	return TC_OK;
}

/** `lru`, after all but a hundred of the commands that a plan can have. */
static enum tc_status late_begin(void *self, struct tc_planner *planner, struct tc_error *error)
{
	planner->next_id = TCI_MAX_COMMANDS - 100;
	return tci_policy_lru.begin(self, planner, error);
}

static void test_too_many_commands(void **state)
{
	(void)state;
	struct test_model model = {
	    .layers = 3, .forward_us = 10, .backward_us = 20, .optimizer_us = 5};
	struct tc_trace *trace = test_model_trace(&model);
	struct tc_steps *steps;
	struct tc_machine *machine;
	struct tc_policy_choice *choice = NULL;
	struct tc_error error = {0};
	assert_int_equal(tc_steps_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                                 TC_FREES_LAST_USE, &steps, &error),
	                 TC_OK);
	assert_int_equal(
	    tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines", &machine, &error),
	    TC_OK);
	assert_int_equal(tc_policy_parse("lru", &choice, &error), TC_OK);
	struct tc_policy late = tci_policy_lru;
	late.begin = late_begin;
	choice->policy = &late;
	struct tc_sink sink = {.command = count_command};
	struct tc_plan_options options = {.trace = trace,
	                                  .steps = steps,
	                                  .machine = machine,
	                                  .policy = choice,
	                                  .iterations = 1000,
	                                  .sink = &sink};
	assert_int_equal(tc_plan(&options, NULL, &error), TC_TOO_LARGE);
	assert_int_equal(seen.count, 100);
	assert_int_equal(seen.last_id, TCI_MAX_COMMANDS - 1);
	assert_non_null(strstr(error.text, "4294967294 commands"));
	assert_non_null(strstr(error.text, "fewer iterations"));
	tc_policy_choice_free(choice);
	tc_machine_free(machine);
	tc_steps_free(steps);
	tc_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_too_many_commands),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
