/** @file run.c
 * The event loop. Time jumps from instant to instant, the next one being the smallest due time over
 * the lanes. At an instant everything that is due ends, everything that can start starts, and so
 * on until nothing moves; then requests are answered, ended commands reported by id, and, if the
 * set of flows changed, rates are solved once.
 *
 * An instant may be settled more than once (a command issued at that very time arrives later):
 * solving again without time in between changes nothing but the rates.
 */
#include <string.h>

#include "core.h"

/* ---------------------------------------------------------------- ending and starting */

void tci_note_end(struct tci_node *owner, const struct tci_node *ended, enum tc_reason reason)
{
	uint64_t end = ended->end_ps, id = ended->command.id;
	bool earlier =
	    end < owner->bound_end_ps ||
	    (end == owner->bound_end_ps &&
	     (id > owner->bound_id || (id == owner->bound_id && reason >= owner->bound_reason)));
	if (owner->bound_id != TC_NO_COMMAND && earlier)
		return;
	owner->bound = ended;
	owner->bound_id = id;
	owner->bound_end_ps = end;
	owner->bound_reason = (uint8_t)reason;
	owner->bound_queue = ended->queue;
}

static enum tc_status add_to_batch(struct tc_engine *engine, struct tci_node *node,
                                   struct tc_error *error)
{
	if (engine->batch_count == engine->batch_capacity &&
	    !tc_grow_array(&engine->batch, &engine->batch_capacity, engine->batch_count + 1,
	                   sizeof *engine->batch))
		return tc_error_no_memory(error, "commands that end at one instant",
		                          (engine->batch_count + 1) * sizeof *engine->batch);
	size_t place = engine->batch_count++;
	for (; place > 0 && engine->batch[place - 1]->command.id > node->command.id; place--)
		engine->batch[place] = engine->batch[place - 1];
	engine->batch[place] = node;
	return TC_OK;
}

static void release_dependants(struct tc_engine *engine, struct tci_node *ended)
{
	for (struct tci_edge *edge = ended->dependants; edge != NULL; edge = edge->next) {
		struct tci_node *owner = edge->owner;
		tci_note_end(owner, ended, edge->reason);
		if (edge->reason == TC_REASON_ORDER || edge->reason == TC_REASON_ANCHOR)
			owner->wanted_ps = engine->now_ps;
		if (--owner->remaining == 0)
			engine->check |= 1u << owner->lane;
	}
	ended->dependants = NULL;
}

static void stop_flow(struct tc_engine *engine, uint32_t index)
{
	engine->flowing &= ~(1u << index);
	engine->other_shapes &= ~(1u << index);
	engine->flow_key &= ~(UINT64_C(15) << (4 * index));
	engine->rates_stale = true;
}

static enum tc_status finish(struct tc_engine *engine, uint32_t index, struct tc_error *error)
{
	struct tci_lane *lane = &engine->lanes[index];
	struct tci_node *node = lane->head;
	if (lane->phase == TCI_FLOWING)
		stop_flow(engine, index);
	lane->phase = TCI_IDLE;
	engine->busy &= ~(UINT32_C(1) << index);
	lane->head = node->next;
	node->next = NULL;
	node->state = TCI_ENDED;
	node->end_ps = engine->now_ps;
	lane->last = node;
	lane->last_id = node->command.id;
	lane->last_end_ps = engine->now_ps;
	engine->waiting--;
	if (lane->head != NULL)
		engine->check |= 1u << index;
	release_dependants(engine, node);
	return add_to_batch(engine, node, error);
}

static void begin_flow(struct tc_engine *engine, uint32_t index)
{
	struct tci_lane *lane = &engine->lanes[index];
	const struct tci_node *node = lane->head;
	lane->phase = TCI_FLOWING;
	lane->rate = 0;
	lane->rate_ps = engine->now_ps;
	lane->work = (tci_work)node->flow_bytes << TC_WORK_BITS;
	if (node->dependants != NULL)
		__builtin_prefetch(node->dependants->owner, 1);
	engine->due_ps[index] = TCI_NEVER;
	engine->flowing |= 1u << index;
	engine->flow_key |= (uint64_t)(node->shape + 1u) << (4 * index);
	if (node->shape == TCI_SHAPE_OTHER)
		engine->other_shapes |= 1u << index;
	engine->rates_stale = true;
}

/** What the command had to wait for: the last to end among lane, dependencies and its issue. */
static void set_bound(struct tci_node *node, const struct tci_lane *lane)
{
	uint64_t start = node->start_ps;
	if (node->bound_id == TC_NO_COMMAND || node->bound_end_ps != start) {
		node->bound_id = TC_NO_COMMAND;
		node->bound_reason = TCI_BOUND_ISSUE;
	}
	bool by_lane = lane->last_id != TC_NO_COMMAND && lane->last_end_ps == start;
	if (by_lane && lane->last_id < node->bound_id) {
		node->bound = lane->last;
		node->bound_reason = TCI_BOUND_LANE;
		node->bound_queue = (uint8_t)lane->queue;
	}
}

/**
 * What starts because something on another queue ended takes a hand-over longer; what starts when
 * it is issued, one from the issuing thread; what starts because its lane is free, none.
 */
static void add_handover(const struct tc_engine *engine, const struct tci_lane *lane,
                         struct tci_node *node)
{
	enum tc_queue from = TC_QUEUE_HOST, to = (enum tc_queue)node->queue;
	bool at_once = node->start_ps == node->issue_ps;
	bool by_lane = lane->last_id != TC_NO_COMMAND && lane->last_end_ps == node->start_ps;
	if (node->bound_reason == TCI_BOUND_LANE || (by_lane && at_once))
		return;
	if (!at_once)
		from = (enum tc_queue)node->bound_queue;
	if (from != to &&
	    !tc_add_u64(node->fixed_ps, tc_machine_handover_ps(engine->machine, from, to),
	                &node->fixed_ps))
		node->fixed_ps = TCI_NEVER; /* refused below: no time is left for it */
}

/**
 * More commands may wait than a cache holds. When one starts it is known whom its end will touch:
 * the next one of its lane, and what waits for it.
 */
static void fetch_ahead(const struct tci_node *node)
{
	enum { LINE = 64, LINES = 2 }; /* what the event loop touches of struct tci_node */
	if (node->next != NULL)
		for (size_t line = 0; line < LINES; line++)
			__builtin_prefetch((const unsigned char *)node->next + line * LINE, 1);
	if (node->dependants != NULL)
		__builtin_prefetch(node->dependants);
}

static enum tc_status start_head(struct tc_engine *engine, uint32_t index, struct tc_error *error)
{
	struct tci_lane *lane = &engine->lanes[index];
	struct tci_node *node = lane->head;
	if (node == NULL || lane->phase != TCI_IDLE)
		return TC_OK;
	if (!node->asked)
		engine->asking |= 1u << index;
	if (node->remaining > 0)
		return TC_OK;
	uint64_t now = engine->now_ps;
	uint64_t previous = lane->last_id == TC_NO_COMMAND ? 0 : lane->last_end_ps;
	node->state = TCI_RUNNING;
	engine->busy |= UINT32_C(1) << index;
	node->previous_end_ps = previous;
	node->start_ps = now;
	fetch_ahead(node);
	set_bound(node, lane);
	if (engine->hands_over)
		add_handover(engine, lane, node);
	if (node->fixed_ps == 0 && node->flow_bytes > 0) {
		begin_flow(engine, index);
		return TC_OK;
	}
	if (node->fixed_ps >= TCI_NEVER - now)
		return tc_error_set(
		    error, TC_TOO_LARGE,
		    "command %llu starts at %llu ps and takes %llu ps: times end at "
		    "2^64 ps (213 days)",
		    (unsigned long long)node->command.id, (unsigned long long)now,
		    (unsigned long long)node->fixed_ps);
	uint64_t due = now + node->fixed_ps;
	lane->phase = node->flow_bytes > 0 ? TCI_LATENCY : TCI_FIXED;
	engine->due_ps[index] = due;
	if (due == now)
		engine->due |= UINT32_C(1) << index;
	return TC_OK;
}

/* ---------------------------------------------------------------- reporting */

/** Which requests of the node were already served: called at the end of the instant of its ask. */
static void answer(const struct tc_engine *engine, struct tci_node *node)
{
	for (uint32_t i = 0; i < node->command.served_count; i++) {
		uint64_t by = node->command.served[i].served_by;
		const struct tci_node *server =
		    by == TC_NO_COMMAND ? NULL : tci_store_find(&engine->store, by);
		node->ready[i] = server == NULL || server->state == TCI_ENDED;
	}
	node->asked = true;
}

static void answer_asking(struct tc_engine *engine)
{
	for (; engine->asking != 0; engine->asking &= engine->asking - 1) {
		struct tci_node *node = engine->lanes[__builtin_ctz(engine->asking)].head;
		if (node != NULL && !node->asked)
			answer(engine, node);
	}
}

/** Forget what no stall can reach any more: it ended before the last compute command did. */
static void forget(struct tc_engine *engine)
{
	struct tci_node *node = engine->kept;
	while (node != NULL && node->end_ps <= engine->compute_end_ps) {
		struct tci_node *next = node->next;
		tci_store_remove(&engine->store, node);
		node = next;
	}
	engine->kept = node;
	if (node == NULL)
		engine->kept_tail = NULL;
	while (engine->block_oldest < engine->block_count &&
	       engine->blocks[engine->block_oldest & (engine->block_capacity - 1)].end_ps <=
	           engine->compute_end_ps)
		engine->block_oldest++;
}

static enum tc_status report(struct tc_engine *engine, struct tci_node *node,
                             struct tc_error *error)
{
	if (!node->asked)
		answer(engine, node);
	struct tc_timing timing = {.issue_ps = node->issue_ps,
	                           .start_ps = node->start_ps,
	                           .end_ps = node->end_ps,
	                           .ready = node->ready};
	timing.ask_ps =
	    node->issue_ps > node->previous_end_ps ? node->issue_ps : node->previous_end_ps;
	if (node->queue == TC_QUEUE_COMPUTE && node->command.lane == 0)
		tci_attribute_stall(engine, node, &timing);
	if (engine->sink.finished == NULL)
		return TC_OK;
	return engine->sink.finished(engine->sink.self, &node->command, &timing, error);
}

static enum tc_status report_batch(struct tc_engine *engine, struct tc_error *error)
{
	bool compute_ended = false;
	for (size_t i = 0; i < engine->batch_count; i++) {
		struct tci_node *node = engine->batch[i];
		TC_TRY(report(engine, node, error));
		compute_ended |= node->queue == TC_QUEUE_COMPUTE && node->command.lane == 0;
		if (engine->kept_tail == NULL)
			engine->kept = node;
		else
			engine->kept_tail->next = node;
		engine->kept_tail = node;
	}
	engine->batch_count = 0;
	if (compute_ended) {
		engine->compute_end_ps = engine->now_ps;
		forget(engine);
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- time */

/** The next instant, and the lanes whose time it is. */
static void find_next(struct tc_engine *engine)
{
	uint64_t next = TCI_NEVER;
	uint32_t lanes = 0;
	for (uint32_t rest = engine->busy; rest != 0; rest &= rest - 1) {
		uint32_t index = (uint32_t)__builtin_ctz(rest);
		uint32_t bit = UINT32_C(1) << index;
		uint64_t due = engine->due_ps[index];
		uint32_t with = due == next ? lanes | bit : lanes;
		lanes = due < next ? bit : with;
		next = due < next ? due : next;
	}
	engine->next_ps = next;
	engine->next_lanes = lanes;
}

/** What is due ends, or its latency does. */
static enum tc_status expire(struct tc_engine *engine, struct tc_error *error)
{
	uint32_t lanes = engine->due;
	engine->due = 0;
	for (; lanes != 0; lanes &= lanes - 1) {
		uint32_t index = (uint32_t)__builtin_ctz(lanes);
		if (engine->lanes[index].phase == TCI_LATENCY)
			begin_flow(engine, index);
		else
			TC_TRY(finish(engine, index, error));
	}
	return TC_OK;
}

enum tc_status tci_settle(struct tc_engine *engine, struct tc_error *error)
{
	for (;;) {
		for (; engine->check != 0; engine->check &= engine->check - 1)
			TC_TRY(start_head(engine, (uint32_t)__builtin_ctz(engine->check), error));
		if (engine->due == 0)
			break;
		TC_TRY(expire(engine, error));
	}
	answer_asking(engine);
	if (engine->batch_count > 0)
		TC_TRY(report_batch(engine, error));
	if (engine->rates_stale)
		tci_flow_solve(engine);
	find_next(engine);
	return TC_OK;
}

/** Commands wait, and nothing is ever going to end: a time does not fit. */
static enum tc_status stuck(const struct tc_engine *engine, struct tc_error *error)
{
	for (uint32_t index = 0; index < engine->lane_count; index++) {
		const struct tci_lane *lane = &engine->lanes[index];
		if (lane->phase != TCI_FLOWING)
			continue;
		return tc_error_set(
		    error, TC_TOO_LARGE,
		    "command %llu (%s) would end later than 2^64 ps (213 days): "
		    "%llu bytes at %llu x 2^-40 bytes per ps; raise the machine's rate",
		    (unsigned long long)lane->head->command.id, tc_queue_name(lane->queue),
		    (unsigned long long)lane->head->flow_bytes, (unsigned long long)lane->rate);
	}
	return tc_error_set(error, TC_INTERNAL, "the engine has %llu commands that cannot start",
	                    (unsigned long long)engine->waiting);
}

/** Jump to the next instant. */
static enum tc_status advance(struct tc_engine *engine, struct tc_error *error)
{
	if (engine->next_ps == TCI_NEVER)
		return stuck(engine, error);
	engine->now_ps = engine->next_ps;
	engine->due = engine->next_lanes;
	TC_TRY(expire(engine, error));
	return tci_settle(engine, error);
}

enum tc_status tci_run_until(struct tc_engine *engine, uint64_t until_ps, struct tc_error *error)
{
	while (engine->next_ps <= until_ps)
		TC_TRY(advance(engine, error));
	return TC_OK;
}

enum tc_status tci_run_to_end_of(struct tc_engine *engine, uint64_t id, struct tc_error *error)
{
	/* The node may be gone when it has ended, so look it up anew each time. */
	for (;;) {
		const struct tci_node *node = tci_store_find(&engine->store, id);
		if (node == NULL || node->state == TCI_ENDED)
			return TC_OK;
		TC_TRY(advance(engine, error));
	}
}

enum tc_status tci_run_to_window(struct tc_engine *engine, uint64_t count, struct tc_error *error)
{
	while (engine->waiting > count)
		TC_TRY(advance(engine, error));
	return TC_OK;
}
