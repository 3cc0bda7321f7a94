/** @file executor_run.c
 * Issue, admission, completion.
 *
 * A command may be handed over (to device, storage or own lanes) once it is issued, its
 * dependencies have ended and the commands before it in its lane were handed over; the FIFO there
 * sees to the end of the lane's predecessor. `remaining` counts dependencies and the issue; whoever
 * takes it to 0 pumps the lane, so completions release their dependants and nobody polls.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "executor.h"

/** The issuing thread does not go to sleep for less than this. */
#define WORTH_SLEEPING_PS (30 * TC_PS_PER_US)

/* ---------------------------------------------------------------- failure */

void tci_abort_run(struct tc_replay *replay, enum tc_status status, const char *format, ...)
{
	char text[1024];
	va_list list;
	va_start(list, format);
	(void)vsnprintf(text, sizeof text, format, list);
	va_end(list);
	pthread_mutex_lock(&replay->mutex);
	(void)tc_error_set(&replay->error, status, "%s", text);
	pthread_mutex_unlock(&replay->mutex);
	atomic_store(&replay->failed, true);
	(void)sem_post(&replay->wake);
}

bool tci_stopping(const struct tc_replay *replay)
{
	return atomic_load(&replay->cancelled) || atomic_load(&replay->failed);
}

void tc_replay_cancel(struct tc_replay *replay)
{
	atomic_store(&replay->cancelled, true); /* lock-free, so signal handlers may */
	(void)sem_post(&replay->wake);
}

static enum tc_status stopped(struct tc_replay *replay, struct tc_error *error)
{
	pthread_mutex_lock(&replay->mutex);
	struct tc_error first = replay->error;
	pthread_mutex_unlock(&replay->mutex);
	if (first.status != TC_OK)
		return tc_error_set(error, first.status, "%s", first.text);
	return tc_error_set(
	    error, TC_IO, "the replay was cancelled: %llu of %llu commands had ended",
	    (unsigned long long)atomic_load(&replay->ended), (unsigned long long)replay->count);
}

/* ---------------------------------------------------------------- admission and completion */

/** Takes one off what a command waits for. @return nothing is left */
static bool release_one(struct tci_progress *state)
{
	return atomic_fetch_sub_explicit(&state->remaining, 1, memory_order_acq_rel) == 1;
}

static bool is_drive(enum tc_queue queue)
{
	return queue == TC_QUEUE_NVME_READ || queue == TC_QUEUE_NVME_WRITE;
}

/** May the lane's next command be handed over? The lane's mutex is held. */
static bool may_submit(const struct tc_replay *replay, const struct tci_exec_lane *lane)
{
	if (lane->next == TC_NO_COMMAND || tci_stopping(replay))
		return false;
	const struct tci_progress *state = &replay->states[lane->next];
	if (atomic_load_explicit(&state->remaining, memory_order_acquire) != 0)
		return false;
	return !lane->busy;
}

/* One thread at a time submits, which keeps a lane's order; not under the mutex, since what it
 * submits may end before it is back here. It looks again after each, so what changed meanwhile is
 * seen. */
void tci_pump(struct tc_replay *replay, uint32_t index)
{
	struct tci_exec_lane *lane = &replay->lanes[index];
	pthread_mutex_lock(&lane->mutex);
	while (!lane->pumping && may_submit(replay, lane)) {
		uint64_t id = lane->next;
		lane->next = replay->states[id].next_in_lane;
		lane->busy = is_drive(lane->queue);
		lane->pumping = true;
		atomic_fetch_add(&replay->in_flight, 1);
		pthread_mutex_unlock(&lane->mutex);
		tci_submit(replay, id);
		pthread_mutex_lock(&lane->mutex);
		lane->pumping = false;
	}
	pthread_mutex_unlock(&lane->mutex);
}

/** What waited for `id` waits for one less. */
static void release_dependants(struct tc_replay *replay, uint64_t id)
{
	for (uint64_t d = replay->first_dependant[id]; d < replay->first_dependant[id + 1]; d++) {
		uint64_t dependant = replay->dependants[d];
		struct tci_progress *state = &replay->states[dependant];
		if (!release_one(state))
			continue;
		if (replay->schedule->commands[dependant].queue == TC_QUEUE_HOST)
			(void)sem_post(&replay->wake);
		else
			tci_pump(replay, state->lane);
	}
}

void tci_complete(struct tc_replay *replay, uint64_t id, uint64_t start_ps, uint64_t end_ps)
{
	struct tci_progress *state = &replay->states[id];
	struct tci_exec_lane *lane = &replay->lanes[state->lane];
	state->start_ps = start_ps;
	state->end_ps = end_ps;
	if (state->due_ps == 0)
		state->due_ps = end_ps;
	release_dependants(replay, id);
	if (is_drive(lane->queue)) {
		pthread_mutex_lock(&lane->mutex);
		lane->busy = false;
		pthread_mutex_unlock(&lane->mutex);
		tci_pump(replay, state->lane);
	}
	uint64_t ended = atomic_fetch_add(&replay->ended, 1) + 1;
	uint64_t flying = atomic_fetch_sub(&replay->in_flight, 1) - 1;
	if (ended == replay->count || (flying == 0 && tci_stopping(replay)))
		(void)sem_post(&replay->wake);
}

/* ---------------------------------------------------------------- the issuing thread */

static void wait_awake(struct tc_replay *replay)
{
	while (sem_wait(&replay->wake) != 0 && errno == EINTR)
		;
}

/** Sleep until a moment of the replay clock, or until the run stops. */
static void sleep_until(struct tc_replay *replay, uint64_t ps)
{
	while (!tci_stopping(replay)) {
		uint64_t now = tci_clock_ps(&replay->clock);
		if (now >= ps || ps - now < WORTH_SLEEPING_PS)
			return;
		struct timespec until = tci_clock_at(&replay->clock, ps);
		(void)sem_clockwait(&replay->wake, CLOCK_MONOTONIC, &until);
	}
}

uint64_t tci_dues(const struct tc_replay *replay, const struct tc_command *command,
                  uint64_t from_ps)
{
	for (uint32_t d = 0; d < command->dep_count; d++) {
		uint64_t due_ps = replay->states[command->deps[d].id].due_ps;
		from_ps = due_ps > from_ps ? due_ps : from_ps;
	}
	return from_ps;
}

/** The issuing thread is busy for a modelled time more. */
static void spend(struct tc_replay *replay, uint64_t ps)
{
	uint64_t dilated;
	if (!tc_mul_u64(ps, replay->dilate, &dilated) ||
	    !tc_add_u64(replay->issue_due_ps, dilated, &replay->issue_due_ps))
		replay->issue_due_ps = UINT64_MAX;
}

/** As the engine: the longest one to the issuing thread from what it has to wait for. */
static uint64_t host_handover(const struct tc_replay *replay, const struct tc_command *command)
{
	uint64_t longest_ps = 0;
	for (uint32_t d = 0; d < command->dep_count; d++) {
		uint64_t on = command->deps[d].id;
		uint64_t ps = tc_machine_handover_ps(
		    replay->options.throttle, replay->schedule->commands[on].queue, TC_QUEUE_HOST);
		if (replay->states[on].due_ps > replay->issue_due_ps && ps > longest_ps)
			longest_ps = ps;
	}
	return longest_ps;
}

/** Setting up is not paced: time counts from its end. */
static bool is_paced(const struct tc_replay *replay, const struct tc_command *command)
{
	return replay->paced_ps != NULL && command->iteration != TC_ITERATION_INIT;
}

static void pace_issue(struct tc_replay *replay, const struct tc_command *command)
{
	struct tci_progress *state = &replay->states[command->id];
	if (is_paced(replay, command)) {
		spend(replay, tci_issue_cost_ps(command, replay->options.throttle));
		sleep_until(replay, replay->issue_due_ps);
	}
	state->issue_ps = tci_clock_ps(&replay->clock);
	if (!is_paced(replay, command))
		replay->issue_due_ps = state->issue_ps;
	state->issue_due_ps = replay->issue_due_ps;
}

static void run_host_command(struct tc_replay *replay, const struct tc_command *command)
{
	struct tci_progress *state = &replay->states[command->id];
	if (!release_one(state))
		while (atomic_load_explicit(&state->remaining, memory_order_acquire) != 0 &&
		       !tci_stopping(replay))
			wait_awake(replay);
	if (tci_stopping(replay))
		return;
	state->start_ps = tci_clock_ps(&replay->clock);
	state->end_ps = state->start_ps;
	state->due_ps = state->end_ps;
	if (is_paced(replay, command)) {
		uint64_t handover_ps = host_handover(replay, command);
		replay->issue_due_ps = tci_dues(replay, command, replay->issue_due_ps);
		spend(replay, command->duration_ps);
		spend(replay, handover_ps);
		state->due_ps = replay->issue_due_ps;
	}
	release_dependants(replay, command->id);
	atomic_fetch_add(&replay->ended, 1);
}

static void issue(struct tc_replay *replay, const struct tc_command *command)
{
	pace_issue(replay, command);
	if (command->queue == TC_QUEUE_HOST) {
		run_host_command(replay, command);
		return;
	}
	struct tci_progress *state = &replay->states[command->id];
	if (release_one(state))
		tci_pump(replay, state->lane);
}

/** Does the schedule put the command before `step` of `iteration`? The step's own work does not. */
static bool comes_before(const struct tc_command *command, uint32_t iteration, uint32_t step)
{
	if (command->iteration == TC_ITERATION_INIT || command->iteration < iteration)
		return true;
	if (command->iteration > iteration || command->step > step)
		return false;
	bool own_work = command->kind == TC_COMPUTE || command->kind == TC_UPDATE;
	return command->step < step || !own_work;
}

static void begin(struct tc_replay *replay)
{
	if (replay->begun)
		return;
	replay->begun = true;
	tci_clock_start(&replay->clock);
	replay->base_ps = tci_clock_ps(&replay->clock);
	replay->begin_cpu_ps = tci_clock_cpu_ps();
}

enum tc_status tc_replay_advance(struct tc_replay *replay, uint32_t iteration, uint32_t step,
                                 struct tc_error *error)
{
	begin(replay);
	while (replay->next_issue < replay->count && !tci_stopping(replay)) {
		const struct tc_command *command = &replay->schedule->commands[replay->next_issue];
		if (!comes_before(command, iteration, step))
			return TC_OK;
		issue(replay, command);
		replay->next_issue++;
	}
	return tci_stopping(replay) ? stopped(replay, error) : TC_OK;
}

void tci_quiesce(struct tc_replay *replay)
{
	while (atomic_load(&replay->in_flight) != 0)
		wait_awake(replay);
}

static enum tc_status wait_all(struct tc_replay *replay, struct tc_error *error)
{
	while (!tci_stopping(replay) && atomic_load(&replay->ended) != replay->count)
		wait_awake(replay);
	return tci_stopping(replay) ? stopped(replay, error) : TC_OK;
}

enum tc_status tc_replay_finish(struct tc_replay *replay, struct tc_error *error)
{
	if (replay->finished)
		return tc_error_set(error, TC_ARGUMENT, "a replay finishes once");
	replay->finished = true;
	enum tc_status status = tc_replay_advance(replay, TC_ITERATION_INIT, TC_NONE, error);
	if (status == TC_OK)
		status = wait_all(replay, error);
	if (!replay->begun)
		return status;
	replay->facts.run_ps = tci_clock_ps(&replay->clock) - replay->base_ps;
	replay->facts.cpu_ps = tci_clock_cpu_ps() - replay->begin_cpu_ps;
	if (status == TC_OK && replay->options.verify != TC_VERIFY_OFF)
		status = tci_contents_verify_final(replay, error);
	if (status == TC_OK && tci_stopping(replay))
		status = stopped(replay, error);
	if (status == TC_OK)
		status = tci_report_times(replay, error);
	return status;
}
