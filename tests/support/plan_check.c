#include "plan_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool optimizer_on_gpu(const char *policy)
{
	return strcmp(policy, "ideal") == 0 || strstr(policy, "optimizer=gpu") != NULL;
}

/* ---------------------------------------------------------------- checks of the command stream */

struct stream_check {
	const struct tc_trace *trace;
	bool gpu_optimizer;
	uint64_t next;
	uint32_t iteration;
	uint32_t *runs; /**< of each op in this iteration */
	uint32_t lanes[TC_QUEUE_COUNT];
	uint64_t fetched_bytes; /**< of parameters */
	uint64_t kinds[TC_COMMAND_KIND_COUNT];
	char why[200];
};

/** Without events, what comes before the first op that updates anything takes the norm. */
static bool is_update_op(const struct tc_trace *trace, uint32_t op)
{
	if (trace->has_events)
		return trace->events[trace->ops[op].event].kind == TC_EVENT_OPTIMIZER;
	for (uint32_t o = 0; o <= op; o++)
		for (uint32_t i = 0; i < trace->ops[o].writes.count; i++)
			if (trace->ops[o].phase == TC_OPTIMIZER &&
			    trace->tensors[trace->ops[o].writes.items[i]].kind != TC_GRAD &&
			    trace->tensors[trace->ops[o].writes.items[i]].persistent)
				return true;
	return false;
}

/** Every op exactly once; on the CPU, ops outside optimizer events are part of the others. */
static void check_ops_done(struct stream_check *check)
{
	for (uint32_t o = 0; o < check->trace->op_count; o++) {
		uint32_t expected = 1;
		if (!check->gpu_optimizer && check->trace->ops[o].phase == TC_OPTIMIZER)
			expected = is_update_op(check->trace, o);
		if (check->runs[o] != expected && check->why[0] == '\0')
			(void)snprintf(check->why, sizeof check->why,
			               "iteration %u: op %u ran %u times, expected %u",
			               check->iteration, o, check->runs[o], expected);
		check->runs[o] = 0;
	}
}

static void check_deps(struct stream_check *check, const struct tc_command *command)
{
	for (uint32_t d = 0; d < command->dep_count; d++) {
		uint64_t before = d == 0 ? command->id : command->deps[d - 1].id;
		if (command->deps[d].id >= before && check->why[0] == '\0')
			(void)snprintf(check->why, sizeof check->why,
			               "command %llu: dependencies are not in falling order",
			               (unsigned long long)command->id);
	}
}

/** GPU memory counts from the command that writes it first: a copy out of it takes none. */
static void check_memory(struct stream_check *check, const struct tc_command *command)
{
	bool out = command->queue == TC_QUEUE_D2H || command->queue == TC_QUEUE_NVME_WRITE ||
	           command->queue == TC_QUEUE_CPU;
	for (uint32_t i = 0; i < command->memory_count && out; i++)
		if (command->memory[i].tier == TC_GPU && command->memory[i].bytes > 0 &&
		    check->why[0] == '\0')
			(void)snprintf(check->why, sizeof check->why,
			               "command %llu copies out, and yet takes GPU memory",
			               (unsigned long long)command->id);
}

static enum tc_status check_begin(void *self, const struct tc_plan_info *info,
                                  struct tc_error *error)
{
	struct stream_check *check = self;
	(void)error;
	memcpy(check->lanes, info->lanes, sizeof check->lanes);
	return TC_OK;
}

static enum tc_status check_command(void *self, const struct tc_command *command,
                                    struct tc_error *error)
{
	struct stream_check *check = self;
	(void)error;
	if (command->id != check->next++ && check->why[0] == '\0')
		(void)snprintf(check->why, sizeof check->why, "command ids are not dense");
	check->kinds[command->kind]++;
	check_deps(check, command);
	check_memory(check, command);
	if (command->iteration != TC_ITERATION_INIT && command->iteration != check->iteration) {
		check_ops_done(check);
		check->iteration = command->iteration;
	}
	if (command->kind == TC_FETCH && command->tensor < check->trace->tensor_count &&
	    check->trace->tensors[command->tensor].kind == TC_PARAM)
		check->fetched_bytes += command->bytes;
	if (command->kind != TC_COMPUTE && command->kind != TC_UPDATE)
		return TC_OK;
	for (uint32_t o = command->first_op; o <= command->last_op; o++) {
		bool cpu = !check->gpu_optimizer && check->trace->ops[o].phase == TC_OPTIMIZER;
		check->runs[o] += cpu == (command->kind == TC_UPDATE) ? 1 : 100;
	}
	return TC_OK;
}

static enum tc_status check_end(void *self, const struct tc_plan_end *end, struct tc_error *error)
{
	struct stream_check *check = self;
	(void)error;
	check_ops_done(check);
	if (end->command_count != check->next && check->why[0] == '\0')
		(void)snprintf(check->why, sizeof check->why, "the end counts other commands");
	return TC_OK;
}

/* ---------------------------------------------------------------- one plan, all checks */

/** What a failing check names: enough to run the case again. */
void plan_blame(const struct plan_case *plan, uint64_t seed, const char *what)
{
	print_error("seed %llu, %s, GPU %llu, CPU %llu bytes: %s\n", (unsigned long long)seed,
	            plan->policy, (unsigned long long)plan->machine->capacity_bytes[TC_GPU],
	            (unsigned long long)plan->machine->capacity_bytes[TC_CPU], what);
}

struct outcome plan_and_check(const struct plan_case *plan, uint64_t seed)
{
	struct tc_error error = {0};
	struct outcome outcome = {0};
	struct plan_hash hash;
	struct tc_audit *audit = NULL;
	struct stream_check check = {.trace = plan->trace,
	                             .gpu_optimizer = optimizer_on_gpu(plan->policy),
	                             .runs = calloc(plan->trace->op_count + 1u, sizeof(uint32_t))};
	assert_non_null(check.runs);
	assert_int_equal(tc_audit_create(false, &audit, &error), TC_OK);
	struct tc_sink sinks[] = {
	    tc_audit_sink(audit),
	    plan_hash_sink(&hash),
	    {.self = &check, .begin = check_begin, .command = check_command, .end = check_end}};
	struct tc_tee tee = {.sinks = sinks, .count = 3};
	struct tc_sink sink = tc_tee_sink(&tee);
	outcome.status = plan_case_run(plan, &sink, &outcome.notes, &error);
	outcome.hash = hash.hash;
	(void)snprintf(outcome.text, sizeof outcome.text, "%.599s", error.text);
	outcome.fetched_bytes = check.fetched_bytes;
	memcpy(outcome.kinds, check.kinds, sizeof outcome.kinds);
	if (outcome.status != TC_OK && outcome.status != TC_INFEASIBLE) {
		plan_blame(plan, seed, error.text);
		fail();
	}
	if (outcome.status == TC_OK && tc_audit_result(audit)->findings > 0) {
		plan_blame(plan, seed, tc_audit_result(audit)->first);
		fail();
	}
	if (outcome.status == TC_OK && check.why[0] != '\0') {
		plan_blame(plan, seed, check.why);
		fail();
	}
	tc_audit_free(audit);
	free(check.runs);
	return outcome;
}
