/*
 * Serving one step: judge its requests, pin what it needs, fetch what the policy forgot (a demand
 * miss, decided in plan order), give births their memory, and issue the compute command.
 */
#include "plan.h"

enum tc_status tci_requests_open(struct tc_planner *planner, struct tc_ids opening,
                                 struct tc_error *error)
{
	const struct tc_steps *steps = planner->steps;
	planner->served_count = 0;
	for (uint32_t i = 0; i < opening.count; i++) {
		const struct tc_request *request = &steps->requests[opening.items[i]];
		for (uint32_t r = 0; r < request->row_count; r++) {
			uint32_t t = steps->rows[request->first_row + r];
			struct tci_tensor *tensor = &planner->tensors[t];
			if (!tensor->managed)
				continue;
			if (!tc_grow_array(&planner->served, &planner->served_capacity,
			                   planner->served_count + 1, sizeof *planner->served))
				return tc_error_no_memory(error, "requests", planner->served_count);
			enum tc_outcome outcome = tci_latest_slot(planner, t, TC_GPU) == TCI_NO_SLOT
			                              ? TC_DEMAND_MISS
			                          : tensor->fetched_since_request ? TC_COVERED
			                                                          : TC_RESIDENT;
			planner->served[planner->served_count++] =
			    (struct tc_served){.tensor = t,
			                       .outcome = outcome,
			                       .is_request = true,
			                       .always_resident = tensor->always_resident};
			tensor->fetched_since_request = false;
		}
	}
	return TC_OK;
}

void tci_requests_opened(struct tc_planner *planner, struct tc_ids opening)
{
	const struct tc_steps *steps = planner->steps;
	for (uint32_t i = 0; i < opening.count; i++) {
		const struct tc_request *request = &steps->requests[opening.items[i]];
		for (uint32_t r = 0; r < request->row_count; r++)
			planner->tensors[steps->rows[request->first_row + r]]
			    .fetched_since_request = false;
	}
}

void tci_step_pin(struct tc_planner *planner, uint32_t step)
{
	planner->stamp++;
	for (uint32_t i = planner->touch_first[step]; i < planner->touch_first[step + 1]; i++)
		planner->tensors[planner->touches[i].tensor].pin_stamp = planner->stamp;
	/* An update on the CPU, moved to where requests are open: they stay pinned. */
	const struct tc_ids *requested = &planner->steps->steps[step].requested;
	for (uint32_t i = 0; planner->reordered != NULL && i < requested->count; i++)
		planner->tensors[requested->items[i]].pin_stamp = planner->stamp;
}

static enum tc_status tci_step_host_full(struct tc_planner *planner, uint32_t step, uint32_t tensor,
                                         uint32_t pool, struct tc_error *error)
{
	char where[200], need[TC_UNIT_TEXT_BYTES], have[TC_UNIT_TEXT_BYTES], label[TCI_LABEL_BYTES];
	const struct tci_pool *host = &planner->pools[planner->default_pool[TC_CPU]];
	tc_step_describe(planner->steps, step, where, sizeof where);
	tc_format_bytes_both(planner->table[tensor].bytes, need);
	tc_format_bytes_both(host->info.bytes, have);
	return tc_error_set(
	    error, TC_INFEASIBLE,
	    "%s needs %s for tensor %s in pool \"%s\", but what would have to leave it finds no "
	    "room in host memory: pool \"%s\" of %s is full; a larger --cpu-memory would help, or "
	    "so much --gpu-memory that less has to leave",
	    where, need, tci_label(planner, tensor, label), planner->pools[pool].info.name,
	    host->info.name, have);
}

static enum tc_status tci_step_infeasible(struct tc_planner *planner, uint32_t step,
                                          uint32_t tensor, uint32_t pool, struct tc_error *error)
{
	char where[200], need[TC_UNIT_TEXT_BYTES], have[TC_UNIT_TEXT_BYTES],
	    all[TC_UNIT_TEXT_BYTES], label[TCI_LABEL_BYTES];
	const struct tc_pool_info *info = &planner->pools[pool].info;
	tc_step_describe(planner->steps, step, where, sizeof where);
	tc_format_bytes_both(planner->table[tensor].bytes, need);
	tc_format_bytes_both(tc_plan_pool_free(planner, pool), have);
	tc_format_bytes_both(planner->largest_need, all);
	return tc_error_set(
	    error, TC_INFEASIBLE,
	    "%s needs %s for tensor %s, but pool \"%s\" has %s free and nothing can be evicted; "
	    "the largest need of any step is %s; %s, a smaller batch or sequence, or activation "
	    "checkpointing would help",
	    where, need, tci_label(planner, tensor, label), info->name, have, all,
	    info->tier == TC_CPU ? "more or larger buffers in that pool" : "a larger --gpu-memory");
}

static enum tc_status tci_step_take(struct tc_planner *planner, uint32_t step, uint32_t pool,
                                    uint32_t tensor, struct tc_error *error)
{
	uint32_t slot;
	bool done = true;
	planner->host_full = false;
	TC_TRY(tci_slot_take_or_make_room(planner, pool, tensor, &slot, error));
	while (slot == TCI_NO_SLOT && done) {
		TC_TRY(tci_repack(planner, pool, planner->table[tensor].bytes, &done, error));
		if (done)
			TC_TRY(tci_slot_take(planner, pool, tensor, &slot, error));
		if (slot != TCI_NO_SLOT)
			break;
		done = false;
	}
	if (slot != TCI_NO_SLOT)
		return TC_OK;
	return planner->host_full && planner->default_pool[TC_CPU] != TC_NO_POOL
	           ? tci_step_host_full(planner, step, tensor, pool, error)
	           : tci_step_infeasible(planner, step, tensor, pool, error);
}

static enum tc_status tci_step_demand(struct tc_planner *planner, uint32_t step, uint32_t tensor,
                                      struct tc_error *error)
{
	uint32_t pool = planner->default_pool[TC_GPU];
	struct tc_move_options options = TC_MOVE(TC_WHY_DEMAND);
	bool moved;
	/* Issued when the step is asked for: not before the compute command in front of it ends. */
	options.after = planner->last_compute;
	if (pool == TC_NO_POOL)
		return tc_error_set(error, TC_INTERNAL,
		                    "policy %s has no GPU pool for demand misses",
		                    planner->choice->text);
	if (planner->tensors[tensor].slots[TC_GPU] == TCI_NO_SLOT)
		TC_TRY(tci_step_take(planner, step, pool, tensor, error));
	TC_TRY(tc_plan_move(planner, tensor, pool, planner->staging_pool, options, &moved, NULL,
	                    error));
	/* Its slot on the GPU is taken: what was missing is room on the way. */
	return moved ? TC_OK
	             : tci_step_infeasible(planner, step, tensor, planner->staging_pool, error);
}

/** Memory for what the step overwrites as a whole, born here or not. */
static enum tc_status tci_step_birth(struct tc_planner *planner, uint32_t step,
                                     const struct tci_touch *touch, struct tc_error *error)
{
	struct tci_tensor *tensor = &planner->tensors[touch->tensor];
	uint32_t pool = planner->birth_pool[planner->table[touch->tensor].kind];
	if (pool == TC_NO_POOL)
		pool = planner->default_pool[TC_GPU];
	if (tensor->slots[TC_GPU] == TCI_NO_SLOT)
		TC_TRY(tci_step_take(planner, step, pool, touch->tensor, error));
	if (touch->born)
		tensor->pinned_gradient = tensor->has_gradient_event;
	return TC_OK;
}

static enum tc_status tci_step_ensure(struct tc_planner *planner, uint32_t step,
                                      struct tc_error *error)
{
	uint32_t requested = planner->steps->steps[step].requested.count;
	for (uint32_t i = planner->touch_first[step]; i < planner->touch_first[step + 1]; i++) {
		const struct tci_touch *touch = &planner->touches[i];
		struct tci_tensor *tensor = &planner->tensors[touch->tensor];
		if (!tensor->managed)
			continue;
		if (touch->access == TC_WRITE) {
			TC_TRY(tci_step_birth(planner, step, touch, error));
			continue;
		}
		if (tci_latest_slot(planner, touch->tensor, TC_GPU) != TCI_NO_SLOT)
			continue;
		if (i - planner->touch_first[step] >= requested)
			planner->read_misses++;
		TC_TRY(tci_step_demand(planner, step, touch->tensor, error));
	}
	return TC_OK;
}

static enum tc_status tci_step_arrays(struct tc_planner *planner, uint32_t step,
                                      struct tc_error *error)
{
	const struct tc_step *s = &planner->steps->steps[step];
	size_t touches = planner->touch_first[step + 1] - planner->touch_first[step];
	size_t ops = (size_t)s->last_op - s->first_op + 1;
	if (!tc_grow_array(&planner->binds, &planner->bind_capacity, touches + ops,
	                   sizeof *planner->binds) ||
	    !tc_grow_array(&planner->uses, &planner->use_capacity, touches + 1,
	                   sizeof *planner->uses))
		return tc_error_no_memory(error, "compute command", touches);
	return TC_OK;
}

/** Binds and uses of a compute command; versions move on by the step's writes. */
static enum tc_status tci_step_binds(struct tc_planner *planner, uint32_t step,
                                     struct tc_command *command, size_t *use_count,
                                     struct tc_error *error)
{
	const struct tc_step *s = &planner->steps->steps[step];
	uint32_t count = 0;
	*use_count = 0;
	for (uint32_t i = planner->touch_first[step]; i < planner->touch_first[step + 1]; i++) {
		const struct tci_touch *touch = &planner->touches[i];
		struct tci_tensor *tensor = &planner->tensors[touch->tensor];
		struct tc_bind *bind = &planner->binds[count++];
		*bind =
		    (struct tc_bind){.tensor = touch->tensor,
		                     .pool = planner->unmanaged_pool,
		                     .offset = planner->relations[touch->tensor].unmanaged_offset,
		                     .bytes = tensor->bytes,
		                     .version = tensor->latest,
		                     .access = touch->access};
		tensor->latest += touch->writes;
		if (!tensor->managed)
			continue;
		uint32_t slot = tensor->slots[TC_GPU];
		if (slot == TCI_NO_SLOT)
			return tc_error_set(
			    error, TC_INTERNAL, "tensor \"%s\" left the GPU before step %u used it",
			    planner->table[touch->tensor].name, tci_recorded_step(planner, step));
		bind->pool = planner->slots[slot].pool;
		bind->offset = planner->slots[slot].offset;
		planner->slots[slot].version = tensor->latest;
		planner->uses[(*use_count)++] = TCI_USE(slot, touch->access);
	}
	for (uint32_t o = s->first_op; o <= s->last_op; o++)
		if (planner->workspace_offset[o] != UINT64_MAX)
			planner->binds[count++] =
			    (struct tc_bind){.tensor = TC_NONE,
			                     .pool = planner->unmanaged_pool,
			                     .offset = planner->workspace_offset[o],
			                     .bytes = planner->trace->ops[o].workspace,
			                     .access = TC_WRITE};
	command->binds = planner->binds;
	command->bind_count = count;
	return TC_OK;
}

static enum tc_status tci_step_changes(struct tc_planner *planner, uint32_t step,
                                       struct tc_error *error)
{
	const struct tci_step_memory *memory = &planner->step_memory[step];
	int64_t inside = memory->peak;
	for (int kind = 0; kind < TC_TENSOR_KIND_COUNT; kind++) {
		enum tc_tensor_kind k = (enum tc_tensor_kind)kind;
		inside -= memory->born[kind];
		if (memory->born[kind] != 0)
			TC_TRY(tci_memory_change(planner, TC_GPU, k, memory->born[kind],
			                         TC_NO_COMMAND, error));
		if (memory->died[kind] != 0)
			TC_TRY(tci_memory_change(planner, TC_GPU, k, -memory->died[kind],
			                         TCI_AFTER_THIS, error));
	}
	if (inside == 0)
		return TC_OK;
	TC_TRY(tci_memory_change(planner, TC_GPU, TC_TEMP, inside, TC_NO_COMMAND, error));
	return tci_memory_change(planner, TC_GPU, TC_TEMP, -inside, TCI_AFTER_THIS, error);
}

static void tci_step_served(struct tc_planner *planner, struct tc_command *command)
{
	for (size_t i = 0; i < planner->served_count; i++) {
		struct tc_served *served = &planner->served[i];
		uint32_t slot = planner->tensors[served->tensor].slots[TC_GPU];
		served->served_by =
		    slot == TCI_NO_SLOT ? TC_NO_COMMAND : tci_slot_writer(&planner->slots[slot]);
	}
	command->served = planner->served;
	command->served_count = (uint32_t)planner->served_count;
}

static enum tc_status tci_step_deaths(struct tc_planner *planner, uint32_t step,
                                      struct tc_error *error)
{
	for (uint32_t i = planner->touch_first[step]; i < planner->touch_first[step + 1]; i++) {
		const struct tci_touch *touch = &planner->touches[i];
		if (touch->dies && planner->tensors[touch->tensor].managed)
			TC_TRY(tc_plan_discard(planner, touch->tensor, error));
	}
	return TC_OK;
}

enum tc_status tci_step_run(struct tc_planner *planner, uint32_t step, struct tc_error *error)
{
	const struct tc_step *s = &planner->steps->steps[step];
	TC_TRY(tci_step_ensure(planner, step, error));
	TC_TRY(tci_step_arrays(planner, step, error));
	struct tc_command command = tci_command(TC_COMPUTE, TC_QUEUE_COMPUTE, TC_WHY_NONE);
	size_t use_count;
	command.first_op = s->first_op;
	command.last_op = s->last_op;
	command.duration_ps = planner->step_ps[step];
	command.launches = s->last_op - s->first_op + 1;
	tci_step_served(planner, &command);
	TC_TRY(tci_step_binds(planner, step, &command, &use_count, error));
	TC_TRY(tci_step_changes(planner, step, error));
	TC_TRY(tci_emit(planner, &command, planner->uses, use_count, NULL, 0,
	                &planner->step_command[step], error));
	return tci_step_deaths(planner, step, error);
}
