/*
 * What a fetch and an eviction do (10cache-spec 2.8). Caching is exclusive: a parameter lies in a
 * GPU buffer or in a host buffer; only what has a valid file on NVMe is forgotten without a copy.
 * A read that no request announced is the exception: the planner serves it and leaves the host copy
 * where it is.
 */
#include "ten_cache.h"

/** Free a host buffer of a class by spilling one occupant to NVMe. */
static enum tc_status tci_spill_one(struct tci_ten_cache *cache, struct tc_planner *planner,
                                    uint32_t class, struct tc_error *error)
{
	uint32_t victim = tci_ten_cache_host_victim(cache, class);
	if (victim == TC_NONE || !cache->has_nvme)
		return tc_error_set(
		    error, TC_INFEASIBLE,
		    "10cache has no host buffer left for a parameter of %llu bytes and "
		    "nothing to spill; more x-cpu=, cpu-buffers= or --cpu-memory would "
		    "help",
		    (unsigned long long)cache->classes[class].bytes);
	struct tc_move_options options = TC_MOVE(TC_WHY_VICTIM);
	bool moved;
	if (tc_plan_has(planner, victim, TC_GPU) && tc_plan_copy(planner, victim, TC_GPU).latest) {
		tci_ten_cache_leaves_host(cache, victim);
		return tc_plan_drop(planner, victim, TC_CPU, error);
	}
	if (cache->rewrite_clean && tc_plan_has(planner, victim, TC_NVME))
		TC_TRY(tc_plan_drop(planner, victim, TC_NVME, error));
	options.keep_source = false;
	TC_TRY(tc_plan_move(planner, victim, cache->nvme_pool, TC_NO_POOL, options, &moved, NULL,
	                    error));
	if (!moved)
		return tc_error_set(error, TC_INFEASIBLE,
		                    "the drive is full: a larger "
		                    "--nvme-capacity would help");
	tci_ten_cache_leaves_host(cache, victim);
	return TC_OK;
}

enum tc_status tci_ten_cache_evict(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   uint32_t tensor, enum tc_why why, struct tc_error *error)
{
	uint32_t class = cache->class_of[tensor];
	struct tc_move_options options = TC_MOVE(why);
	bool moved;
	uint64_t id;
	if (!tc_plan_has(planner, tensor, TC_GPU))
		return TC_OK; /* its fetch was put off and is not needed any more */
	if (cache->home_is_nvme[tensor] && tc_plan_copy(planner, tensor, TC_NVME).latest)
		return tc_plan_drop(planner, tensor, TC_GPU, error);
	if (tc_plan_has(planner, tensor, TC_CPU) && tc_plan_copy(planner, tensor, TC_CPU).latest)
		return tc_plan_drop(planner, tensor, TC_GPU, error);
	if (tc_plan_class_free(planner, cache->cpu_pool, cache->classes[class].bytes) == 0)
		TC_TRY(tci_spill_one(cache, planner, class, error));
	options.keep_source = false;
	TC_TRY(tc_plan_move(planner, tensor, cache->cpu_pool, TC_NO_POOL, options, &moved, &id,
	                    error));
	tci_ten_cache_enters_host(cache, planner, tensor);
	return cache->sync ? tc_plan_wait(planner, &id, 1, error) : TC_OK;
}

enum tc_status tci_ten_cache_fetch(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   uint32_t tensor, enum tc_why why, bool *done,
                                   struct tc_error *error)
{
	uint64_t bytes = cache->classes[cache->class_of[tensor]].bytes;
	bool in_host = tc_plan_has(planner, tensor, TC_CPU);
	*done = tc_plan_has(planner, tensor, TC_GPU);
	if (*done)
		return TC_OK;
	if (tc_plan_class_free(planner, cache->gpu_pool, bytes) == 0 ||
	    (!in_host && tc_plan_class_free(planner, cache->staging_pool, bytes) == 0))
		return TC_OK;
	struct tc_move_options options = TC_MOVE(why);
	uint64_t id;
	/* The host buffer is given back; a file on NVMe stays valid until the next update. */
	options.keep_source = !in_host;
	/* Asked for now: not before the compute command in front of it has ended. */
	if (why == TC_WHY_DEMAND)
		options.after = tc_plan_last_compute(planner);
	TC_TRY(tc_plan_move(planner, tensor, cache->gpu_pool, cache->staging_pool, options, done,
	                    &id, error));
	tci_ten_cache_leaves_host(cache, tensor);
	return cache->sync ? tc_plan_wait(planner, &id, 1, error) : TC_OK;
}
