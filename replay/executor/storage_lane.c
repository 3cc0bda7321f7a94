/**
 * A lane is a FIFO: its thread takes one task, runs it to the end, reports it, and only then takes
 * the next. Its thread takes no signals, so that a Ctrl-C reaches the program and not a transfer.
 */
#include <signal.h>
#include <string.h>

#include "storage.h"

static void run_task(struct tci_lane *lane, struct tc_storage_task *task)
{
	struct tc_error error = {.status = TC_OK};
	uint64_t start_ps = lane->clock_ps(lane->clock);
	if (task->prepare != NULL)
		task->prepare(task->done_self, task);
	enum tc_status status = lane->engine->run(lane, task, &error);
	uint64_t end_ps = lane->clock_ps(lane->clock);
	task->done(task->done_self, task, start_ps, end_ps, status,
	           status == TC_OK ? NULL : error.text);
}

/** Take and run one thing. @return false: nothing is left and the lane is to end */
static bool run_next(struct tci_lane *lane)
{
	pthread_mutex_lock(&lane->mutex);
	while (lane->memory == NULL && lane->first == NULL && !lane->is_stopping)
		pthread_cond_wait(&lane->changed, &lane->mutex);
	const struct iovec *memory = lane->memory;
	struct tc_storage_task *task = memory != NULL ? NULL : lane->first;
	if (task != NULL) {
		lane->first = task->next;
		if (lane->first == NULL)
			lane->last = NULL;
	}
	pthread_mutex_unlock(&lane->mutex);
	if (memory != NULL) {
		if (lane->engine->add_memory != NULL)
			lane->engine->add_memory(lane, memory);
		pthread_mutex_lock(&lane->mutex);
		lane->memory = NULL;
		pthread_cond_broadcast(&lane->changed);
		pthread_mutex_unlock(&lane->mutex);
	} else if (task != NULL) {
		run_task(lane, task);
	}
	return memory != NULL || task != NULL;
}

static void *run_lane(void *self)
{
	struct tci_lane *lane = self;
	struct tc_error error = {.status = TC_OK};
	enum tc_status status = lane->engine->open(lane, &error);
	pthread_mutex_lock(&lane->mutex);
	lane->open_status = status;
	lane->open_error = error;
	lane->is_ready = true;
	pthread_cond_broadcast(&lane->changed);
	pthread_mutex_unlock(&lane->mutex);
	if (status != TC_OK)
		return NULL;
	while (run_next(lane))
		;
	lane->engine->close(lane);
	return NULL;
}

/** As pthread_create(), for a thread without signals. */
static int create_thread(struct tci_lane *lane)
{
	sigset_t all, before;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	int result = pthread_create(&lane->thread, NULL, run_lane, lane);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return result;
}

enum tc_status tci_lane_start(struct tci_lane *lane, struct tc_error *error)
{
	int result = pthread_mutex_init(&lane->mutex, NULL);
	if (result == 0 && (result = pthread_cond_init(&lane->changed, NULL)) != 0)
		pthread_mutex_destroy(&lane->mutex);
	if (result == 0 && (result = create_thread(lane)) != 0) {
		pthread_mutex_destroy(&lane->mutex);
		pthread_cond_destroy(&lane->changed);
	}
	if (result != 0)
		return tc_error_set(error, TC_NO_MEMORY,
		                    "cannot start the thread of an NVMe lane: %s; see the limit of "
		                    "processes (ulimit -u)",
		                    strerror(result));
	lane->has_thread = true;
	pthread_mutex_lock(&lane->mutex);
	while (!lane->is_ready)
		pthread_cond_wait(&lane->changed, &lane->mutex);
	enum tc_status status = lane->open_status;
	pthread_mutex_unlock(&lane->mutex);
	if (status == TC_OK)
		return TC_OK;
	(void)tc_error_set(error, status, "%s", lane->open_error.text);
	tci_lane_stop(lane);
	return status;
}

void tci_lane_submit(struct tci_lane *lane, struct tc_storage_task *task)
{
	task->next = NULL;
	task->remaining = task->bytes;
	pthread_mutex_lock(&lane->mutex);
	if (lane->last == NULL)
		lane->first = task;
	else
		lane->last->next = task;
	lane->last = task;
	pthread_cond_broadcast(&lane->changed);
	pthread_mutex_unlock(&lane->mutex);
}

void tci_lane_add_memory(struct tci_lane *lane, const struct iovec *memory)
{
	pthread_mutex_lock(&lane->mutex);
	while (lane->memory != NULL)
		pthread_cond_wait(&lane->changed, &lane->mutex);
	lane->memory = memory;
	pthread_cond_broadcast(&lane->changed);
	while (lane->memory == memory)
		pthread_cond_wait(&lane->changed, &lane->mutex);
	pthread_mutex_unlock(&lane->mutex);
}

void tci_lane_stop(struct tci_lane *lane)
{
	if (!lane->has_thread)
		return;
	pthread_mutex_lock(&lane->mutex);
	lane->is_stopping = true;
	pthread_cond_broadcast(&lane->changed);
	pthread_mutex_unlock(&lane->mutex);
	pthread_join(lane->thread, NULL);
	pthread_cond_destroy(&lane->changed);
	pthread_mutex_destroy(&lane->mutex);
	lane->has_thread = false;
	lane->is_ready = lane->is_stopping = false;
}
