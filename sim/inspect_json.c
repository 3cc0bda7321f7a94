/* An inspection as one JSON document. Integers only; names are those of the structs. */
#include <jansson.h>
#include <stdlib.h>

#include "print.h"
#include "inspect.h"

/* jansson: a failed constructor gives NULL, and setting NULL fails; one check at the end is enough,
 * so the setters collect it. */
struct builder {
	bool failed;
};

static void put(struct builder *builder, json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value) != 0)
		builder->failed = true;
}

static void put_number(struct builder *builder, json_t *object, const char *key, uint64_t value)
{
	put(builder, object, key, json_integer((json_int_t)value));
}

static json_t *trace_json(struct builder *builder, const struct tc_inspection *inspection)
{
	const struct tc_steps *steps = inspection->steps;
	const struct tc_trace *trace = steps->trace;
	json_t *object = json_object();
	put(builder, object, "name", json_string(trace->name));
	put(builder, object, "sha256", json_string(trace->sha256));
	put(builder, object, "granularity", json_string(tc_granularity_name(steps->granularity)));
	put(builder, object, "requests", json_string(tc_request_mode_name(steps->request_mode)));
	put(builder, object, "frees",
	    json_string(steps->frees == TC_FREES_EAGER ? "eager" : "last-use"));
	put_number(builder, object, "tensors", trace->tensor_count);
	put_number(builder, object, "modules", trace->module_count);
	put_number(builder, object, "events", trace->event_count);
	put_number(builder, object, "ops", trace->op_count);
	put_number(builder, object, "steps", steps->step_count);
	put_number(builder, object, "persistent_bytes", inspection->persistent_bytes);
	return object;
}

static json_t *kind_json(struct builder *builder, const struct tc_inspection *inspection,
                         const struct tc_kind_total *total)
{
	json_t *object = json_object(), *sizes = json_array();
	put_number(builder, object, "count", total->count);
	put_number(builder, object, "bytes", total->bytes);
	put_number(builder, object, "persistent_bytes", total->persistent_bytes);
	for (uint32_t i = total->first_size; i < total->first_size + total->size_count; i++) {
		json_t *size = json_object();
		put_number(builder, size, "bytes", inspection->sizes[i].bytes);
		put_number(builder, size, "count", inspection->sizes[i].count);
		if (json_array_append_new(sizes, size) != 0)
			builder->failed = true;
	}
	put(builder, object, "sizes", sizes);
	return object;
}

static json_t *kinds_json(struct builder *builder, const struct tc_inspection *inspection)
{
	json_t *object = json_object();
	for (unsigned i = 0; i < TC_TENSOR_KIND_COUNT; i++)
		put(builder, object, tc_tensor_kind_name((enum tc_tensor_kind)i),
		    kind_json(builder, inspection, &inspection->kinds[i]));
	return object;
}

static json_t *phase_json(struct builder *builder, const struct tc_phase_total *total)
{
	json_t *object = json_object();
	put_number(builder, object, "ops", total->ops);
	put_number(builder, object, "steps", total->steps);
	put_number(builder, object, "flops", total->flops);
	put_number(builder, object, "traffic_bytes", total->traffic_bytes);
	put_number(builder, object, "timed_ops", total->timed_ops);
	put_number(builder, object, "measured_ps", total->measured_ps);
	return object;
}

static json_t *phases_json(struct builder *builder, const struct tc_inspection *inspection)
{
	json_t *object = json_object();
	for (unsigned i = 0; i < TC_PHASE_COUNT; i++)
		put(builder, object, tc_phase_name((enum tc_phase)i),
		    phase_json(builder, &inspection->phases[i]));
	put(builder, object, "all", phase_json(builder, &inspection->all));
	return object;
}

static json_t *passes_json(struct builder *builder, const struct tc_inspection *inspection)
{
	json_t *object = json_object();
	for (unsigned i = 0; i < TC_PASS_COUNT; i++) {
		const struct tc_pass_total *total = &inspection->passes[i];
		json_t *pass = json_object();
		put_number(builder, pass, "requests", total->requests);
		put_number(builder, pass, "rows", total->rows);
		put_number(builder, pass, "bytes", total->bytes);
		put(builder, object, tc_pass_name((enum tc_pass)i), pass);
	}
	return object;
}

static json_t *footprint_json(struct builder *builder, const struct tc_footprint *footprint)
{
	json_t *object = json_object(), *kinds = json_object();
	put_number(builder, object, "bytes", footprint->bytes);
	for (unsigned i = 0; i < TC_TENSOR_KIND_COUNT; i++)
		put_number(builder, kinds, tc_tensor_kind_name((enum tc_tensor_kind)i),
		           footprint->kind_bytes[i]);
	put(builder, object, "kind_bytes", kinds);
	put_number(builder, object, "workspace_bytes", footprint->workspace_bytes);
	put_number(builder, object, "op", footprint->op);
	put_number(builder, object, "step", footprint->step);
	return object;
}

static json_t *footprints_json(struct builder *builder, const struct tc_inspection *inspection)
{
	json_t *object = json_object();
	put(builder, object, "last_use_peak", footprint_json(builder, &inspection->last_use_peak));
	put(builder, object, "eager_peak", footprint_json(builder, &inspection->eager_peak));
	put(builder, object, "largest_step", footprint_json(builder, &inspection->largest_step));
	put(builder, object, "largest_op", footprint_json(builder, &inspection->largest_op));
	return object;
}

static json_t *quantiles_json(struct builder *builder, const struct tc_quantiles *quantiles)
{
	json_t *object = json_object();
	put_number(builder, object, "count", quantiles->count);
	for (size_t i = 0; i < TC_QUANTILE_COUNT; i++) {
		char key[16];
		(void)snprintf(key, sizeof key, "p%u", tc_quantile_percent[i]);
		put_number(builder, object, key, quantiles->values[i]);
	}
	return object;
}

static json_t *events_json(struct builder *builder, const struct tc_inspection *inspection)
{
	json_t *object = json_object();
	for (unsigned i = 0; i < TC_EVENT_KIND_COUNT; i++)
		put_number(builder, object, tc_event_kind_name((enum tc_event_kind)i),
		           inspection->events[i]);
	return object;
}

enum tc_status tci_print_inspection_json(FILE *out, const struct tc_inspection *inspection,
                                         struct tc_error *error)
{
	struct builder builder = {false};
	json_t *document = json_object();
	put(&builder, document, "format", json_string("tencache-inspection"));
	put(&builder, document, "version", json_string("1.0"));
	put(&builder, document, "trace", trace_json(&builder, inspection));
	put(&builder, document, "kinds", kinds_json(&builder, inspection));
	put(&builder, document, "must_fit", footprints_json(&builder, inspection));
	put(&builder, document, "phases", phases_json(&builder, inspection));
	put(&builder, document, "events", events_json(&builder, inspection));
	put(&builder, document, "passes", passes_json(&builder, inspection));
	put(&builder, document, "reuse_steps", quantiles_json(&builder, &inspection->reuse_steps));
	put(&builder, document, "reuse_bytes", quantiles_json(&builder, &inspection->reuse_bytes));
	enum tc_status status =
	    tci_print_json_value(out, builder.failed ? NULL : document, 2, error);
	json_decref(document);
	return status;
}
