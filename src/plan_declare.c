/* What a policy declares in begin(): kinds, pools, derived tensors, initial places. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

static enum tc_status tci_only_in_begin(const struct tc_planner *planner, const char *call,
                                        struct tc_error *error)
{
	if (planner->declaring)
		return TC_OK;
	return tc_error_set(error, TC_INTERNAL, "policy %s calls %s outside begin()",
	                    planner->choice->text, call);
}

void tc_plan_unlimited_memory(struct tc_planner *planner)
{
	planner->unlimited = true;
}

void tc_plan_optimizer_on_cpu(struct tc_planner *planner, bool on_cpu)
{
	planner->optimizer_on_cpu = on_cpu;
}

void tc_plan_use_barrier(struct tc_planner *planner, bool barrier)
{
	planner->barrier = barrier;
}

static enum tc_status tci_list_passing(struct tc_planner *planner, struct tc_error *error)
{
	const struct tc_trace *trace = planner->trace;
	free(planner->passing);
	planner->passing_count = 0;
	planner->passing =
	    tc_alloc_array((size_t)trace->tensor_count + 1, sizeof *planner->passing);
	if (planner->passing == NULL)
		return tc_error_no_memory(error, "tensors of an iteration", trace->tensor_count);
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		if (planner->tensors[t].managed && !trace->tensors[t].persistent)
			planner->passing[planner->passing_count++] = t;
	return TC_OK;
}

enum tc_status tc_plan_manage(struct tc_planner *planner, unsigned kinds, struct tc_error *error)
{
	TC_TRY(tci_only_in_begin(planner, "tc_plan_manage", error));
	planner->managed_kinds = kinds;
	for (uint32_t t = 0; t < planner->trace->tensor_count; t++)
		planner->tensors[t].managed = ((kinds >> planner->table[t].kind) & 1u) != 0;
	TC_TRY(tci_list_passing(planner, error));
	TC_TRY(tci_touch_prepare(planner, error));
	TC_TRY(tci_unmanaged_prepare(planner, error));
	TC_TRY(tci_optimizer_prepare(planner, error));
	return planner->optimizer_on_cpu && planner->policy->optimizer_event == NULL
	           ? tci_derive_fp32_gradients(planner, error)
	           : TC_OK;
}

enum tc_status tc_plan_arena(struct tc_planner *planner, enum tc_tier tier, const char *name,
                             bool pinned, uint64_t bytes, uint32_t *pool, struct tc_error *error)
{
	TC_TRY(tci_pool_add(planner, tier, name, TC_POOL_ARENA, pinned, bytes, pool, error));
	return tci_arena_create(bytes, planner->lane_count, &planner->pools[*pool].arena, error);
}

enum tc_status tc_plan_classes(struct tc_planner *planner, enum tc_tier tier, const char *name,
                               bool pinned, const struct tc_class_size *classes, size_t count,
                               bool fifo, uint32_t *pool, struct tc_error *error)
{
	uint64_t total = 0, part;
	struct tci_buffer_class *sizes = tc_alloc_array(count + 1, sizeof *sizes);
	if (sizes == NULL)
		return tc_error_no_memory(error, name, count);
	enum tc_status status = TC_OK;
	for (size_t i = 0; i < count && status == TC_OK; i++) {
		sizes[i] = (struct tci_buffer_class){.bytes = classes[i].bytes,
		                                     .buffer_bytes =
		                                         tci_align(planner, tier, classes[i].bytes),
		                                     .count = classes[i].count};
		if (!tc_mul_u64(sizes[i].buffer_bytes, sizes[i].count, &part) ||
		    !tc_add_u64(total, part, &total))
			status = tc_error_set(error, TC_TOO_LARGE,
			                      "pool \"%s\" would be larger than 2^64 bytes", name);
	}
	if (status == TC_OK)
		status =
		    tci_pool_add(planner, tier, name, TC_POOL_CLASSES, pinned, total, pool, error);
	if (status == TC_OK)
		status = tci_buffers_create(sizes, count, fifo, planner->lane_count,
		                            &planner->pools[*pool].buffers, error);
	free(sizes);
	return status;
}

void tc_plan_default_pool(struct tc_planner *planner, enum tc_tier tier, uint32_t pool)
{
	planner->default_pool[tier] = pool;
}

void tc_plan_staging_pool(struct tc_planner *planner, uint32_t pool)
{
	planner->staging_pool = pool;
}

void tc_plan_birth_pool(struct tc_planner *planner, enum tc_tensor_kind kind, uint32_t pool)
{
	planner->birth_pool[kind] = pool;
}

enum tc_status tc_plan_publish_pool(struct tc_planner *planner, struct tc_error *error)
{
	/* One class serves every size up to it: two slots of the largest parameter. */
	struct tc_class_size size = {.bytes = 1, .count = 2};
	for (uint32_t t = 0; t < planner->trace->tensor_count; t++)
		if (planner->table[t].kind == TC_PARAM && planner->table[t].bytes > size.bytes)
			size.bytes = planner->table[t].bytes;
	return tc_plan_classes(planner, TC_CPU, "publish", true, &size, 1, true,
	                       &planner->publish_pool, error);
}

enum tc_status tc_plan_derive(struct tc_planner *planner, const char *name,
                              enum tc_tensor_kind kind, enum tc_role role, uint64_t bytes,
                              uint64_t elements, uint32_t source, uint32_t *tensor,
                              struct tc_error *error)
{
	TC_TRY(tci_only_in_begin(planner, "tc_plan_derive", error));
	uint32_t id = planner->tensor_count;
	if (!tc_grow_array(&planner->derived_names, &planner->derived_name_capacity,
	                   planner->derived_name_count + 1, sizeof *planner->derived_names))
		return tc_error_no_memory(error, "derived tensors", id);
	char *copy = malloc(strlen(name) + 1);
	if (copy == NULL)
		return tc_error_no_memory(error, "derived tensor name", strlen(name));
	strcpy(copy, name);
	planner->derived_names[planner->derived_name_count++] = copy;
	struct tc_plan_tensor entry = {.name = copy,
	                               .kind = kind,
	                               .role = role,
	                               .bytes = bytes,
	                               .derived_from = source,
	                               .home = TC_CPU};
	TC_TRY(tci_tensor_add(planner, &entry, elements, error));
	planner->tensors[id].managed = true;
	if (source != TC_NONE) {
		planner->tensors[id].next_derived = planner->tensors[source].first_derived;
		planner->tensors[source].first_derived = id;
	}
	*tensor = id;
	return TC_OK;
}

enum tc_status tc_plan_place(struct tc_planner *planner, uint32_t tensor, uint32_t pool,
                             struct tc_error *error)
{
	uint32_t slot;
	TC_TRY(tci_only_in_begin(planner, "tc_plan_place", error));
	TC_TRY(tci_slot_take(planner, pool, tensor, &slot, error));
	if (slot == TCI_NO_SLOT) {
		char need[TC_UNIT_TEXT_BYTES], have[TC_UNIT_TEXT_BYTES], label[TCI_LABEL_BYTES];
		enum tc_tier tier = planner->pools[pool].info.tier;
		tc_format_bytes_both(planner->table[tensor].bytes, need);
		tc_format_bytes_both(tc_plan_pool_free(planner, pool), have);
		return tc_error_set(
		    error, TC_INFEASIBLE,
		    "tensor %s needs %s in pool \"%s\" (%s memory), but only %s of it "
		    "is free; more %s memory or another home for it would help",
		    tci_label(planner, tensor, label), need, planner->pools[pool].info.name,
		    tc_tier_name(tier), have, tc_tier_name(tier));
	}
	planner->slots[slot].version = tci_latest(planner, tensor);
	return tci_slot_count(planner, slot, error);
}

void tc_plan_home(struct tc_planner *planner, uint32_t tensor, enum tc_tier tier)
{
	planner->table[tensor].home = tier;
}

void tc_plan_always_resident(struct tc_planner *planner, uint32_t tensor)
{
	planner->tensors[tensor].always_resident = true;
}

void tc_plan_note(struct tc_planner *planner, const char *format, ...)
{
	size_t used = strlen(planner->notes.text);
	size_t room = sizeof planner->notes.text - used;
	if (used > 0 && room > 2) {
		memcpy(planner->notes.text + used, "; ", 3);
		used += 2;
		room -= 2;
	}
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(planner->notes.text + used, room, format, arguments);
	va_end(arguments);
}

void tc_plan_count_delayed(struct tc_planner *planner)
{
	planner->delayed++;
}

enum tc_status tc_plan_gradient_done(struct tc_planner *planner, uint64_t command,
                                     struct tc_error *error)
{
	(void)error;
	tci_note_lane(planner, &planner->barrier_last, command);
	return TC_OK;
}

enum tc_status tc_plan_end_waits(struct tc_planner *planner, uint64_t command,
                                 struct tc_error *error)
{
	(void)error;
	tci_note_lane(planner, &planner->end_last, command);
	return TC_OK;
}
