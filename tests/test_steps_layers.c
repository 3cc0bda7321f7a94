/*
 * Steps by layer, steps of traces without events, worked out on paper; and the published and
 * specified counts of the shipped traces.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "steps_checks.h"

/* ---------------------------------------------------------------- layers and imports */

/**
 * Three layers of two leaves. Forward: one step a layer. Backward: one step a layer too, since the
 * gradients of a layer's parameters count as its events. The loss, the op after backward_start and
 * the optimizer lie between events that belong to no common layer and stay alone.
 */
static void layers_are_joined(void **state)
{
	(void)state;
	const struct test_model model = {.layers = 3, .modules_per_layer = 2};
	struct tc_trace *trace = test_model_trace(&model);
	struct tc_steps *steps = test_derive(trace, TC_GRANULARITY_LAYER, TC_REQUESTS_HOOK);
	/* 3 forward, loss, after backward_start, 3 backward, 6 optimizer events. */
	assert_int_equal(steps->step_count, 14);
	for (uint32_t i = 0; i < 3; i++) {
		/* Forward leaf: 1 op. Backward leaf: 2 ops, but the very first has no input grad.
		 */
		assert_int_equal(steps->steps[i].last_op - steps->steps[i].first_op, 1);
		assert_int_equal(steps->steps[5 + i].last_op - steps->steps[5 + i].first_op,
		                 i == 2 ? 2 : 3);
		/* Both requests of a layer open before its step and close after it. */
		assert_ids_equal(steps->steps[i].opening, TEST_IDS(2 * i, 2 * i + 1));
		assert_ids_equal(steps->steps[i + 1].closing, TEST_IDS(2 * i, 2 * i + 1));
		assert_int_equal(steps->steps[5 + i].requested.count, 2);
	}
	/* Events inside a joined step pass at the boundary after it. */
	assert_int_equal(steps->steps[1].first_event,
	                 steps->steps[0].first_event + steps->steps[0].event_count);
	tc_steps_free(steps);
	tc_trace_free(trace);
}

/** Without events: runs of the same phase and module; an op without module alone. */
static void traces_without_events(void **state)
{
	(void)state;
	const struct test_model model = {.layers = 2, .params_per_module = 2, .no_events = true};
	struct tc_trace *trace = test_model_trace(&model);
	struct tc_steps *steps = NULL;
	struct tc_error error = {0};
	assert_int_equal(tc_steps_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                                 TC_FREES_LAST_USE, &steps, &error),
	                 TC_ARGUMENT);
	assert_non_null(strstr(error.text, "--requests reads"));
	steps = test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_READS);
	/* 2 forward, loss, seed, 2 backward (3 and 2 ops), 4 optimizer ops without module. */
	assert_int_equal(steps->step_count, 10);
	assert_int_equal(steps->steps[4].last_op - steps->steps[4].first_op, 2);
	assert_int_equal(steps->request_count, 3);
	assert_request_equal(steps, 0, TC_NONE, TC_PASS_FORWARD, 0, 1, TEST_IDS(1, 2));
	assert_request_equal(steps, 1, TC_NONE, TC_PASS_FORWARD, 1, 2, TEST_IDS(3, 4));
	assert_request_equal(steps, 2, TC_NONE, TC_PASS_BACKWARD, 4, 5, TEST_IDS(3));
	assert_int_equal(steps->steps[0].event_count, 0);
	tc_steps_free(steps);
	tc_trace_free(trace);
}

/* ---------------------------------------------------------------- known truths */

/**
 * OPT-6.7B with its classification head has 517 parameters in 260 modules that own some, OPT-13B
 * 645 in 324 (DeepSpeed's and 10Cache's hooks ask for each in each pass); with a checkpoint per
 * layer 40 layers x 16 parameters are asked for once more.
 */
static void requests_of_shipped_traces(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		uint32_t modules, rows, recompute;
	} truths[] = {
	    {"opt6.7b-paper.jsonl.gz", 260, 517, 0},
	    {"opt13b-paper.jsonl.gz", 324, 645, 0},
	    {"opt13b.json", 324, 645, 640},
	};
	for (size_t i = 0; i < sizeof truths / sizeof *truths; i++) {
		char path[512];
		snprintf(path, sizeof path, "%s/traces/%s", TENCACHE_SOURCE_DIR, truths[i].name);
		struct tc_trace *trace = test_read_trace(path);
		struct tc_steps *steps =
		    test_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK);
		uint32_t requests[4] = {0};
		for (uint32_t r = 0; r < steps->request_count; r++)
			requests[steps->requests[r].pass]++;
		assert_int_equal(requests[TC_PASS_FORWARD], truths[i].modules);
		assert_int_equal(requests[TC_PASS_BACKWARD], truths[i].modules);
		assert_int_equal(requests[TC_PASS_RECOMPUTE], truths[i].recompute / 2);
		assert_int_equal(steps->forward_row_count, truths[i].rows);
		assert_int_equal(steps->recompute_row_count, truths[i].recompute);
		assert_int_equal(steps->row_count, 2 * truths[i].rows + truths[i].recompute);
		tc_steps_free(steps);
		tc_trace_free(trace);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(layers_are_joined),
	    cmocka_unit_test(traces_without_events),
	    cmocka_unit_test(requests_of_shipped_traces),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
