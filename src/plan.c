/*
 * Running a plan: begin, then iteration after iteration, boundary after boundary. At a boundary
 * the policy hears what closes, then the events, then what opens; then the step is served.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

static void tci_planner_role(struct tc_planner *planner, uint32_t t)
{
	const struct tc_tensor *tensor = &planner->trace->tensors[t];
	if (tensor->of == TC_NONE)
		return;
	struct tci_relations *param = &planner->relations[tensor->of];
	if (tensor->kind == TC_GRAD)
		param->gradient_of_param = t;
	else if (tensor->role == TC_ROLE_MASTER)
		param->master = t;
	else if (tensor->role == TC_ROLE_EXP_AVG)
		param->exp_avg = t;
	else if (tensor->role == TC_ROLE_EXP_AVG_SQ)
		param->exp_avg_sq = t;
}

/**
 * Elements of a tensor. A gradient has as many as its parameter, whatever its own width; where the
 * data type is unknown, the parameters' width stands in. Never 0: what is derived has a size.
 */
static uint64_t tci_elements(const struct tc_trace *trace, const struct tc_tensor *tensor)
{
	if (tensor->kind == TC_GRAD && tensor->of != TC_NONE)
		tensor = &trace->tensors[tensor->of];
	uint64_t width = tc_dtype_bytes(tensor->dtype);
	if (width == 0)
		width = tc_dtype_bytes(trace->param_dtype);
	if (width == 0)
		width = 2;
	return (tensor->bytes - 1) / width + 1;
}

static enum tc_status tci_tensor_reserve(struct tc_planner *planner, size_t needed,
                                         struct tc_error *error)
{
	if (needed >= TC_NONE ||
	    !tci_grow_lines(&planner->tensors, &planner->tensor_capacity, needed,
	                    sizeof *planner->tensors) ||
	    !tc_grow_array(&planner->relations, &planner->relation_capacity, needed,
	                   sizeof *planner->relations) ||
	    !tc_grow_array(&planner->table, &planner->table_capacity, needed,
	                   sizeof *planner->table))
		return tc_error_no_memory(error, "planner tensors", needed);
	return TC_OK;
}

enum tc_status tci_tensor_add(struct tc_planner *planner, const struct tc_plan_tensor *entry,
                              uint64_t elements, struct tc_error *error)
{
	uint32_t id = planner->tensor_count;
	TC_TRY(tci_tensor_reserve(planner, (size_t)id + 1, error));
	planner->table[id] = *entry;
	planner->table[id].start.pool = TC_NO_POOL;
	planner->tensors[id] =
	    (struct tci_tensor){.slots = {TCI_NO_SLOT, TCI_NO_SLOT, TCI_NO_SLOT},
	                        .source = entry->derived_from == TC_NONE ? id : entry->derived_from,
	                        .bytes = entry->bytes,
	                        .elements = elements,
	                        .first_derived = TC_NONE,
	                        .next_derived = TC_NONE,
	                        .kind = (uint8_t)entry->kind};
	planner->relations[id] = (struct tci_relations){.gradient_of_param = TC_NONE,
	                                                .master = TC_NONE,
	                                                .exp_avg = TC_NONE,
	                                                .exp_avg_sq = TC_NONE,
	                                                .derived_master = TC_NONE};
	planner->tensor_count++;
	return TC_OK;
}

static enum tc_status tci_planner_tensors(struct tc_planner *planner, struct tc_error *error)
{
	const struct tc_trace *trace = planner->trace;
	TC_TRY(tci_tensor_reserve(planner, trace->tensor_count, error));
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		const struct tc_tensor *tensor = &trace->tensors[t];
		struct tc_plan_tensor entry = {.name = tensor->name,
		                               .kind = tensor->kind,
		                               .role = tensor->role,
		                               .bytes = tensor->bytes,
		                               .derived_from = TC_NONE,
		                               .home = TC_GPU};
		TC_TRY(tci_tensor_add(planner, &entry, tci_elements(trace, tensor), error));
	}
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		tci_planner_role(planner, t);
	for (uint32_t e = 0; e < trace->event_count; e++) {
		if (trace->events[e].kind != TC_EVENT_GRADIENT)
			continue;
		uint32_t gradient = planner->relations[trace->events[e].tensor].gradient_of_param;
		if (gradient != TC_NONE)
			planner->tensors[gradient].has_gradient_event = true;
	}
	return TC_OK;
}

static enum tc_status tci_planner_init(struct tc_planner *planner,
                                       const struct tc_plan_options *options,
                                       struct tc_error *error)
{
	*planner =
	    (struct tc_planner){.trace = options->trace,
	                        .steps = options->steps,
	                        .machine = options->machine,
	                        .choice = options->policy,
	                        .policy = options->policy->policy,
	                        .options = options,
	                        .declaring = true,
	                        .alignment = options->alignment == 0 ? 512 : options->alignment,
	                        .free_slot = TCI_NO_SLOT,
	                        .publish_pool = TC_NO_POOL,
	                        .unmanaged_pool = TC_NO_POOL,
	                        .staging_pool = TC_NO_POOL,
	                        .stamp = 1};
	for (int tier = 0; tier < TCI_TIERS; tier++)
		planner->default_pool[tier] = TC_NO_POOL;
	for (int kind = 0; kind < TC_TENSOR_KIND_COUNT; kind++)
		planner->birth_pool[kind] = TC_NO_POOL;
	if ((planner->alignment & (planner->alignment - 1)) != 0)
		return tc_error_set(error, TC_ARGUMENT, "alignment %llu is not a power of two",
		                    (unsigned long long)planner->alignment);
	if (options->iterations == 0)
		return tc_error_set(error, TC_ARGUMENT, "a plan needs at least one iteration");
	planner->policy_self = calloc(1, planner->policy->state_bytes + 1);
	if (planner->policy_self == NULL)
		return tc_error_no_memory(error, "policy state", planner->policy->state_bytes);
	TC_TRY(tci_planner_tensors(planner, error));
	TC_TRY(tci_units_prepare(planner, error));
	return tci_emit_create(planner, error);
}

static void tci_planner_free(struct tc_planner *planner)
{
	if (planner->policy_self != NULL && planner->policy->end != NULL)
		planner->policy->end(planner->policy_self);
	free(planner->policy_self);
	tci_emit_free(planner);
	tci_touch_free(planner);
	tci_memory_free(planner);
	tc_schedule_free(planner->record);
	for (size_t i = 0; i < planner->derived_name_count; i++)
		free(planner->derived_names[i]);
	free(planner->derived_names);
	tc_steps_free(planner->reordered);
	free(planner->tensors);
	free(planner->relations);
	free(planner->table);
}

/** Where everything is at the start: one place in the table, further copies in a list. */
static enum tc_status tci_initial_places(struct tc_planner *planner,
                                         struct tc_initial_copy **copies, uint32_t *copy_count,
                                         struct tc_error *error)
{
	size_t capacity = 0;
	*copies = NULL;
	*copy_count = 0;
	for (uint32_t t = 0; t < planner->tensor_count; t++) {
		struct tc_plan_tensor *entry = &planner->table[t];
		bool persistent =
		    t < planner->trace->tensor_count && planner->trace->tensors[t].persistent;
		if (persistent && !planner->tensors[t].managed &&
		    planner->unmanaged_pool != TC_NO_POOL) {
			entry->placed = true;
			entry->start = (struct tc_place){planner->unmanaged_pool,
			                                 planner->relations[t].unmanaged_offset};
		}
		for (int tier = TC_TIER_COUNT - 1; tier >= 0; tier--) {
			uint32_t slot = planner->tensors[t].slots[tier];
			if (slot == TCI_NO_SLOT)
				continue;
			struct tc_place place = {planner->slots[slot].pool,
			                         planner->slots[slot].offset};
			if (!entry->placed) {
				entry->placed = true;
				entry->start = place;
				continue;
			}
			if (!tc_grow_array(copies, &capacity, *copy_count + 1u, sizeof **copies))
				return tc_error_no_memory(error, "initial copies", *copy_count);
			(*copies)[(*copy_count)++] = (struct tc_initial_copy){t, place};
		}
	}
	return TC_OK;
}

static enum tc_status tci_announce(struct tc_planner *planner, struct tc_plan_info *info,
                                   struct tc_error *error)
{
	planner->pool_infos =
	    tc_alloc_array((size_t)planner->pool_count + 1, sizeof *planner->pool_infos);
	if (planner->pool_infos == NULL)
		return tc_error_no_memory(error, "pool table", planner->pool_count);
	for (uint32_t i = 0; i < planner->pool_count; i++)
		planner->pool_infos[i] = planner->pools[i].info;
	*info = (struct tc_plan_info){
	    .trace = planner->trace,
	    .steps = planner->options->steps,
	    .machine = planner->machine,
	    .policy = planner->choice->text,
	    .trace_name = planner->trace->name,
	    .trace_sha256 = planner->trace->sha256,
	    .events_sha256 = planner->trace->events_sha256,
	    .machine_sha256 = planner->machine->sha256,
	    .staleness = planner->policy->staleness,
	    .reordered = planner->reordered != NULL,
	    .drives = planner->trace->has_events && planner->reordered == NULL &&
	              planner->steps->granularity != TC_GRANULARITY_OP,
	    .scale = planner->trace->scale > 1 ? planner->trace->scale : 1,
	    .iterations = planner->options->iterations,
	    .pools = planner->pool_infos,
	    .pool_count = planner->pool_count,
	    .tensors = planner->table,
	    .tensor_count = planner->tensor_count,
	    .unlimited_memory = planner->unlimited};
	memcpy(info->lanes, planner->machine->lanes, sizeof info->lanes);
	for (int tier = 0; tier < TCI_TIERS; tier++)
		info->fixed_bytes[tier] = planner->machine->framework_bytes[tier];
	info->fixed_bytes[TC_GPU] += planner->trace->workspace_slack;
	return TC_OK;
}

/** Setting up pools: host memory is pinned at the machine's rate, device memory allocated. */
static enum tc_status tci_emit_init(struct tc_planner *planner, struct tc_error *error)
{
	for (uint32_t i = 0; i < planner->pool_count; i++) {
		const struct tc_pool_info *pool = &planner->pools[i].info;
		struct tc_command command = tci_command(TC_ALLOC, TC_QUEUE_HOST, TC_WHY_NONE);
		command.dst = (struct tc_place){i, 0};
		command.bytes = pool->bytes;
		if (pool->tier == TC_CPU && pool->pinned && planner->machine->pin_bytes_per_s > 0 &&
		    !tc_mul_div_ceil(pool->bytes, TC_PS_PER_S, planner->machine->pin_bytes_per_s,
		                     &command.duration_ps))
			return tc_error_set(
			    error, TC_TOO_LARGE,
			    "pinning the %llu bytes of pool \"%s\" at %llu bytes/s takes "
			    "longer than 2^64 ps (213 days); raise --pin-rate",
			    (unsigned long long)pool->bytes, pool->name,
			    (unsigned long long)planner->machine->pin_bytes_per_s);
		if (pool->tier == TC_GPU)
			command.duration_ps = planner->machine->gpu_alloc_ps_per_call;
		TC_TRY(tci_emit(planner, &command, NULL, 0, NULL, 0, NULL, error));
	}
	return TC_OK;
}

static enum tc_status tci_begin(struct tc_planner *planner, struct tc_initial_copy **copies,
                                struct tc_error *error)
{
	struct tc_plan_info *info = &planner->info;
	uint32_t copy_count;
	TC_TRY(planner->policy->begin(planner->policy_self, planner, error));
	if (planner->touch_first == NULL)
		return tc_error_set(error, TC_INTERNAL, "policy %s never called tc_plan_manage()",
		                    planner->choice->text);
	TC_TRY(tci_reorder_check_updates(planner, error));
	TC_TRY(tci_announce(planner, info, error));
	TC_TRY(tci_initial_places(planner, copies, &copy_count, error));
	info->copies = *copies;
	info->copy_count = copy_count;
	const struct tc_sink *sink = planner->options->sink;
	if (sink->begin != NULL)
		TC_TRY(sink->begin(sink->self, info, error));
	TC_TRY(tci_recorder_create(planner, error));
	TC_TRY(tci_emit_init(planner, error));
	planner->declaring = false;
	return TC_OK;
}

static enum tc_status tci_events(struct tc_planner *planner, const struct tc_step *s,
                                 struct tc_error *error)
{
	const struct tc_policy *policy = planner->policy;
	for (uint32_t e = s->first_event; e < s->first_event + s->event_count; e++) {
		bool handled = false;
		const struct tc_event *event = &planner->trace->events[e];
		planner->hooks++;
		if (event->kind == TC_EVENT_GRADIENT &&
		    planner->relations[event->tensor].gradient_of_param != TC_NONE)
			planner->tensors[planner->relations[event->tensor].gradient_of_param]
			    .pinned_gradient = false;
		if (policy->on_event != NULL)
			TC_TRY(policy->on_event(planner->policy_self, planner, e, &handled, error));
		if (!handled && event->kind == TC_EVENT_GRADIENT)
			TC_TRY(tci_gradient_event(planner, event->tensor, error));
	}
	return TC_OK;
}

static enum tc_status tci_phase_ends(struct tc_planner *planner, enum tc_phase next,
                                     struct tc_error *error)
{
	enum tc_phase ended = planner->phase;
	if (ended == next)
		return TC_OK;
	/* What is issued at the end of a phase counts in the one that begins (repair: optimizer).
	 */
	planner->phase = next;
	/* Where steps were reordered, phases alternate: each ends once, after its last step. */
	if (planner->reordered != NULL && planner->phase_last[ended] >= planner->step)
		return TC_OK;
	return planner->policy->end_of_phase == NULL
	           ? TC_OK
	           : planner->policy->end_of_phase(planner->policy_self, planner, ended, error);
}

static enum tc_status tci_boundary(struct tc_planner *planner, uint32_t step,
                                   struct tc_error *error)
{
	const struct tc_step *s = &planner->steps->steps[step];
	const struct tc_policy *policy = planner->policy;
	planner->step = step;
	if (step > 0 && policy->after_step != NULL)
		TC_TRY(
		    policy->after_step(planner->policy_self, planner, step - 1, s->closing, error));
	TC_TRY(tci_events(planner, s, error));
	if (step == planner->steps->step_count)
		return TC_OK;
	if (step == 0)
		planner->phase = s->phase;
	TC_TRY(tci_phase_ends(planner, s->phase, error));
	tci_step_pin(planner, step);
	TC_TRY(tci_requests_open(planner, s->opening, error));
	if (policy->before_step != NULL)
		TC_TRY(policy->before_step(planner->policy_self, planner, step, s->opening, error));
	tci_requests_opened(planner, s->opening);
	return tci_step_computes(planner, step) ? tci_step_run(planner, step, error)
	                                        : tci_optimizer_run(planner, step, error);
}

static enum tc_status tci_iteration(struct tc_planner *planner, struct tc_error *error)
{
	const struct tc_policy *policy = planner->policy;
	uint32_t steps = planner->steps->step_count;
	memcpy(planner->gpu_use_next, planner->gpu_use_first,
	       (size_t)planner->trace->tensor_count * sizeof *planner->gpu_use_next);
	for (uint32_t s = 0; s <= steps; s++)
		planner->step_command[s] = TC_NO_COMMAND;
	for (uint32_t s = 0; s <= steps; s++)
		TC_TRY(tci_boundary(planner, s, error));
	if (policy->end_of_phase != NULL)
		TC_TRY(policy->end_of_phase(planner->policy_self, planner, planner->phase, error));
	struct tc_evaluation timing;
	if (policy->wants_timing)
		TC_TRY(tci_recorder_evaluate(planner, &timing, error));
	if (policy->end_of_iteration != NULL)
		TC_TRY(policy->end_of_iteration(planner->policy_self, planner,
		                                policy->wants_timing ? &timing : NULL, error));
	TC_TRY(tci_optimizer_end(planner, error));
	TC_TRY(tci_discard_leftovers(planner, error));
	/* The counts of the last complete iteration: the closing one only gives its end. */
	if (planner->iteration + 2 <= planner->options->iterations ||
	    planner->options->iterations == 1) {
		planner->notes.delayed_fetches = planner->delayed;
		planner->notes.repacks = planner->repacks;
		planner->notes.read_misses = planner->read_misses;
		planner->delayed = planner->repacks = planner->read_misses = 0;
	}
	return TC_OK;
}

static bool tci_is_persistent(const struct tc_planner *planner, uint32_t tensor)
{
	uint32_t source = planner->table[tensor].derived_from;
	uint32_t trace_tensor = source == TC_NONE ? tensor : source;
	return trace_tensor < planner->trace->tensor_count &&
	       planner->trace->tensors[trace_tensor].persistent;
}

/** Tell the sink where the latest version of every persistent tensor lies at the end. */
static enum tc_status tci_finish(struct tc_planner *planner, struct tc_error *error)
{
	const struct tc_sink *sink = planner->options->sink;
	struct tc_plan_end end = {.command_count = planner->next_id};
	struct tc_final_place *places =
	    tc_alloc_array((size_t)planner->tensor_count + 1, sizeof *places);
	if (places == NULL)
		return tc_error_no_memory(error, "final places", planner->tensor_count);
	for (uint32_t t = 0; t < planner->tensor_count; t++) {
		struct tc_place place = planner->table[t].start;
		uint32_t slot = TCI_NO_SLOT;
		for (int tier = 0; tier < TCI_TIERS && slot == TCI_NO_SLOT; tier++)
			slot = tci_latest_slot(planner, t, (enum tc_tier)tier);
		if (slot != TCI_NO_SLOT)
			place = (struct tc_place){planner->slots[slot].pool,
			                          planner->slots[slot].offset};
		if (!tci_is_persistent(planner, t) || !planner->table[t].placed)
			continue;
		places[end.place_count++] = (struct tc_final_place){
		    .tensor = t, .version = tci_latest(planner, t), .place = place};
	}
	end.places = places;
	enum tc_status status = sink->end == NULL ? TC_OK : sink->end(sink->self, &end, error);
	free(places);
	return status;
}

static enum tc_status tci_run(struct tc_planner *planner, struct tc_initial_copy **copies,
                              struct tc_error *error)
{
	TC_TRY(tci_begin(planner, copies, error));
	for (uint32_t i = 0; i < planner->options->iterations; i++) {
		planner->iteration = i;
		TC_TRY(tci_iteration(planner, error));
	}
	return tci_finish(planner, error);
}

enum tc_status tc_plan(const struct tc_plan_options *options, struct tc_plan_notes *notes,
                       struct tc_error *error)
{
	struct tc_error local = {0};
	struct tc_planner planner;
	struct tc_initial_copy *copies = NULL;
	if (error == NULL)
		error = &local; /* the planner tells failures apart by what it stores here */
	enum tc_status status = tci_planner_init(&planner, options, error);
	if (status == TC_OK)
		status = tci_run(&planner, &copies, error);
	planner.notes.unmanaged_bytes = planner.unmanaged_bytes;
	planner.notes.largest_need_bytes = planner.largest_need;
	planner.notes.largest_need_step = tci_recorded_step(&planner, planner.largest_need_step);
	if (notes != NULL)
		*notes = planner.notes;
	free(copies);
	tci_planner_free(&planner);
	return status;
}
