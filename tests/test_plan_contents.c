/*
 * Contents of lru and belady after every step, and the outcome of every request, on random traces
 * against a naive reference (tests/support/naive_cache.c). Here through the planner with its own
 * arena, so with tensors of equal size: no arena fragments then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "contents_check.h"
#include "random.h"
#include "trace_builder.h"

#define TRACES 1200u

static const char *const policies[] = {"lru", "belady", "lru:optimizer=gpu",
                                       "belady:optimizer=gpu"};
enum { POLICIES = sizeof policies / sizeof *policies };

static void test_equal_sizes(void **state)
{
	(void)state;
	struct tc_machine *machine = plan_case_machine(NULL);
	struct contents_totals totals = {0};
	for (uint64_t seed = 1; seed <= TRACES; seed++) {
		const struct test_limits limits = {.equal_sizes = true,
		                                   .layers = 4,
		                                   .no_optimizer = seed % 9 == 0,
		                                   .persistent_gradients = seed % 8 >= 5};
		struct tc_trace *trace = test_random_trace(seed, &limits);
		const char *policy = policies[seed % POLICIES];
		uint64_t least, most, random = seed;
		contents_range(trace, machine, policy, &least, &most);
		for (int i = 0; i < 2; i++) {
			/* Sizes are equal, so any remainder of a slot stays empty. */
			uint64_t capacity =
			    least + test_random_below(&random, (most - least) / 2 + 1);
			capacity -= capacity % 512;
			contents_compare(trace, machine, policy, i == 0 ? least : capacity, seed,
			                 &totals);
		}
		tc_trace_free(trace);
	}
	print_message("%llu steps, %llu requests, %llu hits, %llu evictions\n",
	              (unsigned long long)totals.steps, (unsigned long long)totals.requests,
	              (unsigned long long)totals.hits, (unsigned long long)totals.evictions);
	assert_true(totals.evictions > 10 * TRACES);
	assert_true(totals.hits > 2 * TRACES && totals.hits < totals.requests);
	tc_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal_sizes)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
