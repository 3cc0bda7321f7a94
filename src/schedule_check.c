/*
 * Checks of single records: cheap, since the auditor runs them for every command.
 */
#include "schedule_check.h"

#include <inttypes.h>

/** [offset, offset + bytes) inside a pool; bytes > 0. */
static bool inside(const struct tc_plan_info *info, uint32_t pool, uint64_t offset, uint64_t bytes)
{
	return pool < info->pool_count && offset < info->pools[pool].bytes &&
	       bytes <= info->pools[pool].bytes - offset;
}

static enum tc_status check_place(const struct tc_plan_info *info, struct tc_place place,
                                  uint64_t bytes, const char *what, uint64_t number,
                                  struct tc_error *error)
{
	if (inside(info, place.pool, place.offset, bytes))
		return TC_OK;
	if (place.pool >= info->pool_count)
		return tc_error_set(error, TC_FORMAT,
		                    "%s %" PRIu64 ": found pool %" PRIu32
		                    ", expected one of %" PRIu32 " pools",
		                    what, number, place.pool, info->pool_count);
	return tc_error_set(error, TC_FORMAT,
	                    "%s %" PRIu64 ": found offset %" PRIu64 " + %" PRIu64
	                    " bytes in pool '%s', expected a range inside its %" PRIu64 " bytes",
	                    what, number, place.offset, bytes, info->pools[place.pool].name,
	                    info->pools[place.pool].bytes);
}

static enum tc_status check_tensors(const struct tc_plan_info *info, struct tc_error *error)
{
	for (uint32_t t = 0; t < info->tensor_count; t++) {
		const struct tc_plan_tensor *tensor = &info->tensors[t];
		if (tensor->bytes == 0 || (unsigned)tensor->kind >= TC_TENSOR_KIND_COUNT ||
		    (unsigned)tensor->home >= TC_TIER_COUNT)
			return tc_error_set(error, TC_FORMAT,
			                    "tensor %" PRIu32 ": found %" PRIu64
			                    " bytes, kind %u, home %u; expected bytes above 0 and "
			                    "known words",
			                    t, tensor->bytes, (unsigned)tensor->kind,
			                    (unsigned)tensor->home);
		if (tensor->derived_from != TC_NONE && tensor->derived_from >= t)
			return tc_error_set(error, TC_FORMAT,
			                    "tensor %" PRIu32 ": found derived_from %" PRIu32
			                    ", expected a smaller id",
			                    t, tensor->derived_from);
		if (tensor->placed)
			TC_TRY(check_place(info, tensor->start, tensor->bytes, "start of tensor", t,
			                   error));
	}
	for (uint32_t c = 0; c < info->copy_count; c++) {
		uint32_t t = info->copies[c].tensor;
		if (t >= info->tensor_count)
			return tc_error_set(error, TC_FORMAT,
			                    "initial copy %" PRIu32 ": found tensor %" PRIu32
			                    ", expected one of %" PRIu32 " tensors",
			                    c, t, info->tensor_count);
		TC_TRY(check_place(info, info->copies[c].place, info->tensors[t].bytes,
		                   "initial copy of tensor", t, error));
	}
	return TC_OK;
}

enum tc_status tci_plan_info_check(const struct tc_plan_info *info, struct tc_error *error)
{
	uint64_t lanes = 0;
	for (unsigned queue = 0; queue < TC_QUEUE_COUNT; queue++)
		lanes += info->lanes[queue];
	if (lanes == 0 || lanes > TC_MAX_LANES)
		return tc_error_set(error, TC_FORMAT,
		                    "lanes: found %" PRIu64 " over all queues, expected 1 to %d",
		                    lanes, TC_MAX_LANES);
	for (uint32_t p = 0; p < info->pool_count; p++)
		if ((unsigned)info->pools[p].tier >= TC_TIER_COUNT ||
		    (unsigned)info->pools[p].kind > TC_POOL_RING || info->pools[p].name == NULL)
			return tc_error_set(error, TC_FORMAT,
			                    "pool %" PRIu32 ": unknown tier or kind, or no name",
			                    p);
	if (info->trace != NULL && info->tensor_count < info->trace->tensor_count)
		return tc_error_set(error, TC_FORMAT,
		                    "tensor table: found %" PRIu32
		                    " tensors, expected at least the trace's %" PRIu32,
		                    info->tensor_count, info->trace->tensor_count);
	for (uint32_t t = 0; info->trace != NULL && t < info->trace->tensor_count; t++)
		if (info->scale <= 1 && info->tensors[t].bytes != info->trace->tensors[t].bytes)
			return tc_error_set(error, TC_FORMAT,
			                    "tensor %" PRIu32 ": found %" PRIu64
			                    " bytes, expected the trace's %" PRIu64,
			                    t, info->tensors[t].bytes,
			                    info->trace->tensors[t].bytes);
	return check_tensors(info, error);
}

/** Tiers that a transfer queue joins. */
static bool queue_joins(enum tc_queue queue, enum tc_tier from, enum tc_tier to)
{
	switch (queue) {
	case TC_QUEUE_H2D:
		return from == TC_CPU && to == TC_GPU;
	case TC_QUEUE_D2H:
		return from == TC_GPU && to == TC_CPU;
	case TC_QUEUE_NVME_READ:
		return from == TC_NVME && to == TC_CPU;
	case TC_QUEUE_NVME_WRITE:
		return from == TC_CPU && to == TC_NVME;
	case TC_QUEUE_GPU_NVME:
		return (from == TC_GPU && to == TC_NVME) || (from == TC_NVME && to == TC_GPU);
	case TC_QUEUE_COMPUTE:
	case TC_QUEUE_CPU:
	case TC_QUEUE_HOST:
	case TC_QUEUE_COUNT:
		break;
	}
	return false;
}

static enum tc_status check_move(const struct tc_plan_info *info, struct tci_sizes sizes,
                                 const struct tc_command *command, struct tc_error *error)
{
	if (command->tensor >= info->tensor_count)
		return tc_error_set(error, TC_FORMAT,
		                    "command %" PRIu64 ": found tensor %" PRIu32
		                    ", expected one of %" PRIu32 " tensors",
		                    command->id, command->tensor, info->tensor_count);
	uint64_t size = sizes.bytes[command->tensor * sizes.stride];
	if (command->bytes == 0 || command->tensor_offset >= size ||
	    command->bytes > size - command->tensor_offset)
		return tc_error_set(
		    error, TC_FORMAT,
		    "command %" PRIu64 ": found bytes [%" PRIu64 ", +%" PRIu64
		    ") of tensor %" PRIu32 ", expected a range inside its %" PRIu64 " bytes",
		    command->id, command->tensor_offset, command->bytes, command->tensor, size);
	TC_TRY(check_place(info, command->src, command->bytes, "source of command", command->id,
	                   error));
	TC_TRY(check_place(info, command->dst, command->bytes, "destination of command",
	                   command->id, error));
	enum tc_tier from = info->pools[command->src.pool].tier;
	enum tc_tier to = info->pools[command->dst.pool].tier;
	if (!queue_joins(command->queue, from, to))
		return tc_error_set(error, TC_FORMAT,
		                    "command %" PRIu64 ": found a move from %s to %s on queue %s, "
		                    "expected the queue that joins them",
		                    command->id, tc_tier_name(from), tc_tier_name(to),
		                    tc_queue_name(command->queue));
	return TC_OK;
}

static enum tc_status check_bind(const struct tc_plan_info *info, struct tci_sizes sizes,
                                 const struct tc_command *command, const struct tc_bind *bind,
                                 struct tc_error *error)
{
	enum tc_tier tier = command->queue == TC_QUEUE_CPU ? TC_CPU : TC_GPU;
	bool is_tensor = bind->tensor < info->tensor_count;
	if (inside(info, bind->pool, bind->offset, bind->bytes) &&
	    info->pools[bind->pool].tier == tier && (unsigned)bind->access <= TC_READ_WRITE &&
	    (is_tensor ? bind->bytes == sizes.bytes[bind->tensor * sizes.stride]
	               : bind->tensor == TC_NONE && command->kind == TC_COMPUTE))
		return TC_OK;
	if (!is_tensor && (bind->tensor != TC_NONE || command->kind != TC_COMPUTE))
		return tc_error_set(error, TC_FORMAT,
		                    "command %" PRIu64 ": bind: found tensor %" PRIu32
		                    ", expected one of %" PRIu32
		                    " tensors (workspace only where ops run on the GPU)",
		                    command->id, bind->tensor, info->tensor_count);
	if (is_tensor && bind->bytes != sizes.bytes[bind->tensor * sizes.stride])
		return tc_error_set(error, TC_FORMAT,
		                    "command %" PRIu64 ": bind of tensor %" PRIu32
		                    ": found %" PRIu64 " bytes, expected the tensor's %" PRIu64,
		                    command->id, bind->tensor, bind->bytes,
		                    sizes.bytes[bind->tensor * sizes.stride]);
	TC_TRY(check_place(info, (struct tc_place){bind->pool, bind->offset}, bind->bytes,
	                   "bind of command", command->id, error));
	return tc_error_set(error, TC_FORMAT,
	                    "command %" PRIu64 ": bind of tensor %" PRIu32
	                    ": found access %u in tier %s, expected a known access in tier %s",
	                    command->id, bind->tensor, (unsigned)bind->access,
	                    tc_tier_name(info->pools[bind->pool].tier), tc_tier_name(tier));
}

static enum tc_status check_ops(const struct tc_plan_info *info, const struct tc_command *command,
                                struct tc_error *error)
{
	if (command->kind != TC_COMPUTE && command->kind != TC_UPDATE)
		return TC_OK;
	if (command->first_op == TC_NONE && command->last_op == TC_NONE)
		return TC_OK;
	uint32_t count = info->trace != NULL ? info->trace->op_count : TC_NONE;
	if (command->first_op <= command->last_op && command->last_op < count)
		return TC_OK;
	return tc_error_set(error, TC_FORMAT,
	                    "command %" PRIu64 ": found ops %" PRIu32 " to %" PRIu32
	                    ", expected an ascending range below %" PRIu32,
	                    command->id, command->first_op, command->last_op, count);
}

/** The queue that a command without a move must use. */
static bool queue_fits(const struct tc_command *command)
{
	switch (command->kind) {
	case TC_COMPUTE:
		return command->queue == TC_QUEUE_COMPUTE && command->lane == 0;
	case TC_UPDATE:
		return command->queue == TC_QUEUE_CPU;
	case TC_CONVERT:
		return command->queue == TC_QUEUE_CPU || command->queue == TC_QUEUE_COMPUTE;
	case TC_WAIT:
	case TC_ALLOC:
	case TC_DROP:
		return command->queue == TC_QUEUE_HOST;
	default:
		return false;
	}
}

static enum tc_status check_lists(const struct tc_plan_info *info, struct tci_sizes sizes,
                                  const struct tc_command *command, struct tc_error *error)
{
	for (uint32_t d = 0; d < command->dep_count; d++)
		if (command->deps[d].id >= command->id ||
		    (unsigned)command->deps[d].reason >= TC_REASON_COUNT)
			return tc_error_set(error, TC_FORMAT,
			                    "command %" PRIu64 ": found a dependency on %" PRIu64
			                    " (%s), expected a smaller id and a known reason",
			                    command->id, command->deps[d].id,
			                    tc_reason_name(command->deps[d].reason));
	for (uint32_t b = 0; b < command->bind_count; b++)
		TC_TRY(check_bind(info, sizes, command, &command->binds[b], error));
	for (uint32_t s = 0; s < command->served_count; s++)
		if (command->served[s].tensor >= info->tensor_count ||
		    (unsigned)command->served[s].outcome > TC_DEMAND_MISS)
			return tc_error_set(error, TC_FORMAT,
			                    "command %" PRIu64 ": served: unknown tensor %" PRIu32
			                    " or outcome",
			                    command->id, command->served[s].tensor);
	for (uint32_t m = 0; m < command->memory_count; m++)
		if ((unsigned)command->memory[m].tier >= TC_TIER_COUNT ||
		    (unsigned)command->memory[m].kind >= TC_TENSOR_KIND_COUNT)
			return tc_error_set(error, TC_FORMAT,
			                    "command %" PRIu64 ": memory: unknown tier or kind",
			                    command->id);
	return TC_OK;
}

_Static_assert(sizeof(struct tc_plan_tensor) % sizeof(uint64_t) == 0, "a stride of whole words");

enum tc_status tci_command_check(const struct tc_plan_info *info, const struct tc_command *command,
                                 uint64_t id, struct tc_error *error)
{
	struct tci_sizes sizes = {info->tensor_count > 0 ? &info->tensors[0].bytes : NULL,
	                          sizeof(struct tc_plan_tensor) / sizeof(uint64_t)};
	return tci_command_check_sized(info, sizes, command, id, error);
}

enum tc_status tci_command_check_sized(const struct tc_plan_info *info, struct tci_sizes sizes,
                                       const struct tc_command *command, uint64_t id,
                                       struct tc_error *error)
{
	if (command->id != id)
		return tc_error_set(error, TC_FORMAT,
		                    "command %" PRIu64 ": found this id, expected %" PRIu64
		                    " (ids are dense and ascending)",
		                    command->id, id);
	if ((unsigned)command->queue >= TC_QUEUE_COUNT ||
	    command->lane >= info->lanes[command->queue])
		return tc_error_set(error, TC_FORMAT,
		                    "command %" PRIu64 ": found lane %" PRIu32
		                    " of queue %s, expected a lane that the header has",
		                    id, command->lane, tc_queue_name(command->queue));
	if ((unsigned)command->kind >= TC_COMMAND_KIND_COUNT ||
	    (unsigned)command->why >= TC_WHY_COUNT || (unsigned)command->phase >= TC_PHASE_COUNT)
		return tc_error_set(error, TC_FORMAT,
		                    "command %" PRIu64 ": unknown kind, why or phase", id);
	if (command->iteration != TC_ITERATION_INIT && command->iteration >= info->iterations)
		return tc_error_set(error, TC_FORMAT,
		                    "command %" PRIu64 ": found iteration %" PRIu32
		                    ", expected one of %" PRIu32,
		                    id, command->iteration, info->iterations);
	if (tci_is_move(command->kind))
		TC_TRY(check_move(info, sizes, command, error));
	else if (!queue_fits(command))
		return tc_error_set(error, TC_FORMAT,
		                    "command %" PRIu64 ": found %s on queue %s lane %" PRIu32
		                    ", expected a queue that can run it",
		                    id, tc_command_kind_name(command->kind),
		                    tc_queue_name(command->queue), command->lane);
	else if (command->tensor != TC_NONE && command->tensor >= info->tensor_count)
		return tc_error_set(error, TC_FORMAT,
		                    "command %" PRIu64 ": found tensor %" PRIu32
		                    ", expected one of %" PRIu32 " tensors",
		                    id, command->tensor, info->tensor_count);
	TC_TRY(check_ops(info, command, error));
	return check_lists(info, sizes, command, error);
}

enum tc_status tci_plan_end_check(const struct tc_plan_info *info, const struct tc_plan_end *end,
                                  uint64_t commands, struct tc_error *error)
{
	if (end->command_count != commands)
		return tc_error_set(error, TC_FORMAT,
		                    "end record: found %" PRIu64 " commands, expected %" PRIu64,
		                    end->command_count, commands);
	for (uint32_t p = 0; p < end->place_count; p++) {
		uint32_t t = end->places[p].tensor;
		if (t >= info->tensor_count)
			return tc_error_set(error, TC_FORMAT,
			                    "end record: found tensor %" PRIu32
			                    ", expected one of %" PRIu32 " tensors",
			                    t, info->tensor_count);
		TC_TRY(check_place(info, end->places[p].place, info->tensors[t].bytes,
		                   "final place of tensor", t, error));
	}
	return TC_OK;
}
