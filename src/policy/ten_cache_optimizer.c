/*
 * The optimizer step with FP32 state partly on NVMe (10cache-spec 2.5, 2.11). Units are the
 * optimizer events in their order; a prefix is homed in host memory. While units are updated, the
 * window of those in host memory slides over all of them and ends where it began.
 */
#include <stdlib.h>

#include "tencache/units.h"
#include "ten_cache.h"

#define TCI_STATES 3
static const enum tc_role tci_state_roles[TCI_STATES] = {TC_ROLE_MASTER, TC_ROLE_EXP_AVG,
                                                         TC_ROLE_EXP_AVG_SQ};

static uint32_t tci_state(const struct tc_planner *planner, uint32_t param, int index)
{
	return index == 0 ? tc_plan_master_of(planner, param)
	                  : tc_plan_state_of(planner, param, tci_state_roles[index]);
}

/** The parameters that the unit's ops write. */
static enum tc_status tci_unit_collect(struct tci_ten_cache *cache, struct tc_planner *planner,
                                       const struct tci_unit *unit, struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	for (uint32_t o = unit->first_op; o <= unit->last_op; o++)
		for (uint32_t i = 0; i < trace->ops[o].writes.count; i++) {
			uint32_t t = trace->ops[o].writes.items[i];
			if (trace->tensors[t].kind != TC_PARAM)
				continue;
			if (!tc_grow_array(&cache->unit_params, &cache->unit_param_capacity,
			                   cache->unit_param_count + 1, sizeof(uint32_t)))
				return tc_error_no_memory(error, "optimizer units",
				                          cache->unit_param_count);
			cache->unit_params[cache->unit_param_count++] = t;
		}
	return TC_OK;
}

enum tc_status tci_ten_cache_units(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	size_t capacity = 0;
	for (uint32_t op = 0; op < trace->op_count; op++) {
		uint32_t last = tc_plan_update_last(planner, op);
		if (last == TC_NONE)
			continue;
		if (!tc_grow_array(&cache->units, &capacity, cache->unit_count + 1u,
		                   sizeof *cache->units))
			return tc_error_no_memory(error, "optimizer units", cache->unit_count);
		struct tci_unit *unit = &cache->units[cache->unit_count++];
		*unit = (struct tci_unit){.first_op = op,
		                          .last_op = last,
		                          .event = trace->ops[op].event,
		                          .first_param = cache->unit_param_count};
		TC_TRY(tci_unit_collect(cache, planner, unit, error));
		unit->param_count = cache->unit_param_count - unit->first_param;
	}
	return TC_OK;
}

/** Call `visit` for the parameters that a unit writes, until it fails. */
static enum tc_status tci_unit_params(
    struct tci_ten_cache *cache, struct tc_planner *planner, uint32_t unit, struct tc_error *error,
    enum tc_status (*visit)(struct tci_ten_cache *cache, struct tc_planner *planner, uint32_t param,
                            void *data, struct tc_error *error),
    void *data)
{
	const struct tci_unit *u = &cache->units[unit];
	for (size_t i = 0; i < u->param_count; i++)
		TC_TRY(visit(cache, planner, cache->unit_params[u->first_param + i], data, error));
	return TC_OK;
}

/* ---------------------------------------------------------------- homes */

/** Buffers of 4 bytes per element set aside: by class, and at the end whether a unit fits. */
struct tci_reserved {
	uint64_t *buffers;
	bool fits;
	uint64_t give_back;
};

/** First class whose FP32 buffers serve a parameter: equal sizes share them. */
static size_t tci_fp32_class(const struct tci_ten_cache *cache, uint64_t elements)
{
	size_t i = 0;
	while (i < cache->class_count && cache->classes[i].elements != elements)
		i++;
	return i;
}

/** A slot is four buffers: master, gradient and two moments. */
static enum tc_status tci_unit_reserve(struct tci_ten_cache *cache, struct tc_planner *planner,
                                       uint32_t param, void *data, struct tc_error *error)
{
	struct tci_reserved *reserved = data;
	uint64_t elements = tc_plan_elements(planner, param);
	size_t class = tci_fp32_class(cache, elements);
	(void)error;
	if (class == cache->class_count) {
		reserved->fits = false; /* a parameter that no module asks for */
		return TC_OK;
	}
	reserved->buffers[class] += 4;
	if (tc_plan_class_free(planner, cache->fp32_pool, 4 * elements) < reserved->buffers[class])
		reserved->fits = false;
	return TC_OK;
}

/** The state has its places now: only the gradient's buffer stays reserved, or none. */
static enum tc_status tci_unit_unreserve(struct tci_ten_cache *cache, struct tc_planner *planner,
                                         uint32_t param, void *data, struct tc_error *error)
{
	struct tci_reserved *reserved = data;
	size_t class = tci_fp32_class(cache, tc_plan_elements(planner, param));
	(void)error;
	if (class < cache->class_count)
		reserved->buffers[class] -= reserved->give_back;
	return TC_OK;
}

static enum tc_status tci_settle_state(struct tci_ten_cache *cache, struct tc_planner *planner,
                                       uint32_t param, void *data, struct tc_error *error)
{
	bool on_nvme = *(bool *)data;
	for (int i = 0; i < TCI_STATES; i++) {
		uint32_t state = tci_state(planner, param, i);
		if (state == TC_NONE || tc_plan_has(planner, state, TC_CPU) ||
		    tc_plan_has(planner, state, TC_NVME))
			continue;
		if (on_nvme && !cache->has_nvme)
			return tc_error_set(
			    error, TC_INFEASIBLE,
			    "host memory has no FP32 slot for parameter \"%s\" and machine "
			    "%s has no NVMe; more --cpu-memory, f-fp32= or fp32-buffers= "
			    "would help",
			    tc_plan_trace(planner)->tensors[param].name,
			    tc_plan_machine(planner)->name);
		TC_TRY(tci_place_at_home(planner, state,
		                         on_nvme ? cache->nvme_pool : cache->fp32_pool,
		                         on_nvme ? TC_NVME : TC_CPU, error));
	}
	return TC_OK;
}

static enum tc_status tci_place_unit(struct tci_ten_cache *cache, struct tc_planner *planner,
                                     uint32_t unit, struct tci_reserved *reserved, bool *spilled,
                                     struct tc_error *error)
{
	reserved->fits = true;
	if (!*spilled) {
		TC_TRY(tci_unit_params(cache, planner, unit, error, tci_unit_reserve, reserved));
		*spilled = !reserved->fits;
		reserved->give_back = *spilled ? 4 : 3;
	} else {
		reserved->give_back = 0;
	}
	cache->units[unit].home_nvme = *spilled;
	if (!*spilled)
		cache->units_in_cpu = unit + 1;
	TC_TRY(tci_unit_params(cache, planner, unit, error, tci_settle_state, spilled));
	return reserved->give_back == 0
	           ? TC_OK
	           : tci_unit_params(cache, planner, unit, error, tci_unit_unreserve, reserved);
}

enum tc_status tci_ten_cache_place_fp32(struct tci_ten_cache *cache, struct tc_planner *planner,
                                        struct tc_error *error)
{
	struct tci_reserved reserved = {
	    .buffers = tc_alloc_array(cache->class_count + 1, sizeof *reserved.buffers)};
	uint64_t slots = 0, slack = tc_plan_number(planner, "slack-fp32"), limit;
	enum tc_status status = TC_OK;
	bool spilled = false;
	if (reserved.buffers == NULL)
		return tc_error_no_memory(error, "FP32 homes", cache->class_count);
	for (size_t i = 0; i < cache->class_count; i++)
		slots += cache->classes[i].fp32;
	limit = slots < cache->unit_count ? slots : cache->unit_count;
	limit = limit > slack ? limit - slack : 0;
	for (uint32_t unit = 0; unit < cache->unit_count && status == TC_OK; unit++) {
		spilled = spilled || unit >= limit;
		status = tci_place_unit(cache, planner, unit, &reserved, &spilled, error);
	}
	free(reserved.buffers);
	cache->row = cache->units_in_cpu;
	cache->streaming = cache->units_in_cpu < cache->unit_count;
	tc_plan_note(planner, "FP32 state: %u of %u units in host memory", cache->units_in_cpu,
	             cache->unit_count);
	return status;
}

bool tci_ten_cache_fp32_on_nvme(const struct tci_ten_cache *cache, const struct tc_planner *planner,
                                uint32_t param)
{
	uint32_t master = tc_plan_master_of(planner, param);
	(void)cache;
	return master != TC_NONE && !tc_plan_has(planner, master, TC_CPU) &&
	       tc_plan_copy(planner, master, TC_NVME).latest;
}

/* ---------------------------------------------------------------- the sliding window */

struct tci_swap {
	uint64_t last; /**< last read issued */
	bool fits, there;
};

/** Are state (and gradient, if it waits in a file) of a parameter in host memory, or could be? */
static enum tc_status tci_swap_check(struct tci_ten_cache *cache, struct tc_planner *planner,
                                     uint32_t param, void *data, struct tc_error *error)
{
	struct tci_swap *swap = data;
	uint64_t wanted = 0, size = 4 * tc_plan_elements(planner, param);
	(void)error;
	for (int i = 0; i < TCI_STATES; i++) {
		uint32_t state = tci_state(planner, param, i);
		wanted += state != TC_NONE && !tc_plan_has(planner, state, TC_CPU);
	}
	swap->there = swap->there && wanted == 0;
	/* A slot is four buffers: the gradient's comes with it. */
	if (wanted > 0 && tc_plan_class_free(planner, cache->fp32_pool, size) < 4)
		swap->fits = false;
	return TC_OK;
}

static enum tc_status tci_swap_move(struct tci_ten_cache *cache, struct tc_planner *planner,
                                    uint32_t tensor, bool in, struct tci_swap *swap,
                                    struct tc_error *error)
{
	struct tc_move_options options = TC_MOVE(TC_WHY_SWAP);
	bool moved;
	uint64_t id = TC_NO_COMMAND;
	if (tensor == TC_NONE || !tc_plan_has(planner, tensor, in ? TC_NVME : TC_CPU) ||
	    (in && tc_plan_has(planner, tensor, TC_CPU)))
		return TC_OK;
	options.keep_source = false;
	TC_TRY(tc_plan_move(planner, tensor, in ? cache->fp32_pool : cache->nvme_pool, TC_NO_POOL,
	                    options, &moved, &id, error));
	if (!moved)
		return tc_error_set(error, TC_INFEASIBLE,
		                    "no room to swap FP32 state of 10cache: %s",
		                    in ? "more fp32-buffers= or --cpu-memory would help"
		                       : "a larger --nvme-capacity would help");
	if (id == TC_NO_COMMAND)
		return TC_OK;
	swap->last = id;
	return in ? TC_OK : tc_plan_end_waits(planner, id, error);
}

static enum tc_status tci_swap_in(struct tci_ten_cache *cache, struct tc_planner *planner,
                                  uint32_t param, void *data, struct tc_error *error)
{
	for (int i = 0; i < TCI_STATES; i++)
		TC_TRY(
		    tci_swap_move(cache, planner, tci_state(planner, param, i), true, data, error));
	uint32_t gradient = tc_plan_gradient_of(planner, param);
	return gradient == TC_NONE ? TC_OK
	                           : tci_swap_move(cache, planner, cache->fp32_gradient[gradient],
	                                           true, data, error);
}

static enum tc_status tci_swap_out(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   uint32_t param, void *data, struct tc_error *error)
{
	for (int i = 0; i < TCI_STATES; i++)
		TC_TRY(tci_swap_move(cache, planner, tci_state(planner, param, i), false, data,
		                     error));
	return TC_OK;
}

/** Read a unit if all of its slots are free now. */
static enum tc_status tci_unit_try_in(struct tci_ten_cache *cache, struct tc_planner *planner,
                                      uint32_t unit, bool *there, struct tc_error *error)
{
	struct tci_swap swap = {.last = TC_NO_COMMAND, .fits = true, .there = true};
	TC_TRY(tci_unit_params(cache, planner, unit, error, tci_swap_check, &swap));
	*there = swap.there || swap.fits;
	if (swap.there || !swap.fits)
		return TC_OK;
	TC_TRY(tci_unit_params(cache, planner, unit, error, tci_swap_in, &swap));
	return cache->blocking_reads && swap.last != TC_NO_COMMAND
	           ? tc_plan_wait(planner, &swap.last, 1, error)
	           : TC_OK;
}

static enum tc_status tci_unit_out(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   uint32_t unit, struct tc_error *error)
{
	struct tci_swap swap = {.last = TC_NO_COMMAND};
	return tci_unit_params(cache, planner, unit, error, tci_swap_out, &swap);
}

/** After unit `done` was updated: its slots go to the next unit that is not in host memory. */
static enum tc_status tci_slide(struct tci_ten_cache *cache, struct tc_planner *planner,
                                uint32_t done, struct tc_error *error)
{
	if (cache->units_in_cpu == cache->unit_count)
		return TC_OK; /* nothing is on NVMe */
	if (cache->units[done].home_nvme)
		cache->streaming = true;
	if (!cache->streaming)
		return TC_OK;
	TC_TRY(tci_unit_out(cache, planner, done, error));
	/* A row of another class may have to wait until further units have given up their slots. */
	bool there;
	TC_TRY(tci_unit_try_in(cache, planner, cache->row, &there, error));
	if (there && ++cache->row == cache->unit_count) {
		cache->streaming = false;
		cache->row = 0;
	}
	return TC_OK;
}

/** Unit `unit` must be in host memory: if slots of its class are taken, updated units give way. */
static enum tc_status tci_unit_prepare(struct tci_ten_cache *cache, struct tc_planner *planner,
                                       uint32_t unit, struct tc_error *error)
{
	bool there;
	TC_TRY(tci_unit_try_in(cache, planner, unit, &there, error));
	for (uint32_t give = 0; !there && give < cache->unit_count; give++) {
		if (give == unit || (give > unit && give < cache->row))
			continue; /* still to be updated in this step */
		TC_TRY(tci_unit_out(cache, planner, give, error));
		TC_TRY(tci_unit_try_in(cache, planner, unit, &there, error));
	}
	return there ? TC_OK
	             : tc_error_set(error, TC_INFEASIBLE,
	                            "10cache has too few FP32 slots for optimizer unit %u; more "
	                            "--cpu-memory, f-fp32= or fp32-buffers= would help",
	                            unit);
}

/** The parameter's new value goes where it lies now; an old file of one that moved up is void. */
static enum tc_status tci_publish_param(struct tci_ten_cache *cache, struct tc_planner *planner,
                                        uint32_t param, void *data, struct tc_error *error)
{
	(void)data;
	(void)cache;
	bool above = tc_plan_has(planner, param, TC_GPU) || tc_plan_has(planner, param, TC_CPU);
	if (above && tc_plan_has(planner, param, TC_NVME))
		TC_TRY(tc_plan_drop(planner, param, TC_NVME, error));
	return tc_plan_publish(planner, param, error);
}

enum tc_status tci_ten_cache_update(struct tci_ten_cache *cache, struct tc_planner *planner,
                                    uint32_t event, uint32_t first_op, uint32_t last_op,
                                    struct tc_error *error)
{
	uint32_t unit = cache->next_unit++;
	(void)event;
	if (unit >= cache->unit_count || cache->units[unit].first_op != first_op)
		return tc_error_set(error, TC_INTERNAL, "optimizer unit %u is out of order", unit);
	TC_TRY(tci_unit_prepare(cache, planner, unit, error));
	TC_TRY(tc_plan_update(planner, first_op, last_op, NULL, error));
	TC_TRY(tci_unit_params(cache, planner, unit, error, tci_publish_param, NULL));
	return tci_slide(cache, planner, unit, error);
}

enum tc_status tci_ten_cache_end_fp32(struct tci_ten_cache *cache, struct tc_planner *planner,
                                      struct tc_error *error)
{
	/* Where classes differed, the window may have ended elsewhere: bring it home. */
	for (uint32_t unit = cache->units_in_cpu; unit < cache->unit_count; unit++)
		TC_TRY(tci_unit_out(cache, planner, unit, error));
	for (uint32_t unit = 0; unit < cache->units_in_cpu && cache->next_unit > 0; unit++) {
		bool there;
		TC_TRY(tci_unit_try_in(cache, planner, unit, &there, error));
		if (!there)
			return tc_error_set(error, TC_INTERNAL,
			                    "FP32 window of 10cache cannot return to unit %u",
			                    unit);
	}
	cache->row = cache->units_in_cpu;
	cache->streaming = cache->units_in_cpu < cache->unit_count;
	cache->next_unit = 0;
	return TC_OK;
}
