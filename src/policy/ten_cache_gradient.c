/*
 * Gradients (10cache-spec 2.10, src/PLANNING.md): born in an arena of their own, copied into a
 * bucket when accumulated; a full bucket is flushed tensor by tensor: to FP32 on the GPU (norm and
 * inf/nan check included), then down to the FP32 slot, or to a file where that lives on NVMe.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tencache/units.h"
#include "ten_cache.h"

/**
 * A gradient without an event (imports have none) stays where it was born until backward ends.
 * Several events mean accumulation over micro-batches: the authors' code has no place for that.
 */
static enum tc_status tci_gradient_events(struct tci_ten_cache *cache, struct tc_planner *planner,
                                          struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		cache->late_gradient[t] = trace->tensors[t].kind == TC_GRAD;
	for (uint32_t e = 0; e < trace->event_count; e++) {
		uint32_t param = trace->events[e].tensor;
		if (trace->events[e].kind != TC_EVENT_GRADIENT ||
		    tc_plan_gradient_of(planner, param) == TC_NONE)
			continue;
		bool *late = &cache->late_gradient[tc_plan_gradient_of(planner, param)];
		if (!*late)
			return tc_error_set(
			    error, TC_INFEASIBLE,
			    "10cache does not accumulate gradients, but trace %s does, over "
			    "micro-batches: the gradient of \"%s\" comes more than once; a trace "
			    "with "
			    "one micro-batch works",
			    trace->name, trace->tensors[param].name);
		*late = false;
	}
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		if (cache->late_gradient[t])
			cache->late_gradient_bytes +=
			    tc_plan_aligned(planner, TC_GPU, tc_plan_tensor(planner, t).bytes);
	return TC_OK;
}

enum tc_status tci_ten_cache_derive_gradients(struct tci_ten_cache *cache,
                                              struct tc_planner *planner, struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	size_t tensors = (size_t)trace->tensor_count + 1;
	cache->bucket_copy = tc_alloc_array(tensors, sizeof(uint32_t));
	cache->fp32_gradient = tc_alloc_array(tensors, sizeof(uint32_t));
	cache->bucket = tc_alloc_array(tensors, sizeof(uint32_t));
	cache->late_gradient = tc_alloc_array(tensors, sizeof(bool));
	if (cache->bucket_copy == NULL || cache->fp32_gradient == NULL || cache->bucket == NULL ||
	    cache->late_gradient == NULL)
		return tc_error_no_memory(error, "gradients", tensors);
	TC_TRY(tci_gradient_events(cache, planner, error));
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		char name[256];
		struct tc_plan_tensor_view view = tc_plan_tensor(planner, t);
		if (view.kind != TC_GRAD)
			continue;
		(void)snprintf(name, sizeof name, "%.240s.bucket", trace->tensors[t].name);
		TC_TRY(tc_plan_derive(planner, name, TC_GRAD, TC_ROLE_NONE, view.bytes,
		                      view.elements, t, &cache->bucket_copy[t], error));
		(void)snprintf(name, sizeof name, "%.240s.fp32", trace->tensors[t].name);
		TC_TRY(tc_plan_derive(planner, name, TC_GRAD, TC_ROLE_NONE, 4 * view.elements,
		                      view.elements, t, &cache->fp32_gradient[t], error));
		if (view.bytes > cache->largest_gradient)
			cache->largest_gradient = view.bytes;
	}
	return TC_OK;
}

static enum tc_status tci_gradient_down(struct tci_ten_cache *cache, struct tc_planner *planner,
                                        uint32_t gradient, struct tc_error *error)
{
	struct tc_move_options options = TC_MOVE(TC_WHY_BUCKET);
	uint32_t fp32 = cache->fp32_gradient[gradient];
	uint32_t param = tc_plan_tensor(planner, gradient).of;
	bool on_nvme = tci_ten_cache_fp32_on_nvme(cache, planner, param);
	bool moved;
	uint64_t id;
	options.keep_source = false;
	TC_TRY(tc_plan_move(planner, fp32, on_nvme ? cache->gradient_host : cache->fp32_pool,
	                    TC_NO_POOL, options, &moved, &id, error));
	if (!moved)
		return tc_error_set(
		    error, TC_INFEASIBLE,
		    "10cache has no FP32 slot for the gradient of \"%s\"; more --cpu-memory or "
		    "fp32-buffers= would help",
		    tc_plan_trace(planner)->tensors[param].name);
	if (!on_nvme)
		return TC_OK;
	TC_TRY(
	    tc_plan_move(planner, fp32, cache->nvme_pool, TC_NO_POOL, options, &moved, &id, error));
	return moved ? TC_OK
	             : tc_error_set(error, TC_INFEASIBLE,
	                            "the drive is full: a larger --nvme-capacity would help");
}

/** To FP32 on the GPU and down; `source` is the bucket copy, or the gradient if it is too large. */
static enum tc_status tci_gradient_flush_one(struct tci_ten_cache *cache,
                                             struct tc_planner *planner, uint32_t gradient,
                                             uint32_t source, struct tc_error *error)
{
	uint32_t fp32 = cache->fp32_gradient[gradient];
	/* Read once for norm and check together with the conversion, written once: 8 bytes per
	 * element, whatever the width of the gradient. */
	struct tc_convert_options options = {.queue = TC_QUEUE_COMPUTE,
	                                     .why = TC_WHY_NORM,
	                                     .traffic_bytes =
	                                         8 * tc_plan_elements(planner, gradient)};
	bool done;
	uint64_t id;
	TC_TRY(tc_plan_convert(planner, source, fp32, cache->gradient_staging, options, &done, &id,
	                       error));
	if (!done)
		return tc_error_set(error, TC_INTERNAL, "no gradient staging slot is free");
	TC_TRY(tc_plan_gradient_done(planner, id, error));
	TC_TRY(tc_plan_discard(planner, source, error));
	return tci_gradient_down(cache, planner, gradient, error);
}

static int tci_compare_ids(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

enum tc_status tci_ten_cache_flush(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   struct tc_error *error)
{
	qsort(cache->bucket, cache->bucket_count, sizeof *cache->bucket, tci_compare_ids);
	for (uint32_t i = 0; i < cache->bucket_count; i++)
		TC_TRY(tci_gradient_flush_one(cache, planner, cache->bucket[i],
		                              cache->bucket_copy[cache->bucket[i]], error));
	cache->bucket_count = 0;
	return TC_OK;
}

enum tc_status tci_ten_cache_gradient(struct tci_ten_cache *cache, struct tc_planner *planner,
                                      uint32_t param, struct tc_error *error)
{
	struct tc_convert_options options = {.queue = TC_QUEUE_COMPUTE, .why = TC_WHY_BUCKET};
	uint32_t gradient = tc_plan_gradient_of(planner, param);
	bool done;
	if (gradient == TC_NONE || !tc_plan_has(planner, gradient, TC_GPU))
		return TC_OK;
	uint64_t bytes = tc_plan_bytes(planner, gradient);
	if (!tc_plan_pool_fits(planner, cache->bucket_pool, bytes))
		TC_TRY(tci_ten_cache_flush(cache, planner, error));
	if (!tc_plan_pool_fits(planner, cache->bucket_pool, bytes))
		return tci_gradient_flush_one(cache, planner, gradient, gradient, error);
	TC_TRY(tc_plan_convert(planner, gradient, cache->bucket_copy[gradient], cache->bucket_pool,
	                       options, &done, NULL, error));
	cache->bucket[cache->bucket_count++] = gradient;
	return tc_plan_discard(planner, gradient, error);
}

enum tc_status tci_ten_cache_late_gradients(struct tci_ten_cache *cache, struct tc_planner *planner,
                                            struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	for (uint32_t t = 0; t < trace->tensor_count && cache->late_gradient_bytes > 0; t++)
		if (cache->late_gradient[t] && trace->tensors[t].of != TC_NONE)
			TC_TRY(tci_ten_cache_gradient(cache, planner, trace->tensors[t].of, error));
	return TC_OK;
}
