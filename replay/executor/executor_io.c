/** @file executor_io.c
 * Drive commands. Drives move whole 4 KiB blocks from and to aligned memory. What of a command's
 * memory is aligned goes straight (its *body*); the tail below a block, or everything where the
 * memory is not aligned, goes through a buffer (its *rest*).
 *
 * A write is looked at on an own lane before it is handed over; a read afterwards, and copied out
 * of the buffer. Two commands of a lane may be in flight where they touch separate memory, but they
 * complete in order, because dependencies on the first may be implied by one on the second.
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

/* ---------------------------------------------------------------- the end of a command */

/** Complete what is finished at the front of the lane. The lane's mutex is held. */
static void complete_in_order(struct tc_replay *replay, struct tci_exec_lane *lane)
{
	while (!lane->completing && lane->next_end != TC_NO_COMMAND &&
	       io_at(replay, lane->next_end)->finished) {
		uint64_t id = lane->next_end;
		struct tci_io *io = io_at(replay, id);
		uint64_t start_ps =
		    io->start_ps > lane->last_end_ps ? io->start_ps : lane->last_end_ps;
		uint64_t end_ps = io->end_ps > start_ps ? io->end_ps : start_ps;
		lane->last_end_ps = end_ps;
		lane->next_end = replay->states[id].next_in_lane;
		lane->completing = true;
		pthread_mutex_unlock(&lane->mutex);
		tci_complete(replay, id, start_ps, end_ps);
		pthread_mutex_lock(&lane->mutex);
		lane->completing = false;
	}
}

static void finish(struct tc_replay *replay, uint64_t id)
{
	struct tci_exec_lane *lane = &replay->lanes[replay->states[id].lane];
	pthread_mutex_lock(&lane->mutex);
	io_at(replay, id)->finished = true;
	complete_in_order(replay, lane);
	pthread_mutex_unlock(&lane->mutex);
}

/** On an own lane: out of the buffer, then the check. */
static void after_work(void *self, const struct tc_device_task *task, enum tc_device_stage stage)
{
	struct tc_replay *replay = self;
	const struct tc_command *command = task->command;
	struct tci_io *io = io_at(replay, command->id);
	if (stage != TC_STAGE_BEGIN || command->queue != TC_QUEUE_NVME_READ || tci_stopping(replay))
		return;
	if (io->rest_bytes > 0)
		memcpy(io->memory + io->body_bytes, io->rest.memory, (size_t)io->rest_bytes);
	(void)tci_check(replay, command, command->tensor, command->version, command->tensor_offset,
	                io->memory, command->bytes, "after the read of");
}

static void after_done(void *self, const struct tc_device_task *task, uint64_t start_ps,
                       uint64_t end_ps, enum tc_status status, const char *message)
{
	struct tc_replay *replay = self;
	struct tci_io *io = io_at(replay, task->command->id);
	(void)start_ps;
	(void)status;
	(void)message;
	if (task->not_before_ps != 0 && end_ps > io->end_ps)
		io->end_ps = end_ps; /* paced: it ends when the modelled drive is done */
	finish(replay, task->command->id);
}

/** All of the command's transfers have ended. */
static void transferred(struct tc_replay *replay, uint64_t id)
{
	struct tc_device_task *after = &replay->tasks[id];
	bool read = command_at(replay, id)->queue == TC_QUEUE_NVME_READ;
	bool work =
	    read && (io_at(replay, id)->rest_bytes > 0 || replay->options.verify != TC_VERIFY_OFF);
	if (!work && after->not_before_ps == 0) {
		finish(replay, id);
		return;
	}
	after->lane = 3 * replay->lane_count + replay->states[id].lane;
	after->work = after_work;
	after->done = after_done;
	tci_lanes_submit(replay->own, after);
}

static void io_done(void *self, const struct tc_storage_task *task, uint64_t start_ps,
                    uint64_t end_ps, enum tc_status status, const char *message)
{
	struct tc_replay *replay = self;
	uint64_t id = task->command->id;
	struct tci_io *io = io_at(replay, id);
	struct tci_exec_lane *lane = &replay->lanes[replay->states[id].lane];
	if (status != TC_OK)
		tci_abort_run(replay, status, "command %llu (%s of tensor %u): %s",
		              (unsigned long long)id, task->write ? "write" : "read",
		              (unsigned)task->command->tensor,
		              message != NULL ? message : "the drive failed");
	pthread_mutex_lock(&lane->mutex);
	if (io->start_ps == 0 || start_ps < io->start_ps)
		io->start_ps = start_ps;
	if (end_ps > io->end_ps)
		io->end_ps = end_ps;
	bool last = --io->pending == 0;
	pthread_mutex_unlock(&lane->mutex);
	if (last)
		transferred(replay, id);
}

/* ---------------------------------------------------------------- the beginning */

static void start(struct tc_replay *replay, uint64_t id)
{
	struct tci_io *io = io_at(replay, id);
	const struct tc_command *command = command_at(replay, id);
	bool read = command->queue == TC_QUEUE_NVME_READ;
	const struct tci_pool_memory *pool =
	    &replay->pools[read ? command->src.pool : command->dst.pool];
	struct tc_storage_task *tasks[] = {&io->body, &io->rest};
	/* `pending` was set when the commands were laid out: nothing of this one runs yet. */
	for (int i = 0; i < 2; i++) {
		struct tc_error error = {0};
		if (tasks[i]->bytes == 0)
			continue;
		enum tc_status status =
		    replay->options.storage->submit(pool->storage, tasks[i], &error);
		if (status != TC_OK) {
			uint64_t now = tci_clock_ps(&replay->clock);
			io_done(replay, tasks[i], now, now, status, error.text);
		}
	}
}

static void before_work(void *self, const struct tc_device_task *task, enum tc_device_stage stage)
{
	struct tc_replay *replay = self;
	const struct tc_command *command = task->command;
	struct tci_io *io = io_at(replay, command->id);
	if (stage != TC_STAGE_BEGIN)
		return;
	(void)tci_check(replay, command, command->tensor, command->version, command->tensor_offset,
	                io->memory, command->bytes, "before the write of");
	if (io->rest_bytes == 0)
		return;
	unsigned char *buffer = io->rest.memory;
	memcpy(buffer, io->memory + io->body_bytes, (size_t)io->rest_bytes);
	memset(buffer + io->rest_bytes, 0, (size_t)(io->rest.bytes - io->rest_bytes));
}

static void before_done(void *self, const struct tc_device_task *task, uint64_t start_ps,
                        uint64_t end_ps, enum tc_status status, const char *message)
{
	(void)start_ps;
	(void)end_ps;
	(void)status;
	(void)message;
	start(self, task->command->id);
}

/** Called under the lane's mutex, so a read, whose start may end at once, goes over a lane too. */
void tci_io_submit(struct tc_replay *replay, uint64_t id)
{
	const struct tc_command *command = command_at(replay, id);
	struct tci_io *io = io_at(replay, id);
	io->before = (struct tc_device_task){.command = command,
	                                     .lane = replay->lane_count + replay->states[id].lane,
	                                     .done = before_done,
	                                     .done_self = replay};
	if (command->queue == TC_QUEUE_NVME_WRITE)
		io->before.work = before_work;
	atomic_fetch_add(&replay->bounced_bytes, io->rest_bytes);
	tci_lanes_submit(replay->own, &io->before);
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
	io->body = (struct tc_storage_task){.command = command,
	                                    .write = !read,
	                                    .memory = io->memory,
	                                    .offset = drive.offset,
	                                    .bytes = io->body_bytes,
	                                    .done = io_done,
	                                    .done_self = replay};
	io->rest = io->body;
	io->rest.offset = drive.offset + io->body_bytes;
	io->rest.bytes = padded(io->rest_bytes);
	io->pending = (io->body.bytes > 0 ? 1u : 0u) + (io->rest.bytes > 0 ? 1u : 0u);
	return TC_OK;
}

static bool separate(const struct tci_io *a, const struct tci_io *b)
{
	uint64_t a_bytes = a->body_bytes + a->rest_bytes, b_bytes = b->body_bytes + b->rest_bytes;
	bool memory = a->memory + a_bytes <= b->memory || b->memory + b_bytes <= a->memory;
	uint64_t a_end = a->rest.offset + a->rest.bytes, b_end = b->rest.offset + b->rest.bytes;
	bool drive = a->body.command->src.pool != b->body.command->src.pool ||
	             a->body.command->dst.pool != b->body.command->dst.pool ||
	             a_end <= b->body.offset || b_end <= a->body.offset;
	return memory && drive;
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

/** Two buffers a lane, used in turn; neighbours in flight together have different ones. */
static enum tc_status give_buffers(struct tc_replay *replay, struct tc_error *error)
{
	uint64_t turn[TC_MAX_LANES] = {0};
	for (uint32_t lane = 0; lane < replay->lane_count; lane++) {
		uint64_t bytes = replay->buffer_bytes[lane];
		if (bytes == 0)
			continue;
		void *memory = NULL;
		if (bytes > SIZE_MAX / 2 || posix_memalign(&memory, TCI_BLOCK_BYTES, 2 * bytes))
			return tc_error_no_memory(error, "aligned buffers", 2 * bytes);
		memset(memory, 0, 2 * (size_t)bytes);
		replay->buffers[lane] = memory;
	}
	for (uint64_t c = 0; c < replay->count; c++) {
		uint32_t lane = replay->states[c].lane;
		if (!is_drive(command_at(replay, c)->queue))
			continue;
		struct tci_io *io = io_at(replay, c);
		io->rest.memory =
		    replay->buffers[lane] == NULL
		        ? NULL
		        : replay->buffers[lane] + turn[lane]++ % 2 * replay->buffer_bytes[lane];
	}
	return TC_OK;
}

enum tc_status tci_io_create(struct tc_replay *replay, struct tc_error *error)
{
	const struct tci_io *previous[TC_MAX_LANES] = {NULL};
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
		io->alone = previous[lane] != NULL && !separate(previous[lane], io);
		previous[lane] = io;
		if (io->rest.bytes > replay->buffer_bytes[lane])
			replay->buffer_bytes[lane] = io->rest.bytes;
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
