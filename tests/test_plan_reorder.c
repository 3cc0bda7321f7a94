/*
 * Orders of steps that a policy proposes: what is refused and how it is named, what moves with a
 * step, updates moved into backward, and micro-batches run side by side. Expected orders and counts
 * are worked out in the comments. Random orders: test_plan_reorder_random.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "orders.h"
#include "plan_check.h"
#include "policy/policies.h"
#include "tencache/simulate.h"
#include "trace_builder.h"

static enum tc_status run(const struct plan_case *given, const char *text,
                          const struct tc_policy *base, struct orders_wish wish,
                          struct tc_error *error)
{
	struct plan_case plan = *given;
	struct tc_policy_choice *choice = plan_case_choice(text);
	struct tc_policy policy = orders_policy(base, wish);
	choice->policy = &policy;
	plan.choice = choice;
	*error = (struct tc_error){0};
	enum tc_status status = plan_case_run(&plan, NULL, NULL, error);
	tc_policy_choice_free(choice);
	return status;
}

/* ---------------------------------------------------------------- refusals */

/** A forward pass of single ops, a step each: module "a" is step 0, "b" step 1, and so on. */
struct line {
	struct test_builder *b;
	uint32_t steps;
};

static void add_step(struct line *line, const uint32_t *reads, const uint32_t *writes)
{
	char path[2] = {(char)('a' + line->steps), '\0'};
	uint32_t module = test_add_module(line->b, path, TEST_NO_IDS);
	test_add_event(line->b, TC_EVENT_FORWARD_PRE, module);
	uint32_t op = test_add_op(line->b, TC_FORWARD, module, reads, writes);
	test_op(line->b, op)->us = 1;
	test_add_event(line->b, TC_EVENT_FORWARD_POST, module);
	line->steps++;
}

enum { X = 1, W, V, K, INPUT = 0 };

/**
 * step  a 0   b 1   c 2   d 3   e 4   f 5   g 6   h 7   i 8
 * reads input x     w     w     x     input input input input
 * writes x    w     w     -     -     v     w     v     k
 * x is born in a and dies in e; f unpacks k, without reading it.
 */
static struct tc_trace *line_trace(void)
{
	struct line line = {.b = test_builder_new()};
	struct test_builder *b = line.b;
	assert_int_equal(test_add_tensor(b, TC_INPUT, 512), INPUT);
	assert_int_equal(test_add_tensor(b, TC_ACTIVATION, 512), X);
	assert_int_equal(test_add_tensor(b, TC_BUFFER, 512), W);
	assert_int_equal(test_add_tensor(b, TC_BUFFER, 512), V);
	assert_int_equal(test_add_tensor(b, TC_BUFFER, 512), K);
	test_add_event(b, TC_EVENT_START, TC_NONE);
	add_step(&line, TEST_IDS(INPUT), TEST_IDS(X));
	add_step(&line, TEST_IDS(X), TEST_IDS(W));
	add_step(&line, TEST_IDS(W), TEST_IDS(W));
	add_step(&line, TEST_IDS(W), TEST_NO_IDS);
	add_step(&line, TEST_IDS(X), TEST_NO_IDS);
	/* The event that f's module call brings next: start, then two for each step before. */
	test_add_unpack(b, K, TEST_IDS(11));
	add_step(&line, TEST_IDS(INPUT), TEST_IDS(V));
	add_step(&line, TEST_IDS(INPUT), TEST_IDS(W));
	add_step(&line, TEST_IDS(INPUT), TEST_IDS(V));
	add_step(&line, TEST_IDS(INPUT), TEST_IDS(K));
	test_add_event(b, TC_EVENT_END, TC_NONE);
	for (uint32_t t = X; t <= K; t++)
		(void)strcpy(test_tensor(b, t)->name, (const char *[]){"x", "w", "v", "k"}[t - X]);
	for (uint32_t o = 0; o < line.steps; o++)
		(void)strcpy(test_op(b, o)->name, "work");
	test_fill_lifetimes(b);
	struct tc_trace *trace = test_builder_trace(b);
	test_builder_free(b);
	return trace;
}

enum { STEPS = 9 };

/** The recorded order with one step moved to another place. */
static void moved(uint32_t from, uint32_t to, uint32_t order[STEPS])
{
	for (uint32_t p = 0, s = 0; p < STEPS; p++) {
		s += s == from;
		order[p] = p == to ? from : s++;
	}
}

/** Each of these moves turns one pair round; first the pair, then what binds it. */
static void test_each_dependency_is_named(void **state)
{
	(void)state;
	static const struct {
		uint32_t from, to;
		const char *text;
	} cases[] = {
	    {1, 0,
	     "policy ideal puts step 1 before step 0, but in the trace op 0 'work' of forward step "
	     "0 "
	     "(a) writes tensor \"x\" before op 1 'work' of forward step 1 (b) reads it; keep "
	     "these "
	     "two steps in their order"},
	    {2, 1,
	     "puts step 2 before step 1, but in the trace op 1 'work' of forward step 1 (b) "
	     "writes tensor \"w\" before op 2 'work' of forward step 2 (c) reads it"},
	    {6, 3,
	     "puts step 6 before step 3, but in the trace op 3 'work' of forward step 3 (d) "
	     "reads tensor \"w\" before op 6 'work' of forward step 6 (g) writes it"},
	    {7, 5,
	     "puts step 7 before step 5, but in the trace op 5 'work' of forward step 5 (f) "
	     "writes tensor \"v\" before op 7 'work' of forward step 7 (h) writes it"},
	    {4, 1,
	     "puts step 4 before step 1, but in the trace op 1 'work' of forward step 1 (b) "
	     "reads tensor \"x\" before op 4 'work' of forward step 4 (e) frees it"},
	    {8, 5,
	     "puts step 8 before step 5, but in the trace op 5 'work' of forward step 5 (f) "
	     "unpacks tensor \"k\" before op 8 'work' of forward step 8 (i) writes it"},
	};
	struct tc_machine *machine = plan_case_machine(NULL);
	struct tc_trace *trace = line_trace();
	struct plan_case plan = {.trace = trace, .machine = machine, .iterations = 3};
	struct tc_error error;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint32_t order[STEPS];
		moved(cases[i].from, cases[i].to, order);
		assert_int_equal(run(&plan, "ideal", &tci_policy_ideal,
		                     (struct orders_wish){.order = order, .count = STEPS}, &error),
		                 TC_ARGUMENT);
		if (strstr(error.text, cases[i].text) == NULL)
			fail_msg("found \"%s\", expected \"%s\"", error.text, cases[i].text);
	}
	/* What is free to move: d and e, f, i before the unpack's other side is not. */
	static const uint32_t fine[STEPS] = {5, 0, 1, 4, 8, 2, 7, 3, 6};
	assert_int_equal(run(&plan, "ideal", &tci_policy_ideal,
	                     (struct orders_wish){.order = fine, .count = STEPS}, &error),
	                 TC_OK);
	tc_trace_free(trace);
	tc_machine_free(machine);
}

static void test_no_permutation(void **state)
{
	(void)state;
	struct tc_machine *machine = plan_case_machine(NULL);
	struct tc_trace *trace = line_trace();
	struct plan_case plan = {.trace = trace, .machine = machine, .iterations = 3};
	struct tc_error error;
	uint32_t order[STEPS];
	moved(0, 0, order);
	assert_int_equal(run(&plan, "ideal", &tci_policy_ideal,
	                     (struct orders_wish){.order = order, .count = STEPS - 1}, &error),
	                 TC_ARGUMENT);
	assert_non_null(strstr(error.text, "orders 8 steps, but the iteration has 9"));
	order[4] = STEPS;
	assert_int_equal(run(&plan, "ideal", &tci_policy_ideal,
	                     (struct orders_wish){.order = order, .count = STEPS}, &error),
	                 TC_ARGUMENT);
	assert_non_null(strstr(error.text, "puts step 9 at position 4, but the iteration has steps "
	                                   "0 to 8 only"));
	order[4] = 3;
	assert_int_equal(run(&plan, "ideal", &tci_policy_ideal,
	                     (struct orders_wish){.order = order, .count = STEPS}, &error),
	                 TC_ARGUMENT);
	assert_non_null(strstr(error.text, "puts step 3 at positions 3 and 4"));
	tc_trace_free(trace);
	tc_machine_free(machine);
}

static void test_only_before_manage_and_once(void **state)
{
	(void)state;
	struct tc_machine *machine = plan_case_machine(NULL);
	struct tc_trace *trace = line_trace();
	struct plan_case plan = {.trace = trace, .machine = machine, .iterations = 3};
	struct tc_error error;
	uint32_t order[STEPS];
	moved(0, 0, order);
	struct orders_wish wish = {.order = order, .count = STEPS, .late = true};
	assert_int_equal(run(&plan, "ideal", &tci_policy_ideal, wish, &error), TC_INTERNAL);
	assert_non_null(strstr(error.text, "calls tc_plan_reorder after tc_plan_manage()"));
	wish = (struct orders_wish){.order = order, .count = STEPS, .twice = true};
	assert_int_equal(run(&plan, "ideal", &tci_policy_ideal, wish, &error), TC_INTERNAL);
	assert_non_null(strstr(error.text, "calls tc_plan_reorder a second time"));
	tc_trace_free(trace);
	tc_machine_free(machine);
}

/**
 * Nothing in the trace orders the update of one layer and the gradient of another, but a barrier
 * does: overflow in fp16 is known only when all gradients are.
 */
static void test_barrier(void **state)
{
	(void)state;
	struct test_model model = {.layers = 3, .half = true};
	struct tc_machine *machine = plan_case_machine(NULL);
	struct tc_trace *trace = test_model_trace(&model);
	struct tc_steps *steps = plan_case_steps(&(struct plan_case){.trace = trace});
	struct plan_case plan = {.trace = trace, .machine = machine, .iterations = 3};
	uint32_t *order = calloc(steps->step_count, sizeof *order);
	assert_non_null(order);
	orders_updates_in_backward(steps, order);
	struct orders_wish wish = {.order = order, .count = steps->step_count};
	struct tc_error error;
	assert_int_equal(run(&plan, "lru:barrier=1", &tci_policy_lru, wish, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "policy lru:barrier=1 has a barrier before the first "
	                                   "update, but puts op "));
	assert_non_null(strstr(error.text, "writes tensor gradient of \""));
	assert_int_equal(run(&plan, "lru", &tci_policy_lru, wish, &error), TC_ARGUMENT);
	assert_int_equal(run(&plan, "lru:barrier=0", &tci_policy_lru, wish, &error), TC_OK);
	assert_int_equal(run(&plan, "lru:optimizer=gpu", &tci_policy_lru, wish, &error), TC_OK);
	free(order);
	tc_steps_free(steps);
	tc_trace_free(trace);
	tc_machine_free(machine);
}

/**
 * Ops of one optimizer event are one update on the CPU, even where each is a step of its own: the
 * steps may not be taken apart. On the GPU they may.
 */
static void test_update_stays_whole(void **state)
{
	(void)state;
	struct test_builder *b = test_builder_new();
	uint32_t param = test_add_tensor(b, TC_PARAM, 512),
	         other = test_add_tensor(b, TC_PARAM, 512);
	uint32_t both = test_add_bucket(b, TEST_IDS(param, other));
	test_add_event(b, TC_EVENT_START, TC_NONE);
	(void)test_add_op(b, TC_FORWARD, TC_NONE, TEST_IDS(param, other), TEST_NO_IDS);
	test_add_event(b, TC_EVENT_OPTIMIZER, both);
	(void)test_add_op(b, TC_OPTIMIZER, TC_NONE, TEST_IDS(param), TEST_IDS(param));
	(void)test_add_op(b, TC_OPTIMIZER, TC_NONE, TEST_IDS(other), TEST_IDS(other));
	test_add_event(b, TC_EVENT_END, TC_NONE);
	test_fill_lifetimes(b);
	struct tc_machine *machine = plan_case_machine(NULL);
	struct tc_trace *trace = test_builder_trace(b);
	struct plan_case plan = {
	    .trace = trace, .machine = machine, .iterations = 3, .granularity = TC_GRANULARITY_OP};
	static const uint32_t turned[] = {0, 2, 1};
	struct orders_wish wish = {.order = turned, .count = 3};
	struct tc_error error;
	assert_int_equal(run(&plan, "lru", &tci_policy_lru, wish, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "which are one update on the CPU; keep step "
	                                   "2 directly behind step 1"));
	assert_int_equal(run(&plan, "lru:optimizer=gpu", &tci_policy_lru, wish, &error), TC_OK);
	test_builder_free(b);
	tc_trace_free(trace);
	tc_machine_free(machine);
}

/* ---------------------------------------------------------------- updates in backward */

/** Where the ops of each iteration came, and under which step. */
struct heard {
	const struct tc_steps *steps;
	const uint32_t *order;
	uint32_t position;
	uint64_t waits;
};

static enum tc_status hear(void *self, const struct tc_command *command, struct tc_error *error)
{
	struct heard *heard = self;
	(void)error;
	heard->waits += command->kind == TC_WAIT;
	if (command->kind != TC_COMPUTE && command->kind != TC_UPDATE)
		return TC_OK;
	uint32_t step = heard->order[heard->position++ % heard->steps->step_count];
	assert_int_equal(command->step, step);
	assert_int_equal(command->first_op, heard->steps->steps[step].first_op);
	assert_int_equal(command->last_op, heard->steps->steps[step].last_op);
	return TC_OK;
}

/** Layers 1 to 3 of four are updated behind the step at whose boundary their gradient event lies,
 * the last step of the layer below; that of layer 0 lies behind backward, so it stays last. */
static void check_moved(const struct tc_steps *steps, const uint32_t *order)
{
	uint32_t n = steps->step_count, early = 0, backward = 0;
	for (uint32_t p = 0; p < n; p++) {
		enum tc_phase phase = steps->steps[order[p]].phase;
		backward += phase == TC_BACKWARD;
		if (phase != TC_OPTIMIZER || p == n - 1)
			continue;
		early++;
		assert_int_equal(steps->steps[order[p - 1]].phase, TC_BACKWARD);
	}
	assert_int_equal(early, 3);
	assert_int_equal(steps->steps[order[n - 1]].phase, TC_OPTIMIZER);
	assert_true(backward >= 4);
}

static void simulate(const struct tc_trace *trace, const struct tc_steps *steps,
                     const struct tc_machine *machine, const struct tc_policy_choice *choice,
                     struct tc_result *result)
{
	struct tc_error error = {0};
	struct tc_simulation simulation = {.trace = trace,
	                                   .steps = steps,
	                                   .machine = machine,
	                                   .policy = choice,
	                                   .iterations = 3,
	                                   .audit = true};
	assert_int_equal(tc_simulate(&simulation, result, &error), TC_OK);
	assert_int_equal(result->status, TC_OK);
}

/**
 * With the optimizer on the GPU a gradient dies in its update. In recorded order all four are there
 * at once; behind their events there are two, the one that is consumed and the next one, born in
 * the step before the update. Optimizer on the CPU: the same ops, no wait that ends the phase (the
 * recorded order has one an iteration), and an iteration ends earlier, since updates run beside
 * backward and the next forward.
 */
static void test_updates_in_backward(void **state)
{
	(void)state;
	static const char *const texts[] = {"lru:optimizer=gpu", "lru"};
	static const uint64_t bytes = 1024;
	struct test_model model = {.layers = 4,
	                           .param_bytes = &bytes,
	                           .param_bytes_count = 1,
	                           .forward_us = 10,
	                           .backward_us = 20,
	                           .optimizer_us = 5};
	struct tc_machine *machine = plan_case_machine(NULL);
	struct tc_trace *trace = test_model_trace(&model);
	struct tc_steps *steps = plan_case_steps(&(struct plan_case){.trace = trace});
	uint32_t *order = calloc(steps->step_count, sizeof *order);
	assert_non_null(order);
	orders_updates_in_backward(steps, order);
	check_moved(steps, order);
	for (int on_cpu = 0; on_cpu < 2; on_cpu++) {
		struct tc_policy_choice *choice = plan_case_choice(texts[on_cpu]);
		struct heard heard = {.steps = steps, .order = order};
		struct tc_sink sink = {.self = &heard, .command = hear};
		struct plan_case plan = {.trace = trace,
		                         .machine = machine,
		                         .policy = texts[on_cpu],
		                         .choice = choice,
		                         .iterations = 3};
		struct tc_result recorded, result;
		simulate(trace, steps, machine, choice, &recorded);
		struct tc_policy policy =
		    orders_policy(&tci_policy_lru,
		                  (struct orders_wish){.order = order, .count = steps->step_count});
		choice->policy = &policy;
		struct tc_error error = {0};
		assert_int_equal(plan_and_check(&plan, 0).status, TC_OK);
		assert_int_equal(plan_case_run(&plan, &sink, NULL, &error), TC_OK);
		assert_int_equal(heard.position, 3 * steps->step_count);
		assert_int_equal(heard.waits, 0);
		simulate(trace, steps, machine, choice, &result);
		assert_true(result.reordered && !recorded.reordered && result.steady);
		assert_int_equal(result.compute_ps, recorded.compute_ps);
		for (int phase = 0; phase < TC_PHASE_COUNT; phase++)
			assert_int_equal(result.phases[phase].compute_ps,
			                 recorded.phases[phase].compute_ps);
		if (on_cpu) {
			assert_true(result.iteration_ps < recorded.iteration_ps);
		} else {
			assert_int_equal(recorded.memory[TC_GPU].kind_peak_bytes[TC_GRAD],
			                 4 * bytes);
			assert_int_equal(result.memory[TC_GPU].kind_peak_bytes[TC_GRAD], 2 * bytes);
		}
		tc_result_clear(&recorded);
		tc_result_clear(&result);
		tc_policy_choice_free(choice);
	}
	free(order);
	tc_steps_free(steps);
	tc_trace_free(trace);
	tc_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_each_dependency_is_named),
	    cmocka_unit_test(test_no_permutation),
	    cmocka_unit_test(test_only_before_manage_and_once),
	    cmocka_unit_test(test_barrier),
	    cmocka_unit_test(test_update_stays_whole),
	    cmocka_unit_test(test_updates_in_backward),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
