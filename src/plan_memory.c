/*
 * Pools and slots. A slot is the memory of one copy of one tensor; the slots of a tensor are found
 * by tier. Freed slots hand their release vector to the pool, so that the next occupant's first
 * writer waits for everybody who still uses the bytes: memory comes back when a copy out of it has
 * ended, not when it was issued.
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

static enum tc_status tci_pool_refuse(struct tc_planner *planner, enum tc_tier tier,
                                      const char *name, uint64_t bytes, struct tc_error *error)
{
	char need[TC_UNIT_TEXT_BYTES], have[TC_UNIT_TEXT_BYTES];
	tc_format_bytes_both(bytes, need);
	tc_format_bytes_both(tc_plan_free_bytes(planner, tier), have);
	const char *option = tier == TC_GPU   ? "--gpu-memory"
	                     : tier == TC_CPU ? "--cpu-memory"
	                                      : "--nvme-capacity";
	return tc_error_set(
	    error, TC_INFEASIBLE,
	    "pool \"%s\" needs %s of %s memory, but only %s is left of machine %s; a "
	    "larger %s, a smaller batch or other parameters (tencache-sim policies %s) would help",
	    name, need, tc_tier_name(tier), have, planner->machine->name, option,
	    planner->policy->name);
}

enum tc_status tci_pool_add(struct tc_planner *planner, enum tc_tier tier, const char *name,
                            enum tc_pool_kind kind, bool pinned, uint64_t bytes, uint32_t *pool,
                            struct tc_error *error)
{
	if (!planner->declaring)
		return tc_error_set(error, TC_INTERNAL, "pool \"%s\" created outside begin()",
		                    name);
	if (!planner->unlimited && bytes > tc_plan_free_bytes(planner, tier))
		return tci_pool_refuse(planner, tier, name, bytes, error);
	if (!tc_grow_array(&planner->pools, &planner->pool_capacity, planner->pool_count + 1u,
	                   sizeof *planner->pools))
		return tc_error_no_memory(error, "pools", planner->pool_count);
	char *copy = malloc(strlen(name) + 1);
	if (copy == NULL)
		return tc_error_no_memory(error, "pool name", strlen(name));
	strcpy(copy, name);
	planner->pools[planner->pool_count] = (struct tci_pool){
	    .info = {.name = copy, .tier = tier, .kind = kind, .pinned = pinned, .bytes = bytes}};
	planner->pool_bytes[tier] += bytes;
	*pool = planner->pool_count++;
	return TC_OK;
}

static uint32_t tci_slot_new(struct tc_planner *planner)
{
	if (planner->free_slot != TCI_NO_SLOT) {
		uint32_t slot = planner->free_slot;
		planner->free_slot = planner->slots[slot].tensor;
		return slot;
	}
	if (!tci_grow_lines(&planner->slots, &planner->slot_capacity,
	                    (size_t)planner->slot_count + 1, sizeof *planner->slots))
		return TCI_NO_SLOT;
	return planner->slot_count++;
}

enum tc_status tci_slot_take(struct tc_planner *planner, uint32_t pool, uint32_t tensor,
                             uint32_t *slot, struct tc_error *error)
{
	*slot = TCI_NO_SLOT;
	struct tci_pool *p = &planner->pools[pool];
	uint64_t exact = planner->tensors[tensor].bytes;
	uint64_t aligned = tci_align(planner, p->info.tier, exact);
	struct tci_release release;
	uint64_t offset;
	bool taken = p->arena != NULL ? tci_arena_take(p->arena, aligned, &offset, &release, error)
	                              : tci_buffers_take(p->buffers, exact, &offset, &release);
	if (!taken)
		return error != NULL && error->status != TC_OK ? error->status : TC_OK;
	uint32_t made = tci_slot_new(planner);
	if (made == TCI_NO_SLOT)
		return tc_error_no_memory(error, "slots", planner->slot_count);
	struct tci_slot *s = &planner->slots[made];
	s->version = TCI_NO_CONTENT;
	s->offset = offset;
	s->writer = 0;
	s->pool = pool;
	s->tensor = tensor;
	s->counted = false;
	/* Entries of lanes that the machine lacks are never looked at. */
	tci_release_copy(s->touched.last, release.last, planner->clock_width);
	*slot = made;
	planner->tensors[tensor].slots[p->info.tier] = made;
	return TC_OK;
}

enum tc_status tci_slot_count(struct tc_planner *planner, uint32_t slot, struct tc_error *error)
{
	struct tci_slot *s = &planner->slots[slot];
	if (s->counted)
		return TC_OK;
	s->counted = true;
	return tci_memory_change(planner, planner->pools[s->pool].info.tier,
	                         (enum tc_tensor_kind)planner->tensors[s->tensor].kind,
	                         (int64_t)tci_slot_bytes(planner, s), TC_NO_COMMAND, error);
}

/** Evict the unpinned tensor of the pool with the farthest next use; `*made` false: there is none.
 */
static enum tc_status tci_make_room_farthest(struct tc_planner *planner, uint32_t pool, bool *made,
                                             struct tc_error *error)
{
	uint32_t victim = TC_NONE;
	uint64_t farthest = 0;
	if (planner->pools[pool].info.tier != TC_GPU)
		return TC_OK;
	for (uint32_t t = 0; t < planner->tensor_count; t++) {
		uint32_t slot = planner->tensors[t].slots[TC_GPU];
		if (slot == TCI_NO_SLOT || planner->slots[slot].pool != pool ||
		    tc_plan_is_pinned(planner, t))
			continue;
		uint64_t next = tc_plan_next_use(planner, t);
		if (victim == TC_NONE || next > farthest ||
		    (next == farthest && planner->table[t].bytes > planner->table[victim].bytes)) {
			victim = t;
			farthest = next;
		}
	}
	if (victim == TC_NONE)
		return TC_OK;
	return tc_plan_evict(planner, victim, TC_WHY_VICTIM, made, error);
}

enum tc_status tci_slot_take_or_make_room(struct tc_planner *planner, uint32_t pool,
                                          uint32_t tensor, uint32_t *slot, struct tc_error *error)
{
	for (;;) {
		TC_TRY(tci_slot_take(planner, pool, tensor, slot, error));
		if (*slot != TCI_NO_SLOT)
			return TC_OK;
		bool made = false;
		if (planner->policy->make_room != NULL)
			TC_TRY(planner->policy->make_room(planner->policy_self, planner, pool,
			                                  planner->table[tensor].bytes, tensor,
			                                  &made, error));
		else
			TC_TRY(tci_make_room_farthest(planner, pool, &made, error));
		if (!made)
			return TC_OK;
	}
}

enum tc_status tci_slot_put(struct tc_planner *planner, uint32_t tensor, enum tc_tier tier,
                            struct tc_error *error)
{
	uint32_t index = planner->tensors[tensor].slots[tier];
	if (index == TCI_NO_SLOT)
		return tc_error_set(error, TC_INTERNAL,
		                    "tensor \"%s\" has no copy in %s to give back",
		                    planner->table[tensor].name, tc_tier_name(tier));
	struct tci_slot *slot = &planner->slots[index];
	struct tci_pool *pool = &planner->pools[slot->pool];
	uint64_t bytes = tci_slot_bytes(planner, slot);
	uint32_t last = 0;
	for (uint32_t lane = 0; lane < planner->lane_count; lane++)
		if (slot->touched.last[lane] > last)
			last = slot->touched.last[lane];
	if (slot->counted)
		TC_TRY(tci_memory_change(
		    planner, tier, (enum tc_tensor_kind)planner->tensors[tensor].kind,
		    -(int64_t)bytes, last == 0 ? TC_NO_COMMAND : (uint64_t)last - 1, error));
	if (pool->arena != NULL)
		TC_TRY(tci_arena_put(pool->arena, slot->offset, bytes, &slot->touched, error));
	else
		tci_buffers_put(pool->buffers, slot->offset, &slot->touched);
	planner->tensors[tensor].slots[tier] = TCI_NO_SLOT;
	slot->tensor = planner->free_slot;
	planner->free_slot = index;
	return TC_OK;
}

enum tc_status tci_discard_leftovers(struct tc_planner *planner, struct tc_error *error)
{
	/* Updates that come an iteration later still need theirs. */
	if (planner->policy->staleness > 0 || planner->reordered != NULL)
		return TC_OK;
	for (uint32_t i = 0; i < planner->passing_count; i++) {
		uint32_t t = planner->passing[i];
		TC_TRY(tc_plan_discard(planner, t, error));
		for (uint32_t d = planner->tensors[t].first_derived; d != TC_NONE;
		     d = planner->tensors[d].next_derived)
			TC_TRY(tc_plan_discard(planner, d, error));
	}
	return TC_OK;
}

void tci_memory_free(struct tc_planner *planner)
{
	for (uint32_t i = 0; i < planner->pool_count; i++) {
		tci_arena_free(planner->pools[i].arena);
		tci_buffers_free(planner->pools[i].buffers);
		free((char *)(uintptr_t)planner->pools[i].info.name);
	}
	free(planner->pools);
	free(planner->pool_infos);
	free(planner->slots);
	free(planner->passing);
}
