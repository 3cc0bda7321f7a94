/*
 * How many buffers 10cache gives each size class, worked by hand from the rules of the authors'
 * code (10Cache commit 1952ab2): every class is scaled by budget / total, rounded half to even,
 * capped, and scarce classes are raised at the expense of the most numerous one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "plan.h"
#include "policy/policies.h"
#include "policy/ten_cache.h"

#define MOST_CLASSES 8

/** The count rules need a policy's parameters and the classes, nothing else of a planner. */
struct counted {
	struct tc_planner planner;
	struct tci_ten_cache cache;
	struct tci_size_class classes[MOST_CLASSES];
	struct tc_policy_choice *choice;
	uint64_t total; /**< bytes of all parameters */
};

static void counted_init(struct counted *counted, const char *policy,
                         const struct tci_size_class *classes, size_t count)
{
	struct tc_error error = {0};
	memset(counted, 0, sizeof *counted);
	assert_true(count <= MOST_CLASSES);
	memcpy(counted->classes, classes, count * sizeof *classes);
	assert_int_equal(tc_policy_parse(policy, &counted->choice, &error), TC_OK);
	counted->planner.policy = &tci_policy_ten_cache;
	counted->planner.choice = counted->choice;
	counted->cache.classes = counted->classes;
	counted->cache.class_count = count;
	for (size_t i = 0; i < count; i++)
		counted->total += classes[i].bytes * classes[i].tensors;
}

static void counted_clear(struct counted *counted)
{
	tc_policy_choice_free(counted->choice);
}

/** GPU counts of classes {bytes, tensors} under a budget. */
static void assert_gpu(const struct tci_size_class *classes, size_t count, uint64_t budget,
                       const uint64_t *expected)
{
	struct counted counted;
	struct tc_error error = {0};
	counted_init(&counted, "10cache", classes, count);
	assert_int_equal(tci_ten_cache_count_gpu(&counted.cache, &counted.planner,
	                                         budget == UINT64_MAX ? counted.total - 1 : budget,
	                                         &error),
	                 TC_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(counted.classes[i].gpu, expected[i]);
	counted_clear(&counted);
}

/** A byte short of everything: counts round to all, and corrections apply (src/PLANNING.md). */
#define EVERYTHING UINT64_MAX
#define ASSERT_GPU(budget, ...)                                                                    \
	assert_gpu(classes, sizeof classes / sizeof *classes, budget,                              \
	           (const uint64_t[]){__VA_ARGS__})

/**
 * OPT-6.7B, f = 0.7005 of 13,316,964,352 bytes: 290 x f = 203.1, 128 x f = 89.7, 64 x f = 44.8,
 * 32 x f = 22.4; classes of at most two tensors get a buffer for each. 363 in all. No class lies
 * between 2 and 20, so nothing is corrected.
 */
static void test_opt67(void **state)
{
	(void)state;
	static const struct tci_size_class classes[] = {
	    {.bytes = 411828224, .tensors = 1},  {.bytes = 16793600, .tensors = 1},
	    {.bytes = 8192, .tensors = 290},     {.bytes = 33554432, .tensors = 128},
	    {.bytes = 134217728, .tensors = 64}, {.bytes = 32768, .tensors = 32},
	    {.bytes = 16384, .tensors = 1}};
	ASSERT_GPU(UINT64_C(9328533528), 1, 1, 203, 90, 45, 22, 1);
	/* Everything fits: a buffer for each tensor, none more. */
	ASSERT_GPU(UINT64_C(13316964352), 1, 1, 290, 128, 64, 32, 1);
	ASSERT_GPU(UINT64_C(99999999999), 1, 1, 290, 128, 64, 32, 1);
}

/** 5 x 1/2 = 2.5 goes to 2 and 7 x 1/2 = 3.5 to 4: half to even. */
static void test_rounding(void **state)
{
	(void)state;
	static const struct tci_size_class classes[] = {{.bytes = 1000, .tensors = 5},
	                                                {.bytes = 3000, .tensors = 7}};
	ASSERT_GPU((5 * 1000 + 7 * 3000) / 2, 2, 4);
}

/** At most two tensors: a buffer for each, even without any budget. */
static void test_scarce_always(void **state)
{
	(void)state;
	static const struct tci_size_class classes[] = {{.bytes = 512, .tensors = 2},
	                                                {.bytes = 4096, .tensors = 3},
	                                                {.bytes = 64, .tensors = 1}};
	ASSERT_GPU(0, 2, 0, 1);
}

/** Nothing runs with fewer buffers than a step needs at once, so counts never scale below that. */
static void test_least(void **state)
{
	(void)state;
	static const struct tci_size_class classes[] = {{.bytes = 512, .tensors = 40, .least = 2},
	                                                {.bytes = 4096, .tensors = 30, .least = 1}};
	/* 40 x 1/100 = 0.4 and 30 x 1/100 = 0.3 round to none; 40 x 1/10 = 4, 30 x 1/10 = 3. */
	ASSERT_GPU((40 * 512 + 30 * 4096) / 100, 2, 1);
	ASSERT_GPU((40 * 512 + 30 * 4096) / 10, 4, 3);
}

/** The scarce size is a multiple of the donor's: r of its buffers make one. */
static void test_correction_larger(void **state)
{
	(void)state;
	{ /* need 15, r 2: 150 - 30 = 120 stays above 100 */
		static const struct tci_size_class classes[] = {{.bytes = 8192, .tensors = 150},
		                                                {.bytes = 16384, .tensors = 5}};
		ASSERT_GPU(EVERYTHING, 120, 20);
	}
	{ /* 110 - 30 would not: floor(10 / 2) = 5 are made, the donor keeps 100 */
		static const struct tci_size_class classes[] = {{.bytes = 8192, .tensors = 110},
		                                                {.bytes = 16384, .tensors = 5}};
		ASSERT_GPU(EVERYTHING, 100, 10);
	}
	{ /* floor(11 / 4) = 2 are made of 8: the donor keeps 103 */
		static const struct tci_size_class classes[] = {{.bytes = 8192, .tensors = 111},
		                                                {.bytes = 32768, .tensors = 5}};
		ASSERT_GPU(EVERYTHING, 103, 7);
	}
}

/** The donor's size is a multiple of the scarce one: one of its buffers makes r. */
static void test_correction_smaller(void **state)
{
	(void)state;
	{ /* need 14, r 4: ceil(14 / 4) = 4 given, 130 - 4 = 126; exactly 14 are added */
		static const struct tci_size_class classes[] = {{.bytes = 8192, .tensors = 6},
		                                                {.bytes = 32768, .tensors = 130}};
		ASSERT_GPU(EVERYTHING, 20, 126);
	}
	{ /* need 14, r 2: 7 of 103 would leave 96, so 3 are given and make 6 */
		static const struct tci_size_class classes[] = {{.bytes = 8192, .tensors = 6},
		                                                {.bytes = 16384, .tensors = 103}};
		ASSERT_GPU(EVERYTHING, 12, 100);
	}
}

static void test_correction_leaves_alone(void **state)
{
	(void)state;
	{ /* two tensors, twenty tensors, and a size that divides neither way */
		static const struct tci_size_class classes[] = {{.bytes = 8192, .tensors = 300},
		                                                {.bytes = 16384, .tensors = 2},
		                                                {.bytes = 32768, .tensors = 20},
		                                                {.bytes = 12000, .tensors = 5}};
		ASSERT_GPU(EVERYTHING, 300, 2, 20, 5);
	}
	{ /* a donor of a hundred gives nothing */
		static const struct tci_size_class classes[] = {{.bytes = 8192, .tensors = 100},
		                                                {.bytes = 16384, .tensors = 5}};
		ASSERT_GPU(EVERYTHING, 100, 5);
	}
	{ /* of two equally numerous classes the first is the donor */
		static const struct tci_size_class classes[] = {{.bytes = 1000, .tensors = 150},
		                                                {.bytes = 8192, .tensors = 150},
		                                                {.bytes = 16384, .tensors = 19}};
		ASSERT_GPU(EVERYTHING, 150, 150, 19);
	}
}

/** Scarce classes are served in the order of first appearance, each from what the last one left:
 * 130 - 2 x 10 = 110 after the first. 24,576 = 3 x 8,192, so the second would need 16 x 3 = 48
 * more, which leaves 62: floor(10 / 3) = 3 are made of 9. */
static void test_correction_order(void **state)
{
	(void)state;
	static const struct tci_size_class classes[] = {{.bytes = 16384, .tensors = 10},
	                                                {.bytes = 8192, .tensors = 130},
	                                                {.bytes = 24576, .tensors = 4}};
	ASSERT_GPU(EVERYTHING, 20, 101, 7);
}

/** FP32 slots are 16 bytes per element; the cap is the number of tensors. */
static void test_fp32(void **state)
{
	(void)state;
	/* Total 16 x (1000 x 40 + 4000 x 20) = 1,920,000; half of it: 20 and 10. 10 < 15 is raised
	 * by 2 slots, taken as 2 x 4 of the most numerous class (8,000 / 2,000 = 4). */
	static const struct tci_size_class classes[] = {
	    {.bytes = 2000, .elements = 1000, .tensors = 40},
	    {.bytes = 8000, .elements = 4000, .tensors = 20}};
	struct counted counted;
	struct tc_error error = {0};
	counted_init(&counted, "10cache", classes, 2);
	assert_int_equal(tci_ten_cache_count_fp32(&counted.cache, &counted.planner, 960000, &error),
	                 TC_OK);
	assert_int_equal(counted.classes[0].fp32, 20 - 8);
	assert_int_equal(counted.classes[1].fp32, 10 + 2);
	counted_clear(&counted);
}

/** A scarce class of 6: the most numerous class gives 2 x 8 of its buffers for 2 slots, and the
 * second most numerous one, more than 5 times larger (64,000 / 8,000 = 8), one slot for 5. */
static void test_fp32_second_donor(void **state)
{
	(void)state;
	static const struct tci_size_class classes[] = {
	    {.bytes = 1000, .elements = 500, .tensors = 200},
	    {.bytes = 64000, .elements = 32000, .tensors = 50},
	    {.bytes = 8000, .elements = 4000, .tensors = 6}};
	struct counted counted;
	struct tc_error error = {0};
	counted_init(&counted, "10cache", classes, 3);
	/* One byte less than 16 x (500 x 200 + 32,000 x 50 + 4,000 x 6) = 27,584,000. */
	assert_int_equal(
	    tci_ten_cache_count_fp32(&counted.cache, &counted.planner, 27583999, &error), TC_OK);
	assert_int_equal(counted.classes[0].fp32, 200 - 16);
	assert_int_equal(counted.classes[1].fp32, 50 - 1);
	assert_int_equal(counted.classes[2].fp32, 6 + 2 + 5);
	counted_clear(&counted);
}

/** With room for everything nothing is scarce: no correction takes buffers away. */
static void test_nothing_scarce(void **state)
{
	(void)state;
	static const struct tci_size_class classes[] = {
	    {.bytes = 1000, .elements = 500, .tensors = 200},
	    {.bytes = 64000, .elements = 32000, .tensors = 50},
	    {.bytes = 8000, .elements = 4000, .tensors = 6}};
	struct counted counted;
	struct tc_error error = {0};
	counted_init(&counted, "10cache", classes, 3);
	assert_int_equal(
	    tci_ten_cache_count_fp32(&counted.cache, &counted.planner, 27584000, &error), TC_OK);
	assert_int_equal(counted.classes[0].fp32, 200);
	assert_int_equal(counted.classes[1].fp32, 50);
	assert_int_equal(counted.classes[2].fp32, 6);
	counted_clear(&counted);
}

/** Host buffers: what is not on the GPU, and x-cpu more, at most. */
static void test_cpu(void **state)
{
	(void)state;
	static const struct tci_size_class classes[] = {{.bytes = 1000, .tensors = 60, .gpu = 40},
	                                                {.bytes = 3000, .tensors = 30, .gpu = 30}};
	struct counted counted;
	struct tc_error error = {0};
	counted_init(&counted, "10cache:x-cpu=7", classes, 2);
	assert_int_equal(
	    tci_ten_cache_count_cpu(&counted.cache, &counted.planner, UINT64_C(1) << 40, &error),
	    TC_OK);
	assert_int_equal(counted.classes[0].cpu, 60 - 40 + 7);
	assert_int_equal(counted.classes[1].cpu, 7);
	/* A sixth of the bytes: 60 / 6 = 10 and 30 / 6 = 5. */
	assert_int_equal(
	    tci_ten_cache_count_cpu(&counted.cache, &counted.planner, counted.total / 6, &error),
	    TC_OK);
	assert_int_equal(counted.classes[0].cpu, 10);
	assert_int_equal(counted.classes[1].cpu, 5);
	counted_clear(&counted);
}

static void assert_refused(const char *policy, const char *expected)
{
	static const struct tci_size_class classes[] = {{.bytes = 1000, .tensors = 5}};
	struct counted counted;
	struct tc_error error = {0};
	counted_init(&counted, policy, classes, 1);
	assert_int_equal(tci_ten_cache_count_gpu(&counted.cache, &counted.planner, 5000, &error),
	                 TC_ARGUMENT);
	assert_non_null(strstr(error.text, expected));
	counted_clear(&counted);
}

/** Counts given by hand replace the rule. */
static void test_given(void **state)
{
	(void)state;
	static const struct tci_size_class classes[] = {{.bytes = 1000, .tensors = 5},
	                                                {.bytes = 3000, .tensors = 7}};
	struct counted counted;
	struct tc_error error = {0};
	counted_init(&counted, "10cache:gpu-buffers=3000x4/1000x2", classes, 2);
	assert_int_equal(tci_ten_cache_count_gpu(&counted.cache, &counted.planner, 0, &error),
	                 TC_OK);
	assert_int_equal(counted.classes[0].gpu, 2);
	assert_int_equal(counted.classes[1].gpu, 4);
	counted_clear(&counted);
	/* A size that is named again adds to its count, one that is not named has none. */
	counted_init(&counted, "10cache:gpu-buffers=3000x4/3000x5", classes, 2);
	assert_int_equal(tci_ten_cache_count_gpu(&counted.cache, &counted.planner, 0, &error),
	                 TC_OK);
	assert_int_equal(counted.classes[0].gpu, 0);
	assert_int_equal(counted.classes[1].gpu, 9);
	counted_clear(&counted);
	assert_refused("10cache:gpu-buffers=1000x1/3000x4", "no parameter has 3000 bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_opt67),
	    cmocka_unit_test(test_rounding),
	    cmocka_unit_test(test_scarce_always),
	    cmocka_unit_test(test_least),
	    cmocka_unit_test(test_correction_larger),
	    cmocka_unit_test(test_correction_smaller),
	    cmocka_unit_test(test_correction_leaves_alone),
	    cmocka_unit_test(test_correction_order),
	    cmocka_unit_test(test_fp32),
	    cmocka_unit_test(test_fp32_second_donor),
	    cmocka_unit_test(test_nothing_scarce),
	    cmocka_unit_test(test_cpu),
	    cmocka_unit_test(test_given),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
