/*
 * What must hold for every plan, whatever the policy, trace and machine: random traces under all
 * policies at several memory sizes. No expected value comes from a plan itself: the auditor judges
 * safety, bounds are computed here from the requests alone, the rest is equality between two runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SANITIZE_ADDRESS__
/** Of the sanitizer's run time; its header is not always installed. */
size_t __sanitizer_get_current_allocated_bytes(void);
#endif

#include "plan_bound.h"
#include "plan_check.h"
#include "random.h"
#include "tencache/units.h"
#include "trace_builder.h"

#define FRAMEWORK_GPU (UINT64_C(1) << 30)
#define FRAMEWORK_CPU (UINT64_C(16) << 30)

/** ZeRO's knobs in elements, for models of a few thousand of them. */
#define TIGHT_ZERO                                                                                 \
	"reduce-bucket-size=20000:prefetch-bucket-size=8000:max-live-parameters=30000:"            \
	"max-reuse-distance=10000:param-persistence-threshold=100:sub-group-size=20000"

/** Of 64 GiB, some hundred KiB for FP32 state and for parameters: homes on NVMe. */
#define TIGHT_HOST "a-cpu=200000:f-fp32=0.00001"

static const char *const policies[] = {
    "ideal",
    "lru",
    "lru:optimizer=gpu",
    "lru:activations=1",
    "lru:activations=1:optimizer=gpu",
    "lru:state=nvme",
    "lru:state=nvme:optimizer=gpu",
    "lru:barrier=1",
    "belady",
    "belady:optimizer=gpu",
    "belady:activations=1",
    "belady:activations=1:optimizer=gpu",
    "belady:state=nvme",
    "belady:state=nvme:optimizer=gpu",
    "10cache:slack=2",
    "10cache:slack=0:a-gpu=1",
    "10cache:slack=1:a-gpu=1.2:x-cpu=1:victim=code",
    "10cache:slack=4:mode=sync:opt-prefetch=0:rewrite-clean=1",
    "10cache:slack=2:bucket=1:reuse=fifo",
    "10cache:slack=1:a-gpu=1.3:x-cpu=0:" TIGHT_HOST,
    "10cache:slack=2:a-gpu=2:x-cpu=1:victim=code:nvme-buffers=3:" TIGHT_HOST,
    "10cache:slack=1:a-gpu=1.5:mode=sync:opt-prefetch=0:rewrite-clean=1:" TIGHT_HOST,
    "zero-infinity:device=cpu",
    "zero-infinity:device=nvme",
    "zero-infinity:device=cpu:" TIGHT_ZERO,
    "zero-infinity:device=nvme:min-nvme-bytes=1:max-in-cpu=20000:" TIGHT_ZERO,
    "zero-infinity:device=cpu:optimizer-device=nvme:contiguous-gradients=0:" TIGHT_ZERO,
};
enum { POLICIES = sizeof policies / sizeof *policies };

/** Memory sizes from a few KiB to plenty, ascending. */
static void random_sizes(uint64_t *random, uint64_t *sizes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t scale = UINT64_C(1) << (14 + test_random_below(random, 10));
		sizes[i] = scale + test_random_below(random, scale);
	}
	for (size_t i = 0; i < count; i++)
		for (size_t k = i; k > 0 && sizes[k - 1] > sizes[k]; k--) {
			uint64_t swap = sizes[k];
			sizes[k] = sizes[k - 1];
			sizes[k - 1] = swap;
		}
	sizes[count - 1] = UINT64_C(30) << 30;
}

/* ---------------------------------------------------------------- safety on random traces */

/** What the plans of one policy did in all: a test of plans that never move proves little. */
struct tally {
	unsigned feasible, tried;
	uint64_t kinds[TC_COMMAND_KIND_COUNT], delayed, repacks, read_misses;
};

static void tally_add(struct tally *tally, const struct outcome *outcome)
{
	tally->feasible++;
	for (int k = 0; k < TC_COMMAND_KIND_COUNT; k++)
		tally->kinds[k] += outcome->kinds[k];
	tally->delayed += outcome->notes.delayed_fetches;
	tally->repacks += outcome->notes.repacks;
	tally->read_misses += outcome->notes.read_misses;
}

static void try_sizes(struct plan_case *plan, struct tc_machine *machine, uint64_t seed,
                      const uint64_t *sizes, size_t count, struct tally *tally)
{
	bool fitted = false;
	for (size_t i = 0; i < count; i++) {
		plan_case_override(machine, "gpu-memory", FRAMEWORK_GPU + sizes[i]);
		struct outcome outcome = plan_and_check(plan, seed);
		tally->tried++;
		if (fitted && outcome.status != TC_OK) {
			print_error("feasible with less GPU memory:\n");
			plan_blame(plan, seed, outcome.text);
			fail();
		}
		if (outcome.status != TC_OK)
			continue;
		fitted = true;
		tally_add(tally, &outcome);
		assert_int_equal(plan_and_check(plan, seed).hash, outcome.hash);
		uint64_t capacity = sizes[i] - outcome.notes.unmanaged_bytes;
		if (strcmp(plan->policy, "ideal") != 0 &&
		    plan_bound_fetched(plan, capacity) > outcome.fetched_bytes) {
			plan_blame(plan, seed, "fetches less than the bound");
			fail();
		}
	}
}

/** A random trace, and how to look at it. */
static struct plan_case random_case(uint64_t seed, struct tc_machine *machine, uint64_t *random)
{
	const struct test_limits limits = {.no_optimizer = seed % 11 == 0};
	struct plan_case plan = {
	    .trace = test_random_trace(seed, &limits),
	    .machine = machine,
	    .iterations = 3,
	    .alignment = UINT64_C(1) << (2 * test_random_below(random, 7)),
	    .granularity = (enum tc_granularity)(seed % 5 == 0 ? test_random_below(random, 3) : 0),
	    .requests = seed % 7 == 0 ? TC_REQUESTS_READS : TC_REQUESTS_HOOK,
	    .frees = seed % 2 == 0 ? TC_FREES_EAGER : TC_FREES_LAST_USE,
	};
	uint64_t cpu =
	    seed % 3 == 0 ? UINT64_C(1) << (16 + test_random_below(random, 9)) : UINT64_C(64) << 30;
	plan_case_override(machine, "cpu-memory", FRAMEWORK_CPU + cpu);
	return plan;
}

static void test_safe_everywhere(void **state)
{
	(void)state;
	enum { TRACES = 70, SIZES = 5 };
	struct tc_machine *machine = plan_case_machine(NULL);
	static struct tally tallies[POLICIES];
	memset(tallies, 0, sizeof tallies);
	for (uint64_t seed = 1; seed <= TRACES; seed++) {
		uint64_t random = seed, sizes[SIZES];
		struct plan_case plan = random_case(seed, machine, &random);
		for (size_t p = 0; p < POLICIES; p++) {
			random_sizes(&random, sizes, SIZES);
			plan.policy = policies[p];
			try_sizes(&plan, machine, seed, sizes, SIZES, &tallies[p]);
		}
		tc_trace_free((struct tc_trace *)(uintptr_t)plan.trace);
	}
	for (size_t p = 0; p < POLICIES; p++) {
		const struct tally *t = &tallies[p];
		print_message(
		    "%.60s: feasible %u of %u; fetch %llu, load %llu, evict %llu, spill "
		    "%llu, drop %llu; delayed %llu, repacks %llu, read misses %llu\n",
		    policies[p], t->feasible, t->tried, (unsigned long long)t->kinds[TC_FETCH],
		    (unsigned long long)t->kinds[TC_LOAD], (unsigned long long)t->kinds[TC_EVICT],
		    (unsigned long long)t->kinds[TC_SPILL], (unsigned long long)t->kinds[TC_DROP],
		    (unsigned long long)t->delayed, (unsigned long long)t->repacks,
		    (unsigned long long)t->read_misses);
		assert_true(t->feasible >= TRACES / 2);
	}
	tc_machine_free(machine);
}

/**
 * A read that no request announced leaves the host copy where it is, so that the host pool's victim
 * may be on the GPU as well; there it was taken for one that has to go to the drive from the GPU.
 */
static void test_host_victim_on_the_gpu(void **state)
{
	(void)state;
	uint64_t seed = 316, random = seed;
	struct tc_machine *machine = plan_case_machine(NULL);
	struct plan_case plan = random_case(seed, machine, &random);
	plan.policy = "10cache:slack=1:a-gpu=1.3:x-cpu=0:" TIGHT_HOST;
	plan_case_override(machine, "gpu-memory", UINT64_C(1075115137));
	struct outcome outcome = plan_and_check(&plan, seed);
	assert_int_equal(outcome.status, TC_OK);
	assert_true(outcome.notes.read_misses > 0);
	tc_trace_free((struct tc_trace *)(uintptr_t)plan.trace);
	tc_machine_free(machine);
}

/* ---------------------------------------------------------------- feasible or not */

static const char *const demand_policies[] = {"lru",
                                              "belady",
                                              "lru:optimizer=gpu",
                                              "belady:optimizer=gpu",
                                              "lru:activations=1",
                                              "belady:activations=1:optimizer=gpu"};
enum { DEMAND_POLICIES = sizeof demand_policies / sizeof *demand_policies };

/** Step, needed and available bytes are in the message. */
static void assert_names_what_is_missing(const struct plan_case *plan, uint64_t need,
                                         uint64_t available)
{
	struct tc_error error = {0};
	struct tc_plan_notes notes;
	char text[TC_UNIT_TEXT_BYTES], where[200];
	struct tc_steps *steps = NULL;
	assert_int_equal(plan_case_run(plan, NULL, &notes, &error), TC_INFEASIBLE);
	assert_int_equal(tc_steps_derive(plan->trace, plan->granularity, plan->requests,
	                                 plan->frees, &steps, &error),
	                 TC_OK);
	assert_non_null(strstr(error.text, tc_format_bytes_both(need, text)));
	assert_non_null(strstr(error.text, tc_format_bytes_both(available, text)));
	tc_step_describe(steps, notes.largest_need_step, where, sizeof where);
	assert_non_null(strstr(error.text, where));
	assert_non_null(strstr(error.text, "1 bytes more"));
	tc_steps_free(steps);
}

/** A pool of exactly the largest need of a step suffices, repacking where it must; one byte less
 * does not, and the message says how much is missing. */
static void test_feasible_exactly_from_largest_need(void **state)
{
	(void)state;
	struct tc_machine *machine = plan_case_machine(NULL);
	uint64_t repacks = 0;
	for (uint64_t seed = 1000; seed < 1120; seed++) {
		static const struct test_limits limits = {0};
		struct tc_trace *trace = test_random_trace(seed, &limits);
		struct plan_case plan = {.trace = trace,
		                         .machine = machine,
		                         .policy = demand_policies[seed % DEMAND_POLICIES],
		                         .iterations = 3};
		plan_case_override(machine, "gpu-memory", UINT64_C(30) << 30);
		struct tc_plan_notes notes = plan_and_check(&plan, seed).notes;
		uint64_t least = notes.unmanaged_bytes + notes.largest_need_bytes;
		plan_case_override(machine, "gpu-memory", FRAMEWORK_GPU + least);
		struct outcome outcome = plan_and_check(&plan, seed);
		if (outcome.status != TC_OK)
			plan_blame(&plan, seed, outcome.text);
		assert_int_equal(outcome.status, TC_OK);
		repacks += outcome.notes.repacks;
		plan_case_override(machine, "gpu-memory", FRAMEWORK_GPU + least - 1);
		assert_names_what_is_missing(&plan, notes.largest_need_bytes,
		                             notes.largest_need_bytes - 1);
		tc_trace_free(trace);
	}
	print_message("repacks: %llu\n", (unsigned long long)repacks);
	assert_true(repacks >= 5); /* the tight pools do fragment */
	tc_machine_free(machine);
}

/**
 * Four slots of 512 bytes. Module 1 asks for A, X, B, Y, which lie in this order; module 2 for A, B
 * and C of 1,024 bytes. X and Y go, but leave two holes of 512 bytes: A and B are packed together,
 * by two fetches (both are clean, so nothing is copied down), and C fits behind them.
 */
static void test_repack(void **state)
{
	(void)state;
	struct test_builder *b = test_builder_new();
	uint32_t a = test_add_tensor(b, TC_PARAM, 512), x = test_add_tensor(b, TC_PARAM, 512);
	uint32_t c = test_add_tensor(b, TC_PARAM, 1024), y = test_add_tensor(b, TC_PARAM, 512);
	uint32_t d = test_add_tensor(b, TC_PARAM, 512); /* B */
	uint32_t out = test_add_tensor(b, TC_ACTIVATION, 512);
	uint32_t one = test_add_module(b, "one", TEST_IDS(a, x, d, y));
	uint32_t two = test_add_module(b, "two", TEST_IDS(a, d, c));
	test_add_event(b, TC_EVENT_START, TC_NONE);
	test_add_event(b, TC_EVENT_FORWARD_PRE, one);
	test_add_op(b, TC_FORWARD, one, TEST_IDS(a, x, d, y), TEST_IDS(out));
	test_add_event(b, TC_EVENT_FORWARD_POST, one);
	test_add_event(b, TC_EVENT_FORWARD_PRE, two);
	test_add_op(b, TC_FORWARD, two, TEST_IDS(a, d, c, out), TEST_IDS(out));
	test_add_event(b, TC_EVENT_FORWARD_POST, two);
	test_add_event(b, TC_EVENT_END, TC_NONE);
	test_fill_lifetimes(b);
	struct tc_trace *trace = test_builder_trace(b);
	struct tc_machine *machine = plan_case_machine(NULL);
	plan_case_override(machine, "gpu-memory", FRAMEWORK_GPU + 512 + 4 * 512);
	struct plan_case plan = {
	    .trace = trace, .machine = machine, .policy = "lru", .iterations = 1};
	struct outcome outcome = plan_and_check(&plan, 0);
	assert_int_equal(outcome.status, TC_OK);
	assert_int_equal(outcome.notes.unmanaged_bytes, 512);
	assert_int_equal(outcome.notes.largest_need_bytes, 2048);
	assert_int_equal(outcome.notes.repacks, 1);
	assert_int_equal(outcome.kinds[TC_FETCH], 4 + 2 + 1);
	assert_int_equal(outcome.kinds[TC_EVICT], 0);
	assert_int_equal(outcome.kinds[TC_DROP], 2);
	tc_machine_free(machine);
	tc_trace_free(trace);
	test_builder_free(b);
}

/* ---------------------------------------------------------------- belady and lru */

/** With equal sizes the farthest next use is optimal: never more fetches than lru, and with the
 * optimizer on the CPU, where only parameters come back, never more bytes than the bound allows
 * to be impossible. */
static void test_belady_fetches_no_more_than_lru(void **state)
{
	(void)state;
	struct tc_machine *machine = plan_case_machine(NULL);
	unsigned fewer = 0;
	for (uint64_t seed = 2000; seed < 2120; seed++) {
		const struct test_limits limits = {.equal_sizes = true, .layers = 6};
		struct tc_trace *trace = test_random_trace(seed, &limits);
		bool gpu = seed % 2 == 0;
		struct plan_case plan = {.trace = trace,
		                         .machine = machine,
		                         .policy = gpu ? "lru:optimizer=gpu" : "lru",
		                         .iterations = 4};
		plan_case_override(machine, "gpu-memory", UINT64_C(30) << 30);
		struct tc_plan_notes notes = plan_and_check(&plan, seed).notes;
		uint64_t random = seed;
		for (int i = 0; i < 4; i++) {
			uint64_t extra =
			    test_random_below(&random, 8) * (notes.largest_need_bytes / 4);
			plan_case_override(machine, "gpu-memory",
			                   FRAMEWORK_GPU + notes.unmanaged_bytes +
			                       notes.largest_need_bytes + extra);
			plan.policy = gpu ? "lru:optimizer=gpu" : "lru";
			uint64_t lru = plan_and_check(&plan, seed).kinds[TC_FETCH];
			plan.policy = gpu ? "belady:optimizer=gpu" : "belady";
			uint64_t belady = plan_and_check(&plan, seed).kinds[TC_FETCH];
			if (belady > lru) {
				print_error("lru %llu, belady %llu fetches\n",
				            (unsigned long long)lru, (unsigned long long)belady);
				plan_blame(&plan, seed, "more fetches than lru");
			}
			assert_true(belady <= lru);
			fewer += belady < lru;
		}
		tc_trace_free(trace);
	}
	print_message("fewer fetches than lru in %u of 480 plans\n", fewer);
	assert_true(fewer > 48);
	tc_machine_free(machine);
}

/* ---------------------------------------------------------------- sizes and memory */

/** 5 GiB + 512 bytes do not fit 32 bits: exact bytes everywhere, also through chunks from NVMe. */
static void test_tensor_above_4_gib(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {(UINT64_C(5) << 30) + 512, 4096};
	static const char *const names[] = {"lru", "belady", "10cache:slack=0:bucket=1:a-gpu=1",
	                                    "zero-infinity:reduce-bucket-size=5e7", "ideal"};
	const struct test_model model = {
	    .layers = 6, .half = true, .param_bytes = sizes, .param_bytes_count = 2};
	struct tc_trace *trace = test_model_trace(&model);
	struct tc_machine *machine = plan_case_machine(NULL);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		/* Staging and gradients of 10cache and zero-infinity take several such tensors. */
		plan_case_override(machine, "gpu-memory",
		                   i < 2 ? UINT64_C(13) << 30 : UINT64_C(60) << 30);
		struct plan_case plan = {
		    .trace = trace, .machine = machine, .policy = names[i], .iterations = 3};
		struct outcome outcome = plan_and_check(&plan, i);
		if (outcome.status != TC_OK)
			plan_blame(&plan, i, outcome.text);
		assert_int_equal(outcome.status, TC_OK);
		/* 13 GiB hold two of the three large parameters at most, 60 GiB everything. */
		if (i < 2)
			assert_true(outcome.fetched_bytes >= 5 * sizes[0]);
	}
	tc_machine_free(machine);
	tc_trace_free(trace);
}

static uint64_t bytes_in_use(void)
{
#ifdef __SANITIZE_ADDRESS__
	return __sanitizer_get_current_allocated_bytes();
#else
	struct mallinfo2 info = mallinfo2();
	return info.uordblks + info.hblkhd;
#endif
}

static enum tc_status measure_end(void *self, const struct tc_plan_end *end, struct tc_error *error)
{
	(void)end;
	(void)error;
	*(uint64_t *)self = bytes_in_use();
	return TC_OK;
}

static void test_memory_does_not_grow(void **state)
{
	(void)state;
	static const struct test_limits limits = {.layers = 4};
	static const char *const names[] = {
	    "lru:optimizer=gpu", "belady", "lru:state=nvme", "10cache:slack=2:a-gpu=2:" TIGHT_HOST,
	    "zero-infinity:device=nvme:min-nvme-bytes=1:max-in-cpu=20000:" TIGHT_ZERO};
	struct tc_trace *trace = test_random_trace(7, &limits);
	struct tc_machine *machine = plan_case_machine(NULL);
	plan_case_override(machine, "gpu-memory", FRAMEWORK_GPU + (UINT64_C(3) << 20));
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		uint64_t few = 0, many = 0;
		struct plan_case plan = {
		    .trace = trace, .machine = machine, .policy = names[i], .iterations = 10};
		struct tc_sink sink = {.self = &few, .end = measure_end};
		struct tc_error error = {0};
		uint64_t before = bytes_in_use();
		assert_int_equal(plan_case_run(&plan, &sink, NULL, &error), TC_OK);
		sink.self = &many;
		plan.iterations = 1000;
		assert_int_equal(plan_case_run(&plan, &sink, NULL, &error), TC_OK);
		assert_true(few > before);
		/* The allocator's own rounding apart: 990 iterations of some hundred commands. */
		assert_true(many < few + 4096);
	}
	tc_machine_free(machine);
	tc_trace_free(trace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_safe_everywhere),
	    cmocka_unit_test(test_host_victim_on_the_gpu),
	    cmocka_unit_test(test_feasible_exactly_from_largest_need),
	    cmocka_unit_test(test_repack),
	    cmocka_unit_test(test_belady_fetches_no_more_than_lru),
	    cmocka_unit_test(test_tensor_above_4_gib),
	    cmocka_unit_test(test_memory_does_not_grow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
