/** @file executor_io.c
 * Drive commands. Drives move whole 4 KiB blocks from and to aligned memory. What of a command's
 * memory is aligned goes straight (its *body*); the tail below a block, or everything where the
 * memory is not aligned, goes through a buffer (its *rest*). Both are one transfer.
 *
 * What is written is looked at on the drive's thread before it goes, what was read when it has
 * come, so a lane's next command starts after the check, as it does where workers copy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor.h"

static const struct tc_command *command_at(const struct tc_replay *replay, uint64_t id)
{
	return &replay->schedule->commands[id];
}

static struct tci_io *io_at(const struct tc_replay *replay, uint64_t id)
{
	return &replay->ios[replay->io_of[id]];
}

static uint64_t padded(uint64_t bytes)
{
	return (bytes + TCI_BLOCK_BYTES - 1) / TCI_BLOCK_BYTES * TCI_BLOCK_BYTES;
}

/* ---------------------------------------------------------------- running a command */

/** On the drive's thread, before it transfers. */
static void prepare(void *self, const struct tc_storage_task *task)
{
	struct tc_replay *replay = self;
	const struct tc_command *command = task->command;
	struct tci_io *io = io_at(replay, command->id);
	if (!task->write || tci_stopping(replay))
		return;
	(void)tci_check(replay, command, command->tensor, command->version, command->tensor_offset,
	                io->memory, command->bytes, "before the write of");
	if (io->rest_bytes == 0)
		return;
	memcpy(task->tail, io->memory + io->body_bytes, (size_t)io->rest_bytes);
	memset((unsigned char *)task->tail + io->rest_bytes, 0,
	       (size_t)(task->tail_bytes - io->rest_bytes));
}

/** A read has come: out of the buffer, then the check. */
static void arrive(struct tc_replay *replay, const struct tc_command *command,
                   const struct tci_io *io)
{
	if (io->rest_bytes > 0)
		memcpy(io->memory + io->body_bytes, io->task.tail, (size_t)io->rest_bytes);
	(void)tci_check(replay, command, command->tensor, command->version, command->tensor_offset,
	                io->memory, command->bytes, "after the read of");
}

/** The modelled drive is done, too. */
static void held(void *self, const struct tc_device_task *task, uint64_t start_ps, uint64_t end_ps,
                 enum tc_status status, const char *message)
{
	struct tc_replay *replay = self;
	(void)start_ps;
	(void)status;
	(void)message;
	tci_complete(replay, task->command->id, io_at(replay, task->command->id)->start_ps, end_ps);
}

static void transferred(void *self, const struct tc_storage_task *task, uint64_t start_ps,
                        uint64_t end_ps, enum tc_status status, const char *message)
{
	struct tc_replay *replay = self;
	const struct tc_command *command = task->command;
	struct tci_io *io = io_at(replay, command->id);
	struct tc_device_task *hold = &replay->tasks[command->id];
	if (status != TC_OK) {
		tci_abort_run(replay, status, "command %llu (%s of tensor %u): %s",
		              (unsigned long long)command->id, task->write ? "write" : "read",
		              (unsigned)command->tensor,
		              message != NULL ? message : "the drive failed");
	} else if (!task->write && !tci_stopping(replay)) {
		arrive(replay, command, io);
		end_ps = tci_clock_ps(&replay->clock);
	}
	io->start_ps = start_ps;
	if (hold->not_before_ps <= end_ps) {
		tci_complete(replay, command->id, start_ps, end_ps);
		return;
	}
	hold->lane = replay->lane_count + replay->states[command->id].lane;
	hold->done = held;
	tci_lanes_submit(replay->own, hold);
}

void tci_io_submit(struct tc_replay *replay, uint64_t id)
{
	struct tci_io *io = io_at(replay, id);
	const struct tc_command *command = command_at(replay, id);
	uint32_t pool = io->task.write ? command->dst.pool : command->src.pool;
	struct tc_error error = {0};
	atomic_fetch_add(&replay->bounced_bytes, io->rest_bytes);
	enum tc_status status =
	    replay->options.storage->submit(replay->pools[pool].storage, &io->task, &error);
	if (status == TC_OK)
		return;
	uint64_t now_ps = tci_clock_ps(&replay->clock);
	transferred(replay, &io->task, now_ps, now_ps, status, error.text);
}

/* ---------------------------------------------------------------- laying out */

/** What of the command is body and what rest. */
static enum tc_status lay_out(struct tc_replay *replay, const struct tc_command *command,
                              struct tci_io *io, struct tc_error *error)
{
	bool read = command->queue == TC_QUEUE_NVME_READ;
	struct tc_place drive = read ? command->src : command->dst;
	struct tc_place memory = read ? command->dst : command->src;
	if (drive.offset % TCI_BLOCK_BYTES != 0)
		return tc_error_set(error, TC_ARGUMENT,
		                    "command %llu: offset %llu in pool '%s' is not a multiple of "
		                    "4,096: plan with chunks of whole 4 KiB",
		                    (unsigned long long)command->id,
		                    (unsigned long long)drive.offset,
		                    replay->info->pools[drive.pool].name);
	io->memory = tci_at(replay, memory.pool, memory.offset);
	bool aligned = (uintptr_t)io->memory % TCI_BLOCK_BYTES == 0;
	io->body_bytes = aligned ? command->bytes / TCI_BLOCK_BYTES * TCI_BLOCK_BYTES : 0;
	io->rest_bytes = command->bytes - io->body_bytes;
	io->task = (struct tc_storage_task){.command = command,
	                                    .write = !read,
	                                    .memory = aligned ? io->memory : NULL,
	                                    .offset = drive.offset,
	                                    .bytes = io->body_bytes + padded(io->rest_bytes),
	                                    .tail_bytes = padded(io->rest_bytes),
	                                    .prepare = prepare,
	                                    .done = transferred,
	                                    .done_self = replay};
	return TC_OK;
}

static bool is_drive(enum tc_queue queue)
{
	return queue == TC_QUEUE_NVME_READ || queue == TC_QUEUE_NVME_WRITE;
}

static enum tc_status count_ios(struct tc_replay *replay, struct tc_error *error)
{
	uint64_t count = 0;
	for (uint64_t c = 0; c < replay->count; c++)
		count += is_drive(command_at(replay, c)->queue);
	if (count > UINT32_MAX)
		return tc_error_set(error, TC_TOO_LARGE, "%llu drive commands",
		                    (unsigned long long)count);
	replay->ios = tc_alloc_array((size_t)count + 1, sizeof *replay->ios);
	replay->io_of = tc_alloc_array((size_t)replay->count + 1, sizeof *replay->io_of);
	if (replay->ios == NULL || replay->io_of == NULL)
		return tc_error_no_memory(error, "drive commands", count * sizeof *replay->ios);
	replay->io_count = (uint32_t)count;
	return TC_OK;
}

/** One buffer a lane: its commands run one after another. */
static enum tc_status give_buffers(struct tc_replay *replay, struct tc_error *error)
{
	for (uint32_t lane = 0; lane < replay->lane_count; lane++) {
		size_t bytes = (size_t)replay->buffer_bytes[lane];
		void *memory = NULL;
		if (bytes == 0)
			continue;
		if (posix_memalign(&memory, TCI_BLOCK_BYTES, bytes) != 0)
			return tc_error_no_memory(error, "an aligned buffer", bytes);
		memset(memory, 0, bytes);
		replay->buffers[lane] = memory;
	}
	for (uint64_t c = 0; c < replay->count; c++)
		if (is_drive(command_at(replay, c)->queue))
			io_at(replay, c)->task.tail = replay->buffers[replay->states[c].lane];
	return TC_OK;
}

enum tc_status tci_io_create(struct tc_replay *replay, struct tc_error *error)
{
	uint32_t next = 0;
	TC_TRY(count_ios(replay, error));
	for (uint64_t c = 0; c < replay->count; c++) {
		const struct tc_command *command = command_at(replay, c);
		uint32_t lane = replay->states[c].lane;
		if (!is_drive(command->queue))
			continue;
		struct tci_io *io = &replay->ios[next];
		replay->io_of[c] = next++;
		TC_TRY(lay_out(replay, command, io, error));
		if (io->task.tail_bytes > replay->buffer_bytes[lane])
			replay->buffer_bytes[lane] = io->task.tail_bytes;
	}
	return give_buffers(replay, error);
}

void tci_io_clear(struct tc_replay *replay)
{
	free(replay->ios);
	free(replay->io_of);
	for (uint32_t lane = 0; lane < TC_MAX_LANES; lane++)
		free(replay->buffers[lane]);
}

/* ---------------------------------------------------------------- outside the schedule */

struct once {
	sem_t ended;
	enum tc_status status;
	char message[512];
};

static void once_done(void *self, const struct tc_storage_task *task, uint64_t start_ps,
                      uint64_t end_ps, enum tc_status status, const char *message)
{
	struct once *once = self;
	(void)task;
	(void)start_ps;
	(void)end_ps;
	once->status = status;
	(void)snprintf(once->message, sizeof once->message, "%s", message != NULL ? message : "");
	(void)sem_post(&once->ended);
}

enum tc_status tci_io_now(struct tc_replay *replay, uint32_t pool, bool write, void *memory,
                          uint64_t offset, uint64_t bytes, struct tc_error *error)
{
	struct once once = {.status = TC_OK};
	if (sem_init(&once.ended, 0, 0) != 0)
		return tc_error_set(error, TC_NO_MEMORY, "no semaphore for a transfer");
	const struct tc_command none = {.id = TC_NO_COMMAND, .tensor = TC_NONE};
	struct tc_storage_task task = {.command = &none,
	                               .write = write,
	                               .memory = memory,
	                               .offset = offset,
	                               .bytes = bytes,
	                               .done = once_done,
	                               .done_self = &once};
	enum tc_status status =
	    replay->options.storage->submit(replay->pools[pool].storage, &task, error);
	if (status == TC_OK) {
		while (sem_wait(&once.ended) != 0)
			;
		status = once.status;
		if (status != TC_OK)
			(void)tc_error_set(error, status, "pool '%s': %s",
			                   replay->info->pools[pool].name, once.message);
	}
	(void)sem_destroy(&once.ended);
	return status;
}
