/*
 * As test_plan_contents.c, with sizes that differ: over a pool that counts bytes and has no
 * offsets, so that nothing fragments and contents depend on the policy alone. It takes the place of
 * the library's arena in this program, because it defines the same functions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "contents_check.h"
#include "pool.h"
#include "random.h"
#include "trace_builder.h"

#define TRACES 1200u

struct tci_arena {
	uint64_t bytes, used;
};

enum tc_status tci_arena_create(uint64_t bytes, uint32_t lanes, struct tci_arena **arena,
                                struct tc_error *error)
{
	(void)lanes;
	*arena = calloc(1, sizeof **arena);
	if (*arena == NULL)
		return tc_error_no_memory(error, "counting pool", sizeof **arena);
	(*arena)->bytes = bytes;
	return TC_OK;
}

void tci_arena_free(struct tci_arena *arena)
{
	free(arena);
}

bool tci_arena_take(struct tci_arena *arena, uint64_t bytes, uint64_t *offset,
                    struct tci_release *release, struct tc_error *error)
{
	(void)error;
	if (bytes > arena->bytes - arena->used)
		return false;
	arena->used += bytes;
	*offset = 0;
	memset(release, 0, sizeof *release);
	return true;
}

enum tc_status tci_arena_put(struct tci_arena *arena, uint64_t offset, uint64_t bytes,
                             const struct tci_release *release, struct tc_error *error)
{
	(void)offset;
	(void)release;
	(void)error;
	assert_true(bytes <= arena->used);
	arena->used -= bytes;
	return TC_OK;
}

uint64_t tci_arena_free_bytes(const struct tci_arena *arena)
{
	return arena->bytes - arena->used;
}

uint64_t tci_arena_largest_free(const struct tci_arena *arena)
{
	return arena->bytes - arena->used;
}

static const char *const policies[] = {"lru",
                                       "belady",
                                       "lru:optimizer=gpu",
                                       "belady:optimizer=gpu",
                                       "lru:activations=1",
                                       "belady:activations=1",
                                       "lru:activations=1:optimizer=gpu:state=nvme",
                                       "belady:activations=1:optimizer=gpu"};
enum { POLICIES = sizeof policies / sizeof *policies };

static void test_any_sizes(void **state)
{
	(void)state;
	struct tc_machine *machine = plan_case_machine(NULL);
	struct contents_totals totals = {0};
	for (uint64_t seed = 1; seed <= TRACES; seed++) {
		const struct test_limits limits = {.layers = 4, .no_optimizer = seed % 9 == 0};
		struct tc_trace *trace = test_random_trace(seed, &limits);
		const char *policy = policies[seed % POLICIES];
		uint64_t least, most, random = seed;
		contents_range(trace, machine, policy, &least, &most);
		for (int i = 0; i < 2; i++) {
			uint64_t more = test_random_below(&random, (most - least) / 2 + 1);
			contents_compare(trace, machine, policy, i == 0 ? least : least + more,
			                 seed, &totals);
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
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_any_sizes)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
