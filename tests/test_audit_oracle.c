/*
 * The auditor against an independent oracle (tests/support/oracle.h): sound schedules must pass
 * both; of every kind of mutant at least 50 that are truly wrong, and auditor and oracle agree on
 * each one. Mutants that a record check refuses count for that check (rules, section 7).
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>

#include "oracle.h"
#include "random.h"
#include "schedule_check.h"
#include "tencache/audit.h"

#define WRONG_MUTANTS 50u
#define RANDOM_ORDERS 6u

/** Findings, and their text to print. */
static uint64_t audit(const struct tc_schedule *schedule, char *text, size_t bytes)
{
	struct tc_audit *auditor;
	struct tc_error error = {0};
	assert_int_equal(tc_audit_create(false, &auditor, &error), TC_OK);
	struct tc_sink sink = tc_audit_sink(auditor);
	assert_int_equal(tc_schedule_play(schedule, &sink, &error), TC_OK);
	const struct tc_audit_report *report = tc_audit_result(auditor);
	uint64_t findings = report->findings;
	(void)snprintf(text, bytes, "%s", report->first);
	tc_audit_free(auditor);
	return findings;
}

/** Do all records pass their own checks? */
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

static void test_sound_schedules(void **state)
{
	(void)state;
	char text[TC_ERROR_TEXT_BYTES];
	for (uint64_t seed = 1; seed <= 150; seed++) {
		struct tc_machine machine;
		struct oracle_model *model = oracle_model_new(seed, seed % 2 == 0);
		struct tc_schedule *schedule =
		    oracle_plan(model, seed, 1 + (uint32_t)(seed % 3), &machine);
		struct oracle_verdict verdict = oracle_judge(schedule, RANDOM_ORDERS, seed);
		if (verdict.wrong)
			print_error("seed %d: oracle says: %s\n", (int)seed, verdict.why);
		assert_false(verdict.wrong);
		uint64_t findings = audit(schedule, text, sizeof text);
		if (findings > 0)
			print_error("seed %d: auditor says: %s\n", (int)seed, text);
		assert_int_equal(findings, 0);
		tc_schedule_free(schedule);
		oracle_model_free(model);
	}
}

struct tally {
	unsigned wrong, sound, refused, disagreed, executed_wrong;
};

/** One mutant: judged by both. */
static void compare(const struct tc_schedule *mutant, enum oracle_mutation mutation, uint64_t seed,
                    struct tally *tally)
{
	char text[TC_ERROR_TEXT_BYTES];
	uint64_t findings = audit(mutant, text, sizeof text);
	if (!well_formed(mutant)) {
		tally->refused++;
		assert_true(findings > 0);
		return;
	}
	struct oracle_verdict verdict = oracle_judge(mutant, RANDOM_ORDERS, seed);
	tally->wrong += verdict.wrong;
	tally->sound += !verdict.wrong;
	tally->executed_wrong += verdict.execution_wrong;
	/* An order that goes wrong is a proof: the other judge must have seen it. */
	assert_true(!verdict.execution_wrong || verdict.closure_wrong || verdict.fault);
	if (verdict.wrong == (findings > 0))
		return;
	tally->disagreed++;
	print_error("%s, seed %d: oracle: %s; auditor: %s\n", oracle_mutation_name(mutation),
	            (int)seed, verdict.wrong ? verdict.why : "sound",
	            findings > 0 ? text : "sound");
}

static void test_mutants(void **state)
{
	(void)state;
	for (unsigned m = 0; m < ORACLE_MUTATION_COUNT; m++) {
		struct tally tally = {0};
		uint64_t random = 1000 * m + 1;
		for (unsigned attempt = 0; attempt < 20000 && tally.wrong < WRONG_MUTANTS;
		     attempt++) {
			uint64_t seed = test_random(&random) % 1000000;
			struct tc_machine machine, changed;
			struct oracle_model *model = oracle_model_new(seed, seed % 2 == 0);
			struct tc_schedule *schedule =
			    oracle_plan(model, seed, 1 + (uint32_t)(seed % 3), &machine);
			struct tc_schedule *mutant = oracle_mutate(
			    schedule, (enum oracle_mutation)m, test_random(&random), &changed);
			if (mutant != NULL)
				compare(mutant, (enum oracle_mutation)m, seed, &tally);
			tc_schedule_free(mutant);
			tc_schedule_free(schedule);
			oracle_model_free(model);
		}
		print_message("%-20s wrong %3u (in a random order %3u), sound %3u, refused by a "
		              "record check %3u\n",
		              oracle_mutation_name((enum oracle_mutation)m), tally.wrong,
		              tally.executed_wrong, tally.sound, tally.refused);
		assert_int_equal(tally.disagreed, 0);
		assert_true(tally.wrong >= WRONG_MUTANTS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_sound_schedules),
	                                   cmocka_unit_test(test_mutants)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
