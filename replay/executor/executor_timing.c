/** @file executor_timing.c
 * Measured times, handed on in order of end, with the stalls of the compute lane by cause.
 *
 * Causes come from the engine's own walk (sim/engine/stall.c, rules in sim/engine/README.md) over
 * the measured times. Two things differ. The lone duration of a command is the machine's where
 * there is one, else what was measured. And nothing starts exactly when something else ends: what
 * binds a command is the last to end of its dependencies and its lane's predecessor, or its issue
 * where that is later; the executor's own time in between counts with what it follows. What no
 * command explains is the issuing thread's: `host_call`.
 */
#include <stdlib.h>

#include "core.h"
#include "executor.h"

struct times {
	struct tc_replay *replay;
	struct tc_engine engine; /**< only its blocks are used */
	struct tci_node *nodes;
	uint64_t *order;
	bool *ready;
	uint32_t ready_capacity;
};

static uint64_t divided(const struct tc_replay *replay, uint64_t ps)
{
	return ps / replay->dilate;
}

/** Time with the machine to itself. */
static uint64_t alone(const struct tc_replay *replay, const struct tc_command *command,
                      const struct tci_node *node)
{
	const struct tc_machine *machine = replay->machine;
	uint64_t measured = node->end_ps - node->start_ps;
	if (machine == NULL)
		return measured;
	switch (command->queue) {
	case TC_QUEUE_H2D:
	case TC_QUEUE_D2H:
	case TC_QUEUE_NVME_READ:
	case TC_QUEUE_NVME_WRITE:
		return tc_machine_transfer_ps(machine, command->queue, command->bytes,
		                              command->pageable);
	case TC_QUEUE_CPU:
		return tc_machine_cpu_ps(machine, command->elements, command->traffic_bytes);
	default:
		return measured;
	}
}

/** The last to end of what a command waited for; ties as in the engine. */
static void bind_to(struct times *times, struct tci_node *node, const struct tci_node *previous)
{
	const struct tc_command *command = &node->command;
	for (uint32_t d = 0; d < command->dep_count; d++) {
		const struct tci_node *other = &times->nodes[command->deps[d].id];
		tci_note_end(node, other, command->deps[d].reason);
		bool wish = command->deps[d].reason == TC_REASON_ORDER ||
		            command->deps[d].reason == TC_REASON_ANCHOR;
		if (wish && other->end_ps > node->wanted_ps)
			node->wanted_ps = other->end_ps;
	}
	if (previous != NULL && (node->bound == NULL || previous->end_ps > node->bound_end_ps)) {
		node->bound = previous;
		node->bound_id = previous->command.id;
		node->bound_end_ps = previous->end_ps;
		node->bound_reason = TCI_BOUND_LANE;
		node->bound_queue = previous->queue;
	}
	if (node->bound == NULL || node->bound_end_ps < node->issue_ps) {
		node->bound = NULL;
		node->bound_reason = TCI_BOUND_ISSUE;
	}
}

/** A host command that blocked the issuing thread. */
static enum tc_status add_block(struct times *times, const struct tci_node *node,
                                struct tc_error *error)
{
	struct tc_engine *engine = &times->engine;
	if (node->start_ps == node->issue_ps || node->bound == NULL)
		return TC_OK;
	if (engine->block_count == engine->block_capacity) {
		size_t wider = engine->block_capacity == 0 ? 16 : engine->block_capacity * 2;
		struct tci_block *blocks = realloc(engine->blocks, wider * sizeof *blocks);
		if (blocks == NULL)
			return tc_error_no_memory(error, "host waits", wider * sizeof *blocks);
		engine->blocks = blocks;
		engine->block_capacity = wider;
	}
	engine->blocks[engine->block_count++] = (struct tci_block){
	    .begin_ps = node->issue_ps, .end_ps = node->bound_end_ps, .cause = node->bound};
	return TC_OK;
}

static enum tc_status build_nodes(struct times *times, struct tc_error *error)
{
	struct tc_replay *replay = times->replay;
	const struct tci_node *last[TC_MAX_LANES] = {NULL};
	for (uint64_t c = 0; c < replay->count; c++) {
		const struct tc_command *command = &replay->schedule->commands[c];
		const struct tci_progress *state = &replay->states[c];
		struct tci_node *node = &times->nodes[c];
		bool host = command->queue == TC_QUEUE_HOST;
		const struct tci_node *previous = host ? NULL : last[state->lane];
		node->command = *command;
		node->command.binds = NULL;
		node->command.bind_count = 0;
		node->queue = (uint8_t)command->queue;
		node->issue_ps = divided(replay, state->issue_ps);
		node->start_ps = divided(replay, state->start_ps);
		node->end_ps = divided(replay, state->end_ps);
		node->previous_end_ps = previous != NULL ? previous->end_ps : 0;
		node->wanted_ps = node->issue_ps;
		node->host_block = times->engine.block_count;
		node->bound_id = TC_NO_COMMAND;
		node->fixed_ps = alone(replay, command, node);
		bind_to(times, node, previous);
		if (host)
			TC_TRY(add_block(times, node, error));
		else
			last[state->lane] = node;
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- reporting */

static int compare(const void *left, const void *right, void *self)
{
	const struct tci_node *nodes = self;
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	if (nodes[a].end_ps != nodes[b].end_ps)
		return nodes[a].end_ps < nodes[b].end_ps ? -1 : 1;
	return a < b ? -1 : a > b;
}

/** Idle time that the walk did not explain is the issuing thread's and the executor's own. */
static void complete_stalls(const struct tci_node *node, struct tc_timing *timing)
{
	uint64_t idle = timing->start_ps - node->previous_end_ps, sum = 0;
	for (int cause = 0; cause < TC_STALL_CAUSE_COUNT; cause++)
		sum += timing->stall_ps[cause];
	timing->stall_ps[TC_STALL_HOST_CALL] += idle - sum;
}

static enum tc_status report(struct times *times, const struct tci_node *node,
                             struct tc_error *error)
{
	const struct tc_timing_sink *sink = times->replay->options.timing;
	struct tc_timing timing = {.issue_ps = node->issue_ps,
	                           .start_ps = node->start_ps,
	                           .end_ps = node->end_ps,
	                           .ready = times->ready};
	timing.ask_ps =
	    node->issue_ps > node->previous_end_ps ? node->issue_ps : node->previous_end_ps;
	for (uint32_t i = 0; i < node->command.served_count; i++) {
		uint64_t by = node->command.served[i].served_by;
		times->ready[i] = by == TC_NO_COMMAND || times->nodes[by].end_ps <= timing.ask_ps;
	}
	if (node->queue == TC_QUEUE_COMPUTE && node->command.lane == 0) {
		tci_attribute_stall(&times->engine, node, &timing);
		complete_stalls(node, &timing);
	}
	return sink->finished(sink->self, &node->command, &timing, error);
}

static enum tc_status run(struct times *times, struct tc_error *error)
{
	struct tc_replay *replay = times->replay;
	size_t count = (size_t)replay->count;
	uint32_t served = 0;
	for (uint64_t c = 0; c < replay->count; c++)
		if (replay->schedule->commands[c].served_count > served)
			served = replay->schedule->commands[c].served_count;
	times->nodes = tc_alloc_array(count + 1, sizeof *times->nodes);
	times->order = tc_alloc_array(count + 1, sizeof *times->order);
	times->ready = tc_alloc_array((size_t)served + 1, sizeof *times->ready);
	if (times->nodes == NULL || times->order == NULL || times->ready == NULL)
		return tc_error_no_memory(error, "measured times", count * sizeof *times->nodes);
	TC_TRY(build_nodes(times, error));
	for (uint64_t c = 0; c < replay->count; c++)
		times->order[c] = c;
	qsort_r(times->order, count, sizeof *times->order, compare, times->nodes);
	for (uint64_t c = 0; c < replay->count; c++)
		TC_TRY(report(times, &times->nodes[times->order[c]], error));
	return TC_OK;
}

enum tc_status tci_report_times(struct tc_replay *replay, struct tc_error *error)
{
	struct times *times;
	if (replay->options.timing == NULL || replay->options.timing->finished == NULL)
		return TC_OK;
	times = calloc(1, sizeof *times);
	if (times == NULL)
		return tc_error_no_memory(error, "measured times", sizeof *times);
	times->replay = replay;
	enum tc_status status = run(times, error);
	free(times->nodes);
	free(times->order);
	free(times->ready);
	free(times->engine.blocks);
	free(times);
	return status;
}
