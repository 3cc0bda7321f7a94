/*
 * Homes and memory of zero-infinity. Everything has its home in host memory (device=cpu) or on the
 * drive (device=nvme), where only small parameters, sub-groups below max-in-cpu, and what is not
 * per parameter stay in host memory. The GPU holds the gradients of a step, the bucket, two slots
 * for the norm, and parameters.
 */
#include "tencache/units.h"
#include "zero_infinity.h"

static bool tci_zero_is_state(const struct tc_planner *planner, uint32_t tensor)
{
	enum tc_role role = tc_plan_tensor(planner, tensor).role;
	return role == TC_ROLE_MASTER || role == TC_ROLE_EXP_AVG || role == TC_ROLE_EXP_AVG_SQ;
}

/* ---------------------------------------------------------------- homes */

/**
 * A sub-group stays in host memory if the elements of all sub-groups before it (those that did not
 * fit included) and its own are at most max-in-cpu; small tensors always do.
 */
static void tci_zero_home_parameters(struct tci_zero *zero, struct tc_planner *planner)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	uint64_t offset = 0;
	if (!zero->settings.parameters_on_nvme)
		return;
	for (uint32_t t = 0; t < zero->tensor_count; t++)
		zero->parameters[t].on_nvme =
		    trace->tensors[t].kind == TC_PARAM &&
		    trace->tensors[t].bytes >= zero->settings.min_nvme_bytes;
	for (size_t g = 0; g < zero->group_count; g++) {
		const struct tci_zero_group *group = &zero->groups[g];
		offset += group->elements;
		if (offset > zero->settings.max_in_cpu)
			continue;
		for (uint32_t u = 0; u < group->unit_count; u++) {
			const struct tci_zero_unit *unit = &zero->units[group->first_unit + u];
			for (uint32_t i = 0; i < unit->tensor_count; i++) {
				uint32_t t = zero->unit_tensors.items[unit->first_tensor + i];
				if (t < zero->tensor_count)
					zero->parameters[t].on_nvme = false;
			}
		}
	}
}

static void tci_zero_try_persistent(struct tci_zero *zero, uint32_t parameter, uint64_t *total)
{
	struct tci_zero_parameter *p = &zero->parameters[parameter];
	if (p->persistent || p->elements > zero->settings.persistence_threshold ||
	    *total > zero->settings.model_persistence_threshold ||
	    p->elements > zero->settings.model_persistence_threshold - *total)
		return;
	p->persistent = true;
	*total += p->elements;
}

/** In the order of named_parameters(): modules, each with what it owns. */
static void tci_zero_choose_persistent(struct tci_zero *zero, struct tc_planner *planner)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	uint64_t total = 0;
	for (uint32_t m = 0; m < trace->module_count; m++)
		for (uint32_t i = 0; i < trace->modules[m].params.count; i++)
			tci_zero_try_persistent(zero, trace->modules[m].params.items[i], &total);
	for (uint32_t t = 0; t < zero->tensor_count; t++)
		if (trace->tensors[t].kind == TC_PARAM)
			tci_zero_try_persistent(zero, t, &total);
}

/* ---------------------------------------------------------------- sums */

/** Bytes in a tier, each tensor rounded up; adds to `*sum`. */
static enum tc_status tci_zero_sum(const struct tc_planner *planner, enum tc_tier tier,
                                   uint32_t tensor, uint64_t *sum, struct tc_error *error)
{
	struct tc_plan_tensor_view view = tc_plan_tensor(planner, tensor);
	return tc_add_u64(*sum, tc_plan_aligned(planner, tier, view.bytes), sum)
	           ? TC_OK
	           : tc_error_set(error, TC_TOO_LARGE, "the model needs more than 2^64 bytes");
}

struct tci_zero_sums {
	uint64_t parameters, state, half_gradients, full_gradients;
	uint64_t nvme_parameters, nvme_state, nvme_gradients;
};

static enum tc_status tci_zero_sum_state(const struct tci_zero *zero,
                                         const struct tc_planner *planner, uint32_t tensor,
                                         struct tci_zero_sums *sums, struct tc_error *error)
{
	bool down = zero->settings.state_on_nvme && tci_zero_is_state(planner, tensor);
	return tci_zero_sum(planner, down ? TC_NVME : TC_CPU, tensor,
	                    down ? &sums->nvme_state : &sums->state, error);
}

/** A master that the planner derived, or TC_NONE. */
static uint32_t tci_zero_derived_master(const struct tci_zero *zero,
                                        const struct tc_planner *planner, uint32_t parameter)
{
	uint32_t master = tc_plan_master_of(planner, parameter);
	return master != TC_NONE && master >= zero->tensor_count ? master : TC_NONE;
}

static enum tc_status tci_zero_sum_parameter(const struct tci_zero *zero,
                                             const struct tc_planner *planner, uint32_t parameter,
                                             struct tci_zero_sums *sums, struct tc_error *error)
{
	const struct tci_zero_parameter *p = &zero->parameters[parameter];
	uint32_t master = tci_zero_derived_master(zero, planner, parameter);
	TC_TRY(tci_zero_sum(planner, p->on_nvme ? TC_NVME : TC_CPU, parameter,
	                    p->on_nvme ? &sums->nvme_parameters : &sums->parameters, error));
	if (master != TC_NONE)
		TC_TRY(tci_zero_sum_state(zero, planner, master, sums, error));
	if (p->gradient == TC_NONE)
		return TC_OK;
	TC_TRY(tci_zero_sum(planner, TC_CPU, p->bucket_copy, &sums->half_gradients, error));
	if (zero->settings.state_on_nvme)
		return tci_zero_sum(planner, TC_NVME, p->full_copy, &sums->nvme_gradients, error);
	return tci_zero_sum(planner, TC_CPU, p->full_copy, &sums->full_gradients, error);
}

static enum tc_status tci_zero_sum_all(const struct tci_zero *zero,
                                       const struct tc_planner *planner, struct tci_zero_sums *sums,
                                       struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	for (uint32_t t = 0; t < zero->tensor_count; t++) {
		if (trace->tensors[t].kind == TC_PARAM)
			TC_TRY(tci_zero_sum_parameter(zero, planner, t, sums, error));
		else if (trace->tensors[t].kind == TC_OPTIMIZER_STATE)
			TC_TRY(tci_zero_sum_state(zero, planner, t, sums, error));
	}
	/* A gradient that waits for further micro-batches and the copy of the last one. */
	if (zero->gradients_come_twice &&
	    !tc_mul_u64(sums->half_gradients, 2, &sums->half_gradients))
		return tc_error_set(error, TC_TOO_LARGE, "the gradients need more than 2^64 bytes");
	return TC_OK;
}

/* ---------------------------------------------------------------- staging */

/** Buffers of equal size; DeepSpeed refuses tensors that are larger than a buffer. */
static enum tc_status tci_zero_staging(struct tci_zero *zero, struct tc_planner *planner,
                                       struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	struct tci_zero_settings *settings = &zero->settings;
	bool chosen = tc_plan_value(planner, "buffer-size")->is_auto;
	uint32_t largest = TC_NONE;
	uint64_t width = 1;
	for (uint32_t t = 0; t < zero->tensor_count; t++) {
		const struct tci_zero_parameter *p = &zero->parameters[t];
		if (!p->on_nvme)
			continue;
		if (largest == TC_NONE || p->elements > zero->parameters[largest].elements)
			largest = t;
		if (p->elements > 0 && trace->tensors[t].bytes / p->elements > width)
			width = trace->tensors[t].bytes / p->elements;
	}
	if (largest == TC_NONE)
		return TC_OK; /* nothing passes through */
	uint64_t most = zero->parameters[largest].elements;
	if (chosen && most > settings->buffer_elements) {
		tc_plan_note(planner,
		             "buffer-size=auto made the staging buffers %llu elements for \"%s\" "
		             "(DeepSpeed refuses tensors above its default 1e8)",
		             (unsigned long long)most, trace->tensors[largest].name);
		settings->buffer_elements = most;
	}
	if (most > settings->buffer_elements)
		return tc_error_set(
		    error, TC_INFEASIBLE,
		    "parameter \"%s\" has %llu elements, but the staging buffers of "
		    "zero-infinity have buffer-size=%llu; buffer-size=%llu or "
		    "buffer-size=auto works",
		    trace->tensors[largest].name, (unsigned long long)most,
		    (unsigned long long)settings->buffer_elements, (unsigned long long)most);
	struct tc_class_size size = {.count = settings->buffer_count};
	if (settings->buffer_count == 0)
		return tc_error_set(error, TC_INFEASIBLE,
		                    "zero-infinity:buffer-count=0 leaves no staging buffer for "
		                    "parameters on NVMe; buffer-count=5 is DeepSpeed's default");
	if (!tc_mul_u64(settings->buffer_elements, width, &size.bytes))
		return tc_error_set(error, TC_TOO_LARGE,
		                    "staging buffers of %llu elements are too large",
		                    (unsigned long long)settings->buffer_elements);
	TC_TRY(tc_plan_classes(planner, TC_CPU, "staging", true, &size, 1, false,
	                       &zero->pools.staging, error));
	tc_plan_staging_pool(planner, zero->pools.staging);
	return TC_OK;
}

/** FP32 bytes of a sub-group, each of its tensors rounded up; the largest of all. */
static uint64_t tci_zero_largest_group_bytes(const struct tci_zero *zero,
                                             const struct tc_planner *planner)
{
	uint64_t most = 0;
	for (size_t g = 0; g < zero->group_count; g++) {
		const struct tci_zero_group *group = &zero->groups[g];
		uint64_t bytes = 0;
		for (uint32_t u = 0; u < group->unit_count; u++) {
			const struct tci_zero_unit *unit = &zero->units[group->first_unit + u];
			for (uint32_t i = 0; i < unit->tensor_count; i++) {
				uint32_t t = zero->unit_tensors.items[unit->first_tensor + i];
				uint64_t elements =
				    t < zero->tensor_count ? zero->parameters[t].elements : 0;
				bytes += tc_plan_aligned(planner, TC_CPU, 4 * elements);
			}
		}
		if (bytes > most)
			most = bytes;
	}
	return most;
}

/**
 * `optimizer-buffer-count` buffers, each as large as the largest sub-group in FP32. Four of them
 * (master, two moments, gradient) hold a sub-group; sub-groups take turns, so that with pipelined
 * reads or writes one is moved while another is updated.
 */
static enum tc_status tci_zero_optimizer_staging(struct tci_zero *zero, struct tc_planner *planner,
                                                 struct tc_error *error)
{
	static const char *const names[TCI_ZERO_STAGES] = {
	    "optimizer staging", "optimizer staging 2", "optimizer staging 3"};
	const struct tci_zero_settings *settings = &zero->settings;
	uint32_t stages = 1;
	stages += settings->pipeline_read ? 1 : 0;
	stages += settings->pipeline_write ? 1 : 0;
	uint64_t buffer = tci_zero_largest_group_bytes(zero, planner);
	uint64_t count = settings->optimizer_buffer_count;
	if (count < 4 * stages)
		return tc_error_set(error, TC_INFEASIBLE,
		                    "zero-infinity: optimizer-buffer-count=%llu is too small for "
		                    "master, moments and "
		                    "gradient%s; optimizer-buffer-count=%u works",
		                    (unsigned long long)count,
		                    stages > 1 ? " with pipelined reads or writes" : "",
		                    4 * stages);
	for (uint32_t i = 0; i < stages; i++) {
		/* The first one has what is left over. */
		uint64_t buffers = i == 0 ? count - 4 * (stages - 1) : 4, bytes;
		if (!tc_mul_u64(buffers, buffer, &bytes))
			return tc_error_set(error, TC_TOO_LARGE,
			                    "optimizer-buffer-count=%llu is too large",
			                    (unsigned long long)count);
		TC_TRY(tc_plan_arena(planner, TC_CPU, names[i], true, bytes,
		                     &zero->pools.optimizer_staging[i], error));
	}
	zero->stages = stages;
	return TC_OK;
}

/* ---------------------------------------------------------------- pools */

enum tc_status tci_zero_arena(struct tc_planner *planner, enum tc_tier tier, const char *name,
                              bool pinned, uint64_t bytes, uint32_t *pool, struct tc_error *error)
{
	return bytes == 0 ? TC_OK : tc_plan_arena(planner, tier, name, pinned, bytes, pool, error);
}

static enum tc_status tci_zero_host_pools(struct tci_zero *zero, struct tc_planner *planner,
                                          const struct tci_zero_sums *sums, struct tc_error *error)
{
	struct tci_zero_pools *pools = &zero->pools;
	bool pinned = zero->settings.pin_memory;
	/* Also where the planner puts aside what it repacks: exists even when empty. */
	TC_TRY(tc_plan_arena(planner, TC_CPU, "parameters", pinned, sums->parameters,
	                     &pools->parameters, error));
	tc_plan_default_pool(planner, TC_CPU, pools->parameters);
	TC_TRY(tci_zero_arena(planner, TC_CPU, "optimizer state", pinned, sums->state,
	                      &pools->state, error));
	TC_TRY(tci_zero_arena(planner, TC_CPU, "gradients", pinned, sums->half_gradients,
	                      &pools->half_gradients, error));
	TC_TRY(tci_zero_arena(planner, TC_CPU, "fp32 gradients", pinned, sums->full_gradients,
	                      &pools->full_gradients, error));
	if (zero->largest_gradient_bytes > 0) {
		struct tc_class_size one = {.bytes = zero->largest_gradient_bytes, .count = 1};
		TC_TRY(tc_plan_classes(planner, TC_CPU, "pageable", false, &one, 1, false,
		                       &pools->pageable, error));
	}
	if (zero->settings.parameters_on_nvme) {
		TC_TRY(tci_zero_staging(zero, planner, error));
		TC_TRY(tc_plan_publish_pool(planner, error));
	}
	return zero->settings.state_on_nvme ? tci_zero_optimizer_staging(zero, planner, error)
	                                    : TC_OK;
}

static enum tc_status tci_zero_nvme_pools(struct tci_zero *zero, struct tc_planner *planner,
                                          const struct tci_zero_sums *sums, struct tc_error *error)
{
	struct tci_zero_pools *pools = &zero->pools;
	TC_TRY(tci_zero_arena(planner, TC_NVME, "nvme parameters", false, sums->nvme_parameters,
	                      &pools->nvme_parameters, error));
	TC_TRY(tci_zero_arena(planner, TC_NVME, "nvme optimizer state", false, sums->nvme_state,
	                      &pools->nvme_state, error));
	return tci_zero_arena(planner, TC_NVME, "nvme gradients", false, sums->nvme_gradients,
	                      &pools->nvme_gradients, error);
}

static enum tc_status tci_zero_parameter_pool(struct tci_zero *zero, struct tc_planner *planner,
                                              struct tc_error *error)
{
	uint64_t free_bytes = tc_plan_free_bytes(planner, TC_GPU);
	uint64_t alignment = tc_plan_aligned(planner, TC_GPU, 1);
	TC_TRY(tc_plan_arena(planner, TC_GPU, "parameters", false,
	                     free_bytes - free_bytes % alignment, &zero->pools.gpu, error));
	tc_plan_default_pool(planner, TC_GPU, zero->pools.gpu);
	return TC_OK;
}

/* ---------------------------------------------------------------- initial places */

static enum tc_status tci_zero_place(struct tc_planner *planner, uint32_t tensor, uint32_t pool,
                                     enum tc_tier home, struct tc_error *error)
{
	tc_plan_home(planner, tensor, home);
	return tc_plan_place(planner, tensor, pool, error);
}

static enum tc_status tci_zero_place_state(struct tci_zero *zero, struct tc_planner *planner,
                                           uint32_t tensor, struct tc_error *error)
{
	bool down = zero->settings.state_on_nvme && tci_zero_is_state(planner, tensor);
	return tci_zero_place(planner, tensor, down ? zero->pools.nvme_state : zero->pools.state,
	                      down ? TC_NVME : TC_CPU, error);
}

static enum tc_status tci_zero_place_all(struct tci_zero *zero, struct tc_planner *planner,
                                         struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	for (uint32_t t = 0; t < zero->tensor_count; t++) {
		const struct tci_zero_parameter *p = &zero->parameters[t];
		if (trace->tensors[t].kind == TC_OPTIMIZER_STATE)
			TC_TRY(tci_zero_place_state(zero, planner, t, error));
		if (trace->tensors[t].kind != TC_PARAM)
			continue;
		TC_TRY(tci_zero_place(
		    planner, t, p->on_nvme ? zero->pools.nvme_parameters : zero->pools.parameters,
		    p->on_nvme ? TC_NVME : TC_CPU, error));
		uint32_t master = tci_zero_derived_master(zero, planner, t);
		if (master != TC_NONE)
			TC_TRY(tci_zero_place_state(zero, planner, master, error));
		if (!p->persistent)
			continue;
		TC_TRY(tc_plan_place(planner, t, zero->pools.gpu, error));
		tc_plan_always_resident(planner, t);
	}
	return TC_OK;
}

enum tc_status tci_zero_settle(struct tci_zero *zero, struct tc_planner *planner,
                               struct tc_error *error)
{
	struct tci_zero_sums sums = {0};
	zero->pools = (struct tci_zero_pools){
	    .gpu = TC_NO_POOL,
	    .gradients = TC_NO_POOL,
	    .bucket = TC_NO_POOL,
	    .norm = TC_NO_POOL,
	    .parameters = TC_NO_POOL,
	    .state = TC_NO_POOL,
	    .half_gradients = TC_NO_POOL,
	    .pageable = TC_NO_POOL,
	    .full_gradients = TC_NO_POOL,
	    .staging = TC_NO_POOL,
	    .optimizer_staging = {TC_NO_POOL, TC_NO_POOL, TC_NO_POOL},
	    .nvme_parameters = TC_NO_POOL,
	    .nvme_state = TC_NO_POOL,
	    .nvme_gradients = TC_NO_POOL,
	};
	/* A trace without optimizer has neither state nor sub-groups to stage. */
	zero->settings.state_on_nvme = zero->settings.state_on_nvme && zero->group_count > 0;
	tci_zero_home_parameters(zero, planner);
	tci_zero_choose_persistent(zero, planner);
	TC_TRY(tci_zero_derive_gradients(zero, planner, error));
	TC_TRY(tci_zero_sum_all(zero, planner, &sums, error));
	TC_TRY(tci_zero_gradient_pools(zero, planner, error));
	TC_TRY(tci_zero_host_pools(zero, planner, &sums, error));
	TC_TRY(tci_zero_nvme_pools(zero, planner, &sums, error));
	TC_TRY(tci_zero_parameter_pool(zero, planner, error));
	return tci_zero_place_all(zero, planner, error);
}
