/*
 * Does verification find what the auditor is there to prevent? Sound schedules lose one dependency;
 * the auditor's oracle (tests/support/oracle.h), which shares nothing with planner, auditor and
 * executor, says which of these mutants are truly wrong: bytes that can be read or overwritten out
 * of order, and some legal order in which a reader or the final content really gets other bytes.
 * Those run for real under random delays. At least 95 % of 200 must be found (plans of policies
 * that use drives among them; test_replay_mutants.c has the others), each by a message
 * about wrong content; a sound schedule under the same delays never fails.
 *
 * The oracle's schedules work in units of 16 bytes. For the run each of them is made 4 KiB, the
 * block of a drive: who is ordered with whom, and which bytes overlap, stays as it was.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "random.h"
#include "replay_case.h"
#include "schedule_check.h"
#include "tencache/units.h"

#define WRONG_ORACLE_MUTANTS 120u
#define WRONG_PLAN_MUTANTS 80u
/** Legal orders in which the oracle looks for one that goes wrong. */
#define ORDERS 60u
/** Runs of a mutant, each with other delays. */
#define RUNS 40u
#define MAGNIFICATION 256u

/** Where mutants cannot run. */
#define SOUND_RUNS 30u
/* A wrong mutant races for memory, which is its point: ThreadSanitizer would report just that. */
#ifdef __SANITIZE_THREAD__
#define ONLY_SOUND true
#else
#define ONLY_SOUND false
#endif

/* ---------------------------------------------------------------- magnified schedules */

static void magnify_place(struct tc_place *place)
{
	if (place->pool != TC_NO_POOL)
		place->offset *= MAGNIFICATION;
}

static void magnify_command(struct tc_command *command)
{
	/* The schedule is the test's own copy; only its readers see lists as constant. */
	struct tc_bind *binds = (struct tc_bind *)(uintptr_t)command->binds;
	command->bytes *= MAGNIFICATION;
	command->tensor_offset *= MAGNIFICATION;
	magnify_place(&command->src);
	magnify_place(&command->dst);
	for (uint32_t b = 0; b < command->bind_count; b++) {
		binds[b].offset *= MAGNIFICATION;
		binds[b].bytes *= MAGNIFICATION;
	}
}

/** Sixteen bytes become 4 KiB. Sizes in the trace stay: the executor takes them from the plan. */
static void magnify(struct tc_schedule *schedule)
{
	const struct tc_plan_info *info = &schedule->info;
	struct tc_pool_info *pools = (struct tc_pool_info *)(uintptr_t)info->pools;
	struct tc_plan_tensor *tensors = (struct tc_plan_tensor *)(uintptr_t)info->tensors;
	struct tc_initial_copy *copies = (struct tc_initial_copy *)(uintptr_t)info->copies;
	struct tc_final_place *places = (struct tc_final_place *)(uintptr_t)schedule->end.places;
	for (uint32_t p = 0; p < info->pool_count; p++)
		pools[p].bytes *= MAGNIFICATION;
	for (uint32_t t = 0; t < info->tensor_count; t++) {
		tensors[t].bytes *= MAGNIFICATION;
		magnify_place(&tensors[t].start);
	}
	for (uint32_t c = 0; c < info->copy_count; c++)
		magnify_place(&copies[c].place);
	for (uint64_t c = 0; c < schedule->command_count; c++)
		magnify_command(&schedule->commands[c]);
	for (uint32_t p = 0; p < schedule->end.place_count; p++)
		magnify_place(&places[p].place);
}

/* ---------------------------------------------------------------- runs */

static enum tc_status run_once(const struct tc_schedule *schedule, uint64_t delays,
                               struct tc_error *error)
{
	struct tc_replay_options options = {.schedule = schedule,
	                                    .verify = TC_VERIFY_FULL,
	                                    .compute = TC_COMPUTE_NONE,
	                                    .random_delays = delays};
	*error = (struct tc_error){0};
	return replay_case_run(&options, error);
}

struct tally {
	unsigned wrong, caught, caught_at_once, sound;
};

static void try_mutant(const struct tc_schedule *mutant, bool small, uint64_t seed,
                       struct tally *tally)
{
	struct tc_error error;
	struct oracle_verdict verdict = oracle_judge(mutant, ORDERS, seed);
	if (ONLY_SOUND || !verdict.execution_wrong)
		return;
	tally->wrong++;
	if (small)
		magnify((struct tc_schedule *)(uintptr_t)mutant);
	for (unsigned run = 0; run < RUNS; run++) {
		enum tc_status status = run_once(mutant, seed * 1000 + run + 1, &error);
		if (status == TC_OK)
			continue;
		if (status != TC_UNSAFE || strstr(error.text, "wrong content") == NULL)
			fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
		tally->caught++;
		tally->caught_at_once += run == 0;
		return;
	}
	print_message("seed %llu: not found in %u runs: %s\n", (unsigned long long)seed, RUNS,
	              verdict.why);
}

static void run_sound(struct tc_schedule *schedule, uint64_t seed, struct tally *tally)
{
	struct tc_error error;
	for (uint64_t run = 0; run < 3; run++) {
		if (run_once(schedule, seed * 1000 + run + 1, &error) != TC_OK)
			fail_msg("sound, seed %llu: %s", (unsigned long long)seed, error.text);
		tally->sound++;
	}
}

/** Has the test seen enough? */
static bool enough(const struct tally *tally, unsigned wanted)
{
	return ONLY_SOUND ? tally->sound >= SOUND_RUNS : tally->wrong >= wanted;
}

static void report(const char *what, const struct tally *tally, unsigned wanted)
{
	if (ONLY_SOUND) {
		print_message("%s: %u sound runs; mutants skipped under ThreadSanitizer\n", what,
		              tally->sound);
		return;
	}
	print_message("%s: %u of %u wrong mutants found (%u in the first run), %u sound runs\n",
	              what, tally->caught, tally->wrong, tally->caught_at_once, tally->sound);
	assert_true(tally->wrong >= wanted);
	assert_true(tally->caught * 100 >= tally->wrong * 95);
}

/* ---------------------------------------------------------------- the oracle's own schedules */

static void test_oracle_schedules(void **state)
{
	(void)state;
	struct tally tally = {0};
	uint64_t random = 41;
	while (!enough(&tally, WRONG_ORACLE_MUTANTS)) {
		uint64_t seed = test_random(&random) % 1000000;
		struct tc_machine machine, changed;
		struct oracle_model *model = oracle_model_new(seed, seed % 2 == 0);
		struct tc_schedule *schedule =
		    oracle_plan(model, seed, 1 + (uint32_t)(seed % 3), &machine);
		for (unsigned attempt = 0; attempt < 3; attempt++) {
			struct tc_schedule *mutant = oracle_mutate(schedule, ORACLE_DROP_DEPENDENCY,
			                                           test_random(&random), &changed);
			if (mutant != NULL)
				try_mutant(mutant, true, seed, &tally);
			tc_schedule_free(mutant);
		}
		magnify(schedule);
		run_sound(schedule, seed, &tally);
		tc_schedule_free(schedule);
		oracle_model_free(model);
	}
	report("schedules of the oracle", &tally, WRONG_ORACLE_MUTANTS);
}

/* ---------------------------------------------------------------- real plans, with drives */

static const char *const policies[] = {
    "lru:state=nvme",
    "belady:state=nvme",
    "10cache",
    ("zero-infinity:device=nvme:reduce-bucket-size=4096:buffer-size=8192:sub-group-size=8192:"
     "prefetch-bucket-size=4096:param-persistence-threshold=8:max-in-cpu=4000:min-nvme-bytes=1"),
};
enum { POLICY_COUNT = sizeof policies / sizeof *policies };

static const struct test_limits limits = {.layers = 2,
                                          .modules_per_layer = 2,
                                          .params_per_module = 2,
                                          .param_bytes = 6000,
                                          .activation_bytes = 6000};

static void test_real_plans(void **state)
{
	(void)state;
	struct tally tally = {0};
	uint64_t random = 43;
	for (uint64_t n = 0; !enough(&tally, WRONG_PLAN_MUTANTS); n++) {
		uint64_t seed = test_random(&random) % 1000000;
		struct tc_machine changed;
		struct replay_case planned =
		    replay_case_plan(policies[n % POLICY_COUNT], &limits, seed, 2);
		bool judged = planned.schedule->command_count < ORACLE_MAX_COMMANDS - 1;
		for (unsigned attempt = 0; attempt < 6 && judged; attempt++) {
			struct tc_schedule *mutant =
			    oracle_mutate(planned.schedule, ORACLE_DROP_DEPENDENCY,
			                  test_random(&random), &changed);
			if (mutant != NULL)
				try_mutant(mutant, false, seed, &tally);
			tc_schedule_free(mutant);
		}
		run_sound(planned.schedule, seed, &tally);
		replay_case_free(&planned);
	}
	report("plans of the policies", &tally, WRONG_PLAN_MUTANTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_oracle_schedules),
	                                   cmocka_unit_test(test_real_plans)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
