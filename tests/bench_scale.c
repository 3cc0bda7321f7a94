/*
 * One simulation of a regular model with a given number of layers, for counting instructions:
 * scripts/scaling runs it under callgrind with two sizes. GPU memory holds half of the parameters,
 * host memory everything, so that the work per layer stays the same.
 *
 * Usage: bench_scale LAYERS POLICY
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tencache/simulate.h"
#include "trace_builder.h"

static void bench_fail(const char *text)
{
	fprintf(stderr, "bench_scale: %s\n", text);
	exit(1);
}

static struct tc_trace *bench_trace(uint32_t layers)
{
	static const uint64_t sizes[] = {4194304, 8192, 4194304, 8192, 16777216, 32768};
	struct test_model model = {.layers = layers,
	                           .modules_per_layer = 6,
	                           .params_per_module = 2,
	                           .param_bytes = sizes,
	                           .param_bytes_count = sizeof sizes / sizeof *sizes,
	                           .activation_bytes = 65536,
	                           .forward_us = 500,
	                           .backward_us = 1000,
	                           .optimizer_us = 10,
	                           .half = true,
	                           .checkpoint = true};
	return test_model_trace(&model);
}

/** Half of the parameters, and what activations and gradients need besides. */
static uint64_t bench_gpu_bytes(const struct tc_trace *trace)
{
	uint64_t params = 0, activations = 0;
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		if (trace->tensors[t].kind == TC_PARAM)
			params += trace->tensors[t].bytes;
		if (trace->tensors[t].kind == TC_ACTIVATION || trace->tensors[t].kind == TC_TEMP)
			activations += trace->tensors[t].bytes;
	}
	/* 1 GiB is what the framework takes on this machine, 128 MiB what a step needs. */
	return params / 2 + activations + (UINT64_C(1152) << 20);
}

int main(int argc, char **argv)
{
	struct tc_error error = {0};
	struct tc_steps *steps = NULL;
	struct tc_machine *machine = NULL;
	struct tc_policy_choice *policy = NULL;
	struct tc_result result;
	char bytes[32];
	if (argc != 3 || atoi(argv[1]) < 1)
		bench_fail("usage: bench_scale LAYERS POLICY");
	struct tc_trace *trace = bench_trace((uint32_t)atoi(argv[1]));
	(void)snprintf(bytes, sizeof bytes, "%" PRIu64, bench_gpu_bytes(trace));
	if (tc_steps_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK, TC_FREES_LAST_USE, &steps,
	                    &error) != TC_OK ||
	    tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines", &machine, &error) !=
	        TC_OK ||
	    tc_machine_override(machine, "gpu-memory", bytes, &error) != TC_OK ||
	    tc_policy_parse(argv[2], &policy, &error) != TC_OK)
		bench_fail(error.text);
	struct tc_simulation simulation = {.trace = trace,
	                                   .steps = steps,
	                                   .machine = machine,
	                                   .policy = policy,
	                                   .iterations = 3,
	                                   .audit = true};
	if (tc_simulate(&simulation, &result, &error) != TC_OK)
		bench_fail(error.text);
	if (result.status != TC_OK)
		bench_fail(result.message);
	printf("%" PRIu64 " commands an iteration, %" PRIu64 " fetches\n", result.commands,
	       result.phases[TC_FORWARD].fetches + result.phases[TC_BACKWARD].fetches);
	tc_result_clear(&result);
	tc_policy_choice_free(policy);
	tc_machine_free(machine);
	tc_steps_free(steps);
	tc_trace_free(trace);
	return 0;
}
