/**
 * @file json_report.c
 * A report as JSON. Keys are part of the interface (src/REPORT.md, src/report.schema.json); CSV is
 * made from the same objects, so names exist once.
 */
#include <stdlib.h>
#include <string.h>

#include "print.h"

static void set(json_t *object, const char *key, uint64_t value)
{
	/* jansson's integers are signed; nothing we report comes near 2^63. */
	(void)json_object_set_new(object, key,
	                          json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

static json_t *hits_into(json_t *object, const struct tc_hits *hits)
{
	set(object, "requests", hits->requests);
	set(object, "request_bytes", hits->request_bytes);
	set(object, "resident", hits->resident);
	set(object, "resident_bytes", hits->resident_bytes);
	set(object, "covered", hits->covered);
	set(object, "covered_bytes", hits->covered_bytes);
	set(object, "ready", hits->ready);
	set(object, "ready_bytes", hits->ready_bytes);
	set(object, "demand_misses", hits->demand_misses);
	set(object, "always_resident", hits->always_resident);
	return object;
}

static json_t *phase_json(const struct tc_phase_report *phase)
{
	json_t *object = json_object(), *kinds = json_object();
	set(object, "time_ps", phase->time_ps);
	set(object, "compute_ps", phase->compute_ps);
	set(object, "stall_ps", phase->stall_ps);
	(void)hits_into(object, &phase->hits);
	set(object, "fetches", phase->fetches);
	set(object, "fetch_bytes", phase->fetch_bytes);
	set(object, "evictions", phase->evictions);
	set(object, "eviction_bytes", phase->eviction_bytes);
	/* Only these kinds are ever requested. */
	static const enum tc_tensor_kind requested[] = {TC_PARAM, TC_GRAD, TC_OPTIMIZER_STATE};
	for (size_t i = 0; i < sizeof requested / sizeof *requested; ++i)
		(void)json_object_set_new(kinds, tc_tensor_kind_name(requested[i]),
		                          hits_into(json_object(), &phase->kinds[requested[i]]));
	(void)json_object_set_new(object, "kinds", kinds);
	return object;
}

static json_t *transfer_json(const struct tc_transfer_report *transfer)
{
	json_t *object = json_object(), *kinds = json_object();
	set(object, "count", transfer->count);
	set(object, "bytes", transfer->bytes);
	set(object, "busy_ps", transfer->busy_ps);
	for (size_t kind = 0; kind < TC_TENSOR_KIND_COUNT; ++kind) {
		json_t *one = json_object();
		set(one, "count", transfer->kind_count[kind]);
		set(one, "bytes", transfer->kind_bytes[kind]);
		(void)json_object_set_new(kinds, tc_tensor_kind_name((enum tc_tensor_kind)kind),
		                          one);
	}
	(void)json_object_set_new(object, "kinds", kinds);
	return object;
}

static json_t *memory_json(const struct tc_memory_report *memory)
{
	json_t *object = json_object(), *kinds = json_object();
	set(object, "capacity_bytes", memory->capacity_bytes);
	set(object, "fixed_bytes", memory->fixed_bytes);
	set(object, "peak_bytes", memory->peak_bytes);
	set(object, "mean_bytes", memory->mean_bytes);
	for (size_t kind = 0; kind < TC_TENSOR_KIND_COUNT; ++kind)
		set(kinds, tc_tensor_kind_name((enum tc_tensor_kind)kind),
		    memory->kind_peak_bytes[kind]);
	(void)json_object_set_new(object, "kind_peak_bytes", kinds);
	return object;
}

/** Parameters as given or by default; numbers as text keep their unit. */
static json_t *parameters_json(const struct tc_policy_choice *choice)
{
	json_t *object = json_object();
	for (size_t i = 0; choice != NULL && i < choice->policy->parameter_count; ++i)
		(void)json_object_set_new(object, choice->policy->parameters[i].name,
		                          json_string(choice->values[i].text));
	return object;
}

static void add_times(json_t *object, const struct tc_result *result)
{
	set(object, "iteration_ps", result->iteration_ps);
	set(object, "cold_iteration_ps", result->cold_iteration_ps);
	set(object, "initial_ps", result->initial_ps);
	(void)json_object_set_new(object, "steady", json_boolean(result->steady));
	set(object, "iteration_min_ps", result->iteration_min_ps);
	set(object, "iteration_max_ps", result->iteration_max_ps);
	set(object, "compute_ps", result->compute_ps);
	set(object, "stall_ps", result->stall_ps);
	json_t *stalls = json_object();
	for (size_t cause = 0; cause < TC_STALL_CAUSE_COUNT; ++cause)
		set(stalls, tc_stall_cause_name((enum tc_stall_cause)cause),
		    result->stalls_ps[cause]);
	(void)json_object_set_new(object, "stalls_ps", stalls);
}

static void add_groups(json_t *object, const struct tc_result *result)
{
	json_t *phases = json_object(), *transfers = json_object(), *memory = json_object();
	for (size_t phase = 0; phase < TC_PHASE_COUNT; ++phase)
		(void)json_object_set_new(phases, tc_phase_name((enum tc_phase)phase),
		                          phase_json(&result->phases[phase]));
	static const enum tc_queue queues[] = {TC_QUEUE_H2D, TC_QUEUE_D2H, TC_QUEUE_NVME_READ,
	                                       TC_QUEUE_NVME_WRITE, TC_QUEUE_GPU_NVME};
	for (size_t i = 0; i < sizeof queues / sizeof *queues; ++i)
		(void)json_object_set_new(transfers, tc_queue_name(queues[i]),
		                          transfer_json(&result->transfers[queues[i]]));
	for (size_t tier = 0; tier < TC_TIER_COUNT; ++tier)
		(void)json_object_set_new(memory, tc_tier_name((enum tc_tier)tier),
		                          memory_json(&result->memory[tier]));
	(void)json_object_set_new(object, "phases", phases);
	(void)json_object_set_new(object, "transfers", transfers);
	(void)json_object_set_new(object, "memory", memory);
}

static void add_counts(json_t *object, const struct tc_result *result)
{
	set(object, "cpu_busy_ps", result->transfers[TC_QUEUE_CPU].busy_ps);
	set(object, "recompute_requests", result->recompute_requests);
	set(object, "delayed_fetches", result->notes.delayed_fetches);
	set(object, "repacks", result->notes.repacks);
	set(object, "read_misses", result->read_misses);
	set(object, "unmanaged_bytes", result->notes.unmanaged_bytes);
	set(object, "largest_need_bytes", result->notes.largest_need_bytes);
	set(object, "pools", result->pool_count);
	set(object, "pinned_bytes", result->pinned_bytes);
	set(object, "pinned_rounded_bytes", result->pinned_rounded_bytes);
	set(object, "tokens", result->tokens);
	set(object, "flops", result->flops);
	set(object, "endurance_iterations", result->endurance_iterations);
	set(object, "price_per_million_tokens_micro_usd",
	    result->price_per_million_tokens_micro_usd);
	(void)json_object_set_new(object, "changes_semantics",
	                          json_boolean(result->changes_semantics));
	(void)json_object_set_new(object, "reordered", json_boolean(result->reordered));
	set(object, "commands", result->commands);
	(void)json_object_set_new(object, "notes", json_string(result->notes.text));
}

static json_t *modules_json(const struct tci_document *document, const struct tc_result *result)
{
	json_t *array = json_array();
	for (uint32_t i = 0; i < result->module_stall_count && i < 10; ++i) {
		const struct tc_module_stall *stall = &result->module_stalls[i];
		json_t *one = json_object();
		const char *path = stall->module == TC_NONE || document->trace == NULL
		                       ? ""
		                       : document->trace->modules[stall->module].path;
		(void)json_object_set_new(one, "module", json_string(path));
		set(one, "stall_ps", stall->stall_ps);
		(void)json_array_append_new(array, one);
	}
	return array;
}

json_t *tci_result_json(const struct tci_document *document, const struct tc_result *result)
{
	json_t *object = json_object();
	bool feasible = result->status == TC_OK;
	(void)json_object_set_new(object, "policy", json_string(result->policy));
	(void)json_object_set_new(object, "parameters", parameters_json(result->choice));
	(void)json_object_set_new(object, "status", json_string(feasible ? "ok" : "infeasible"));
	(void)json_object_set_new(object, "message", json_string(result->message));
	if (!feasible)
		return object;
	add_times(object, result);
	add_groups(object, result);
	add_counts(object, result);
	(void)json_object_set_new(object, "module_stalls", modules_json(document, result));
	return object;
}

static json_t *document_json(const struct tci_document *document)
{
	json_t *root = json_object(), *results = json_array();
	const struct tc_trace *trace = document->trace;
	const struct tc_machine *machine = document->machine;
	(void)json_object_set_new(root, "format", json_string("tencache-report"));
	(void)json_object_set_new(root, "version", json_integer(1));
	(void)json_object_set_new(
	    root, "trace",
	    json_pack("{s:s, s:s, s:s, s:s}", "name", trace->name, "sha256", trace->sha256,
	              "requests", tc_request_mode_name(document->steps->request_mode),
	              "granularity", tc_granularity_name(document->steps->granularity)));
	(void)json_object_set_new(root, "machine",
	                          json_pack("{s:s, s:s, s:s}", "name", machine->name, "sha256",
	                                    machine->sha256, "confidence",
	                                    tc_confidence_name(machine->confidence)));
	set(root, "iterations", document->iterations);
	for (size_t i = 0; i < document->result_count; ++i)
		(void)json_array_append_new(results,
		                            tci_result_json(document, &document->results[i]));
	(void)json_object_set_new(root, "results", results);
	return root;
}

enum tc_status tci_print_json(FILE *out, const struct tci_document *document,
                              struct tc_error *error)
{
	json_t *root = document_json(document);
	enum tc_status status = tci_print_json_value(out, root, 1, error);
	json_decref(root);
	if (status == TC_OK && ferror(out) != 0)
		return tc_error_set(error, TC_IO, "cannot write the report");
	return status;
}
