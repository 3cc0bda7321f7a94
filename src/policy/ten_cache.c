/* 10cache: the policy's table and hooks. What each part does: ten_cache.h. */
#include "ten_cache.h"

#include <stdlib.h>

#include "policies.h"
#include "tencache/units.h"

static enum tc_status tci_ten_cache_begin(void *self, struct tc_planner *planner,
                                          struct tc_error *error)
{
	struct tci_ten_cache *cache = self;
	uint32_t tensors = tc_plan_trace(planner)->tensor_count;
	cache->gpu_pool = cache->cpu_pool = cache->fp32_pool = cache->staging_pool = TC_NO_POOL;
	cache->nvme_pool = cache->gradient_pool = cache->bucket_pool = TC_NO_POOL;
	cache->gradient_staging = cache->gradient_host = TC_NO_POOL;
	cache->has_nvme = tc_plan_machine(planner)->capacity_bytes[TC_NVME] > 0;
	cache->farthest = tci_value_is(planner, "victim", "farthest");
	cache->delay_empty = tci_value_is(planner, "empty-class", "delay");
	cache->blocking_reads = tc_plan_number(planner, "opt-prefetch") == 0;
	cache->rewrite_clean = tc_plan_number(planner, "rewrite-clean") != 0;
	cache->sync = tci_value_is(planner, "mode", "sync");
	tc_plan_optimizer_on_cpu(planner, true);
	tc_plan_use_barrier(planner, tci_value_barrier(planner));
	TC_TRY(tci_gradients_can_leave(planner, "10cache", error));
	TC_TRY(tc_plan_manage(planner, 1u << TC_PARAM | 1u << TC_GRAD | 1u << TC_OPTIMIZER_STATE,
	                      error));
	TC_TRY(tci_ten_cache_rows(cache, planner, error));
	if (cache->forward_rows == 0)
		return tc_error_set(
		    error, TC_INFEASIBLE,
		    "10cache needs parameters that forward asks for, but trace %s has "
		    "none",
		    tc_plan_trace(planner)->name);
	TC_TRY(tci_ten_cache_classes(cache, planner, error));
	TC_TRY(tci_ten_cache_occupants_create(cache, tensors, error));
	TC_TRY(tci_ten_cache_derive_gradients(cache, planner, error));
	TC_TRY(tci_ten_cache_units(cache, planner, error));
	TC_TRY(tci_ten_cache_pools(cache, planner, error));
	tci_ten_cache_rewind(cache);
	return TC_OK;
}

/** What is asked for and not on its way is fetched now: a demand miss. */
static enum tc_status tci_demand(struct tci_ten_cache *cache, struct tc_planner *planner,
                                 const struct tc_request *request, struct tc_error *error)
{
	for (uint32_t r = 0; r < request->row_count; r++) {
		uint32_t t = cache->table[request->first_row + r];
		bool done;
		if (!cache->window[t]) {
			cache->window[t] = true;
			cache->window_size++;
		}
		if (!tc_plan_has(planner, t, TC_GPU))
			TC_TRY(tci_ten_cache_fetch(cache, planner, t, TC_WHY_DEMAND, &done, error));
	}
	return TC_OK;
}

static enum tc_status tci_ten_cache_before_step(void *self, struct tc_planner *planner,
                                                uint32_t step, struct tc_ids opening,
                                                struct tc_error *error)
{
	struct tci_ten_cache *cache = self;
	(void)step;
	for (uint32_t i = 0; i < opening.count; i++) {
		const struct tc_request *request =
		    &tc_plan_steps(planner)->requests[opening.items[i]];
		tci_ten_cache_access(cache, request);
		TC_TRY(tci_demand(cache, planner, request, error));
	}
	return TC_OK;
}

/** Fetch, or put off until the next release when the class has no buffer. */
static enum tc_status tci_fetch_or_delay(struct tci_ten_cache *cache, struct tc_planner *planner,
                                         uint32_t tensor, struct tc_error *error)
{
	bool done;
	TC_TRY(tci_ten_cache_fetch(cache, planner, tensor, TC_WHY_PREFETCH, &done, error));
	if (done)
		return TC_OK;
	if (!cache->delay_empty)
		return tc_error_set(
		    error, TC_INFEASIBLE,
		    "10cache has no GPU buffer for \"%s\" (%llu bytes) when its fetch is "
		    "due; gpu-buffers= with more of that size, or empty-class=delay, "
		    "would help",
		    tc_plan_trace(planner)->tensors[tensor].name,
		    (unsigned long long)tc_plan_tensor(planner, tensor).bytes);
	cache->delayed[cache->delayed_count++] = tensor;
	tc_plan_count_delayed(planner);
	return TC_OK;
}

static enum tc_status tci_retry_delayed(struct tci_ten_cache *cache, struct tc_planner *planner,
                                        struct tc_error *error)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < cache->delayed_count; i++) {
		uint32_t t = cache->delayed[i];
		bool done = !cache->window[t]; /* left the window meanwhile: no use any more */
		if (!done)
			TC_TRY(
			    tci_ten_cache_fetch(cache, planner, t, TC_WHY_PREFETCH, &done, error));
		if (!done)
			cache->delayed[kept++] = t;
	}
	cache->delayed_count = kept;
	return TC_OK;
}

/** First stage of the two: NVMe to a staging buffer, one release before the copy to the GPU. */
static enum tc_status tci_stage(struct tci_ten_cache *cache, struct tc_planner *planner,
                                struct tc_error *error)
{
	uint64_t free_buffers =
	    cache->staging_pool == TC_NO_POOL
	        ? 0
	        : tc_plan_class_free(planner, cache->staging_pool, cache->largest_bytes);
	if (cache->stage_next_count == 0 || cache->stage_next_count >= free_buffers)
		return TC_OK; /* read when the copy is due */
	for (uint32_t i = 0; i < cache->stage_next_count; i++) {
		bool moved;
		TC_TRY(tc_plan_move(planner, cache->stage_next[i], cache->staging_pool, TC_NO_POOL,
		                    TC_MOVE(TC_WHY_STAGE), &moved, NULL, error));
	}
	return TC_OK;
}

static bool tci_only_on_nvme(const struct tc_planner *planner, uint32_t tensor)
{
	return !tc_plan_has(planner, tensor, TC_GPU) && !tc_plan_has(planner, tensor, TC_CPU);
}

static enum tc_status tci_release_request(struct tci_ten_cache *cache, struct tc_planner *planner,
                                          const struct tc_request *request, uint32_t *leaves,
                                          struct tc_error *error)
{
	uint32_t *swap = cache->stage_now;
	cache->stage_now = cache->stage_next;
	cache->stage_now_count = cache->stage_next_count;
	cache->stage_next = swap;
	cache->stage_next_count = cache->fetch_count = 0;
	uint32_t leaving = tci_ten_cache_release(cache, request, leaves);
	/* All evictions precede all fetches: the GPU pool needs slack for mismatch only. */
	for (uint32_t i = 0; i < leaving; i++)
		TC_TRY(tci_ten_cache_evict(cache, planner, leaves[i], TC_WHY_RELEASE, error));
	TC_TRY(tci_retry_delayed(cache, planner, error));
	for (uint32_t i = 0; i < cache->fetch_count; i++) {
		uint32_t q = cache->fetches[i];
		if (tci_only_on_nvme(planner, q))
			cache->stage_next[cache->stage_next_count++] = q;
		else
			TC_TRY(tci_fetch_or_delay(cache, planner, q, error));
	}
	for (uint32_t i = 0; i < cache->stage_now_count; i++)
		if (cache->window[cache->stage_now[i]])
			TC_TRY(tci_fetch_or_delay(cache, planner, cache->stage_now[i], error));
	return tci_stage(cache, planner, error);
}

static enum tc_status tci_ten_cache_after_step(void *self, struct tc_planner *planner,
                                               uint32_t step, struct tc_ids closing,
                                               struct tc_error *error)
{
	struct tci_ten_cache *cache = self;
	(void)step;
	for (uint32_t i = 0; i < closing.count; i++) {
		const struct tc_request *request =
		    &tc_plan_steps(planner)->requests[closing.items[i]];
		if (!cache->releasing)
			continue;
		TC_TRY(tci_release_request(cache, planner, request, cache->leaves, error));
	}
	return TC_OK;
}

/** A demand miss whose class has no buffer: the farthest unpinned tensor of that class goes. */
static enum tc_status tci_ten_cache_make_room(void *self, struct tc_planner *planner, uint32_t pool,
                                              uint64_t bytes, uint32_t for_tensor, bool *made,
                                              struct tc_error *error)
{
	struct tci_ten_cache *cache = self;
	const struct tc_trace *trace = tc_plan_trace(planner);
	uint32_t victim = TC_NONE;
	uint64_t farthest = 0;
	(void)bytes;
	*made = false;
	if (pool != cache->gpu_pool || cache->class_of[for_tensor] == TC_NONE)
		return TC_OK;
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		if (cache->class_of[t] != cache->class_of[for_tensor] || cache->stays[t] ||
		    tc_plan_is_pinned(planner, t) || !tc_plan_has(planner, t, TC_GPU))
			continue;
		uint64_t next = tc_plan_next_use(planner, t);
		if (victim == TC_NONE || next > farthest) {
			victim = t;
			farthest = next;
		}
	}
	if (victim == TC_NONE)
		return TC_OK;
	if (cache->window[victim]) {
		cache->window[victim] = false;
		cache->window_size--;
	}
	*made = true;
	return tci_ten_cache_evict(cache, planner, victim, TC_WHY_VICTIM, error);
}

static enum tc_status tci_ten_cache_event(void *self, struct tc_planner *planner, uint32_t event,
                                          bool *handled, struct tc_error *error)
{
	const struct tc_event *e = &tc_plan_trace(planner)->events[event];
	if (e->kind != TC_EVENT_GRADIENT)
		return TC_OK;
	*handled = true;
	return tci_ten_cache_gradient(self, planner, e->tensor, error);
}

/** The window ends as the forward prefix, whatever order modules asked for their parameters in. */
static enum tc_status tci_repair(struct tci_ten_cache *cache, struct tc_planner *planner,
                                 struct tc_error *error)
{
	uint32_t tensors = tc_plan_trace(planner)->tensor_count;
	bool *was = tc_alloc_array((size_t)tensors + 1, sizeof *was);
	if (was == NULL)
		return tc_error_no_memory(error, "repair", tensors);
	for (uint32_t t = 0; t < tensors; t++)
		was[t] = cache->class_of[t] != TC_NONE && !cache->stays[t] &&
		         tc_plan_has(planner, t, TC_GPU);
	tci_ten_cache_prefix(cache, (size_t)tensors + 1);
	enum tc_status status = TC_OK;
	for (uint32_t t = 0; t < tensors && status == TC_OK; t++)
		if (was[t] && !cache->window[t])
			status = tci_ten_cache_evict(cache, planner, t, TC_WHY_REPAIR, error);
	for (uint32_t row = 0; row < cache->resident && status == TC_OK; row++) {
		bool done = true;
		uint32_t t = cache->table[row];
		if (!tc_plan_has(planner, t, TC_GPU))
			status =
			    tci_ten_cache_fetch(cache, planner, t, TC_WHY_REPAIR, &done, error);
		if (status == TC_OK && !done)
			status =
			    tc_error_set(error, TC_INTERNAL,
			                 "10cache cannot restore its window: no buffer for \"%s\"",
			                 tc_plan_trace(planner)->tensors[t].name);
	}
	cache->delayed_count = 0;
	free(was);
	return status;
}

static enum tc_status tci_ten_cache_end_of_phase(void *self, struct tc_planner *planner,
                                                 enum tc_phase phase, struct tc_error *error)
{
	struct tci_ten_cache *cache = self;
	if (phase != TC_BACKWARD)
		return TC_OK;
	if (!tci_more_backward(planner))
		TC_TRY(tci_ten_cache_late_gradients(cache, planner, error));
	TC_TRY(tci_ten_cache_flush(cache, planner, error));
	return tci_repair(cache, planner, error);
}

static enum tc_status tci_ten_cache_optimizer_event(void *self, struct tc_planner *planner,
                                                    uint32_t event, uint32_t first_op,
                                                    uint32_t last_op, struct tc_error *error)
{
	return tci_ten_cache_update(self, planner, event, first_op, last_op, error);
}

static enum tc_status tci_ten_cache_end_of_iteration(void *self, struct tc_planner *planner,
                                                     const struct tc_evaluation *timing,
                                                     struct tc_error *error)
{
	struct tci_ten_cache *cache = self;
	(void)timing;
	TC_TRY(tci_ten_cache_end_fp32(cache, planner, error));
	tci_ten_cache_rewind(cache);
	return TC_OK;
}

static void tci_ten_cache_end(void *self)
{
	struct tci_ten_cache *cache = self;
	void *owned[] = {
	    cache->classes, cache->class_of,      cache->row_first,     cache->row_of,
	    cache->window,  cache->stage_now,     cache->stage_next,    cache->fetches,
	    cache->delayed, cache->home_is_gpu,   cache->home_is_nvme,  cache->bucket_copy,
	    cache->bucket,  cache->late_gradient, cache->fp32_gradient, cache->units,
	    cache->leaves,  cache->stays,         cache->unit_params};
	for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
		free(owned[i]);
	tci_ten_cache_occupants_free(cache);
}

#define TCI_CODE "10cache code at 1952ab2"

static const struct tc_policy_parameter tci_ten_cache_parameters[] = {
    {.name = "resident",
     .type = TC_PARAMETER_COUNT,
     .default_text = "auto",
     .unit = "rows",
     .help = "forward rows whose parameters live on the GPU (n0); auto: by the pool's counts",
     .source = "src/PLANNING.md"},
    {.name = "slack",
     .type = TC_PARAMETER_COUNT,
     .default_text = "30",
     .unit = "buffers",
     .help = "GPU buffers left empty for the mismatch of classes",
     .source = TCI_CODE},
    {.name = "a-gpu",
     .type = TC_PARAMETER_FACTOR,
     .default_text = "2.5",
     .unit = "",
     .help = "GPU pool = free GPU memory / this",
     .source = TCI_CODE},
    {.name = "a-cpu",
     .type = TC_PARAMETER_FACTOR,
     .default_text = "2",
     .unit = "",
     .help = "host pool = host memory left / this",
     .source = TCI_CODE},
    {.name = "f-fp32",
     .type = TC_PARAMETER_FACTOR,
     .default_text = "0.67",
     .unit = "",
     .help = "share of host memory for FP32 state",
     .source = TCI_CODE},
    {.name = "x-cpu",
     .type = TC_PARAMETER_COUNT,
     .default_text = "12",
     .unit = "buffers",
     .help = "extra host buffers per size class",
     .source = TCI_CODE},
    {.name = "slack-fp32",
     .type = TC_PARAMETER_COUNT,
     .default_text = "0",
     .unit = "slots",
     .help = "FP32 slots left empty",
     .source = TCI_CODE},
    {.name = "gpu-buffers",
     .type = TC_PARAMETER_SIZES,
     .default_text = "auto",
     .unit = "",
     .help = "BYTESxCOUNT/BYTESxCOUNT...: GPU buffers by exact parameter size",
     .source = "src/PLANNING.md"},
    {.name = "cpu-buffers",
     .type = TC_PARAMETER_SIZES,
     .default_text = "auto",
     .unit = "",
     .help = "host buffers, likewise",
     .source = "src/PLANNING.md"},
    {.name = "fp32-buffers",
     .type = TC_PARAMETER_SIZES,
     .default_text = "auto",
     .unit = "",
     .help = "FP32 slots by the parameter's size, likewise",
     .source = "src/PLANNING.md"},
    {.name = "hist",
     .type = TC_PARAMETER_WORD,
     .default_text = "tensors",
     .choices = "tensors|accesses",
     .unit = "",
     .help = "what is counted per size; accesses: a tied tensor counts twice, as in the code",
     .source = TCI_CODE},
    {.name = "victim",
     .type = TC_PARAMETER_WORD,
     .default_text = "farthest",
     .choices = "code|farthest",
     .unit = "",
     .help = "what leaves a full host pool: the code's choice, or the farthest next use",
     .source = "10cache code at 1952ab2 for `code`"},
    {.name = "empty-class",
     .type = TC_PARAMETER_WORD,
     .default_text = "delay",
     .choices = "delay|strict",
     .unit = "",
     .help = "no GPU buffer for a fetch: delay to the next release and count, or infeasible",
     .source = "the code aborts"},
    {.name = "nvme-buffers",
     .type = TC_PARAMETER_COUNT,
     .default_text = "6",
     .unit = "buffers",
     .help = "staging buffers of the largest parameter",
     .source = TCI_CODE},
    {.name = "bucket",
     .type = TC_PARAMETER_COUNT,
     .default_text = "5",
     .unit = "gradients",
     .help = "gradient bucket = this times the largest gradient",
     .source = TCI_CODE},
    {.name = "opt-prefetch",
     .type = TC_PARAMETER_COUNT,
     .default_text = "1",
     .unit = "",
     .help = "1: FP32 reads are asynchronous; 0: the host waits for each, as in the code",
     .source = TCI_CODE},
    {.name = "rewrite-clean",
     .type = TC_PARAMETER_COUNT,
     .default_text = "0",
     .unit = "",
     .help = "1: spill again although the file is still valid, as in the code",
     .source = TCI_CODE},
    {.name = "reuse",
     .type = TC_PARAMETER_WORD,
     .default_text = "lifo",
     .choices = "lifo|fifo",
     .unit = "",
     .help = "which free buffer is used first",
     .source = TCI_CODE},
    {.name = "mode",
     .type = TC_PARAMETER_WORD,
     .default_text = "async",
     .choices = "async|sync",
     .unit = "",
     .help = "sync: the host waits for every copy, as in the code; async: it never does",
     .source = TCI_CODE},
    TCI_PARAMETER_BARRIER("1"),
};

const struct tc_policy tci_policy_ten_cache = {
    .name = "10cache",
    .summary = "prefetch a whole window ahead from the recorded order, pools by tensor size",
    .source = "10Cache, arXiv 2511.14124; github.com/Sabiha1225/10cache",
    .parameters = tci_ten_cache_parameters,
    .parameter_count = sizeof tci_ten_cache_parameters / sizeof *tci_ten_cache_parameters,
    .period = 1,
    .state_bytes = sizeof(struct tci_ten_cache),
    .begin = tci_ten_cache_begin,
    .before_step = tci_ten_cache_before_step,
    .after_step = tci_ten_cache_after_step,
    .on_event = tci_ten_cache_event,
    .end_of_phase = tci_ten_cache_end_of_phase,
    .make_room = tci_ten_cache_make_room,
    .optimizer_event = tci_ten_cache_optimizer_event,
    .end_of_iteration = tci_ten_cache_end_of_iteration,
    .end = tci_ten_cache_end,
};
