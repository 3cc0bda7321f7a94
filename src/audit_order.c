/*
 * Which op runs when. In a plan in recorded order, forward and backward ops run one after the other
 * as in the trace. In a reordered plan each runs once, wherever it may, as long as every access
 * finds the version that the trace's order gives it.
 *
 * That is: of one tensor in one iteration, a read comes after every write before it in the trace
 * and before every later one, and writes keep their order. So it is enough to know the last op that
 * has written the tensor, and the last one that has touched it, by their places in the trace.
 * Counting writes instead would go wrong where an optimizer on the CPU leaves out ops whose work it
 * does itself; an op that may not be left out and is missed shows at the end of the iteration.
 */
#include <stdlib.h>

#include "audit_state.h"
#include "tencache/units.h"

/* ---------------------------------------------------------------- reordered plans */

/** What ops of this iteration have done to a tensor: places in the trace, from 1; 0: nothing. */
struct tci_turn {
	uint32_t iteration; /**< of the other fields; older ones count as nothing */
	uint32_t written, touched;
};

/** An unpack is a read by the op that follows its event; lists of them, by op. */
static enum tc_status begin_unpacks(struct tc_audit *audit, struct tc_error *error)
{
	const struct tc_trace *trace = audit->info->trace;
	size_t total = 0;
	for (uint32_t u = 0; u < trace->unpack_count; u++)
		total += trace->unpacks[u].events.count;
	audit->unpack_first = tc_alloc_array((size_t)trace->op_count + 2, sizeof(uint32_t));
	audit->unpack_tensors = tc_alloc_array(total + 1, sizeof(uint32_t));
	if (audit->unpack_first == NULL || audit->unpack_tensors == NULL)
		return tc_error_no_memory(error, "the auditor's table of unpacks", total);
	/* Counted two places on: after the sums, first[op + 1] is where the op's list starts, and
	 * filling moves it to where the next one's does. */
	uint32_t *first = audit->unpack_first;
	for (uint32_t u = 0; u < trace->unpack_count; u++)
		for (uint32_t e = 0; e < trace->unpacks[u].events.count; e++) {
			uint32_t op = tc_trace_op_after(trace, trace->unpacks[u].events.items[e]);
			if (op < trace->op_count)
				first[op + 2]++;
		}
	for (uint32_t o = 0; o < trace->op_count; o++)
		first[o + 1] += first[o];
	for (uint32_t u = 0; u < trace->unpack_count; u++)
		for (uint32_t e = 0; e < trace->unpacks[u].events.count; e++) {
			uint32_t op = tc_trace_op_after(trace, trace->unpacks[u].events.items[e]);
			if (op < trace->op_count)
				audit->unpack_tensors[first[op + 1]++] = trace->unpacks[u].tensor;
		}
	return TC_OK;
}

enum tc_status tci_audit_begin_turns(struct tc_audit *audit, struct tc_error *error)
{
	const struct tc_trace *trace = audit->info->trace;
	if (!audit->info->reordered)
		return TC_OK;
	audit->turns = tc_alloc_array((size_t)trace->tensor_count + 1, sizeof *audit->turns);
	if (audit->turns == NULL)
		return tc_error_no_memory(error, "the auditor's table of turns",
		                          trace->tensor_count * sizeof *audit->turns);
	return begin_unpacks(audit, error);
}

void tci_audit_turn(struct tc_audit *audit, uint32_t op, uint32_t tensor, bool writes)
{
	/* Updates that lag by design run in a later iteration than their trace says. */
	if (audit->info->staleness > 0 && (audit->ops[op].duty & TCI_OP_IN_ORDER) == 0)
		return;
	struct tci_turn *turn = &audit->turns[tensor];
	if (turn->iteration != audit->iterations_begun)
		*turn = (struct tci_turn){.iteration = audit->iterations_begun};
	uint32_t place = op + 1, latest = writes ? turn->touched : turn->written;
	const struct tc_op *ops = audit->info->trace->ops;
	if (latest > place)
		tci_audit_report(audit,
		                 "op %u '%s' %s tensor %u '%s': found that op %u '%s' has %s it in "
		                 "this iteration, expected that behind op %u as in the trace",
		                 op, ops[op].name, writes ? "writes" : "reads", tensor,
		                 audit->info->tensors[tensor].name, latest - 1,
		                 ops[latest - 1].name, latest == turn->written ? "written" : "read",
		                 op);
	if (place > turn->touched)
		turn->touched = place;
	if (writes && place > turn->written)
		turn->written = place;
}

static void unpack_turns(struct tc_audit *audit, uint32_t op)
{
	for (uint32_t u = audit->unpack_first[op]; u < audit->unpack_first[op + 1]; u++)
		tci_audit_turn(audit, op, audit->unpack_tensors[u], false);
}

/* ---------------------------------------------------------------- ops and iterations */

static const char *op_name(const struct tc_audit *audit, uint32_t op)
{
	const char *name = audit->info->trace->ops[op].name;
	return name != NULL ? name : "";
}

void tci_audit_execute(struct tc_audit *audit, uint32_t op)
{
	struct tci_op_state *state = &audit->ops[op];
	if (state->executed_in == audit->iterations_begun) {
		tci_audit_report(audit,
		                 "found op %u '%s' a second time in this iteration, "
		                 "expected once",
		                 op, op_name(audit, op));
		return;
	}
	state->executed_in = audit->iterations_begun;
	audit->needed_done += (state->duty & TCI_OP_NEEDED) != 0;
	audit->ordered_done += (state->duty & TCI_OP_IN_ORDER) != 0;
	if (audit->info->reordered)
		unpack_turns(audit, op);
	if (audit->info->reordered || (state->duty & TCI_OP_IN_ORDER) == 0)
		return;
	if (op != audit->in_order)
		tci_audit_report(audit,
		                 "found op %u '%s', expected op %u next: forward and "
		                 "backward ops run in order, none left out",
		                 op, op_name(audit, op), audit->in_order);
	audit->in_order = state->next_in_order;
}

/** Name the first op with this duty that did not run in the iteration that ends. */
static void report_missing(struct tc_audit *audit, uint32_t duty, const char *expected)
{
	const struct tc_trace *trace = audit->info->trace;
	for (uint32_t o = 0; o < trace->op_count; o++) {
		if ((audit->ops[o].duty & duty) == 0 ||
		    audit->ops[o].executed_in == audit->iterations_begun)
			continue;
		tci_audit_report(audit,
		                 "iteration %u ends: found op %u '%s' not executed, expected %s",
		                 audit->iterations_begun - 1, o, trace->ops[o].name, expected);
		return;
	}
}

void tci_audit_iteration_done(struct tc_audit *audit)
{
	uint32_t op_count = audit->info->trace->op_count;
	if (audit->iterations_begun == 0)
		return;
	if (audit->info->reordered && audit->ordered_done != audit->ordered_total)
		report_missing(audit, TCI_OP_IN_ORDER, "every forward and backward op once");
	if (!audit->info->reordered && audit->in_order != op_count)
		tci_audit_report(audit,
		                 "iteration %u ends: found op %u '%s' not executed, expected "
		                 "every forward and backward op",
		                 audit->iterations_begun - 1, audit->in_order,
		                 audit->info->trace->ops[audit->in_order].name);
	if (audit->needed_done == audit->needed_total || audit->info->staleness > 0)
		return;
	report_missing(audit, TCI_OP_NEEDED, "it once, since it writes persistent tensors");
}

void tci_audit_iteration(struct tc_audit *audit, uint32_t iteration)
{
	uint32_t begun = audit->iterations_begun;
	if (iteration == TC_ITERATION_INIT) {
		if (begun > 0)
			tci_audit_report(audit,
			                 "found a command of init inside iteration %u, "
			                 "expected it before the first one",
			                 begun - 1);
		return;
	}
	if (iteration + 1 == begun)
		return;
	if (iteration != begun) {
		tci_audit_report(audit, "found iteration %u, expected %u or the one before",
		                 iteration, begun);
		return;
	}
	tci_audit_iteration_done(audit);
	audit->iterations_begun++;
	audit->needed_done = audit->ordered_done = 0;
	uint32_t op_count = audit->info->trace->op_count;
	audit->in_order = op_count;
	if (op_count > 0)
		audit->in_order =
		    (audit->ops[0].duty & TCI_OP_IN_ORDER) != 0 ? 0 : audit->ops[0].next_in_order;
}
