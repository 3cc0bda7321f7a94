/*
 * Steps and requests of random traces against a naive reading of the rules: each question is
 * answered anew by walking over all events and ops, nothing is kept from one to the next.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "random.h"
#include "tencache/steps.h"
#include "trace_builder.h"

static const struct tc_trace *trace; /* of the round */
static const struct tc_steps *steps;

/* ---------------------------------------------------------------- naive rules */

/** Pass and segment an event lies in: segments begin at micro-batches, at backward_start and where
 * the optimizer begins. */
static bool in_backward(uint32_t event)
{
	bool backward = false;
	for (uint32_t e = 0; e <= event; e++) {
		enum tc_event_kind kind = trace->events[e].kind;
		if (kind == TC_EVENT_BACKWARD_START)
			backward = true;
		if (kind == TC_EVENT_MICRO_BATCH || kind == TC_EVENT_NORM ||
		    kind == TC_EVENT_OPTIMIZER)
			backward = false;
	}
	return backward;
}

static bool same_segment(uint32_t first, uint32_t second)
{
	for (uint32_t e = first + 1; e <= second; e++) {
		enum tc_event_kind kind = trace->events[e].kind;
		if (kind == TC_EVENT_BACKWARD_START || kind == TC_EVENT_MICRO_BATCH ||
		    in_backward(e) != in_backward(e - 1))
			return false;
	}
	return true;
}

/** Does an event open a request, and of which pass? */
static bool opens(uint32_t event, uint32_t *module, enum tc_pass *pass)
{
	const struct tc_event *e = &trace->events[event];
	*module = e->module;
	if (e->kind == TC_EVENT_BACKWARD)
		*pass = TC_PASS_BACKWARD;
	else if (e->kind == TC_EVENT_FORWARD_PRE)
		*pass = in_backward(event) ? TC_PASS_RECOMPUTE : TC_PASS_FORWARD;
	else
		return false;
	return trace->modules[e->module].params.count > 0;
}

static bool is_of_pass(const struct tc_op *op, enum tc_pass pass)
{
	if (op->recompute)
		return pass == TC_PASS_RECOMPUTE;
	return (op->phase == TC_FORWARD && pass == TC_PASS_FORWARD) ||
	       (op->phase == TC_BACKWARD && pass == TC_PASS_BACKWARD);
}

static uint32_t step_of(uint32_t op)
{
	for (uint32_t s = 0; s < steps->step_count; s++) {
		if (op >= steps->steps[s].first_op && op <= steps->steps[s].last_op)
			return s;
	}
	return steps->step_count;
}

/** The step that follows an event (or that it lies in, where layers are joined). */
static uint32_t step_after(uint32_t event)
{
	for (uint32_t i = 0; i < trace->op_count; i++) {
		if (trace->ops[i].event >= event)
			return step_of(i);
	}
	return steps->step_count;
}

/** The boundary at which everything before an event is over. */
static uint32_t boundary_of(uint32_t event)
{
	for (uint32_t i = trace->op_count; i-- > 0;) {
		if (trace->ops[i].event < event)
			return step_of(i) + 1;
	}
	return 0;
}

/** Does the call that `event` opens still run at `later`? */
static bool call_lasts(uint32_t event, uint32_t later, uint32_t module, enum tc_pass pass)
{
	for (uint32_t e = event + 1; e <= later; e++) {
		uint32_t other;
		enum tc_pass other_pass;
		if (opens(e, &other, &other_pass) && other == module && other_pass == pass)
			return false;
	}
	return same_segment(event, later);
}

static uint32_t naive_closing(uint32_t event, uint32_t module, enum tc_pass pass, uint32_t open)
{
	uint32_t closes = 0;
	bool has_op = false;
	for (uint32_t i = 0; i < trace->op_count; i++) {
		const struct tc_op *op = &trace->ops[i];
		if (op->event >= event && op->module == module && is_of_pass(op, pass) &&
		    call_lasts(event, op->event, module, pass)) {
			closes = step_of(i) + 1;
			has_op = true;
		}
	}
	for (uint32_t e = event + 1; e < trace->event_count; e++) {
		enum tc_event_kind kind = trace->events[e].kind;
		if (pass == TC_PASS_FORWARD && kind == TC_EVENT_FORWARD_POST &&
		    trace->events[e].module == module && call_lasts(event, e, module, pass)) {
			if (boundary_of(e) > closes)
				closes = boundary_of(e);
		}
		if (pass == TC_PASS_RECOMPUTE && !has_op &&
		    (kind == TC_EVENT_BACKWARD || kind == TC_EVENT_GRADIENT)) {
			closes = boundary_of(e);
			break;
		}
	}
	return closes > open ? closes : open + 1;
}

/** The next request must be this one. */
static void check_request(uint32_t *index, uint32_t module, enum tc_pass pass, uint32_t open,
                          uint32_t close)
{
	if (open == steps->step_count)
		return;
	assert_true(*index < steps->request_count);
	const struct tc_request *request = &steps->requests[*index];
	assert_int_equal(request->module, module);
	assert_int_equal(request->pass, pass);
	assert_int_equal(request->opens, open);
	assert_int_equal(request->closes, close);
	assert_int_equal(request->row_count, trace->modules[module].params.count);
	for (uint32_t i = 0; i < request->row_count; i++)
		assert_int_equal(steps->rows[request->first_row + i],
		                 trace->modules[module].params.items[i]);
	++*index;
}

/** A backward op of a module that has no backward event in its segment, the first such op. */
static bool opens_by_op(uint32_t op)
{
	const struct tc_op *it = &trace->ops[op];
	if (it->module == TC_NONE || !is_of_pass(it, TC_PASS_BACKWARD) ||
	    trace->modules[it->module].params.count == 0)
		return false;
	for (uint32_t e = 0; e < trace->event_count; e++) {
		if (trace->events[e].kind == TC_EVENT_BACKWARD &&
		    trace->events[e].module == it->module &&
		    (e <= it->event ? same_segment(e, it->event) : same_segment(it->event, e)))
			return false;
	}
	for (uint32_t i = 0; i < op; i++) {
		if (trace->ops[i].module == it->module &&
		    is_of_pass(&trace->ops[i], TC_PASS_BACKWARD) &&
		    same_segment(trace->ops[i].event, it->event))
			return false;
	}
	return true;
}

static void check_requests(void)
{
	uint32_t index = 0;
	for (uint32_t e = 0; e < trace->event_count; e++) {
		uint32_t module;
		enum tc_pass pass;
		if (opens(e, &module, &pass))
			check_request(&index, module, pass, step_after(e),
			              naive_closing(e, module, pass, step_after(e)));
		for (uint32_t i = 0; i < trace->op_count; i++) {
			if (trace->ops[i].event == e && opens_by_op(i))
				check_request(&index, trace->ops[i].module, TC_PASS_BACKWARD,
				              step_of(i),
				              naive_closing(e, trace->ops[i].module,
				                            TC_PASS_BACKWARD, step_of(i)));
		}
	}
	assert_int_equal(index, steps->request_count);
}

/* ---------------------------------------------------------------- steps */

/** Layer of the nearest event of a module or gradient, backwards or forwards; 1000: none. */
static uint32_t nearest_layer(uint32_t from, int direction)
{
	for (int64_t e = from; e >= 0 && e < trace->event_count; e += direction) {
		const struct tc_event *event = &trace->events[e];
		if (event->module != TC_NONE)
			return trace->modules[event->module].layer;
		if (event->kind == TC_EVENT_GRADIENT)
			return trace->tensors[event->tensor].layer;
	}
	return 1000;
}

static bool naive_begins(uint32_t op)
{
	const struct tc_op *ops = trace->ops;
	if (op == 0 || steps->granularity == TC_GRANULARITY_OP)
		return true;
	if (steps->granularity == TC_GRANULARITY_LAYER && ops[op].phase == ops[op - 1].phase) {
		uint32_t layers[4] = {
		    nearest_layer(ops[op - 1].event, -1), nearest_layer(ops[op - 1].event + 1, 1),
		    nearest_layer(ops[op].event, -1), nearest_layer(ops[op].event + 1, 1)};
		if (layers[0] < 1000 && layers[0] == layers[1] && layers[1] == layers[2] &&
		    layers[2] == layers[3])
			return false;
	}
	bool updates = ops[op].phase == TC_OPTIMIZER, updated = ops[op - 1].phase == TC_OPTIMIZER;
	return ops[op].event != ops[op - 1].event || updates != updated;
}

static void check_cuts(void)
{
	uint32_t step = 0, next_event = 0;
	for (uint32_t i = 0; i < trace->op_count; i++) {
		if (!naive_begins(i))
			continue;
		assert_true(step < steps->step_count);
		assert_int_equal(steps->steps[step].first_op, i);
		assert_int_equal(steps->steps[step].first_event, next_event);
		next_event += steps->steps[step].event_count;
		assert_int_equal(next_event, trace->ops[i].event + 1);
		if (step > 0)
			assert_int_equal(steps->steps[step - 1].last_op, i - 1);
		step++;
	}
	assert_int_equal(step, steps->step_count);
	assert_int_equal(steps->steps[step].first_event, next_event);
	assert_int_equal(next_event + steps->steps[step].event_count, trace->event_count);
}

static bool holds(struct tc_ids ids, uint32_t id)
{
	for (uint32_t i = 0; i < ids.count; i++) {
		if (ids.items[i] == id)
			return true;
	}
	return false;
}

/** Ids as they first appear in the lists of a step's ops. */
static void check_distinct(struct tc_ids found, uint32_t step, bool writes)
{
	uint32_t count = 0;
	for (uint32_t i = steps->steps[step].first_op; i <= steps->steps[step].last_op; i++) {
		struct tc_ids ids = writes ? trace->ops[i].writes : trace->ops[i].reads;
		for (uint32_t k = 0; k < ids.count; k++) {
			if (holds((struct tc_ids){found.items, count}, ids.items[k]))
				continue;
			assert_true(count < found.count);
			assert_int_equal(found.items[count], ids.items[k]);
			count++;
		}
	}
	assert_int_equal(found.count, count);
}

static void check_lists(uint32_t step)
{
	const struct tc_step *s = &steps->steps[step];
	check_distinct(s->reads, step, false);
	check_distinct(s->writes, step, true);
	uint32_t opening = 0, closing = 0, requested = 0;
	for (uint32_t r = 0; r < steps->request_count; r++) {
		const struct tc_request *request = &steps->requests[r];
		if (request->opens == step)
			assert_int_equal(s->opening.items[opening++], r);
		if (request->closes == step)
			assert_int_equal(s->closing.items[closing++], r);
		for (uint32_t i = 0;
		     i < request->row_count && request->opens <= step && step < request->closes;
		     i++) {
			uint32_t row = steps->rows[request->first_row + i];
			if (holds((struct tc_ids){s->requested.items, requested}, row))
				continue;
			assert_int_equal(s->requested.items[requested++], row);
		}
	}
	assert_int_equal(s->opening.count, opening);
	assert_int_equal(s->closing.count, closing);
	assert_int_equal(s->requested.count, requested);
}

static void check_uses(uint32_t tensor)
{
	uint32_t at = steps->use_first[tensor];
	for (uint32_t s = 0; s < steps->step_count; s++) {
		const struct tc_step *step = &steps->steps[s];
		bool used = holds(step->reads, tensor) || holds(step->writes, tensor) ||
		            holds(step->requested, tensor) || holds(step->unpacks, tensor);
		uint32_t next = TC_NONE;
		if (at < steps->use_first[tensor + 1])
			next = steps->use_steps[at];
		assert_int_equal(used, next == s);
		if (steps->use_first[tensor] == steps->use_first[tensor + 1])
			assert_true(tc_steps_next_use(steps, tensor, s) == UINT64_MAX);
		else if (next != TC_NONE)
			assert_int_equal(tc_steps_next_use(steps, tensor, s), next);
		else
			assert_int_equal(tc_steps_next_use(steps, tensor, s),
			                 (uint64_t)steps->step_count +
			                     steps->use_steps[steps->use_first[tensor]]);
		at += used;
	}
	assert_int_equal(at, steps->use_first[tensor + 1]);
}

/* ---------------------------------------------------------------- rounds */

/**
 * Disturb the events as real models do: some modules have no backward event (the root's comes in
 * its place, so that the steps stay), some get it only after their ops, which then lie behind the
 * event before.
 */
static void disturb_events(struct test_builder *builder, uint64_t *random)
{
	for (size_t i = 0; i + 1 < builder->event_count; i++) {
		struct test_event *event = &builder->events[i];
		if (event->kind != TC_EVENT_BACKWARD)
			continue;
		uint64_t how = test_random_below(random, 8);
		if (how == 0) {
			event->subject = 0;
		} else if (how == 1 && event[1].kind == TC_EVENT_GRADIENT) {
			for (size_t o = 0; o < builder->op_count; o++)
				if (builder->ops[o].event == i)
					builder->ops[o].event--;
		}
	}
}

/** Some modules with children own a parameter too: a tied one. */
static void give_parents_params(struct test_builder *builder, uint64_t *random)
{
	for (size_t i = 0; i < builder->module_count; i++) {
		if (builder->modules[i].params.count == 0 && test_random_below(random, 3) == 0)
			test_ids_add(&builder->modules[i].params, 1);
	}
}

static void check_round(uint64_t seed, enum tc_granularity granularity)
{
	const struct test_limits limits = {.layers = 3, .persistent_gradients = seed % 4 == 0};
	uint64_t random = seed;
	struct test_builder *builder = test_random_builder(seed, &limits);
	disturb_events(builder, &random);
	give_parents_params(builder, &random);
	struct tc_trace *random_trace = test_builder_trace(builder);
	struct tc_steps *derived = NULL;
	assert_int_equal(tc_steps_derive(random_trace, granularity, TC_REQUESTS_HOOK,
	                                 TC_FREES_LAST_USE, &derived, NULL),
	                 TC_OK);
	trace = random_trace;
	steps = derived;
	check_cuts();
	check_requests();
	for (uint32_t s = 0; s < steps->step_count; s++)
		check_lists(s);
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		check_uses(t);
	tc_steps_free(derived);
	tc_trace_free(random_trace);
	test_builder_free(builder);
}

static void by_module(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 500; seed++)
		check_round(seed, TC_GRANULARITY_MODULE);
}

static void by_layer(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 500; seed++)
		check_round(seed, TC_GRANULARITY_LAYER);
}

static void by_op(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 200; seed++)
		check_round(seed, TC_GRANULARITY_OP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(by_module),
	    cmocka_unit_test(by_layer),
	    cmocka_unit_test(by_op),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
