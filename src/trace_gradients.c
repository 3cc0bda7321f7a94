/*
 * A `gradient` event says that the gradient of a parameter is complete. So within a backward pass
 * no op may add to a gradient behind the last such event of its parameter. While the ops pass, so
 * do the events before them; an op behind an event is suspect until another one comes.
 */
#include "trace_reader.h"

/** The parameter that a tensor is the gradient of, or TC_NONE. */
static uint32_t param_of(const struct tc_trace *trace, uint32_t tensor)
{
	uint32_t of = trace->tensors[tensor].of;
	return trace->tensors[tensor].kind == TC_GRAD && of < trace->tensor_count ? of : TC_NONE;
}

static void report(struct tci_reader *reader, struct tci_gradient *gradient)
{
	const struct tc_trace *trace = reader->trace;
	const struct tci_subject before = reader->subject;
	const char *name = trace->tensors[trace->tensors[gradient->late_tensor].of].name;
	tci_about(reader, "op", gradient->late_op, trace->ops[gradient->late_op].name);
	reader->subject.line = gradient->late_line;
	tci_finding(reader,
	            "\"w\" holds tensor %u, the gradient of %.60s, after event %u (gradient), the "
	            "last of that parameter in this backward pass; expected it to come when the "
	            "gradient is complete, behind this op",
	            gradient->late_tensor, name[0] != '\0' ? name : "an unnamed parameter",
	            gradient->late_event);
	reader->subject = before;
	gradient->late_op = TC_NONE;
}

static void pass_event(struct tci_reader *reader, uint32_t event)
{
	const struct tc_event *e = &reader->trace->events[event];
	if (e->kind == TC_EVENT_BACKWARD_START)
		reader->backward_pass = event;
	if (e->kind != TC_EVENT_GRADIENT || e->tensor >= reader->trace->tensor_count)
		return;
	struct tci_gradient *gradient = &reader->lives[e->tensor].gradient;
	/* An event of a later pass does not make up for the one that came too early. */
	if (gradient->late_op != TC_NONE && gradient->late_event < reader->backward_pass)
		report(reader, gradient);
	gradient->late_op = TC_NONE;
	gradient->event = event;
}

static void pass_events(struct tci_reader *reader, uint32_t end)
{
	while (reader->passed_events < end)
		pass_event(reader, reader->passed_events++);
}

void tci_gradients_op(struct tci_reader *reader, uint32_t index)
{
	const struct tc_trace *trace = reader->trace;
	const struct tc_op *op = &trace->ops[index];
	if (op->event == TC_NONE)
		return;
	pass_events(reader, op->event + 1);
	for (uint32_t i = 0; op->phase == TC_BACKWARD && i < op->writes.count; i++) {
		uint32_t param = param_of(trace, op->writes.items[i]);
		if (param == TC_NONE)
			continue;
		struct tci_gradient *gradient = &reader->lives[param].gradient;
		if (gradient->event == TC_NONE || gradient->event < reader->backward_pass)
			continue;
		if (gradient->late_op != TC_NONE)
			continue; /* said once is enough */
		gradient->late_op = index;
		gradient->late_tensor = op->writes.items[i];
		gradient->late_event = gradient->event;
		gradient->late_line = reader->subject.line;
	}
}

void tci_gradients_end(struct tci_reader *reader)
{
	pass_events(reader, reader->trace->event_count);
	for (uint32_t t = 0; t < reader->trace->tensor_count; t++)
		if (reader->lives[t].gradient.late_op != TC_NONE)
			report(reader, &reader->lives[t].gradient);
}
