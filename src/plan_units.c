/*
 * Which optimizer ops make one update on the CPU: all ops of one optimizer event; in a trace
 * without events, consecutive optimizer ops on parameters of one bucket of the header (an op that
 * writes no parameter belongs to the ops before it). Ops of norm events make none, neither do ops
 * before the first update that write nothing which lasts: they take the norm in a trace without
 * events.
 */
#include <stdlib.h>

#include "plan.h"

static bool tci_may_update(const struct tc_trace *trace, uint32_t op)
{
	const struct tc_op *o = &trace->ops[op];
	if (o->phase != TC_OPTIMIZER)
		return false;
	return !trace->has_events ||
	       (o->event != TC_NONE && trace->events[o->event].kind == TC_EVENT_OPTIMIZER);
}

/** Bucket of the first parameter that an op writes, or TC_NONE. */
static uint32_t tci_bucket_of(const struct tc_trace *trace, const uint32_t *buckets, uint32_t op)
{
	struct tc_ids writes = trace->ops[op].writes;
	for (uint32_t i = 0; i < writes.count; i++)
		if (trace->tensors[writes.items[i]].kind == TC_PARAM)
			return buckets[writes.items[i]];
	return TC_NONE;
}

static void tci_units_by_event(struct tc_planner *planner)
{
	const struct tc_trace *trace = planner->trace;
	for (uint32_t op = 0; op < trace->op_count; op++) {
		uint32_t last = op;
		if (!tci_may_update(trace, op))
			continue;
		while (last + 1 < trace->op_count && trace->ops[last + 1].phase == TC_OPTIMIZER &&
		       trace->ops[last + 1].event == trace->ops[op].event)
			last++;
		planner->update_last[op] = last;
		op = last;
	}
}

/** A persistent gradient does not count: what scales it in place is part of taking the norm. */
static bool tci_writes_what_lasts(const struct tc_trace *trace, uint32_t op)
{
	struct tc_ids writes = trace->ops[op].writes;
	for (uint32_t i = 0; i < writes.count; i++)
		if (trace->tensors[writes.items[i]].persistent &&
		    trace->tensors[writes.items[i]].kind != TC_GRAD)
			return true;
	return false;
}

static void tci_units_by_bucket(struct tc_planner *planner, const uint32_t *buckets)
{
	const struct tc_trace *trace = planner->trace;
	bool begun = false;
	for (uint32_t op = 0; op < trace->op_count; op++) {
		uint32_t last = op, bucket;
		if (!tci_may_update(trace, op))
			continue;
		begun = begun || tci_writes_what_lasts(trace, op);
		if (!begun)
			continue;
		bucket = tci_bucket_of(trace, buckets, op);
		while (last + 1 < trace->op_count && tci_may_update(trace, last + 1)) {
			uint32_t next = tci_bucket_of(trace, buckets, last + 1);
			if (next != TC_NONE && next != bucket && bucket != TC_NONE)
				break;
			if (next != TC_NONE)
				bucket = next;
			last++;
		}
		planner->update_last[op] = last;
		op = last;
	}
}

enum tc_status tci_units_prepare(struct tc_planner *planner, struct tc_error *error)
{
	const struct tc_trace *trace = planner->trace;
	uint32_t *buckets = tc_alloc_array((size_t)trace->tensor_count + 1, sizeof *buckets);
	planner->update_last =
	    tc_alloc_array((size_t)trace->op_count + 1, sizeof *planner->update_last);
	if (buckets == NULL || planner->update_last == NULL) {
		free(buckets);
		return tc_error_no_memory(error, "optimizer updates", trace->op_count);
	}
	for (uint32_t op = 0; op < trace->op_count; op++)
		planner->update_last[op] = TC_NONE;
	/* A parameter of no bucket is a bucket of its own. */
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		buckets[t] = trace->bucket_count + t;
	for (uint32_t b = 0; b < trace->bucket_count; b++)
		for (uint32_t i = 0; i < trace->buckets[b].count; i++)
			buckets[trace->buckets[b].items[i]] = b;
	if (trace->has_events)
		tci_units_by_event(planner);
	else
		tci_units_by_bucket(planner, buckets);
	free(buckets);
	return TC_OK;
}

uint32_t tc_plan_update_last(const struct tc_planner *planner, uint32_t op)
{
	return op < planner->trace->op_count ? planner->update_last[op] : TC_NONE;
}
