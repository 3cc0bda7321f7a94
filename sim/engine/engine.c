/** @file engine.c
 * The engine as a sink of commands: checks, the host thread, admission.
 *
 * The host thread issues commands in id order, so when a command has arrived its issue time is
 * known, and so is the time before which no later command can be issued. Simulated time follows the
 * host's clock: whatever happens up to it is final. A host wait lets time run until what it waits
 * for has ended. What lies beyond the host's clock waits (README.md, "Memory").
 */
#include <stdlib.h>

#include "core.h"

/** Bit of tc_engine.used for host commands that come after the first other command. */
#define HOST_USED (UINT32_C(1) << 31)

enum tc_status tc_engine_create(const struct tc_machine *machine, const struct tc_timing_sink *sink,
                                struct tc_engine **engine, struct tc_error *error)
{
	*engine = NULL;
	struct tc_engine *created = calloc(1, sizeof *created);
	if (created == NULL)
		return tc_error_no_memory(error, "the engine", sizeof *created);
	created->machine = machine;
	for (int h = 0; h < TC_HANDOVER_COUNT; h++)
		created->hands_over |= machine->handover_ps[h] > 0;
	created->sink = *sink;
	created->flows.use_memo = true;
	created->next_ps = TCI_NEVER;
	enum tc_status status = tci_store_init(&created->store, error);
	if (status != TC_OK) {
		tc_engine_free(created);
		return status;
	}
	*engine = created;
	return TC_OK;
}

void tc_engine_free(struct tc_engine *engine)
{
	if (engine == NULL)
		return;
	tci_store_clear(&engine->store);
	tci_flows_clear(&engine->flows);
	free(engine->batch);
	free(engine->blocks);
	free(engine);
}

/* ---------------------------------------------------------------- begin */

static enum tc_status number_lanes(struct tc_engine *engine, const struct tc_plan_info *info,
                                   struct tc_error *error)
{
	uint32_t index = 0;
	for (unsigned queue = 0; queue < TC_QUEUE_COUNT; queue++) {
		uint32_t lanes = info->lanes[queue];
		engine->lanes_of[queue] = lanes;
		engine->first_lane[queue] = index;
		if (queue == TC_QUEUE_HOST)
			continue;
		if (lanes > TC_MAX_LANES - index)
			return tc_error_set(error, TC_ARGUMENT,
			                    "the plan has more than %d lanes in all (queue %s asks "
			                    "for %lu): give the machine fewer",
			                    TC_MAX_LANES, tc_queue_name((enum tc_queue)queue),
			                    (unsigned long)lanes);
		for (uint32_t lane = 0; lane < lanes; lane++, index++) {
			engine->lanes[index].queue = (enum tc_queue)queue;
			engine->lanes[index].last_id = TC_NO_COMMAND;
		}
	}
	engine->lane_count = index;
	return TC_OK;
}

static enum tc_status on_begin(void *self, const struct tc_plan_info *info, struct tc_error *error)
{
	struct tc_engine *engine = self;
	if (engine->begun)
		return tc_error_set(error, TC_ARGUMENT,
		                    "an engine runs one plan: create another for the next");
	engine->begun = true;
	engine->status = number_lanes(engine, info, error);
	if (engine->status == TC_OK)
		engine->status = tci_flows_init(engine, error);
	return engine->status;
}

/* ---------------------------------------------------------------- checks */

static enum tc_status check_ids(const struct tc_command *command, struct tc_error *error)
{
	for (uint32_t i = 0; i < command->dep_count; i++)
		if (command->deps[i].id >= command->id)
			return tc_error_set(
			    error, TC_ARGUMENT,
			    "command %llu waits for command %llu: expected a smaller "
			    "id",
			    (unsigned long long)command->id,
			    (unsigned long long)command->deps[i].id);
	for (uint32_t i = 0; i < command->served_count; i++)
		if (command->served[i].served_by >= command->id &&
		    command->served[i].served_by != TC_NO_COMMAND)
			return tc_error_set(error, TC_ARGUMENT,
			                    "command %llu is served by command %llu: expected a "
			                    "smaller id",
			                    (unsigned long long)command->id,
			                    (unsigned long long)command->served[i].served_by);
	return TC_OK;
}

static enum tc_status check_command(const struct tc_engine *engine,
                                    const struct tc_command *command, struct tc_error *error)
{
	if (!engine->begun || engine->ended)
		return tc_error_set(error, TC_ARGUMENT,
		                    "command %llu came %s the plan: call begin, commands, end",
		                    (unsigned long long)command->id,
		                    engine->ended ? "after the end of" : "before the begin of");
	if (command->id != engine->store.next_id)
		return tc_error_set(
		    error, TC_ARGUMENT, "command %llu came where %llu was expected: ids are dense",
		    (unsigned long long)command->id, (unsigned long long)engine->store.next_id);
	if ((unsigned)command->queue >= TC_QUEUE_COUNT)
		return tc_error_set(error, TC_ARGUMENT, "command %llu is on queue number %u of %d",
		                    (unsigned long long)command->id, (unsigned)command->queue,
		                    TC_QUEUE_COUNT);
	if (command->queue != TC_QUEUE_HOST && command->lane >= engine->lanes_of[command->queue])
		return tc_error_set(
		    error, TC_ARGUMENT, "command %llu is on lane %lu of queue %s, which has %lu",
		    (unsigned long long)command->id, (unsigned long)command->lane,
		    tc_queue_name(command->queue), (unsigned long)engine->lanes_of[command->queue]);
	if (command->queue == TC_QUEUE_HOST && command->served_count > 0)
		return tc_error_set(error, TC_ARGUMENT,
		                    "host command %llu serves requests: only compute and update do",
		                    (unsigned long long)command->id);
	return check_ids(command, error);
}

/* ---------------------------------------------------------------- the host thread */

static enum tc_status spend_host_time(struct tc_engine *engine, const struct tc_command *command,
                                      tci_work ps, struct tc_error *error)
{
	tci_work clock = ps + engine->host_ps;
	if (clock >= TCI_NEVER)
		return tc_error_set(
		    error, TC_TOO_LARGE,
		    "the host thread reaches the end of time at command %llu: times "
		    "end at 2^64 ps (213 days)",
		    (unsigned long long)command->id);
	engine->host_ps = (uint64_t)clock;
	return TC_OK;
}

static enum tc_status add_block(struct tc_engine *engine, struct tci_block block,
                                struct tc_error *error)
{
	size_t capacity = engine->block_capacity;
	if (engine->block_count - engine->block_oldest == capacity) {
		size_t wider = capacity == 0 ? 16 : capacity * 2;
		struct tci_block *blocks = tc_alloc_array(wider, sizeof *blocks);
		if (blocks == NULL)
			return tc_error_no_memory(error, "host waits", wider * sizeof *blocks);
		for (uint64_t i = engine->block_oldest; i < engine->block_count; i++)
			blocks[i & (wider - 1)] = engine->blocks[i & (capacity - 1)];
		free(engine->blocks);
		engine->blocks = blocks;
		engine->block_capacity = wider;
	}
	engine->blocks[engine->block_count & (engine->block_capacity - 1)] = block;
	engine->block_count++;
	return TC_OK;
}

/** The longest hand-over to the host thread from what the command has to wait for. */
static uint64_t host_handover(const struct tc_engine *engine, const struct tc_command *command)
{
	uint64_t longest = 0;
	for (uint32_t i = 0; i < command->dep_count && engine->hands_over; i++) {
		const struct tci_node *node = tci_store_find(&engine->store, command->deps[i].id);
		if (node == NULL || node->state == TCI_ENDED)
			continue;
		uint64_t ps = tc_machine_handover_ps(engine->machine, (enum tc_queue)node->queue,
		                                     TC_QUEUE_HOST);
		longest = ps > longest ? ps : longest;
	}
	return longest;
}

/** Let time run until all dependencies of a host command have ended. */
static enum tc_status block_host(struct tc_engine *engine, const struct tc_command *command,
                                 struct tc_error *error)
{
	struct tci_block block = {.begin_ps = engine->host_ps, .end_ps = engine->host_ps};
	uint64_t cause_id = TC_NO_COMMAND;
	for (uint32_t i = 0; i < command->dep_count; i++) {
		uint64_t id = command->deps[i].id;
		struct tci_node *node = tci_store_find(&engine->store, id);
		if (node == NULL)
			continue;
		if (node->state != TCI_ENDED) {
			TC_TRY(tci_run_to_end_of(engine, id, error));
			node = tci_store_find(&engine->store, id);
		}
		/* A node that is gone already ended no later than a compute command: nobody can
		 * walk back to it any more. */
		uint64_t end = node != NULL ? node->end_ps : engine->now_ps;
		bool later = end > block.end_ps ||
		             (end == block.end_ps && end > block.begin_ps && id < cause_id);
		if (!later)
			continue;
		block.end_ps = end;
		block.cause = node;
		cause_id = id;
	}
	if (block.end_ps == block.begin_ps)
		return TC_OK;
	engine->host_ps = block.end_ps;
	return add_block(engine, block, error);
}

/** A host command ends before anything else is issued, so it needs no node. */
static enum tc_status run_host_command(struct tc_engine *engine, const struct tc_command *command,
                                       struct tc_error *error)
{
	struct tc_timing timing = {.issue_ps = engine->host_ps, .ask_ps = engine->host_ps};
	TC_TRY(tci_run_until(engine, engine->host_ps, error));
	uint64_t handover = host_handover(engine, command);
	TC_TRY(block_host(engine, command, error));
	timing.start_ps = engine->host_ps;
	tci_work takes = (tci_work)command->duration_ps + handover;
	TC_TRY(spend_host_time(engine, command, takes, error));
	timing.end_ps = engine->host_ps;
	TC_TRY(tci_run_until(engine, engine->host_ps, error));
	if (engine->used != 0)
		engine->used |= HOST_USED;
	TC_TRY(tci_store_skip(&engine->store, error));
	if (engine->sink.finished == NULL)
		return TC_OK;
	struct tc_command copy = *command;
	copy.binds = NULL;
	copy.bind_count = 0;
	return engine->sink.finished(engine->sink.self, &copy, &timing, error);
}

/* ---------------------------------------------------------------- admission */

static void link_dependencies(struct tc_engine *engine, struct tci_node *node)
{
	for (uint32_t i = 0; i < node->command.dep_count; i++) {
		const struct tc_dependency *dependency = &node->command.deps[i];
		struct tci_node *other = tci_store_find(&engine->store, dependency->id);
		if (other == NULL)
			continue;
		if (other->state == TCI_ENDED) {
			tci_note_end(node, other, dependency->reason);
			continue;
		}
		struct tci_edge *edge = &node->edges[i];
		*edge = (struct tci_edge){node, other->dependants, dependency->reason};
		other->dependants = edge;
		node->remaining++;
	}
}

/**
 * A schedule that has used one lane only: nothing that may still come can change what is known of
 * that lane, so time may run ahead of the host. Here something else came after all.
 */
static enum tc_status check_not_overtaken(const struct tc_engine *engine,
                                          const struct tc_command *command, struct tc_error *error)
{
	if (engine->now_ps <= engine->host_ps)
		return TC_OK;
	return tc_error_set(
	    error, TC_TOO_LARGE,
	    "command %llu is issued while more than %u commands of another lane wait, "
	    "and the schedule used no second lane before: let the plan wait on the "
	    "host at least once in that many commands",
	    (unsigned long long)command->id, TCI_WINDOW);
}

static enum tc_status admit(struct tc_engine *engine, const struct tc_command *command,
                            struct tc_error *error)
{
	TC_TRY(tci_run_until(engine, engine->host_ps, error));
	struct tci_node *node;
	TC_TRY(tci_store_add(&engine->store, command, &node, error));
	uint32_t index = engine->first_lane[command->queue] + command->lane;
	struct tci_lane *lane = &engine->lanes[index];
	node->lane = (uint8_t)index;
	node->queue = (uint8_t)command->queue;
	node->issue_ps = engine->host_ps;
	node->wanted_ps = engine->host_ps;
	node->host_block = engine->block_count;
	TC_TRY(tci_flow_prepare(engine, node, error));
	link_dependencies(engine, node);
	engine->waiting++;
	engine->used |= UINT32_C(1) << index;
	if (lane->head != NULL) {
		lane->tail->next = node;
		lane->tail = node;
	} else {
		lane->head = lane->tail = node;
		if (node->remaining == 0 || command->served_count > 0)
			TC_TRY(check_not_overtaken(engine, command, error));
		if (engine->now_ps < engine->host_ps)
			engine->now_ps = engine->host_ps;
		engine->check |= UINT32_C(1) << index;
		TC_TRY(tci_settle(engine, error));
	}
	if (engine->waiting > TCI_WINDOW && (engine->used & (engine->used - 1)) == 0)
		return tci_run_to_window(engine, TCI_WINDOW / 2, error);
	return TC_OK;
}

static enum tc_status accept(struct tc_engine *engine, const struct tc_command *command,
                             struct tc_error *error)
{
	TC_TRY(check_command(engine, command, error));
	tci_work cost = (tci_work)command->hooks * engine->machine->hook_ps +
	                (tci_work)command->launches * engine->machine->launch_ps;
	TC_TRY(spend_host_time(engine, command, cost, error));
	if (command->queue != TC_QUEUE_HOST)
		return admit(engine, command, error);
	TC_TRY(check_not_overtaken(engine, command, error));
	return run_host_command(engine, command, error);
}

static enum tc_status refuse(const struct tc_engine *engine, struct tc_error *error)
{
	return tc_error_set(error, engine->status, "the engine stopped at an earlier error");
}

static enum tc_status on_command(void *self, const struct tc_command *command,
                                 struct tc_error *error)
{
	struct tc_engine *engine = self;
	if (engine->status != TC_OK)
		return refuse(engine, error);
	engine->status = accept(engine, command, error);
	return engine->status;
}

static enum tc_status on_end(void *self, const struct tc_plan_end *end, struct tc_error *error)
{
	(void)end;
	struct tc_engine *engine = self;
	if (engine->status != TC_OK)
		return refuse(engine, error);
	engine->ended = true;
	engine->status = tci_run_to_window(engine, 0, error);
	return engine->status;
}

struct tc_sink tc_engine_sink(struct tc_engine *engine)
{
	return (struct tc_sink){
	    .self = engine, .begin = on_begin, .command = on_command, .end = on_end};
}
