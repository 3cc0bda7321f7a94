/*
 * Mutants: one small change to a sound schedule. Some stay sound; the judges say which.
 */
#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "random.h"

#define MAX_COMMANDS (ORACLE_MAX_COMMANDS + 1)

const char *oracle_mutation_name(enum oracle_mutation mutation)
{
	static const char *const names[ORACLE_MUTATION_COUNT] = {
	    "dropped dependency", "other dependency", "swapped ids",   "shrunken move",
	    "shifted target",     "shifted source",   "other slot",    "shifted bind",
	    "stale source",       "other tensor",     "wrong version", "dropped dirty copy",
	    "dropped command",    "dropped wait",     "run twice",     "other lane",
	    "capacity",           "other ops",        "other bind",    "final place"};
	return names[mutation];
}

/** A schedule under change. Commands own their lists (tc_command_copy). */
struct draft {
	const struct tc_schedule *original;
	struct tc_command commands[MAX_COMMANDS];
	uint64_t count;
	struct tc_plan_info info;
	struct tc_machine *machine;
	struct tc_final_place places[256];
	uint32_t place_count;
	uint64_t random;
};

static uint64_t chance(struct draft *draft, uint64_t bound)
{
	return test_random_below(&draft->random, bound);
}

static bool is_move(const struct tc_command *command)
{
	return command->kind <= TC_GRADIENT;
}

static bool is_copy_down(const struct tc_command *command)
{
	return command->kind == TC_EVICT || command->kind == TC_SPILL ||
	       command->kind == TC_GRADIENT ||
	       (command->kind == TC_CONVERT && command->queue == TC_QUEUE_CPU);
}

static bool is_wait(const struct tc_command *command)
{
	return command->kind == TC_WAIT;
}

static bool has_binds(const struct tc_command *command)
{
	return command->bind_count > 0;
}

static bool has_deps(const struct tc_command *command)
{
	return command->dep_count > 0;
}

static bool has_version(const struct tc_command *command)
{
	return is_move(command) || has_binds(command);
}

static bool has_ops(const struct tc_command *command)
{
	return command->kind == TC_COMPUTE || command->kind == TC_UPDATE;
}

static bool any(const struct tc_command *command)
{
	(void)command;
	return true;
}

/** A random command that fits, or NULL. */
static struct tc_command *pick(struct draft *draft, bool (*fits)(const struct tc_command *))
{
	for (unsigned attempt = 0; attempt < 2000; attempt++) {
		struct tc_command *command = &draft->commands[chance(draft, draft->count)];
		if (fits(command))
			return command;
	}
	return NULL;
}

static struct tc_dependency *deps_of(struct tc_command *command)
{
	return (struct tc_dependency *)(uintptr_t)command->deps;
}

static struct tc_bind *any_bind(struct draft *draft, struct tc_command *command)
{
	return (struct tc_bind *)(uintptr_t)&command->binds[chance(draft, command->bind_count)];
}

/* ---------------------------------------------------------------- changes of order */

/** Give every command the id of its position; `position` maps old ids to new ones. */
static void renumber(struct draft *draft, const uint64_t *position)
{
	for (uint64_t c = 0; c < draft->count; c++) {
		struct tc_command *command = &draft->commands[c];
		command->id = c;
		struct tc_dependency *deps = deps_of(command);
		for (uint32_t d = 0; d < command->dep_count; d++)
			deps[d].id = position[deps[d].id];
	}
}

/** An end record without places: then only the audit itself can tell what is lost. */
static void maybe_forget_places(struct draft *draft)
{
	if (chance(draft, 2) == 0)
		draft->place_count = 0;
}

/** Take command `at` out. What waited for it waits for what it waited for, if `inherit`. */
static void take_out(struct draft *draft, uint64_t at, bool inherit)
{
	maybe_forget_places(draft);
	struct tc_command gone = draft->commands[at];
	uint64_t position[MAX_COMMANDS];
	for (uint64_t c = 0; c < draft->count; c++)
		position[c] = c < at ? c : c - 1;
	for (uint64_t c = at + 1; c < draft->count; c++) {
		struct tc_command *command = &draft->commands[c];
		struct tc_dependency deps[2 * MAX_COMMANDS];
		uint32_t count = 0;
		for (uint32_t d = 0; d < command->dep_count; d++) {
			if (command->deps[d].id != at) {
				deps[count++] = command->deps[d];
				continue;
			}
			for (uint32_t g = 0; inherit && g < gone.dep_count; g++)
				deps[count++] = gone.deps[g];
		}
		struct tc_command changed = *command, copy;
		changed.deps = deps;
		changed.dep_count = count;
		if (tc_command_copy(&copy, &changed, NULL) != TC_OK)
			abort();
		tc_command_clear(command);
		draft->commands[c - 1] = copy;
	}
	tc_command_clear(&gone);
	draft->count--;
	renumber(draft, position);
}

/** Run command `at` again at a later position, with the same dependencies. */
static bool run_twice(struct draft *draft, uint64_t at)
{
	uint64_t to = at + 1 + chance(draft, draft->count - at);
	uint64_t position[MAX_COMMANDS];
	struct tc_command copy;
	if (draft->count + 1 >= MAX_COMMANDS ||
	    tc_command_copy(&copy, &draft->commands[at], NULL) != TC_OK)
		return false;
	memmove(&draft->commands[to + 1], &draft->commands[to],
	        (draft->count - to) * sizeof *draft->commands);
	draft->commands[to] = copy;
	draft->commands[to].iteration = draft->commands[to - 1].iteration;
	draft->count++;
	for (uint64_t c = 0; c < draft->count; c++)
		position[c] = c < to ? c : c + 1;
	renumber(draft, position);
	return true;
}

/** Move a later command in front of an earlier one. */
static bool swap(struct draft *draft)
{
	uint64_t distance = 1 + chance(draft, 6);
	if (draft->count <= distance)
		return false;
	uint64_t to = chance(draft, draft->count - distance), from = to + distance;
	uint64_t position[MAX_COMMANDS];
	struct tc_command moved = draft->commands[from];
	memmove(&draft->commands[to + 1], &draft->commands[to],
	        (from - to) * sizeof *draft->commands);
	draft->commands[to] = moved;
	for (uint64_t c = 0; c < draft->count; c++)
		position[c] = c < to || c > from ? c : c == from ? to : c + 1;
	renumber(draft, position);
	return true;
}

/* ---------------------------------------------------------------- changes of one command */

static bool other_dependency(struct draft *draft)
{
	struct tc_command *command = pick(draft, has_deps);
	if (command == NULL)
		return false;
	deps_of(command)[chance(draft, command->dep_count)].id = chance(draft, command->id);
	return true;
}

static bool drop_dependency(struct draft *draft)
{
	struct tc_command *command = pick(draft, has_deps);
	if (command == NULL)
		return false;
	deps_of(command)[chance(draft, command->dep_count)] = command->deps[command->dep_count - 1];
	command->dep_count--;
	return true;
}

static uint64_t shift(struct draft *draft, uint64_t offset)
{
	uint64_t by = chance(draft, 2) == 0 ? 16 : 1 + chance(draft, 40);
	return chance(draft, 2) == 0 || by > offset ? offset + by : offset - by;
}

static bool shrink(struct draft *draft)
{
	struct tc_command *command = pick(draft, is_move);
	if (command == NULL || command->bytes < 2)
		return false;
	command->bytes -= chance(draft, 2) == 0 ? 1 : 1 + chance(draft, command->bytes - 1);
	return true;
}

/** Where some other command moved bytes to, in a pool of the same tier. */
static bool other_slot(struct draft *draft)
{
	struct tc_command *command = pick(draft, is_move), *other = pick(draft, is_move);
	if (command == NULL || other == NULL)
		return false;
	struct tc_place place = chance(draft, 2) == 0 ? other->dst : other->src;
	if (draft->info.pools[place.pool].tier != draft->info.pools[command->dst.pool].tier ||
	    (place.pool == command->dst.pool && place.offset == command->dst.offset))
		return false;
	command->dst = place;
	return true;
}

static bool shift_bind(struct draft *draft)
{
	struct tc_command *command = pick(draft, has_binds);
	if (command == NULL)
		return false;
	struct tc_bind *bind = any_bind(draft, command);
	bind->offset = shift(draft, bind->offset);
	return true;
}

/** Another place in the source's tier where the same part of the tensor was written before. */
static bool stale_source(struct draft *draft)
{
	struct tc_command *command = pick(draft, is_move);
	if (command == NULL)
		return false;
	for (uint64_t c = command->id; c-- > 0;) {
		const struct tc_command *earlier = &draft->commands[c];
		for (uint32_t b = 0; b < earlier->bind_count; b++) {
			const struct tc_bind *bind = &earlier->binds[b];
			struct tc_place place = {bind->pool, bind->offset + command->tensor_offset};
			if (bind->tensor != command->tensor || bind->access == TC_READ ||
			    draft->info.pools[place.pool].tier !=
			        draft->info.pools[command->src.pool].tier ||
			    (place.pool == command->src.pool &&
			     place.offset == command->src.offset))
				continue;
			command->src = place;
			return true;
		}
	}
	return false;
}

static bool other_tensor(struct draft *draft)
{
	struct tc_command *command = pick(draft, is_move);
	uint32_t tensor = (uint32_t)chance(draft, draft->info.tensor_count);
	if (command == NULL || tensor == command->tensor)
		return false;
	command->tensor = tensor;
	return true;
}

static bool wrong_version(struct draft *draft)
{
	struct tc_command *command = pick(draft, has_version);
	if (command == NULL)
		return false;
	uint64_t *version = &command->version;
	if (has_binds(command)) {
		struct tc_bind *bind = any_bind(draft, command);
		if (bind->tensor == TC_NONE)
			return false;
		version = &bind->version;
	}
	*version = *version > 0 && chance(draft, 2) == 0 ? *version - 1 : *version + 1;
	return true;
}

static bool other_lane(struct draft *draft)
{
	struct tc_command *command = pick(draft, any);
	uint32_t lanes = draft->info.lanes[command->queue];
	if (lanes < 2)
		return false;
	command->lane = (command->lane + 1 + (uint32_t)chance(draft, lanes - 1)) % lanes;
	return true;
}

static bool other_ops(struct draft *draft)
{
	struct tc_command *command = pick(draft, has_ops);
	if (command == NULL)
		return false;
	uint32_t *end = chance(draft, 2) == 0 ? &command->first_op : &command->last_op;
	*end = chance(draft, 2) == 0 ? *end + 1 : *end - 1;
	return true;
}

/** Content, place and version of another bind in the same tier; the access stays. */
static bool other_bind(struct draft *draft)
{
	struct tc_command *command = pick(draft, has_binds), *other = pick(draft, has_binds);
	if (command == NULL || other == NULL || command->queue != other->queue)
		return false;
	struct tc_bind *bind = any_bind(draft, command);
	const struct tc_bind *named = any_bind(draft, other);
	if (named->tensor == bind->tensor)
		return false;
	enum tc_access access = bind->access;
	*bind = *named;
	bind->access = access;
	return true;
}

static bool final_place(struct draft *draft)
{
	struct tc_final_place *place = &draft->places[chance(draft, draft->place_count)];
	uint64_t choice = chance(draft, 3);
	if (choice == 0)
		place->version += 1;
	else if (choice == 1)
		place->place.offset = shift(draft, place->place.offset);
	else
		place->place.pool = (uint32_t)chance(draft, draft->info.pool_count);
	return true;
}

static bool capacity(struct draft *draft)
{
	uint64_t tier = chance(draft, TC_TIER_COUNT);
	draft->machine->capacity_bytes[tier] -= 1;
	return true;
}

static bool change(struct draft *draft, enum oracle_mutation mutation)
{
	struct tc_command *command = NULL;
	switch (mutation) {
	case ORACLE_DROP_DEPENDENCY:
		return drop_dependency(draft);
	case ORACLE_OTHER_DEPENDENCY:
		return other_dependency(draft);
	case ORACLE_SWAP:
		return swap(draft);
	case ORACLE_SHRINK:
		return shrink(draft);
	case ORACLE_SHIFT_TARGET:
		if ((command = pick(draft, is_move)) != NULL)
			command->dst.offset = shift(draft, command->dst.offset);
		return command != NULL;
	case ORACLE_SHIFT_SOURCE:
		if ((command = pick(draft, is_move)) != NULL)
			command->src.offset = shift(draft, command->src.offset);
		return command != NULL;
	case ORACLE_OTHER_SLOT:
		return other_slot(draft);
	case ORACLE_SHIFT_BIND:
		return shift_bind(draft);
	case ORACLE_STALE_SOURCE:
		return stale_source(draft);
	case ORACLE_OTHER_TENSOR:
		return other_tensor(draft);
	case ORACLE_WRONG_VERSION:
		return wrong_version(draft);
	case ORACLE_DROP_DIRTY_COPY:
		if ((command = pick(draft, is_copy_down)) != NULL)
			take_out(draft, command->id, true);
		return command != NULL;
	case ORACLE_DROP_COMMAND:
		take_out(draft, pick(draft, any)->id, true);
		return true;
	case ORACLE_DROP_WAIT:
		if ((command = pick(draft, is_wait)) != NULL)
			take_out(draft, command->id, false);
		return command != NULL;
	case ORACLE_DUPLICATE:
		return run_twice(draft, pick(draft, any)->id);
	case ORACLE_OTHER_LANE:
		return other_lane(draft);
	case ORACLE_CAPACITY:
		return capacity(draft);
	case ORACLE_OTHER_OPS:
		return other_ops(draft);
	case ORACLE_OTHER_BIND:
		return other_bind(draft);
	case ORACLE_FINAL_PLACE:
		return final_place(draft);
	case ORACLE_MUTATION_COUNT:
		break;
	}
	return false;
}

/* ---------------------------------------------------------------- the mutant */

static struct tc_schedule *publish(const struct draft *draft)
{
	struct tc_schedule *schedule;
	if (tc_schedule_create(&schedule, NULL) != TC_OK)
		abort();
	struct tc_sink sink = tc_schedule_sink(schedule);
	struct tc_plan_end end = {draft->count, draft->places, draft->place_count};
	bool stored = sink.begin(sink.self, &draft->info, NULL) == TC_OK;
	for (uint64_t c = 0; stored && c < draft->count; c++)
		stored = sink.command(sink.self, &draft->commands[c], NULL) == TC_OK;
	if (!stored || sink.end(sink.self, &end, NULL) != TC_OK)
		abort();
	return schedule;
}

struct tc_schedule *oracle_mutate(const struct tc_schedule *schedule, enum oracle_mutation mutation,
                                  uint64_t seed, struct tc_machine *machine)
{
	struct draft *draft = calloc(1, sizeof *draft);
	if (draft == NULL || schedule->command_count >= ORACLE_MAX_COMMANDS ||
	    schedule->end.place_count > 256)
		abort();
	draft->original = schedule;
	draft->random = seed;
	draft->count = schedule->command_count;
	for (uint64_t c = 0; c < draft->count; c++)
		if (tc_command_copy(&draft->commands[c], &schedule->commands[c], NULL) != TC_OK)
			abort();
	draft->place_count = schedule->end.place_count;
	memcpy(draft->places, schedule->end.places,
	       schedule->end.place_count * sizeof *draft->places);
	*machine = *schedule->info.machine;
	draft->machine = machine;
	draft->info = schedule->info;
	draft->info.machine = machine;
	struct tc_schedule *mutant = NULL;
	if (change(draft, mutation) && draft->count <= ORACLE_MAX_COMMANDS)
		mutant = publish(draft);
	for (uint64_t c = 0; c < draft->count; c++)
		tc_command_clear(&draft->commands[c]);
	free(draft);
	return mutant;
}
