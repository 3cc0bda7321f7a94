/*
 * Steps and requests, worked out on paper: a hand-made trace, a recomputation that stops early,
 * micro-batches, a module without backward event.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "steps_checks.h"

/* ---------------------------------------------------------------- the hand-made example */

static struct tc_trace *read_example(void)
{
	if (access(TENCACHE_CASES_DIR "/trace-v1/mlp.json", R_OK) != 0) {
		print_message("skipped: no cases\n");
		skip();
	}
	return test_read_trace(TENCACHE_CASES_DIR "/trace-v1/mlp.json");
}

/**
 * The ops' events are 3, 5, 7, 8, 10, 12 (three ops), 15, 16 (two), 19, 20, 21, 22: twelve runs.
 * The events of a boundary are those after the event of the step before, up to the step's own.
 */
static void example_steps(void **state)
{
	(void)state;
	static const uint32_t first_op[] = {0, 1, 2, 3, 4, 5, 8, 9, 11, 12, 13, 14};
	static const uint32_t first_event[] = {0, 4, 6, 8, 9, 11, 13, 16, 17, 20, 21, 22, 23};
	static const uint32_t module[] = {1, 2, 3,       3,       0,       3,
	                                  2, 1, TC_NONE, TC_NONE, TC_NONE, TC_NONE};
	struct tc_trace *trace = read_example();
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
	assert_int_equal(steps->step_count, 12);
	for (uint32_t s = 0; s < 12; s++) {
		assert_int_equal(steps->steps[s].first_op, first_op[s]);
		assert_int_equal(steps->steps[s].last_op, s == 11 ? 14 : first_op[s + 1] - 1);
		assert_int_equal(steps->steps[s].first_event, first_event[s]);
		assert_int_equal(steps->steps[s].event_count, first_event[s + 1] - first_event[s]);
		assert_int_equal(steps->steps[s].module, module[s]);
	}
	assert_int_equal(steps->steps[12].event_count, 1);
	assert_int_equal(steps->steps[3].phase, TC_FORWARD);
	assert_int_equal(steps->steps[4].phase, TC_BACKWARD);
	assert_int_equal(steps->steps[8].phase, TC_OPTIMIZER);
	assert_ids_equal(steps->steps[5].reads, TEST_IDS(17, 3, 14));
	assert_ids_equal(steps->steps[5].writes, TEST_IDS(20, 18, 19));
	assert_ids_equal(steps->steps[5].allocates, TEST_IDS(20, 18, 19));
	assert_ids_equal(steps->steps[5].frees, TEST_IDS(17));
	assert_ids_equal(steps->steps[11].frees, TEST_IDS(19));
	char text[80];
	assert_string_equal(tc_step_describe(steps, 2, text, sizeof text), "forward step 2 (fc2)");
	assert_string_equal(tc_step_describe(steps, 8, text, sizeof text),
	                    "optimizer step 8 (optim.adamw)");
	assert_string_equal(tc_step_describe(steps, 12, text, sizeof text), "end of the iteration");
	tc_steps_free(steps);
	tc_trace_free(trace);
}

/**
 * fc1 (module 1): forward_pre e3 at boundary 0, forward_post e4 at boundary 1; backward e16 at
 * boundary 7, its last op is in step 7. fc2 (module 3): e7 at 2, e8 at 3; e12 at 5, last op in
 * step 5. The two others own nothing.
 */
static void example_requests(void **state)
{
	(void)state;
	struct tc_trace *trace = read_example();
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
	assert_int_equal(steps->request_count, 4);
	assert_int_equal(steps->row_count, 8);
	assert_int_equal(steps->forward_row_count, 4);
	assert_int_equal(steps->recompute_row_count, 0);
	assert_request_equal(steps, 0, 1, TC_PASS_FORWARD, 0, 1, TEST_IDS(1, 2));
	assert_request_equal(steps, 1, 3, TC_PASS_FORWARD, 2, 3, TEST_IDS(3, 4));
	assert_request_equal(steps, 2, 3, TC_PASS_BACKWARD, 5, 6, TEST_IDS(3, 4));
	assert_request_equal(steps, 3, 1, TC_PASS_BACKWARD, 7, 8, TEST_IDS(1, 2));
	assert_ids_equal(steps->steps[5].opening, TEST_IDS(2));
	assert_ids_equal(steps->steps[6].closing, TEST_IDS(2));
	assert_ids_equal(steps->steps[5].requested, TEST_IDS(3, 4));
	assert_ids_equal(steps->steps[6].requested, TEST_NO_IDS);
	/* fc1.weight: requested in steps 0 and 7, updated in 8. fc2.bias: 2, 5 (no op reads
	 * it), 11. */
	assert_ids_equal((struct tc_ids){steps->use_steps + steps->use_first[1],
	                                 steps->use_first[2] - steps->use_first[1]},
	                 TEST_IDS(0, 7, 8));
	assert_ids_equal((struct tc_ids){steps->use_steps + steps->use_first[4],
	                                 steps->use_first[5] - steps->use_first[4]},
	                 TEST_IDS(2, 5, 11));
	assert_int_equal(tc_steps_next_use(steps, 1, 0), 0);
	assert_int_equal(tc_steps_next_use(steps, 1, 1), 7);
	assert_int_equal(tc_steps_next_use(steps, 1, 8), 8);
	assert_int_equal(tc_steps_next_use(steps, 1, 9), 12); /* step 0 of the next iteration */
	assert_int_equal(tc_steps_next_use(steps, 4, 12), 14);
	tc_steps_free(steps);
	tc_trace_free(trace);
}

/** By reads: addmm reads bias first; backward reads fc2.weight alone; the optimizer asks for
 * nothing, it runs where its state is. */
static void example_requests_by_reads(void **state)
{
	(void)state;
	struct tc_trace *trace = read_example();
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_READS);
	assert_int_equal(steps->request_count, 3);
	assert_request_equal(steps, 0, 1, TC_PASS_FORWARD, 0, 1, TEST_IDS(2, 1));
	assert_request_equal(steps, 1, 3, TC_PASS_FORWARD, 2, 3, TEST_IDS(4, 3));
	assert_request_equal(steps, 2, 3, TC_PASS_BACKWARD, 5, 6, TEST_IDS(3));
	tc_steps_free(steps);
	tc_trace_free(trace);
}

static void example_by_op(void **state)
{
	(void)state;
	struct tc_trace *trace = read_example();
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_OP, TC_REQUESTS_HOOK);
	assert_int_equal(steps->step_count, 15);
	/* fc2 backward: ops 5, 6, 7; fc1: ops 9, 10. */
	assert_request_equal(steps, 2, 3, TC_PASS_BACKWARD, 5, 8, TEST_IDS(3, 4));
	assert_request_equal(steps, 3, 1, TC_PASS_BACKWARD, 9, 11, TEST_IDS(1, 2));
	assert_int_equal(steps->steps[6].event_count, 0);
	assert_int_equal(steps->steps[8].event_count, 3); /* events 13, 14, 15 */
	tc_steps_free(steps);
	tc_trace_free(trace);
}

/** Eager frees: PyTorch keeps gradients to the end of the iteration. */
static void example_eager(void **state)
{
	(void)state;
	struct tc_trace *trace = read_example();
	struct tc_steps *steps = NULL;
	assert_int_equal(tc_steps_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                                 TC_FREES_EAGER, &steps, NULL),
	                 TC_OK);
	assert_ids_equal(steps->steps[11].frees, TEST_IDS(22, 23, 18, 19, 16));
	assert_ids_equal(steps->steps[8].frees, TEST_NO_IDS);
	tc_steps_free(steps);
	tc_trace_free(trace);
}

/* ---------------------------------------------------------------- recomputation */

/**
 * One layer of two leaves (modules 2 and 3, parameters 1 and 2), checkpointed.
 * Forward: steps 0 (leaf 2), 1 (leaf 3), 2 (loss). Step 3: the op after backward_start.
 * Whole recomputation: steps 4 (leaf 2 again), 5 (leaf 3 again), 6 (leaf 3 backward), 7 (leaf 2).
 * Stopped early: leaf 3 has no op again: steps 4 (leaf 2 again), 5 (leaf 3 backward), 6 (leaf 2).
 * Its recomputation opens at boundary 5, where the backward event that would close it is too, so
 * it closes after the next step.
 */
static void recomputation(void **state)
{
	(void)state;
	for (int early = 0; early < 2; early++) {
		const struct test_model model = {.layers = 1,
		                                 .modules_per_layer = 2,
		                                 .checkpoint = true,
		                                 .early_stop = early != 0,
		                                 .no_optimizer = true};
		struct tc_trace *trace = test_model_trace(&model);
		struct tc_steps *steps =
		    test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
		assert_int_equal(steps->step_count, early ? 7 : 8);
		assert_int_equal(steps->request_count, 6);
		assert_request_equal(steps, 0, 2, TC_PASS_FORWARD, 0, 1, TEST_IDS(1));
		assert_request_equal(steps, 1, 3, TC_PASS_FORWARD, 1, 2, TEST_IDS(2));
		assert_request_equal(steps, 2, 2, TC_PASS_RECOMPUTE, 4, 5, TEST_IDS(1));
		assert_request_equal(steps, 3, 3, TC_PASS_RECOMPUTE, 5, 6, TEST_IDS(2));
		uint32_t backward = early ? 5 : 6;
		assert_request_equal(steps, 4, 3, TC_PASS_BACKWARD, backward, backward + 1,
		                     TEST_IDS(2));
		assert_request_equal(steps, 5, 2, TC_PASS_BACKWARD, backward + 1, backward + 2,
		                     TEST_IDS(1));
		assert_int_equal(steps->forward_row_count, 2);
		assert_int_equal(steps->recompute_row_count, 2);
		assert_true(steps->steps[4].recompute && !steps->steps[backward].recompute);
		tc_steps_free(steps);
		tc_trace_free(trace);
	}
}

/**
 * A recomputation of module a stops before any op, while ops of its child b still run again, in two
 * steps; only then a backward event comes. Step 0: after backward_start; 1, 2: b again, in two
 * calls; 3: b backward. a is open from boundary 1 to the backward event at boundary 3.
 */
static void stopped_recomputation_waits_for_backward(void **state)
{
	(void)state;
	struct test_builder *b = test_builder_new();
	uint32_t p = test_add_tensor(b, TC_PARAM, 4), g = test_add_tensor(b, TC_TEMP, 4);
	uint32_t a = test_add_module(b, "a", TEST_IDS(p)), c = test_add_module(b, "b", TEST_NO_IDS);
	test_add_event(b, TC_EVENT_START, TC_NONE);
	test_add_event(b, TC_EVENT_FORWARD_PRE, a);
	test_add_event(b, TC_EVENT_FORWARD_PRE, c);
	test_add_event(b, TC_EVENT_BACKWARD_START, TC_NONE);
	test_add_op(b, TC_BACKWARD, TC_NONE, TEST_NO_IDS, TEST_IDS(g));
	test_add_event(b, TC_EVENT_FORWARD_PRE, a);
	for (int call = 0; call < 2; call++) {
		test_add_event(b, TC_EVENT_FORWARD_PRE, c);
		uint32_t again = test_add_op(b, TC_BACKWARD, c, TEST_IDS(g), TEST_NO_IDS);
		test_op(b, again)->recompute = true;
		test_add_event(b, TC_EVENT_FORWARD_POST, c);
	}
	test_add_event(b, TC_EVENT_FORWARD_POST, a);
	test_add_event(b, TC_EVENT_BACKWARD, c);
	test_add_op(b, TC_BACKWARD, c, TEST_IDS(g), TEST_NO_IDS);
	test_add_event(b, TC_EVENT_GRADIENT, p);
	test_add_op(b, TC_BACKWARD, TC_NONE, TEST_IDS(g), TEST_NO_IDS);
	test_add_event(b, TC_EVENT_END, TC_NONE);
	test_fill_lifetimes(b);
	struct tc_trace *trace = test_builder_trace(b);
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
	/* The forward call of a never ends and has no op: open over the step that follows it. */
	assert_int_equal(steps->request_count, 2);
	assert_request_equal(steps, 0, a, TC_PASS_FORWARD, 0, 1, TEST_IDS(p));
	assert_request_equal(steps, 1, a, TC_PASS_RECOMPUTE, 1, 3, TEST_IDS(p));
	tc_steps_free(steps);
	tc_trace_free(trace);
	test_builder_free(b);
}

/** A module with an op of its own before that of its child stays open until its forward_post. */
static void forward_lasts_until_its_post(void **state)
{
	(void)state;
	struct test_builder *b = test_builder_new();
	uint32_t p = test_add_tensor(b, TC_PARAM, 4), q = test_add_tensor(b, TC_PARAM, 4);
	uint32_t a = test_add_module(b, "a", TEST_IDS(p));
	uint32_t c = test_add_module(b, "a.b", TEST_IDS(q));
	test_add_event(b, TC_EVENT_START, TC_NONE);
	test_add_event(b, TC_EVENT_FORWARD_PRE, a);
	test_add_op(b, TC_FORWARD, a, TEST_IDS(p), TEST_NO_IDS);
	test_add_event(b, TC_EVENT_FORWARD_PRE, c);
	test_add_op(b, TC_FORWARD, c, TEST_IDS(q), TEST_NO_IDS);
	test_add_event(b, TC_EVENT_FORWARD_POST, c);
	test_add_event(b, TC_EVENT_FORWARD_POST, a);
	test_add_op(b, TC_FORWARD, TC_NONE, TEST_IDS(q), TEST_NO_IDS);
	test_add_event(b, TC_EVENT_END, TC_NONE);
	struct tc_trace *trace = test_builder_trace(b);
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
	assert_int_equal(steps->request_count, 2);
	assert_request_equal(steps, 0, a, TC_PASS_FORWARD, 0, 2, TEST_IDS(p));
	assert_request_equal(steps, 1, c, TC_PASS_FORWARD, 1, 2, TEST_IDS(q));
	assert_ids_equal(steps->steps[1].requested, TEST_IDS(p, q));
	assert_ids_equal(steps->steps[2].closing, TEST_IDS(0, 1)); /* in the order of opening */
	tc_steps_free(steps);
	tc_trace_free(trace);
	test_builder_free(b);
}

/* ---------------------------------------------------------------- special cases of backward */

/** Without a backward event a module's request opens before its first backward op: of the two
 * leaves (modules 2 and 4) the second loses its event, and keeps its request. */
static void module_without_backward_event(void **state)
{
	(void)state;
	const struct test_model model = {.layers = 2, .no_optimizer = true};
	struct test_builder *b = test_model_builder(&model);
	for (size_t i = 0; i < b->event_count; i++) {
		/* An event of a module that owns nothing, in its place: same steps. */
		if (b->events[i].kind == TC_EVENT_BACKWARD && b->events[i].subject == 4)
			b->events[i].subject = 0;
	}
	struct tc_trace *trace = test_builder_trace(b);
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
	/* Steps: 0, 1 forward, 2 loss, 3 after backward_start, 4 leaf 4, 5 leaf 2. */
	assert_int_equal(steps->request_count, 4);
	assert_request_equal(steps, 2, 4, TC_PASS_BACKWARD, 4, 5, TEST_IDS(2));
	assert_request_equal(steps, 3, 2, TC_PASS_BACKWARD, 5, 6, TEST_IDS(1));
	tc_steps_free(steps);
	tc_trace_free(trace);
	test_builder_free(b);
}

/**
 * Hooks on a shared output may run child before parent: an op of the module comes first, its
 * backward event later. The hook asks, not the op: one request, from the event on.
 */
static void op_before_its_backward_event(void **state)
{
	(void)state;
	struct test_builder *b = test_builder_new();
	uint32_t p = test_add_tensor(b, TC_PARAM, 4);
	uint32_t m = test_add_module(b, "m", TEST_IDS(p)), o = test_add_module(b, "o", TEST_NO_IDS);
	test_add_event(b, TC_EVENT_START, TC_NONE);
	test_add_event(b, TC_EVENT_FORWARD_PRE, m);
	test_add_event(b, TC_EVENT_FORWARD_PRE, o);
	test_add_op(b, TC_FORWARD, m, TEST_IDS(p), TEST_NO_IDS);
	test_add_event(b, TC_EVENT_FORWARD_POST, m);
	test_add_event(b, TC_EVENT_BACKWARD_START, TC_NONE);
	test_add_event(b, TC_EVENT_BACKWARD, o);
	test_add_op(b, TC_BACKWARD, m, TEST_IDS(p), TEST_NO_IDS);
	test_add_event(b, TC_EVENT_BACKWARD, m);
	test_add_op(b, TC_BACKWARD, m, TEST_IDS(p), TEST_NO_IDS);
	test_add_event(b, TC_EVENT_END, TC_NONE);
	struct tc_trace *trace = test_builder_trace(b);
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
	assert_int_equal(steps->request_count, 2);
	assert_request_equal(steps, 0, m, TC_PASS_FORWARD, 0, 1, TEST_IDS(p));
	assert_request_equal(steps, 1, m, TC_PASS_BACKWARD, 2, 3, TEST_IDS(p));
	tc_steps_free(steps);
	tc_trace_free(trace);
	test_builder_free(b);
}

/** A module of one parameter, called in two micro-batches: rows f b f b. */
static void micro_batches(void **state)
{
	(void)state;
	struct test_builder *b = test_builder_new();
	uint32_t p = test_add_tensor(b, TC_PARAM, 4), x = test_add_tensor(b, TC_INPUT, 4);
	uint32_t m = test_add_module(b, "m", TEST_IDS(p));
	test_add_event(b, TC_EVENT_START, TC_NONE);
	for (uint32_t i = 0; i < 2; i++) {
		test_add_event(b, TC_EVENT_MICRO_BATCH, i);
		test_add_event(b, TC_EVENT_FORWARD_PRE, m);
		test_add_op(b, TC_FORWARD, m, TEST_IDS(p, x), TEST_NO_IDS);
		test_add_event(b, TC_EVENT_FORWARD_POST, m);
		test_add_event(b, TC_EVENT_BACKWARD_START, TC_NONE);
		test_add_op(b, TC_BACKWARD, TC_NONE, TEST_IDS(x), TEST_NO_IDS);
		test_add_event(b, TC_EVENT_BACKWARD, m);
		test_add_op(b, TC_BACKWARD, m, TEST_IDS(p), TEST_NO_IDS);
	}
	test_add_event(b, TC_EVENT_END, TC_NONE);
	struct tc_trace *trace = test_builder_trace(b);
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
	assert_int_equal(steps->request_count, 4);
	assert_request_equal(steps, 0, m, TC_PASS_FORWARD, 0, 1, TEST_IDS(p));
	assert_request_equal(steps, 1, m, TC_PASS_BACKWARD, 2, 3, TEST_IDS(p));
	assert_request_equal(steps, 2, m, TC_PASS_FORWARD, 3, 4, TEST_IDS(p));
	assert_request_equal(steps, 3, m, TC_PASS_BACKWARD, 5, 6, TEST_IDS(p));
	assert_int_equal(steps->forward_row_count, 2);
	tc_steps_free(steps);
	tc_trace_free(trace);
	test_builder_free(b);
}

/** A tied parameter is a row of each module that owns it. */
static void tied_parameter(void **state)
{
	(void)state;
	const struct test_model model = {.layers = 2, .tied_head = true, .no_optimizer = true};
	struct tc_trace *trace = test_model_trace(&model);
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
	static const uint32_t rows[] = {1, 2, 1, 1, 2, 1};
	assert_int_equal(steps->row_count, 6);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(steps->rows[i], rows[i]);
	tc_steps_free(steps);
	tc_trace_free(trace);
}

/** An unpack is a use of the step that follows its event, also where no op reads the tensor. */
static void unpacks_are_uses(void **state)
{
	(void)state;
	const struct test_model model = {.layers = 3, .no_optimizer = true};
	struct test_builder *b = test_model_builder(&model);
	/* Tensor 4, the first leaf's output, is read in steps 1 (leaf 4) and, backward, 6. */
	uint32_t event = TC_NONE;
	for (uint32_t i = 0; i < b->event_count; i++) {
		if (b->events[i].kind == TC_EVENT_BACKWARD_START)
			event = i;
	}
	test_add_unpack(b, 4, TEST_IDS(event));
	struct tc_trace *trace = test_builder_trace(b);
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
	/* Steps: 0-2 forward, 3 loss, 4 after backward_start, 5-7 backward. */
	assert_ids_equal(steps->steps[4].unpacks, TEST_IDS(4));
	assert_ids_equal((struct tc_ids){steps->use_steps + steps->use_first[4],
	                                 steps->use_first[5] - steps->use_first[4]},
	                 TEST_IDS(0, 1, 4, 6));
	tc_steps_free(steps);
	tc_trace_free(trace);
	test_builder_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(example_steps),
	    cmocka_unit_test(example_requests),
	    cmocka_unit_test(example_requests_by_reads),
	    cmocka_unit_test(example_by_op),
	    cmocka_unit_test(example_eager),
	    cmocka_unit_test(recomputation),
	    cmocka_unit_test(stopped_recomputation_waits_for_backward),
	    cmocka_unit_test(forward_lasts_until_its_post),
	    cmocka_unit_test(module_without_backward_event),
	    cmocka_unit_test(op_before_its_backward_event),
	    cmocka_unit_test(micro_batches),
	    cmocka_unit_test(tied_parameter),
	    cmocka_unit_test(unpacks_are_uses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
