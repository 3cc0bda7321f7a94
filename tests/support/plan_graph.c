#include "plan_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void mark(bool *ended, uint64_t *stack, size_t *depth, uint64_t id)
{
	if (!ended[id]) {
		ended[id] = true;
		stack[(*depth)++] = id;
	}
}

static void mark_before(const struct tc_schedule *s, uint64_t id, bool *ended, uint64_t *stack,
                        size_t *depth)
{
	const struct tc_command *command = &s->commands[id];
	bool lane = false, host = false;
	for (uint32_t d = 0; d < command->dep_count; d++)
		mark(ended, stack, depth, command->deps[d].id);
	for (uint64_t c = id; c-- > 0 && !(lane && host);) {
		const struct tc_command *other = &s->commands[c];
		if (!lane && other->queue == command->queue && other->lane == command->lane) {
			lane = true;
			mark(ended, stack, depth, c);
		}
		if (!host && other->queue == TC_QUEUE_HOST) {
			host = true;
			mark(ended, stack, depth, c);
		}
	}
}

bool plan_ends_before(const struct tc_schedule *schedule, uint64_t first, uint64_t second)
{
	bool *ended = calloc(schedule->command_count + 1, sizeof *ended);
	uint64_t *stack = calloc(schedule->command_count + 1, sizeof *stack);
	assert_true(ended != NULL && stack != NULL);
	size_t depth = 1;
	stack[0] = second;
	while (depth > 0 && !ended[first])
		mark_before(schedule, stack[--depth], ended, stack, &depth);
	bool result = ended[first];
	free(ended);
	free(stack);
	return result;
}

enum tc_reason plan_reason(const struct tc_schedule *schedule, uint64_t id, uint64_t on)
{
	const struct tc_command *command = &schedule->commands[id];
	for (uint32_t d = 0; d < command->dep_count; d++)
		if (command->deps[d].id == on)
			return command->deps[d].reason;
	return TC_REASON_COUNT;
}

static bool answers(const struct tc_command *command, struct plan_query query)
{
	return command->kind == query.kind &&
	       (query.tensor == TC_NONE || command->tensor == query.tensor) &&
	       (query.iteration == UINT32_MAX || command->iteration == query.iteration);
}

uint64_t plan_find(const struct tc_schedule *schedule, uint64_t from, struct plan_query query)
{
	for (uint64_t c = from; c < schedule->command_count; c++)
		if (answers(&schedule->commands[c], query))
			return c;
	return TC_NO_COMMAND;
}

uint64_t plan_count(const struct tc_schedule *schedule, struct plan_query query)
{
	uint64_t count = 0;
	for (uint64_t c = 0; c < schedule->command_count; c++)
		count += answers(&schedule->commands[c], query);
	return count;
}

uint64_t plan_runs(const struct tc_schedule *schedule, uint32_t iteration, uint32_t op)
{
	for (uint64_t c = 0; c < schedule->command_count; c++) {
		const struct tc_command *command = &schedule->commands[c];
		if (command->iteration == iteration &&
		    (command->kind == TC_COMPUTE || command->kind == TC_UPDATE) &&
		    command->first_op <= op && op <= command->last_op)
			return c;
	}
	fail_msg("no command runs op %u in iteration %u", op, iteration);
	return TC_NO_COMMAND;
}
