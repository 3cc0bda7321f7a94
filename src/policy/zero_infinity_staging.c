/*
 * Parameters whose home is the drive. They pass through pinned buffers of one size, one tensor a
 * buffer, taken when the read is issued and given back when the tensor leaves the GPU. Reading
 * ahead starts with what the prefetch queue holds next and is limited by the elements in flight to
 * the GPU and by the free buffers.
 */
#include "zero_infinity.h"

#include "tencache/units.h"

bool tci_zero_only_on_nvme(const struct tci_zero *zero, const struct tc_planner *planner,
                           uint32_t parameter)
{
	return zero->parameters[parameter].on_nvme && !tc_plan_has(planner, parameter, TC_CPU);
}

static uint64_t tci_zero_free_buffers(const struct tci_zero *zero, const struct tc_planner *planner)
{
	/* The pool has one class, which serves every size up to its own. */
	return tc_plan_class_free(planner, zero->pools.staging, 1);
}

static enum tc_status tci_zero_no_buffer(const struct tci_zero *zero,
                                         const struct tc_planner *planner, uint32_t parameter,
                                         struct tc_error *error)
{
	uint64_t held = 0;
	for (uint32_t t = 0; t < zero->tensor_count; t++)
		held +=
		    zero->parameters[t].on_nvme && (zero->parameters[t].open > 0 || t == parameter);
	char where[200];
	tc_step_describe(tc_plan_steps(planner), tc_plan_step(planner), where, sizeof where);
	return tc_error_set(
	    error, TC_INFEASIBLE,
	    "%s reads parameter \"%s\" from NVMe, but all %llu staging buffers hold "
	    "tensors that the same step needs; zero-infinity:buffer-count=%llu works "
	    "there",
	    where, tc_plan_trace(planner)->tensors[parameter].name,
	    (unsigned long long)zero->settings.buffer_count, (unsigned long long)held);
}

enum tc_status tci_zero_free_a_buffer(struct tci_zero *zero, struct tc_planner *planner,
                                      uint32_t parameter, struct tc_error *error)
{
	bool made;
	TC_TRY(tci_zero_forget_farthest(zero, planner, true, parameter, &made, error));
	if (!made)
		return tci_zero_no_buffer(zero, planner, parameter, error);
	zero->early_releases++;
	return TC_OK;
}

static enum tc_status tci_zero_read_ahead(struct tci_zero *zero, struct tc_planner *planner,
                                          uint32_t parameter, enum tc_why why,
                                          struct tc_error *error)
{
	bool moved;
	uint64_t id;
	TC_TRY(tc_plan_move(planner, parameter, zero->pools.staging, TC_NO_POOL, TC_MOVE(why),
	                    &moved, &id, error));
	if (!moved)
		return tci_zero_no_buffer(zero, planner, parameter, error);
	zero->parameters[parameter].loading = true;
	TC_TRY(tci_zero_push(&zero->loading, parameter, error));
	return tci_zero_push_command(&zero->loads, id, error);
}

static enum tc_status tci_zero_wait_for_reads(struct tci_zero *zero, struct tc_planner *planner,
                                              struct tc_error *error)
{
	TC_TRY(tc_plan_wait(planner, zero->loads.items, zero->loads.count, error));
	for (size_t i = 0; i < zero->loading.count; i++)
		zero->parameters[zero->loading.items[i]].loading = false;
	zero->loading.count = 0;
	zero->loads.count = 0;
	return TC_OK;
}

enum tc_status tci_zero_ensure_staged(struct tci_zero *zero, struct tc_planner *planner,
                                      struct tc_error *error)
{
	bool unread = false;
	for (size_t i = 0; i < zero->batch.count; i++) {
		uint32_t t = zero->batch.items[i];
		if (tci_zero_only_on_nvme(zero, planner, t)) {
			if (tci_zero_free_buffers(zero, planner) == 0)
				TC_TRY(tci_zero_free_a_buffer(zero, planner, t, error));
			TC_TRY(tci_zero_read_ahead(zero, planner, t, TC_WHY_DEMAND, error));
		}
		unread = unread || zero->parameters[t].loading;
	}
	return unread ? tci_zero_wait_for_reads(zero, planner, error) : TC_OK;
}

enum tc_status tci_zero_prefetch_staged(struct tci_zero *zero, struct tc_planner *planner,
                                        struct tc_error *error)
{
	if (zero->pools.staging == TC_NO_POOL)
		return TC_OK; /* small as the model is, all of it stays in host memory */
	uint64_t available = tci_zero_free_buffers(zero, planner);
	uint64_t considered = 0, started = 0, limit = zero->in_flight;
	limit = limit > UINT64_MAX / 2 ? UINT64_MAX : 2 * limit;
	for (size_t i = zero->head; i < zero->queue_count; i++) {
		uint32_t t = zero->queue[i].parameter;
		if (considered > limit || started >= available)
			break;
		if (tci_zero_only_on_nvme(zero, planner, t) && !tc_plan_has(planner, t, TC_GPU)) {
			TC_TRY(tci_zero_read_ahead(zero, planner, t, TC_WHY_STAGE, error));
			started++;
		}
		considered += zero->parameters[t].elements;
	}
	return TC_OK;
}
