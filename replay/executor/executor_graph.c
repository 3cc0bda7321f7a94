/** @file executor_graph.c
 * The schedule turned around: for each command who waits for it, for each lane what comes next, and
 * for each content that a command leaves its version.
 */
#include <stdlib.h>

#include "executor.h"

uint32_t tci_root(const struct tc_plan_info *info, uint32_t tensor)
{
	while (info->tensors[tensor].derived_from != TC_NONE)
		tensor = info->tensors[tensor].derived_from; /* smaller each time */
	return tensor;
}

/* ---------------------------------------------------------------- who waits for whom */

static enum tc_status count_dependants(struct tc_replay *replay, struct tc_error *error)
{
	const struct tc_schedule *schedule = replay->schedule;
	uint64_t total = 0;
	for (uint64_t c = 0; c < replay->count; c++) {
		const struct tc_command *command = &schedule->commands[c];
		for (uint32_t d = 0; d < command->dep_count; d++)
			replay->first_dependant[command->deps[d].id + 1]++;
		total += command->dep_count;
	}
	for (uint64_t c = 0; c < replay->count; c++)
		replay->first_dependant[c + 1] += replay->first_dependant[c];
	replay->dependants = tc_alloc_array((size_t)total + 1, sizeof *replay->dependants);
	return replay->dependants != NULL ? TC_OK
	                                  : tc_error_no_memory(error, "dependencies", total);
}

static enum tc_status link_dependants(struct tc_replay *replay, struct tc_error *error)
{
	uint64_t *used = tc_alloc_array((size_t)replay->count + 1, sizeof *used);
	if (used == NULL)
		return tc_error_no_memory(error, "dependencies", replay->count);
	for (uint64_t c = 0; c < replay->count; c++) {
		const struct tc_command *command = &replay->schedule->commands[c];
		for (uint32_t d = 0; d < command->dep_count; d++) {
			uint64_t on = command->deps[d].id;
			replay->dependants[replay->first_dependant[on] + used[on]++] = c;
		}
		atomic_init(&replay->states[c].remaining, command->dep_count + 1);
	}
	free(used);
	return TC_OK;
}

/* ---------------------------------------------------------------- lanes */

static void link_lanes(struct tc_replay *replay)
{
	uint64_t last[TC_MAX_LANES];
	for (uint32_t lane = 0; lane < replay->lane_count; lane++) {
		replay->lanes[lane].next = TC_NO_COMMAND;
		last[lane] = TC_NO_COMMAND;
	}
	for (unsigned queue = 0; queue < TC_QUEUE_COUNT; queue++)
		for (uint32_t lane = 0; lane < replay->info->lanes[queue]; lane++)
			replay->lanes[tc_lane_index(replay->info->lanes, queue, lane)].queue =
			    (enum tc_queue)queue;
	for (uint64_t c = 0; c < replay->count; c++) {
		const struct tc_command *command = &replay->schedule->commands[c];
		struct tci_progress *state = &replay->states[c];
		state->next_in_lane = TC_NO_COMMAND;
		if (command->queue == TC_QUEUE_HOST)
			continue;
		state->lane = tc_lane_index(replay->info->lanes, command->queue, command->lane);
		if (last[state->lane] == TC_NO_COMMAND)
			replay->lanes[state->lane].next = c;
		else
			replay->states[last[state->lane]].next_in_lane = c;
		last[state->lane] = c;
	}
}

/* ---------------------------------------------------------------- versions */

static uint64_t op_writes(const struct tc_replay *replay, const struct tc_command *command,
                          uint32_t tensor)
{
	const struct tc_trace *trace = replay->info->trace;
	uint32_t root = tci_root(replay->info, tensor);
	uint64_t writes = 0;
	for (uint32_t op = command->first_op; op <= command->last_op && op != TC_NONE; op++) {
		struct tc_ids written = trace->ops[op].writes;
		bool found = false;
		for (uint32_t w = 0; w < written.count && !found; w++)
			found = written.items[w] == root;
		writes += found;
	}
	return writes;
}

/**
 * With a trace the ops tell. Without one a written bind is left with the version in which the
 * tensor is next named, since a schedule names the version of everything it touches.
 */
static enum tc_status find_versions(struct tc_replay *replay, struct tc_error *error)
{
	uint64_t *named = tc_alloc_array((size_t)replay->info->tensor_count + 1, sizeof *named);
	if (named == NULL)
		return tc_error_no_memory(error, "versions", replay->info->tensor_count);
	for (uint32_t t = 0; t < replay->info->tensor_count; t++)
		named[t] = UINT64_MAX;
	for (uint32_t p = 0; p < replay->schedule->end.place_count; p++)
		named[replay->schedule->end.places[p].tensor] =
		    replay->schedule->end.places[p].version;
	for (uint64_t c = replay->count; c-- > 0;) {
		const struct tc_command *command = &replay->schedule->commands[c];
		uint64_t *after = replay->after + replay->first_after[c];
		for (uint32_t b = 0; b < command->bind_count; b++) {
			const struct tc_bind *bind = &command->binds[b];
			if (bind->tensor == TC_NONE)
				continue;
			bool entry = command->kind == TC_COMPUTE || bind->access == TC_READ_WRITE;
			after[b] = bind->version;
			if (entry && bind->access != TC_READ && replay->info->trace != NULL)
				after[b] += op_writes(replay, command, bind->tensor);
			else if (entry && bind->access != TC_READ)
				after[b] = named[bind->tensor] != UINT64_MAX ? named[bind->tensor]
				                                             : bind->version + 1;
		}
		for (uint32_t b = 0; b < command->bind_count; b++)
			if (command->binds[b].tensor != TC_NONE)
				named[command->binds[b].tensor] = command->binds[b].version;
		if (command->tensor != TC_NONE)
			named[command->tensor] = command->version;
	}
	free(named);
	return TC_OK;
}

enum tc_status tci_graph_build(struct tc_replay *replay, struct tc_error *error)
{
	size_t count = (size_t)replay->count;
	uint64_t binds = 0;
	replay->lane_count = tc_lane_total(replay->info->lanes);
	replay->states = tc_alloc_array(count + 1, sizeof *replay->states);
	replay->first_dependant = tc_alloc_array(count + 2, sizeof *replay->first_dependant);
	replay->first_after = tc_alloc_array(count + 1, sizeof *replay->first_after);
	if (replay->states == NULL || replay->first_dependant == NULL ||
	    replay->first_after == NULL)
		return tc_error_no_memory(error, "commands", count * sizeof *replay->states);
	for (uint64_t c = 0; c < replay->count; c++) {
		replay->first_after[c] = binds;
		binds += replay->schedule->commands[c].bind_count;
	}
	replay->after = tc_alloc_array((size_t)binds + 1, sizeof *replay->after);
	if (replay->after == NULL)
		return tc_error_no_memory(error, "versions", binds * sizeof *replay->after);
	TC_TRY(count_dependants(replay, error));
	TC_TRY(link_dependants(replay, error));
	link_lanes(replay);
	return find_versions(replay, error);
}

void tci_graph_clear(struct tc_replay *replay)
{
	free(replay->states);
	free(replay->first_dependant);
	free(replay->dependants);
	free(replay->first_after);
	free(replay->after);
}
