#include "demand.h"

#include "tencache/units.h"

static enum tc_status tci_demand_fits(struct tc_planner *planner, uint64_t pool_bytes,
                                      struct tc_error *error)
{
	uint32_t step;
	uint64_t need = tc_plan_largest_need(planner, &step);
	char where[200], a[TC_UNIT_TEXT_BYTES], b[TC_UNIT_TEXT_BYTES], c[TC_UNIT_TEXT_BYTES];
	if (need <= pool_bytes)
		return TC_OK;
	tc_step_describe(tc_plan_steps(planner), step, where, sizeof where);
	tc_format_bytes_both(need, a);
	tc_format_bytes_both(pool_bytes, b);
	tc_format_bytes_both(tc_plan_unmanaged_bytes(planner), c);
	return tc_error_set(
	    error, TC_INFEASIBLE,
	    "%s needs %s on the GPU at once, but the cache has %s; activations and "
	    "other unmanaged tensors take %s; the smallest --gpu-memory that works is "
	    "%llu bytes more, or use a smaller batch, or activation checkpointing",
	    where, a, b, c, (unsigned long long)(need - pool_bytes));
}

static unsigned tci_demand_kinds(const struct tc_planner *planner)
{
	unsigned kinds = 1u << TC_PARAM | 1u << TC_GRAD | 1u << TC_OPTIMIZER_STATE;
	return tc_plan_number(planner, "activations") != 0 ? kinds | 1u << TC_ACTIVATION : kinds;
}

/** A parameter without a master in the trace has a derived one after the trace's tensors. */
static enum tc_status tci_demand_settle_masters(struct tc_planner *planner, uint32_t pool,
                                                enum tc_tier home, struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		if (trace->tensors[t].kind != TC_PARAM)
			continue;
		uint32_t master = tc_plan_master_of(planner, t);
		if (master != TC_NONE && master >= trace->tensor_count)
			TC_TRY(tci_place_at_home(planner, master, pool, home, error));
	}
	return TC_OK;
}

/**
 * What lives in host memory must fit there before anything moves: said here in one sum, since a
 * reader can do little with the one tensor that came last.
 */
static enum tc_status tci_demand_homes_fit(struct tc_planner *planner, bool state_on_nvme,
                                           struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	unsigned kinds = tci_demand_kinds(planner);
	uint64_t sum = 0, left = tc_plan_free_bytes(planner, TC_CPU);
	bool gradients = false; /* persistent ones */
	char need[TC_UNIT_TEXT_BYTES], have[TC_UNIT_TEXT_BYTES];
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		const struct tc_tensor *tensor = &trace->tensors[t];
		uint32_t master =
		    tensor->kind == TC_PARAM ? tc_plan_master_of(planner, t) : TC_NONE;
		if (!tensor->persistent || ((kinds >> tensor->kind) & 1u) == 0 ||
		    (state_on_nvme && tensor->kind == TC_OPTIMIZER_STATE))
			continue;
		gradients = gradients || tensor->kind == TC_GRAD;
		sum += tc_plan_aligned(planner, TC_CPU, tensor->bytes);
		if (!state_on_nvme && master != TC_NONE && master >= trace->tensor_count)
			sum +=
			    tc_plan_aligned(planner, TC_CPU, tc_plan_tensor(planner, master).bytes);
	}
	if (sum <= left)
		return TC_OK;
	tc_format_bytes_both(sum, need);
	tc_format_bytes_both(left, have);
	return tc_error_set(
	    error, TC_INFEASIBLE,
	    "parameters%s%s take %s of host memory, but only %s is left of machine "
	    "%s; a larger --cpu-memory%s would help",
	    gradients ? ", persistent gradients" : "", state_on_nvme ? "" : " and optimizer state",
	    need, have, tc_plan_machine(planner)->name,
	    state_on_nvme ? "" : " or state=nvme, which keeps the state on drives,");
}

static enum tc_status tci_demand_settle(struct tc_planner *planner, uint32_t host, uint32_t nvme,
                                        struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	unsigned kinds = tci_demand_kinds(planner);
	bool on_nvme = nvme != TC_NO_POOL;
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		const struct tc_tensor *tensor = &trace->tensors[t];
		if (!tensor->persistent || ((kinds >> tensor->kind) & 1u) == 0)
			continue;
		bool down = on_nvme && tensor->kind == TC_OPTIMIZER_STATE;
		TC_TRY(tci_place_at_home(planner, t, down ? nvme : host, down ? TC_NVME : TC_CPU,
		                         error));
	}
	return tci_demand_settle_masters(planner, on_nvme ? nvme : host, on_nvme ? TC_NVME : TC_CPU,
	                                 error);
}

/**
 * Host memory that the policy can ever hold at once: a place for every managed tensor, and for the
 * FP32 form of every gradient, plus an eighth because best fit may leave holes. Pinning costs time,
 * so no more than that.
 */
static uint64_t tci_demand_host_bytes(struct tc_planner *planner)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	unsigned kinds = tci_demand_kinds(planner);
	uint64_t sum = 0, left = tc_plan_free_bytes(planner, TC_CPU);
	for (uint32_t t = 0; t < trace->tensor_count && sum < left; t++) {
		struct tc_plan_tensor_view view = tc_plan_tensor(planner, t);
		if (((kinds >> view.kind) & 1u) == 0)
			continue;
		sum += tc_plan_aligned(planner, TC_CPU, view.bytes);
		if (view.kind == TC_GRAD)
			sum += tc_plan_aligned(planner, TC_CPU, 4 * view.elements);
		if (view.kind == TC_PARAM &&
		    tc_plan_state_of(planner, t, TC_ROLE_MASTER) == TC_NONE)
			sum += tc_plan_aligned(planner, TC_CPU, view.bytes);
	}
	sum += sum / 8;
	return sum < left ? sum : left;
}

enum tc_status tci_demand_begin(struct tc_planner *planner, uint32_t *cache_pool,
                                struct tc_error *error)
{
	uint32_t host, nvme = TC_NO_POOL;
	tc_plan_optimizer_on_cpu(planner, tci_value_is(planner, "optimizer", "cpu"));
	tc_plan_use_barrier(planner, tci_value_barrier(planner));
	TC_TRY(tc_plan_manage(planner, tci_demand_kinds(planner), error));
	uint64_t bytes = tc_plan_free_bytes(planner, TC_GPU);
	TC_TRY(tci_demand_fits(planner, bytes, error));
	TC_TRY(tci_demand_homes_fit(planner, tci_value_is(planner, "state", "nvme"), error));
	TC_TRY(tc_plan_arena(planner, TC_GPU, "cache", false, bytes, cache_pool, error));
	TC_TRY(tc_plan_arena(planner, TC_CPU, "host", true, tci_demand_host_bytes(planner), &host,
	                     error));
	if (tci_value_is(planner, "state", "nvme"))
		TC_TRY(tc_plan_arena(planner, TC_NVME, "nvme", false,
		                     tc_plan_free_bytes(planner, TC_NVME), &nvme, error));
	tc_plan_default_pool(planner, TC_GPU, *cache_pool);
	tc_plan_default_pool(planner, TC_CPU, host);
	tc_plan_staging_pool(planner, host);
	return tci_demand_settle(planner, host, nvme, error);
}

void tci_demand_visit(struct tc_planner *planner, uint32_t step,
                      void (*visit)(void *self, struct tc_planner *planner, uint32_t tensor),
                      void *self)
{
	const struct tc_step *s = &tc_plan_steps(planner)->steps[step];
	const struct tc_ids lists[] = {s->requested, s->unpacks, s->reads, s->writes};
	/* What an update on the CPU reads and writes is no use of the copy on the GPU. */
	if (s->phase == TC_OPTIMIZER && tci_value_is(planner, "optimizer", "cpu"))
		return;
	for (size_t list = 0; list < sizeof lists / sizeof *lists; list++)
		for (uint32_t i = 0; i < lists[list].count; i++)
			if (tc_plan_has(planner, lists[list].items[i], TC_GPU))
				visit(self, planner, lists[list].items[i]);
}
