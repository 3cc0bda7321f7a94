/* Times of operations on a machine with round rates; each is worked out beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "small_machine.h"

static const char complete[] = SMALL_MACHINE_JSON;

static void test_op_times(void **state)
{
	(void)state;
	struct tc_machine *m = small_machine_parse(complete);
	struct tc_tensor tensors[] = {{.bytes = 1000, .dtype = TC_FLOAT32, .name = ""},
	                              {.bytes = 1000, .dtype = TC_FLOAT16, .name = ""}};
	static const uint32_t first[] = {0}, second[] = {1}, both[] = {0, 1};
	struct tc_op ops[] = {
	    /* FLOP-bound, float16 x gemm: 8e9 x 0.5 = 4e9/s; 4001 operations = 1.00025 us. */
	    {.name = "a",
	     .op_class = TC_GEMM,
	     .flops = 4001,
	     .has_bytes = true,
	     .bytes = 1,
	     .reads = {second, 1},
	     .writes = {second, 1}},
	    /* The same in float32 only: 1e9/s, 4.001 us. */
	    {.name = "b",
	     .op_class = TC_GEMM,
	     .flops = 4001,
	     .has_bytes = true,
	     .bytes = 1,
	     .reads = {first, 1},
	     .writes = {first, 1}},
	    /* Mixed: the header's compute type. */
	    {.name = "c",
	     .op_class = TC_GEMM,
	     .flops = 4001,
	     .has_bytes = true,
	     .bytes = 1,
	     .reads = {both, 2},
	     .writes = {first, 1}},
	    /* Memory-bound: 1000 B / (1e9 x 0.25) = 4 us. */
	    {.name = "d", .op_class = TC_ELEMENTWISE, .flops = 1, .has_bytes = true, .bytes = 1000},
	    /* Measured, zero included. */
	    {.name = "e", .op_class = TC_GEMM, .flops = 4001, .timed = true, .measured_ps = 0},
	    /* No rate for float64. */
	    {.name = "f", .op_class = TC_GEMM, .flops = UINT64_MAX, .has_bytes = true},
	};
	struct tc_trace trace = {.tensors = tensors,
	                         .tensor_count = 2,
	                         .ops = ops,
	                         .op_count = 6,
	                         .compute_dtype = TC_FLOAT16};
	static const uint64_t wanted[] = {1000250, 4001000, 1000250, 4000000, 0};
	for (uint32_t i = 0; i < 5; ++i) {
		struct tc_error error = {0};
		uint64_t ps = 99;
		assert_int_equal(tc_machine_op_ps(m, &trace, i, &ps, &error), TC_OK);
		assert_int_equal(ps, wanted[i]);
	}
	struct tc_error error = {0};
	uint64_t ps;
	assert_int_equal(tc_machine_op_ps(m, &trace, 5, &ps, &error), TC_TOO_LARGE);
	trace.compute_dtype = TC_FLOAT64;
	struct tc_error missing = {0};
	assert_int_equal(tc_machine_op_ps(m, &trace, 5, &ps, &missing), TC_ARGUMENT);
	assert_non_null(strstr(missing.text, "gpu.flops_per_s"));
	tc_machine_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_op_times),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
