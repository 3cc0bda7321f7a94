/** @file executor_submit.c
 * From a command to tasks: copies and compute go to the device, queue `cpu` to the executor's own
 * lanes, drive commands to the storage backend. With random delays (tests) each command first waits
 * on an own lane, which keeps the order of its lane.
 */
#include <stdlib.h>
#include <string.h>

#include "executor.h"

/* ---------------------------------------------------------------- callbacks */

static const struct tc_command *command_of(const struct tc_replay *replay, uint64_t id)
{
	return &replay->schedule->commands[id];
}

void tci_note_overrun(struct tc_replay *replay, uint64_t work_ps, uint64_t allowed_ps)
{
	if (allowed_ps == 0 || work_ps <= allowed_ps)
		return;
	atomic_fetch_add(&replay->overrun_commands, 1);
	atomic_fetch_add(&replay->overrun_ps, work_ps - allowed_ps);
}

static bool cancelled(void *self)
{
	return tci_stopping(self);
}

static void task_done(void *self, const struct tc_device_task *task, uint64_t start_ps,
                      uint64_t end_ps, enum tc_status status, const char *message)
{
	struct tc_replay *replay = self;
	if (status != TC_OK)
		tci_abort_run(replay, status, "command %llu: %s",
		              (unsigned long long)task->command->id,
		              message != NULL ? message : "the device failed");
	tci_complete(replay, task->command->id, start_ps, end_ps);
}

/** A copy has arrived. */
static void copy_work(void *self, const struct tc_device_task *task, enum tc_device_stage stage)
{
	const struct tc_command *command = task->command;
	if (stage == TC_STAGE_DONE)
		(void)tci_check(self, command, command->tensor, command->version,
		                command->tensor_offset, task->target, task->bytes,
		                "after the copy of");
}

static void compute_work(void *self, const struct tc_device_task *task, enum tc_device_stage stage)
{
	struct tc_replay *replay = self;
	if (stage == TC_STAGE_DONE)
		return;
	uint64_t begin_ps = tci_clock_ps(&replay->clock);
	if (task->command->kind == TC_CONVERT && stage == TC_STAGE_BEGIN)
		tci_convert(replay, task->command);
	else if (task->command->kind == TC_COMPUTE && stage == TC_STAGE_BEGIN)
		tci_compute_walk(replay, task->command);
	else if (task->command->kind == TC_COMPUTE)
		tci_compute_look_again(replay, task->command);
	if (stage == TC_STAGE_BEGIN)
		tci_note_overrun(replay, tci_clock_ps(&replay->clock) - begin_ps, task->hold_ps);
}

static void cpu_work(void *self, const struct tc_device_task *task, enum tc_device_stage stage)
{
	if (stage != TC_STAGE_BEGIN)
		return;
	if (task->command->kind == TC_UPDATE)
		tci_update(self, task->command);
	else
		tci_convert(self, task->command);
}

/* ---------------------------------------------------------------- when it may end */

/** How long the command's lane is to be held. @return false: as long as the work takes */
static bool modelled_ps(const struct tc_replay *replay, const struct tc_command *command,
                        uint64_t *ps)
{
	bool compute = command->queue == TC_QUEUE_COMPUTE;
	if (compute && replay->options.compute == TC_COMPUTE_NONE)
		return false;
	if (replay->paced_ps != NULL) {
		if (command->iteration == TC_ITERATION_INIT)
			return false;
		*ps = replay->paced_ps[command->id];
	} else if (compute) {
		*ps = tci_compute_ps(command, replay->machine);
	} else {
		return false;
	}
	if (!tc_mul_u64(*ps, replay->dilate, ps))
		*ps = UINT64_MAX;
	return true;
}

/** Deadlines count from deadlines, not from a thread's own lateness. */
static void set_deadline(struct tc_replay *replay, struct tc_device_task *task)
{
	const struct tc_command *command = task->command;
	struct tci_progress *state = &replay->states[command->id];
	struct tci_exec_lane *lane = &replay->lanes[state->lane];
	if (!modelled_ps(replay, command, &task->hold_ps))
		return;
	uint64_t from_ps = tci_dues(replay, command, state->issue_due_ps);
	from_ps = lane->due_ps > from_ps ? lane->due_ps : from_ps;
	if (!tc_add_u64(from_ps, task->hold_ps, &state->due_ps))
		state->due_ps = UINT64_MAX;
	task->not_before_ps = state->due_ps;
	lane->due_ps = state->due_ps;
}

/* ---------------------------------------------------------------- submitting */

static void submit_to_device(struct tc_replay *replay, struct tc_device_task *task)
{
	struct tc_error error = {0};
	enum tc_status status = replay->options.device->submit(replay->device, task, &error);
	if (status == TC_OK)
		return;
	tci_abort_run(replay, status, "command %llu: %s", (unsigned long long)task->command->id,
	              error.text);
	tci_complete(replay, task->command->id, 0, 0);
}

static void submit_now(struct tc_replay *replay, uint64_t id)
{
	const struct tc_command *command = command_of(replay, id);
	struct tc_device_task *task = &replay->tasks[id];
	set_deadline(replay, task);
	switch (command->queue) {
	case TC_QUEUE_NVME_READ:
	case TC_QUEUE_NVME_WRITE:
		tci_io_submit(replay, id);
		return;
	case TC_QUEUE_CPU:
		task->work = cpu_work;
		tci_lanes_submit(replay->own, task);
		return;
	case TC_QUEUE_COMPUTE:
		task->work = compute_work;
		break;
	default:
		task->target = tci_at(replay, command->dst.pool, command->dst.offset);
		task->source = tci_at(replay, command->src.pool, command->src.offset);
		task->bytes = command->bytes;
		task->work = copy_work;
	}
	submit_to_device(replay, task);
}

static void delay_done(void *self, const struct tc_device_task *task, uint64_t start_ps,
                       uint64_t end_ps, enum tc_status status, const char *message)
{
	(void)start_ps;
	(void)end_ps;
	(void)status;
	(void)message;
	submit_now(self, task->command->id);
}

static uint64_t mix(uint64_t seed)
{
	seed = (seed ^ seed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	seed = (seed ^ seed >> 27) * UINT64_C(0x94D049BB133111EB);
	return seed ^ seed >> 31;
}

/**
 * What a schedule allows shows only where lanes run far apart. By seed, in turn: half of the
 * commands wait, those of slow lanes up to 16 times as long; or one lane lags behind all others; or
 * one lane runs ahead of all others. Consecutive seeds come to every lane.
 */
static uint64_t random_delay(const struct tc_replay *replay, uint64_t id)
{
	uint64_t lane = replay->states[id].lane, seed = replay->options.random_delays;
	uint64_t random = mix(seed + id * UINT64_C(0x9E3779B97F4A7C15));
	bool chosen = lane == seed / 3 % replay->lane_count;
	switch (seed % 3) {
	case 0:
		if (random % 2 == 0)
			return 0;
		return (random >> 8) % (100 * TC_PS_PER_US) << (2 * (mix(seed * 31 + lane) % 3));
	case 1:
		return chosen ? (random >> 8) % (4000 * TC_PS_PER_US) : 0;
	default:
		return chosen ? 0 : (random >> 8) % (500 * TC_PS_PER_US);
	}
}

void tci_submit(struct tc_replay *replay, uint64_t id)
{
	if (replay->delays == NULL) {
		submit_now(replay, id);
		return;
	}
	struct tc_device_task *delay = &replay->delays[id];
	*delay = (struct tc_device_task){.command = command_of(replay, id),
	                                 .lane = 2 * replay->lane_count + replay->states[id].lane,
	                                 .hold_ps = random_delay(replay, id),
	                                 .cancelled = cancelled,
	                                 .done = delay_done,
	                                 .done_self = replay};
	tci_lanes_submit(replay->own, delay);
}

/* ---------------------------------------------------------------- setting up */

enum tc_status tci_tasks_create(struct tc_replay *replay, struct tc_error *error)
{
	size_t count = (size_t)replay->count;
	replay->tasks = tc_alloc_array(count + 1, sizeof *replay->tasks);
	if (replay->options.random_delays != 0)
		replay->delays = tc_alloc_array(count + 1, sizeof *replay->delays);
	if (replay->tasks == NULL || (replay->options.random_delays != 0 && replay->delays == NULL))
		return tc_error_no_memory(error, "tasks", count * sizeof *replay->tasks);
	for (uint64_t c = 0; c < replay->count; c++)
		replay->tasks[c] = (struct tc_device_task){.command = command_of(replay, c),
		                                           .lane = replay->states[c].lane,
		                                           .cancelled = cancelled,
		                                           .done = task_done,
		                                           .done_self = replay};
	return TC_OK;
}

void tci_tasks_clear(struct tc_replay *replay)
{
	free(replay->tasks);
	free(replay->delays);
}
