/*
 * The way of the gradients and the optimizer step of zero-infinity, command by command. Every plan
 * is audited (tests/support/planned.h). Expected commands, pools and bytes are worked out from the
 * rules in src/policy/ZERO_INFINITY.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "zero_infinity_plans.h"

/* ---------------------------------------------------------------- gradients */

static void check_chain(const struct planned *planned, uint32_t parameter, const char *const *pools,
                        const enum tc_queue *queues, size_t length)
{
	uint64_t previous = 0;
	size_t at = 0;
	for (uint64_t id = 0; id < planned->schedule->command_count; id++) {
		const struct tc_command *command = &planned->schedule->commands[id];
		bool work = command->kind == TC_GRADIENT || command->kind == TC_CONVERT ||
		            command->kind == TC_SPILL;
		if (command->iteration != 1 || !work || command->tensor == TC_NONE ||
		    planned->schedule->info.tensors[command->tensor].kind != TC_GRAD ||
		    parameter_of(planned, command->tensor) != parameter)
			continue;
		assert_true(at < length);
		const char *pool = command->kind != TC_CONVERT
		                       ? pool_of(planned, command->dst)->name
		                   : command->bind_count == 2
		                       ? planned->schedule->info.pools[command->binds[1].pool].name
		                       : "";
		assert_string_equal(pool, pools[at]);
		assert_int_equal(command->queue, queues[at]);
		assert_true(at == 0 || id > previous);
		previous = id;
		at++;
	}
	assert_int_equal(at, length);
}

/*
 * FP16: into the bucket (a copy on the GPU), down in its own width, up for the norm, the norm, down
 * again through pageable memory, conversion on the CPU; the scan comes with the step.
 */
static void test_gradient_path(void **state)
{
	(void)state;
	static const char *const pools[] = {"bucket",   "gradients",      "norm", "norm",
	                                    "pageable", "fp32 gradients", ""};
	static const enum tc_queue queues[] = {TC_QUEUE_COMPUTE, TC_QUEUE_D2H, TC_QUEUE_H2D,
	                                       TC_QUEUE_COMPUTE, TC_QUEUE_D2H, TC_QUEUE_CPU,
	                                       TC_QUEUE_CPU};
	struct planned *planned = plan_four("zero-infinity");
	for (uint32_t p = 1; p <= 4; p++)
		check_chain(planned, p, pools, queues, 7);
	struct command_filter gradient = {TC_GRADIENT, 1, TC_NONE, NULL, NULL};
	uint64_t bytes;
	assert_int_equal(commands_count(planned, &gradient, &bytes), 3 * 4);
	assert_int_equal(bytes, 3 * 4 * 2000);
	planned_free(planned);
}

/* Bytes of memory traffic per element: bucket 2 + 2; norm 2, and 8 + 8 for the double precision
 * temporary; conversion 2 + 4; scan twice (2 + boolean written and read). */
static void test_gradient_traffic(void **state)
{
	(void)state;
	static const struct {
		enum tc_why why;
		enum tc_queue queue;
		uint64_t traffic;
	} expected[] = {{TC_WHY_BUCKET, TC_QUEUE_COMPUTE, 4000},
	                {TC_WHY_NORM, TC_QUEUE_COMPUTE, 18000},
	                {TC_WHY_NONE, TC_QUEUE_CPU, 6000},
	                {TC_WHY_SCAN, TC_QUEUE_CPU, 8000}};
	struct planned *planned = plan_four("zero-infinity");
	for (size_t i = 0; i < 4; i++) {
		uint32_t found = 0;
		for (uint64_t id = 0; id < planned->schedule->command_count; id++) {
			const struct tc_command *command = &planned->schedule->commands[id];
			if (command->iteration != 1 || command->kind != TC_CONVERT ||
			    command->why != expected[i].why)
				continue;
			assert_int_equal(command->queue, expected[i].queue);
			assert_int_equal(command->traffic_bytes, expected[i].traffic);
			found++;
		}
		assert_int_equal(found, 4);
	}
	planned_free(planned);
}

/* The thread that issues waits for the pageable copy and for the conversion behind it. */
static void test_conversion_blocks(void **state)
{
	(void)state;
	struct planned *planned = plan_four("zero-infinity");
	for (uint64_t i = 0; i < 4; i++) {
		struct command_filter down = {TC_GRADIENT, 1, TC_NONE, NULL, "pageable"};
		uint64_t copy = commands_find(planned, &down, i);
		const struct tc_command *commands = planned->schedule->commands;
		assert_true(commands[copy].pageable);
		assert_int_equal(commands[copy + 1].kind, TC_WAIT);
		assert_int_equal(commands[copy + 1].deps[0].id, copy);
		assert_int_equal(commands[copy + 2].kind, TC_CONVERT);
		assert_int_equal(commands[copy + 3].kind, TC_WAIT);
		assert_int_equal(commands[copy + 3].deps[0].id, copy + 2);
	}
	planned_free(planned);
}

/* An FP32 gradient needs no conversion: after the norm it goes straight to its pinned place. */
static void test_full_precision_gradient(void **state)
{
	(void)state;
	static const uint64_t elements[] = {1000, 1000};
	static const char *const pools[] = {"bucket", "gradients",      "norm",
	                                    "norm",   "fp32 gradients", ""};
	static const enum tc_queue queues[] = {TC_QUEUE_COMPUTE, TC_QUEUE_D2H, TC_QUEUE_H2D,
	                                       TC_QUEUE_COMPUTE, TC_QUEUE_D2H, TC_QUEUE_CPU};
	struct planned *planned = plan_sizes(elements, 2, true, "zero-infinity");
	assert_int_equal(planned->status, TC_OK);
	check_chain(planned, 1, pools, queues, 6);
	check_chain(planned, 2, pools, queues, 6);
	planned_free(planned);
}

/** Parameters in the order in which their gradients first come down. */
static void expect_flush_order(const struct planned *planned, const char *expected)
{
	char order[32] = "";
	size_t length = 0;
	struct command_filter down = {TC_GRADIENT, 1, TC_NONE, NULL, "gradients"};
	for (uint64_t id = 0; id < planned->schedule->command_count; id++)
		if (commands_pass(planned, &planned->schedule->commands[id], &down))
			order[length++] =
			    (char)('0' +
			           parameter_of(planned, planned->schedule->commands[id].tensor));
	assert_string_equal(order, expected);
}

/*
 * Gradients arrive as 4 3 2 1. A bucket of 3,000 elements takes 4, 3 and 2 and is flushed when 1
 * arrives, in the order of definition; the rest goes at the end of backward. One of 1,999 takes
 * one.
 */
static void test_bucket(void **state)
{
	(void)state;
	struct planned *planned = plan_four("zero-infinity:reduce-bucket-size=3000");
	expect_flush_order(planned, "2341");
	/* 3,000 FP16 elements, three slots of 2,048 bytes each. */
	assert_int_equal(pool_named(planned, "bucket", TC_GPU)->bytes, 6144);
	planned_free(planned);
	planned = plan_four("zero-infinity:reduce-bucket-size=1999");
	expect_flush_order(planned, "4321");
	planned_free(planned);
	planned = plan_four("zero-infinity");
	expect_flush_order(planned, "1234");
	planned_free(planned);
}

/* A gradient above the bucket goes down from where it was born, after what the bucket holds. */
static void test_gradient_above_the_bucket(void **state)
{
	(void)state;
	static const uint64_t elements[] = {500, 3000, 500};
	static const char *const pools[] = {"gradients", "norm",           "norm",
	                                    "pageable",  "fp32 gradients", ""};
	static const enum tc_queue queues[] = {TC_QUEUE_D2H, TC_QUEUE_H2D, TC_QUEUE_COMPUTE,
	                                       TC_QUEUE_D2H, TC_QUEUE_CPU, TC_QUEUE_CPU};
	struct planned *planned =
	    plan_sizes(elements, 3, false, "zero-infinity:reduce-bucket-size=1000");
	assert_int_equal(planned->status, TC_OK);
	check_chain(planned, 2, pools, queues, 6);
	expect_flush_order(planned, "321");
	planned_free(planned);
}

/* Without contiguous gradients there is no bucket and no copy into it. */
static void test_gradients_wait_where_they_were_born(void **state)
{
	(void)state;
	struct planned *planned =
	    plan_four("zero-infinity:contiguous-gradients=0:reduce-bucket-size=3000");
	static const char *const pools[] = {"gradients", "norm",           "norm",
	                                    "pageable",  "fp32 gradients", ""};
	static const enum tc_queue queues[] = {TC_QUEUE_D2H, TC_QUEUE_H2D, TC_QUEUE_COMPUTE,
	                                       TC_QUEUE_D2H, TC_QUEUE_CPU, TC_QUEUE_CPU};
	check_chain(planned, 1, pools, queues, 6);
	expect_flush_order(planned, "2341");
	assert_null(pool_named(planned, "bucket", TC_GPU));
	planned_free(planned);
}

/* With the state on the drive the FP32 gradient goes on to its file. */
static void test_gradient_to_nvme(void **state)
{
	(void)state;
	static const char *const pools[] = {"bucket",         "gradients", "norm",
	                                    "norm",           "pageable",  "optimizer staging",
	                                    "nvme gradients", ""};
	static const enum tc_queue queues[] = {TC_QUEUE_COMPUTE,    TC_QUEUE_D2H, TC_QUEUE_H2D,
	                                       TC_QUEUE_COMPUTE,    TC_QUEUE_D2H, TC_QUEUE_CPU,
	                                       TC_QUEUE_NVME_WRITE, TC_QUEUE_CPU};
	struct planned *planned = plan_four("zero-infinity:optimizer-device=nvme");
	check_chain(planned, 1, pools, queues, 8);
	planned_free(planned);
}

/* ---------------------------------------------------------------- step */

/* All scans come before the first update, on the same lane of the CPU; everything that is not
 * persistent has left the GPU before. */
static void test_scan_then_updates(void **state)
{
	(void)state;
	struct planned *planned = plan_four("zero-infinity:param-persistence-threshold=0");
	struct command_filter update = {TC_UPDATE, 1, TC_NONE, NULL, NULL};
	struct command_filter drop = {TC_DROP, 1, TC_NONE, "parameters", NULL};
	uint64_t first = commands_find(planned, &update, 0);
	uint32_t scans = 0;
	for (uint64_t id = 0; id < planned->schedule->command_count; id++) {
		const struct tc_command *command = &planned->schedule->commands[id];
		if (command->iteration != 1 || command->why != TC_WHY_SCAN)
			continue;
		scans++;
		assert_true(id < first);
		assert_int_equal(command->lane, planned->schedule->commands[first].lane);
	}
	assert_int_equal(scans, 4);
	struct command_filter fetch = {TC_FETCH, 1, TC_NONE, NULL, NULL};
	assert_int_equal(commands_count(planned, &drop, NULL),
	                 commands_count(planned, &fetch, NULL));
	planned_free(planned);

	planned = plan_four("zero-infinity:scan=0");
	for (uint64_t id = 0; id < planned->schedule->command_count; id++)
		assert_int_not_equal(planned->schedule->commands[id].why, TC_WHY_SCAN);
	planned_free(planned);
}

/**
 * The optimizer step of iteration 1 as text: `l` state or gradient read from the drive, `u` update,
 * `c` conversion of a parameter, `f` FP16 parameter written, `s` state written, `w` wait; runs of
 * one letter are counted.
 */
static void step_text(const struct planned *planned, char *text, size_t bytes)
{
	struct command_filter first_scan = {TC_CONVERT, 1, TC_NONE, NULL, NULL};
	uint64_t id = commands_find(planned, &first_scan, 0);
	size_t used = 0;
	char last = 0;
	uint32_t run = 0;
	while (planned->schedule->commands[id].why != TC_WHY_SCAN)
		id++;
	for (; id <= planned->schedule->command_count; id++) {
		const struct tc_command *command =
		    id < planned->schedule->command_count ? &planned->schedule->commands[id] : NULL;
		bool over = command == NULL || command->iteration != 1;
		char letter = 0;
		if (!over && command->kind == TC_LOAD)
			letter = 'l';
		else if (!over && command->kind == TC_UPDATE)
			letter = 'u';
		else if (!over && command->kind == TC_CONVERT && command->why == TC_WHY_HOME)
			letter = 'c';
		else if (!over && command->kind == TC_SPILL)
			letter = planned->schedule->info.tensors[command->tensor].kind == TC_PARAM
			             ? 'f'
			             : 's';
		else if (!over && command->kind == TC_WAIT)
			letter = 'w';
		if (letter == 0 && !over)
			continue;
		if (run > 0 && letter != last) {
			int written = snprintf(text + used, bytes - used, "%u%c ", run, last);
			assert_true(written > 0 && used + (size_t)written < bytes);
			used += (size_t)written;
			run = 0;
		}
		last = letter;
		run++;
		if (over)
			break;
	}
	text[used] = '\0';
}

static void expect_step(const char *policy, const char *expected)
{
	char text[1000];
	struct planned *planned = plan_four(policy);
	step_text(planned, text, sizeof text);
	assert_string_equal(text, expected);
	planned_free(planned);
}

#define STEP "zero-infinity:param-persistence-threshold=0:optimizer-device=nvme"

/*
 * Two sub-groups of two parameters; state (master, two moments) and gradient of each on the drive:
 * 8 reads, wait, 2 updates and 2 conversions, wait, 6 writes, wait.
 */
static void test_serial_sub_groups(void **state)
{
	(void)state;
	expect_step(STEP ":sub-group-size=2000", "8l 1w 2u 2c 1w 6s 1w 8l 1w 2u 2c 1w 6s 1w ");
	/* One sub-group of all: 16 reads first. */
	expect_step(STEP, "16l 1w 4u 4c 1w 12s 1w ");
	/* State in host memory: no reads, no writes; updates and conversions by sub-group. */
	expect_step("zero-infinity:param-persistence-threshold=0:sub-group-size=2000",
	            "2u 2c 1w 2u 2c 1w ");
	/* Persistent parameters come back to the GPU last, and the phase waits for them. */
	expect_step("zero-infinity:sub-group-size=2000", "2u 2c 1w 2u 2c 2w ");
}

/* FP16 parameters on the drive are written one after the other from the publish slots. */
static void test_parameters_on_nvme(void **state)
{
	(void)state;
	expect_step(NVME ":param-persistence-threshold=0:sub-group-size=2000",
	            "8l 1w 2u 1c 1f 1c 1f 1w 6s 1w 8l 1w 2u 1c 1f 1c 1f 1w 6s 1w ");
}

/* The second sub-group's reads are issued before the first one's updates. */
static void test_pipeline_read(void **state)
{
	(void)state;
	expect_step(STEP ":sub-group-size=2000:pipeline-read=1:optimizer-buffer-count=8",
	            "8l 1w 8l 2u 2c 1w 6s 2w 2u 2c 1w 6s 1w ");
}

/* The first sub-group's writes are waited for only before the second one's are handed out. */
static void test_pipeline_write(void **state)
{
	(void)state;
	expect_step(STEP ":sub-group-size=2000:pipeline-write=1:optimizer-buffer-count=8",
	            "8l 1w 2u 2c 1w 6s 8l 1w 2u 2c 2w 6s 1w ");
	expect_step(STEP ":sub-group-size=2000:pipeline-read=1:pipeline-write=1:"
	                 "optimizer-buffer-count=12",
	            "8l 1w 8l 2u 2c 1w 6s 1w 2u 2c 2w 6s 1w ");
}

/* Pipelined reads of the second sub-group wait for nothing that the first one does: they are not
 * ordered after its updates. */
static void test_pipelined_reads_run_early(void **state)
{
	(void)state;
	struct planned *planned =
	    plan_four(STEP ":sub-group-size=2000:pipeline-read=1:optimizer-buffer-count=8");
	struct command_filter update = {TC_UPDATE, 1, TC_NONE, NULL, NULL};
	struct command_filter load = {TC_LOAD, 1, TC_NONE, NULL, "optimizer staging 2"};
	uint64_t first_update = commands_find(planned, &update, 0);
	assert_int_equal(commands_count(planned, &load, NULL), 8);
	for (uint64_t i = 0; i < 8; i++) {
		uint64_t id = commands_find(planned, &load, i);
		assert_true(id < first_update);
	}
	planned_free(planned);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_gradient_path),
	    cmocka_unit_test(test_gradient_traffic),
	    cmocka_unit_test(test_conversion_blocks),
	    cmocka_unit_test(test_full_precision_gradient),
	    cmocka_unit_test(test_bucket),
	    cmocka_unit_test(test_gradient_above_the_bucket),
	    cmocka_unit_test(test_gradients_wait_where_they_were_born),
	    cmocka_unit_test(test_gradient_to_nvme),
	    cmocka_unit_test(test_scan_then_updates),
	    cmocka_unit_test(test_serial_sub_groups),
	    cmocka_unit_test(test_parameters_on_nvme),
	    cmocka_unit_test(test_pipeline_read),
	    cmocka_unit_test(test_pipeline_write),
	    cmocka_unit_test(test_pipelined_reads_run_early),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
