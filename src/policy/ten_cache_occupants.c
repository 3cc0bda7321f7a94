/*
 * Who lies in the host pool, per size class, so that a spill victim is found in O(log n): the
 * tensor with the farthest next use, or the authors' choice (10cache-spec 2.8): the newest of GPU
 * home, else the oldest. A tensor in host memory is not used until it is fetched, so its next use
 * does not change while it lies there.
 */
#include <stdlib.h>

#include "tencache/units.h"
#include "ten_cache.h"

/** Heaps of one class over the indexes of its tensors; each has its victim on top. */
struct tci_occupants {
	struct tci_next_use *farthest; /**< key: next use over all iterations */
	struct tci_next_use *newest;   /**< tensors of GPU home; key: time of arrival */
	struct tci_next_use *oldest;   /**< key: UINT64_MAX - time of arrival */
	uint32_t *tensors;             /**< tensor of each index */
	uint32_t count;
};

static enum tc_status tci_occupants_create_class(struct tci_occupants *class,
                                                 struct tc_error *error)
{
	class->tensors = tc_alloc_array((size_t) class->count + 1, sizeof *class->tensors);
	if (class->tensors == NULL)
		return tc_error_no_memory(error, "host pool", class->count);
	TC_TRY(tci_next_use_create(class->count, &class->farthest, error));
	TC_TRY(tci_next_use_create(class->count, &class->newest, error));
	return tci_next_use_create(class->count, &class->oldest, error);
}

enum tc_status tci_ten_cache_occupants_create(struct tci_ten_cache *cache, uint32_t tensors,
                                              struct tc_error *error)
{
	cache->occupants = tc_alloc_array(cache->class_count + 1, sizeof *cache->occupants);
	cache->class_index = tc_alloc_array((size_t)tensors + 1, sizeof *cache->class_index);
	if (cache->occupants == NULL || cache->class_index == NULL)
		return tc_error_no_memory(error, "host pool", tensors);
	for (uint32_t t = 0; t < tensors; t++)
		if (cache->class_of[t] != TC_NONE)
			cache->class_index[t] = cache->occupants[cache->class_of[t]].count++;
	for (size_t i = 0; i < cache->class_count; i++)
		TC_TRY(tci_occupants_create_class(&cache->occupants[i], error));
	for (uint32_t t = 0; t < tensors; t++)
		if (cache->class_of[t] != TC_NONE)
			cache->occupants[cache->class_of[t]].tensors[cache->class_index[t]] = t;
	return TC_OK;
}

void tci_ten_cache_occupants_free(struct tci_ten_cache *cache)
{
	for (size_t i = 0; cache->occupants != NULL && i < cache->class_count; i++) {
		tci_next_use_free(cache->occupants[i].farthest);
		tci_next_use_free(cache->occupants[i].newest);
		tci_next_use_free(cache->occupants[i].oldest);
		free(cache->occupants[i].tensors);
	}
	free(cache->occupants);
	free(cache->class_index);
}

void tci_ten_cache_enters_host(struct tci_ten_cache *cache, struct tc_planner *planner,
                               uint32_t tensor)
{
	struct tci_occupants *class = &cache->occupants[cache->class_of[tensor]];
	uint32_t index = cache->class_index[tensor];
	uint64_t start = (uint64_t)tc_plan_iteration(planner) * tc_plan_steps(planner)->step_count;
	uint64_t next = tc_plan_next_use(planner, tensor);
	uint64_t arrival = cache->arrivals++;
	tci_next_use_set(class->farthest, index, next == UINT64_MAX ? next : start + next, 0);
	tci_next_use_set(class->oldest, index, UINT64_MAX - arrival, 0);
	if (cache->home_is_gpu[tensor])
		tci_next_use_set(class->newest, index, arrival, 0);
}

void tci_ten_cache_leaves_host(struct tci_ten_cache *cache, uint32_t tensor)
{
	struct tci_occupants *class = &cache->occupants[cache->class_of[tensor]];
	tci_next_use_remove(class->farthest, cache->class_index[tensor]);
	tci_next_use_remove(class->newest, cache->class_index[tensor]);
	tci_next_use_remove(class->oldest, cache->class_index[tensor]);
}

uint32_t tci_ten_cache_host_victim(const struct tci_ten_cache *cache, uint32_t class)
{
	const struct tci_occupants *c = &cache->occupants[class];
	uint32_t index = tci_next_use_farthest(cache->farthest ? c->farthest : c->newest);
	if (index == UINT32_MAX)
		index = tci_next_use_farthest(c->oldest);
	return index == UINT32_MAX ? TC_NONE : c->tensors[index];
}
