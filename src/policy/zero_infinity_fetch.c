/*
 * The parameter coordinator. A module's access fetches what is missing as one batch, waits for what
 * it needs, and only then prefetches along the recorded queue: the link is idle while the host
 * waits, which is ZeRO-3's weak spot. A release gives back what does not come again soon.
 *
 * The numbers of accesses stand for DeepSpeed's step ids: the access being made has number k,
 * releases see the number of accesses made.
 */
#include <string.h>

#include "zero_infinity.h"

void tci_zero_start_iteration(struct tci_zero *zero)
{
	zero->head = 0;
	zero->accesses_made = 0;
	zero->batch_count = 0;
	zero->stepping = false;
	zero->next_unit = 0;
	for (uint32_t t = 0; t < zero->tensor_count; t++) {
		zero->parameters[t].fetched_for = 0;
		zero->parameters[t].open = 0;
		zero->parameters[t].next_use = zero->use_first[t];
	}
	for (size_t g = 0; g < zero->group_count; g++)
		zero->groups[g].loaded = false;
}

/** DeepSpeed records the order in the first iteration, without prefetching. */
static bool tci_zero_has_recorded(const struct tc_planner *planner)
{
	return tc_plan_iteration(planner) > 0;
}

static bool tci_zero_on_gpu(const struct tc_planner *planner, uint32_t parameter)
{
	return tc_plan_copy(planner, parameter, TC_GPU).latest;
}

/* ---------------------------------------------------------------- fetch */

/** Bring the collected batch to the GPU. A demand that finds no room is left to the planner. */
static enum tc_status tci_zero_fetch_batch(struct tci_zero *zero, struct tc_planner *planner,
                                           enum tc_why why, struct tc_error *error)
{
	if (zero->batch.count == 0)
		return TC_OK;
	TC_TRY(tci_zero_ensure_staged(zero, planner, error));
	uint32_t batch = zero->batch_count;
	for (size_t i = 0; i < zero->batch.count; i++) {
		uint32_t t = zero->batch.items[i];
		struct tci_zero_parameter *parameter = &zero->parameters[t];
		bool moved;
		uint64_t id;
		TC_TRY(tc_plan_move(planner, t, zero->pools.gpu, TC_NO_POOL, TC_MOVE(why), &moved,
		                    &id, error));
		if (!moved)
			continue;
		zero->last_fetch = id;
		zero->live += parameter->elements;
		parameter->counted = true;
		zero->in_flight += parameter->elements;
		parameter->in_flight = true;
		parameter->batch = batch;
	}
	zero->batch_complete[batch] = false;
	zero->batch_count++;
	return TC_OK;
}

static void tci_zero_landed(struct tci_zero *zero, struct tci_zero_parameter *parameter)
{
	if (!parameter->in_flight)
		return;
	parameter->in_flight = false;
	zero->in_flight -= parameter->elements;
}

/**
 * Waiting for any member completes its batch. The wait is a synchronisation of the copy stream, so
 * it lasts until the latest fetch has ended, whichever batch that belongs to.
 */
static enum tc_status tci_zero_wait(struct tci_zero *zero, struct tc_planner *planner,
                                    const struct tci_zero_access *access, struct tc_error *error)
{
	bool incomplete = false;
	for (uint32_t i = access->first; i < access->first + access->count; i++) {
		struct tci_zero_parameter *parameter = &zero->parameters[zero->queue[i].parameter];
		if (!parameter->in_flight)
			continue;
		incomplete = incomplete || !zero->batch_complete[parameter->batch];
		zero->batch_complete[parameter->batch] = true;
		tci_zero_landed(zero, parameter);
	}
	return incomplete ? tc_plan_wait(planner, &zero->last_fetch, 1, error) : TC_OK;
}

/* ---------------------------------------------------------------- prefetch */

static void tci_zero_saw(struct tci_zero *zero, const struct tci_zero_entry *entry)
{
	struct tci_zero_parameter *parameter = &zero->parameters[entry->parameter];
	if (parameter->fetched_for < entry->access + 1)
		parameter->fetched_for = entry->access + 1;
}

static bool tci_zero_in_batch(const struct tci_zero *zero, uint32_t parameter)
{
	for (size_t i = 0; i < zero->batch.count; i++)
		if (zero->batch.items[i] == parameter)
			return true;
	return false;
}

/** May overshoot the limit by one tensor, as DeepSpeed's loop does. */
static enum tc_status tci_zero_collect_prefetch(struct tci_zero *zero, struct tc_planner *planner,
                                                struct tc_error *error)
{
	uint64_t room =
	    zero->live < zero->settings.max_live ? zero->settings.max_live - zero->live : 0;
	uint64_t limit =
	    room < zero->settings.prefetch_bucket ? room : zero->settings.prefetch_bucket;
	uint64_t elements = 0, bytes = 0;
	zero->batch.count = 0;
	while (zero->head < zero->queue_count && elements < limit) {
		const struct tci_zero_entry *entry = &zero->queue[zero->head];
		uint32_t t = entry->parameter;
		bool missing = !tci_zero_on_gpu(planner, t) && !tci_zero_in_batch(zero, t);
		if (missing && tci_zero_only_on_nvme(zero, planner, t))
			break; /* keeps the order: reads from the drive are started elsewhere */
		uint64_t more = tc_plan_aligned(planner, TC_GPU, tc_plan_tensor(planner, t).bytes);
		if (missing && !tc_plan_pool_fits(planner, zero->pools.gpu, bytes + more)) {
			tc_plan_count_delayed(planner);
			break;
		}
		tci_zero_saw(zero, entry);
		zero->head++;
		if (!missing)
			continue;
		TC_TRY(tci_zero_push(&zero->batch, t, error));
		elements += zero->parameters[t].elements;
		bytes += more;
	}
	return TC_OK;
}

static enum tc_status tci_zero_prefetch(struct tci_zero *zero, struct tc_planner *planner,
                                        uint32_t access, struct tc_error *error)
{
	while (zero->head < zero->queue_count && zero->queue[zero->head].access <= access)
		tci_zero_saw(zero, &zero->queue[zero->head++]);
	if (zero->settings.prefetch_bucket == 0)
		return TC_OK;
	TC_TRY(tci_zero_collect_prefetch(zero, planner, error));
	TC_TRY(tci_zero_fetch_batch(zero, planner, TC_WHY_PREFETCH, error));
	return zero->settings.parameters_on_nvme ? tci_zero_prefetch_staged(zero, planner, error)
	                                         : TC_OK;
}

enum tc_status tci_zero_access(struct tci_zero *zero, struct tc_planner *planner, uint32_t access,
                               struct tc_error *error)
{
	const struct tci_zero_access *a = &zero->accesses[access];
	zero->batch.count = 0;
	for (uint32_t i = a->first; i < a->first + a->count; i++) {
		uint32_t t = zero->queue[i].parameter;
		zero->parameters[t].open++;
		if (!tci_zero_on_gpu(planner, t) && !tci_zero_in_batch(zero, t))
			TC_TRY(tci_zero_push(&zero->batch, t, error));
	}
	TC_TRY(tci_zero_fetch_batch(zero, planner, TC_WHY_DEMAND, error));
	TC_TRY(tci_zero_wait(zero, planner, a, error));
	if (tci_zero_has_recorded(planner))
		TC_TRY(tci_zero_prefetch(zero, planner, access, error));
	zero->accesses_made = access + 1;
	return TC_OK;
}

/* ---------------------------------------------------------------- release */

/** Is the parameter used again before `max-reuse-distance` elements have been accessed? */
static bool tci_zero_reused_soon(struct tci_zero *zero, uint32_t t)
{
	struct tci_zero_parameter *parameter = &zero->parameters[t];
	uint32_t made = zero->accesses_made, end = zero->use_first[t + 1];
	while (parameter->next_use < end && zero->uses[parameter->next_use] < made)
		parameter->next_use++;
	if (parameter->next_use == end || made >= zero->access_count)
		return false;
	uint64_t distance = zero->accesses[zero->uses[parameter->next_use]].elements_before -
	                    zero->accesses[made].elements_before;
	return distance < zero->settings.max_reuse_distance;
}

enum tc_status tci_zero_forget(struct tci_zero *zero, struct tc_planner *planner,
                               uint32_t parameter, struct tc_error *error)
{
	struct tci_zero_parameter *p = &zero->parameters[parameter];
	TC_TRY(tc_plan_drop(planner, parameter, TC_GPU, error));
	/* What the planner fetched on its own, for a read without request, was never counted. */
	zero->live -= p->counted ? p->elements : 0;
	p->counted = false;
	tci_zero_landed(zero, p);
	return p->on_nvme ? tc_plan_drop(planner, parameter, TC_CPU, error) : TC_OK;
}

enum tc_status tci_zero_release(struct tci_zero *zero, struct tc_planner *planner, uint32_t access,
                                struct tc_error *error)
{
	const struct tci_zero_access *a = &zero->accesses[access];
	bool recorded = tci_zero_has_recorded(planner);
	for (uint32_t i = a->first; i < a->first + a->count; i++) {
		uint32_t t = zero->queue[i].parameter;
		struct tci_zero_parameter *parameter = &zero->parameters[t];
		if (parameter->open > 0)
			parameter->open--;
		if (parameter->open > 0 || parameter->persistent)
			continue;
		/* The prefetcher has passed a later use by: it would never be fetched again. */
		if (recorded && parameter->fetched_for > zero->accesses_made + 1)
			continue;
		if (recorded && tci_zero_reused_soon(zero, t))
			continue;
		TC_TRY(tci_zero_forget(zero, planner, t, error));
	}
	return TC_OK;
}

enum tc_status tci_zero_forget_all(struct tci_zero *zero, struct tc_planner *planner,
                                   struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	for (uint32_t t = 0; t < zero->tensor_count; t++)
		if (trace->tensors[t].kind == TC_PARAM && !zero->parameters[t].persistent)
			TC_TRY(tci_zero_forget(zero, planner, t, error));
	return TC_OK;
}

enum tc_status tci_zero_forget_farthest(struct tci_zero *zero, struct tc_planner *planner,
                                        bool staged_only, uint32_t spare, bool *made,
                                        struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	uint32_t victim = TC_NONE;
	uint64_t farthest = 0;
	*made = false;
	for (uint32_t t = 0; t < zero->tensor_count; t++) {
		const struct tci_zero_parameter *parameter = &zero->parameters[t];
		if (trace->tensors[t].kind != TC_PARAM || parameter->persistent || t == spare ||
		    parameter->open > 0 || tc_plan_is_pinned(planner, t))
			continue;
		bool holds = staged_only ? parameter->on_nvme && tc_plan_has(planner, t, TC_CPU)
		                         : tc_plan_has(planner, t, TC_GPU);
		uint64_t next = holds ? tc_plan_next_use(planner, t) : 0;
		if (holds && (victim == TC_NONE || next > farthest)) {
			victim = t;
			farthest = next;
		}
	}
	if (victim == TC_NONE)
		return TC_OK;
	*made = true;
	return tci_zero_forget(zero, planner, victim, error);
}
