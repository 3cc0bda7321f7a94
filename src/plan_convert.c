/*
 * Work on copies that is not a move: conversions between data types, scans, optimizer updates on
 * the CPU, and bringing an updated parameter to where it is used.
 */
#include <stdlib.h>

#include "plan.h"

/** Adam in FP32 reads parameter, gradient and two moments and writes three of them: 7 x 4 bytes
 * per parameter (users-and-policies: CPU Adam rate = DRAM bandwidth / 28 bytes). */
#define TCI_UPDATE_BYTES_PER_PARAMETER 28u

static struct tc_bind tci_bind_slot(const struct tc_planner *planner, uint32_t tensor,
                                    uint32_t slot, enum tc_access access)
{
	const struct tci_slot *s = &planner->slots[slot];
	return (struct tc_bind){.tensor = tensor,
	                        .pool = s->pool,
	                        .offset = s->offset,
	                        .bytes = planner->tensors[tensor].bytes,
	                        .version = s->version,
	                        .access = access};
}

static enum tc_status tci_no_copy(const struct tc_planner *planner, uint32_t tensor,
                                  enum tc_tier tier, const char *verb, struct tc_error *error)
{
	return tc_error_set(
	    error, TC_INTERNAL,
	    "policy %s wants to %s tensor \"%s\", but %s holds no copy of its latest "
	    "version",
	    planner->choice->text, verb, planner->table[tensor].name, tc_tier_name(tier));
}

enum tc_status tc_plan_convert(struct tc_planner *planner, uint32_t source, uint32_t target,
                               uint32_t pool, struct tc_convert_options options, bool *done,
                               uint64_t *command, struct tc_error *error)
{
	enum tc_tier tier = options.queue == TC_QUEUE_COMPUTE ? TC_GPU : TC_CPU;
	uint32_t from = tci_latest_slot(planner, source, tier);
	if (from == TCI_NO_SLOT)
		return tci_no_copy(planner, source, tier, "convert", error);
	uint32_t to = planner->tensors[target].slots[tier];
	*done = true;
	if (to == TCI_NO_SLOT)
		TC_TRY(tci_slot_take_or_make_room(planner, pool, target, &to, error));
	if (to == TCI_NO_SLOT) {
		*done = false;
		return TC_OK;
	}
	planner->slots[to].version = tci_latest(planner, target);
	struct tc_command convert = tci_command(TC_CONVERT, options.queue, options.why);
	struct tc_bind binds[] = {tci_bind_slot(planner, source, from, TC_READ),
	                          tci_bind_slot(planner, target, to, TC_WRITE)};
	convert.tensor = target;
	convert.version = planner->slots[to].version;
	convert.traffic_bytes = options.traffic_bytes != 0 ? options.traffic_bytes
	                                                   : planner->tensors[source].bytes +
	                                                         planner->tensors[target].bytes;
	convert.binds = binds;
	convert.bind_count = 2;
	struct tci_use uses[] = {TCI_USE(from, TC_READ), TCI_USE(to, TC_WRITE)};
	return tci_emit(planner, &convert, uses, 2, NULL, 0, command, error);
}

enum tc_status tc_plan_scan(struct tc_planner *planner, uint32_t tensor, uint64_t traffic_bytes,
                            uint64_t *command, struct tc_error *error)
{
	uint32_t slot = tci_latest_slot(planner, tensor, TC_CPU);
	if (slot == TCI_NO_SLOT)
		return tci_no_copy(planner, tensor, TC_CPU, "scan", error);
	struct tc_command scan = tci_command(TC_CONVERT, TC_QUEUE_CPU, TC_WHY_SCAN);
	struct tc_bind bind = tci_bind_slot(planner, tensor, slot, TC_READ);
	scan.tensor = tensor;
	scan.version = planner->slots[slot].version;
	scan.traffic_bytes = traffic_bytes;
	scan.binds = &bind;
	scan.bind_count = 1;
	struct tci_use use = TCI_USE(slot, TC_READ);
	return tci_emit(planner, &scan, &use, 1, NULL, 0, command, error);
}

/* ---------------------------------------------------------------- update */

/** What one update collects while its ops are walked. */
struct tci_update {
	struct tc_planner *planner;
	size_t count;
	uint64_t elements;
	struct tc_error *error;
};

static size_t tci_update_find(const struct tci_update *update, uint32_t tensor)
{
	for (size_t i = 0; i < update->count; i++)
		if (update->planner->binds[i].tensor == tensor)
			return i;
	return update->count;
}

static enum tc_status tci_update_add(struct tci_update *update, uint32_t tensor,
                                     enum tc_access access)
{
	struct tc_planner *planner = update->planner;
	size_t at = tci_update_find(update, tensor);
	if (at < update->count) {
		if (access != planner->binds[at].access)
			planner->binds[at].access = planner->uses[at].access = TC_READ_WRITE;
		return TC_OK;
	}
	uint32_t slot = tci_latest_slot(planner, tensor, TC_CPU);
	if (slot == TCI_NO_SLOT)
		return tci_no_copy(planner, tensor, TC_CPU, "update with", update->error);
	if (!tc_grow_array(&planner->binds, &planner->bind_capacity, at + 1,
	                   sizeof *planner->binds) ||
	    !tc_grow_array(&planner->uses, &planner->use_capacity, at + 1, sizeof *planner->uses) ||
	    !tc_grow_array(&planner->served, &planner->served_capacity, at + 1,
	                   sizeof *planner->served))
		return tc_error_no_memory(update->error, "update", at);
	planner->binds[at] = tci_bind_slot(planner, tensor, slot, access);
	planner->uses[at] = TCI_USE(slot, access);
	struct tci_tensor *t = &planner->tensors[tensor];
	bool moved = t->fetched_since_request || planner->tensors[tensor].kind == TC_GRAD;
	planner->served[at] =
	    (struct tc_served){.tensor = tensor,
	                       .outcome = moved ? TC_COVERED : TC_RESIDENT,
	                       .is_request = true,
	                       .served_by = tci_slot_writer(&planner->slots[slot])};
	t->fetched_since_request = false;
	update->count++;
	return TC_OK;
}

/** The CPU copy that stands for a gradient: a derived tensor of the latest version, or itself. */
static uint32_t tci_update_gradient(const struct tc_planner *planner, uint32_t gradient)
{
	for (uint32_t d = planner->tensors[gradient].first_derived; d != TC_NONE;
	     d = planner->tensors[d].next_derived)
		if (tci_latest_slot(planner, d, TC_CPU) != TCI_NO_SLOT)
			return d;
	return gradient;
}

static enum tc_status tci_update_touch(struct tci_update *update, uint32_t tensor,
                                       enum tc_access access)
{
	struct tc_planner *planner = update->planner;
	switch (planner->tensors[tensor].kind) {
	case TC_GRAD:
		/* Fused kernels may also write the gradient (loss scaling); nobody reads it again.
		 */
		return access == TC_WRITE
		           ? TC_OK
		           : tci_update_add(update, tci_update_gradient(planner, tensor), TC_READ);
	case TC_OPTIMIZER_STATE:
		return tci_update_add(update, tensor, access);
	case TC_PARAM:
		if (access == TC_WRITE)
			update->elements += planner->tensors[tensor].elements;
		return planner->relations[tensor].derived_master == TC_NONE
		           ? TC_OK
		           : tci_update_add(update, planner->relations[tensor].derived_master,
		                            access);
	default:
		return TC_OK; /* scalars and scratch of the trace's kernel: part of the update */
	}
}

static enum tc_status tci_update_collect(struct tci_update *update, uint32_t first_op,
                                         uint32_t last_op)
{
	const struct tc_trace *trace = update->planner->trace;
	for (uint32_t o = first_op; o <= last_op; o++) {
		for (uint32_t i = 0; i < trace->ops[o].reads.count; i++)
			TC_TRY(tci_update_touch(update, trace->ops[o].reads.items[i], TC_READ));
		for (uint32_t i = 0; i < trace->ops[o].writes.count; i++)
			TC_TRY(tci_update_touch(update, trace->ops[o].writes.items[i], TC_WRITE));
	}
	return TC_OK;
}

/** Every write of the trace is a new version; state copies in the update's slots carry it. */
static void tci_update_versions(struct tci_update *update, uint32_t first_op, uint32_t last_op)
{
	struct tc_planner *planner = update->planner;
	for (uint32_t o = first_op; o <= last_op; o++) {
		struct tc_ids writes = planner->trace->ops[o].writes;
		for (uint32_t i = 0; i < writes.count; i++)
			if (planner->tensors[writes.items[i]].kind != TC_GRAD)
				planner->tensors[writes.items[i]].latest++;
	}
	for (size_t i = 0; i < update->count; i++) {
		struct tc_bind *bind = &planner->binds[i];
		if (bind->access == TC_READ)
			continue;
		uint64_t version = tci_latest(planner, bind->tensor);
		planner->slots[planner->uses[i].slot].version = version;
		/* A bind that also reads names what it reads. */
		if (bind->access == TC_WRITE)
			bind->version = version;
	}
}

static enum tc_status tci_discard_derived(struct tc_planner *planner, uint32_t gradient,
                                          struct tc_error *error)
{
	for (uint32_t d = planner->tensors[gradient].first_derived; d != TC_NONE;
	     d = planner->tensors[d].next_derived)
		TC_TRY(tc_plan_discard(planner, d, error));
	return TC_OK;
}

/** What the update consumed: gradients that die with it, and other forms of persistent ones. */
static enum tc_status tci_update_discard_gradients(struct tc_planner *planner, uint32_t first_op,
                                                   uint32_t last_op, struct tc_error *error)
{
	for (uint32_t o = first_op; o <= last_op; o++) {
		struct tc_ids frees = planner->trace->ops[o].frees;
		struct tc_ids reads = planner->trace->ops[o].reads;
		for (uint32_t i = 0; i < frees.count; i++) {
			if (planner->tensors[frees.items[i]].kind != TC_GRAD)
				continue;
			TC_TRY(tc_plan_discard(planner, frees.items[i], error));
			TC_TRY(tci_discard_derived(planner, frees.items[i], error));
		}
		for (uint32_t i = 0; i < reads.count; i++)
			if (planner->tensors[reads.items[i]].kind == TC_GRAD &&
			    planner->trace->tensors[reads.items[i]].persistent)
				TC_TRY(tci_discard_derived(planner, reads.items[i], error));
	}
	return TC_OK;
}

enum tc_status tc_plan_update(struct tc_planner *planner, uint32_t first_op, uint32_t last_op,
                              uint64_t *command, struct tc_error *error)
{
	struct tci_update update = {.planner = planner, .error = error};
	TC_TRY(tci_update_collect(&update, first_op, last_op));
	tci_update_versions(&update, first_op, last_op);
	struct tc_dependency barrier[TC_MAX_LANES];
	size_t barriers = 0;
	for (uint32_t lane = 0; planner->barrier && lane < planner->lane_count; lane++)
		if (planner->barrier_last.last[lane] != 0)
			barrier[barriers++] = (struct tc_dependency){
			    planner->barrier_last.last[lane] - 1, TC_REASON_BARRIER};
	struct tc_command c = tci_command(TC_UPDATE, TC_QUEUE_CPU, TC_WHY_NONE);
	c.first_op = first_op;
	c.last_op = last_op;
	c.elements = update.elements;
	c.traffic_bytes = update.elements * TCI_UPDATE_BYTES_PER_PARAMETER;
	c.binds = planner->binds;
	c.bind_count = (uint32_t)update.count;
	c.served = planner->served;
	c.served_count = (uint32_t)update.count;
	uint64_t id;
	TC_TRY(tci_emit(planner, &c, planner->uses, update.count, barrier, barriers, &id, error));
	tci_note_lane(planner, &planner->end_last, id);
	if (command != NULL)
		*command = id;
	return tci_update_discard_gradients(planner, first_op, last_op, error);
}

/* ---------------------------------------------------------------- publish */

static enum tc_status tci_publish_convert(struct tc_planner *planner, uint32_t param,
                                          struct tc_error *error)
{
	uint32_t master = tc_plan_master_of(planner, param);
	struct tc_convert_options options = {.queue = TC_QUEUE_CPU, .why = TC_WHY_HOME};
	uint64_t id;
	bool done;
	if (master == TC_NONE)
		return tc_error_set(error, TC_INTERNAL, "parameter \"%s\" has no master to convert",
		                    planner->table[param].name);
	TC_TRY(tc_plan_convert(planner, master, param, planner->publish_pool, options, &done, &id,
	                       error));
	if (!done)
		return tc_error_set(error, TC_INTERNAL, "no publish slot for parameter \"%s\"",
		                    planner->table[param].name);
	tci_note_lane(planner, &planner->end_last, id);
	return TC_OK;
}

enum tc_status tc_plan_publish(struct tc_planner *planner, uint32_t param, struct tc_error *error)
{
	struct tci_tensor *t = &planner->tensors[param];
	bool in_cpu = t->slots[TC_CPU] != TCI_NO_SLOT;
	if (!in_cpu && planner->publish_pool == TC_NO_POOL)
		return tc_error_set(error, TC_INTERNAL,
		                    "policy %s publishes \"%s\" without a publish pool",
		                    planner->choice->text, planner->table[param].name);
	TC_TRY(tci_publish_convert(planner, param, error));
	for (int tier = 0; tier < TCI_TIERS; tier++) {
		if (tier == TC_CPU || t->slots[tier] == TCI_NO_SLOT)
			continue;
		uint32_t pool = planner->slots[t->slots[tier]].pool;
		bool moved;
		uint64_t id;
		TC_TRY(tc_plan_move(planner, param, pool, TC_NO_POOL, TC_MOVE(TC_WHY_HOME), &moved,
		                    &id, error));
		tci_note_lane(planner, &planner->end_last, id);
	}
	return in_cpu ? TC_OK : tci_slot_put(planner, param, TC_CPU, error);
}
