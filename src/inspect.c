/*
 * What is in a trace. Sums and peaks are one walk over the ops. Reuse distances: parameters are
 * used in runs of adjacent steps; walking two iterations, a Fenwick tree over steps holds the bytes
 * of each parameter at its latest use, so that the bytes used since a given step are a prefix
 * difference. Distances are taken in the second iteration, when every parameter has been used.
 */
#include "tencache/inspect.h"

#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

const uint32_t tc_quantile_percent[TC_QUANTILE_COUNT] = {0, 10, 25, 50, 75, 90, 100};

/* ---------------------------------------------------------------- sizes */

static int compare_sizes(const void *left, const void *right)
{
	const struct tc_size_count *a = left, *b = right;
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

static enum tc_status count_sizes(const struct tc_trace *trace, struct tc_inspection *inspection,
                                  struct tc_error *error)
{
	struct tc_size_count *sizes =
	    tc_alloc_array(trace->tensor_count + (size_t)1, sizeof *sizes);
	if (sizes == NULL)
		return tc_error_no_memory(error, "sizes", trace->tensor_count);
	inspection->sizes = sizes;
	for (uint32_t i = 0; i < trace->tensor_count; i++)
		sizes[i] =
		    (struct tc_size_count){trace->tensors[i].kind, trace->tensors[i].bytes, 1};
	qsort(sizes, trace->tensor_count, sizeof *sizes, compare_sizes);
	uint32_t count = 0;
	for (uint32_t i = 0; i < trace->tensor_count; i++) {
		if (count > 0 && compare_sizes(&sizes[count - 1], &sizes[i]) == 0)
			sizes[count - 1].count++;
		else
			sizes[count++] = sizes[i];
	}
	inspection->size_count = count;
	for (uint32_t i = count; i-- > 0;) {
		inspection->kinds[sizes[i].kind].first_size = i;
		inspection->kinds[sizes[i].kind].size_count++;
	}
	return TC_OK;
}

static void sum_kinds(const struct tc_trace *trace, struct tc_inspection *inspection)
{
	for (uint32_t i = 0; i < trace->tensor_count; i++) {
		const struct tc_tensor *tensor = &trace->tensors[i];
		struct tc_kind_total *kind = &inspection->kinds[tensor->kind];
		kind->count++;
		kind->bytes += tensor->bytes;
		if (tensor->persistent) {
			kind->persistent_bytes += tensor->bytes;
			inspection->persistent_bytes += tensor->bytes;
		}
	}
}

/* ---------------------------------------------------------------- counts */

static void add_op(const struct tc_trace *trace, const struct tc_op *op,
                   struct tc_phase_total *total)
{
	total->ops++;
	total->flops += op->flops;
	total->traffic_bytes += tc_op_traffic_bytes(trace, op);
	total->timed_ops += op->timed;
	total->measured_ps += op->measured_ps;
}

static void count_all(const struct tc_steps *steps, struct tc_inspection *inspection)
{
	const struct tc_trace *trace = steps->trace;
	for (uint32_t i = 0; i < trace->op_count; i++) {
		add_op(trace, &trace->ops[i], &inspection->phases[trace->ops[i].phase]);
		add_op(trace, &trace->ops[i], &inspection->all);
	}
	for (uint32_t i = 0; i < steps->step_count; i++)
		inspection->phases[steps->steps[i].phase].steps++;
	inspection->all.steps = steps->step_count;
	for (uint32_t i = 0; i < trace->event_count; i++)
		inspection->events[trace->events[i].kind]++;
	for (uint32_t i = 0; i < steps->request_count; i++) {
		const struct tc_request *request = &steps->requests[i];
		struct tc_pass_total *pass = &inspection->passes[request->pass];
		pass->requests++;
		pass->rows += request->row_count;
		for (uint32_t k = 0; k < request->row_count; k++)
			pass->bytes += trace->tensors[steps->rows[request->first_row + k]].bytes;
	}
}

/* ---------------------------------------------------------------- footprints */

static void add_tensor(const struct tc_trace *trace, struct tc_footprint *now, uint32_t tensor)
{
	now->kind_bytes[trace->tensors[tensor].kind] += trace->tensors[tensor].bytes;
	now->bytes += trace->tensors[tensor].bytes;
}

static void remove_tensor(const struct tc_trace *trace, struct tc_footprint *now, uint32_t tensor)
{
	now->kind_bytes[trace->tensors[tensor].kind] -= trace->tensors[tensor].bytes;
	now->bytes -= trace->tensors[tensor].bytes;
}

/** Keep the larger one; the earlier one when equal. */
static void keep_larger(struct tc_footprint *largest, struct tc_footprint now, uint64_t workspace,
                        uint32_t op, uint32_t step)
{
	now.workspace_bytes = workspace;
	now.bytes += workspace;
	now.op = op;
	now.step = step;
	if (now.bytes > largest->bytes)
		*largest = now;
}

static struct tc_footprint find_peak(const struct tc_steps *steps, bool eager)
{
	const struct tc_trace *trace = steps->trace;
	struct tc_footprint now = {0}, peak = {0};
	for (uint32_t i = 0; i < trace->tensor_count; i++) {
		if (trace->tensors[i].persistent)
			add_tensor(trace, &now, i);
	}
	for (uint32_t s = 0; s < steps->step_count; s++) {
		for (uint32_t i = steps->steps[s].first_op; i <= steps->steps[s].last_op; i++) {
			const struct tc_op *op = &trace->ops[i];
			const struct tc_ids *frees = eager ? &op->frees_eager : &op->frees;
			for (uint32_t k = 0; k < op->allocates.count; k++)
				add_tensor(trace, &now, op->allocates.items[k]);
			keep_larger(&peak, now, op->workspace, i, s);
			for (uint32_t k = 0; k < frees->count; k++)
				remove_tensor(trace, &now, frees->items[k]);
		}
	}
	return peak;
}

/** Add the tensors of a list that this footprint does not hold yet. */
static void add_new(const struct tc_trace *trace, struct tc_footprint *now,
                    const struct tc_ids *ids, uint32_t *mark, uint32_t stamp)
{
	for (uint32_t i = 0; i < ids->count; i++) {
		if (mark[ids->items[i]] == stamp)
			continue;
		mark[ids->items[i]] = stamp;
		add_tensor(trace, now, ids->items[i]);
	}
}

static enum tc_status find_largest(const struct tc_steps *steps, struct tc_inspection *inspection,
                                   struct tc_error *error)
{
	const struct tc_trace *trace = steps->trace;
	uint32_t *mark = tc_alloc_array(trace->tensor_count + (size_t)1, sizeof *mark);
	if (mark == NULL)
		return tc_error_no_memory(error, "an inspection", trace->tensor_count);
	for (uint32_t s = 0; s < steps->step_count; s++) {
		const struct tc_step *step = &steps->steps[s];
		struct tc_footprint now = {0};
		uint64_t workspace = 0;
		add_new(trace, &now, &step->requested, mark, s + 1);
		add_new(trace, &now, &step->reads, mark, s + 1);
		add_new(trace, &now, &step->writes, mark, s + 1);
		add_new(trace, &now, &step->unpacks, mark, s + 1);
		for (uint32_t i = step->first_op; i <= step->last_op; i++)
			workspace = trace->ops[i].workspace > workspace ? trace->ops[i].workspace
			                                                : workspace;
		keep_larger(&inspection->largest_step, now, workspace, step->first_op, s);
	}
	memset(mark, 0, (trace->tensor_count + (size_t)1) * sizeof *mark);
	for (uint32_t s = 0; s < steps->step_count; s++) {
		for (uint32_t i = steps->steps[s].first_op; i <= steps->steps[s].last_op; i++) {
			struct tc_footprint now = {0};
			add_new(trace, &now, &trace->ops[i].reads, mark, i + 1);
			add_new(trace, &now, &trace->ops[i].writes, mark, i + 1);
			keep_larger(&inspection->largest_op, now, trace->ops[i].workspace, i, s);
		}
	}
	free(mark);
	return TC_OK;
}

/* ---------------------------------------------------------------- reuse */

/** Bytes of parameters by the step (over two iterations) of their latest use. */
struct tree {
	uint64_t *sums;
	size_t count;
};

static void tree_add(struct tree *tree, size_t index, uint64_t bytes)
{
	for (size_t i = index + 1; i <= tree->count; i += i & (~i + 1))
		tree->sums[i] += bytes; /* modulo 2^64: a removal adds the complement */
}

/** Sum of entries 0 ... index-1. */
static uint64_t tree_sum(const struct tree *tree, size_t index)
{
	uint64_t sum = 0;
	for (size_t i = index; i > 0; i -= i & (~i + 1))
		sum += tree->sums[i];
	return sum;
}

struct reuse {
	const struct tc_steps *steps;
	struct tree tree;
	uint64_t *latest; /* per tensor: step + 1 of its latest use; 0: none */
	uint64_t *distances, *bytes;
	size_t count;
};

/** Uses of parameters, sorted by step: the transpose of the use index. */
static enum tc_status sort_uses(const struct tc_steps *steps, uint32_t **first, uint32_t **params,
                                struct tc_error *error)
{
	const struct tc_trace *trace = steps->trace;
	*first = tc_alloc_array(steps->step_count + (size_t)2, sizeof **first);
	*params =
	    tc_alloc_array(steps->use_first[trace->tensor_count] + (size_t)1, sizeof **params);
	if (*first == NULL || *params == NULL)
		return tc_error_no_memory(error, "reuse distances", steps->step_count);
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t t = 0; t < trace->tensor_count; t++) {
			if (trace->tensors[t].kind != TC_PARAM)
				continue;
			for (uint32_t u = steps->use_first[t]; u < steps->use_first[t + 1]; u++) {
				uint32_t step = steps->use_steps[u];
				if (pass == 0)
					(*first)[step + 2]++;
				else
					(*params)[(*first)[step + 1]++] = t;
			}
		}
		for (uint32_t s = 0; pass == 0 && s < steps->step_count; s++)
			(*first)[s + 2] += (*first)[s + 1];
	}
	return TC_OK;
}

static void use_step(struct reuse *reuse, const uint32_t *params, size_t count, uint64_t now)
{
	const struct tc_trace *trace = reuse->steps->trace;
	bool second = now >= reuse->steps->step_count;
	for (size_t i = 0; i < count && second; i++) {
		uint64_t last = reuse->latest[params[i]];
		/* last is step + 1: equal to `now` means that the step before used it too. */
		if (last == 0 || last == now)
			continue;
		reuse->distances[reuse->count] = now + 1 - last;
		reuse->bytes[reuse->count++] =
		    tree_sum(&reuse->tree, now) - tree_sum(&reuse->tree, last);
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t bytes = trace->tensors[params[i]].bytes, last = reuse->latest[params[i]];
		if (last > 0)
			tree_add(&reuse->tree, last - 1, ~bytes + 1);
		tree_add(&reuse->tree, now, bytes);
		reuse->latest[params[i]] = now + 1;
	}
}

static int compare_numbers(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return (a > b) - (a < b);
}

static struct tc_quantiles quantiles_of(uint64_t *values, size_t count)
{
	struct tc_quantiles quantiles = {.count = count};
	if (count == 0)
		return quantiles;
	qsort(values, count, sizeof *values, compare_numbers);
	for (size_t i = 0; i < TC_QUANTILE_COUNT; i++) {
		size_t rank = (count * tc_quantile_percent[i] + 99) / 100;
		quantiles.values[i] = values[rank == 0 ? 0 : rank - 1];
	}
	return quantiles;
}

static enum tc_status take_reuse(struct reuse *reuse, size_t uses, struct tc_error *error)
{
	size_t steps = reuse->steps->step_count;
	reuse->tree.count = 2 * steps;
	reuse->tree.sums = tc_alloc_array(2 * steps + 1, sizeof(uint64_t));
	reuse->latest =
	    tc_alloc_array(reuse->steps->trace->tensor_count + (size_t)1, sizeof(uint64_t));
	reuse->distances = tc_alloc_array(uses + 1, sizeof(uint64_t));
	reuse->bytes = tc_alloc_array(uses + 1, sizeof(uint64_t));
	if (reuse->tree.sums == NULL || reuse->latest == NULL || reuse->distances == NULL ||
	    reuse->bytes == NULL)
		return tc_error_no_memory(error, "reuse distances", uses);
	return TC_OK;
}

static enum tc_status measure_reuse(const struct tc_steps *steps, struct tc_inspection *inspection,
                                    struct tc_error *error)
{
	uint32_t *first = NULL, *params = NULL;
	struct reuse reuse = {.steps = steps};
	enum tc_status status = sort_uses(steps, &first, &params, error);
	if (status == TC_OK)
		status = take_reuse(&reuse, steps->use_first[steps->trace->tensor_count], error);
	for (uint64_t now = 0; now < 2 * (uint64_t)steps->step_count && status == TC_OK; now++) {
		uint64_t step = now % steps->step_count;
		use_step(&reuse, params + first[step], first[step + 1] - first[step], now);
	}
	if (status == TC_OK) {
		inspection->reuse_steps = quantiles_of(reuse.distances, reuse.count);
		inspection->reuse_bytes = quantiles_of(reuse.bytes, reuse.count);
	}
	free(first);
	free(params);
	free(reuse.tree.sums);
	free(reuse.latest);
	free(reuse.distances);
	free(reuse.bytes);
	return status;
}

/* ---------------------------------------------------------------- public */

enum tc_status tc_inspect(const struct tc_steps *steps, struct tc_inspection **inspection,
                          struct tc_error *error)
{
	*inspection = NULL;
	struct tc_inspection *result = calloc(1, sizeof *result);
	if (result == NULL)
		return tc_error_no_memory(error, "an inspection", sizeof *result);
	result->steps = steps;
	sum_kinds(steps->trace, result);
	count_all(steps, result);
	result->last_use_peak = find_peak(steps, false);
	result->eager_peak = find_peak(steps, true);
	enum tc_status status = count_sizes(steps->trace, result, error);
	if (status == TC_OK)
		status = find_largest(steps, result, error);
	if (status == TC_OK)
		status = measure_reuse(steps, result, error);
	if (status == TC_OK)
		*inspection = result;
	else
		tc_inspection_free(result);
	return status;
}

void tc_inspection_free(struct tc_inspection *inspection)
{
	if (inspection == NULL)
		return;
	free(inspection->sizes);
	free(inspection);
}
