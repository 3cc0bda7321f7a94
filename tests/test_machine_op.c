/* Times of operations on a machine with round rates; each is worked out beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tencache/machine.h"

#define EFFICIENCIES                                                                               \
	"{\"gemm\":500000,\"attention\":500000,\"elementwise\":250000,\"reduction\":250000,"       \
	"\"gather\":250000,\"optimizer\":250000,\"communication\":250000,\"copy\":250000}"

static const char complete[] =
    "{\"format\":\"tencache-machine\",\"version\":1,\"name\":\"small\",\"source\":\"a test\","
    "\"date\":\"2026-11-30\",\"confidence\":\"medium\","
    "\"gpu\":{\"capacity_bytes\":1000000000,\"framework_bytes\":1000,"
    "\"memory_bytes_per_s\":1000000000,\"memory_efficiency_ppm\":" EFFICIENCIES ","
    "\"flops_per_s\":{\"float32\":2000000000,\"float16\":8000000000},"
    "\"flops_efficiency_ppm\":" EFFICIENCIES ",\"launch_ns\":5000},"
    "\"host\":{\"capacity_bytes\":4000000000,\"dram_bytes_per_s\":2800000000,\"cores\":4,"
    "\"adam_parameters_per_s_per_core\":{\"value\":10000000,\"confidence\":\"low\","
    "\"source\":\"measured by hand\"},"
    "\"stream_bytes_per_s_per_core\":500000000,\"pin_bytes_per_s\":1000000000},"
    "\"link\":{\"h2d\":{\"bytes_per_s\":1000000000,\"latency_ns\":3000},"
    "\"d2h\":{\"bytes_per_s\":2000000000}},"
    "\"nvme\":{\"drives\":2,\"drive\":{\"capacity_bytes\":8000000000,"
    "\"read\":{\"bytes_per_s\":300000000},\"write\":{\"bytes_per_s\":200000000},"
    "\"endurance_bytes\":600000000000}},\"x_note\":\"anything\"}";

static struct tc_machine *parse(const char *json)
{
	struct tc_error error = {0};
	struct tc_machine *machine = NULL;
	if (tc_machine_parse(json, strlen(json), "small.json", &machine, &error) != TC_OK)
		fail_msg("%s", error.text);
	return machine;
}

static void test_op_times(void **state)
{
	(void)state;
	struct tc_machine *m = parse(complete);
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
