/*
 * The planner's calls as a policy of the test uses and misuses them: races cannot be expressed,
 * mistakes are refused with a message, and options of moves do what they say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "small_plan.h"

/** A policy of the test: pools and places by `begin`, one call after the first step. */
struct scenario {
	uint32_t cache, host, nvme, staging;
	enum tc_status (*act)(struct scenario *scenario, struct tc_planner *planner,
	                      struct tc_error *error);
	bool pageable, on_nvme, no_staging;
};
static struct scenario scenario;

static enum tc_status scenario_begin(void *self, struct tc_planner *planner, struct tc_error *error)
{
	(void)self;
	tc_plan_optimizer_on_cpu(planner, false);
	TC_TRY(tc_plan_manage(planner, 1u << TC_PARAM, error));
	TC_TRY(tc_plan_arena(planner, TC_GPU, "cache", false, 8 * SLOT, &scenario.cache, error));
	TC_TRY(tc_plan_arena(planner, TC_CPU, "host", !scenario.pageable, 8 * SLOT, &scenario.host,
	                     error));
	TC_TRY(
	    tc_plan_arena(planner, TC_NVME, "nvme", false, UINT64_C(65536), &scenario.nvme, error));
	tc_plan_default_pool(planner, TC_GPU, scenario.cache);
	tc_plan_default_pool(planner, TC_CPU, scenario.host);
	if (!scenario.no_staging)
		tc_plan_staging_pool(planner, scenario.host);
	for (uint32_t t = 0; t < tc_plan_trace(planner)->tensor_count; t++)
		if (tc_plan_tensor(planner, t).kind == TC_PARAM)
			TC_TRY(tc_plan_place(
			    planner, t, scenario.on_nvme ? scenario.nvme : scenario.host, error));
	return TC_OK;
}

static enum tc_status scenario_after_step(void *self, struct tc_planner *planner, uint32_t step,
                                          struct tc_ids closing, struct tc_error *error)
{
	(void)self;
	(void)closing;
	return step == 0 && scenario.act != NULL ? scenario.act(&scenario, planner, error) : TC_OK;
}

static const struct tc_policy scenario_policy = {.name = "scenario",
                                                 .period = 1,
                                                 .state_bytes = 1,
                                                 .begin = scenario_begin,
                                                 .after_step = scenario_after_step};

/** A plan of the scenario, and what it borrows. */
struct played {
	struct small small;
	struct plan_kept kept;
};

static struct plan_case scenario_case(const struct small *small, struct tc_policy_choice *choice,
                                      struct scenario wanted)
{
	scenario = wanted;
	*choice = (struct tc_policy_choice){.policy = &scenario_policy, .text = (char *)"scenario"};
	return (struct plan_case){.trace = small->trace,
	                          .machine = small->machine,
	                          .policy = "scenario",
	                          .choice = choice,
	                          .iterations = 1};
}

/** Parameter 0 is dirty on the GPU after step 0. */
static struct played play(struct scenario wanted)
{
	struct tc_policy_choice choice;
	struct played played = {.small = small_of(small_two_modules(), PLENTY)};
	struct plan_case plan = scenario_case(&played.small, &choice, wanted);
	played.kept = plan_case_keep(&plan);
	return played;
}

static void played_free(struct played *played)
{
	plan_kept_free(&played->kept);
	small_free(&played->small);
}

static void assert_refused(struct scenario wanted, enum tc_status expected, const char *text)
{
	struct tc_error error = {0};
	struct tc_policy_choice choice;
	struct small small = small_of(small_two_modules(), PLENTY);
	struct plan_case plan = scenario_case(&small, &choice, wanted);
	assert_int_equal(plan_case_run(&plan, NULL, NULL, &error), expected);
	assert_non_null(strstr(error.text, text));
	small_free(&small);
}

static enum tc_status drop_dirty(struct scenario *s, struct tc_planner *planner,
                                 struct tc_error *error)
{
	(void)s;
	return tc_plan_drop(planner, 0, TC_GPU, error);
}

static enum tc_status move_without_source(struct scenario *s, struct tc_planner *planner,
                                          struct tc_error *error)
{
	bool moved;
	TC_TRY(tc_plan_discard(planner, 0, error)); /* forget it everywhere */
	return tc_plan_move(planner, 0, s->cache, TC_NO_POOL, TC_MOVE(TC_WHY_PREFETCH), &moved,
	                    NULL, error);
}

static enum tc_status late_pool(struct scenario *s, struct tc_planner *planner,
                                struct tc_error *error)
{
	uint32_t pool;
	(void)s;
	return tc_plan_arena(planner, TC_GPU, "late", false, SLOT, &pool, error);
}

static void test_misuse_is_refused(void **state)
{
	(void)state;
	assert_refused((struct scenario){.act = drop_dirty}, TC_INTERNAL, "last copy");
	assert_refused((struct scenario){.act = move_without_source}, TC_ARGUMENT,
	               "no copy of its latest version");
	assert_refused((struct scenario){.act = late_pool}, TC_INTERNAL, "outside begin");
	assert_refused((struct scenario){.on_nvme = true, .no_staging = true}, TC_INTERNAL,
	               "without staging");
}

static void test_wrong_options_are_refused(void **state)
{
	(void)state;
	struct small small = small_of(small_two_modules(), PLENTY);
	struct plan_case plan = small_case(&small, "lru");
	struct tc_error error = {0};
	plan.iterations = 0;
	assert_int_equal(plan_case_run(&plan, NULL, NULL, &error), TC_ARGUMENT);
	error = (struct tc_error){0};
	plan.iterations = 1;
	plan.alignment = 768;
	assert_int_equal(plan_case_run(&plan, NULL, NULL, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "768"));
	small_free(&small);
}

/** CUDA blocks the issuing thread in a copy from memory that is not pinned. */
static void test_pageable_copies_are_waited_for(void **state)
{
	(void)state;
	struct played played;
	for (int pageable = 0; pageable < 2; pageable++) {
		played = play((struct scenario){.pageable = pageable != 0});
		const struct tc_schedule *s = played.kept.schedule;
		uint64_t fetch = plan_find(s, 0, FIND(TC_FETCH, 0, 0));
		assert_int_equal(s->commands[fetch].pageable, pageable);
		assert_int_equal(s->commands[fetch + 1].kind, pageable ? TC_WAIT : TC_COMPUTE);
		if (pageable)
			assert_int_equal(plan_reason(s, fetch + 1, fetch), TC_REASON_ORDER);
		played_free(&played);
	}
}

static enum tc_status fetch_anchored(struct scenario *s, struct tc_planner *planner,
                                     struct tc_error *error)
{
	struct tc_move_options options = TC_MOVE(TC_WHY_PREFETCH);
	bool moved;
	options.after = tc_plan_after(planner, 0);
	options.after_reason = TC_REASON_ANCHOR;
	return tc_plan_move(planner, 1, s->cache, TC_NO_POOL, options, &moved, NULL, error);
}

/** An anchor places a transfer in time: not before a given compute command has ended. A fetch
 * issued before its request makes that request covered, not resident and no miss. */
static void test_anchor_and_covered(void **state)
{
	(void)state;
	struct played played;
	played = play((struct scenario){.act = fetch_anchored});
	const struct tc_schedule *s = played.kept.schedule;
	uint64_t fetch = plan_find(s, 0, FIND(TC_FETCH, 1, 0));
	assert_int_equal(plan_reason(s, fetch, plan_runs(s, 0, 0)), TC_REASON_ANCHOR);
	const struct tc_command *second = &s->commands[plan_runs(s, 0, 1)];
	assert_int_equal(second->served[0].outcome, TC_COVERED);
	assert_int_equal(second->served[0].served_by, fetch);
	played_free(&played);
	played = play((struct scenario){0});
	s = played.kept.schedule;
	second = &s->commands[plan_runs(s, 0, 1)];
	assert_int_equal(second->served[0].outcome, TC_DEMAND_MISS);
	played_free(&played);
}

static enum tc_status evict_to_nvme(struct scenario *s, struct tc_planner *planner,
                                    struct tc_error *error)
{
	struct tc_move_options options = TC_MOVE(TC_WHY_RELEASE);
	bool moved;
	options.keep_source = false;
	return tc_plan_move(planner, 0, s->nvme, s->host, options, &moved, NULL, error);
}

/** Down over two hops: evict to a staging slot, spill from it, which is then given back. */
static void test_two_hops_down(void **state)
{
	(void)state;
	struct played played;
	played = play((struct scenario){.act = evict_to_nvme, .on_nvme = true});
	const struct tc_schedule *s = played.kept.schedule;
	uint64_t evict = plan_find(s, 0, FIND(TC_EVICT, 0, 0));
	const struct tc_command *spill = &s->commands[evict + 1];
	assert_int_equal(spill->kind, TC_SPILL);
	assert_int_equal(spill->version, 1);
	assert_int_equal(plan_reason(s, spill->id, evict), TC_REASON_DATA);
	assert_int_equal(spill->src.offset, s->commands[evict].dst.offset);
	assert_int_equal(spill->dst.pool, small_pool(s, "nvme"));
	played_free(&played);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_misuse_is_refused),
	    cmocka_unit_test(test_wrong_options_are_refused),
	    cmocka_unit_test(test_pageable_copies_are_waited_for),
	    cmocka_unit_test(test_anchor_and_covered),
	    cmocka_unit_test(test_two_hops_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
