/*
 * zero-infinity beside its coordinator: homes, persistence, pools and refusals, the way of the
 * gradients, the sub-groups of the optimizer, and whole traces. Every plan is audited
 * (tests/support/planned.h). Expected commands and bytes are worked out from the rules in
 * src/policy/ZERO_INFINITY.md; numbers of elements are small and chosen by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planned.h"
#include "trace_builder.h"

#define NVME "zero-infinity:device=nvme:min-nvme-bytes=1:max-in-cpu=0:buffer-size=10000"

/** Modules in a row, one FP16 parameter each (FP32 with `full`): tensors 1, 2, ... */
static struct planned *plan_sizes(const uint64_t *elements, uint32_t count, bool full,
                                  const char *policy)
{
	uint64_t bytes[16];
	assert_in_range(count, 1, 16);
	for (uint32_t i = 0; i < count; i++)
		bytes[i] = elements[i] * (full ? 4 : 2);
	const struct test_model model = {
	    .layers = count, .half = !full, .param_bytes = bytes, .param_bytes_count = count};
	const struct planned_options options = {.policy = policy};
	return planned_new(test_model_trace(&model), &options);
}

static struct planned *plan_four(const char *policy)
{
	static const uint64_t elements[] = {1000, 1000, 1000, 1000};
	struct planned *planned = plan_sizes(elements, 4, false, policy);
	if (planned->status != TC_OK)
		fprintf(stderr, "%s\n", planned->error.text);
	assert_int_equal(planned->status, TC_OK);
	return planned;
}

/* ---------------------------------------------------------------- looking at commands */

static const struct tc_pool_info *pool_of(const struct planned *planned, struct tc_place place)
{
	static const struct tc_pool_info none = {.name = ""};
	return place.pool == TC_NO_POOL ? &none : &planned->schedule->info.pools[place.pool];
}

/** Parameter that a tensor, derived or not, belongs to; TC_NONE for others. */
static uint32_t parameter_of(const struct planned *planned, uint32_t tensor)
{
	while (tensor != TC_NONE && tensor >= planned->trace->tensor_count)
		tensor = planned->schedule->info.tensors[tensor].derived_from;
	if (tensor == TC_NONE)
		return TC_NONE;
	return planned->trace->tensors[tensor].kind == TC_PARAM
	           ? tensor
	           : planned->trace->tensors[tensor].of;
}

struct filter {
	enum tc_command_kind kind;
	uint32_t iteration;
	uint32_t parameter;    /**< TC_NONE: any */
	const char *from, *to; /**< pools; NULL: any */
};

static bool passes(const struct planned *planned, const struct tc_command *command,
                   const struct filter *filter)
{
	return command->kind == filter->kind && command->iteration == filter->iteration &&
	       (filter->parameter == TC_NONE ||
	        parameter_of(planned, command->tensor) == filter->parameter) &&
	       (filter->from == NULL ||
	        strcmp(pool_of(planned, command->src)->name, filter->from) == 0) &&
	       (filter->to == NULL ||
	        strcmp(pool_of(planned, command->dst)->name, filter->to) == 0);
}

static uint64_t count(const struct planned *planned, const struct filter *filter, uint64_t *bytes)
{
	uint64_t found = 0;
	if (bytes != NULL)
		*bytes = 0;
	for (uint64_t id = 0; id < planned->schedule->command_count; id++) {
		const struct tc_command *command = &planned->schedule->commands[id];
		if (!passes(planned, command, filter))
			continue;
		found++;
		if (bytes != NULL)
			*bytes += command->bytes;
	}
	return found;
}

/** Id of the `index`-th command that passes; fails the test where there is none. */
static uint64_t find(const struct planned *planned, const struct filter *filter, uint64_t index)
{
	for (uint64_t id = 0; id < planned->schedule->command_count; id++)
		if (passes(planned, &planned->schedule->commands[id], filter) && index-- == 0)
			return id;
	fail_msg("no such command");
	return TC_NO_COMMAND;
}

static enum tc_tier home_of(const struct planned *planned, uint32_t tensor)
{
	return planned->schedule->info.tensors[tensor].home;
}

static const struct tc_pool_info *pool_named(const struct planned *planned, const char *name,
                                             enum tc_tier tier)
{
	for (uint32_t i = 0; i < planned->schedule->info.pool_count; i++) {
		const struct tc_pool_info *pool = &planned->schedule->info.pools[i];
		if (strcmp(pool->name, name) == 0 && pool->tier == tier)
			return pool;
	}
	return NULL;
}

/* ---------------------------------------------------------------- persistence */

/*
 * Threshold 1,000: the two smaller parameters are on the GPU from the start, never fetched and
 * never dropped; after the last update each is published once, and then always found resident.
 */
static void test_persistent_parameters(void **state)
{
	(void)state;
	static const uint64_t elements[] = {1000, 1001, 10, 5000};
	struct planned *planned =
	    plan_sizes(elements, 4, false, "zero-infinity:param-persistence-threshold=1000");
	assert_int_equal(planned->status, TC_OK);
	uint64_t last_update = 0;
	for (uint32_t p = 1; p <= 4; p++) {
		bool persistent = elements[p - 1] <= 1000;
		struct filter fetch = {TC_FETCH, 1, p, NULL, NULL};
		struct filter publish = {TC_PUBLISH, 1, p, NULL, NULL};
		struct filter drop = {TC_DROP, 1, p, "parameters", NULL};
		struct filter update = {TC_UPDATE, 1, TC_NONE, NULL, NULL};
		last_update = find(planned, &update, 3);
		assert_int_equal(count(planned, &publish, NULL), persistent ? 1 : 0);
		assert_int_equal(count(planned, &fetch, NULL) > 0, !persistent);
		assert_int_equal(count(planned, &drop, NULL) > 0, !persistent);
		if (persistent)
			assert_true(find(planned, &publish, 0) > last_update);
	}
	uint32_t always = 0;
	for (uint64_t id = 0; id < planned->schedule->command_count; id++) {
		const struct tc_command *command = &planned->schedule->commands[id];
		for (uint32_t i = 0; i < command->served_count && command->kind == TC_COMPUTE;
		     i++) {
			const struct tc_served *served = &command->served[i];
			if (command->iteration != 1 || !served->always_resident)
				continue;
			assert_int_equal(served->outcome, TC_RESIDENT);
			always++;
		}
	}
	assert_int_equal(always, 2 * 2); /* two parameters, forward and backward */
	planned_free(planned);
}

/* 1,000 fit the model's cap of 1,500, the next 1,000 do not, 400 do. */
static void test_model_persistence_threshold(void **state)
{
	(void)state;
	static const uint64_t elements[] = {1000, 1000, 400, 200};
	struct planned *planned = plan_sizes(elements, 4, false,
	                                     "zero-infinity:param-persistence-threshold=1000:"
	                                     "model-persistence-threshold=1500");
	assert_int_equal(planned->status, TC_OK);
	const uint64_t expected[] = {1, 0, 1, 0};
	for (uint32_t p = 1; p <= 4; p++) {
		struct filter publish = {TC_PUBLISH, 1, p, NULL, NULL};
		assert_int_equal(count(planned, &publish, NULL), expected[p - 1]);
	}
	planned_free(planned);
}

/* ---------------------------------------------------------------- homes and refusals */

static void expect_homes(const char *policy, const char *expected)
{
	static const uint64_t elements[] = {1000, 1000, 1000, 500};
	struct planned *planned = plan_sizes(elements, 4, false, policy);
	assert_int_equal(planned->status, TC_OK);
	for (uint32_t p = 1; p <= 4; p++)
		assert_int_equal(home_of(planned, p) == TC_NVME, expected[p - 1] == 'n');
	planned_free(planned);
}

/*
 * Sub-groups of at least 2,000 elements: {1, 2} and {3, 4}, which end at 2,000 and 3,500. With
 * sub-groups of 1,500 the same. With 500 each parameter is its own; the offset advances over those
 * that do not fit, so that nothing after the first misfit comes back.
 */
static void test_homes(void **state)
{
	(void)state;
	expect_homes("zero-infinity", "cccc");
	expect_homes(NVME, "nnnn");
	expect_homes("zero-infinity:device=nvme:min-nvme-bytes=1:sub-group-size=2000:"
	             "max-in-cpu=2000",
	             "ccnn");
	expect_homes("zero-infinity:device=nvme:min-nvme-bytes=1:sub-group-size=2000:"
	             "max-in-cpu=1999",
	             "nnnn");
	expect_homes("zero-infinity:device=nvme:min-nvme-bytes=1:sub-group-size=500:"
	             "max-in-cpu=2999",
	             "ccnn");
	expect_homes("zero-infinity:device=nvme:min-nvme-bytes=1001:max-in-cpu=0", "nnnc");
	/* DeepSpeed's defaults: the one sub-group is below 1e9, and all are below 1 MiB. */
	expect_homes("zero-infinity:device=nvme", "cccc");
}

static void expect_infeasible(const uint64_t *elements, uint32_t parameters, const char *policy,
                              const char *text, const char *remedy)
{
	struct planned *planned = plan_sizes(elements, parameters, false, policy);
	assert_int_equal(planned->status, TC_INFEASIBLE);
	if (strstr(planned->error.text, text) == NULL ||
	    strstr(planned->error.text, remedy) == NULL)
		fail_msg("'%s' lacks '%s' or '%s'", planned->error.text, text, remedy);
	planned_free(planned);
}

/* A refusal names the tensor and a value that works, and that value does work. */
static void test_buffer_size(void **state)
{
	(void)state;
	static const uint64_t elements[] = {1000, 3000};
	expect_infeasible(elements, 2,
	                  "zero-infinity:device=nvme:min-nvme-bytes=1:max-in-cpu=0:"
	                  "buffer-size=2999",
	                  "layers.1.leaf0.p0", "buffer-size=3000");
	struct planned *planned =
	    plan_sizes(elements, 2, false,
	               "zero-infinity:device=nvme:min-nvme-bytes=1:max-in-cpu=0:buffer-size=3000");
	assert_int_equal(planned->status, TC_OK);
	/* Five buffers of 3,000 FP16 elements, each rounded up to 512 bytes: 6,144. */
	assert_int_equal(pool_named(planned, "staging", TC_CPU)->bytes, 5 * 6144);
	planned_free(planned);
}

static void test_optimizer_buffer_count(void **state)
{
	(void)state;
	static const uint64_t elements[] = {1000};
	expect_infeasible(elements, 1, NVME ":optimizer-buffer-count=3", "optimizer-buffer-count=3",
	                  "optimizer-buffer-count=4 works");
	expect_infeasible(elements, 1, NVME ":pipeline-read=1", "pipelined",
	                  "optimizer-buffer-count=8 works");
	expect_infeasible(elements, 1, NVME ":pipeline-read=1:pipeline-write=1", "pipelined",
	                  "optimizer-buffer-count=12 works");
}

/** One module with three parameters of 1,000 elements on the drive. */
static struct planned *plan_wide_module(const char *policy)
{
	const uint64_t bytes = 2000;
	const struct test_model model = {.layers = 2,
	                                 .params_per_module = 3,
	                                 .half = true,
	                                 .param_bytes = &bytes,
	                                 .param_bytes_count = 1};
	const struct planned_options options = {.policy = policy};
	return planned_new(test_model_trace(&model), &options);
}

/*
 * Two buffers cannot hold the three parameters of one module. Three can, but not those of the
 * second module, which are kept for its backward, with all of the first: buffers are taken back,
 * and said.
 */
static void test_buffer_count(void **state)
{
	(void)state;
	struct planned *planned = plan_wide_module(
	    NVME ":param-persistence-threshold=0:max-reuse-distance=1e6:buffer-count=2");
	assert_int_equal(planned->status, TC_INFEASIBLE);
	assert_non_null(strstr(planned->error.text, "buffer-count=3"));
	planned_free(planned);

	planned = plan_wide_module(
	    NVME ":param-persistence-threshold=0:max-reuse-distance=1e6:buffer-count=3");
	assert_int_equal(planned->status, TC_OK);
	assert_non_null(strstr(planned->notes.text, "staging buffers ran out"));
	planned_free(planned);

	planned = plan_wide_module(
	    NVME ":param-persistence-threshold=0:max-reuse-distance=1e6:buffer-count=6");
	assert_int_equal(planned->status, TC_OK);
	assert_null(strstr(planned->notes.text, "staging buffers ran out"));
	planned_free(planned);
}

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
	struct filter gradient = {TC_GRADIENT, 1, TC_NONE, NULL, NULL};
	uint64_t bytes;
	assert_int_equal(count(planned, &gradient, &bytes), 3 * 4);
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
		struct filter down = {TC_GRADIENT, 1, TC_NONE, NULL, "pageable"};
		uint64_t copy = find(planned, &down, i);
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
	struct filter down = {TC_GRADIENT, 1, TC_NONE, NULL, "gradients"};
	for (uint64_t id = 0; id < planned->schedule->command_count; id++)
		if (passes(planned, &planned->schedule->commands[id], &down))
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
	struct filter update = {TC_UPDATE, 1, TC_NONE, NULL, NULL};
	struct filter drop = {TC_DROP, 1, TC_NONE, "parameters", NULL};
	uint64_t first = find(planned, &update, 0);
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
	struct filter fetch = {TC_FETCH, 1, TC_NONE, NULL, NULL};
	assert_int_equal(count(planned, &drop, NULL), count(planned, &fetch, NULL));
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
	struct filter first_scan = {TC_CONVERT, 1, TC_NONE, NULL, NULL};
	uint64_t id = find(planned, &first_scan, 0);
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
	struct filter update = {TC_UPDATE, 1, TC_NONE, NULL, NULL};
	struct filter load = {TC_LOAD, 1, TC_NONE, NULL, "optimizer staging 2"};
	uint64_t first_update = find(planned, &update, 0);
	assert_int_equal(count(planned, &load, NULL), 8);
	for (uint64_t i = 0; i < 8; i++) {
		uint64_t id = find(planned, &load, i);
		assert_true(id < first_update);
	}
	planned_free(planned);
}

/* ---------------------------------------------------------------- whole traces */

struct trace_case {
	const char *file;
	uint64_t parameters; /* elements */
};

static struct planned *plan_file(const char *file, const char *policy)
{
	char path[512];
	struct tc_error error = {0};
	struct tc_trace *trace;
	(void)snprintf(path, sizeof path, "%s/traces/%s", TENCACHE_SOURCE_DIR, file);
	if (tc_trace_read(path, &trace, &error) != TC_OK)
		fail_msg("%s", error.text);
	const struct planned_options options = {.policy = policy, .iterations = 3};
	struct planned *planned = planned_new(trace, &options);
	if (planned->status != TC_OK)
		fail_msg("%s", planned->error.text);
	return planned;
}

/*
 * OPT-6.7B in the paper's setting: 6,658,482,176 parameters in 517 tensors (10Cache's inventory).
 * Each FP16 gradient crosses the link three times, down, up and down.
 */
static void test_opt_cpu(void **state)
{
	(void)state;
	struct planned *planned = plan_file("opt6.7b-paper.jsonl.gz", "zero-infinity");
	struct filter gradient = {TC_GRADIENT, 1, TC_NONE, NULL, NULL};
	struct filter update = {TC_UPDATE, 1, TC_NONE, NULL, NULL};
	struct filter load = {TC_LOAD, 1, TC_NONE, NULL, NULL};
	uint64_t bytes;
	assert_int_equal(count(planned, &gradient, &bytes), 3 * 517);
	assert_int_equal(bytes, 3ull * 2 * 6658482176ull);
	assert_int_equal(count(planned, &update, NULL), 517);
	assert_int_equal(count(planned, &load, NULL), 0);
	planned_free(planned);
}

/*
 * State and gradients on the drive cost 32 bytes per parameter and step: gradients 4 written and 4
 * read, master and moments 12 read and 12 written. FP16 parameters of at least 1 MiB, here the
 * matrices and embeddings, are written once more.
 */
static void test_opt_nvme(void **state)
{
	(void)state;
	struct planned *planned = plan_file("opt6.7b-paper.jsonl.gz", "zero-infinity:device=nvme");
	uint64_t half_bytes = 0;
	for (uint32_t t = 0; t < planned->trace->tensor_count; t++)
		if (planned->trace->tensors[t].kind == TC_PARAM &&
		    planned->trace->tensors[t].bytes >= 1048576)
			half_bytes += planned->trace->tensors[t].bytes;
	struct filter fetch = {TC_FETCH, 1, TC_NONE, "staging", NULL};
	struct filter stage = {TC_LOAD, 1, TC_NONE, NULL, "staging"};
	struct filter load = {TC_LOAD, 1, TC_NONE, NULL, "optimizer staging"};
	struct filter spill = {TC_SPILL, 1, TC_NONE, NULL, NULL};
	uint64_t fetched, staged, loaded, spilled;
	count(planned, &fetch, &fetched);
	count(planned, &stage, &staged);
	count(planned, &load, &loaded);
	count(planned, &spill, &spilled);
	assert_int_equal(loaded, 16ull * 6658482176ull);
	assert_int_equal(spilled, 16ull * 6658482176ull + half_bytes);
	/* A buffer is held from the read until the tensor leaves the GPU: one read a fetch. */
	assert_int_equal(staged, fetched);
	assert_non_null(strstr(planned->notes.text, "buffer-size=auto"));
	planned_free(planned);
}

/* The default machine must do for the trace that everybody starts with. */
static void test_opt13b(void **state)
{
	(void)state;
	planned_free(plan_file("opt13b.json", "zero-infinity"));
	planned_free(plan_file("opt13b.json", "zero-infinity:device=nvme"));
}

/* GPT-2 small has fewer elements than max-in-cpu: with device=nvme all parameters stay in host
 * memory and there are no staging buffers. */
static void test_gpt2(void **state)
{
	(void)state;
	struct planned *planned = plan_file("gpt2.jsonl.gz", "zero-infinity:device=nvme");
	assert_null(pool_named(planned, "staging", TC_CPU));
	planned_free(planned);
}

/* ---------------------------------------------------------------- memory */

/*
 * Over many GPU sizes: what fits stays feasible with more memory, and every plan passes the
 * auditor; where memory is short, kept and prefetched parameters make room.
 */
static void test_little_memory(void **state)
{
	(void)state;
	const uint64_t sizes[] = {20000, 6000, 14000, 2000};
	const struct test_model model = {.layers = 6,
	                                 .modules_per_layer = 2,
	                                 .params_per_module = 2,
	                                 .half = true,
	                                 .param_bytes = sizes,
	                                 .param_bytes_count = 4};
	static const char *const policies[] = {
	    "zero-infinity:param-persistence-threshold=0:reduce-bucket-size=1000",
	    "zero-infinity:param-persistence-threshold=1000:reduce-bucket-size=20000",
	    NVME ":param-persistence-threshold=0:reduce-bucket-size=1000"};
	for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
		bool feasible = false;
		uint64_t first = 0;
		for (uint64_t memory = 65536; memory <= 1048576; memory += 8192) {
			char gpu[32];
			/* The framework's own GiB comes on top. */
			(void)snprintf(gpu, sizeof gpu, "%llu",
			               (unsigned long long)(memory + (1ull << 30)));
			const char *const overrides[] = {"gpu-memory", gpu, NULL};
			const struct planned_options options = {.policy = policies[p],
			                                        .overrides = overrides};
			struct planned *planned = planned_new(test_model_trace(&model), &options);
			if (planned->status == TC_OK && !feasible)
				first = memory;
			assert_true(planned->status == TC_OK || planned->status == TC_INFEASIBLE);
			assert_true(planned->status == TC_OK || !feasible);
			feasible = planned->status == TC_OK;
			planned_free(planned);
		}
		assert_true(feasible);
		assert_in_range(first, 65536 + 1, 400000);
	}
}

/* Random models read parameters that no open module owns, tie, checkpoint and clip. */
static void test_random_models(void **state)
{
	(void)state;
	static const char *const policies[] = {
	    "zero-infinity:param-persistence-threshold=5000:prefetch-bucket-size=10000:"
	    "max-live-parameters=50000:max-reuse-distance=20000:reduce-bucket-size=20000",
	    "zero-infinity:device=nvme:min-nvme-bytes=4096:max-in-cpu=0:buffer-count=9:"
	    "param-persistence-threshold=0:prefetch-bucket-size=20000:sub-group-size=30000",
	    "zero-infinity:device=nvme:min-nvme-bytes=4096:max-in-cpu=40000:buffer-count=9:"
	    "sub-group-size=30000:pipeline-read=1:pipeline-write=1:optimizer-buffer-count=12:"
	    "contiguous-gradients=0:reduce-bucket-size=30000:pin-memory=0"};
	const struct test_limits limits = {0};
	for (uint64_t seed = 0; seed < 120; seed++) {
		const struct planned_options options = {.policy = policies[seed % 3]};
		struct planned *planned = planned_new(test_random_trace(seed, &limits), &options);
		if (planned->status != TC_OK)
			fail_msg("seed %llu: %s", (unsigned long long)seed, planned->error.text);
		planned_free(planned);
	}
}

/* Without events: each op asks for what it reads, each optimizer op is an update of its own. */
static void test_without_events(void **state)
{
	(void)state;
	const struct test_limits limits = {.no_events = true};
	for (uint64_t seed = 0; seed < 30; seed++) {
		const struct planned_options options = {
		    .policy = "zero-infinity:param-persistence-threshold=100:"
		              "reduce-bucket-size=10000",
		    .requests = TC_REQUESTS_READS};
		struct planned *planned = planned_new(test_random_trace(seed, &limits), &options);
		if (planned->status != TC_OK)
			fail_msg("seed %llu: %s", (unsigned long long)seed, planned->error.text);
		planned_free(planned);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_persistent_parameters),
	    cmocka_unit_test(test_model_persistence_threshold),
	    cmocka_unit_test(test_homes),
	    cmocka_unit_test(test_buffer_size),
	    cmocka_unit_test(test_optimizer_buffer_count),
	    cmocka_unit_test(test_buffer_count),
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
	    cmocka_unit_test(test_opt_cpu),
	    cmocka_unit_test(test_opt_nvme),
	    cmocka_unit_test(test_opt13b),
	    cmocka_unit_test(test_gpt2),
	    cmocka_unit_test(test_little_memory),
	    cmocka_unit_test(test_random_models),
	    cmocka_unit_test(test_without_events),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
