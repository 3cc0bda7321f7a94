/*
 * Second half of the oracle: which bytes can go wrong. One judge knows every pair of commands that
 * is ordered and every reader of every byte; the other one runs commands in random legal orders.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle_expand.h"
#include "random.h"

#define ORACLE_MAX_POOLS 32u
#define WORDS ((ORACLE_MAX_COMMANDS + 63) / 64)

/** Row y, bit x: x has certainly ended when y starts. */
struct order {
	uint64_t row[ORACLE_MAX_COMMANDS][WORDS];
	uint64_t direct[ORACLE_MAX_COMMANDS][WORDS];
};

static bool has(const uint64_t *row, uint64_t i)
{
	return (row[i / 64] >> (i % 64) & 1) != 0;
}

static void set(uint64_t *row, uint64_t i)
{
	row[i / 64] |= (uint64_t)1 << (i % 64);
}

static void close_order(const struct tc_schedule *schedule, struct order *order)
{
	for (uint64_t y = 0; y < schedule->command_count; y++) {
		const struct tc_command *b = &schedule->commands[y];
		for (uint64_t x = 0; x < y; x++) {
			const struct tc_command *a = &schedule->commands[x];
			bool lane = a->queue == b->queue && a->lane == b->lane;
			if (lane || a->queue == TC_QUEUE_HOST)
				set(order->direct[y], x);
		}
		for (uint32_t d = 0; d < b->dep_count; d++)
			set(order->direct[y], b->deps[d].id);
		for (uint64_t x = 0; x < y; x++)
			if (has(order->direct[y], x)) {
				set(order->row[y], x);
				for (unsigned w = 0; w < WORDS; w++)
					order->row[y][w] |= order->row[x][w];
			}
	}
}

/* ---------------------------------------------------------------- closure */

struct byte {
	uint32_t tensor;
	uint64_t version, offset;
	int64_t writer; /**< -1: there from the start */
	uint64_t readers[WORDS];
};

struct memory {
	const struct tc_plan_info *info;
	struct byte *bytes;
	size_t first[ORACLE_MAX_POOLS];
	size_t total;
};

static void reach(uint64_t *extent, uint64_t end)
{
	if (*extent < end)
		*extent = end;
}

/** Only as much of each pool as anything touches: real pools may be large and mostly empty. */
static void memory_start(struct memory *memory, const struct tc_schedule *schedule,
                         const struct expansion *expansion)
{
	const struct tc_plan_info *info = &schedule->info;
	uint64_t extent[ORACLE_MAX_POOLS] = {0};
	memory->info = info;
	memory->total = 0;
	if (info->pool_count > ORACLE_MAX_POOLS)
		abort();
	for (size_t a = 0; a < expansion->action_count; a++)
		reach(&extent[expansion->actions[a].at.pool],
		      expansion->actions[a].at.offset + expansion->actions[a].bytes);
	for (uint32_t t = 0; t < info->tensor_count; t++)
		if (info->tensors[t].placed)
			reach(&extent[info->tensors[t].start.pool],
			      info->tensors[t].start.offset + info->tensors[t].bytes);
	for (uint32_t c = 0; c < info->copy_count; c++)
		reach(&extent[info->copies[c].place.pool],
		      info->copies[c].place.offset + info->tensors[info->copies[c].tensor].bytes);
	for (uint32_t p = 0; p < schedule->end.place_count; p++) {
		const struct tc_final_place *place = &schedule->end.places[p];
		reach(&extent[place->place.pool],
		      place->place.offset + info->tensors[place->tensor].bytes);
	}
	for (uint32_t p = 0; p < info->pool_count; p++) {
		memory->first[p] = memory->total;
		memory->total += extent[p];
	}
	memory->bytes = calloc(memory->total, sizeof *memory->bytes);
	if (memory->bytes == NULL)
		abort();
	for (size_t i = 0; i < memory->total; i++)
		memory->bytes[i] = (struct byte){TC_NONE, NO_CONTENT, 0, -1, {0}};
	for (uint32_t i = 0; i < info->tensor_count + info->copy_count; i++) {
		bool copy = i >= info->tensor_count;
		uint32_t t = copy ? info->copies[i - info->tensor_count].tensor : i;
		if (!copy && !info->tensors[t].placed)
			continue;
		struct tc_place at =
		    copy ? info->copies[i - info->tensor_count].place : info->tensors[t].start;
		for (uint64_t o = 0; o < info->tensors[t].bytes; o++)
			memory->bytes[memory->first[at.pool] + at.offset + o] =
			    (struct byte){t, 0, o, -1, {0}};
	}
}

/** NULL, or what is wrong with this access to one byte. */
static const char *touch(struct byte *byte, const struct action *action, uint64_t at, uint64_t id,
                         const uint64_t *before)
{
	bool writes = action->kind != ACTION_READ;
	const char *wrong = NULL;
	if (action->kind == ACTION_FORGET) {
		if (byte->tensor == action->tensor)
			byte->version = NO_CONTENT;
		return NULL;
	}
	if (action->kind == ACTION_RENEW &&
	    (byte->tensor != action->tensor || byte->version != action->from_version))
		return NULL;
	if (byte->writer >= 0 && (uint64_t)byte->writer != id &&
	    !has(before, (uint64_t)byte->writer))
		wrong = "its writer is not ordered before";
	if (!writes) {
		if (byte->tensor != action->tensor || byte->version != action->version ||
		    byte->offset != action->offset + at)
			wrong = "other content";
		set(byte->readers, id);
		return wrong;
	}
	for (unsigned w = 0; w < WORDS; w++) {
		uint64_t own = id / 64 == w ? (uint64_t)1 << (id % 64) : 0;
		if ((byte->readers[w] & ~before[w] & ~own) != 0)
			wrong = "a reader is not ordered before";
	}
	*byte =
	    (struct byte){action->tensor, action->version, action->offset + at, (int64_t)id, {0}};
	return wrong;
}

/** Every byte of every tensor that outlives the schedule, in its latest version, somewhere. */
static bool all_kept(const struct memory *memory, const struct expansion *expansion)
{
	const struct tc_plan_info *info = memory->info;
	bool all = true;
	for (uint32_t t = 0; all && t < info->tensor_count; t++) {
		bool kept = t < info->trace->tensor_count
		                ? info->trace->tensors[t].persistent
		                : info->tensors[t].kind == TC_OPTIMIZER_STATE;
		uint64_t version = expansion_version(expansion, t),
		         missing = info->tensors[t].bytes;
		if (!kept)
			continue;
		bool *found = calloc(missing, sizeof *found);
		if (found == NULL)
			abort();
		for (size_t i = 0; i < memory->total; i++) {
			const struct byte *byte = &memory->bytes[i];
			if (byte->tensor != t || byte->version != version || found[byte->offset])
				continue;
			found[byte->offset] = true;
			missing--;
		}
		free(found);
		all = missing == 0;
	}
	return all;
}

static bool places_hold(const struct memory *memory, const struct expansion *expansion,
                        const struct tc_plan_end *end)
{
	for (uint32_t p = 0; p < end->place_count; p++) {
		const struct tc_final_place *place = &end->places[p];
		for (uint64_t o = 0; o < memory->info->tensors[place->tensor].bytes; o++) {
			const struct byte *byte = &memory->bytes[memory->first[place->place.pool] +
			                                         place->place.offset + o];
			if (byte->tensor != place->tensor || byte->offset != o ||
			    byte->version != expansion_version(expansion, place->tensor))
				return false;
		}
	}
	return true;
}

static void judge_closure(const struct tc_schedule *schedule, const struct expansion *expansion,
                          const struct order *order, struct oracle_verdict *verdict)
{
	struct memory memory;
	memory_start(&memory, schedule, expansion);
	for (uint64_t id = 0; id < schedule->command_count; id++)
		for (size_t a = expansion->first[id]; a < expansion->first[id + 1]; a++) {
			const struct action *action = &expansion->actions[a];
			struct byte *bytes =
			    &memory.bytes[memory.first[action->at.pool] + action->at.offset];
			for (uint64_t o = 0; o < action->bytes; o++) {
				const char *wrong = touch(&bytes[o], action, o, id, order->row[id]);
				if (wrong == NULL || verdict->closure_wrong)
					continue;
				verdict->closure_wrong = true;
				(void)snprintf(verdict->why, sizeof verdict->why,
				               "command %d tensor %d at %u:%d: %s", (int)id,
				               (int)action->tensor, action->at.pool,
				               (int)(action->at.offset + o), wrong);
			}
		}
	if (!verdict->closure_wrong &&
	    (!all_kept(&memory, expansion) || !places_hold(&memory, expansion, &schedule->end))) {
		verdict->closure_wrong = true;
		(void)snprintf(verdict->why, sizeof verdict->why, "a tensor is lost at the end");
	}
	free(memory.bytes);
}

/* ---------------------------------------------------------------- execution */

/** Value of a byte: any hash that tells tensor, version and offset apart. */
static uint64_t value(uint32_t tensor, uint64_t version, uint64_t offset)
{
	uint64_t key = ((uint64_t)tensor * 1000003u + version) * 1000003u + offset;
	return test_random(&key);
}

static void renew(uint64_t *bytes, const struct action *action)
{
	for (uint64_t o = 0; o < action->bytes; o++)
		if (bytes[o] == value(action->tensor, action->from_version, action->offset + o))
			bytes[o] = value(action->tensor, action->version, action->offset + o);
}

/** Run one command on the bytes; false when it read something else than it wants. */
static bool run(const struct expansion *expansion, const size_t *first, uint64_t *bytes,
                uint64_t id)
{
	bool right = true;
	const uint64_t *read = bytes;
	for (size_t a = expansion->first[id]; a < expansion->first[id + 1]; a++) {
		const struct action *action = &expansion->actions[a];
		uint64_t *at = &bytes[first[action->at.pool] + action->at.offset];
		if (action->kind == ACTION_READ) {
			for (uint64_t o = 0; o < action->bytes; o++)
				right &= at[o] ==
				         value(action->tensor, action->version, action->offset + o);
			read = at;
		} else if (action->kind == ACTION_COPY) {
			memmove(at, read, action->bytes * sizeof *at);
		} else if (action->kind == ACTION_RENEW) {
			renew(at, action);
		} else if (action->kind == ACTION_WRITE) {
			for (uint64_t o = 0; o < action->bytes; o++)
				at[o] = value(action->tensor, action->version, action->offset + o);
		}
	}
	return right;
}

static bool runnable(const struct tc_schedule *schedule, const struct order *order,
                     const uint64_t *done, uint64_t id)
{
	(void)schedule;
	for (unsigned w = 0; w < WORDS; w++)
		if ((order->direct[id][w] & ~done[w]) != 0)
			return false;
	return true;
}

/** A random legal order: each command has a random urgency; the most urgent runnable one is next.
 * Half of the orders favour one queue, to push it as far ahead as it can get. */
static bool execute(const struct tc_schedule *schedule, const struct expansion *expansion,
                    const struct order *order, struct memory *memory, uint64_t *random)
{
	uint64_t done[WORDS] = {0}, urgency[ORACLE_MAX_COMMANDS];
	uint64_t favourite = test_random_below(random, 2 * TC_QUEUE_COUNT);
	uint64_t *bytes = calloc(memory->total, sizeof *bytes);
	if (bytes == NULL)
		abort();
	for (size_t i = 0; i < memory->total; i++)
		bytes[i] = value(memory->bytes[i].tensor, memory->bytes[i].version,
		                 memory->bytes[i].offset);
	for (uint64_t c = 0; c < schedule->command_count; c++) {
		urgency[c] = test_random(random) >> 2;
		if (schedule->commands[c].queue == favourite)
			urgency[c] |= (uint64_t)1 << 63;
	}
	bool right = true;
	for (uint64_t n = 0; n < schedule->command_count && right; n++) {
		uint64_t next = TC_NO_COMMAND;
		for (uint64_t c = 0; c < schedule->command_count; c++)
			if (!has(done, c) && runnable(schedule, order, done, c) &&
			    (next == TC_NO_COMMAND || urgency[c] > urgency[next]))
				next = c;
		right = run(expansion, memory->first, bytes, next);
		set(done, next);
	}
	for (uint32_t p = 0; right && p < schedule->end.place_count; p++) {
		const struct tc_final_place *place = &schedule->end.places[p];
		for (uint64_t o = 0; o < schedule->info.tensors[place->tensor].bytes; o++)
			right &=
			    bytes[memory->first[place->place.pool] + place->place.offset + o] ==
			    value(place->tensor, expansion_version(expansion, place->tensor), o);
	}
	free(bytes);
	return right;
}

struct oracle_verdict oracle_judge(const struct tc_schedule *schedule, unsigned orders,
                                   uint64_t seed)
{
	struct oracle_verdict verdict = {0};
	struct expansion *expansion = expansion_new(schedule);
	struct order *order = calloc(1, sizeof *order);
	if (order == NULL)
		abort();
	if (expansion->faults > 0) {
		verdict.fault = true;
		(void)snprintf(verdict.why, sizeof verdict.why, "%s", expansion->why);
	}
	close_order(schedule, order);
	judge_closure(schedule, expansion, order, &verdict);
	struct memory memory;
	memory_start(&memory, schedule, expansion);
	for (unsigned o = 0; o < orders && !verdict.execution_wrong; o++)
		verdict.execution_wrong = !execute(schedule, expansion, order, &memory, &seed);
	free(memory.bytes);
	verdict.wrong = verdict.fault || verdict.closure_wrong || verdict.execution_wrong;
	free(order);
	expansion_free(expansion);
	return verdict;
}
