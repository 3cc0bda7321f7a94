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
	assert_true(tci_map_start(&map, pools, 2, 8));
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

/* ---------------------------------------------------------------- single rules */

/** One parameter p, one op that reads it and one that updates it; a derived tensor d of the same
 * size. p has copies on the GPU and the CPU, each pool has room for one more tensor. */
struct tiny {
	struct tc_tensor tensors[1];
	uint32_t list[1];
	struct tc_op ops[2];
	struct tc_trace trace;
	struct tc_pool_info pools[2];
	struct tc_plan_tensor table[2];
	struct tc_initial_copy copies[1];
	struct tc_bind read, write, pair[2];
	struct tc_dependency deps[1];
	struct tc_command commands[4];
	struct tc_schedule schedule;
};

static struct tc_command work(uint64_t id, enum tc_command_kind kind, enum tc_queue queue,
                              uint32_t op, struct tc_bind *binds, uint32_t count)
{
	return (struct tc_command){.id = id,
	                           .kind = kind,
	                           .queue = queue,
	                           .tensor = TC_NONE,
	                           .first_op = op,
	                           .last_op = op,
	                           .binds = binds,
	                           .bind_count = count};
}

/** One iteration: 0 computes with p, 1 updates p on the CPU. */
static void tiny_start(struct tiny *tiny)
{
	memset(tiny, 0, sizeof *tiny);
	tiny->tensors[0] = (struct tc_tensor){
	    .bytes = 64, .of = TC_NONE, .name = "p", .kind = TC_PARAM, .persistent = true};
	struct tc_ids p = {tiny->list, 1};
	tiny->ops[0] = (struct tc_op){.name = "forward", .phase = TC_FORWARD, .reads = p};
	tiny->ops[1] =
	    (struct tc_op){.name = "adam", .phase = TC_OPTIMIZER, .reads = p, .writes = p};
	tiny->trace = (struct tc_trace){
	    .tensors = tiny->tensors, .tensor_count = 1, .ops = tiny->ops, .op_count = 2};
	tiny->pools[0] = (struct tc_pool_info){"gpu", TC_GPU, TC_POOL_FIXED, false, 128};
	tiny->pools[1] = (struct tc_pool_info){"cpu", TC_CPU, TC_POOL_FIXED, true, 128};
	tiny->table[0] = (struct tc_plan_tensor){
	    .name = "p", .kind = TC_PARAM, .bytes = 64, .derived_from = TC_NONE, .placed = true};
	tiny->table[1] =
	    (struct tc_plan_tensor){.name = "d", .kind = TC_TEMP, .bytes = 64, .derived_from = 0};
	tiny->copies[0] = (struct tc_initial_copy){0, {1, 0}};
	tiny->read = (struct tc_bind){0, 0, 0, 64, 0, TC_READ};
	tiny->write = (struct tc_bind){0, 1, 0, 64, 0, TC_READ_WRITE};
	tiny->commands[0] = work(0, TC_COMPUTE, TC_QUEUE_COMPUTE, 0, &tiny->read, 1);
	tiny->commands[1] = work(1, TC_UPDATE, TC_QUEUE_CPU, 1, &tiny->write, 1);
	tiny->schedule = (struct tc_schedule){.info = {.trace = &tiny->trace,
	                                               .iterations = 1,
	                                               .lanes = {1, 0, 1, 0, 0, 0, 1, 1},
	                                               .pools = tiny->pools,
	                                               .pool_count = 2,
	                                               .tensors = tiny->table,
	                                               .tensor_count = 2,
	                                               .copies = tiny->copies,
	                                               .copy_count = 1},
	                                      .commands = tiny->commands,
	                                      .command_count = 2,
	                                      .end = {.command_count = 2}};
}

static void tiny_add(struct tiny *tiny, struct tc_command command)
{
	tiny->commands[tiny->schedule.command_count++] = command;
	tiny->schedule.end.command_count++;
}

/** Exactly this many findings, the first of which says `words`. */
static void expect(const struct tiny *tiny, uint64_t findings, const char *words)
{
	struct tc_error error = {0};
	enum tc_status status;
	struct tc_audit_report report = audit(&tiny->schedule, false, &status, &error);
	assert_int_equal(status, TC_OK);
	if (report.findings != findings || strstr(report.first, words) == NULL)
		fail_msg("%d findings: %s", (int)report.findings, report.first);
}

/**
 * A delayed update: iteration 1 reads the parameter of version 0, as iteration 0 did, and has no
 * update. Undeclared that is a wrong version in the bind, other content than wanted, and a missing
 * op. With staleness 1 it is allowed, since each iteration writes the parameter once.
 */
static void test_declared_staleness(void **state)
{
	(void)state;
	struct tiny tiny;
	tiny_start(&tiny);
	expect(&tiny, 0, "");
	tiny_add(&tiny, work(2, TC_COMPUTE, TC_QUEUE_COMPUTE, 0, &tiny.read, 1));
	tiny.commands[2].iteration = 1;
	tiny.schedule.info.iterations = 2;
	expect(&tiny, 3, "found version 0, expected 1");
	tiny.schedule.info.staleness = 1;
	expect(&tiny, 0, "");
}

/** After the update the GPU's copy is old: moving it is wrong even if nobody reads it then. */
static void test_moving_an_old_version(void **state)
{
	(void)state;
	struct tiny tiny;
	tiny_start(&tiny);
	struct tc_command evict = work(2, TC_EVICT, TC_QUEUE_D2H, TC_NONE, NULL, 0);
	evict.tensor = 0;
	evict.bytes = 64;
	evict.dst = (struct tc_place){1, 64};
	tiny_add(&tiny, evict);
	expect(&tiny, 1, "found version 0, expected the latest, 1");
}

/** A convert whose target overlaps its source damages what it reads. Ordered behind the update. */
static void test_overlap_inside_a_command(void **state)
{
	(void)state;
	struct tiny tiny;
	tiny_start(&tiny);
	tiny.pair[0] = (struct tc_bind){0, 1, 0, 64, 1, TC_READ};
	tiny.pair[1] = (struct tc_bind){1, 1, 64, 64, 1, TC_WRITE};
	tiny_add(&tiny, work(2, TC_CONVERT, TC_QUEUE_CPU, TC_NONE, tiny.pair, 2));
	expect(&tiny, 0, "");
	tiny.pair[1].offset = 32;
	/* p's only latest copy is damaged, too. */
	expect(&tiny, 2, "the same command reads or writes elsewhere");
	/* The same bytes as one bind, in place: nothing else is touched. */
	tiny.commands[2].bind_count = 1;
	tiny.pair[0].access = TC_READ_WRITE;
	expect(&tiny, 0, "");
}

/** Every op that counts, once. */
static void test_ops_once(void **state)
{
	(void)state;
	struct tiny tiny;
	tiny_start(&tiny);
	tiny.schedule.command_count = tiny.schedule.end.command_count = 1;
	expect(&tiny, 1, "found op 1 'adam' not executed");
	tiny_start(&tiny);
	tiny.commands[0] = tiny.commands[1];
	tiny.commands[0].id = 0;
	tiny.schedule.command_count = tiny.schedule.end.command_count = 1;
	expect(&tiny, 1, "found op 0 'forward' not executed");
	tiny_start(&tiny);
	tiny_add(&tiny, work(2, TC_COMPUTE, TC_QUEUE_COMPUTE, 0, &tiny.read, 1));
	expect(&tiny, 3, "bind of tensor 0");
	tiny_start(&tiny);
	tiny.schedule.info.iterations = 2;
	expect(&tiny, 1, "found 1 iterations, expected 2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_map_equals_array),
	                                   cmocka_unit_test(test_clocks_by_hand),
	                                   cmocka_unit_test(test_clocks_stay_few),
	                                   cmocka_unit_test(test_memory_is_flat),
	                                   cmocka_unit_test(test_what_a_finding_says),
	                                   cmocka_unit_test(test_many_findings),
	                                   cmocka_unit_test(test_what_is_refused),
	                                   cmocka_unit_test(test_declared_staleness),
	                                   cmocka_unit_test(test_moving_an_old_version),
	                                   cmocka_unit_test(test_overlap_inside_a_command),
	                                   cmocka_unit_test(test_ops_once)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
