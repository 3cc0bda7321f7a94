/*
 * Requests, in one sweep over events and ops in the order in which they happen.
 *
 * A request (module, pass, call) opens at a forward_pre or backward event and takes part in all
 * later ops of its module and pass until the next one of the same module and pass opens, or a new
 * segment (micro-batch; forward or backward half) begins. It closes after the last of those ops;
 * forward not before its forward_post; a recomputation without ops, which was stopped early, at
 * the next backward or gradient event. A module whose output gradient nobody sees opens before its
 * first backward op.
 */
#include <stdlib.h>
#include <string.h>

#include "steps_derive.h"
#include "tencache/units.h"

/** A request while ops still pass. */
struct draft {
	uint32_t module;
	enum tc_pass pass;
	uint32_t opens, not_before; /* boundaries; not_before 0: nothing to wait for */
	uint32_t last_op;           /* TC_NONE: none yet */
	bool by_op;                 /* opened by an op, not by an event */
	bool dropped;
};

/** The draft that the ops of a module and pass belong to. */
struct current {
	uint32_t draft;
	uint32_t segment;
};

#define PASS_COUNT 3 /* forward, recompute, backward */

struct sweep {
	struct tci_derive *derive;
	struct draft *drafts;
	size_t draft_count, draft_capacity;
	struct current *current; /* PASS_COUNT for each module */
	uint32_t segment;        /* from 1 */
	bool in_backward;
	uint32_t next_op;
	size_t first_waiting; /* drafts from here on opened after the last backward or gradient
	                         event */
};

/* ---------------------------------------------------------------- opening */

static struct current *current_of(struct sweep *sweep, uint32_t module, enum tc_pass pass)
{
	return &sweep->current[(size_t)module * PASS_COUNT + pass];
}

/** The draft that is open for a module and pass in this segment, or NULL. */
static struct draft *find_open(struct sweep *sweep, uint32_t module, enum tc_pass pass)
{
	const struct current *current = current_of(sweep, module, pass);
	return current->segment == sweep->segment ? &sweep->drafts[current->draft] : NULL;
}

/** The boundary before the step that comes next, or that is passing (layers). */
static uint32_t opening_boundary(const struct sweep *sweep)
{
	const struct tci_derive *derive = sweep->derive;
	return sweep->next_op < derive->trace->op_count ? derive->step_of_op[sweep->next_op]
	                                                : derive->steps->step_count;
}

/** The boundary after the step of the last op so far. */
static uint32_t closing_boundary(const struct sweep *sweep)
{
	return sweep->next_op == 0 ? 0 : sweep->derive->step_of_op[sweep->next_op - 1] + 1;
}

static enum tc_status open_draft(struct sweep *sweep, uint32_t module, enum tc_pass pass,
                                 bool by_op)
{
	if (sweep->derive->trace->modules[module].params.count == 0)
		return TC_OK;
	if (!tc_grow_array(&sweep->drafts, &sweep->draft_capacity, sweep->draft_count + 1,
	                   sizeof *sweep->drafts))
		return tc_error_no_memory(sweep->derive->error, "requests", sweep->draft_count);
	sweep->drafts[sweep->draft_count] = (struct draft){
	    .module = module,
	    .pass = pass,
	    .opens = opening_boundary(sweep),
	    .last_op = TC_NONE,
	    .by_op = by_op,
	};
	*current_of(sweep, module, pass) =
	    (struct current){(uint32_t)sweep->draft_count, sweep->segment};
	sweep->draft_count++;
	return TC_OK;
}

/* ---------------------------------------------------------------- events and ops */

/** Recomputations that have shown no op by now were stopped before it. */
static void close_stopped(struct sweep *sweep)
{
	for (size_t i = sweep->first_waiting; i < sweep->draft_count; i++) {
		struct draft *draft = &sweep->drafts[i];
		if (draft->pass == TC_PASS_RECOMPUTE && draft->last_op == TC_NONE)
			draft->not_before = closing_boundary(sweep);
	}
	sweep->first_waiting = sweep->draft_count;
}

static enum tc_status pass_backward(struct sweep *sweep, uint32_t module)
{
	struct draft *early = find_open(sweep, module, TC_PASS_BACKWARD);
	/* An op came before its module's event: it asked for nothing, the hook does. */
	if (early != NULL && early->by_op)
		early->dropped = true;
	close_stopped(sweep);
	return open_draft(sweep, module, TC_PASS_BACKWARD, false);
}

static enum tc_status pass_event(struct sweep *sweep, const struct tc_event *event)
{
	struct draft *draft;
	switch (event->kind) {
	case TC_EVENT_FORWARD_PRE:
		return open_draft(sweep, event->module,
		                  sweep->in_backward ? TC_PASS_RECOMPUTE : TC_PASS_FORWARD, false);
	case TC_EVENT_FORWARD_POST:
		draft = find_open(sweep, event->module, TC_PASS_FORWARD);
		if (draft != NULL)
			draft->not_before = closing_boundary(sweep);
		return TC_OK;
	case TC_EVENT_BACKWARD:
		return pass_backward(sweep, event->module);
	case TC_EVENT_GRADIENT:
		close_stopped(sweep);
		return TC_OK;
	case TC_EVENT_BACKWARD_START:
		sweep->in_backward = true;
		sweep->segment++;
		return TC_OK;
	case TC_EVENT_MICRO_BATCH:
	case TC_EVENT_NORM:
	case TC_EVENT_OPTIMIZER:
		sweep->segment += sweep->in_backward || event->kind == TC_EVENT_MICRO_BATCH;
		sweep->in_backward = false;
		return TC_OK;
	default:
		return TC_OK;
	}
}

static enum tc_status pass_op(struct sweep *sweep, const struct tc_op *op)
{
	bool has_pass = op->recompute || op->phase == TC_FORWARD || op->phase == TC_BACKWARD;
	if (op->module == TC_NONE || !has_pass)
		return TC_OK;
	enum tc_pass pass = op->recompute             ? TC_PASS_RECOMPUTE
	                    : op->phase == TC_FORWARD ? TC_PASS_FORWARD
	                                              : TC_PASS_BACKWARD;
	if (pass == TC_PASS_BACKWARD && find_open(sweep, op->module, pass) == NULL)
		TC_TRY(open_draft(sweep, op->module, pass, true));
	struct draft *draft = find_open(sweep, op->module, pass);
	if (draft != NULL)
		draft->last_op = sweep->next_op;
	return TC_OK;
}

static enum tc_status sweep_all(struct sweep *sweep)
{
	const struct tc_trace *trace = sweep->derive->trace;
	for (uint32_t e = 0; e < trace->event_count; e++) {
		TC_TRY(pass_event(sweep, &trace->events[e]));
		while (sweep->next_op < trace->op_count && trace->ops[sweep->next_op].event == e) {
			TC_TRY(pass_op(sweep, &trace->ops[sweep->next_op]));
			sweep->next_op++;
		}
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- result */

static uint32_t closing_of(const struct tci_derive *derive, const struct draft *draft)
{
	uint32_t closes = draft->not_before;
	if (draft->last_op != TC_NONE && derive->step_of_op[draft->last_op] + 1 > closes)
		closes = derive->step_of_op[draft->last_op] + 1;
	return closes > draft->opens ? closes : draft->opens + 1;
}

/** A request with room for `row_count` rows. */
static void add_request(struct tc_steps *steps, uint32_t module, enum tc_pass pass, uint32_t opens,
                        uint32_t closes, const uint32_t *rows, uint32_t row_count)
{
	steps->requests[steps->request_count] = (struct tc_request){
	    .module = module,
	    .pass = pass,
	    .opens = opens,
	    .closes = closes,
	    .first_row = steps->row_count,
	    .row_count = row_count,
	};
	for (uint32_t i = 0; i < row_count; i++) {
		steps->rows[steps->row_count + i] = rows[i];
		steps->row_request[steps->row_count + i] = steps->request_count;
	}
	steps->request_count++;
	steps->row_count += row_count;
	if (pass == TC_PASS_FORWARD)
		steps->forward_row_count += row_count;
	if (pass == TC_PASS_RECOMPUTE)
		steps->recompute_row_count += row_count;
}

static enum tc_status take_requests(struct tci_derive *derive, uint64_t requests, uint64_t rows)
{
	struct tc_steps *steps = derive->steps;
	if (rows > TCI_LARGEST_REQUESTED)
		return tc_error_set(derive->error, TC_TOO_LARGE,
		                    "%s: %llu rows in the request table, expected at most %llu",
		                    derive->trace->file_name, (unsigned long long)rows,
		                    (unsigned long long)TCI_LARGEST_REQUESTED);
	steps->requests = tci_derive_take(derive, requests, sizeof *steps->requests);
	steps->rows = tci_derive_take(derive, rows, sizeof *steps->rows);
	steps->row_request = tci_derive_take(derive, rows, sizeof *steps->row_request);
	if (steps->requests == NULL || steps->rows == NULL || steps->row_request == NULL)
		return TC_NO_MEMORY;
	return TC_OK;
}

static enum tc_status keep_drafts(const struct sweep *sweep)
{
	struct tci_derive *derive = sweep->derive;
	const struct tc_trace *trace = derive->trace;
	uint64_t rows = 0;
	for (size_t i = 0; i < sweep->draft_count; i++)
		rows += trace->modules[sweep->drafts[i].module].params.count;
	TC_TRY(take_requests(derive, sweep->draft_count, rows));
	for (size_t i = 0; i < sweep->draft_count; i++) {
		const struct draft *draft = &sweep->drafts[i];
		const struct tc_ids *params = &trace->modules[draft->module].params;
		/* What opens after the last op asks for nothing that a step would use. */
		if (draft->dropped || draft->opens == derive->steps->step_count)
			continue;
		add_request(derive->steps, draft->module, draft->pass, draft->opens,
		            closing_of(derive, draft), params->items, params->count);
	}
	return TC_OK;
}

static enum tc_status find_hooked(struct tci_derive *derive)
{
	struct sweep sweep = {.derive = derive, .segment = 1};
	sweep.current = tc_alloc_array(derive->trace->module_count * (size_t)PASS_COUNT + 1,
	                               sizeof *sweep.current);
	if (sweep.current == NULL)
		return tc_error_no_memory(derive->error, "requests", derive->trace->module_count);
	enum tc_status status = sweep_all(&sweep);
	if (status == TC_OK)
		status = keep_drafts(&sweep);
	free(sweep.current);
	free(sweep.drafts);
	return status;
}

/* ---------------------------------------------------------------- requests by reads */

/** The parameters that a step of forward or backward reads, as one request. */
static void request_reads(struct tci_derive *derive, uint32_t index, uint32_t *params)
{
	const struct tc_step *step = &derive->steps->steps[index];
	uint32_t count = 0;
	if (step->phase != TC_FORWARD && step->phase != TC_BACKWARD)
		return;
	for (uint32_t i = 0; i < step->reads.count; i++) {
		if (derive->trace->tensors[step->reads.items[i]].kind == TC_PARAM)
			params[count++] = step->reads.items[i];
	}
	enum tc_pass pass = step->recompute             ? TC_PASS_RECOMPUTE
	                    : step->phase == TC_FORWARD ? TC_PASS_FORWARD
	                                                : TC_PASS_BACKWARD;
	if (count > 0)
		add_request(derive->steps, derive->trace->has_events ? step->module : TC_NONE, pass,
		            index, index + 1, params, count);
}

static enum tc_status find_read(struct tci_derive *derive)
{
	const struct tc_steps *steps = derive->steps;
	uint64_t rows = 0;
	for (uint32_t s = 0; s < steps->step_count; s++)
		rows += steps->steps[s].reads.count;
	TC_TRY(take_requests(derive, steps->step_count, rows));
	uint32_t *params = tc_alloc_array(derive->trace->tensor_count + (size_t)1, sizeof *params);
	if (params == NULL)
		return tc_error_no_memory(derive->error, "requests", derive->trace->tensor_count);
	for (uint32_t s = 0; s < steps->step_count; s++)
		request_reads(derive, s, params);
	free(params);
	return TC_OK;
}

enum tc_status tci_find_requests(struct tci_derive *derive)
{
	return derive->steps->request_mode == TC_REQUESTS_HOOK ? find_hooked(derive)
	                                                       : find_read(derive);
}
