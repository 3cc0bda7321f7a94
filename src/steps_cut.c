/*
 * Where steps begin. A step is a run of ops with the same last event, cut where the optimizer phase
 * begins or ends inside it: no event tells the last update from what zeroes gradients after it, and
 * yet one may run on the CPU and the other on the GPU. Without events, a run of the same phase and
 * module. `op` cuts before each op. `layer` joins steps that lie between two events of
 * modules of one layer: the last event before the step and the first one after it that concern a
 * module or a gradient belong to that layer, and the phase stays.
 */
#include <stdlib.h>

#include "steps_derive.h"
#include "tencache/units.h"

/** Does op `i` begin a step, before any joining? */
static bool begins_step(const struct tci_derive *derive, uint32_t i)
{
	const struct tc_op *op = &derive->trace->ops[i];
	if (i == 0 || derive->steps->granularity == TC_GRANULARITY_OP)
		return true;
	if (derive->trace->has_events)
		return op->event != op[-1].event ||
		       (op->phase == TC_OPTIMIZER) != (op[-1].phase == TC_OPTIMIZER);
	return op->module == TC_NONE || op->module != op[-1].module || op->phase != op[-1].phase;
}

/* ---------------------------------------------------------------- layers */

/** "No event of a module" before or after, as opposed to one of a module without layer. */
#define NO_EVENT (TC_NONE - 1u)

/** The layer of what an event concerns; NO_EVENT for events of neither module nor gradient. */
static uint32_t layer_of_event(const struct tc_trace *trace, uint32_t event)
{
	const struct tc_event *e = &trace->events[event];
	if (e->module != TC_NONE)
		return trace->modules[e->module].layer;
	if (e->kind == TC_EVENT_GRADIENT)
		return trace->tensors[e->tensor].layer;
	return NO_EVENT;
}

static uint32_t layer_of_op(const struct tc_trace *trace, const struct tc_op *op)
{
	if (op->layer != TC_NONE || op->module == TC_NONE)
		return op->layer;
	return trace->modules[op->module].layer;
}

/** Layer that each event lies in: that of the next event that has one. */
static enum tc_status layers_after(const struct tc_trace *trace, uint32_t **after,
                                   struct tc_error *error)
{
	*after = tc_alloc_array(trace->event_count + (size_t)1, sizeof **after);
	if (*after == NULL)
		return tc_error_no_memory(error, "layers of events", trace->event_count);
	uint32_t layer = NO_EVENT;
	for (uint32_t e = trace->event_count; e-- > 0;) {
		(*after)[e] = layer;
		if (layer_of_event(trace, e) != NO_EVENT)
			layer = layer_of_event(trace, e);
	}
	return TC_OK;
}

/** The layer that each op lies inside of, or TC_NONE. */
static enum tc_status layers_of_ops(const struct tc_trace *trace, uint32_t *inside,
                                    struct tc_error *error)
{
	uint32_t *after = NULL, before = NO_EVENT, event = 0;
	if (trace->has_events)
		TC_TRY(layers_after(trace, &after, error));
	for (uint32_t i = 0; i < trace->op_count; i++) {
		if (!trace->has_events) {
			inside[i] = layer_of_op(trace, &trace->ops[i]);
			continue;
		}
		for (; event <= trace->ops[i].event; event++) {
			if (layer_of_event(trace, event) != NO_EVENT)
				before = layer_of_event(trace, event);
		}
		inside[i] =
		    before == after[trace->ops[i].event] && before != NO_EVENT ? before : TC_NONE;
	}
	free(after);
	return TC_OK;
}

/** Take back beginnings of steps that continue a layer. */
static enum tc_status join_layers(struct tci_derive *derive, bool *begins)
{
	const struct tc_trace *trace = derive->trace;
	uint32_t *inside = tc_alloc_array(trace->op_count + (size_t)1, sizeof *inside);
	if (inside == NULL)
		return tc_error_no_memory(derive->error, "layers of ops", trace->op_count);
	enum tc_status status = layers_of_ops(trace, inside, derive->error);
	for (uint32_t i = 1; i < trace->op_count && status == TC_OK; i++) {
		if (inside[i] != TC_NONE && inside[i] == inside[i - 1] &&
		    trace->ops[i].phase == trace->ops[i - 1].phase)
			begins[i] = false;
	}
	free(inside);
	return status;
}

/* ---------------------------------------------------------------- steps */

/** Of the last event with a module in the boundary, else of the first op. */
static uint32_t module_of_step(const struct tc_trace *trace, const struct tc_step *step)
{
	for (uint32_t i = step->event_count; i-- > 0;) {
		uint32_t module = trace->events[step->first_event + i].module;
		if (module != TC_NONE)
			return module;
	}
	return trace->ops[step->first_op].module;
}

/** The events that pass between the first op of the step before and that of this one. */
static void give_events(const struct tc_trace *trace, struct tc_step *step, uint32_t next_event)
{
	step->first_event = next_event;
	if (trace->has_events)
		step->event_count = trace->ops[step->first_op].event + 1 - next_event;
}

static enum tc_status fill_steps(struct tci_derive *derive, const bool *begins)
{
	const struct tc_trace *trace = derive->trace;
	struct tc_steps *steps = derive->steps;
	for (uint32_t i = 0; i < trace->op_count; i++)
		steps->step_count += begins[i];
	steps->steps = tci_derive_take(derive, steps->step_count + (size_t)1, sizeof *steps->steps);
	derive->step_of_op = tci_derive_take(derive, trace->op_count, sizeof(uint32_t));
	if (steps->steps == NULL || derive->step_of_op == NULL)
		return TC_NO_MEMORY;
	uint32_t next_event = 0, count = 0;
	for (uint32_t i = 0; i < trace->op_count; i++) {
		if (begins[i]) {
			struct tc_step *step = &steps->steps[count++];
			step->first_op = i;
			step->phase = trace->ops[i].phase;
			step->recompute = trace->ops[i].recompute;
			give_events(trace, step, next_event);
			next_event = step->first_event + step->event_count;
			step->module = module_of_step(trace, step);
		}
		steps->steps[count - 1].last_op = i;
		derive->step_of_op[i] = count - 1;
	}
	struct tc_step *last = &steps->steps[count];
	last->first_op = last->last_op = last->module = TC_NONE;
	last->phase = TC_OTHER;
	last->first_event = next_event;
	last->event_count = trace->event_count - next_event;
	return TC_OK;
}

enum tc_status tci_cut_steps(struct tci_derive *derive)
{
	const struct tc_trace *trace = derive->trace;
	bool *begins = tc_alloc_array(trace->op_count + (size_t)1, sizeof *begins);
	if (begins == NULL)
		return tc_error_no_memory(derive->error, "steps", trace->op_count);
	for (uint32_t i = 0; i < trace->op_count; i++)
		begins[i] = begins_step(derive, i);
	enum tc_status status = TC_OK;
	if (derive->steps->granularity == TC_GRANULARITY_LAYER)
		status = join_layers(derive, begins);
	if (status == TC_OK)
		status = fill_steps(derive, begins);
	free(begins);
	return status;
}
