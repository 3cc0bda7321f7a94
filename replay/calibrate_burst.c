/**
 * @file calibrate_burst.c
 * A burst of tasks of one kind: what a lane does in it per task, gaps included, is what the
 * simulator calls a command's time.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "calibrate_parts.h"

struct tci_burst {
	pthread_mutex_t mutex;
	pthread_cond_t all_done;
	size_t remaining;
	uint64_t start_ps, end_ps;
	enum tc_status status;
	char message[256];
};

enum tc_status tci_burst_create(struct tci_burst **burst, struct tc_error *error)
{
	struct tci_burst *created = calloc(1, sizeof *created);
	if (created == NULL)
		return tc_error_no_memory(error, "a burst of copies", sizeof *created);
	if (pthread_mutex_init(&created->mutex, NULL) != 0) {
		free(created);
		return tc_error_no_memory(error, "a lock", 0);
	}
	if (pthread_cond_init(&created->all_done, NULL) != 0) {
		(void)pthread_mutex_destroy(&created->mutex);
		free(created);
		return tc_error_no_memory(error, "a condition", 0);
	}
	*burst = created;
	return TC_OK;
}

void tci_burst_free(struct tci_burst *burst)
{
	if (burst == NULL)
		return;
	(void)pthread_cond_destroy(&burst->all_done);
	(void)pthread_mutex_destroy(&burst->mutex);
	free(burst);
}

void tci_burst_begin(struct tci_burst *burst, size_t tasks)
{
	(void)pthread_mutex_lock(&burst->mutex);
	burst->remaining = tasks;
	burst->start_ps = UINT64_MAX;
	burst->end_ps = 0;
	burst->status = TC_OK;
	burst->message[0] = '\0';
	(void)pthread_mutex_unlock(&burst->mutex);
}

static void count_down(struct tci_burst *burst, size_t tasks)
{
	burst->remaining -= tasks;
	if (burst->remaining == 0)
		(void)pthread_cond_signal(&burst->all_done);
}

static void one_done(struct tci_burst *burst, uint64_t start_ps, uint64_t end_ps,
                     enum tc_status status, const char *message)
{
	(void)pthread_mutex_lock(&burst->mutex);
	if (start_ps < burst->start_ps)
		burst->start_ps = start_ps;
	if (end_ps > burst->end_ps)
		burst->end_ps = end_ps;
	if (status != TC_OK && burst->status == TC_OK) {
		burst->status = status;
		(void)snprintf(burst->message, sizeof burst->message, "%s",
		               message != NULL ? message : "a task failed");
	}
	count_down(burst, 1);
	(void)pthread_mutex_unlock(&burst->mutex);
}

void tci_burst_device_done(void *self, const struct tc_device_task *task, uint64_t start_ps,
                           uint64_t end_ps, enum tc_status status, const char *message)
{
	(void)task;
	one_done(self, start_ps, end_ps, status, message);
}

void tci_burst_storage_done(void *self, const struct tc_storage_task *task, uint64_t start_ps,
                            uint64_t end_ps, enum tc_status status, const char *message)
{
	(void)task;
	one_done(self, start_ps, end_ps, status, message);
}

void tci_burst_skip(struct tci_burst *burst, size_t tasks)
{
	(void)pthread_mutex_lock(&burst->mutex);
	if (tasks > 0)
		count_down(burst, tasks);
	(void)pthread_mutex_unlock(&burst->mutex);
}

enum tc_status tci_burst_wait(struct tci_burst *burst, uint64_t *ps, struct tc_error *error)
{
	(void)pthread_mutex_lock(&burst->mutex);
	while (burst->remaining > 0)
		(void)pthread_cond_wait(&burst->all_done, &burst->mutex);
	enum tc_status status = burst->status;
	*ps = burst->end_ps > burst->start_ps ? burst->end_ps - burst->start_ps : 1;
	(void)pthread_mutex_unlock(&burst->mutex);
	if (status != TC_OK)
		return tc_error_set(error, status, "%s", burst->message);
	return TC_OK;
}
