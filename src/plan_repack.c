/*
 * Repacking: an arena may have the bytes a step needs and yet no hole that is large enough. Once
 * everything unpinned is gone, the pinned tensors leave and come back one behind the other, the
 * largest first, so that what is free lies together. So a step that fits by its bytes always fits.
 */
#include <stdlib.h>

#include "plan.h"

struct tci_resident {
	uint32_t tensor;
	uint64_t bytes;
	bool holds_content;
};

static int tci_resident_compare(const void *a, const void *b)
{
	const struct tci_resident *x = a, *y = b;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return x->tensor < y->tensor ? -1 : x->tensor > y->tensor;
}

static size_t tci_residents(const struct tc_planner *planner, uint32_t pool,
                            struct tci_resident *residents)
{
	size_t count = 0;
	for (uint32_t t = 0; t < planner->tensor_count; t++) {
		uint32_t slot = planner->tensors[t].slots[TC_GPU];
		if (slot == TCI_NO_SLOT || planner->slots[slot].pool != pool)
			continue;
		residents[count++] = (struct tci_resident){
		    .tensor = t,
		    .bytes = tci_slot_bytes(planner, &planner->slots[slot]),
		    .holds_content = tci_latest_slot(planner, t, TC_GPU) != TCI_NO_SLOT};
	}
	qsort(residents, count, sizeof *residents, tci_resident_compare);
	return count;
}

/** Everything leaves: dirty content is copied down first. */
static enum tc_status tci_repack_leave(struct tc_planner *planner,
                                       const struct tci_resident *residents, size_t count,
                                       bool *done, struct tc_error *error)
{
	struct tc_move_options options = TC_MOVE(TC_WHY_REPACK);
	options.after = planner->last_compute;
	for (size_t i = 0; i < count; i++) {
		uint32_t t = residents[i].tensor;
		if (residents[i].holds_content)
			TC_TRY(tc_plan_move(planner, t, planner->default_pool[TC_CPU], TC_NO_POOL,
			                    options, done, NULL, error));
		if (!*done) {
			planner->host_full = true;
			return TC_OK;
		}
		TC_TRY(tci_slot_put(planner, t, TC_GPU, error));
	}
	return TC_OK;
}

enum tc_status tci_repack(struct tc_planner *planner, uint32_t pool, uint64_t bytes, bool *done,
                          struct tc_error *error)
{
	uint64_t aligned = tci_align(planner, TC_GPU, bytes);
	*done = planner->pools[pool].arena != NULL && planner->pools[pool].info.tier == TC_GPU &&
	        planner->default_pool[TC_CPU] != TC_NO_POOL &&
	        tci_arena_free_bytes(planner->pools[pool].arena) >= aligned;
	if (!*done)
		return TC_OK;
	struct tci_resident *residents =
	    tc_alloc_array((size_t)planner->tensor_count + 1, sizeof *residents);
	if (residents == NULL)
		return tc_error_no_memory(error, "repacking", planner->tensor_count);
	size_t count = tci_residents(planner, pool, residents);
	enum tc_status status = tci_repack_leave(planner, residents, count, done, error);
	struct tc_move_options options = TC_MOVE(TC_WHY_REPACK);
	for (size_t i = 0; i < count && status == TC_OK && *done; i++) {
		uint32_t slot;
		status = tci_slot_take(planner, pool, residents[i].tensor, &slot, error);
		if (status == TC_OK && slot == TCI_NO_SLOT)
			status =
			    tc_error_set(error, TC_INTERNAL, "an emptied pool does not take \"%s\"",
			                 planner->table[residents[i].tensor].name);
		if (status == TC_OK && residents[i].holds_content)
			status = tc_plan_move(planner, residents[i].tensor, pool,
			                      planner->staging_pool, options, done, NULL, error);
	}
	free(residents);
	planner->repacks++;
	return status;
}
