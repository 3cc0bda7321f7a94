/*
 * Pools in the order of the authors' code, and homes: the first rows of forward on the GPU, the
 * next in host memory, the tail on NVMe (10cache-spec 2.4 to 2.6).
 */
#include <stdlib.h>

#include "tencache/units.h"
#include "ten_cache.h"

static enum tc_status tci_gpu_work_pools(struct tci_ten_cache *cache, struct tc_planner *planner,
                                         struct tc_error *error)
{
	uint64_t bucket, alive;
	struct tc_class_size staging = {.bytes = 4 * cache->largest_elements, .count = 2};
	if (!tc_mul_u64(tc_plan_aligned(planner, TC_GPU, cache->largest_gradient),
	                tc_plan_number(planner, "bucket"), &bucket))
		return tc_error_set(error, TC_TOO_LARGE, "10cache:bucket is too large");
	if (cache->largest_gradient == 0)
		return TC_OK; /* inference: nothing to bring down */
	if (!tc_add_u64(tc_plan_gradient_peak_bytes(planner), cache->late_gradient_bytes, &alive))
		return tc_error_set(error, TC_TOO_LARGE, "gradients exceed 2^64 bytes");
	TC_TRY(tc_plan_arena(planner, TC_GPU, "gradients", false, alive, &cache->gradient_pool,
	                     error));
	tc_plan_birth_pool(planner, TC_GRAD, cache->gradient_pool);
	TC_TRY(tc_plan_arena(planner, TC_GPU, "gradient-bucket", false, bucket, &cache->bucket_pool,
	                     error));
	return tc_plan_classes(planner, TC_GPU, "gradient-staging", false, &staging, 1, true,
	                       &cache->gradient_staging, error);
}

/** No hook would fetch what no module asks for (`out_proj` of nn.MultiheadAttention is such one).
 */
static enum tc_status tci_place_unasked(struct tci_ten_cache *cache, struct tc_planner *planner,
                                        struct tc_error *error)
{
	uint32_t count = tc_plan_trace(planner)->tensor_count, pool;
	uint64_t sum = 0;
	for (uint32_t t = 0; t < count; t++)
		if (cache->stays[t])
			sum += tc_plan_aligned(planner, TC_GPU, tc_plan_tensor(planner, t).bytes);
	if (sum == 0)
		return TC_OK;
	TC_TRY(tc_plan_arena(planner, TC_GPU, "unasked", false, sum, &pool, error));
	for (uint32_t t = 0; t < count; t++) {
		if (!cache->stays[t])
			continue;
		TC_TRY(tci_place_at_home(planner, t, pool, TC_GPU, error));
		tc_plan_always_resident(planner, t);
	}
	return TC_OK;
}

static enum tc_status tci_class_pool(struct tci_ten_cache *cache, struct tc_planner *planner,
                                     enum tc_tier tier, const char *name, bool gpu, uint32_t *pool,
                                     struct tc_error *error)
{
	struct tc_class_size *sizes = tc_alloc_array(cache->class_count + 1, sizeof *sizes);
	if (sizes == NULL)
		return tc_error_no_memory(error, name, cache->class_count);
	for (size_t i = 0; i < cache->class_count; i++)
		sizes[i] = (struct tc_class_size){
		    cache->classes[i].bytes, gpu ? cache->classes[i].gpu : cache->classes[i].cpu};
	enum tc_status status =
	    tc_plan_classes(planner, tier, name, tier == TC_CPU, sizes, cache->class_count,
	                    tci_value_is(planner, "reuse", "fifo"), pool, error);
	free(sizes);
	return status;
}

/** Four buffers of 4 bytes per element make one FP32 slot; equal sizes are joined. */
static enum tc_status tci_fp32_pool(struct tci_ten_cache *cache, struct tc_planner *planner,
                                    struct tc_error *error)
{
	struct tc_class_size *sizes = tc_alloc_array(cache->class_count + 1, sizeof *sizes);
	if (sizes == NULL)
		return tc_error_no_memory(error, "fp32 classes", cache->class_count);
	for (size_t i = 0; i < cache->class_count; i++)
		sizes[i] = (struct tc_class_size){4 * cache->classes[i].elements,
		                                  4 * cache->classes[i].fp32};
	enum tc_status status =
	    tc_plan_classes(planner, TC_CPU, "fp32", true, sizes, cache->class_count, false,
	                    &cache->fp32_pool, error);
	free(sizes);
	return status;
}

static uint64_t tci_divided(const struct tc_planner *planner, uint64_t bytes, const char *divisor)
{
	uint64_t result, ppm = tc_plan_number(planner, divisor);
	return tc_mul_div_floor(bytes, 1000000, ppm == 0 ? 1 : ppm, &result) ? result : UINT64_MAX;
}

static enum tc_status tci_host_pools(struct tci_ten_cache *cache, struct tc_planner *planner,
                                     struct tc_error *error)
{
	uint64_t budget, available = tc_plan_free_bytes(planner, TC_CPU);
	struct tc_class_size staging = {cache->largest_bytes,
	                                tc_plan_number(planner, "nvme-buffers")};
	struct tc_class_size writer = {4 * cache->largest_elements, staging.count};
	if (!tc_mul_div_floor(available, tc_plan_number(planner, "f-fp32"), 1000000, &budget))
		budget = available;
	TC_TRY(tci_ten_cache_count_fp32(cache, planner, budget, error));
	TC_TRY(tci_fp32_pool(cache, planner, error));
	TC_TRY(tc_plan_publish_pool(planner, error));
	if (cache->has_nvme) {
		TC_TRY(tc_plan_classes(planner, TC_CPU, "nvme-staging", true, &staging, 1, true,
		                       &cache->staging_pool, error));
		TC_TRY(tc_plan_classes(planner, TC_CPU, "gradient-writer", true, &writer, 1, true,
		                       &cache->gradient_host, error));
		TC_TRY(tc_plan_arena(planner, TC_NVME, "nvme", false,
		                     tc_plan_free_bytes(planner, TC_NVME), &cache->nvme_pool,
		                     error));
		tc_plan_staging_pool(planner, cache->staging_pool);
	}
	budget = tci_divided(planner, tc_plan_free_bytes(planner, TC_CPU), "a-cpu");
	TC_TRY(tci_ten_cache_count_cpu(cache, planner, budget, error));
	TC_TRY(tci_class_pool(cache, planner, TC_CPU, "fp16-cpu", false, &cache->cpu_pool, error));
	tc_plan_default_pool(planner, TC_CPU, cache->cpu_pool);
	return TC_OK;
}

/** What the GPU buffers that were counted take. */
static uint64_t tci_gpu_buffer_bytes(const struct tci_ten_cache *cache,
                                     const struct tc_planner *planner)
{
	uint64_t sum = 0, part;
	for (size_t i = 0; i < cache->class_count; i++) {
		uint64_t bytes = tc_plan_aligned(planner, TC_GPU, cache->classes[i].bytes);
		if (!tc_mul_u64(bytes, cache->classes[i].gpu, &part) ||
		    !tc_add_u64(sum, part, &sum))
			return UINT64_MAX;
	}
	return sum;
}

/**
 * Counts may overshoot their budget: a class of few tensors gets a buffer for each, others are
 * rounded. In the authors' code the memory beyond the budget absorbs that; where activations leave
 * no such memory, the budget shrinks until the counts fit. Counts given by hand stay.
 */
static enum tc_status tci_gpu_counts(struct tci_ten_cache *cache, struct tc_planner *planner,
                                     uint64_t left, uint64_t *budget, struct tc_error *error)
{
	bool by_hand = !tc_plan_value(planner, "resident")->is_auto ||
	               !tc_plan_value(planner, "gpu-buffers")->is_auto;
	for (;;) {
		TC_TRY(tci_ten_cache_count_gpu(cache, planner, *budget, error));
		uint64_t bytes = tci_gpu_buffer_bytes(cache, planner);
		if (by_hand || bytes <= left || *budget == 0)
			return TC_OK;
		uint64_t over = bytes - left, least = *budget / 1024 + 1;
		over = over > least ? over : least;
		*budget -= over < *budget ? over : *budget;
	}
}

static enum tc_status tci_gpu_pool(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   struct tc_error *error)
{
	const struct tc_machine *machine = tc_plan_machine(planner);
	char text[TC_UNIT_TEXT_BYTES];
	uint64_t left = tc_plan_free_bytes(planner, TC_GPU);
	uint64_t wanted = tci_divided(
	    planner, machine->capacity_bytes[TC_GPU] - machine->framework_bytes[TC_GPU], "a-gpu");
	uint64_t budget = wanted < left ? wanted : left;
	TC_TRY(tci_gpu_counts(cache, planner, left, &budget, error));
	if (tc_plan_value(planner, "resident")->is_auto)
		tc_plan_note(
		    planner, "GPU pool for parameters: %s (%s)", tc_format_bytes(budget, text),
		    budget == wanted ? "free GPU memory / a-gpu" : "what activations leave");
	TC_TRY(tci_class_pool(cache, planner, TC_GPU, "fp16-gpu", true, &cache->gpu_pool, error));
	tc_plan_default_pool(planner, TC_GPU, cache->gpu_pool);
	for (size_t i = 0; i < cache->class_count; i++) {
		const struct tci_size_class *class = &cache->classes[i];
		if (class->gpu < class->least)
			return tc_error_set(
			    error, TC_INFEASIBLE,
			    "10cache:gpu-buffers= has %llu buffers of %llu bytes, but %llu "
			    "parameters of that size must be on the GPU at once: give at least "
			    "%llux%llu",
			    (unsigned long long)class->gpu, (unsigned long long)class->bytes,
			    (unsigned long long)class->least, (unsigned long long)class->bytes,
			    (unsigned long long)class->least);
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- homes of the parameters */

/** How many forward rows may live on the GPU at most. */
static enum tc_status tci_row_limit(struct tci_ten_cache *cache, struct tc_planner *planner,
                                    uint32_t *limit, struct tc_error *error)
{
	const struct tc_policy_value *resident = tc_plan_value(planner, "resident");
	uint32_t largest = tci_ten_cache_largest_module(tc_plan_steps(planner));
	uint64_t buffers = 0, slack = tc_plan_number(planner, "slack"), rows;
	for (size_t i = 0; i < cache->class_count; i++)
		buffers += cache->classes[i].gpu;
	rows = buffers > slack ? buffers - slack : 0;
	if (rows < largest)
		rows = largest;
	if (!resident->is_auto) {
		rows = resident->number;
		if (rows < largest)
			return tc_error_set(
			    error, TC_INFEASIBLE,
			    "10cache:resident=%llu is less than the %u parameters of the "
			    "largest module, which must be on the GPU at once; the "
			    "smallest value that works is %u",
			    (unsigned long long)rows, largest, largest);
	}
	*limit = rows < cache->forward_rows ? (uint32_t)rows : cache->forward_rows;
	return TC_OK;
}

static enum tc_status tci_place_gpu(struct tci_ten_cache *cache, struct tc_planner *planner,
                                    uint32_t limit, struct tc_error *error)
{
	uint32_t row = 0;
	for (; row < limit; row++) {
		uint32_t t = cache->table[row];
		if (tc_plan_has(planner, t, TC_GPU))
			continue; /* a tied tensor's second row */
		if (tc_plan_class_free(planner, cache->gpu_pool,
		                       tc_plan_tensor(planner, t).bytes) == 0)
			break;
		TC_TRY(tci_place_at_home(planner, t, cache->gpu_pool, TC_GPU, error));
		cache->home_is_gpu[t] = true;
	}
	cache->resident = row;
	uint32_t largest = tci_ten_cache_largest_module(tc_plan_steps(planner));
	const struct tc_policy_value *resident = tc_plan_value(planner, "resident");
	if (row >= largest && (resident->is_auto || row == limit))
		return TC_OK;
	return tc_error_set(
	    error, TC_INFEASIBLE,
	    "the GPU pool of 10cache holds only the first %u parameters of forward, "
	    "but %u are needed; more --gpu-memory, a smaller batch, or other "
	    "gpu-buffers= would help",
	    row, resident->is_auto ? largest : limit);
}

/** A machine without a drive needs a host buffer for all that is not on the GPU. */
static enum tc_status tci_no_host_buffer(const struct tci_ten_cache *cache,
                                         const struct tc_planner *planner, uint32_t tensor,
                                         struct tc_error *error)
{
	const struct tci_size_class *class = &cache->classes[cache->class_of[tensor]];
	uint64_t extra = tc_plan_number(planner, "x-cpu"), enough = 0;
	uint64_t most = (class->tensors > class->gpu ? class->tensors - class->gpu : 0) + extra;
	for (size_t i = 0; i < cache->class_count; i++)
		if (cache->classes[i].gpu > enough)
			enough = cache->classes[i].gpu;
	if (class->cpu >= most && tc_plan_value(planner, "cpu-buffers")->is_auto)
		return tc_error_set(error, TC_INFEASIBLE,
		                    "the CPU pool of 10cache has no buffer for parameter \"%s\" "
		                    "and machine %s has no "
		                    "NVMe: it has buffers for what finds none in the GPU pool and "
		                    "%llu more of each "
		                    "size, and the GPU pool has buffers that stay empty (more GPU "
		                    "memory makes more of "
		                    "them); x-cpu=%llu would help",
		                    tc_plan_trace(planner)->tensors[tensor].name,
		                    tc_plan_machine(planner)->name, (unsigned long long)extra,
		                    (unsigned long long)enough);
	return tc_error_set(
	    error, TC_INFEASIBLE,
	    "the CPU pool of 10cache has no buffer for parameter \"%s\" and machine "
	    "%s has no NVMe; more --cpu-memory, a smaller a-cpu= or cpu-buffers= would "
	    "help",
	    tc_plan_trace(planner)->tensors[tensor].name, tc_plan_machine(planner)->name);
}

static enum tc_status tci_place_below(struct tci_ten_cache *cache, struct tc_planner *planner,
                                      struct tc_error *error)
{
	bool spilled = false;
	uint32_t homes[TC_TIER_COUNT] = {0};
	for (uint32_t row = 0; row < cache->rows; row++) {
		uint32_t t = cache->table[row];
		if (cache->home_is_gpu[t] || tc_plan_has(planner, t, TC_CPU) ||
		    cache->home_is_nvme[t])
			continue;
		uint64_t bytes = tc_plan_tensor(planner, t).bytes;
		spilled = spilled || tc_plan_class_free(planner, cache->cpu_pool, bytes) == 0;
		homes[spilled ? TC_NVME : TC_CPU]++;
		if (!spilled) {
			TC_TRY(tci_place_at_home(planner, t, cache->cpu_pool, TC_CPU, error));
			tci_ten_cache_enters_host(cache, planner, t);
			continue;
		}
		if (!cache->has_nvme)
			return tci_no_host_buffer(cache, planner, t, error);
		TC_TRY(tci_place_at_home(planner, t, cache->nvme_pool, TC_NVME, error));
		cache->home_is_nvme[t] = true;
	}
	tc_plan_note(planner,
	             "homes: %u rows on the GPU, then %u tensors in host memory, %u on NVMe",
	             cache->resident, homes[TC_CPU], homes[TC_NVME]);
	return TC_OK;
}

enum tc_status tci_ten_cache_pools(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   struct tc_error *error)
{
	uint32_t limit = 0;
	const struct tc_policy_value *resident = tc_plan_value(planner, "resident");
	if (!resident->is_auto)
		cache->resident = resident->number < cache->forward_rows
		                      ? (uint32_t)resident->number
		                      : cache->forward_rows;
	TC_TRY(tci_gpu_work_pools(cache, planner, error));
	TC_TRY(tci_place_unasked(cache, planner, error));
	TC_TRY(tci_gpu_pool(cache, planner, error));
	TC_TRY(tci_host_pools(cache, planner, error));
	TC_TRY(tci_row_limit(cache, planner, &limit, error));
	TC_TRY(tci_place_gpu(cache, planner, limit, error));
	TC_TRY(tci_place_below(cache, planner, error));
	tci_ten_cache_prefix(cache, (size_t)tc_plan_trace(planner)->tensor_count + 1);
	return tci_ten_cache_place_fp32(cache, planner, error);
}
