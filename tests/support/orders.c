#include "orders.h"

#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "random.h"
#include "trace_builder.h"

static void *array_of(size_t count, size_t bytes)
{
	void *memory = calloc(count + 1, bytes);
	if (memory == NULL)
		abort();
	return memory;
}

static struct tc_ids frees_of(const struct tc_steps *steps, const struct tc_op *op)
{
	return steps->frees == TC_FREES_EAGER ? op->frees_eager : op->frees;
}

/* ---------------------------------------------------------------- counting versions */

/** What happened to each tensor so far, and what each touch found, in order of the trace. */
struct history {
	const struct tc_steps *steps;
	uint32_t *births, *writes, *deaths;
	struct found {
		uint32_t births, writes, deaths;
	} * found;
	size_t *first_of_op, *first_of_step; /**< of an op's touches, of a step's unpacks */
	size_t total;
};

static struct history history_new(const struct tc_steps *steps)
{
	const struct tc_trace *trace = steps->trace;
	struct history h = {.steps = steps};
	h.births = array_of(trace->tensor_count, sizeof *h.births);
	h.writes = array_of(trace->tensor_count, sizeof *h.writes);
	h.deaths = array_of(trace->tensor_count, sizeof *h.deaths);
	h.first_of_op = array_of(trace->op_count, sizeof *h.first_of_op);
	h.first_of_step = array_of(steps->step_count, sizeof *h.first_of_step);
	for (uint32_t s = 0; s < steps->step_count; s++) {
		h.first_of_step[s] = h.total;
		h.total += steps->steps[s].unpacks.count;
	}
	for (uint32_t o = 0; o < trace->op_count; o++) {
		const struct tc_op *op = &trace->ops[o];
		h.first_of_op[o] = h.total;
		h.total += op->allocates.count + op->reads.count + op->writes.count +
		           frees_of(steps, op).count;
	}
	h.found = array_of(h.total, sizeof *h.found);
	return h;
}

static void history_free(struct history *h)
{
	free(h->births);
	free(h->writes);
	free(h->deaths);
	free(h->found);
	free(h->first_of_op);
	free(h->first_of_step);
}

static size_t look(struct history *h, struct tc_ids tensors, size_t at)
{
	for (uint32_t i = 0; i < tensors.count; i++) {
		uint32_t t = tensors.items[i];
		h->found[at++] = (struct found){h->births[t], h->writes[t], h->deaths[t]};
	}
	return at;
}

static void count(uint32_t *counts, struct tc_ids tensors)
{
	for (uint32_t i = 0; i < tensors.count; i++)
		counts[tensors.items[i]]++;
}

static void live(struct history *h, uint32_t step)
{
	const struct tc_step *s = &h->steps->steps[step];
	(void)look(h, s->unpacks, h->first_of_step[step]);
	for (uint32_t o = s->first_op; o <= s->last_op; o++) {
		const struct tc_op *op = &h->steps->trace->ops[o];
		size_t at = look(h, op->allocates, h->first_of_op[o]);
		count(h->births, op->allocates);
		at = look(h, op->reads, at);
		at = look(h, op->writes, at);
		count(h->writes, op->writes);
		(void)look(h, frees_of(h->steps, op), at);
		count(h->deaths, frees_of(h->steps, op));
	}
}

bool orders_keep_dataflow(const struct tc_steps *steps, const uint32_t *order, bool deaths)
{
	struct history recorded = history_new(steps), other = history_new(steps);
	for (uint32_t s = 0; s < steps->step_count; s++) {
		live(&recorded, s);
		live(&other, order[s]);
	}
	bool same = true;
	for (size_t i = 0; i < recorded.total; i++)
		same = same && recorded.found[i].births == other.found[i].births &&
		       recorded.found[i].writes == other.found[i].writes &&
		       (!deaths || recorded.found[i].deaths == other.found[i].deaths);
	history_free(&recorded);
	history_free(&other);
	return same;
}

/* ---------------------------------------------------------------- orders */

static bool has(struct tc_ids ids, uint32_t id)
{
	for (uint32_t i = 0; i < ids.count; i++)
		if (ids.items[i] == id)
			return true;
	return false;
}

static bool touches(const struct tc_step *step, uint32_t tensor)
{
	return has(step->reads, tensor) || has(step->writes, tensor) ||
	       has(step->allocates, tensor) || has(step->frees, tensor) ||
	       has(step->unpacks, tensor);
}

static bool changes_what(const struct tc_step *step, const struct tc_step *other)
{
	const struct tc_ids lists[] = {step->writes, step->allocates, step->frees};
	for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
		for (uint32_t i = 0; i < lists[l].count; i++)
			if (touches(other, lists[l].items[i]))
				return true;
	return false;
}

bool orders_conflict(const struct tc_steps *steps, uint32_t a, uint32_t b)
{
	return changes_what(&steps->steps[a], &steps->steps[b]) ||
	       changes_what(&steps->steps[b], &steps->steps[a]);
}

void orders_random_valid(const struct tc_steps *steps, uint64_t *random, uint32_t *order)
{
	uint32_t n = steps->step_count, ready_count = 0;
	uint32_t *before = array_of(n, sizeof *before), *ready = array_of(n, sizeof *ready);
	bool *conflict = array_of((size_t)n * n, sizeof *conflict);
	for (uint32_t a = 0; a < n; a++)
		for (uint32_t b = a + 1; b < n; b++) {
			conflict[(size_t)a * n + b] = orders_conflict(steps, a, b);
			before[b] += conflict[(size_t)a * n + b];
		}
	for (uint32_t s = 0; s < n; s++)
		if (before[s] == 0)
			ready[ready_count++] = s;
	for (uint32_t p = 0; p < n; p++) {
		uint32_t pick = (uint32_t)test_random_below(random, ready_count);
		order[p] = ready[pick];
		ready[pick] = ready[--ready_count];
		for (uint32_t b = order[p] + 1; b < n; b++)
			if (conflict[(size_t)order[p] * n + b] && --before[b] == 0)
				ready[ready_count++] = b;
	}
	free(before);
	free(ready);
	free(conflict);
}

static void move_step(uint32_t *order, uint32_t from, uint32_t to)
{
	uint32_t step = order[from];
	for (; from < to; from++)
		order[from] = order[from + 1];
	for (; from > to; from--)
		order[from] = order[from - 1];
	order[to] = step;
}

void orders_disturb(uint64_t *random, uint32_t n, uint32_t changes, uint32_t *order)
{
	for (uint32_t c = 0; c < changes && n > 1; c++) {
		uint32_t reach = test_random_below(random, 3) == 0 ? n - 1 : 1;
		uint32_t from = (uint32_t)test_random_below(random, n);
		uint32_t to = from + 1 + (uint32_t)test_random_below(random, reach);
		to = to < n ? to : n - 1;
		if (test_random_below(random, 2) == 0) {
			move_step(order, to, from);
		} else {
			uint32_t swap = order[from];
			order[from] = order[to];
			order[to] = swap;
		}
	}
}

/** The step whose boundary holds the last gradient event of a parameter that this step updates. */
static uint32_t gradient_step(const struct tc_steps *steps, uint32_t update)
{
	uint32_t found = TC_NONE;
	for (uint32_t s = 0; s < update; s++)
		for (uint32_t e = 0; e < steps->steps[s].event_count; e++) {
			const struct tc_event *event =
			    &steps->trace->events[steps->steps[s].first_event + e];
			if (event->kind == TC_EVENT_GRADIENT &&
			    has(steps->steps[update].writes, event->tensor))
				found = s;
		}
	return found;
}

void orders_updates_in_backward(const struct tc_steps *steps, uint32_t *order)
{
	uint32_t n = steps->step_count, placed = 0;
	uint32_t *behind = array_of(n, sizeof *behind); /* itself: where it was */
	for (uint32_t s = 0; s < n; s++) {
		behind[s] = s;
		if (steps->steps[s].phase != TC_OPTIMIZER)
			continue;
		uint32_t at = gradient_step(steps, s);
		for (uint32_t before = 0; before < s && at != TC_NONE; before++)
			if (behind[before] > at && orders_conflict(steps, before, s))
				at = behind[before];
		if (at != TC_NONE)
			behind[s] = at;
	}
	for (uint32_t s = 0; s < n; s++) {
		if (behind[s] != s)
			continue;
		order[placed++] = s;
		for (uint32_t moved = s + 1; moved < n; moved++)
			if (behind[moved] == s)
				order[placed++] = moved;
	}
	free(behind);
}

/* ---------------------------------------------------------------- traces */

enum { FLOW_MODULES = 6 };

struct flow {
	struct test_builder *b;
	uint64_t random;
	uint32_t tensors[256];    /**< in use; the last ones are the newest */
	uint32_t count, unpacked; /**< ... up to this one */
	uint32_t params[FLOW_MODULES], modules[FLOW_MODULES];
};

static uint32_t some_tensor(struct flow *f)
{
	return f->tensors[test_random_below(&f->random, f->count)];
}

static void add_flow_op(struct flow *f, uint32_t module, uint32_t param)
{
	uint32_t op = test_add_op(f->b, TC_FORWARD, module, TEST_NO_IDS, TEST_NO_IDS);
	struct test_op *added = test_op(f->b, op);
	added->us = 1 + test_random_below(&f->random, 9);
	uint32_t read = some_tensor(f), written = some_tensor(f);
	test_ids_add(&added->reads, read);
	if (param != TC_NONE && test_random_below(&f->random, 3) != 0)
		test_ids_add(&added->reads, param);
	if (f->count < 250 && test_random_below(&f->random, 2) == 0) {
		written = test_add_tensor(f->b, TC_ACTIVATION,
		                          4 * (1 + test_random_below(&f->random, 500)));
		f->tensors[f->count++] = written;
		added = test_op(f->b, op);
	}
	test_ids_add(&added->writes, written);
}

static void add_flow_ops(struct flow *f, uint32_t m)
{
	uint64_t ops = 1 + test_random_below(&f->random, 3);
	for (uint64_t o = 0; o < ops; o++)
		add_flow_op(f, f->modules[m], f->params[m]);
}

/** A call of a module; of one that calls another in between, its request spans three steps. */
static void add_call(struct flow *f)
{
	uint32_t m = (uint32_t)test_random_below(&f->random, FLOW_MODULES), last = f->count - 1;
	uint32_t pre = test_add_event(f->b, TC_EVENT_FORWARD_PRE, f->modules[m]);
	if (test_random_below(&f->random, 4) == 0 && last > f->unpacked) {
		/* An unpack stands where no op of the step reads the tensor. */
		uint32_t op = test_add_op(f->b, TC_FORWARD, f->modules[m], TEST_NO_IDS,
		                          TEST_IDS(f->tensors[1]));
		test_op(f->b, op)->us = 1;
		test_add_unpack(f->b, f->tensors[last], TEST_IDS(pre));
		f->unpacked = last;
	} else {
		add_flow_ops(f, m);
	}
	if (test_random_below(&f->random, 3) == 0) {
		uint32_t inner = (m + 1) % FLOW_MODULES;
		test_add_event(f->b, TC_EVENT_FORWARD_PRE, f->modules[inner]);
		add_flow_ops(f, inner);
		test_add_event(f->b, TC_EVENT_FORWARD_POST, f->modules[inner]);
		add_flow_ops(f, m);
	}
	test_add_event(f->b, TC_EVENT_FORWARD_POST, f->modules[m]);
}

static void add_flow_modules(struct flow *f)
{
	for (uint32_t i = 0; i < 4; i++)
		f->tensors[f->count++] =
		    test_add_tensor(f->b, i == 0 ? TC_INPUT : TC_BUFFER,
		                    4 * (1 + test_random_below(&f->random, 500)));
	f->unpacked = f->count - 1;
	for (uint32_t m = 0; m < FLOW_MODULES; m++) {
		f->params[m] = TC_NONE;
		if (m % 3 != 2)
			f->params[m] = test_add_tensor(
			    f->b, TC_PARAM, 4 * (1 + test_random_below(&f->random, 500)));
	}
	for (uint32_t m = 0; m < FLOW_MODULES; m++) {
		char path[] = {(char)('a' + m), '\0'};
		f->modules[m] = test_add_module(
		    f->b, path, f->params[m] == TC_NONE ? TEST_NO_IDS : TEST_IDS(f->params[m]));
	}
	test_add_event(f->b, TC_EVENT_START, TC_NONE);
	/* A tensor that exists is used. */
	uint32_t first =
	    test_add_op(f->b, TC_FORWARD, TC_NONE, TEST_NO_IDS, TEST_IDS(f->tensors[1]));
	for (uint32_t i = 0; i < f->count; i++)
		test_ids_add(&test_op(f->b, first)->reads, f->tensors[i]);
	for (uint32_t m = 0; m < FLOW_MODULES; m++)
		if (f->params[m] != TC_NONE)
			test_ids_add(&test_op(f->b, first)->reads, f->params[m]);
}

/** Updates that read and write a parameter alone. */
static void add_updates(struct flow *f)
{
	for (uint32_t m = 0; m < FLOW_MODULES; m++) {
		if (f->params[m] == TC_NONE)
			continue;
		uint32_t bucket = test_add_bucket(f->b, TEST_IDS(f->params[m]));
		test_add_event(f->b, TC_EVENT_OPTIMIZER, bucket);
		uint32_t op = test_add_op(f->b, TC_OPTIMIZER, TC_NONE, TEST_IDS(f->params[m]),
		                          TEST_IDS(f->params[m]));
		test_op(f->b, op)->us = 1;
	}
}

struct tc_trace *orders_random_trace(uint64_t seed)
{
	struct flow f = {.b = test_builder_new(), .random = 3 * seed + 1};
	add_flow_modules(&f);
	for (uint32_t call = 0; call < 18; call++) {
		if (call % 6 == 0)
			test_add_event(f.b, TC_EVENT_MICRO_BATCH, call / 6);
		add_call(&f);
	}
	if (test_random_below(&f.random, 2) == 0)
		add_updates(&f);
	test_add_event(f.b, TC_EVENT_END, TC_NONE);
	test_fill_lifetimes(f.b);
	struct tc_trace *trace = test_builder_trace(f.b);
	test_builder_free(f.b);
	return trace;
}

/* ---------------------------------------------------------------- policies */

/** Hooks have no data but the policy's own state, so the wish goes through here. */
static struct {
	struct orders_wish wish;
	const struct tc_policy *base;
} asked;

static enum tc_status asking_begin(void *self, struct tc_planner *planner, struct tc_error *error)
{
	const struct orders_wish *wish = &asked.wish;
	if (wish->late)
		TC_TRY(asked.base->begin(self, planner, error));
	TC_TRY(wish->unchecked ? tci_reorder_apply(planner, wish->order, error)
	                       : tc_plan_reorder(planner, wish->order, wish->count, error));
	if (wish->twice)
		TC_TRY(tc_plan_reorder(planner, wish->order, wish->count, error));
	return asked.base->begin(self, planner, error);
}

struct tc_policy orders_policy(const struct tc_policy *base, struct orders_wish wish)
{
	asked.wish = wish;
	asked.base = base;
	struct tc_policy policy = *base;
	policy.begin = asking_begin;
	return policy;
}
