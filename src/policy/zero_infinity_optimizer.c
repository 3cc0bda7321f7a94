/*
 * The optimizer step, sub-group by sub-group and serially: read the state of the whole sub-group
 * from the drive, update each tensor, convert the parameters, write the state back. The host waits
 * after reads, conversions and writes, as DeepSpeed's optimizer swapper does, unless pipeline-read
 * starts the next sub-group's reads before this one's updates, or pipeline-write joins the writes
 * only before the next ones. With the state in host memory updates and conversions remain.
 */
#include "zero_infinity.h"

enum tc_status tci_zero_begin_step(struct tci_zero *zero, struct tc_planner *planner,
                                   struct tc_error *error)
{
	if (zero->stepping)
		return TC_OK;
	zero->stepping = true;
	TC_TRY(tci_zero_flush_leftovers(zero, planner, error));
	TC_TRY(tci_zero_forget_all(zero, planner, error));
	return tci_zero_scan(zero, planner, error);
}

static bool tci_zero_is_parameter(const struct tci_zero *zero, const struct tc_planner *planner,
                                  uint32_t tensor)
{
	return tensor < zero->tensor_count &&
	       tc_plan_trace(planner)->tensors[tensor].kind == TC_PARAM;
}

/* ---------------------------------------------------------------- reads */

/** Read one tensor into the staging memory; `*fits` false when that is full. */
static enum tc_status tci_zero_read_tensor(struct tci_zero *zero, struct tc_planner *planner,
                                           uint32_t tensor, uint32_t pool, bool *fits,
                                           struct tc_error *error)
{
	uint64_t id;
	if (tc_plan_copy(planner, tensor, TC_CPU).latest ||
	    !tc_plan_copy(planner, tensor, TC_NVME).latest)
		return TC_OK;
	TC_TRY(tc_plan_move(planner, tensor, pool, TC_NO_POOL, TC_MOVE(TC_WHY_SWAP), fits, &id,
	                    error));
	return *fits ? tci_zero_push_command(&zero->reads, id, error) : TC_OK;
}

/** Issue the reads of a sub-group, into the staging memory whose turn it is. */
static enum tc_status tci_zero_read_group(struct tci_zero *zero, struct tc_planner *planner,
                                          uint32_t index, struct tc_error *error)
{
	struct tci_zero_group *group = &zero->groups[index];
	const struct tci_zero_unit *first = &zero->units[group->first_unit];
	const struct tci_zero_unit *last = first + group->unit_count - 1;
	uint32_t end = last->first_tensor + last->tensor_count;
	bool fits = true;
	if (group->loaded || zero->stages == 0)
		return TC_OK;
	group->loaded = true;
	for (uint32_t i = first->first_tensor; i < end && fits; i++) {
		uint32_t t = zero->unit_tensors.items[i];
		if (tci_zero_is_parameter(zero, planner, t))
			t = zero->parameters[t].full_copy; /* its gradient */
		if (t != TC_NONE)
			TC_TRY(tci_zero_read_tensor(
			    zero, planner, t, zero->pools.optimizer_staging[index % zero->stages],
			    &fits, error));
	}
	return fits ? TC_OK
	            : tc_error_set(error, TC_INTERNAL,
	                           "zero-infinity: the state of sub-group %u does not fit the "
	                           "staging memory made for it; please report this",
	                           index);
}

static enum tc_status tci_zero_swap_in(struct tci_zero *zero, struct tc_planner *planner,
                                       uint32_t index, struct tc_error *error)
{
	TC_TRY(tci_zero_read_group(zero, planner, index, error));
	TC_TRY(tc_plan_wait(planner, zero->reads.items, zero->reads.count, error));
	zero->reads.count = 0;
	return zero->settings.pipeline_read && index + 1 < zero->group_count
	           ? tci_zero_read_group(zero, planner, index + 1, error)
	           : TC_OK;
}

/* ---------------------------------------------------------------- after the updates */

/** Convert a parameter from its master and, if its home is the drive, write it there. */
static enum tc_status tci_zero_publish_one(struct tci_zero *zero, struct tc_planner *planner,
                                           uint32_t parameter, struct tc_error *error)
{
	const struct tci_zero_parameter *p = &zero->parameters[parameter];
	struct tc_convert_options options = {.queue = TC_QUEUE_CPU, .why = TC_WHY_HOME};
	bool done;
	if (!p->persistent || p->on_nvme) {
		TC_TRY(tc_plan_publish(planner, parameter, error));
	} else {
		/* Persistent: all are fetched together at the end of the step. */
		TC_TRY(tc_plan_convert(planner, tc_plan_master_of(planner, parameter), parameter,
		                       zero->pools.parameters, options, &done, NULL, error));
	}
	enum tc_tier home = p->on_nvme ? TC_NVME : TC_CPU;
	return tci_zero_push_command(&zero->published,
	                             tc_plan_copy(planner, parameter, home).written_by, error);
}

/** Updated state goes back to the drive and out of the staging memory. */
static enum tc_status tci_zero_write_tensor(struct tci_zero *zero, struct tc_planner *planner,
                                            uint32_t tensor, struct tc_error *error)
{
	struct tc_move_options options = TC_MOVE(TC_WHY_SWAP);
	bool moved;
	uint64_t id;
	if (!tc_plan_has(planner, tensor, TC_NVME))
		return TC_OK; /* a step count, or state in host memory */
	options.keep_source = false;
	TC_TRY(tc_plan_move(planner, tensor, zero->pools.nvme_state, TC_NO_POOL, options, &moved,
	                    &id, error));
	TC_TRY(tci_zero_push_command(&zero->writes, id, error));
	return tc_plan_end_waits(planner, id, error);
}

static enum tc_status tci_zero_wait_for(struct tc_planner *planner, struct tci_zero_commands *list,
                                        struct tc_error *error)
{
	TC_TRY(tc_plan_wait(planner, list->items, list->count, error));
	list->count = 0;
	return TC_OK;
}

static enum tc_status tci_zero_swap_out(struct tci_zero *zero, struct tc_planner *planner,
                                        const struct tci_zero_group *group, struct tc_error *error)
{
	const struct tci_zero_unit *first = &zero->units[group->first_unit];
	const struct tci_zero_unit *last = first + group->unit_count - 1;
	uint32_t end = last->first_tensor + last->tensor_count;
	for (uint32_t i = first->first_tensor; i < end; i++)
		if (tci_zero_is_parameter(zero, planner, zero->unit_tensors.items[i]))
			TC_TRY(tci_zero_publish_one(zero, planner, zero->unit_tensors.items[i],
			                            error));
	/* Updates and conversions run in the calling thread, FP16 writes are joined. */
	TC_TRY(tci_zero_wait_for(planner, &zero->published, error));
	TC_TRY(tci_zero_wait_for(planner, &zero->writes, error));
	for (uint32_t i = first->first_tensor; i < end; i++)
		if (!tci_zero_is_parameter(zero, planner, zero->unit_tensors.items[i]))
			TC_TRY(tci_zero_write_tensor(zero, planner, zero->unit_tensors.items[i],
			                             error));
	return zero->settings.pipeline_write ? TC_OK
	                                     : tci_zero_wait_for(planner, &zero->writes, error);
}

static enum tc_status tci_zero_publish_persistent(struct tci_zero *zero, struct tc_planner *planner,
                                                  struct tc_error *error)
{
	for (uint32_t t = 0; t < zero->tensor_count; t++) {
		bool moved;
		uint64_t id;
		if (!zero->parameters[t].persistent || tc_plan_copy(planner, t, TC_GPU).latest)
			continue;
		TC_TRY(tc_plan_move(planner, t, zero->pools.gpu, TC_NO_POOL, TC_MOVE(TC_WHY_HOME),
		                    &moved, &id, error));
		TC_TRY(tc_plan_end_waits(planner, id, error));
	}
	return TC_OK;
}

enum tc_status tci_zero_update(struct tci_zero *zero, struct tc_planner *planner, uint32_t first_op,
                               uint32_t last_op, struct tc_error *error)
{
	TC_TRY(tci_zero_begin_step(zero, planner, error));
	if (zero->next_unit >= zero->unit_count ||
	    zero->units[zero->next_unit].first_op != first_op)
		return tc_error_set(error, TC_INTERNAL,
		                    "zero-infinity: optimizer op %u comes out of order; please "
		                    "report this",
		                    first_op);
	const struct tci_zero_unit *unit = &zero->units[zero->next_unit];
	const struct tci_zero_group *group = &zero->groups[unit->group];
	if (zero->next_unit == group->first_unit)
		TC_TRY(tci_zero_swap_in(zero, planner, unit->group, error));
	TC_TRY(tc_plan_update(planner, first_op, last_op, NULL, error));
	zero->next_unit++;
	if (zero->next_unit == group->first_unit + group->unit_count)
		TC_TRY(tci_zero_swap_out(zero, planner, group, error));
	return zero->next_unit == zero->unit_count
	           ? tci_zero_publish_persistent(zero, planner, error)
	           : TC_OK;
}
