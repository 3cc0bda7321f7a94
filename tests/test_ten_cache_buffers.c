/*
 * How many buffers 10cache's pools get in a plan: what follows from its count rule by hand. The
 * rule itself, apart from plans, is in test_ten_cache_counts.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_worked_counts),
	    cmocka_unit_test(test_counts_shrink_to_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
