/*
 * How many buffers 10cache's pools get in a plan: what follows from its count rule by hand. The
 * rule itself, apart from plans, is in test_ten_cache_counts.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "ten_cache_case.h"

/**
 * The worked example of the count rule: a budget of f = 0.7005 of the parameters' 13,316,964,352
 * bytes gives 363 buffers, and with slack 15 the first 348 rows live on the GPU. The budget is free
 * memory / 2.5, free memory the capacity without the framework's 1 GiB:
 * 0.7005 x 13,316,964,352 x 2.5 = 23,321,333,821; + 1,073,741,824 = 24,395,075,645.
 */
static void test_worked_counts(void **state)
{
	(void)state;
	static const struct class_count classes[] = {
	    {OPT67_WORDS, 1}, {OPT67_POSITIONS, 1}, {OPT67_BIAS, 203}, {OPT67_ATTENTION, 90},
	    {OPT67_FC, 45},   {OPT67_FC1_BIAS, 22}, {OPT67_SCORE, 1}};
	/* What the authors' CSV shows on the GPU: 8 KiB 195, 32 KiB 21, 33.5 MB 88, 134 MB 42, and
	 * both embeddings. */
	static const uint64_t residents[] = {1, 1, 195, 88, 42, 21, 0};
	enum { CLASSES = sizeof classes / sizeof *classes };
	struct tc_trace *trace = plan_case_shipped("opt6.7b-paper.jsonl.gz");
	struct tc_machine *machine = plan_case_machine("gpu-memory=24395075645", NULL);
	assert_int_equal(machine->framework_bytes[TC_GPU], UINT64_C(1) << 30);
	struct plan_kept planned = ten_cache_plan(trace, machine, "10cache:slack=15");
	uint32_t pool = ten_cache_pool(&planned, "fp16-gpu");
	uint64_t buffers = 0;
	for (size_t i = 0; i < CLASSES; i++)
		buffers += classes[i].count;
	assert_int_equal(buffers, 363);
	assert_int_equal(planned.schedule->info.pools[pool].bytes,
	                 ten_cache_class_sum(classes, CLASSES));
	struct occupancy o = {.pool = pool, .classes = classes, .class_count = CLASSES};
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		if (trace->tensors[t].kind == TC_PARAM &&
		    planned.schedule->info.tensors[t].start.pool == pool)
			ten_cache_occupy(&o, trace->tensors[t].bytes, 1);
	for (size_t i = 0; i < CLASSES; i++)
		assert_int_equal(o.now[i], residents[i]);
	for (uint32_t row = 0; row < 517; row++)
		assert_int_equal(planned.schedule->info.tensors[planned.steps->rows[row]].home ==
		                     TC_GPU,
		                 row < 348);
	plan_kept_free(&planned);
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/**
 * Where activations leave less than the buffers that the count rule makes of a budget (each class
 * of one or two tensors gets its own, whatever the budget), the counts shrink to what is left, and
 * use it: OPT-13B, whose embedding of 515 MB is such a class. At 24 GiB the rule itself fits.
 */
static void test_counts_shrink_to_fit(void **state)
{
	(void)state;
	struct tc_trace *trace = plan_case_shipped("opt13b.json");
	struct tc_machine *machine = plan_case_machine(NULL);
	static const uint64_t gib[] = {17, 20, 22, 23};
	for (size_t i = 0; i < sizeof gib / sizeof *gib; i++) {
		plan_case_override(machine, "gpu-memory", gib[i] << 30);
		struct plan_kept planned = ten_cache_plan(trace, machine, "10cache");
		const struct tc_plan_info *info = &planned.schedule->info;
		uint32_t pool = ten_cache_pool(&planned, "fp16-gpu");
		uint64_t left = (gib[i] << 30) - machine->framework_bytes[TC_GPU];
		for (uint32_t p = 0; p < info->pool_count; p++)
			if (info->pools[p].tier == TC_GPU && p != pool)
				left -= info->pools[p].bytes;
		assert_in_range(info->pools[pool].bytes, left / 10 * 9, left);
		plan_kept_free(&planned);
	}
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/**
 * The least that OPT-13B can run with. Its requests are by module: weight and bias of a layer norm,
 * of an attention projection, of fc1 or of fc2, or an embedding alone. So at once on the GPU are at
 * most two of 10,240 bytes and one of each other size, and the first rows, as many as the largest
 * module has (two), are both embeddings:
 * 514,785,280 + 20,992,000 + 209,715,200 + 52,428,800 + 40,960 + 2 x 10,240 = 797,982,720 bytes,
 * all multiples of the alignment. From there on every size of memory is enough, although scaled
 * counts of the 40 biases of fc1 lie between none and one: 15,636 MiB was not, 15,632 MiB was.
 */
static void test_least_memory(void **state)
{
	(void)state;
	static const uint64_t least = UINT64_C(797982720);
	struct tc_trace *trace = plan_case_shipped("opt13b.json");
	struct tc_machine *machine = plan_case_machine(NULL);
	plan_case_override(machine, "gpu-memory", UINT64_C(17) << 30);
	struct plan_kept planned = ten_cache_plan(trace, machine, "10cache");
	const struct tc_plan_info *info = &planned.schedule->info;
	uint64_t other = machine->framework_bytes[TC_GPU];
	for (uint32_t p = 0; p < info->pool_count; p++)
		if (info->pools[p].tier == TC_GPU && p != ten_cache_pool(&planned, "fp16-gpu"))
			other += info->pools[p].bytes;
	plan_kept_free(&planned);

	plan_case_override(machine, "gpu-memory", other + least);
	planned = ten_cache_plan(trace, machine, "10cache");
	info = &planned.schedule->info;
	assert_int_equal(info->pools[ten_cache_pool(&planned, "fp16-gpu")].bytes, least);
	plan_kept_free(&planned);
	struct tc_error error = {0};
	struct plan_case plan = {
	    .trace = trace, .machine = machine, .policy = "10cache", .iterations = 3};
	for (uint64_t more = 4 << 20; more <= 400 << 20; more += 4 << 20) {
		plan_case_override(machine, "gpu-memory", other + least + more);
		if (plan_case_run(&plan, NULL, NULL, &error) != TC_OK)
			fail_msg("%llu bytes more than enough: %s", (unsigned long long)more,
			         error.text);
	}
	plan_case_override(machine, "gpu-memory", other + least - 512);
	assert_int_equal(plan_case_run(&plan, NULL, NULL, &error), TC_INFEASIBLE);
	assert_non_null(strstr(error.text, "pool \"fp16-gpu\" needs 797.98 MB"));
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/** Buffers given by hand that no step can run with are refused by size, not by a need of memory. */
static void test_too_few_given(void **state)
{
	(void)state;
	struct tc_trace *trace = plan_case_shipped("opt13b.json");
	struct tc_machine *machine = plan_case_machine(NULL);
	struct tc_error error = {0};
	struct plan_case plan = {.trace = trace,
	                         .machine = machine,
	                         .policy = "10cache:gpu-buffers=514785280x1/20992000x1/209715200x9/"
	                                   "52428800x9/40960x9/10240x1",
	                         .iterations = 3};
	assert_int_equal(plan_case_run(&plan, NULL, NULL, &error), TC_INFEASIBLE);
	assert_non_null(strstr(error.text, "has 1 buffers of 10240 bytes, but 2 parameters"));
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/**
 * Without a drive the host pool must hold what is not on the GPU. The authors' rule gives it
 * buffers for what the GPU pool has none for, and x-cpu more; but buffers of the GPU pool stay
 * empty (slack, and the first class that runs out ends the rows that live there). So 60 GiB, where
 * the GPU pool could hold nearly everything, are infeasible and 14 GiB are not; the value that the
 * message names works in both.
 */
static void test_without_drive(void **state)
{
	(void)state;
	struct tc_trace *trace = plan_case_shipped("opt6.7b-paper.jsonl.gz");
	struct tc_machine *machine = plan_case_machine("cpu-memory=2000000000000", NULL);
	struct tc_error error = {0};
	struct plan_case plan = {
	    .trace = trace, .machine = machine, .policy = "10cache", .iterations = 3};
	unsigned long long named = 0;
	char policy[64];
	machine->capacity_bytes[TC_NVME] = 0;
	machine->capacity_bytes[TC_GPU] = (UINT64_C(14) << 30);
	assert_int_equal(plan_case_run(&plan, NULL, NULL, &error), TC_OK);
	machine->capacity_bytes[TC_GPU] = (UINT64_C(60) << 30);
	assert_int_equal(plan_case_run(&plan, NULL, NULL, &error), TC_INFEASIBLE);
	const char *remedy = strstr(error.text, "x-cpu=");
	assert_non_null(remedy);
	assert_int_equal(sscanf(remedy, "x-cpu=%llu would help", &named), 1);
	(void)snprintf(policy, sizeof policy, "10cache:x-cpu=%llu", named);
	plan.policy = policy;
	for (uint64_t gib = 14; gib <= 60; gib += 46) {
		struct tc_audit_report report;
		machine->capacity_bytes[TC_GPU] = (gib << 30);
		error = (struct tc_error){0};
		if (plan_case_audit(&plan, &report, &error) != TC_OK)
			fail_msg("%s", error.text);
		assert_int_equal(report.findings, 0);
	}
	tc_machine_free(machine);
	tc_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_worked_counts), cmocka_unit_test(test_counts_shrink_to_fit),
	    cmocka_unit_test(test_least_memory),  cmocka_unit_test(test_too_few_given),
	    cmocka_unit_test(test_without_drive),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
