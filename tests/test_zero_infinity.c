/*
 * zero-infinity beside its coordinator and its step: homes, persistence, pools and refusals, whole
 * traces, little memory. Every plan is audited (tests/support/planned.h). Expected values are
 * worked out from the rules in src/policy/ZERO_INFINITY.md; numbers of elements are small and
 * chosen by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trace_builder.h"
#include "zero_infinity_plans.h"

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
		struct command_filter fetch = {TC_FETCH, 1, p, NULL, NULL};
		struct command_filter publish = {TC_PUBLISH, 1, p, NULL, NULL};
		struct command_filter drop = {TC_DROP, 1, p, "parameters", NULL};
		struct command_filter update = {TC_UPDATE, 1, TC_NONE, NULL, NULL};
		last_update = commands_find(planned, &update, 3);
		assert_int_equal(commands_count(planned, &publish, NULL), persistent ? 1 : 0);
		assert_int_equal(commands_count(planned, &fetch, NULL) > 0, !persistent);
		assert_int_equal(commands_count(planned, &drop, NULL) > 0, !persistent);
		if (persistent)
			assert_true(commands_find(planned, &publish, 0) > last_update);
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
		struct command_filter publish = {TC_PUBLISH, 1, p, NULL, NULL};
		assert_int_equal(commands_count(planned, &publish, NULL), expected[p - 1]);
	}
	planned_free(planned);
}

/* ---------------------------------------------------------------- homes and refusals */

static enum tc_tier home_of(const struct planned *planned, uint32_t tensor)
{
	return planned->schedule->info.tensors[tensor].home;
}

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

/* ---------------------------------------------------------------- whole traces */

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
	struct command_filter gradient = {TC_GRADIENT, 1, TC_NONE, NULL, NULL};
	struct command_filter update = {TC_UPDATE, 1, TC_NONE, NULL, NULL};
	struct command_filter load = {TC_LOAD, 1, TC_NONE, NULL, NULL};
	uint64_t bytes;
	assert_int_equal(commands_count(planned, &gradient, &bytes), 3 * 517);
	assert_int_equal(bytes, 3ull * 2 * 6658482176ull);
	assert_int_equal(commands_count(planned, &update, NULL), 517);
	assert_int_equal(commands_count(planned, &load, NULL), 0);
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
	struct command_filter fetch = {TC_FETCH, 1, TC_NONE, "staging", NULL};
	struct command_filter stage = {TC_LOAD, 1, TC_NONE, NULL, "staging"};
	struct command_filter load = {TC_LOAD, 1, TC_NONE, NULL, "optimizer staging"};
	struct command_filter spill = {TC_SPILL, 1, TC_NONE, NULL, NULL};
	uint64_t fetched, staged, loaded, spilled;
	commands_count(planned, &fetch, &fetched);
	commands_count(planned, &stage, &staged);
	commands_count(planned, &load, &loaded);
	commands_count(planned, &spill, &spilled);
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
