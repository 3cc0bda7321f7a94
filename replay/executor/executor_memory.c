/** @file executor_memory.c
 * Pools, what lies in them before the first command, and what must lie there after the last one.
 *
 * A pool gets as much memory (or file) as the schedule uses of it, not what the plan reserved.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executor.h"

/* ---------------------------------------------------------------- how much */

static void reach(struct tc_replay *replay, uint32_t pool, uint64_t offset, uint64_t bytes)
{
	uint64_t end;
	if (pool < replay->info->pool_count && tc_add_u64(offset, bytes, &end) &&
	    end > replay->pools[pool].bytes)
		replay->pools[pool].bytes = end;
}

static void measure(struct tc_replay *replay)
{
	const struct tc_plan_info *info = replay->info;
	for (uint64_t c = 0; c < replay->count; c++) {
		const struct tc_command *command = &replay->schedule->commands[c];
		for (uint32_t b = 0; b < command->bind_count; b++)
			reach(replay, command->binds[b].pool, command->binds[b].offset,
			      command->binds[b].bytes);
		if (command->queue == TC_QUEUE_HOST)
			continue;
		reach(replay, command->src.pool, command->src.offset, command->bytes);
		reach(replay, command->dst.pool, command->dst.offset, command->bytes);
	}
	for (uint32_t t = 0; t < info->tensor_count; t++)
		if (info->tensors[t].placed)
			reach(replay, info->tensors[t].start.pool, info->tensors[t].start.offset,
			      info->tensors[t].bytes);
	for (uint32_t c = 0; c < info->copy_count; c++)
		reach(replay, info->copies[c].place.pool, info->copies[c].place.offset,
		      info->tensors[info->copies[c].tensor].bytes);
	for (uint32_t p = 0; p < replay->schedule->end.place_count; p++) {
		const struct tc_final_place *place = &replay->schedule->end.places[p];
		reach(replay, place->place.pool, place->place.offset,
		      info->tensors[place->tensor].bytes);
	}
}

/** Bytes that the operating system could give; UINT64_MAX where it does not say. */
static uint64_t available_bytes(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];
	uint64_t available = UINT64_MAX;
	unsigned long long kib;
	if (file == NULL)
		return available;
	while (fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			available = (uint64_t)kib * 1024;
	(void)fclose(file);
	return available;
}

static enum tc_status check_room(const struct tc_replay *replay, struct tc_error *error)
{
	uint64_t needed = 0, available = available_bytes();
	for (uint32_t p = 0; p < replay->info->pool_count; p++)
		if (replay->info->pools[p].tier != TC_NVME &&
		    !tc_add_u64(needed, replay->pools[p].bytes, &needed))
			needed = UINT64_MAX;
	if (needed <= available)
		return TC_OK;
	char a[TC_UNIT_TEXT_BYTES], b[TC_UNIT_TEXT_BYTES];
	return tc_error_set(error, TC_NO_MEMORY,
	                    "the schedule's pools take %s of this computer's memory, %s are "
	                    "available: use a larger --scale",
	                    tc_format_bytes(needed, a), tc_format_bytes(available, b));
}

/** Asked while things are made: nobody can call tc_replay_cancel() yet. */
static enum tc_status check_cancelled(const struct tc_replay *replay, struct tc_error *error)
{
	const struct tc_storage_options *options = &replay->options.storage_options;
	if (options->cancelled == NULL || !options->cancelled(options->cancelled_self))
		return TC_OK;
	return tc_error_set(error, TC_IO, "stopped on request while the replay was set up");
}

/* ---------------------------------------------------------------- pools */

/** Before memory is allocated, which takes long. */
static enum tc_status check_directories(const struct tc_replay *replay, struct tc_error *error)
{
	const struct tc_replay_options *options = &replay->options;
	if (options->storage != NULL && options->storage_options.directory_count > 0)
		return TC_OK;
	for (uint32_t p = 0; p < replay->info->pool_count; p++)
		if (replay->info->pools[p].tier == TC_NVME && replay->pools[p].bytes > 0)
			return tc_error_set(
			    error, TC_ARGUMENT,
			    "the schedule has content on NVMe (pool '%s'): name a directory "
			    "on the drive with --nvme-dir",
			    replay->info->pools[p].name);
	return TC_OK;
}

static enum tc_status create_file(struct tc_replay *replay, uint32_t pool, struct tc_error *error)
{
	struct tc_storage_options options = replay->options.storage_options;
	char name[128];
	const char *first = options.name != NULL ? options.name : replay->info->trace_name;
	(void)snprintf(name, sizeof name, "%s-%s", first != NULL ? first : "schedule",
	               replay->info->pools[pool].name);
	for (char *at = name; *at != '\0'; at++)
		if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_",
		           *at) == NULL)
			*at = '_';
	options.name = name;
	options.bytes = replay->pools[pool].bytes;
	return replay->options.storage->create(&options, tci_clock_ps, &replay->clock,
	                                       &replay->pools[pool].storage, error);
}

enum tc_status tci_contents_create(struct tc_replay *replay, struct tc_error *error)
{
	const struct tc_plan_info *info = replay->info;
	replay->pools = tc_alloc_array((size_t)info->pool_count + 1, sizeof *replay->pools);
	if (replay->pools == NULL)
		return tc_error_no_memory(error, "pools", info->pool_count);
	measure(replay);
	for (uint32_t p = 0; p < info->pool_count; p++)
		if (!tc_align_up(replay->pools[p].bytes, TCI_BLOCK_BYTES, &replay->pools[p].bytes))
			return tc_error_set(error, TC_TOO_LARGE, "pool '%s' is too large",
			                    info->pools[p].name);
	TC_TRY(check_directories(replay, error));
	TC_TRY(check_room(replay, error));
	uint64_t begin_ps = tci_clock_ps(&replay->clock);
	for (uint32_t p = 0; p < info->pool_count; p++) {
		void *memory = NULL;
		if (info->pools[p].tier == TC_NVME || replay->pools[p].bytes == 0)
			continue;
		TC_TRY(check_cancelled(replay, error));
		TC_TRY(replay->options.device->allocate(replay->device, info->pools[p].tier,
		                                        info->pools[p].pinned,
		                                        replay->pools[p].bytes, &memory, error));
		replay->pools[p].memory = memory;
	}
	replay->facts.pin_ps = tci_clock_ps(&replay->clock) - begin_ps;
	begin_ps = tci_clock_ps(&replay->clock);
	for (uint32_t p = 0; p < info->pool_count; p++)
		if (info->pools[p].tier == TC_NVME && replay->pools[p].bytes > 0)
			TC_TRY(create_file(replay, p, error));
	replay->facts.file_ps = tci_clock_ps(&replay->clock) - begin_ps;
	return TC_OK;
}

void tci_contents_clear(struct tc_replay *replay)
{
	for (uint32_t p = 0; replay->pools != NULL && p < replay->info->pool_count; p++) {
		if (replay->pools[p].storage != NULL)
			replay->options.storage->destroy(replay->pools[p].storage);
		if (replay->pools[p].memory != NULL)
			replay->options.device->release(replay->device, replay->pools[p].memory,
			                                replay->pools[p].bytes);
	}
	free(replay->pools);
	replay->pools = NULL;
}

/* ---------------------------------------------------------------- initial content */

/** Memory for whole tensors on their way to or from a drive. */
struct buffer {
	unsigned char *memory;
	uint64_t bytes;
};

static enum tc_status reserve(struct buffer *buffer, uint64_t bytes, struct tc_error *error)
{
	uint64_t padded;
	void *memory = NULL;
	if (!tc_align_up(bytes, TCI_BLOCK_BYTES, &padded) || padded > SIZE_MAX)
		return tc_error_no_memory(error, "a tensor", bytes);
	if (padded <= buffer->bytes)
		return TC_OK;
	free(buffer->memory);
	*buffer = (struct buffer){NULL, 0};
	if (posix_memalign(&memory, TCI_BLOCK_BYTES, (size_t)padded) != 0)
		return tc_error_no_memory(error, "a tensor", padded);
	memset(memory, 0, (size_t)padded);
	*buffer = (struct buffer){memory, padded};
	return TC_OK;
}

/** Version 0: moments are zero, masters lie in [-1, 1], everything else is synthetic. */
static enum tc_status write_initial(struct tc_replay *replay, uint32_t tensor, void *memory,
                                    struct tc_error *error)
{
	const struct tc_plan_tensor *t = &replay->info->tensors[tensor];
	if (!replay->computed[tensor]) {
		tc_content_fill(memory, tensor, 0, 0, t->bytes);
		return TC_OK;
	}
	if (t->role == TC_ROLE_MASTER) {
		float values[1024];
		unsigned char *at = memory;
		tc_content_fill(memory, tensor, 0, 0, t->bytes);
		for (uint64_t done = 0; done < t->bytes; done += sizeof values) {
			uint64_t rest = t->bytes - done;
			uint64_t bytes = rest < sizeof values ? rest : sizeof values;
			tc_adam_gradient(at + done, values, bytes / sizeof(float));
			memcpy(at + done, values, (size_t)bytes);
		}
	} else {
		memset(memory, 0, (size_t)t->bytes);
	}
	return tc_content_remember(replay->hashes, tensor, 0, memory, t->bytes, error);
}

static enum tc_status fill_place(struct tc_replay *replay, uint32_t tensor, struct tc_place place,
                                 struct buffer *buffer, struct tc_error *error)
{
	uint64_t bytes = replay->info->tensors[tensor].bytes;
	TC_TRY(check_cancelled(replay, error));
	if (replay->info->pools[place.pool].tier != TC_NVME)
		return write_initial(replay, tensor, tci_at(replay, place.pool, place.offset),
		                     error);
	TC_TRY(reserve(buffer, bytes, error));
	uint64_t padded = (bytes + TCI_BLOCK_BYTES - 1) / TCI_BLOCK_BYTES * TCI_BLOCK_BYTES;
	memset(buffer->memory + bytes, 0, (size_t)(padded - bytes));
	TC_TRY(write_initial(replay, tensor, buffer->memory, error));
	return tci_io_now(replay, place.pool, true, buffer->memory, place.offset, padded, error);
}

static enum tc_status fill_all(struct tc_replay *replay, struct buffer *buffer,
                               struct tc_error *error)
{
	const struct tc_plan_info *info = replay->info;
	for (uint32_t t = 0; t < info->tensor_count && !tci_stopping(replay); t++)
		if (info->tensors[t].placed)
			TC_TRY(fill_place(replay, t, info->tensors[t].start, buffer, error));
	for (uint32_t c = 0; c < info->copy_count && !tci_stopping(replay); c++)
		TC_TRY(fill_place(replay, info->copies[c].tensor, info->copies[c].place, buffer,
		                  error));
	return TC_OK;
}

enum tc_status tci_contents_fill(struct tc_replay *replay, struct tc_error *error)
{
	struct buffer buffer = {NULL, 0};
	enum tc_status status = fill_all(replay, &buffer, error);
	free(buffer.memory);
	return status;
}

/* ---------------------------------------------------------------- final content */

static enum tc_status verify_place(struct tc_replay *replay, const struct tc_final_place *place,
                                   struct buffer *buffer, struct tc_error *error)
{
	uint64_t bytes = replay->info->tensors[place->tensor].bytes;
	const unsigned char *memory;
	if (replay->info->pools[place->place.pool].tier != TC_NVME) {
		memory = tci_at(replay, place->place.pool, place->place.offset);
	} else {
		TC_TRY(reserve(buffer, bytes, error));
		uint64_t padded = (bytes + TCI_BLOCK_BYTES - 1) / TCI_BLOCK_BYTES * TCI_BLOCK_BYTES;
		TC_TRY(tci_io_now(replay, place->place.pool, false, buffer->memory,
		                  place->place.offset, padded, error));
		memory = buffer->memory;
	}
	(void)tci_check(replay, NULL, place->tensor, place->version, 0, memory, bytes,
	                "at the end of the run");
	return TC_OK;
}

enum tc_status tci_contents_verify_final(struct tc_replay *replay, struct tc_error *error)
{
	struct buffer buffer = {NULL, 0};
	enum tc_status status = TC_OK;
	const struct tc_plan_end *end = &replay->schedule->end;
	for (uint32_t p = 0; p < end->place_count && status == TC_OK && !tci_stopping(replay); p++)
		status = verify_place(replay, &end->places[p], &buffer, error);
	free(buffer.memory);
	return status;
}
