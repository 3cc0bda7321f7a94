/*
 * Scaling before planning. Expected values are worked out by hand from the rule of scale.h:
 * elements / N rounded up, to whole 16 of them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
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
	must(tc_policy_parse("zero-infinity:sub-group-size=1001", &choice, &error), &error);
	tc_policy_scale(choice, 10);
	for (size_t i = 0; i < choice->policy->parameter_count; i++) {
		const char *name = choice->policy->parameters[i].name;
		if (strcmp(name, "sub-group-size") == 0)
			assert_int_equal(choice->values[i].number, 101);
		if (strcmp(name, "prefetch-bucket-size") == 0) /* default 5e7 */
			assert_int_equal(choice->values[i].number, 5000000);
		if (strcmp(name, "buffer-count") == 0)
			assert_int_equal(choice->values[i].number, 5);
	}
	tc_policy_choice_free(choice);
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
	    cmocka_unit_test(test_tensors_and_ops),
	    cmocka_unit_test(test_machine),
	    cmocka_unit_test(test_policy),
	    cmocka_unit_test(test_times_stay),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
