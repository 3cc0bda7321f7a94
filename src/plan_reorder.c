/*
 * Another order of steps, proposed by a policy and held against the trace's dataflow.
 *
 * Two ops may change places unless one of them writes, allocates or frees what the other touches.
 * It is enough to look at neighbours: each touch of a tensor comes after its birth and after the
 * write before it, and before the write after it and its death. If all these pairs keep their
 * order, every op finds as many writes before it as in the trace, which is to say the same version.
 * Ops of one step stay in order, so only the positions of steps are compared. Linear in the trace.
 */
#include <stdio.h>
#include <stdlib.h>

#include "plan.h"
#include "steps_derive.h"

/** What the check knows while it walks the ops, forwards and then backwards. */
struct tci_flow {
	const struct tc_planner *planner;
	const struct tc_steps *steps; /**< as recorded */
	uint32_t *position;           /**< of each step */
	uint32_t *step_of_op;
	uint32_t *write; /**< per tensor: the op of the nearest write on this side, or TC_NONE */
	uint32_t *end;   /**< per tensor: the op of its birth, on the way back of its death */
	struct tc_error *error;
};

/** "op 12 'aten.mm' of forward step 3 (fc1)" */
static void tci_op_describe(const struct tci_flow *flow, uint32_t op, char *text, size_t bytes)
{
	char where[160];
	tc_step_describe(flow->steps, flow->step_of_op[op], where, sizeof where);
	(void)snprintf(text, bytes, "op %u '%.60s' of %s", op, flow->planner->trace->ops[op].name,
	               where);
}

/** In the trace `first` does something to the tensor and `second`, later, something else. */
static enum tc_status tci_keep(const struct tci_flow *flow, uint32_t tensor, uint32_t first,
                               const char *first_verb, uint32_t second, const char *second_verb)
{
	if (first == TC_NONE || second == TC_NONE)
		return TC_OK;
	uint32_t a = flow->step_of_op[first], b = flow->step_of_op[second];
	if (flow->position[a] <= flow->position[b])
		return TC_OK;
	char before[256], after[256], label[TCI_LABEL_BYTES];
	tci_op_describe(flow, first, before, sizeof before);
	tci_op_describe(flow, second, after, sizeof after);
	return tc_error_set(
	    flow->error, TC_ARGUMENT,
	    "policy %s puts step %u before step %u, but in the trace %s %s tensor %s before %s %s "
	    "it; keep these two steps in their order",
	    flow->planner->choice->text, b, a, before, first_verb,
	    tci_label(flow->planner, tensor, label), after, second_verb);
}

/** Births and writes that a touch must follow. */
static enum tc_status tci_follow(const struct tci_flow *flow, struct tc_ids tensors, uint32_t op,
                                 const char *verb)
{
	for (uint32_t i = 0; i < tensors.count; i++) {
		uint32_t t = tensors.items[i];
		TC_TRY(tci_keep(flow, t, flow->write[t], "writes", op, verb));
		TC_TRY(tci_keep(flow, t, flow->end[t], "allocates", op, verb));
	}
	return TC_OK;
}

/** Writes and deaths that a touch must precede. */
static enum tc_status tci_precede(const struct tci_flow *flow, struct tc_ids tensors, uint32_t op,
                                  const char *verb)
{
	for (uint32_t i = 0; i < tensors.count; i++) {
		uint32_t t = tensors.items[i];
		TC_TRY(tci_keep(flow, t, op, verb, flow->write[t], "writes"));
		TC_TRY(tci_keep(flow, t, op, verb, flow->end[t], "frees"));
	}
	return TC_OK;
}

static void tci_mark(uint32_t *marks, struct tc_ids tensors, uint32_t op)
{
	for (uint32_t i = 0; i < tensors.count; i++)
		marks[tensors.items[i]] = op;
}

static struct tc_ids tci_frees(const struct tci_flow *flow, const struct tc_op *op)
{
	return flow->steps->frees == TC_FREES_EAGER ? op->frees_eager : op->frees;
}

/** An unpack happens before the first op of its step. */
static struct tc_ids tci_unpacks(const struct tci_flow *flow, uint32_t op)
{
	const struct tc_step *step = &flow->steps->steps[flow->step_of_op[op]];
	return step->first_op == op ? step->unpacks : (struct tc_ids){0};
}

static enum tc_status tci_flow_forwards(const struct tci_flow *flow)
{
	const struct tc_trace *trace = flow->planner->trace;
	for (uint32_t o = 0; o < trace->op_count; o++) {
		const struct tc_op *op = &trace->ops[o];
		TC_TRY(tci_follow(flow, tci_unpacks(flow, o), o, "unpacks"));
		tci_mark(flow->end, op->allocates, o);
		TC_TRY(tci_follow(flow, op->reads, o, "reads"));
		TC_TRY(tci_follow(flow, op->writes, o, "writes"));
		tci_mark(flow->write, op->writes, o);
		TC_TRY(tci_follow(flow, tci_frees(flow, op), o, "frees"));
	}
	return TC_OK;
}

static enum tc_status tci_flow_backwards(const struct tci_flow *flow)
{
	const struct tc_trace *trace = flow->planner->trace;
	for (uint32_t o = trace->op_count; o-- > 0;) {
		const struct tc_op *op = &trace->ops[o];
		tci_mark(flow->end, tci_frees(flow, op), o);
		TC_TRY(tci_precede(flow, op->writes, o, "writes"));
		tci_mark(flow->write, op->writes, o);
		TC_TRY(tci_precede(flow, op->reads, o, "reads"));
		TC_TRY(tci_precede(flow, tci_unpacks(flow, o), o, "unpacks"));
	}
	return TC_OK;
}

static enum tc_status tci_flow_check(struct tci_flow *flow)
{
	uint32_t tensors = flow->planner->trace->tensor_count;
	for (uint32_t t = 0; t < tensors; t++)
		flow->write[t] = flow->end[t] = TC_NONE;
	TC_TRY(tci_flow_forwards(flow));
	for (uint32_t t = 0; t < tensors; t++)
		flow->write[t] = flow->end[t] = TC_NONE;
	return tci_flow_backwards(flow);
}

/* ---------------------------------------------------------------- set up */

static void tci_flow_clear(struct tci_flow *flow)
{
	free(flow->position);
	free(flow->step_of_op);
	free(flow->write);
	free(flow->end);
}

static enum tc_status tci_flow_start(struct tci_flow *flow)
{
	const struct tc_trace *trace = flow->planner->trace;
	flow->position = tc_alloc_array((size_t)flow->steps->step_count + 1, sizeof(uint32_t));
	flow->step_of_op = tc_alloc_array((size_t)trace->op_count + 1, sizeof(uint32_t));
	flow->write = tc_alloc_array((size_t)trace->tensor_count + 1, sizeof(uint32_t));
	flow->end = tc_alloc_array((size_t)trace->tensor_count + 1, sizeof(uint32_t));
	if (flow->position == NULL || flow->step_of_op == NULL || flow->write == NULL ||
	    flow->end == NULL)
		return tc_error_no_memory(flow->error, "an order of steps", trace->op_count);
	for (uint32_t s = 0; s < flow->steps->step_count; s++)
		for (uint32_t o = flow->steps->steps[s].first_op;
		     o <= flow->steps->steps[s].last_op; o++)
			flow->step_of_op[o] = s;
	return TC_OK;
}

/** Each step once. */
static enum tc_status tci_flow_positions(struct tci_flow *flow, const uint32_t *order,
                                         uint32_t count)
{
	const char *policy = flow->planner->choice->text;
	uint32_t steps = flow->steps->step_count;
	if (count != steps)
		return tc_error_set(flow->error, TC_ARGUMENT,
		                    "policy %s orders %u steps, but the iteration has %u; name "
		                    "each of them once",
		                    policy, count, steps);
	for (uint32_t s = 0; s < steps; s++)
		flow->position[s] = TC_NONE;
	for (uint32_t p = 0; p < count; p++) {
		if (order[p] >= steps)
			return tc_error_set(flow->error, TC_ARGUMENT,
			                    "policy %s puts step %u at position %u, but the "
			                    "iteration has steps 0 to %u only",
			                    policy, order[p], p, steps - 1);
		if (flow->position[order[p]] != TC_NONE)
			return tc_error_set(flow->error, TC_ARGUMENT,
			                    "policy %s puts step %u at positions %u and %u; name "
			                    "each step once",
			                    policy, order[p], flow->position[order[p]], p);
		flow->position[order[p]] = p;
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- updates on the CPU */

/** Ops `op - 1` and `op` are of one update: their steps must stay together. */
static enum tc_status tci_keep_together(const struct tci_flow *flow, uint32_t op)
{
	uint32_t a = flow->step_of_op[op - 1], b = flow->step_of_op[op];
	if (a == b || flow->position[b] == flow->position[a] + 1)
		return TC_OK;
	char first[256], second[256];
	tci_op_describe(flow, op - 1, first, sizeof first);
	tci_op_describe(flow, op, second, sizeof second);
	return tc_error_set(flow->error, TC_ARGUMENT,
	                    "policy %s takes apart %s and %s, which are one update on the CPU; "
	                    "keep step %u directly behind step %u",
	                    flow->planner->choice->text, first, second, b, a);
}

static enum tc_status tci_keep_updates(const struct tci_flow *flow)
{
	for (uint32_t o = 0; o < flow->planner->trace->op_count; o++) {
		uint32_t last = tc_plan_update_last(flow->planner, o);
		for (uint32_t op = o + 1; last != TC_NONE && op <= last; op++)
			TC_TRY(tci_keep_together(flow, op));
	}
	return TC_OK;
}

/** Where an op stands in the new order; for TC_NONE what the caller says. */
static uint32_t tci_position(const struct tci_flow *flow, uint32_t op, uint32_t none)
{
	return op == TC_NONE ? none : flow->position[flow->step_of_op[op]];
}

/** The last gradient that is written before the optimizer has its turn, in the new order. */
static uint32_t tci_last_gradient(const struct tci_flow *flow, uint32_t *tensor)
{
	const struct tc_trace *trace = flow->planner->trace;
	uint32_t last = TC_NONE;
	for (uint32_t o = 0; o < trace->op_count; o++) {
		struct tc_ids writes = trace->ops[o].writes;
		enum tc_phase phase = trace->ops[o].phase;
		for (uint32_t i = 0;
		     phase != TC_OPTIMIZER && phase != TC_ZERO_GRAD && i < writes.count; i++)
			if (trace->tensors[writes.items[i]].kind == TC_GRAD &&
			    tci_position(flow, o, 0) >= tci_position(flow, last, 0)) {
				last = o;
				*tensor = writes.items[i];
			}
	}
	return last;
}

/** With a barrier, no update comes before the last gradient is written. */
static enum tc_status tci_keep_barrier(const struct tci_flow *flow)
{
	uint32_t update = TC_NONE, tensor = TC_NONE, gradient = tci_last_gradient(flow, &tensor);
	for (uint32_t o = 0; o < flow->planner->trace->op_count; o++)
		if (tc_plan_update_last(flow->planner, o) != TC_NONE &&
		    tci_position(flow, o, 0) < tci_position(flow, update, TC_NONE))
			update = o;
	if (update == TC_NONE || gradient == TC_NONE ||
	    tci_position(flow, gradient, 0) < tci_position(flow, update, 0))
		return TC_OK;
	char early[256], late[256], label[TCI_LABEL_BYTES];
	tci_op_describe(flow, update, early, sizeof early);
	tci_op_describe(flow, gradient, late, sizeof late);
	return tc_error_set(flow->error, TC_ARGUMENT,
	                    "policy %s has a barrier before the first update, but puts %s before "
	                    "%s writes tensor %s; keep updates behind all gradients, or use "
	                    "barrier=0 where training allows",
	                    flow->planner->choice->text, early, late,
	                    tci_label(flow->planner, tensor, label));
}

enum tc_status tci_reorder_check_updates(struct tc_planner *planner, struct tc_error *error)
{
	if (planner->reordered == NULL || !planner->optimizer_on_cpu)
		return TC_OK;
	const struct tc_steps *steps = planner->options->steps;
	struct tci_flow flow = {.planner = planner, .steps = steps, .error = error};
	enum tc_status status = tci_flow_start(&flow);
	if (status == TC_OK)
		status = tci_flow_positions(&flow, planner->reordered->order, steps->step_count);
	if (status == TC_OK)
		status = tci_keep_updates(&flow);
	if (status == TC_OK && planner->barrier)
		status = tci_keep_barrier(&flow);
	tci_flow_clear(&flow);
	return status;
}

/* ---------------------------------------------------------------- public */

enum tc_status tci_reorder_apply(struct tc_planner *planner, const uint32_t *order,
                                 struct tc_error *error)
{
	TC_TRY(tci_steps_reorder(planner->options->steps, order, &planner->reordered, error));
	planner->steps = planner->reordered;
	for (uint32_t p = 0; p < planner->steps->step_count; p++)
		planner->phase_last[planner->steps->steps[p].phase] = p;
	return TC_OK;
}

static enum tc_status tci_reorder_allowed(const struct tc_planner *planner, struct tc_error *error)
{
	const char *why = !planner->declaring            ? "outside begin()"
	                  : planner->touch_first != NULL ? "after tc_plan_manage()"
	                  : planner->reordered != NULL   ? "a second time"
	                                                 : NULL;
	if (why == NULL)
		return TC_OK;
	return tc_error_set(error, TC_INTERNAL,
	                    "policy %s calls tc_plan_reorder %s; expected once, in begin(), before "
	                    "tc_plan_manage()",
	                    planner->choice->text, why);
}

enum tc_status tc_plan_reorder(struct tc_planner *planner, const uint32_t *order, uint32_t count,
                               struct tc_error *error)
{
	struct tc_error local = {0};
	TC_TRY(tci_reorder_allowed(planner, error));
	struct tci_flow flow = {.planner = planner,
	                        .steps = planner->options->steps,
	                        .error = error != NULL ? error : &local};
	enum tc_status status = tci_flow_start(&flow);
	if (status == TC_OK)
		status = tci_flow_positions(&flow, order, count);
	if (status == TC_OK)
		status = tci_flow_check(&flow);
	tci_flow_clear(&flow);
	return status == TC_OK ? tci_reorder_apply(planner, order, flow.error) : status;
}
