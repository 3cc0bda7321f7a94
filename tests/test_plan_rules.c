/*
 * Rules of the planner on traces small enough to work out by hand. Expected commands and
 * dependencies follow from the rules of execution and memory (src/SCHEDULE.md, planner.h); where a
 * dependency may be implied by others, the test asks whether the one command must have ended
 * before the other starts, with a walk over the schedule that shares nothing with the planner.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "small_plan.h"

/* ---------------------------------------------------------------- one slot for two parameters */

/**
 * The cache holds one parameter. By hand, after the pools are set up (n commands):
 *   n+0 fetch p0            nothing to wait for
 *   n+1 compute a           data: n+0
 *   n+2 evict p0 (dirty)    data: n+1, which wrote it
 *   n+3 fetch p1            slot: n+2, whose copy out must end; that n+1 ended follows from it
 *   n+4 compute b           data: n+3
 * second iteration:
 *   n+5 drop p1 (clean)     host
 *   n+6 fetch p0            order: n+4, the compute command in front; the rest follows from it
 *   n+7 compute a           data: n+6
 */
static void test_one_slot_by_hand(void **state)
{
	(void)state;
	struct small small = small_of(small_two_modules(), SLOT + SLOT);
	static const struct {
		enum tc_command_kind kind;
		enum tc_queue queue;
		uint32_t tensor, dependency; /**< relative to the first, TC_NONE: none */
		enum tc_reason reason;
	} expected[] = {{TC_FETCH, TC_QUEUE_H2D, 0, TC_NONE, TC_REASON_DATA},
	                {TC_COMPUTE, TC_QUEUE_COMPUTE, TC_NONE, 0, TC_REASON_DATA},
	                {TC_EVICT, TC_QUEUE_D2H, 0, 1, TC_REASON_DATA},
	                {TC_FETCH, TC_QUEUE_H2D, 1, 2, TC_REASON_SLOT},
	                {TC_COMPUTE, TC_QUEUE_COMPUTE, TC_NONE, 3, TC_REASON_DATA},
	                {TC_DROP, TC_QUEUE_HOST, 1, TC_NONE, TC_REASON_DATA},
	                {TC_FETCH, TC_QUEUE_H2D, 0, 4, TC_REASON_ORDER},
	                {TC_COMPUTE, TC_QUEUE_COMPUTE, TC_NONE, 6, TC_REASON_DATA},
	                {TC_EVICT, TC_QUEUE_D2H, 0, 7, TC_REASON_DATA},
	                {TC_FETCH, TC_QUEUE_H2D, 1, 8, TC_REASON_SLOT},
	                {TC_COMPUTE, TC_QUEUE_COMPUTE, TC_NONE, 9, TC_REASON_DATA}};
	enum { COUNT = sizeof expected / sizeof *expected };
	struct plan_kept kept = small_kept(&small, "lru:optimizer=gpu");
	const struct tc_schedule *s = kept.schedule;
	uint64_t n = s->info.pool_count; /* one marker for each */
	assert_int_equal(s->command_count, n + COUNT);
	for (uint64_t i = 0; i < COUNT; i++) {
		const struct tc_command *command = &s->commands[n + i];
		assert_int_equal(command->kind, expected[i].kind);
		assert_int_equal(command->queue, expected[i].queue);
		assert_int_equal(command->tensor, expected[i].tensor);
		assert_int_equal(command->dep_count, expected[i].dependency != TC_NONE);
		if (expected[i].dependency == TC_NONE)
			continue;
		assert_int_equal(command->deps[0].id, n + expected[i].dependency);
		assert_int_equal(command->deps[0].reason, expected[i].reason);
	}
	plan_kept_free(&kept);
	small_free(&small);
}

/** Memory comes back when the copy out of it ends: the change names that command. */
static void test_memory_given_back_on_completion(void **state)
{
	(void)state;
	struct small small = small_of(small_two_modules(), SLOT + SLOT);
	struct plan_kept kept = small_kept(&small, "lru:optimizer=gpu");
	const struct tc_schedule *s = kept.schedule;
	uint64_t evict = plan_find(s, 0, FIND(TC_EVICT, 0, 0)), found = 0;
	for (uint64_t c = 0; c < s->command_count; c++)
		for (uint32_t m = 0; m < s->commands[c].memory_count; m++) {
			const struct tc_memory_change *change = &s->commands[c].memory[m];
			if (change->after != evict || change->tier != TC_GPU)
				continue;
			assert_int_equal(change->bytes, -(int64_t)SLOT);
			assert_int_equal(change->kind, TC_PARAM);
			found++;
		}
	assert_int_equal(found, 1);
	plan_kept_free(&kept);
	small_free(&small);
}

/* ---------------------------------------------------------------- training by hand */

/** Tensors and ops of two_layers(). */
enum { P0, P1, M0, M1, X, G0, G1, TWO_LAYERS_TENSORS };
enum { F0, F1, B1, B0, O1, O0 };

/**
 * Two modules of one parameter each; backward makes the gradient of the second first; the optimizer
 * updates the second first. `half`: fp16 parameters with FP32 masters after the tensors above.
 */
static struct test_builder *two_layers(bool half)
{
	struct test_builder *b = test_builder_new();
	for (uint32_t i = 0; i < TWO_LAYERS_TENSORS; i++) {
		static const enum tc_tensor_kind kinds[] = {
		    TC_PARAM, TC_PARAM, TC_OPTIMIZER_STATE, TC_OPTIMIZER_STATE, TC_ACTIVATION,
		    TC_GRAD,  TC_GRAD};
		bool state = kinds[i] == TC_OPTIMIZER_STATE;
		uint32_t t = test_add_tensor(b, kinds[i], half && state ? 2 * SLOT : SLOT);
		if (half && (kinds[i] == TC_PARAM || kinds[i] == TC_GRAD))
			test_tensor(b, t)->dtype = TC_FLOAT16;
		if (state || kinds[i] == TC_GRAD)
			test_tensor(b, t)->of = i == M0 || i == G0 ? P0 : P1;
		if (state)
			test_tensor(b, t)->role = TC_ROLE_EXP_AVG;
	}
	snprintf(test_tensor(b, P0)->name, 64, "first");
	snprintf(test_tensor(b, P1)->name, 64, "second");
	for (uint32_t i = 0; i < 2 && half; i++) {
		uint32_t master = test_add_tensor(b, TC_OPTIMIZER_STATE, 2 * SLOT);
		test_tensor(b, master)->of = i;
		test_tensor(b, master)->role = TC_ROLE_MASTER;
	}
	b->param_dtype = half ? TC_FLOAT16 : TC_FLOAT32;
	b->has_master = half;
	uint32_t m0 = test_add_module(b, "a", TEST_IDS(P0));
	uint32_t m1 = test_add_module(b, "b", TEST_IDS(P1));
	test_add_event(b, TC_EVENT_START, TC_NONE);
	small_forward(b, m0, TEST_IDS(P0), TEST_IDS(X));
	small_forward(b, m1, TEST_IDS(P1, X), TEST_IDS(X));
	test_add_event(b, TC_EVENT_BACKWARD_START, TC_NONE);
	test_add_event(b, TC_EVENT_BACKWARD, m1);
	test_add_op(b, TC_BACKWARD, m1, TEST_IDS(P1, X), TEST_IDS(G1));
	test_add_event(b, TC_EVENT_GRADIENT, P1);
	test_add_event(b, TC_EVENT_BACKWARD, m0);
	test_add_op(b, TC_BACKWARD, m0, TEST_IDS(P0, X), TEST_IDS(G0));
	test_add_event(b, TC_EVENT_GRADIENT, P0);
	for (uint32_t p = 2; p-- > 0;) {
		uint32_t master = TWO_LAYERS_TENSORS + p;
		test_add_event(b, TC_EVENT_OPTIMIZER, test_add_bucket(b, TEST_IDS(p)));
		uint32_t g = p == 0 ? G0 : G1, m = p == 0 ? M0 : M1;
		test_add_op(b, TC_OPTIMIZER, TC_NONE,
		            half ? TEST_IDS(p, g, m, master) : TEST_IDS(p, g, m),
		            half ? TEST_IDS(p, m, master) : TEST_IDS(p, m));
	}
	test_add_event(b, TC_EVENT_END, TC_NONE);
	return b;
}

/** Gradient down at its event, its slot released by that copy; FP32 form before the update. */
static void test_gradient_path_fp16(void **state)
{
	(void)state;
	struct small small = small_of(two_layers(true), PLENTY);
	struct plan_kept kept = small_kept(&small, "lru:barrier=0");
	const struct tc_schedule *s = kept.schedule;
	uint64_t down = plan_find(s, 0, FIND(TC_GRADIENT, G1, 0));
	const struct tc_command *command = &s->commands[down];
	assert_int_equal(command->queue, TC_QUEUE_D2H);
	assert_int_equal(command->bytes, SLOT);
	assert_int_equal(command->why, TC_WHY_RELEASE);
	/* At the event: after the step that made it, before the next one is computed. */
	assert_true(plan_runs(s, 0, B1) < down && down < plan_runs(s, 0, B0));
	assert_int_equal(plan_reason(s, down, plan_runs(s, 0, B1)), TC_REASON_DATA);

	uint32_t fp32 = small_derived(s, G1, TC_GRAD), master = TWO_LAYERS_TENSORS + 1;
	assert_int_equal(s->info.tensors[fp32].bytes, 2 * SLOT);
	uint64_t convert = plan_find(s, 0, FIND(TC_CONVERT, fp32, 0)), update = plan_runs(s, 0, O1);
	assert_int_equal(s->commands[convert].queue, TC_QUEUE_CPU);
	assert_int_equal(s->commands[convert].traffic_bytes, SLOT + 2 * SLOT);
	assert_int_equal(plan_reason(s, convert, down), TC_REASON_DATA);
	assert_true(convert < update && plan_ends_before(s, convert, update));

	command = &s->commands[update];
	assert_int_equal(command->kind, TC_UPDATE);
	assert_int_equal(command->elements, SLOT / 2);
	assert_int_equal(command->traffic_bytes, 28 * SLOT / 2);
	assert_int_equal(command->bind_count, 3);
	assert_int_equal(small_bind(command, fp32)->access, TC_READ);
	assert_int_equal(small_bind(command, M1)->access, TC_READ_WRITE);
	assert_int_equal(small_bind(command, master)->access, TC_READ_WRITE);
	/* The gradient is gone after it: born again in the next iteration, in the same pool. */
	assert_int_equal(plan_count(s, FIND(TC_GRADIENT, G1, ANY)), 2);
	plan_kept_free(&kept);
	small_free(&small);
}

/** After the update the parameter is converted in host memory, then its GPU copy refreshed: a
 * publish, which is no fetch, so that the next request finds it resident. */
static void test_publish(void **state)
{
	(void)state;
	struct small small = small_of(two_layers(true), PLENTY);
	struct plan_kept kept = small_kept(&small, "lru");
	const struct tc_schedule *s = kept.schedule;
	uint64_t update = plan_runs(s, 0, O1),
	         convert = plan_find(s, update, FIND(TC_CONVERT, P1, 0));
	uint64_t publish = plan_find(s, 0, FIND(TC_PUBLISH, P1, 0));
	assert_true(update < convert && convert < publish);
	assert_true(plan_ends_before(s, update, convert));
	assert_int_equal(s->commands[convert].traffic_bytes, 2 * SLOT + SLOT);
	assert_int_equal(plan_reason(s, publish, convert), TC_REASON_DATA);
	assert_int_equal(s->commands[publish].queue, TC_QUEUE_H2D);
	assert_int_equal(s->commands[publish].version, 1);
	assert_int_equal(plan_count(s, FIND(TC_FETCH, P1, ANY)), 1); /* the cold one */
	const struct tc_command *next = &s->commands[plan_runs(s, 1, F1)];
	assert_int_equal(next->served_count, 1);
	assert_int_equal(next->served[0].outcome, TC_RESIDENT);
	assert_int_equal(next->served[0].served_by, publish);
	assert_true(plan_ends_before(s, publish, plan_runs(s, 1, F1)));
	plan_kept_free(&kept);
	small_free(&small);
}

/** A parameter that is not on the GPU any more is converted, not published. */
static void test_no_publish_without_a_copy(void **state)
{
	(void)state;
	/* One parameter and one gradient fit: at the end of backward `first` is there. */
	struct small small = small_of(two_layers(true), SLOT + 2 * SLOT);
	struct plan_kept kept = small_kept(&small, "lru");
	const struct tc_schedule *s = kept.schedule;
	assert_int_equal(plan_count(s, FIND(TC_PUBLISH, P0, 0)), 1);
	assert_int_equal(plan_count(s, FIND(TC_PUBLISH, P1, 0)), 0);
	assert_int_equal(plan_count(s, FIND(TC_CONVERT, P1, 0)), 1);
	plan_kept_free(&kept);
	small_free(&small);
}

/** Without FP32 masters in the trace the plan has its own; FP32 gradients need no conversion. */
static void test_derived_master(void **state)
{
	(void)state;
	struct small small = small_of(two_layers(false), PLENTY);
	struct plan_kept kept = small_kept(&small, "lru");
	const struct tc_schedule *s = kept.schedule;
	uint32_t master = small_derived(s, P1, TC_OPTIMIZER_STATE);
	const struct tc_plan_tensor *table = &s->info.tensors[master];
	assert_int_equal(table->role, TC_ROLE_MASTER);
	assert_int_equal(table->bytes, SLOT);
	assert_true(table->placed && table->home == TC_CPU);
	const struct tc_command *update = &s->commands[plan_runs(s, 0, O1)];
	assert_int_equal(update->bind_count, 3);
	assert_non_null(small_bind(update, G1));
	assert_int_equal(small_bind(update, master)->access, TC_READ_WRITE);
	uint64_t convert = plan_find(s, 0, FIND(TC_CONVERT, P1, 0));
	assert_int_equal(small_bind(&s->commands[convert], master)->access, TC_READ);
	assert_int_equal(small_bind(&s->commands[convert], P1)->access, TC_WRITE);
	assert_int_equal(plan_count(s, FIND(TC_CONVERT, TC_NONE, 0)), 2); /* a copy for each */
	plan_kept_free(&kept);
	small_free(&small);
}

/** The first update is that of the first gradient: with a barrier it waits for the last one. */
static void test_barrier(void **state)
{
	(void)state;
	struct small small = small_of(two_layers(false), PLENTY);
	struct plan_kept kept = small_kept(&small, "lru"); /* FP32, no clipping: no barrier */
	const struct tc_schedule *s = kept.schedule;
	uint64_t update = plan_runs(s, 0, O1);
	uint64_t own = plan_find(s, 0, FIND(TC_GRADIENT, G1, 0));
	uint64_t last = plan_find(s, 0, FIND(TC_GRADIENT, G0, 0));
	assert_int_equal(plan_reason(s, update, own), TC_REASON_DATA);
	assert_false(plan_ends_before(s, last, update));
	plan_kept_free(&kept);
	kept = small_kept(&small, "lru:barrier=1");
	s = kept.schedule;
	assert_int_equal(plan_reason(s, plan_runs(s, 0, O1), last), TC_REASON_BARRIER);
	plan_kept_free(&kept);
	small_free(&small);
	/* Computing in fp16 is reason enough: the overflow check. */
	small = small_of(two_layers(true), PLENTY);
	kept = small_kept(&small, "belady");
	s = kept.schedule;
	last = plan_find(s, 0, FIND(TC_GRADIENT, G0, 0));
	assert_true(plan_ends_before(s, last, plan_runs(s, 0, O1)));
	plan_kept_free(&kept);
	small_free(&small);
}

/** The optimizer phase ends with the host waiting for all that it did, write-backs included. */
static void test_end_of_optimizer_waits(void **state)
{
	(void)state;
	struct small small = small_of(two_layers(true), PLENTY);
	static const char *const policies[] = {"lru", "belady:state=nvme", "10cache:slack=0",
	                                       "zero-infinity:reduce-bucket-size=1000"};
	for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
		struct plan_kept kept = small_kept(&small, policies[p]);
		const struct tc_schedule *s = kept.schedule;
		uint64_t next = plan_runs(s, 1, F0), work = 0;
		for (uint64_t c = plan_runs(s, 0, O1); c < next; c++) {
			enum tc_command_kind kind = s->commands[c].kind;
			if (s->commands[c].iteration != 0 ||
			    (kind != TC_UPDATE && kind != TC_CONVERT && kind != TC_PUBLISH &&
			     kind != TC_SPILL))
				continue;
			work++;
			assert_true(plan_ends_before(s, c, next));
		}
		assert_true(work >= 4);
		/* ... by a wait, not by chance of dependencies. */
		uint64_t wait = plan_find(s, plan_runs(s, 0, O0), FIND(TC_WAIT, TC_NONE, 0));
		assert_true(wait < next);
		plan_kept_free(&kept);
	}
	small_free(&small);
}

/* ---------------------------------------------------------------- state on NVMe */

/**
 * State that lives on the drive and is used on the GPU comes in chunks of 1 MiB through host
 * memory: ceil(3.5 MiB / 1 MiB) = 4. Chunk k of the second hop waits for chunk k of the first, and
 * of the first hop for nothing else.
 */
static void test_two_hops_in_chunks(void **state)
{
	(void)state;
	static const uint64_t bytes[] = {(UINT64_C(7) << 19)};
	const struct test_model model = {.layers = 1, .param_bytes = bytes, .param_bytes_count = 1};
	struct small small = small_of(test_model_builder(&model), UINT64_C(64) << 20);
	plan_case_override(small.machine, "chunk", UINT64_C(1) << 20);
	struct plan_kept kept = small_kept(&small, "lru:state=nvme:optimizer=gpu");
	const struct tc_schedule *s = kept.schedule;
	uint64_t at = plan_find(s, 0, FIND(TC_LOAD, TC_NONE, 0));
	uint32_t tensor = s->commands[at].tensor;
	assert_int_equal(small.trace->tensors[tensor].kind, TC_OPTIMIZER_STATE);
	for (uint64_t k = 0; k < 4; k++) {
		const struct tc_command *load = &s->commands[at + 2 * k], *fetch = load + 1;
		uint64_t size = k < 3 ? UINT64_C(1) << 20 : UINT64_C(1) << 19;
		assert_true(load->kind == TC_LOAD && fetch->kind == TC_FETCH);
		assert_true(load->tensor == tensor && fetch->tensor == tensor);
		assert_int_equal(load->queue, TC_QUEUE_NVME_READ);
		assert_int_equal(fetch->queue, TC_QUEUE_H2D);
		assert_int_equal(load->bytes, size);
		assert_int_equal(fetch->bytes, size);
		assert_int_equal(load->tensor_offset, k << 20);
		assert_int_equal(fetch->tensor_offset, k << 20);
		assert_int_equal(load->dst.pool, fetch->src.pool);
		assert_int_equal(load->dst.offset, fetch->src.offset);
		assert_int_equal(load->first_chunk, k == 0);
		assert_int_equal(fetch->last_chunk, k == 3);
		assert_int_equal(plan_reason(s, fetch->id, load->id), TC_REASON_DATA);
		if (k > 0) {
			assert_int_equal(fetch->dep_count, 1);
			assert_int_equal(load->dep_count, 0);
		}
	}
	assert_int_equal(plan_count(s, FIND(TC_LOAD, tensor, 0)), 4);
	plan_kept_free(&kept);
	small_free(&small);
}

/** State homed on the drive and updated on the CPU: loaded, updated, written back. */
static void test_state_on_nvme(void **state)
{
	(void)state;
	struct small small = small_of(two_layers(true), PLENTY);
	struct plan_kept kept = small_kept(&small, "lru:state=nvme");
	const struct tc_schedule *s = kept.schedule;
	uint64_t load = plan_find(s, 0, FIND(TC_LOAD, M1, 0)), update = plan_runs(s, 0, O1);
	uint64_t spill = plan_find(s, 0, FIND(TC_SPILL, M1, 0));
	assert_true(load < update && update < spill);
	assert_true(plan_ends_before(s, load, update));
	assert_int_equal(plan_reason(s, spill, update), TC_REASON_DATA);
	assert_int_equal(s->commands[spill].version, 1);
	assert_true(plan_ends_before(s, spill, plan_find(s, spill, FIND(TC_LOAD, M1, 1))));
	plan_kept_free(&kept);
	small_free(&small);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_one_slot_by_hand),
	    cmocka_unit_test(test_memory_given_back_on_completion),
	    cmocka_unit_test(test_gradient_path_fp16),
	    cmocka_unit_test(test_publish),
	    cmocka_unit_test(test_no_publish_without_a_copy),
	    cmocka_unit_test(test_derived_master),
	    cmocka_unit_test(test_barrier),
	    cmocka_unit_test(test_end_of_optimizer_waits),
	    cmocka_unit_test(test_two_hops_in_chunks),
	    cmocka_unit_test(test_state_on_nvme),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
