/* What a policy may ask the planner. */
#include <stdio.h>
#include <string.h>

#include "plan.h"

const struct tc_trace *tc_plan_trace(const struct tc_planner *planner)
{
	return planner->trace;
}

const struct tc_steps *tc_plan_steps(const struct tc_planner *planner)
{
	return planner->steps;
}

const struct tc_machine *tc_plan_machine(const struct tc_planner *planner)
{
	return planner->machine;
}

const struct tc_policy_value *tc_plan_value(const struct tc_planner *planner, const char *name)
{
	for (size_t i = 0; i < planner->policy->parameter_count; i++)
		if (strcmp(planner->policy->parameters[i].name, name) == 0)
			return &planner->choice->values[i];
	return NULL;
}

uint64_t tc_plan_number(const struct tc_planner *planner, const char *name)
{
	const struct tc_policy_value *value = tc_plan_value(planner, name);
	return value == NULL ? 0 : value->number;
}

uint32_t tc_plan_iteration(const struct tc_planner *planner)
{
	return planner->iteration;
}

uint32_t tc_plan_step(const struct tc_planner *planner)
{
	return planner->step;
}

struct tc_plan_tensor_view tc_plan_tensor(const struct tc_planner *planner, uint32_t tensor)
{
	const struct tc_plan_tensor *t = &planner->table[tensor];
	return (struct tc_plan_tensor_view){.kind = t->kind,
	                                    .role = t->role,
	                                    .bytes = t->bytes,
	                                    .elements = planner->tensors[tensor].elements,
	                                    .of = tensor < planner->trace->tensor_count
	                                              ? planner->trace->tensors[tensor].of
	                                              : TC_NONE,
	                                    .derived_from = t->derived_from};
}

struct tc_copy_view tc_plan_copy(const struct tc_planner *planner, uint32_t tensor,
                                 enum tc_tier tier)
{
	uint32_t index = planner->tensors[tensor].slots[tier];
	if (index == TCI_NO_SLOT)
		return (struct tc_copy_view){.pool = TC_NO_POOL, .written_by = TC_NO_COMMAND};
	const struct tci_slot *slot = &planner->slots[index];
	return (struct tc_copy_view){.present = true,
	                             .latest = slot->version == tci_latest(planner, tensor),
	                             .pool = slot->pool,
	                             .offset = slot->offset,
	                             .written_by = tci_slot_writer(slot)};
}

bool tc_plan_has(const struct tc_planner *planner, uint32_t tensor, enum tc_tier tier)
{
	return planner->tensors[tensor].slots[tier] != TCI_NO_SLOT;
}

uint64_t tc_plan_elements(const struct tc_planner *planner, uint32_t tensor)
{
	return planner->tensors[tensor].elements;
}

uint64_t tc_plan_bytes(const struct tc_planner *planner, uint32_t tensor)
{
	return planner->tensors[tensor].bytes;
}

bool tc_plan_is_pinned(const struct tc_planner *planner, uint32_t tensor)
{
	const struct tci_tensor *t = &planner->tensors[tensor];
	return t->pin_stamp == planner->stamp || t->pinned_gradient || t->always_resident;
}

uint64_t tc_plan_next_use(const struct tc_planner *planner, uint32_t tensor)
{
	if (tensor >= planner->trace->tensor_count || planner->gpu_use_first == NULL)
		return UINT64_MAX;
	uint32_t first = planner->gpu_use_first[tensor], end = planner->gpu_use_first[tensor + 1];
	uint32_t *next = &planner->gpu_use_next[tensor];
	if (first == end)
		return UINT64_MAX;
	/* The pointer only moves on within an iteration; plan.c resets it at the start of each. */
	while (*next < end && planner->gpu_uses[*next] < planner->step)
		(*next)++;
	return *next < end ? planner->gpu_uses[*next]
	                   : (uint64_t)planner->steps->step_count + planner->gpu_uses[first];
}

uint32_t tc_plan_state_of(const struct tc_planner *planner, uint32_t param, enum tc_role role)
{
	const struct tci_relations *t = &planner->relations[param];
	return role == TC_ROLE_MASTER       ? t->master
	       : role == TC_ROLE_EXP_AVG    ? t->exp_avg
	       : role == TC_ROLE_EXP_AVG_SQ ? t->exp_avg_sq
	                                    : TC_NONE;
}

uint32_t tc_plan_master_of(const struct tc_planner *planner, uint32_t param)
{
	const struct tci_relations *t = &planner->relations[param];
	return t->master != TC_NONE ? t->master : t->derived_master;
}

uint32_t tc_plan_gradient_of(const struct tc_planner *planner, uint32_t param)
{
	return planner->relations[param].gradient_of_param;
}

uint64_t tc_plan_free_bytes(const struct tc_planner *planner, enum tc_tier tier)
{
	uint64_t used = planner->pool_bytes[tier] + planner->machine->framework_bytes[tier];
	uint64_t capacity = planner->machine->capacity_bytes[tier];
	if (tier == TC_GPU)
		used += planner->trace->workspace_slack;
	return planner->unlimited ? UINT64_MAX >> 2 : used > capacity ? 0 : capacity - used;
}

uint64_t tc_plan_unmanaged_bytes(const struct tc_planner *planner)
{
	return planner->unmanaged_bytes;
}

uint64_t tc_plan_aligned(const struct tc_planner *planner, enum tc_tier tier, uint64_t bytes)
{
	return tci_align(planner, tier, bytes);
}

uint64_t tc_plan_gradient_peak_bytes(const struct tc_planner *planner)
{
	return planner->gradient_peak;
}

uint64_t tc_plan_largest_need(const struct tc_planner *planner, uint32_t *step)
{
	if (step != NULL)
		*step = planner->largest_need_step;
	return planner->largest_need;
}

uint64_t tc_plan_pool_free(const struct tc_planner *planner, uint32_t pool)
{
	if (pool >= planner->pool_count)
		return 0; /* a pool that the policy did not need to create */
	const struct tci_pool *p = &planner->pools[pool];
	return p->arena != NULL     ? tci_arena_free_bytes(p->arena)
	       : p->buffers != NULL ? tci_buffers_free_bytes(p->buffers)
	                            : 0;
}

bool tc_plan_pool_fits(const struct tc_planner *planner, uint32_t pool, uint64_t bytes)
{
	if (pool >= planner->pool_count)
		return false;
	const struct tci_pool *p = &planner->pools[pool];
	if (p->arena != NULL)
		return tci_arena_largest_free(p->arena) >= tci_align(planner, p->info.tier, bytes);
	return p->buffers != NULL && tci_buffers_available(p->buffers, bytes) > 0;
}

uint64_t tc_plan_class_free(const struct tc_planner *planner, uint32_t pool, uint64_t bytes)
{
	if (pool >= planner->pool_count || planner->pools[pool].buffers == NULL)
		return 0;
	return tci_buffers_available(planner->pools[pool].buffers, bytes);
}

uint64_t tc_plan_last_compute(const struct tc_planner *planner)
{
	return planner->last_compute;
}

uint64_t tc_plan_after(const struct tc_planner *planner, uint32_t step)
{
	return step < planner->steps->step_count ? planner->step_command[step] : TC_NO_COMMAND;
}

uint64_t tc_plan_estimated_transfer_ps(const struct tc_planner *planner, enum tc_queue queue,
                                       uint64_t bytes)
{
	return tc_machine_transfer_ps(planner->machine, queue, bytes, false);
}

uint64_t tc_plan_estimated_step_ps(const struct tc_planner *planner, uint32_t step)
{
	return planner->step_ps[step];
}

const char *tci_label(const struct tc_planner *planner, uint32_t tensor, char text[TCI_LABEL_BYTES])
{
	const struct tc_plan_tensor *t = &planner->table[tensor];
	uint32_t of =
	    tensor < planner->trace->tensor_count ? planner->trace->tensors[tensor].of : TC_NONE;
	if (t->name != NULL && t->name[0] != '\0')
		(void)snprintf(text, TCI_LABEL_BYTES, "\"%s\"", t->name);
	else if (of != TC_NONE)
		(void)snprintf(text, TCI_LABEL_BYTES, "%s of \"%s\"",
		               t->kind == TC_GRAD ? "gradient" : tc_role_name(t->role),
		               planner->trace->tensors[of].name);
	else
		(void)snprintf(text, TCI_LABEL_BYTES, "%u (%s)", tensor,
		               tc_tensor_kind_name(t->kind));
	return text;
}
