/** @file executor_compute.c
 * What a compute command reads and leaves, op by op as the auditor walks it (src/AUDIT.md): what an
 * op reads and writes is looked at, its workspace is scribbled over, all its writes are left, then
 * its other reads are looked at, so that an output laid over an input is seen.
 *
 * A partial write makes a new version of the whole tensor, so the whole tensor is left. Content
 * that was looked at and not touched since is not looked at again within the command.
 *
 * Without a trace nobody knows the order inside the command: what is only read, and shares no byte
 * with what is written, is looked at; then what is written is left, what lives on last.
 */
#include <stdlib.h>

#include "executor.h"

/** What is known of the bytes of a bind. */
enum sight {
	NEVER, /**< no op of the command had to do with it yet */
	SEEN,  /**< looked at or left, and nothing written over it since */
	STALE  /**< something was written over it */
};

/** What one command does with each of its binds. */
struct walk {
	struct tc_replay *replay;
	const struct tc_command *command;
	uint64_t *versions;   /**< now */
	unsigned char *sight; /**< enum sight */
};

static void *bind_memory(const struct walk *walk, uint32_t b)
{
	return tci_at(walk->replay, walk->command->binds[b].pool, walk->command->binds[b].offset);
}

static bool overlap(const struct tc_bind *a, const struct tc_bind *b)
{
	return a->pool == b->pool && a->offset < b->offset + b->bytes &&
	       b->offset < a->offset + a->bytes;
}

/** Bytes of bind `b` change: what was seen there is not known any more. */
static void touch(struct walk *walk, uint32_t b)
{
	for (uint32_t other = 0; other < walk->command->bind_count; other++)
		if (walk->sight[other] == SEEN &&
		    overlap(&walk->command->binds[b], &walk->command->binds[other]))
			walk->sight[other] = STALE;
}

static void look(struct walk *walk, uint32_t b, const char *when)
{
	const struct tc_bind *bind = &walk->command->binds[b];
	if (walk->sight[b] == SEEN)
		return;
	walk->sight[b] = SEEN;
	(void)tci_check(walk->replay, walk->command, bind->tensor, walk->versions[b], 0,
	                bind_memory(walk, b), bind->bytes, when);
}

static void leave(struct walk *walk, uint32_t b)
{
	const struct tc_bind *bind = &walk->command->binds[b];
	touch(walk, b);
	tci_leave(walk->replay, bind_memory(walk, b), bind->tensor, walk->versions[b], bind->bytes,
	          false);
	walk->sight[b] = SEEN;
}

/** The bind of a tensor, or bind_count. */
static uint32_t find(const struct walk *walk, uint32_t tensor)
{
	uint32_t b = 0;
	while (b < walk->command->bind_count && walk->command->binds[b].tensor != tensor)
		b++;
	return b;
}

static bool lists(struct tc_ids ids, uint32_t tensor)
{
	for (uint32_t i = 0; i < ids.count; i++)
		if (ids.items[i] == tensor)
			return true;
	return false;
}

/** Look at the op's reads that it also writes, or at the others. */
static void look_at_reads(struct walk *walk, const struct tc_op *op, bool written)
{
	for (uint32_t r = 0; r < op->reads.count; r++) {
		uint32_t b = find(walk, op->reads.items[r]);
		if (b < walk->command->bind_count &&
		    lists(op->writes, op->reads.items[r]) == written)
			look(walk, b, "read by");
	}
}

/** Workspace holds anything afterwards. */
static void scribble(struct walk *walk, uint32_t b)
{
	const struct tc_bind *bind = &walk->command->binds[b];
	touch(walk, b);
	tci_leave(walk->replay, bind_memory(walk, b), TC_NONE, walk->command->id, bind->bytes,
	          false);
}

/** Where an op's workspace lies: the k-th such bind, or the only one. bind_count: nowhere. */
static uint32_t workspace(const struct walk *walk, uint32_t ordinal)
{
	uint32_t seen = 0, only = walk->command->bind_count;
	for (uint32_t b = 0; b < walk->command->bind_count; b++) {
		if (walk->command->binds[b].tensor != TC_NONE)
			continue;
		if (seen == ordinal)
			return b;
		only = b;
		seen++;
	}
	return seen == 1 ? only : walk->command->bind_count;
}

static void walk_op(struct walk *walk, const struct tc_op *op, uint32_t *workspaces)
{
	look_at_reads(walk, op, true);
	if (op->workspace > 0) {
		uint32_t b = workspace(walk, (*workspaces)++);
		if (b < walk->command->bind_count)
			scribble(walk, b);
	}
	for (uint32_t w = 0; w < op->writes.count; w++) {
		uint32_t tensor = op->writes.items[w], b = find(walk, tensor);
		bool again = false;
		for (uint32_t earlier = 0; earlier < w; earlier++)
			again |= op->writes.items[earlier] == tensor;
		if (b == walk->command->bind_count || again)
			continue;
		walk->versions[b]++;
		leave(walk, b);
	}
	look_at_reads(walk, op, false);
}

static void walk_with_trace(struct walk *walk)
{
	const struct tc_trace *trace = walk->replay->info->trace;
	uint32_t workspaces = 0;
	uint32_t last = walk->command->last_op;
	for (uint32_t op = walk->command->first_op; op <= last && op != TC_NONE; op++)
		walk_op(walk, &trace->ops[op], &workspaces);
	/* Requests that no op touches must be there all the same. */
	for (uint32_t b = 0; b < walk->command->bind_count; b++) {
		const struct tc_bind *bind = &walk->command->binds[b];
		if (walk->sight[b] == NEVER && bind->tensor != TC_NONE && bind->access == TC_READ)
			look(walk, b, "requested by");
	}
}

static void walk_without_trace(struct walk *walk)
{
	const struct tc_command *command = walk->command;
	const uint64_t *after = walk->replay->after + walk->replay->first_after[command->id];
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		bool apart = bind->tensor != TC_NONE && bind->access == TC_READ;
		for (uint32_t other = 0; other < command->bind_count && apart; other++)
			apart = command->binds[other].access == TC_READ ||
			        !overlap(bind, &command->binds[other]);
		if (apart)
			look(walk, b, "read by");
	}
	for (int lives_on = 0; lives_on <= 1; lives_on++)
		for (uint32_t b = 0; b < command->bind_count; b++) {
			const struct tc_bind *bind = &command->binds[b];
			enum tc_tensor_kind kind =
			    bind->tensor == TC_NONE
			        ? TC_TEMP
			        : walk->replay->info->tensors[bind->tensor].kind;
			if (bind->access == TC_READ || bind->tensor == TC_NONE ||
			    (kind != TC_TEMP) != (lives_on == 1))
				continue;
			walk->versions[b] = after[b];
			leave(walk, b);
		}
}

static bool walk_begin(struct walk *walk, struct tc_replay *replay,
                       const struct tc_command *command)
{
	size_t count = (size_t)command->bind_count + 1;
	*walk = (struct walk){.replay = replay, .command = command};
	walk->versions = tc_alloc_array(count, sizeof *walk->versions);
	walk->sight = tc_alloc_array(count, sizeof *walk->sight);
	if (walk->versions != NULL && walk->sight != NULL)
		return true;
	tci_abort_run(replay, TC_NO_MEMORY, "out of memory in command %llu",
	              (unsigned long long)command->id);
	return false;
}

static void walk_end(struct walk *walk)
{
	free(walk->versions);
	free(walk->sight);
}

void tci_compute_walk(struct tc_replay *replay, const struct tc_command *command)
{
	struct walk walk;
	if (replay->options.verify == TC_VERIFY_OFF)
		return;
	if (walk_begin(&walk, replay, command)) {
		for (uint32_t b = 0; b < command->bind_count; b++)
			walk.versions[b] = command->binds[b].version;
		if (replay->info->trace != NULL)
			walk_with_trace(&walk);
		else
			walk_without_trace(&walk);
	}
	walk_end(&walk);
}

void tci_compute_look_again(struct tc_replay *replay, const struct tc_command *command)
{
	if (replay->options.verify != TC_VERIFY_FULL)
		return;
	const uint64_t *after = replay->after + replay->first_after[command->id];
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		bool apart = bind->tensor != TC_NONE;
		for (uint32_t other = 0; other < command->bind_count && apart; other++)
			apart = other == b || command->binds[other].access == TC_READ ||
			        !overlap(bind, &command->binds[other]);
		bool written = replay->info->trace != NULL && after[b] != bind->version;
		if (apart && (bind->access == TC_READ || written))
			(void)tci_check(replay, command, bind->tensor, after[b], 0,
			                tci_at(replay, bind->pool, bind->offset), bind->bytes,
			                "at the end of");
	}
}
