/*
 * zero-infinity: ZeRO stage 3 with offloading, as DeepSpeed v0.14.2 does it on one GPU. This file
 * is the parameter table and the hooks; zero_infinity.h says where the rest is.
 */
#include <stdlib.h>

#include "policies.h"
#include "common.h"
#include "zero_infinity.h"

/** DeepSpeed's default of offload_param.buffer_size, elements. */
#define TCI_ZERO_DEFAULT_BUFFER_ELEMENTS 100000000u

/** The default, divided like everything else where the trace was scaled. */
static uint64_t tci_zero_default_buffer(const struct tc_planner *planner)
{
	uint64_t scale = tc_plan_trace(planner)->scale;
	return scale > 1 ? TCI_ZERO_DEFAULT_BUFFER_ELEMENTS / scale
	                 : TCI_ZERO_DEFAULT_BUFFER_ELEMENTS;
}

static bool tci_zero_on(const struct tc_planner *planner, const char *name)
{
	return tc_plan_number(planner, name) != 0;
}

static uint64_t tci_zero_or(const struct tc_planner *planner, const char *name, uint64_t automatic)
{
	const struct tc_policy_value *value = tc_plan_value(planner, name);
	return value->is_auto ? automatic : value->number;
}

static void tci_zero_settings(struct tci_zero *zero, const struct tc_planner *planner)
{
	bool nvme = tci_zero_on(planner, "device"); /* cpu|nvme */
	/* same|cpu|nvme */
	uint64_t optimizer = tc_plan_number(planner, "optimizer-device");
	zero->settings = (struct tci_zero_settings){
	    .parameters_on_nvme = nvme,
	    .state_on_nvme = optimizer == 0 ? nvme : optimizer == 2,
	    .pin_memory = tci_zero_on(planner, "pin-memory"),
	    .prefetch_bucket = tc_plan_number(planner, "prefetch-bucket-size"),
	    .max_live = tc_plan_number(planner, "max-live-parameters"),
	    .max_reuse_distance = tc_plan_number(planner, "max-reuse-distance"),
	    .persistence_threshold = tc_plan_number(planner, "param-persistence-threshold"),
	    .model_persistence_threshold =
	        tci_zero_or(planner, "model-persistence-threshold", UINT64_MAX),
	    .sub_group = tc_plan_number(planner, "sub-group-size"),
	    .reduce_bucket = tc_plan_number(planner, "reduce-bucket-size"),
	    .contiguous_gradients = tci_zero_on(planner, "contiguous-gradients"),
	    .scan = tci_zero_on(planner, "scan"),
	    .buffer_count = tc_plan_number(planner, "buffer-count"),
	    .buffer_elements =
	        tci_zero_or(planner, "buffer-size", tci_zero_default_buffer(planner)),
	    .max_in_cpu = tc_plan_number(planner, "max-in-cpu"),
	    .min_nvme_bytes = tc_plan_number(planner, "min-nvme-bytes"),
	    .optimizer_buffer_count = tc_plan_number(planner, "optimizer-buffer-count"),
	    .pipeline_read = tci_zero_on(planner, "pipeline-read"),
	    .pipeline_write = tci_zero_on(planner, "pipeline-write"),
	};
}

/* ---------------------------------------------------------------- hooks */

static enum tc_status tci_zero_begin(void *self, struct tc_planner *planner, struct tc_error *error)
{
	struct tci_zero *zero = self;
	zero->last_fetch = TC_NO_COMMAND;
	tci_zero_settings(zero, planner);
	tc_plan_optimizer_on_cpu(planner, true);
	tc_plan_use_barrier(planner, tci_zero_on(planner, "barrier"));
	TC_TRY(tci_gradients_can_leave(planner, "zero-infinity", error));
	TC_TRY(tc_plan_manage(planner, 1u << TC_PARAM | 1u << TC_GRAD | 1u << TC_OPTIMIZER_STATE,
	                      error));
	TC_TRY(tci_zero_read(zero, planner, error));
	TC_TRY(tci_zero_settle(zero, planner, error));
	tci_zero_start_iteration(zero);
	return TC_OK;
}

static enum tc_status tci_zero_before_step(void *self, struct tc_planner *planner, uint32_t step,
                                           struct tc_ids opening, struct tc_error *error)
{
	struct tci_zero *zero = self;
	(void)step;
	for (uint32_t i = 0; i < opening.count; i++) {
		uint32_t access = zero->access_of_request[opening.items[i]];
		if (access != TC_NONE)
			TC_TRY(tci_zero_access(zero, planner, access, error));
	}
	return TC_OK;
}

static enum tc_status tci_zero_after_step(void *self, struct tc_planner *planner, uint32_t step,
                                          struct tc_ids closing, struct tc_error *error)
{
	struct tci_zero *zero = self;
	(void)step;
	for (uint32_t i = 0; i < closing.count; i++) {
		uint32_t access = zero->access_of_request[closing.items[i]];
		if (access != TC_NONE)
			TC_TRY(tci_zero_release(zero, planner, access, error));
	}
	return TC_OK;
}

static enum tc_status tci_zero_on_event(void *self, struct tc_planner *planner, uint32_t event,
                                        bool *handled, struct tc_error *error)
{
	const struct tc_event *e = &tc_plan_trace(planner)->events[event];
	*handled = e->kind == TC_EVENT_GRADIENT;
	return *handled ? tci_zero_gradient(self, planner, e->tensor, event, error) : TC_OK;
}

static enum tc_status tci_zero_end_of_phase(void *self, struct tc_planner *planner,
                                            enum tc_phase phase, struct tc_error *error)
{
	struct tci_zero *zero = self;
	const struct tc_steps *steps = tc_plan_steps(planner);
	uint32_t next = tc_plan_step(planner);
	if (phase == TC_BACKWARD && !tci_more_backward(planner))
		TC_TRY(tci_zero_flush_leftovers(zero, planner, error));
	return next < steps->step_count && steps->steps[next].phase == TC_OPTIMIZER
	           ? tci_zero_begin_step(zero, planner, error)
	           : TC_OK;
}

static enum tc_status tci_zero_make_room(void *self, struct tc_planner *planner, uint32_t pool,
                                         uint64_t bytes, uint32_t for_tensor, bool *made,
                                         struct tc_error *error)
{
	struct tci_zero *zero = self;
	(void)bytes;
	*made = pool != TC_NO_POOL && pool == zero->pools.staging;
	if (*made)
		return tci_zero_free_a_buffer(zero, planner, for_tensor, error);
	return pool == zero->pools.gpu
	           ? tci_zero_forget_farthest(zero, planner, false, for_tensor, made, error)
	           : TC_OK;
}

static enum tc_status tci_zero_optimizer_event(void *self, struct tc_planner *planner,
                                               uint32_t event, uint32_t first_op, uint32_t last_op,
                                               struct tc_error *error)
{
	(void)event;
	return tci_zero_update(self, planner, first_op, last_op, error);
}

static enum tc_status tci_zero_end_of_iteration(void *self, struct tc_planner *planner,
                                                const struct tc_evaluation *timing,
                                                struct tc_error *error)
{
	struct tci_zero *zero = self;
	(void)timing;
	/* Only a trace without optimizer has not been here. */
	TC_TRY(tci_zero_begin_step(zero, planner, error));
	if (zero->early_releases > 0 && !zero->early_release_noted) {
		tc_plan_note(planner,
		             "staging buffers ran out %llu times in iteration %u and were taken "
		             "back from parameters kept for reuse, where DeepSpeed stops; a larger "
		             "buffer-count or a smaller max-reuse-distance avoids that",
		             (unsigned long long)zero->early_releases, tc_plan_iteration(planner));
		zero->early_release_noted = true;
	}
	zero->early_releases = 0;
	tci_zero_start_iteration(zero);
	return TC_OK;
}

static void tci_zero_end(void *self)
{
	struct tci_zero *zero = self;
	free(zero->parameters);
	free(zero->access_of_request);
	free(zero->accesses);
	free(zero->queue);
	free(zero->use_first);
	free(zero->uses);
	free(zero->units);
	free(zero->unit_tensors.items);
	free(zero->groups);
	free(zero->batch_complete);
	free(zero->batch.items);
	free(zero->loading.items);
	free(zero->loads.items);
	free(zero->bucket.items);
	free(zero->reads.items);
	free(zero->writes.items);
	free(zero->published.items);
}

/* ---------------------------------------------------------------- parameters */

#define TCI_ZERO_DEEPSPEED(key) "DeepSpeed v0.14.2, zero_optimization." key
#define TCI_ZERO_COUNT(key_name, value, unit_name, text, origin)                                   \
	{                                                                                          \
		.name = (key_name), .type = TC_PARAMETER_COUNT, .default_text = (value),           \
		.unit = (unit_name), .help = (text), .source = (origin)                            \
	}

static const struct tc_policy_parameter tci_zero_parameters[] = {
    {.name = "device",
     .type = TC_PARAMETER_WORD,
     .default_text = "cpu",
     .unit = "",
     .choices = "cpu|nvme",
     .help = "home of parameters and, unless optimizer-device says otherwise, optimizer state",
     .source = TCI_ZERO_DEEPSPEED("offload_param.device (its default is none)")},
    {.name = "optimizer-device",
     .type = TC_PARAMETER_WORD,
     .default_text = "same",
     .unit = "",
     .choices = "same|cpu|nvme",
     .help = "home of master, moments and FP32 gradients",
     .source = TCI_ZERO_DEEPSPEED("offload_optimizer.device")},
    TCI_ZERO_COUNT("prefetch-bucket-size", "5e7", "elements",
                   "a prefetch batch ends once it has this many",
                   TCI_ZERO_DEEPSPEED("stage3_prefetch_bucket_size")),
    TCI_ZERO_COUNT("max-live-parameters", "1e9", "elements",
                   "no prefetch beyond this many on the GPU or on the way",
                   TCI_ZERO_DEEPSPEED("stage3_max_live_parameters")),
    TCI_ZERO_COUNT("max-reuse-distance", "1e9", "elements",
                   "a parameter used again within this many accessed elements is kept",
                   TCI_ZERO_DEEPSPEED("stage3_max_reuse_distance")),
    TCI_ZERO_COUNT("param-persistence-threshold", "1e5", "elements",
                   "parameters up to this size always stay on the GPU",
                   TCI_ZERO_DEEPSPEED("stage3_param_persistence_threshold")),
    TCI_ZERO_COUNT("model-persistence-threshold", "auto", "elements",
                   "most elements that stay on the GPU for being small; auto: no limit",
                   TCI_ZERO_DEEPSPEED("stage3_model_persistence_threshold")),
    TCI_ZERO_COUNT("sub-group-size", "1e9", "elements",
                   "optimizer events are joined until they have this many",
                   TCI_ZERO_DEEPSPEED("sub_group_size")),
    TCI_ZERO_COUNT("reduce-bucket-size", "5e8", "elements",
                   "gradients collected on the GPU before they go down",
                   TCI_ZERO_DEEPSPEED("reduce_bucket_size")),
    TCI_ZERO_COUNT("contiguous-gradients", "1", "",
                   "1: gradients are copied into the bucket; 0: they wait where they were born",
                   TCI_ZERO_DEEPSPEED("contiguous_gradients")),
    TCI_ZERO_COUNT("pin-memory", "1", "",
                   "1: parameters, state and gradients in pinned host memory",
                   "DeepSpeed's offloading examples; the default of "
                   "zero_optimization.offload_param.pin_memory is false"),
    TCI_ZERO_COUNT("buffer-count", "5", "buffers", "staging buffers for parameters on NVMe",
                   TCI_ZERO_DEEPSPEED("offload_param.buffer_count")),
    TCI_ZERO_COUNT("buffer-size", "auto", "elements",
                   "size of each; auto: 1e8 or the largest parameter on NVMe, if that is larger",
                   TCI_ZERO_DEEPSPEED("offload_param.buffer_size is 1e8 and refuses larger "
                                      "parameters")),
    TCI_ZERO_COUNT("max-in-cpu", "1e9", "elements",
                   "with device=nvme, sub-groups that end within this many stay in host memory",
                   TCI_ZERO_DEEPSPEED("offload_param.max_in_cpu")),
    {.name = "min-nvme-bytes",
     .type = TC_PARAMETER_BYTES,
     .default_text = "1Mi",
     .unit = "bytes",
     .help = "smaller parameters stay in host memory with device=nvme",
     .source = "DeepSpeed v0.14.2, constant MIN_AIO_BYTES"},
    TCI_ZERO_COUNT("optimizer-buffer-count", "4", "buffers",
                   "staging buffers for state on NVMe, each as large as a sub-group in FP32",
                   TCI_ZERO_DEEPSPEED("offload_optimizer.buffer_count")),
    TCI_ZERO_COUNT("pipeline-read", "0", "",
                   "1: read the next sub-group's state during the updates of this one",
                   TCI_ZERO_DEEPSPEED("offload_optimizer.pipeline_read")),
    TCI_ZERO_COUNT("pipeline-write", "0", "",
                   "1: write a sub-group's state during the updates of the next one",
                   TCI_ZERO_DEEPSPEED("offload_optimizer.pipeline_write")),
    TCI_ZERO_COUNT("scan", "1", "", "1: inf and nan scan of all gradients on the CPU",
                   "DeepSpeed v0.14.2, overflow check of stage 3 with CPU offload"),
    TCI_ZERO_COUNT("barrier", "1", "", "1: no update before the last gradient has been scanned",
                   "DeepSpeed v0.14.2, overflow check and global norm before the first update"),
};

const struct tc_policy tci_policy_zero_infinity = {
    .name = "zero-infinity",
    .summary = "ZeRO stage 3 with offloading to host memory or NVMe, as DeepSpeed does it",
    .source = "DeepSpeed v0.14.2; arXiv 2104.07857; src/policy/ZERO_INFINITY.md",
    .parameters = tci_zero_parameters,
    .parameter_count = sizeof tci_zero_parameters / sizeof *tci_zero_parameters,
    .period = 1,
    .state_bytes = sizeof(struct tci_zero),
    .begin = tci_zero_begin,
    .before_step = tci_zero_before_step,
    .after_step = tci_zero_after_step,
    .on_event = tci_zero_on_event,
    .end_of_phase = tci_zero_end_of_phase,
    .make_room = tci_zero_make_room,
    .optimizer_event = tci_zero_optimizer_event,
    .end_of_iteration = tci_zero_end_of_iteration,
    .end = tci_zero_end,
};
