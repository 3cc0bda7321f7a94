/*
 * Scaling before planning. Expected values are worked out by hand from the rule of scale.h:
 * elements / N rounded up, to whole 16 of them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "plan_case.h"
#include "tencache/scale.h"
#include "tencache/simulate.h"
#include "trace_builder.h"

static void must(enum tc_status status, const struct tc_error *error)
{
	if (status != TC_OK)
		fail_msg("%s", error->text);
}

static void test_tensors_and_ops(void **state)
{
	(void)state;
	struct test_builder *builder = test_builder_new();
	uint32_t half = test_add_tensor(builder, TC_PARAM, 2000); /* 1,000 elements */
	uint32_t master = test_add_tensor(builder, TC_OPTIMIZER_STATE, 4000);
	uint32_t tiny = test_add_tensor(builder, TC_BUFFER, 8);
	uint32_t unknown = test_add_tensor(builder, TC_ACTIVATION, 1601);
	test_tensor(builder, half)->dtype = TC_FLOAT16;
	test_tensor(builder, master)->dtype = TC_FLOAT32;
	test_tensor(builder, tiny)->dtype = TC_INT64;
	test_tensor(builder, unknown)->dtype = TC_DTYPE_UNKNOWN;
	uint32_t m = test_add_module(builder, "fc", TEST_IDS(half));
	test_add_event(builder, TC_EVENT_START, TC_NONE);
	test_add_event(builder, TC_EVENT_FORWARD_PRE, m);
	uint32_t op =
	    test_add_op(builder, TC_FORWARD, m, TEST_IDS(half, master, tiny), TEST_IDS(unknown));
	test_op(builder, op)->us = 10;
	test_op(builder, op)->flops = 1001;
	test_op(builder, op)->bytes = 99;
	test_op(builder, op)->workspace = 101;
	test_add_event(builder, TC_EVENT_FORWARD_POST, m);
	test_add_event(builder, TC_EVENT_END, TC_NONE);
	test_fill_lifetimes(builder);
	struct tc_trace *trace = test_builder_trace(builder);
	test_builder_free(builder);
	struct tc_error error = {0};
	must(tc_trace_scale(trace, 10, true, &error), &error);
	assert_int_equal(trace->tensors[half].bytes, 112 * 2);   /* 100 -> 112 elements */
	assert_int_equal(trace->tensors[master].bytes, 112 * 4); /* as many as its parameter */
	assert_int_equal(trace->tensors[tiny].bytes, 16 * 8);
	assert_int_equal(trace->tensors[unknown].bytes, 176); /* 161 -> 176 bytes */
	assert_int_equal(trace->ops[op].flops, 101);
	assert_int_equal(trace->ops[op].bytes, 10);
	assert_int_equal(trace->ops[op].workspace, 11);
	assert_int_equal(trace->ops[op].measured_ps, 1000000);
	assert_int_equal(trace->scale, 10);
	assert_int_equal(tc_trace_scale(trace, 2, true, &error), TC_ARGUMENT);
	error = (struct tc_error){0};
	assert_int_equal(tc_trace_scale(trace, 0, true, &error), TC_ARGUMENT);
	tc_trace_free(trace);
}

static void test_machine(void **state)
{
	(void)state;
	struct tc_error error = {0};
	struct tc_machine *machine =
	    plan_case_machine("gpu-framework=1000", "gpu-memory=4096000", NULL);
	struct tc_machine *whole = plan_case_machine("gpu-framework=1000", NULL);
	must(tc_machine_scale(machine, 100, false, &error), &error);
	assert_int_equal(machine->capacity_bytes[TC_GPU], 40960);
	assert_int_equal(machine->framework_bytes[TC_GPU], 10);
	assert_int_equal(machine->h2d.bytes_per_s, whole->h2d.bytes_per_s);
	assert_int_equal(machine->h2d.latency_ps, whole->h2d.latency_ps);
	/* 16 MiB / 100 = 167,773 bytes: 41 blocks of 4 KiB */
	assert_int_equal(machine->chunk_bytes, 41 * 4096);
	assert_string_not_equal(machine->sha256, whole->sha256);
	tc_machine_free(machine);
	machine = plan_case_machine("gpu-framework=1000", "gpu-memory=4096000", NULL);
	must(tc_machine_scale(machine, 100, true, &error), &error);
	assert_int_equal(machine->h2d.bytes_per_s, (whole->h2d.bytes_per_s + 99) / 100);
	assert_int_equal(machine->dram_bytes_per_s, (whole->dram_bytes_per_s + 99) / 100);
	assert_int_equal(machine->adam_parameters_per_s_per_core,
	                 (whole->adam_parameters_per_s_per_core + 99) / 100);
	assert_int_equal(machine->cpu_cores, whole->cpu_cores);
	assert_int_equal(machine->launch_ps, whole->launch_ps);
	tc_machine_free(machine);
	tc_machine_free(whole);
}

static void test_policy(void **state)
{
	(void)state;
	struct tc_error error = {0};
	struct tc_policy_choice *choice;
	struct tc_trace *trace = plan_case_shipped("gpt2.jsonl.gz");
	must(tc_policy_parse("zero-infinity:sub-group-size=1001", &choice, &error), &error);
	must(tc_policy_scale(choice, trace, 10, &error), &error);
	for (size_t i = 0; i < choice->policy->parameter_count; i++) {
		const char *name = choice->policy->parameters[i].name;
		if (strcmp(name, "sub-group-size") == 0)
			assert_int_equal(choice->values[i].number, 101);
		if (strcmp(name, "prefetch-bucket-size") == 0) /* default 5e7 */
			assert_int_equal(choice->values[i].number, 5000000);
		if (strcmp(name, "buffer-count") == 0)
			assert_int_equal(choice->values[i].number, 5);
	}
	assert_int_equal(tc_policy_scale(choice, trace, 0, &error), TC_ARGUMENT);
	error = (struct tc_error){0};
	must(tc_trace_scale(trace, 2, true, &error), &error);
	assert_int_equal(tc_policy_scale(choice, trace, 2, &error), TC_ARGUMENT);
	tc_policy_choice_free(choice);
	tc_trace_free(trace);
}

/* ---------------------------------------------------------------- exact sizes of parameters */

/** Scale "10cache:gpu-buffers=`sizes`" with two parameters of 1,600 bytes: 400 elements of float32,
 * 800 of float16, and two of 32 and 48 bytes of float16. */
static struct tc_policy_choice *scaled_sizes(const char *sizes, uint64_t scale,
                                             enum tc_status *status, struct tc_error *error)
{
	char text[128];
	struct tc_policy_choice *choice;
	struct test_builder *builder = test_builder_new();
	uint32_t wide = test_add_tensor(builder, TC_PARAM, 1600);
	uint32_t narrow = test_add_tensor(builder, TC_PARAM, 1600);
	uint32_t small = test_add_tensor(builder, TC_PARAM, 32);
	uint32_t larger = test_add_tensor(builder, TC_PARAM, 48);
	uint32_t output =
	    test_add_tensor(builder, TC_ACTIVATION, 480); /* its size is no parameter's */
	test_tensor(builder, narrow)->dtype = TC_FLOAT16;
	test_tensor(builder, small)->dtype = test_tensor(builder, larger)->dtype = TC_FLOAT16;
	uint32_t m = test_add_module(builder, "fc", TEST_IDS(wide, narrow, small, larger));
	test_add_event(builder, TC_EVENT_START, TC_NONE);
	test_add_event(builder, TC_EVENT_FORWARD_PRE, m);
	(void)test_add_op(builder, TC_FORWARD, m, TEST_IDS(wide, narrow, small, larger),
	                  TEST_IDS(output));
	test_add_event(builder, TC_EVENT_FORWARD_POST, m);
	test_add_event(builder, TC_EVENT_END, TC_NONE);
	test_fill_lifetimes(builder);
	struct tc_trace *trace = test_builder_trace(builder);
	test_builder_free(builder);
	(void)snprintf(text, sizeof text, "10cache:gpu-buffers=%s", sizes);
	must(tc_policy_parse(text, &choice, error), error);
	*status = tc_policy_scale(choice, trace, scale, error);
	tc_trace_free(trace);
	return choice;
}

static const struct tc_policy_value *value_of(const struct tc_policy_choice *choice,
                                              const char *name)
{
	for (size_t i = 0; i < choice->policy->parameter_count; i++)
		if (strcmp(choice->policy->parameters[i].name, name) == 0)
			return &choice->values[i];
	fail_msg("no parameter %s", name);
	return NULL;
}

static void test_sizes(void **state)
{
	(void)state;
	enum tc_status status;
	struct tc_error error = {0};
	/* 400 / 5 = 80 elements of 4 bytes, 800 / 5 = 160 of 2 bytes: 320 bytes both. 16 and 24
	 * elements become 4 and 5, both rounded up to 16: 32 bytes. */
	struct tc_policy_choice *choice = scaled_sizes("1600x3/32x1/48x2", 5, &status, &error);
	must(status, &error);
	const struct tc_policy_value *value = value_of(choice, "gpu-buffers");
	static const struct tc_class_size expected[] = {{320, 3}, {32, 1}, {32, 2}};
	assert_int_equal(value->size_count, 3);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(value->sizes[i].bytes, expected[i].bytes);
		assert_int_equal(value->sizes[i].count, expected[i].count);
	}
	assert_string_equal(choice->text, "10cache:gpu-buffers=1600x3/32x1/48x2");
	tc_policy_choice_free(choice);
	/* By 10: 40 -> 48 elements of 4 bytes, 80 of 2 bytes. */
	choice = scaled_sizes("1600x3", 10, &status, &error);
	assert_int_equal(status, TC_ARGUMENT);
	assert_non_null(strstr(error.text, "192 and 160 bytes at scale 10"));
	tc_policy_choice_free(choice);
	error = (struct tc_error){0};
	choice = scaled_sizes("480x3", 10, &status, &error);
	assert_int_equal(status, TC_ARGUMENT);
	assert_non_null(strstr(error.text, "names 480 bytes, but no parameter"));
	tc_policy_choice_free(choice);
}

struct size_class {
	uint64_t elements, tensors;
};

/** Sizes of the parameters of GPT-2, whose compute type has 2 bytes. */
static size_t classes_of(const struct tc_trace *trace, struct size_class classes[16])
{
	size_t count = 0;
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		if (trace->tensors[t].kind != TC_PARAM)
			continue;
		size_t i = 0;
		assert_int_equal(tc_dtype_bytes(trace->tensors[t].dtype), 2);
		while (i < count && classes[i].elements != trace->tensors[t].bytes / 2)
			i++;
		if (i == count) {
			assert_true(count < 16);
			classes[count++] =
			    (struct size_class){.elements = trace->tensors[t].bytes / 2};
		}
		classes[i].tensors++;
	}
	return count;
}

static uint64_t up_to(uint64_t value, uint64_t multiple)
{
	return (value + multiple - 1) / multiple * multiple;
}

static uint64_t pool_bytes(const struct tc_plan_info *info, const char *name)
{
	for (uint32_t p = 0; p < info->pool_count; p++)
		if (strcmp(info->pools[p].name, name) == 0)
			return info->pools[p].bytes;
	fail_msg("no pool %s", name);
	return 0;
}

/** What is given for GPT-2, and what the pools take then. */
struct given_sizes {
	char policy[2048];
	uint64_t gpu_bytes, cpu_bytes, fp32_bytes;
};

/** Half of the buffers that a size needs on the GPU, all in host memory. */
static struct given_sizes give_sizes(const struct tc_trace *trace, uint64_t scale)
{
	struct size_class classes[16];
	struct given_sizes given = {.gpu_bytes = 0};
	char gpu[512] = "", all[512] = "";
	size_t count = classes_of(trace, classes);
	assert_true(count >= 5);
	for (size_t i = 0; i < count; i++) {
		uint64_t n = classes[i].tensors, half = (n + 1) / 2;
		const char *between = i == 0 ? "" : "/";
		(void)snprintf(gpu + strlen(gpu), sizeof gpu - strlen(gpu),
		               "%s%" PRIu64 "x%" PRIu64, between, 2 * classes[i].elements, half);
		(void)snprintf(all + strlen(all), sizeof all - strlen(all),
		               "%s%" PRIu64 "x%" PRIu64, between, 2 * classes[i].elements, n);
		uint64_t elements = (classes[i].elements + scale - 1) / scale;
		if (scale > 1)
			elements = up_to(elements, 16);
		given.gpu_bytes += half * up_to(2 * elements, 512);
		given.cpu_bytes += n * up_to(2 * elements, 512);
		given.fp32_bytes += 4 * n * up_to(4 * elements, 512);
	}
	(void)snprintf(given.policy, sizeof given.policy,
	               "10cache:slack=5:gpu-buffers=%s:cpu-buffers=%s:fp32-buffers=%s", gpu, all,
	               all);
	return given;
}

/** Buffers given by exact size serve the parameters that they were given for, whatever the scale:
 * pools hold that many of the scaled sizes, and the plan runs with them. */
static void test_sizes_in_a_plan(void **state)
{
	(void)state;
	static const uint64_t scales[] = {1, 7, 64, 1000};
	struct tc_machine *machine = plan_case_machine(NULL);
	for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
		struct tc_error error = {0};
		struct tc_policy_choice *choice;
		struct tc_trace *trace = plan_case_shipped("gpt2.jsonl.gz");
		struct given_sizes given = give_sizes(trace, scales[s]);
		must(tc_policy_parse(given.policy, &choice, &error), &error);
		must(tc_policy_scale(choice, trace, scales[s], &error), &error);
		must(tc_trace_scale(trace, scales[s], true, &error), &error);
		struct plan_case plan = {
		    .trace = trace, .machine = machine, .choice = choice, .iterations = 3};
		struct plan_kept planned = plan_case_keep(&plan);
		const struct tc_plan_info *info = &planned.schedule->info;
		assert_int_equal(pool_bytes(info, "fp16-gpu"), given.gpu_bytes);
		assert_int_equal(pool_bytes(info, "fp16-cpu"), given.cpu_bytes);
		assert_int_equal(pool_bytes(info, "fp32"), given.fp32_bytes);
		assert_int_equal(plan_case_findings(planned.schedule), 0);
		plan_kept_free(&planned);
		tc_policy_choice_free(choice);
		tc_trace_free(trace);
	}
	tc_machine_free(machine);
}

/** Divided bytes at divided rates take the same time: a copy-bound model, where sizes are multiples
 * of 16 x scale elements so that nothing is rounded, and latencies do not count. */
static void test_times_stay(void **state)
{
	(void)state;
	static const uint64_t bytes[] = {64 * 16 * 4 * 500};
	const struct test_model model = {.layers = 3,
	                                 .param_bytes = bytes,
	                                 .param_bytes_count = 1,
	                                 .activation_bytes = 64 * 16 * 4,
	                                 .forward_us = 50,
	                                 .backward_us = 100,
	                                 .optimizer_us = 10};
	uint64_t times[2];
	for (int scaled = 0; scaled < 2; scaled++) {
		struct tc_error error = {0};
		struct tc_trace *trace = test_model_trace(&model);
		struct tc_machine *machine =
		    plan_case_machine("gpu-framework=0", "gpu-memory=20971520", "launch-ns=0",
		                      "hook-ns=0", "h2d-latency-ns=0", "d2h-latency-ns=0", NULL);
		struct tc_steps *steps;
		struct tc_policy_choice *choice;
		struct tc_result result;
		must(tc_policy_parse("lru", &choice, &error), &error);
		if (scaled == 1) {
			must(tc_trace_scale(trace, 64, false, &error), &error);
			must(tc_machine_scale(machine, 64, true, &error), &error);
		}
		must(tc_steps_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
		                     TC_FREES_LAST_USE, &steps, &error),
		     &error);
		const struct tc_simulation simulation = {.trace = trace,
		                                         .steps = steps,
		                                         .machine = machine,
		                                         .policy = choice,
		                                         .iterations = 3,
		                                         .alignment = 16,
		                                         .audit = true};
		must(tc_simulate(&simulation, &result, &error), &error);
		assert_int_equal(result.status, TC_OK);
		times[scaled] = result.iteration_ps;
		tc_result_clear(&result);
		tc_policy_choice_free(choice);
		tc_steps_free(steps);
		tc_machine_free(machine);
		tc_trace_free(trace);
	}
	/* Rates are rounded to whole bytes per second: well below one part in a million. */
	assert_true(times[0] > 0);
	uint64_t apart = times[0] > times[1] ? times[0] - times[1] : times[1] - times[0];
	assert_true(apart <= times[0] / 1000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_tensors_and_ops), cmocka_unit_test(test_machine),
	    cmocka_unit_test(test_policy),          cmocka_unit_test(test_sizes),
	    cmocka_unit_test(test_sizes_in_a_plan), cmocka_unit_test(test_times_stay),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
