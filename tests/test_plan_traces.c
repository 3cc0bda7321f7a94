/*
 * Traces of unusual kinds through the planner: unpacked activations, no events, requests from
 * reads, several micro-batches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "small_plan.h"

/* ---------------------------------------------------------------- activations that are unpacked */

/**
 * Room for two activations of 512 bytes. Step 2 unpacks A, which no op there reads; step 3 reads B
 * and C, so that A must leave again. An unpack is a use like any other.
 */
static void test_unpacked_tensors_can_leave(void **state)
{
	(void)state;
	struct test_builder *b = test_builder_new();
	uint32_t in = test_add_tensor(b, TC_INPUT, SLOT),
	         one = test_add_tensor(b, TC_ACTIVATION, SLOT);
	uint32_t two = test_add_tensor(b, TC_ACTIVATION, SLOT);
	uint32_t three = test_add_tensor(b, TC_ACTIVATION, SLOT);
	uint32_t t = test_add_tensor(b, TC_TEMP, SLOT);
	uint32_t m = test_add_module(b, "m", TEST_NO_IDS);
	test_add_event(b, TC_EVENT_START, TC_NONE);
	small_forward(b, m, TEST_IDS(in), TEST_IDS(one));
	small_forward(b, m, TEST_IDS(in), TEST_IDS(two, three));
	test_add_event(b, TC_EVENT_BACKWARD_START, TC_NONE);
	uint32_t event = test_add_event(b, TC_EVENT_BACKWARD, m);
	test_add_op(b, TC_BACKWARD, m, TEST_IDS(two), TEST_IDS(t));
	test_add_unpack(b, one, TEST_IDS(event));
	test_add_event(b, TC_EVENT_BACKWARD, m);
	test_add_op(b, TC_BACKWARD, m, TEST_IDS(two, three), TEST_IDS(t));
	test_add_event(b, TC_EVENT_BACKWARD, m);
	test_add_op(b, TC_BACKWARD, m, TEST_IDS(one), TEST_IDS(t));
	test_add_event(b, TC_EVENT_END, TC_NONE);
	/* Input and temporary are not managed: two more slots. */
	struct small small = small_of(b, 4 * SLOT);
	static const char *const policies[] = {"lru:activations=1", "belady:activations=1"};
	for (size_t p = 0; p < 2; p++) {
		struct plan_kept kept = small_kept(&small, policies[p]);
		/* Away for step 1, back for step 2, away for step 3, back for step 4. */
		assert_int_equal(plan_count(kept.schedule, FIND(TC_FETCH, one, 0)), 2);
		plan_kept_free(&kept);
	}
	small_free(&small);
}

/* ---------------------------------------------------------------- traces without events */

static void test_without_events(void **state)
{
	(void)state;
	static const char *const policies[] = {"ideal", "lru", "belady:optimizer=gpu",
	                                       "10cache:slack=0",
	                                       "zero-infinity:device=cpu:reduce-bucket-size=1000"};
	for (int half = 0; half < 2; half++) {
		const struct test_model model = {
		    .layers = 3, .params_per_module = 2, .no_events = true, .half = half != 0};
		struct small small = small_of(test_model_builder(&model), PLENTY);
		for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
			struct plan_case plan = small_case(&small, policies[p]);
			plan.requests = TC_REQUESTS_READS;
			struct outcome outcome = plan_and_check(&plan, p);
			if (outcome.status != TC_OK)
				fail_msg("%s: %s", policies[p], outcome.text);
			struct plan_kept kept = plan_case_keep(&plan);
			assert_false(kept.schedule->info.drives);
			plan_kept_free(&kept);
		}
		small_free(&small);
	}
}

/**
 * The second parameter of the first leaf belongs to no module that is ever called, though ops read
 * it (out_proj of nn.MultiheadAttention): no hook asks for it. Every policy must still have it
 * where it is read, with its size shared with others or its own; 10cache keeps it on the GPU.
 */
static void test_parameter_that_no_module_asks_for(void **state)
{
	(void)state;
	static const char *const policies[] = {
	    "ideal",
	    "lru",
	    "belady:optimizer=gpu",
	    "10cache",
	    "10cache:resident=2",
	    "10cache:slack=0:opt-prefetch=0",
	    "zero-infinity:device=cpu:reduce-bucket-size=1000",
	    "zero-infinity:device=nvme:reduce-bucket-size=1000:param-persistence-threshold=0"};
	static const uint64_t sizes[] = {1024, 2048, 1024, 1024};
	for (int own = 0; own < 2; own++) {
		const struct test_model model = {.layers = 3,
		                                 .params_per_module = 2,
		                                 .half = true,
		                                 .param_bytes = sizes,
		                                 .param_bytes_count = own ? 4 : 1};
		struct test_builder *b = test_model_builder(&model);
		for (size_t m = 0; m < b->module_count; m++)
			for (size_t i = 0; i < b->modules[m].params.count; i++)
				if (b->modules[m].params.items[i] == 2)
					b->modules[m].params.count = i;
		struct small small = small_of(b, PLENTY);
		for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
			struct plan_case plan = small_case(&small, policies[p]);
			struct outcome outcome = plan_and_check(&plan, p);
			if (outcome.status != TC_OK)
				fail_msg("%s: %s", policies[p], outcome.text);
			if (strncmp(policies[p], "10cache", 7) != 0)
				continue;
			struct plan_kept kept = plan_case_keep(&plan);
			assert_int_equal(kept.schedule->info.tensors[2].home, TC_GPU);
			assert_int_equal(plan_count(kept.schedule, FIND(TC_FETCH, 2, ANY)), 0);
			assert_int_equal(plan_count(kept.schedule, FIND(TC_PUBLISH, 2, 0)), 1);
			plan_kept_free(&kept);
		}
		small_free(&small);
	}
}

/** An import with clipped gradients: the ops that take the norm read every gradient before the
 * first update, and belong to none. */
static void test_norms_without_events(void **state)
{
	(void)state;
	static const char *const policies[] = {"lru", "belady", "10cache:slack=0",
	                                       "zero-infinity:reduce-bucket-size=1000"};
	const struct test_model model = {
	    .layers = 3, .params_per_module = 2, .no_events = true, .half = true};
	struct test_builder *b = test_model_builder(&model);
	size_t first = 0;
	while (b->ops[first].phase != TC_OPTIMIZER)
		first++;
	const size_t updates = b->op_count - first;
	/* Norm ops go behind the others, then change places with the updates. */
	uint32_t norm = test_add_tensor(b, TC_TEMP, 4);
	for (size_t i = 0; i < updates; i++) {
		uint32_t op = TC_NONE;
		for (size_t r = 0; r < b->ops[first + i].reads.count; r++) {
			uint32_t t = b->ops[first + i].reads.items[r];
			if (b->tensors[t].kind == TC_GRAD)
				op = test_add_op(b, TC_OPTIMIZER, TC_NONE, TEST_IDS(t),
				                 TEST_IDS(norm));
		}
		assert_int_not_equal(op, TC_NONE);
	}
	for (size_t i = 0; i < updates; i++) {
		struct test_op kept = b->ops[first + i];
		b->ops[first + i] = b->ops[first + updates + i];
		b->ops[first + updates + i] = kept;
	}
	test_ids_add(&b->ops[first].allocates, norm);
	test_ids_add(&b->ops[first + updates - 1].frees, norm);
	test_ids_add(&b->ops[first + updates - 1].frees_eager, norm);
	struct small small = small_of(b, PLENTY);
	for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
		struct plan_case plan = small_case(&small, policies[p]);
		plan.requests = TC_REQUESTS_READS;
		struct outcome outcome = plan_and_check(&plan, p);
		if (outcome.status != TC_OK)
			fail_msg("%s: %s", policies[p], outcome.text);
	}
	small_free(&small);
}

/** Gradients that no op frees die at the end of the iteration: the next one starts without any, in
 * whatever form. */
static void test_gradients_that_nothing_frees(void **state)
{
	(void)state;
	static const char *const policies[] = {"lru", "10cache:slack=0",
	                                       "zero-infinity:reduce-bucket-size=1000"};
	const struct test_model model = {.layers = 3, .params_per_module = 2, .half = true};
	struct test_builder *b = test_model_builder(&model);
	for (size_t o = 0; o < b->op_count; o++)
		if (b->ops[o].phase == TC_OPTIMIZER)
			b->ops[o].frees.count = b->ops[o].frees_eager.count = 0;
	struct small small = small_of(b, PLENTY);
	for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
		struct plan_kept kept = small_kept(&small, policies[p]);
		int64_t level = 0;
		for (uint64_t i = 0; i < kept.schedule->command_count; i++) {
			const struct tc_command *c = &kept.schedule->commands[i];
			for (uint32_t m = 0; m < c->memory_count; m++)
				if (c->memory[m].kind == TC_GRAD)
					level += c->memory[m].bytes;
			if (c->kind == TC_COMPUTE && c->iteration == 1) {
				assert_int_equal(level, 0);
				break;
			}
		}
		plan_kept_free(&kept);
	}
	small_free(&small);
}

/** A buffer that no op touches is on the GPU all the same: it has its place in memory and keeps its
 * content, and the pool is larger by it. */
static void test_buffer_that_nothing_touches(void **state)
{
	(void)state;
	static const char *const policies[] = {"ideal", "lru", "belady:optimizer=gpu", "10cache",
	                                       "zero-infinity:reduce-bucket-size=1000"};
	for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
		uint64_t pool[2];
		for (int with = 0; with < 2; with++) {
			struct test_builder *b = test_model_builder(&(struct test_model){0});
			uint32_t buffer = with ? test_add_tensor(b, TC_BUFFER, 5 * SLOT) : TC_NONE;
			struct small small = small_of(b, PLENTY);
			struct plan_kept kept = small_kept(&small, policies[p]);
			const struct tc_plan_info *info = &kept.schedule->info;
			uint32_t index = small_pool(kept.schedule, "unmanaged");
			pool[with] = info->pools[index].bytes;
			if (with) {
				assert_true(info->tensors[buffer].placed);
				assert_int_equal(info->tensors[buffer].start.pool, index);
			}
			plan_kept_free(&kept);
			small_free(&small);
		}
		assert_int_equal(pool[1], pool[0] + 5 * SLOT);
	}
}

static uint64_t updates_of(const struct plan_case *plan)
{
	struct plan_kept kept = plan_case_keep(plan);
	uint64_t count = 0;
	for (uint64_t i = 0; i < kept.schedule->command_count; i++)
		count += kept.schedule->commands[i].kind == TC_UPDATE;
	plan_kept_free(&kept);
	return count;
}

/** Without events a bucket of the header is one update: six parameters in buckets of four and two
 * make two updates an iteration, in two iterations four. */
static void test_buckets_without_events(void **state)
{
	(void)state;
	static const char *const policies[] = {"lru", "10cache:slack=0",
	                                       "zero-infinity:reduce-bucket-size=1000"};
	const struct test_model model = {.layers = 3, .params_per_module = 2, .no_events = true};
	struct test_builder *b = test_model_builder(&model);
	assert_int_equal(b->bucket_count, 6);
	struct test_ids *first = &b->buckets[0], *second = &b->buckets[1];
	uint32_t params[6];
	for (size_t i = 0; i < 6; i++)
		params[i] = b->buckets[i].items[0];
	first->items = realloc(first->items, 4 * sizeof *first->items);
	second->items = realloc(second->items, 2 * sizeof *second->items);
	assert_non_null(first->items);
	assert_non_null(second->items);
	memcpy(first->items, params, 4 * sizeof *params);
	memcpy(second->items, params + 4, 2 * sizeof *params);
	first->count = first->capacity = 4;
	second->count = second->capacity = 2;
	for (size_t i = 2; i < 6; i++)
		free(b->buckets[i].items);
	b->bucket_count = 2;
	struct small small = small_of(b, PLENTY);
	for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
		struct plan_case plan = small_case(&small, policies[p]);
		plan.requests = TC_REQUESTS_READS;
		struct outcome outcome = plan_and_check(&plan, p);
		if (outcome.status != TC_OK)
			fail_msg("%s: %s", policies[p], outcome.text);
		assert_int_equal(updates_of(&plan), 4);
	}
	small_free(&small);
}

/** Nothing says which optimizer ops belong together: only the GPU can run them. */
static void test_without_events_and_buckets(void **state)
{
	(void)state;
	const struct test_model model = {.layers = 2, .no_events = true};
	struct test_builder *b = test_model_builder(&model);
	for (size_t i = 0; i < b->bucket_count; i++)
		b->buckets[i].count = 0;
	size_t buckets = b->bucket_count;
	b->bucket_count = 0;
	struct tc_trace *trace = test_builder_trace(b);
	b->bucket_count = buckets;
	test_builder_free(b);
	struct small small = {trace, plan_case_machine(NULL)};
	struct tc_error error = {0};
	struct plan_case plan = small_case(&small, "lru");
	plan.requests = TC_REQUESTS_READS;
	assert_int_equal(plan_case_run(&plan, NULL, NULL, &error), TC_INFEASIBLE);
	assert_non_null(strstr(error.text, "policy lru"));
	assert_non_null(strstr(error.text, "optimizer=gpu"));
	plan.policy = "lru:optimizer=gpu";
	assert_int_equal(plan_and_check(&plan, 0).status, TC_OK);
	small_free(&small);
}

/** With requests=reads, only what ops read is asked for: module a owns a parameter that none
 * reads. */
static void test_requests_are_reads(void **state)
{
	(void)state;
	struct test_builder *b = test_builder_new();
	uint32_t p = test_add_tensor(b, TC_PARAM, SLOT),
	         unread = test_add_tensor(b, TC_PARAM, SLOT);
	uint32_t x = test_add_tensor(b, TC_ACTIVATION, SLOT);
	uint32_t m = test_add_module(b, "a", TEST_IDS(p, unread));
	test_add_event(b, TC_EVENT_START, TC_NONE);
	small_forward(b, m, TEST_IDS(p), TEST_IDS(x));
	test_add_event(b, TC_EVENT_END, TC_NONE);
	struct small small = small_of(b, PLENTY);
	struct plan_case plan = small_case(&small, "lru");
	struct plan_kept kept = plan_case_keep(&plan);
	assert_int_equal(plan_count(kept.schedule, FIND(TC_FETCH, unread, ANY)), 1);
	assert_int_equal(kept.schedule->commands[plan_runs(kept.schedule, 0, 0)].served_count, 2);
	plan_kept_free(&kept);
	plan.requests = TC_REQUESTS_READS;
	kept = plan_case_keep(&plan);
	assert_int_equal(plan_count(kept.schedule, FIND(TC_FETCH, unread, ANY)), 0);
	assert_int_equal(kept.schedule->commands[plan_runs(kept.schedule, 0, 0)].served_count, 1);
	plan_kept_free(&kept);
	small_free(&small);
}

/** A gradient that comes once for each micro-batch: lru accumulates, 10cache says that it cannot.
 */
static void test_micro_batches(void **state)
{
	(void)state;
	struct test_builder *b = test_builder_new();
	uint32_t p = test_add_tensor(b, TC_PARAM, SLOT), g = test_add_tensor(b, TC_GRAD, SLOT);
	uint32_t x = test_add_tensor(b, TC_ACTIVATION, SLOT);
	test_tensor(b, g)->of = p;
	snprintf(test_tensor(b, p)->name, 64, "weight");
	uint32_t m = test_add_module(b, "a", TEST_IDS(p));
	test_add_event(b, TC_EVENT_START, TC_NONE);
	for (uint32_t i = 0; i < 2; i++) {
		test_add_event(b, TC_EVENT_MICRO_BATCH, i);
		small_forward(b, m, TEST_IDS(p), TEST_IDS(x));
		test_add_event(b, TC_EVENT_BACKWARD_START, TC_NONE);
		test_add_event(b, TC_EVENT_BACKWARD, m);
		test_add_op(b, TC_BACKWARD, m, i == 0 ? TEST_IDS(p, x) : TEST_IDS(p, x, g),
		            TEST_IDS(g));
		test_add_event(b, TC_EVENT_GRADIENT, p);
	}
	test_add_event(b, TC_EVENT_OPTIMIZER, test_add_bucket(b, TEST_IDS(p)));
	test_add_op(b, TC_OPTIMIZER, TC_NONE, TEST_IDS(p, g), TEST_IDS(p));
	test_add_event(b, TC_EVENT_END, TC_NONE);
	struct small small = small_of(b, PLENTY);
	struct plan_kept kept = small_kept(&small, "lru");
	/* Down after the first, up to be added to, down again. */
	assert_int_equal(plan_count(kept.schedule, FIND(TC_GRADIENT, g, 0)), 3);
	plan_kept_free(&kept);
	struct plan_case plan = small_case(&small, "10cache:slack=0");
	struct tc_error error = {0};
	assert_int_equal(plan_case_run(&plan, NULL, NULL, &error), TC_INFEASIBLE);
	assert_non_null(strstr(error.text, "weight"));
	assert_non_null(strstr(error.text, "micro-batch"));
	small_free(&small);
}

/** Two micro-batches in an import, without events: gradients wait on the GPU, where the second adds
 * to them, and come down once, after it. */
static void test_micro_batches_without_events(void **state)
{
	(void)state;
	static const char *const policies[] = {"lru", "belady", "10cache:slack=0",
	                                       "zero-infinity:reduce-bucket-size=1000",
	                                       "zero-infinity:reduce-bucket-size=0"};
	struct test_builder *b = test_builder_new();
	uint32_t p = test_add_tensor(b, TC_PARAM, SLOT), g = test_add_tensor(b, TC_GRAD, SLOT);
	uint32_t x = test_add_tensor(b, TC_ACTIVATION, SLOT);
	test_tensor(b, g)->of = p;
	uint32_t m = test_add_module(b, "a", TEST_IDS(p));
	(void)test_add_bucket(b, TEST_IDS(p));
	for (uint32_t i = 0; i < 2; i++) {
		test_add_op(b, TC_FORWARD, m, TEST_IDS(p), TEST_IDS(x));
		test_add_op(b, TC_BACKWARD, m, i == 0 ? TEST_IDS(p, x) : TEST_IDS(p, x, g),
		            TEST_IDS(g));
	}
	test_add_op(b, TC_OPTIMIZER, TC_NONE, TEST_IDS(p, g), TEST_IDS(p));
	struct small small = small_of(b, PLENTY);
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
		struct plan_case plan = small_case(&small, policies[i]);
		plan.requests = TC_REQUESTS_READS;
		struct outcome outcome = plan_and_check(&plan, i);
		if (outcome.status != TC_OK)
			fail_msg("%s: %s", policies[i], outcome.text);
	}
	small_free(&small);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_unpacked_tensors_can_leave),
	    cmocka_unit_test(test_without_events),
	    cmocka_unit_test(test_parameter_that_no_module_asks_for),
	    cmocka_unit_test(test_buffer_that_nothing_touches),
	    cmocka_unit_test(test_norms_without_events),
	    cmocka_unit_test(test_gradients_that_nothing_frees),
	    cmocka_unit_test(test_buckets_without_events),
	    cmocka_unit_test(test_without_events_and_buckets),
	    cmocka_unit_test(test_requests_are_reads),
	    cmocka_unit_test(test_micro_batches),
	    cmocka_unit_test(test_micro_batches_without_events),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
