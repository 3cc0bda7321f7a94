/*
 * Commands for the oracle's plans. Slots are fixed; each knows who wrote and read it last. A
 * command gets a dependency only where no other path leads to it already (all ancestors are kept as
 * bits), so that leaving one out usually matters.
 */
#include "oracle_maker.h"

#include <stdlib.h>
#include <string.h>

#include "random.h"

void maker_bits_set(struct bits *bits, uint64_t i)
{
	bits->word[i / 64] |= (uint64_t)1 << (i % 64);
}

static bool bits_has(const struct bits *bits, uint64_t i)
{
	return (bits->word[i / 64] >> (i % 64) & 1) != 0;
}

static void bits_join(struct bits *bits, const struct bits *other)
{
	for (unsigned w = 0; w < WORDS; w++)
		bits->word[w] |= other->word[w];
}

uint64_t maker_chance(struct maker *maker, uint64_t bound)
{
	return test_random_below(&maker->random, bound);
}

uint32_t maker_add_slot(struct maker *maker, uint32_t pool, uint64_t bytes)
{
	struct slot *slot = &maker->slots[maker->slot_count];
	slot->place = (struct tc_place){pool, maker->pools[pool].bytes};
	slot->bytes = bytes;
	maker->pools[pool].bytes += bytes;
	return maker->slot_count++;
}

uint32_t maker_add_derived(struct maker *maker, uint32_t from, enum tc_tensor_kind kind,
                           enum tc_role role)
{
	maker->tensors[maker->tensor_count] =
	    (struct tc_plan_tensor){.name = "derived",
	                            .kind = kind,
	                            .role = role,
	                            .bytes = 2 * maker->tensors[from].bytes,
	                            .derived_from = from,
	                            .home = TC_CPU};
	return maker->tensor_count++;
}

void maker_start_at(struct maker *maker, uint32_t tensor, uint32_t slot)
{
	maker->tensors[tensor].placed = true;
	maker->tensors[tensor].start = maker->slots[slot].place;
}

/* ---------------------------------------------------------------- emitting */

struct tc_command maker_blank(enum tc_command_kind kind, enum tc_queue queue)
{
	return (struct tc_command){.kind = kind,
	                           .queue = queue,
	                           .tensor = TC_NONE,
	                           .src = {TC_NO_POOL, 0},
	                           .dst = {TC_NO_POOL, 0},
	                           .first_op = TC_NONE,
	                           .last_op = TC_NONE,
	                           .first_chunk = true,
	                           .last_chunk = true};
}

static bool has_work(enum tc_command_kind kind)
{
	return kind == TC_COMPUTE || kind == TC_UPDATE || kind == TC_CONVERT;
}

/** Name from `wanted`, latest first, what `known` lacks. */
static uint32_t choose(struct maker *maker, const struct bits *wanted, struct bits *known,
                       enum tc_reason reason, struct tc_dependency *deps, uint32_t count)
{
	for (uint64_t id = maker->count; id-- > 0;)
		if (bits_has(wanted, id) && !bits_has(known, id)) {
			deps[count++] = (struct tc_dependency){id, reason};
			bits_join(known, &maker->ancestors[id]);
			maker_bits_set(known, id);
		}
	return count;
}

/** Fields that nothing here depends on, so that copies and files can be compared in full. */
static void decorate(struct maker *maker, struct tc_command *command, struct tc_served *served,
                     struct tc_memory_change *memory)
{
	command->phase = (enum tc_phase)maker_chance(maker, TC_PHASE_COUNT);
	command->launches = (uint32_t)maker_chance(maker, 3);
	command->hooks = (uint32_t)maker_chance(maker, 3);
	command->pageable = command->kind <= TC_GRADIENT && maker_chance(maker, 4) == 0;
	command->traffic_bytes = maker_chance(maker, 2) * maker_chance(maker, 1u << 20);
	if (command->queue == TC_QUEUE_HOST)
		command->duration_ps = maker_chance(maker, 1000);
	command->memory = memory;
	command->memory_count = (uint32_t)maker_chance(maker, 3);
	for (uint32_t m = 0; m < command->memory_count; m++)
		memory[m] = (struct tc_memory_change){
		    (int64_t)maker_chance(maker, 4096) - 2048,
		    maker_chance(maker, 2) == 0 ? TC_NO_COMMAND
		                                : maker_chance(maker, maker->count + 1),
		    (enum tc_tier)maker_chance(maker, TC_TIER_COUNT),
		    (enum tc_tensor_kind)maker_chance(maker, TC_TENSOR_KIND_COUNT)};
	command->served = served;
	command->served_count = has_work(command->kind) ? (uint32_t)maker_chance(maker, 3) : 0;
	for (uint32_t s = 0; s < command->served_count; s++)
		served[s] = (struct tc_served){
		    (uint32_t)maker_chance(maker, maker->tensor_count),
		    (enum tc_outcome)maker_chance(maker, 3), maker_chance(maker, 2) == 0,
		    maker_chance(maker, 2) == 0,
		    maker_chance(maker, 2) == 0 ? TC_NO_COMMAND
		                                : maker_chance(maker, maker->count + 1)};
}

uint64_t maker_emit_after(struct maker *maker, struct tc_command *command, const struct bits *data,
                          const struct bits *slots)
{
	struct tc_dependency deps[ORACLE_MAX_COMMANDS];
	uint32_t lane = tc_lane_index(maker->info.lanes, command->queue, command->lane);
	struct bits known = maker->host;
	bits_join(&known, &maker->lane[lane]);
	uint32_t count = choose(maker, data, &known, TC_REASON_DATA, deps, 0);
	count = choose(maker, slots, &known, TC_REASON_SLOT, deps, count);
	struct tc_served served[2];
	struct tc_memory_change memory[2];
	decorate(maker, command, served, memory);
	command->id = maker->count;
	command->iteration = maker->iteration;
	command->step = maker->step;
	command->deps = deps;
	command->dep_count = count;
	struct tc_error error = {0};
	if (maker->count >= ORACLE_MAX_COMMANDS ||
	    maker->sink.command(maker->sink.self, command, &error) != TC_OK)
		abort();
	maker->ancestors[maker->count] = known;
	maker_bits_set(&known, maker->count);
	maker->lane[lane] = known;
	if (command->queue == TC_QUEUE_HOST)
		bits_join(&maker->host, &known);
	return maker->count++;
}

/** Emit a command that uses slots; later users will come after it. */
uint64_t maker_emit(struct maker *maker, struct tc_command *command, const struct use *uses,
                    size_t use_count)
{
	struct bits data = {0}, slots = {0};
	for (size_t u = 0; u < use_count; u++) {
		const struct slot *slot = &maker->slots[uses[u].slot];
		bits_join(uses[u].write ? &slots : &data, &slot->writers);
		if (uses[u].write)
			bits_join(&slots, &slot->readers);
	}
	uint64_t id = maker_emit_after(maker, command, &data, &slots);
	for (size_t u = 0; u < use_count; u++) {
		struct slot *slot = &maker->slots[uses[u].slot];
		if (uses[u].write) {
			memset(&slot->writers, 0, sizeof slot->writers);
			memset(&slot->readers, 0, sizeof slot->readers);
			maker_bits_set(&slot->writers, id);
		} else {
			maker_bits_set(&slot->readers, id);
		}
	}
	return id;
}

uint32_t maker_any_lane(struct maker *maker, enum tc_queue queue)
{
	return (uint32_t)maker_chance(maker, maker->info.lanes[queue]);
}

/** One move, or two chunks that write their parts of the slot independently. */
uint64_t maker_move(struct maker *maker, enum tc_command_kind kind, enum tc_queue queue,
                    uint32_t tensor, uint32_t from, uint32_t to)
{
	uint64_t size = maker->tensors[tensor].bytes, half = size / 32 * 16;
	bool chunks = half > 0 && maker_chance(maker, 3) == 0;
	struct slot *source = &maker->slots[from], *target = &maker->slots[to];
	struct bits users = target->writers, written = {0};
	bits_join(&users, &target->readers);
	uint64_t last = TC_NO_COMMAND;
	for (unsigned c = 0; c < (chunks ? 2u : 1u); c++) {
		struct tc_command command = maker_blank(kind, queue);
		command.lane = maker_any_lane(maker, queue);
		command.tensor = tensor;
		command.version = maker->version[tensor];
		command.tensor_offset = c * half;
		command.bytes = !chunks ? size : c == 0 ? half : size - half;
		command.first_chunk = c == 0;
		command.last_chunk = !chunks || c == 1;
		command.src = source->place;
		command.src.offset += command.tensor_offset;
		command.dst = target->place;
		command.dst.offset += command.tensor_offset;
		command.why = TC_WHY_PREFETCH;
		last = maker_emit_after(maker, &command, &source->writers, &users);
		maker_bits_set(&source->readers, last);
		maker_bits_set(&written, last);
	}
	target->writers = written;
	memset(&target->readers, 0, sizeof target->readers);
	return last;
}

struct tc_bind maker_bind_at(const struct maker *maker, uint32_t tensor, uint32_t slot,
                             enum tc_access access)
{
	return (struct tc_bind){tensor,
	                        maker->slots[slot].place.pool,
	                        maker->slots[slot].place.offset,
	                        maker->tensors[tensor].bytes,
	                        maker->version[tensor],
	                        access};
}
