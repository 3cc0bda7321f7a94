/*
 * Plans with persistent gradients on the executor: every byte that an op, an update or a copy reads
 * is looked at, under random delays, over several iterations, so that a gradient which lost or kept
 * a version too many shows. The expected content is the synthetic one of (tensor, version, offset).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "replay_case.h"

static const char *const policies[] = {
    "lru",
    "belady",
    "lru:state=nvme",
    "lru:optimizer=gpu",
    "belady:state=nvme:optimizer=gpu",
    "lru:barrier=1",
};
enum { POLICY_COUNT = sizeof policies / sizeof *policies };

static const struct test_limits limits = {.layers = 3,
                                          .modules_per_layer = 2,
                                          .params_per_module = 2,
                                          .param_bytes = 12000,
                                          .activation_bytes = 12000,
                                          .persistent_gradients = true};

static void run(const char *policy, uint64_t seed, uint64_t *moves)
{
	struct replay_case planned = replay_case_plan(policy, &limits, seed, 4);
	struct tc_replay_options options = {.schedule = planned.schedule,
	                                    .verify = TC_VERIFY_FULL,
	                                    .compute = TC_COMPUTE_NONE,
	                                    .random_delays = seed % 2 == 0 ? seed : 0};
	struct tc_error error = {0};
	if (replay_case_run(&options, &error) != TC_OK)
		fail_msg("seed %llu, %s: %s", (unsigned long long)seed, policy, error.text);
	for (uint64_t c = 0; c < planned.schedule->command_count; c++)
		*moves += planned.schedule->commands[c].kind == TC_GRADIENT;
	replay_case_free(&planned);
}

/** In the least memory that fits, so that gradients are evicted and come back. */
static void test_every_byte(void **state)
{
	(void)state;
	for (int p = 0; p < POLICY_COUNT; p++) {
		uint64_t moves = 0;
		for (uint64_t seed = 1; seed <= 8; seed++)
			run(policies[p], seed, &moves);
		print_message("%s: %llu copies of gradients\n", policies[p],
		              (unsigned long long)moves);
		assert_true(moves > 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_byte)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
