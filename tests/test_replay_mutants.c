/*
 * Does running a schedule on real bytes catch what is wrong with it? From sound plans of real
 * policies single dependencies are removed. The oracle (tests/support/oracle.h) says which of these
 * mutants are truly wrong: it executes them on real bytes in random legal orders, so that a fault
 * reaches a read or the final content. The executor, under random delays, has to catch at least
 * 95 % of them, and never complains about a mutant that is still sound.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "oracle.h"
#include "replay_case.h"
#include "schedule_check.h"

/* A wrong mutant is a data race on purpose. Under ThreadSanitizer only the sound ones run, which
 * must have none. */
#if defined(__SANITIZE_THREAD__)
#define RACES_ARE_FATAL 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RACES_ARE_FATAL 1
#endif
#endif
#ifndef RACES_ARE_FATAL
#define RACES_ARE_FATAL 0
#endif

#define WRONG_MUTANTS 200u
#define RANDOM_ORDERS 24u
/** Runs under other delays before a mutant counts as missed. */
#define RUNS 40u
#define SOUND_RUNS 3u

static const char *const policies[] = {
    "lru",
    "belady",
    "lru:optimizer=gpu",
    "10cache",
    ("zero-infinity:device=cpu:reduce-bucket-size=64:sub-group-size=64:"
     "prefetch-bucket-size=64:param-persistence-threshold=8"),
};
enum { POLICY_COUNT = sizeof policies / sizeof *policies };

/* Multiples of a word, since content is checked by words. */
static const struct test_limits limits = {.layers = 2,
                                          .modules_per_layer = 2,
                                          .params_per_module = 2,
                                          .param_bytes = 96,
                                          .activation_bytes = 96};

static bool well_formed(const struct tc_schedule *schedule)
{
	struct tc_error error = {0};
	bool fine = tci_plan_info_check(&schedule->info, &error) == TC_OK;
	for (uint64_t c = 0; fine && c < schedule->command_count; c++)
		fine =
		    tci_command_check(&schedule->info, &schedule->commands[c], c, &error) == TC_OK;
	return fine;
}

/** Run under so many delays. @return the run that found a wrong byte, from 1; 0: none. Anything
 * else fails the test. */
static unsigned caught(const struct tc_schedule *schedule, unsigned runs, uint64_t seed)
{
	for (unsigned run = 0; run < runs; run++) {
		struct tc_replay_options options = {.schedule = schedule,
		                                    .verify = TC_VERIFY_FULL,
		                                    .compute = TC_COMPUTE_NONE,
		                                    .cpu_threads = 1,
		                                    .random_delays = seed * 1000 + run + 1};
		struct tc_error error = {0};
		enum tc_status status = replay_case_run(&options, &error);
		if (status == TC_UNSAFE)
			return run + 1;
		if (status != TC_OK)
			fail_msg("%s", error.text);
	}
	return 0;
}

struct tally {
	unsigned wrong, found, at_once, sound;
};

static void try_mutant(const struct tc_schedule *schedule, enum oracle_mutation mutation,
                       uint64_t seed, struct tally *tally)
{
	struct tc_machine machine;
	struct tc_schedule *mutant = oracle_mutate(schedule, mutation, seed, &machine);
	if (mutant == NULL)
		return;
	if (well_formed(mutant)) {
		struct oracle_verdict verdict = oracle_judge(mutant, RANDOM_ORDERS, seed);
		if (verdict.execution_wrong) {
			tally->wrong++;
			unsigned run = RACES_ARE_FATAL ? 1 : caught(mutant, RUNS, seed);
			tally->found += run > 0;
			tally->at_once += run == 1;
		} else if (!verdict.wrong) {
			tally->sound++;
			assert_int_equal(caught(mutant, SOUND_RUNS, seed), 0);
		}
	}
	tc_schedule_free(mutant);
}

static void test_removed_dependencies(void **state)
{
	(void)state;
	struct tally tally = {0, 0, 0, 0};
	for (uint64_t seed = 1; tally.wrong < WRONG_MUTANTS && seed < 400; seed++) {
		struct replay_case planned =
		    replay_case_plan(policies[seed % POLICY_COUNT], &limits, seed, 2);
		if (planned.schedule->command_count < ORACLE_MAX_COMMANDS - 1)
			for (uint64_t m = 0; m < 6 && tally.wrong < WRONG_MUTANTS; m++)
				try_mutant(planned.schedule,
				           m % 3 == 2 ? ORACLE_DROP_WAIT : ORACLE_DROP_DEPENDENCY,
				           seed * 100 + m, &tally);
		replay_case_free(&planned);
	}
	if (RACES_ARE_FATAL) {
		print_message("%u sound mutants ran; wrong ones skipped under ThreadSanitizer\n",
		              tally.sound);
		return;
	}
	print_message("%u wrong mutants, %u caught, %u of them by the first run; %u sound ones, "
	              "none blamed\n",
	              tally.wrong, tally.found, tally.at_once, tally.sound);
	assert_true(tally.wrong >= WRONG_MUTANTS);
	assert_true(tally.found * 100 >= tally.wrong * 95);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_removed_dependencies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
