/*
 * The auditor's parts and its manners: the map of segments against a naive array of bytes, clocks
 * worked out by hand, flat memory, what a finding says, what is refused.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit_clock.h"
#include "audit_map.h"
#include "oracle.h"
#include "random.h"
#include "tencache/audit.h"

/* ---------------------------------------------------------------- map */

#define MAP_BYTES 20000u

/** Random ranges get random labels; the map must say for every byte what an array says. */
static void test_map_equals_array(void **state)
{
	(void)state;
	static uint32_t label[2][MAP_BYTES];
	static uint64_t offset[2][MAP_BYTES];
	const struct tc_pool_info pools[] = {{"a", TC_GPU, TC_POOL_ARENA, false, MAP_BYTES},
	                                     {"b", TC_CPU, TC_POOL_ARENA, false, MAP_BYTES}};
	struct tci_map map;
	assert_true(tci_map_start(&map, pools, 2));
	memset(label, 0xff, sizeof label);
	uint64_t random = 5;
	for (uint32_t round = 0; round < 20000; round++) {
		uint32_t pool = (uint32_t)test_random_below(&random, 2);
		uint64_t start = test_random_below(&random, MAP_BYTES);
		/* Mostly small pieces, so that blocks of the index fill, split and empty. */
		uint64_t most = round % 500 == 499 ? MAP_BYTES : 30;
		uint64_t end = start + 1 + test_random_below(&random, most);
		end = end > MAP_BYTES ? MAP_BYTES : end;
		uint32_t first = tci_map_range(&map, pool, start, end);
		assert_int_not_equal(first, TC_NONE);
		tci_map_join(&map, first, end);
		map.segments[first].tensor = round;
		map.segments[first].tensor_offset = 0;
		for (uint64_t i = start; i < end; i++) {
			label[pool][i] = round;
			offset[pool][i] = i - start;
		}
	}
	for (uint32_t pool = 0; pool < 2; pool++) {
		uint64_t next = 0;
		for (uint64_t i = 0; i < MAP_BYTES; i++) {
			const struct tci_segment *segment =
			    &map.segments[tci_map_find(&map, pool, i)];
			assert_true(segment->start <= i && i < segment->end);
			assert_int_equal(segment->tensor, label[pool][i]);
			if (label[pool][i] != TC_NONE)
				assert_int_equal(segment->tensor_offset + i - segment->start,
				                 offset[pool][i]);
		}
		for (uint32_t s = tci_map_find(&map, pool, 0); s != TC_NONE;
		     s = map.segments[s].next) {
			assert_int_equal(map.segments[s].start, next);
			next = map.segments[s].end;
		}
		assert_int_equal(next, MAP_BYTES);
	}
	tci_map_clear(&map);
}

/* ---------------------------------------------------------------- clocks */

/** Three lanes and the host (lane 3); each expected clock follows from the definition by hand. */
static void test_clocks_by_hand(void **state)
{
	(void)state;
	struct tci_clocks clocks;
	assert_true(tci_clocks_start(&clocks, 4));
	assert_true(tci_clocks_issue(&clocks, 0, NULL, 0, false)); /* 0 on lane 0 */
	const struct tc_dependency on_0[] = {{0, TC_REASON_DATA}};
	assert_true(tci_clocks_issue(&clocks, 1, on_0, 1, false)); /* 1 on lane 1, after 0 */
	const uint64_t after_1[] = {1, 2, 0, 0};
	assert_memory_equal(clocks.now, after_1, sizeof after_1);
	const struct tc_dependency on_1[] = {{1, TC_REASON_DATA}};
	assert_true(tci_clocks_issue(&clocks, 2, on_1, 1, false)); /* 2 on lane 2: 0 through 1 */
	const uint64_t after_2[] = {1, 2, 3, 0};
	assert_memory_equal(clocks.now, after_2, sizeof after_2);
	assert_true(tci_clocks_issue(&clocks, 0, NULL, 0, false)); /* 3 on lane 0: knows only 0 */
	const uint64_t after_3[] = {4, 0, 0, 0};
	assert_memory_equal(clocks.now, after_3, sizeof after_3);
	assert_true(tci_clocks_issue(&clocks, 3, on_1, 1, true));  /* 4: the host waits for 1 */
	assert_true(tci_clocks_issue(&clocks, 0, NULL, 0, false)); /* 5: after the wait */
	const uint64_t after_5[] = {6, 2, 0, 5};
	assert_memory_equal(clocks.now, after_5, sizeof after_5);
	const struct tc_dependency later[] = {{9, TC_REASON_DATA}};
	assert_true(tci_clocks_issue(&clocks, 2, later, 1, false)); /* 6: unknown ids are ignored */
	const uint64_t after_6[] = {1, 2, 7, 5};
	assert_memory_equal(clocks.now, after_6, sizeof after_6);
	tci_clocks_clear(&clocks);
}

/**
 * Two lanes that lean on each other for ever and never meet the host: clocks of the window are
 * kept, not more. Then a third lane wakes up: of a command far back it learns the end itself, of a
 * recent one everything.
 */
static void test_clocks_stay_few(void **state)
{
	(void)state;
	struct tci_clocks clocks;
	assert_true(tci_clocks_start(&clocks, 3));
	uint64_t count = 5 * TCI_CLOCK_WINDOW;
	for (uint64_t id = 0; id < count; id++) {
		const struct tc_dependency on[] = {{id - 1, TC_REASON_DATA}};
		assert_true(tci_clocks_issue(&clocks, (uint32_t)(id % 2), on, id > 0, false));
	}
	assert_true(clocks.peak_slots <= TCI_CLOCK_WINDOW + 4);
	const struct tc_dependency far[] = {{101, TC_REASON_DATA}};
	assert_true(tci_clocks_issue(&clocks, 2, far, 1, false));
	assert_int_equal(clocks.now[1], 102);
	const struct tc_dependency near[] = {{count - 1, TC_REASON_DATA}};
	assert_true(tci_clocks_issue(&clocks, 2, near, 1, false));
	assert_int_equal(clocks.now[0], count - 1);
	assert_int_equal(clocks.now[1], count);
	tci_clocks_clear(&clocks);
}

/* ---------------------------------------------------------------- the auditor */

static struct tc_audit_report audit(const struct tc_schedule *schedule, bool stop,
                                    enum tc_status *status, struct tc_error *error)
{
	struct tc_audit *auditor;
	assert_int_equal(tc_audit_create(stop, &auditor, error), TC_OK);
	struct tc_sink sink = tc_audit_sink(auditor);
	*status = tc_schedule_play(schedule, &sink, error);
	struct tc_audit_report report = *tc_audit_result(auditor);
	tc_audit_free(auditor);
	return report;
}

/** More iterations, no more clocks: every plan of the oracle waits for its updates. */
static void test_memory_is_flat(void **state)
{
	(void)state;
	struct tc_error error = {0};
	enum tc_status status;
	uint64_t peak[2];
	for (unsigned i = 0; i < 2; i++) {
		struct tc_machine machine;
		struct oracle_model *model = oracle_model_new(3, true);
		struct tc_schedule *schedule = oracle_plan(model, 12, i == 0 ? 2 : 5, &machine);
		peak[i] = audit(schedule, true, &status, &error).peak_clocks;
		assert_int_equal(status, TC_OK);
		assert_true(peak[i] < schedule->command_count);
		tc_schedule_free(schedule);
		oracle_model_free(model);
	}
	assert_true(peak[1] <= 2 * peak[0]);
}

/** A fetch from the wrong place: the finding names command, tensor, pool, range and both sides. */
static void test_what_a_finding_says(void **state)
{
	(void)state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(3, true);
	struct tc_schedule *schedule = oracle_plan(model, 12, 2, &machine);
	struct tc_command *fetch = schedule->commands;
	while (fetch->kind != TC_FETCH)
		fetch++;
	fetch->src.offset += 16;
	struct tc_error error = {0};
	enum tc_status status;
	struct tc_audit_report report = audit(schedule, false, &status, &error);
	assert_int_equal(status, TC_OK);
	assert_true(report.findings > 0);
	assert_int_equal(report.commands, schedule->command_count);
	char begin[64];
	(void)snprintf(begin, sizeof begin,
	               "command %d (fetch, iteration 0, step %u): ", (int)fetch->id, fetch->step);
	assert_non_null(strstr(report.first, begin));
	assert_non_null(strstr(report.first, "in pool 'home' ["));
	assert_non_null(strstr(report.first, "found"));
	assert_non_null(strstr(report.first, "expected"));

	report = audit(schedule, true, &status, &error);
	assert_int_equal(status, TC_UNSAFE);
	assert_int_equal(report.commands, fetch->id + 1);
	assert_non_null(strstr(error.text, "unsafe schedule: command"));
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

static void test_many_findings(void **state)
{
	(void)state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(3, true);
	struct tc_schedule *schedule = oracle_plan(model, 12, 2, &machine);
	for (uint64_t c = 0; c < schedule->command_count; c++)
		schedule->commands[c].dep_count = 0;
	struct tc_error error = {0};
	enum tc_status status;
	struct tc_audit_report report = audit(schedule, false, &status, &error);
	assert_true(report.findings > 20);
	unsigned lines = 1;
	for (const char *c = report.first; *c != '\0'; c++)
		lines += *c == '\n';
	assert_true(lines <= 20);
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

static void test_what_is_refused(void **state)
{
	(void)state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(3, true);
	struct tc_schedule *schedule = oracle_plan(model, 12, 1, &machine);
	struct tc_error error = {0};
	enum tc_status status;
	schedule->info.trace = NULL;
	(void)audit(schedule, false, &status, &error);
	assert_int_equal(status, TC_ARGUMENT);
	assert_non_null(strstr(error.text, "give the trace file"));

	schedule->info.trace = oracle_model_trace(model);
	error = (struct tc_error){0};
	struct tc_audit *auditor;
	assert_int_equal(tc_audit_create(false, &auditor, &error), TC_OK);
	struct tc_sink sink = tc_audit_sink(auditor);
	assert_int_equal(tc_schedule_play(schedule, &sink, &error), TC_OK);
	assert_int_equal(tc_schedule_play(schedule, &sink, &error), TC_ARGUMENT);
	tc_audit_free(auditor);

	/* Without a machine there is no capacity to check; with one, every byte counts. */
	machine.capacity_bytes[TC_CPU]--;
	assert_int_equal(audit(schedule, false, &status, &error).findings, 1);
	schedule->info.machine = NULL;
	assert_int_equal(audit(schedule, false, &status, &error).findings, 0);
	schedule->info.machine = &machine;
	schedule->info.unlimited_memory = true;
	assert_int_equal(audit(schedule, false, &status, &error).findings, 0);
	tc_schedule_free(schedule);
	oracle_model_free(model);
	tc_audit_free(NULL);
}

/**
 * A delayed update: forward and backward of iteration 1 read parameters of version 0, as iteration
 * 0 did. Without the declaration that is stale, with staleness 1 it is allowed, since each
 * iteration writes a parameter once.
 */
static void test_declared_staleness(void **state)
{
	(void)state;
	struct tc_tensor tensors[] = {
	    {.bytes = 64, .of = TC_NONE, .name = "p", .kind = TC_PARAM, .persistent = true}};
	uint32_t p[] = {0};
	struct tc_op ops[] = {
	    {.name = "forward", .phase = TC_FORWARD, .reads = {p, 1}},
	    {.name = "adam", .phase = TC_OPTIMIZER, .reads = {p, 1}, .writes = {p, 1}}};
	struct tc_trace trace = {
	    .tensors = tensors, .tensor_count = 1, .ops = ops, .op_count = 2, .file_name = "t"};
	struct tc_pool_info pools[] = {{"gpu", TC_GPU, TC_POOL_FIXED, false, 64},
	                               {"cpu", TC_CPU, TC_POOL_FIXED, true, 64}};
	struct tc_plan_tensor table[] = {{.name = "p",
	                                  .kind = TC_PARAM,
	                                  .bytes = 64,
	                                  .derived_from = TC_NONE,
	                                  .placed = true,
	                                  .start = {0, 0}}};
	struct tc_initial_copy copies[] = {{0, {1, 0}}};
	struct tc_bind read = {0, 0, 0, 64, 0, TC_READ}, write = {0, 1, 0, 64, 0, TC_READ_WRITE};
	struct tc_command commands[] = {{.id = 0,
	                                 .queue = TC_QUEUE_COMPUTE,
	                                 .kind = TC_COMPUTE,
	                                 .first_op = 0,
	                                 .last_op = 0,
	                                 .binds = &read,
	                                 .bind_count = 1},
	                                {.id = 1,
	                                 .queue = TC_QUEUE_CPU,
	                                 .kind = TC_UPDATE,
	                                 .first_op = 1,
	                                 .last_op = 1,
	                                 .binds = &write,
	                                 .bind_count = 1},
	                                {.id = 2,
	                                 .iteration = 1,
	                                 .queue = TC_QUEUE_COMPUTE,
	                                 .kind = TC_COMPUTE,
	                                 .first_op = 0,
	                                 .last_op = 0,
	                                 .binds = &read,
	                                 .bind_count = 1}};
	struct tc_schedule schedule = {.info = {.trace = &trace,
	                                        .iterations = 2,
	                                        .lanes = {1, 0, 0, 0, 0, 0, 1, 1},
	                                        .pools = pools,
	                                        .pool_count = 2,
	                                        .tensors = table,
	                                        .tensor_count = 1,
	                                        .copies = copies,
	                                        .copy_count = 1},
	                               .commands = commands,
	                               .command_count = 3,
	                               .end = {.command_count = 3}};
	for (unsigned c = 0; c < 3; c++)
		commands[c].tensor = TC_NONE;
	struct tc_error error = {0};
	enum tc_status status;
	/* Stale bind, stale content, and iteration 1 has no update. */
	struct tc_audit_report report = audit(&schedule, false, &status, &error);
	assert_int_equal(report.findings, 3);
	assert_non_null(strstr(report.first, "found version 0, expected 1"));
	schedule.info.staleness = 1;
	assert_int_equal(audit(&schedule, false, &status, &error).findings, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_map_equals_array),    cmocka_unit_test(test_clocks_by_hand),
	    cmocka_unit_test(test_clocks_stay_few),     cmocka_unit_test(test_memory_is_flat),
	    cmocka_unit_test(test_what_a_finding_says), cmocka_unit_test(test_many_findings),
	    cmocka_unit_test(test_what_is_refused),     cmocka_unit_test(test_declared_staleness)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
