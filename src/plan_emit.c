/*
 * Commands, their dependencies and the clocks that keep the dependencies few.
 *
 * A clock holds, for each lane, the last command (id + 1) known to have ended before. A command's
 * own clock is the maximum over the host program at issue, its lane's previous command and its
 * dependencies; a dependency that the clock covers already is left out. Of one lane only the
 * latest command needs naming, since a lane runs in order.
 *
 * Clocks are kept for the last TCI_CLOCKS commands. An older command that is still named keeps
 * its dependency, only what lies before it is forgotten: that costs a redundant dependency at
 * most, never a missing one.
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

#define TCI_CLOCKS 8192u

enum tc_status tci_emit_create(struct tc_planner *planner, struct tc_error *error)
{
	planner->lane_count = tc_lane_total(planner->machine->lanes);
	if (planner->lane_count == 0 || planner->lane_count > TC_MAX_LANES)
		return tc_error_set(error, TC_ARGUMENT,
		                    "machine %s has %u lanes in all; expected 1 to %d",
		                    planner->machine->name, planner->lane_count, TC_MAX_LANES);
	planner->clock_width = tci_release_width(planner->lane_count);
	planner->clocks =
	    tc_alloc_array((size_t)TCI_CLOCKS * planner->clock_width, sizeof *planner->clocks);
	planner->clock_lane = tc_alloc_array(TCI_CLOCKS, sizeof *planner->clock_lane);
	planner->step_command =
	    tc_alloc_array((size_t)planner->steps->step_count + 1, sizeof *planner->step_command);
	if (planner->clocks == NULL || planner->clock_lane == NULL || planner->step_command == NULL)
		return tc_error_no_memory(error, "planner clocks",
		                          (uint64_t)TCI_CLOCKS * planner->clock_width *
		                              sizeof *planner->clocks);
	for (unsigned queue = 0; queue < TC_QUEUE_COUNT; queue++)
		planner->first_lane[queue] =
		    tc_lane_index(planner->machine->lanes, (enum tc_queue)queue, 0);
	planner->last_compute = TC_NO_COMMAND;
	return TC_OK;
}

void tci_emit_free(struct tc_planner *planner)
{
	free(planner->clocks);
	free(planner->clock_lane);
	free(planner->step_command);
	free(planner->changes);
	free(planner->binds);
	free(planner->served);
	free(planner->uses);
}

struct tc_command tci_command(enum tc_command_kind kind, enum tc_queue queue, enum tc_why why)
{
	return (struct tc_command){
	    .kind = kind,
	    .queue = queue,
	    .why = why,
	    .tensor = TC_NONE,
	    .src = {.pool = TC_NO_POOL},
	    .dst = {.pool = TC_NO_POOL},
	    .first_op = TC_NONE,
	    .last_op = TC_NONE,
	    .first_chunk = true,
	    .last_chunk = true,
	    .launches = queue == TC_QUEUE_HOST ? 0 : 1,
	};
}

static bool tci_clock_known(const struct tc_planner *planner, uint64_t id)
{
	return planner->next_id - id <= TCI_CLOCKS;
}

/** An id plus one, as clocks hold it: tci_emit() has seen to it that it fits. */
static uint32_t tci_mark(uint64_t id)
{
	return (uint32_t)(id + 1);
}

void tci_note_lane(struct tc_planner *planner, struct tci_release *latest, uint64_t id)
{
	if (id == TC_NO_COMMAND || !tci_clock_known(planner, id))
		return; /* so old that the host has waited for it, or it never ran */
	uint32_t lane = planner->clock_lane[id % TCI_CLOCKS];
	if (latest->last[lane] < tci_mark(id))
		latest->last[lane] = tci_mark(id);
}

enum tc_status tci_memory_change(struct tc_planner *planner, enum tc_tier tier,
                                 enum tc_tensor_kind kind, int64_t bytes, uint64_t after,
                                 struct tc_error *error)
{
	if (bytes == 0)
		return TC_OK;
	if (!tc_grow_array(&planner->changes, &planner->change_capacity, planner->change_count + 1,
	                   sizeof *planner->changes))
		return tc_error_no_memory(error, "memory changes", planner->change_count);
	planner->changes[planner->change_count++] =
	    (struct tc_memory_change){.tier = tier, .kind = kind, .bytes = bytes, .after = after};
	return TC_OK;
}

/** Latest command per lane that the new one must follow, with the reason. */
struct tci_wanted {
	uint32_t lanes;              /**< bit per lane: the entries below count */
	uint32_t last[TC_MAX_LANES]; /**< id + 1 */
	enum tc_reason reason[TC_MAX_LANES];
};

static void tci_want(struct tci_wanted *wanted, uint32_t lane, uint32_t last, enum tc_reason reason)
{
	uint32_t bit = UINT32_C(1) << lane;
	if ((wanted->lanes & bit) != 0 && last <= wanted->last[lane])
		return;
	wanted->lanes |= bit;
	wanted->last[lane] = last;
	wanted->reason[lane] = reason;
}

static void tci_want_id(struct tc_planner *planner, struct tci_wanted *wanted, uint64_t id,
                        enum tc_reason reason, const struct tci_slot *slot)
{
	if (id == TC_NO_COMMAND)
		return;
	if (tci_clock_known(planner, id)) {
		tci_want(wanted, planner->clock_lane[id % TCI_CLOCKS], tci_mark(id), reason);
		return;
	}
	/* Its lane is forgotten, but the slot that it wrote remembers which lane touched it. */
	for (uint32_t lane = 0; slot != NULL && lane < planner->lane_count; lane++)
		if (slot->touched.last[lane] >= tci_mark(id))
			tci_want(wanted, lane, slot->touched.last[lane], reason);
}

/** `clock`: what is known without them, and so need not be wanted for a slot. */
static void tci_want_uses(struct tc_planner *planner, struct tci_wanted *wanted,
                          const struct tci_release *clock, const struct tci_use *uses,
                          size_t use_count)
{
	for (size_t i = 0; i < use_count; i++) {
		const struct tci_slot *slot = &planner->slots[uses[i].slot];
		if (uses[i].access != TC_WRITE)
			tci_want_id(planner, wanted, tci_slot_writer(slot), TC_REASON_DATA, slot);
		if (uses[i].access == TC_READ)
			continue;
		for (uint32_t lane = 0; lane < planner->lane_count; lane++)
			if (slot->touched.last[lane] > clock->last[lane])
				tci_want(wanted, lane, slot->touched.last[lane], TC_REASON_SLOT);
	}
}

static void tci_clock_merge(uint32_t *target, const uint32_t *source, uint32_t width)
{
	if (width == TCI_FEW_LANES)
		for (uint32_t lane = 0; lane < TCI_FEW_LANES; lane++)
			target[lane] = target[lane] < source[lane] ? source[lane] : target[lane];
	else
		for (uint32_t lane = 0; lane < TC_MAX_LANES; lane++)
			target[lane] = target[lane] < source[lane] ? source[lane] : target[lane];
}

/** Keep of the wanted commands those that `clock` does not cover, latest first, and merge them. */
static uint32_t tci_choose(struct tc_planner *planner, struct tci_wanted *wanted,
                           struct tci_release *clock, struct tc_dependency *deps)
{
	uint32_t count = 0;
	for (;;) {
		uint32_t best = TC_MAX_LANES, latest = 0;
		for (uint32_t rest = wanted->lanes; rest != 0; rest &= rest - 1) {
			uint32_t lane = (uint32_t)__builtin_ctz(rest);
			uint32_t last = wanted->last[lane];
			if (last <= clock->last[lane]) {
				wanted->lanes &= ~(UINT32_C(1) << lane); /* covered for good */
			} else if (last > latest) {
				best = lane;
				latest = last;
			}
		}
		if (best == TC_MAX_LANES)
			return count;
		uint64_t id = (uint64_t)latest - 1;
		deps[count++] = (struct tc_dependency){.id = id, .reason = wanted->reason[best]};
		wanted->lanes &= ~(UINT32_C(1) << best);
		clock->last[best] = latest;
		if (tci_clock_known(planner, id))
			tci_clock_merge(clock->last,
			                planner->clocks + (id % TCI_CLOCKS) * planner->clock_width,
			                planner->clock_width);
	}
}

static enum tc_status tci_apply_uses(struct tc_planner *planner, const struct tci_use *uses,
                                     size_t use_count, uint32_t lane, uint64_t id,
                                     struct tc_error *error)
{
	for (size_t i = 0; i < use_count; i++) {
		struct tci_slot *slot = &planner->slots[uses[i].slot];
		slot->touched.last[lane] = tci_mark(id);
		if (uses[i].access != TC_READ)
			slot->writer = tci_mark(id);
		if (!slot->counted)
			TC_TRY(tci_slot_count(planner, uses[i].slot, error));
	}
	return TC_OK;
}

void tci_slot_touch(struct tc_planner *planner, uint32_t slot, uint64_t id, bool writes)
{
	uint32_t lane = planner->clock_lane[id % TCI_CLOCKS];
	planner->slots[slot].touched.last[lane] = tci_mark(id);
	if (writes)
		planner->slots[slot].writer = tci_mark(id);
}

static enum tc_status tci_push(struct tc_planner *planner, struct tc_command *command,
                               struct tc_error *error)
{
	/* "When this command ends" was written before its id was known. */
	for (size_t i = 0; i < planner->change_count; i++)
		if (planner->changes[i].after == TCI_AFTER_THIS)
			planner->changes[i].after = command->id;
	command->memory = planner->changes;
	command->memory_count = (uint32_t)planner->change_count;
	planner->change_count = 0;
	command->hooks = planner->hooks;
	planner->hooks = 0;
	if (planner->record != NULL)
		TC_TRY(planner->recorder.command(planner->recorder.self, command, error));
	const struct tc_sink *sink = planner->options->sink;
	return sink->command == NULL ? TC_OK : sink->command(sink->self, command, error);
}

/** Keep what the command's clock has become. */
static void tci_note_clock(struct tc_planner *planner, const struct tci_release *clock,
                           uint32_t lane, uint64_t id, bool host)
{
	uint32_t *kept = planner->clocks + (id % TCI_CLOCKS) * planner->clock_width;
	tci_release_copy(kept, clock->last, planner->clock_width);
	planner->clock_lane[id % TCI_CLOCKS] = (uint8_t)lane;
	planner->lane_clock[lane] = *clock;
	if (host)
		planner->host_clock = *clock;
}

static enum tc_status tci_too_many(const struct tc_planner *planner, struct tc_error *error)
{
	return tc_error_set(error, TC_TOO_LARGE,
	                    "the plan has more than %llu commands, and is in iteration %u of %u; "
	                    "ask for fewer iterations",
	                    (unsigned long long)TCI_MAX_COMMANDS, planner->iteration,
	                    planner->options->iterations);
}

enum tc_status tci_emit(struct tc_planner *planner, struct tc_command *command,
                        const struct tci_use *uses, size_t use_count,
                        const struct tc_dependency *extra, size_t extra_count, uint64_t *id,
                        struct tc_error *error)
{
	if (planner->next_id >= TCI_MAX_COMMANDS)
		return tci_too_many(planner, error);
	uint32_t lane = planner->first_lane[command->queue] + command->lane;
	struct tci_release clock = planner->host_clock;
	tci_clock_merge(clock.last, planner->lane_clock[lane].last, planner->clock_width);

	struct tci_wanted wanted;
	wanted.lanes = 0;
	for (size_t i = 0; i < extra_count; i++)
		tci_want_id(planner, &wanted, extra[i].id, extra[i].reason, NULL);
	tci_want_uses(planner, &wanted, &clock, uses, use_count);
	struct tc_dependency deps[TC_MAX_LANES];
	command->dep_count = tci_choose(planner, &wanted, &clock, deps);
	command->deps = deps;

	command->id = planner->next_id++;
	command->iteration = planner->declaring ? TC_ITERATION_INIT : planner->iteration;
	command->step = planner->declaring ? 0 : tci_recorded_step(planner, planner->step);
	command->phase = planner->phase;
	clock.last[lane] = tci_mark(command->id);
	tci_note_clock(planner, &clock, lane, command->id, command->queue == TC_QUEUE_HOST);
	TC_TRY(tci_apply_uses(planner, uses, use_count, lane, command->id, error));
	if (command->queue == TC_QUEUE_COMPUTE)
		planner->last_compute = command->id;
	if (id != NULL)
		*id = command->id;
	return tci_push(planner, command, error);
}
