/*
 * Can every gradient leave the GPU for good once it is complete? Systems with a gradient path of
 * their own assume so: they copy it out and keep no `.grad`. Where a trace says otherwise (it is
 * persistent, something uses it later, nobody knows whose it is), they cannot run it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common.h"
#include "tencache/units.h"

struct tci_leaving {
	const struct tc_planner *planner;
	const struct tc_trace *trace;
	const char *system;
	uint32_t *event;        /**< per tensor: its last gradient event, or TC_NONE */
	uint32_t last_backward; /**< op; gradients without an event leave after it */
	struct tc_error *error;
};

#define TCI_GRADIENT_TEXT 160

static const char *tci_gradient_text(const struct tc_trace *trace, uint32_t gradient,
                                     char text[TCI_GRADIENT_TEXT])
{
	uint32_t of = trace->tensors[gradient].of;
	if (of != TC_NONE)
		(void)snprintf(text, TCI_GRADIENT_TEXT, "the gradient of \"%s\" (tensor %u)",
		               trace->tensors[of].name, gradient);
	else
		(void)snprintf(text, TCI_GRADIENT_TEXT, "tensor %u (grad)", gradient);
	return text;
}

static void tci_find_events(struct tci_leaving *leaving)
{
	const struct tc_trace *trace = leaving->trace;
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		leaving->event[t] = TC_NONE;
	for (uint32_t e = 0; e < trace->event_count; e++) {
		uint32_t gradient =
		    trace->events[e].kind == TC_EVENT_GRADIENT
		        ? tc_plan_gradient_of(leaving->planner, trace->events[e].tensor)
		        : TC_NONE;
		if (gradient != TC_NONE)
			leaving->event[gradient] = e;
	}
	for (uint32_t o = 0; o < trace->op_count; o++)
		if (trace->ops[o].phase == TC_BACKWARD)
			leaving->last_backward = o;
}

static enum tc_status tci_refuse_persistent(const struct tci_leaving *leaving, uint32_t gradient)
{
	char text[TCI_GRADIENT_TEXT];
	if (!leaving->trace->tensors[gradient].persistent)
		return TC_OK;
	return tc_error_set(
	    leaving->error, TC_INFEASIBLE,
	    "%s drops each gradient from the GPU once it is complete, but in trace %s %s is "
	    "persistent: it lives on into the next iteration and is zeroed in place; capture with "
	    "set_to_none=True, or use a policy that keeps gradients (lru, belady)",
	    leaving->system, leaving->trace->name,
	    tci_gradient_text(leaving->trace, gradient, text));
}

/** Optimizer ops are work of the update on the CPU, which takes gradients by their parameter. */
static enum tc_status tci_refuse_unknown(const struct tci_leaving *leaving, uint32_t op,
                                         uint32_t gradient)
{
	uint32_t of = leaving->trace->tensors[gradient].of;
	char text[TCI_GRADIENT_TEXT];
	if (of != TC_NONE && tc_plan_gradient_of(leaving->planner, of) == gradient)
		return TC_OK;
	return tc_error_set(
	    leaving->error, TC_INFEASIBLE,
	    "%s follows each gradient by its parameter, but op %u \"%s\" uses %s, and trace %s "
	    "%s; a trace with one gradient for each parameter (\"of\") works",
	    leaving->system, op, leaving->trace->ops[op].name,
	    tci_gradient_text(leaving->trace, gradient, text), leaving->trace->name,
	    of == TC_NONE ? "does not say whose it is" : "has another gradient of that parameter");
}

static enum tc_status tci_refuse_late(const struct tci_leaving *leaving, uint32_t op,
                                      uint32_t gradient)
{
	const struct tc_op *o = &leaving->trace->ops[op];
	uint32_t event = leaving->event[gradient];
	char text[TCI_GRADIENT_TEXT];
	if (event != TC_NONE ? o->event < event : op <= leaving->last_backward)
		return TC_OK;
	return tc_error_set(
	    leaving->error, TC_INFEASIBLE,
	    "%s drops each gradient from the GPU once it is complete, but op %u \"%s\" (%s) uses "
	    "%s after that; a trace without that op works, or a policy that keeps gradients (lru, "
	    "belady)",
	    leaving->system, op, o->name, tc_phase_name(o->phase),
	    tci_gradient_text(leaving->trace, gradient, text));
}

static enum tc_status tci_uses_leave(const struct tci_leaving *leaving, uint32_t op,
                                     struct tc_ids used)
{
	bool update = leaving->trace->ops[op].phase == TC_OPTIMIZER;
	for (uint32_t i = 0; i < used.count; i++) {
		if (leaving->trace->tensors[used.items[i]].kind != TC_GRAD)
			continue;
		TC_TRY(update ? tci_refuse_unknown(leaving, op, used.items[i])
		              : tci_refuse_late(leaving, op, used.items[i]));
	}
	return TC_OK;
}

static enum tc_status tci_all_leave(const struct tci_leaving *leaving)
{
	const struct tc_trace *trace = leaving->trace;
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		if (trace->tensors[t].kind == TC_GRAD)
			TC_TRY(tci_refuse_persistent(leaving, t));
	for (uint32_t o = 0; o < trace->op_count; o++) {
		TC_TRY(tci_uses_leave(leaving, o, trace->ops[o].reads));
		TC_TRY(tci_uses_leave(leaving, o, trace->ops[o].writes));
	}
	return TC_OK;
}

enum tc_status tci_gradients_can_leave(const struct tc_planner *planner, const char *system,
                                       struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	struct tci_leaving leaving = {
	    .planner = planner,
	    .trace = trace,
	    .system = system,
	    .event = tc_alloc_array((size_t)trace->tensor_count + 1, sizeof(uint32_t)),
	    .error = error};
	if (leaving.event == NULL)
		return tc_error_no_memory(error, "gradients that leave", trace->tensor_count);
	tci_find_events(&leaving);
	enum tc_status status = tci_all_leave(&leaving);
	free(leaving.event);
	return status;
}
