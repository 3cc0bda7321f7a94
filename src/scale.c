/*
 * Scaling for the replayer. Everything is divided before planning, so that planner, engine and
 * executor need not know of it; the schedule says by how much.
 */
#include "tencache/scale.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

/** Tensors have whole multiples of so many elements. */
#define TCI_SCALE_ELEMENTS 16u
#define TCI_CHUNK_BLOCK 4096u

static enum tc_status tci_check_scale(uint64_t scale, struct tc_error *error)
{
	if (scale > 0 && scale <= TC_MAX_SCALE)
		return TC_OK;
	return tc_error_set(error, TC_ARGUMENT, "scale %" PRIu64 ": expected 1 to %u", scale,
	                    TC_MAX_SCALE);
}

static uint64_t tci_divide_up(uint64_t value, uint64_t scale)
{
	return value / scale + (value % scale != 0);
}

/* ---------------------------------------------------------------- trace */

static uint64_t tci_scaled_bytes(const struct tc_tensor *tensor, uint64_t scale)
{
	uint64_t width = tc_dtype_bytes(tensor->dtype);
	if (width == 0 || tensor->bytes % width != 0)
		width = 1;
	uint64_t elements = tci_divide_up(tensor->bytes / width, scale);
	elements = tci_divide_up(elements, TCI_SCALE_ELEMENTS) * TCI_SCALE_ELEMENTS;
	return elements * width; /* no more than the old size rounded up: it fits */
}

/** [offset, end) of the old tensor to a range of the new one that is not empty. */
static void tci_scale_ranges(const struct tc_trace *trace, struct tc_ids ids,
                             const struct tc_range *ranges, const uint64_t *old_bytes,
                             uint64_t scale)
{
	/* The ranges are the trace's own memory; only its readers see them as constant. */
	struct tc_range *own = (struct tc_range *)(uintptr_t)ranges;
	if (own == NULL)
		return;
	for (uint32_t i = 0; i < ids.count; i++) {
		uint64_t bytes = trace->tensors[ids.items[i]].bytes;
		uint64_t end = own[i].offset + own[i].bytes;
		bool to_the_end = end >= old_bytes[ids.items[i]];
		uint64_t first = own[i].offset / scale;
		uint64_t last = to_the_end ? bytes : tci_divide_up(end, scale);
		if (last > bytes)
			last = bytes;
		if (first >= last)
			first = last - 1;
		own[i] = (struct tc_range){first, last - first};
	}
}

static void tci_scale_op(struct tc_trace *trace, struct tc_op *op, const uint64_t *old_bytes,
                         uint64_t scale, bool divide_times)
{
	op->flops = tci_divide_up(op->flops, scale);
	op->bytes = tci_divide_up(op->bytes, scale);
	op->workspace = tci_divide_up(op->workspace, scale);
	if (divide_times)
		op->measured_ps = tci_divide_up(op->measured_ps, scale);
	tci_scale_ranges(trace, op->reads, op->read_ranges, old_bytes, scale);
	tci_scale_ranges(trace, op->writes, op->write_ranges, old_bytes, scale);
}

enum tc_status tc_trace_scale(struct tc_trace *trace, uint64_t scale, bool divide_times,
                              struct tc_error *error)
{
	TC_TRY(tci_check_scale(scale, error));
	if (trace->scale > 1)
		return tc_error_set(error, TC_ARGUMENT,
		                    "trace %s was divided by %" PRIu64 " already", trace->file_name,
		                    trace->scale);
	if (scale == 1)
		return TC_OK;
	uint64_t *old_bytes = tc_alloc_array((size_t)trace->tensor_count + 1, sizeof *old_bytes);
	if (old_bytes == NULL)
		return tc_error_no_memory(error, "sizes", trace->tensor_count);
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		old_bytes[t] = trace->tensors[t].bytes;
		trace->tensors[t].bytes = tci_scaled_bytes(&trace->tensors[t], scale);
	}
	for (uint32_t o = 0; o < trace->op_count; o++)
		tci_scale_op(trace, &trace->ops[o], old_bytes, scale, divide_times);
	trace->workspace_slack = tci_divide_up(trace->workspace_slack, scale);
	trace->scale = scale;
	free(old_bytes);
	return TC_OK;
}

/* ---------------------------------------------------------------- machine */

/** Values that count bytes, and of those only. */
static bool tci_is_size(const struct tc_machine_value *value)
{
	return strcmp(value->unit, "bytes") == 0;
}

static bool tci_is_rate(const struct tc_machine_value *value)
{
	return strcmp(value->unit, "bytes/s") == 0 || strstr(value->path, "_per_s") != NULL;
}

static enum tc_status tci_scale_value(struct tc_machine *machine, size_t index, uint64_t scale,
                                      bool divide_rates, struct tc_error *error)
{
	size_t count;
	/* The list is made anew by each override. */
	const struct tc_machine_value *value = &tc_machine_values(machine, &count)[index];
	bool chunk = strcmp(value->path, "link.chunk_bytes") == 0;
	char path[96], text[32];
	if (value->number == 0 || (value->is_default && !chunk) ||
	    !(tci_is_size(value) || (divide_rates && tci_is_rate(value))))
		return TC_OK;
	uint64_t divided = tci_divide_up(value->number, scale);
	if (chunk)
		divided = tci_divide_up(divided, TCI_CHUNK_BLOCK) * TCI_CHUNK_BLOCK;
	(void)snprintf(path, sizeof path, "%s", value->path);
	(void)snprintf(text, sizeof text, "%" PRIu64, divided);
	return tc_machine_override(machine, path, text, error);
}

enum tc_status tc_machine_scale(struct tc_machine *machine, uint64_t scale, bool divide_rates,
                                struct tc_error *error)
{
	TC_TRY(tci_check_scale(scale, error));
	size_t count;
	(void)tc_machine_values(machine, &count);
	/* What the framework takes first: it must stay below the capacity at every moment. */
	for (int framework = 1; framework >= 0; framework--)
		for (size_t i = 0; i < count && scale > 1; i++) {
			const char *path = tc_machine_values(machine, &count)[i].path;
			if ((strstr(path, "framework") != NULL) == (framework == 1))
				TC_TRY(tci_scale_value(machine, i, scale, divide_rates, error));
		}
	return TC_OK;
}

/* ---------------------------------------------------------------- policy */

/** The size that parameters of `*bytes` bytes get. Parameters of several data types may be equal in
 * bytes before and not after. */
static enum tc_status tci_scale_class(const struct tc_trace *trace, uint64_t scale,
                                      const char *what, uint64_t *bytes, struct tc_error *error)
{
	uint64_t scaled = 0;
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		const struct tc_tensor *tensor = &trace->tensors[t];
		if (tensor->kind != TC_PARAM || tensor->bytes != *bytes)
			continue;
		uint64_t one = tci_scaled_bytes(tensor, scale);
		if (scaled != 0 && one != scaled)
			return tc_error_set(error, TC_ARGUMENT,
			                    "%s names %" PRIu64
			                    " bytes, and parameters of that size get %" PRIu64
			                    " and %" PRIu64 " bytes at scale %" PRIu64
			                    ", since their data types differ; use another scale",
			                    what, *bytes, scaled, one, scale);
		scaled = one;
	}
	if (scaled == 0)
		return tc_error_set(error, TC_ARGUMENT,
		                    "%s names %" PRIu64 " bytes, but no parameter of trace %s has "
		                    "them; name sizes of the trace as it is, before scaling",
		                    what, *bytes, trace->name);
	*bytes = scaled;
	return TC_OK;
}

static enum tc_status tci_scale_parameter(const struct tc_policy_parameter *parameter,
                                          const struct tc_trace *trace, uint64_t scale,
                                          struct tc_policy_value *value, struct tc_error *error)
{
	bool counts =
	    parameter->type == TC_PARAMETER_COUNT || parameter->type == TC_PARAMETER_BYTES;
	bool size = parameter->unit != NULL && (strcmp(parameter->unit, "bytes") == 0 ||
	                                        strcmp(parameter->unit, "elements") == 0);
	if (counts && size && !value->is_auto)
		value->number = tci_divide_up(value->number, scale);
	for (size_t i = 0; i < value->size_count; i++)
		TC_TRY(
		    tci_scale_class(trace, scale, parameter->name, &value->sizes[i].bytes, error));
	return TC_OK;
}

enum tc_status tc_policy_scale(struct tc_policy_choice *choice, const struct tc_trace *trace,
                               uint64_t scale, struct tc_error *error)
{
	TC_TRY(tci_check_scale(scale, error));
	if (trace->scale > 1)
		return tc_error_set(error, TC_ARGUMENT,
		                    "trace %s was divided by %" PRIu64
		                    " already, so sizes of its parameters are not what the policy "
		                    "names",
		                    trace->file_name, trace->scale);
	for (size_t i = 0; scale > 1 && i < choice->policy->parameter_count; i++)
		TC_TRY(tci_scale_parameter(&choice->policy->parameters[i], trace, scale,
		                           &choice->values[i], error));
	return TC_OK;
}
