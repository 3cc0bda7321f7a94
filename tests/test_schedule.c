/*
 * Schedules in memory: copies own their lists, a stored schedule plays back what was put in, a tee
 * feeds every consumer, names and lanes are what the format says.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

static void test_lanes(void **state)
{
	(void)state;
	/* Flat index = lanes of earlier queues + own lane; worked by hand. */
	const uint32_t lanes[TC_QUEUE_COUNT] = {1, 2, 2, 1, 1, 0, 4, 1};
	assert_int_equal(tc_lane_total(lanes), 12);
	assert_int_equal(tc_lane_index(lanes, TC_QUEUE_COMPUTE, 0), 0);
	assert_int_equal(tc_lane_index(lanes, TC_QUEUE_H2D, 1), 2);
	assert_int_equal(tc_lane_index(lanes, TC_QUEUE_NVME_READ, 0), 5);
	assert_int_equal(tc_lane_index(lanes, TC_QUEUE_CPU, 3), 10);
	assert_int_equal(tc_lane_index(lanes, TC_QUEUE_HOST, 0), 11);
}

static void test_names(void **state)
{
	(void)state;
	/* The words of design section 9. */
	assert_string_equal(tc_command_kind_name(TC_FETCH), "fetch");
	assert_string_equal(tc_command_kind_name(TC_GRADIENT), "gradient");
	assert_string_equal(tc_command_kind_name(TC_DROP), "drop");
	assert_string_equal(tc_reason_name(TC_REASON_ANCHOR), "anchor");
	assert_string_equal(tc_why_name(TC_WHY_REPAIR), "repair");
	assert_string_equal(tc_pool_kind_name(TC_POOL_CLASSES), "classes");
	assert_string_equal(tc_why_name((enum tc_why)99), "unknown");
}

static void test_copy_owns_its_lists(void **state)
{
	(void)state;
	struct tc_dependency deps[] = {{3, TC_REASON_DATA}, {5, TC_REASON_SLOT}};
	struct tc_bind binds[] = {{1, 2, 3, 4, 5, TC_WRITE}};
	struct tc_served served[] = {{1, TC_COVERED, true, false, 9}};
	struct tc_memory_change memory[] = {{-7, TC_NO_COMMAND, TC_CPU, TC_GRAD}};
	struct tc_command source = {.id = 6,
	                            .deps = deps,
	                            .dep_count = 2,
	                            .binds = binds,
	                            .bind_count = 1,
	                            .served = served,
	                            .served_count = 1,
	                            .memory = memory,
	                            .memory_count = 1};
	struct tc_command copy, again, empty = {.id = 1}, empty_copy;
	assert_int_equal(tc_command_copy(&copy, &source, NULL), TC_OK);
	assert_int_equal(tc_command_copy(&again, &source, NULL), TC_OK);
	memset(deps, 0, sizeof deps);
	memset(binds, 0, sizeof binds);
	memset(served, 0, sizeof served);
	memset(memory, 0, sizeof memory);
	assert_true(oracle_same_command(&copy, &again));
	assert_int_equal(copy.deps[1].id, 5);
	assert_int_equal(copy.binds[0].version, 5);
	assert_int_equal(copy.served[0].served_by, 9);
	assert_int_equal(copy.memory[0].bytes, -7);
	assert_int_equal(tc_command_copy(&empty_copy, &empty, NULL), TC_OK);
	tc_command_clear(&copy);
	tc_command_clear(&again);
	tc_command_clear(&empty_copy);
	tc_command_clear(&empty_copy); /* cleared ones may be cleared again */
}

static void test_play_and_tee(void **state)
{
	(void)state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(7, true);
	struct tc_schedule *schedule = oracle_plan(model, 7, 2, &machine), *first, *second;
	assert_int_equal(tc_schedule_create(&first, NULL), TC_OK);
	assert_int_equal(tc_schedule_create(&second, NULL), TC_OK);
	struct tc_sink sinks[] = {tc_schedule_sink(first), {0}, tc_schedule_sink(second)};
	struct tc_tee tee = {sinks, 3};
	struct tc_sink sink = tc_tee_sink(&tee);
	assert_int_equal(tc_schedule_play(schedule, &sink, NULL), TC_OK);
	assert_true(oracle_same_schedule(schedule, first));
	assert_true(oracle_same_schedule(schedule, second));
	tc_schedule_free(schedule);
	/* Still whole after its source is gone: nothing is borrowed but trace and machine. */
	assert_true(oracle_same_schedule(first, second));
	/* One plan per store. */
	struct tc_error error = {0};
	sink = tc_schedule_sink(first);
	assert_int_equal(sink.begin(sink.self, &second->info, &error), TC_ARGUMENT);
	tc_schedule_free(first);
	tc_schedule_free(second);
	oracle_model_free(model);
	tc_schedule_free(NULL);
}

static enum tc_status refuse(void *self, const struct tc_command *command, struct tc_error *error)
{
	(void)self;
	return command->id == 3 ? tc_error_set(error, TC_UNSAFE, "stop") : TC_OK;
}

static void test_a_consumer_stops_the_plan(void **state)
{
	(void)state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(8, false);
	struct tc_schedule *schedule = oracle_plan(model, 8, 1, &machine), *behind;
	assert_int_equal(tc_schedule_create(&behind, NULL), TC_OK);
	struct tc_sink sinks[] = {{NULL, NULL, refuse, NULL}, tc_schedule_sink(behind)};
	struct tc_tee tee = {sinks, 2};
	struct tc_sink sink = tc_tee_sink(&tee);
	struct tc_error error = {0};
	assert_int_equal(tc_schedule_play(schedule, &sink, &error), TC_UNSAFE);
	assert_int_equal(behind->command_count, 3);
	tc_schedule_free(schedule);
	tc_schedule_free(behind);
	oracle_model_free(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_lanes), cmocka_unit_test(test_names),
	    cmocka_unit_test(test_copy_owns_its_lists), cmocka_unit_test(test_play_and_tee),
	    cmocka_unit_test(test_a_consumer_stops_the_plan)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
