/** @file team.c
 * A parallel loop: parts are taken from a shared counter, helpers sleep in between.
 */
#include "team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

struct tci_team {
	pthread_mutex_t mutex;
	pthread_cond_t begin, end;
	pthread_t *threads;
	uint32_t thread_count; /**< helpers */
	uint64_t round;        /**< counts the pieces of work */
	uint32_t working;
	bool stop, busy;
	void (*part)(void *self, uint64_t number);
	void *self;
	uint64_t parts;
	atomic_uint_fast64_t next;
};

static void take_parts(struct tci_team *team)
{
	for (;;) {
		uint64_t number = atomic_fetch_add(&team->next, 1);
		if (number >= team->parts)
			return;
		team->part(team->self, number);
	}
}

static void *helper(void *argument)
{
	struct tci_team *team = argument;
	uint64_t seen = 0;
	pthread_mutex_lock(&team->mutex);
	for (;;) {
		while (!team->stop && team->round == seen)
			pthread_cond_wait(&team->begin, &team->mutex);
		if (team->stop)
			break;
		seen = team->round;
		pthread_mutex_unlock(&team->mutex);
		take_parts(team);
		pthread_mutex_lock(&team->mutex);
		if (--team->working == 0)
			pthread_cond_signal(&team->end);
	}
	pthread_mutex_unlock(&team->mutex);
	return NULL;
}

enum tc_status tci_team_create(uint32_t threads, struct tci_team **team, struct tc_error *error)
{
	uint32_t helpers = threads > 0 ? threads - 1 : 0;
	*team = NULL;
	struct tci_team *made = calloc(1, sizeof *made);
	if (made == NULL)
		return tc_error_no_memory(error, "a team of threads", sizeof *made);
	made->threads = tc_alloc_array((size_t)helpers + 1, sizeof *made->threads);
	if (made->threads == NULL) {
		free(made);
		return tc_error_no_memory(error, "a team of threads", helpers);
	}
	(void)pthread_mutex_init(&made->mutex, NULL);
	(void)pthread_cond_init(&made->begin, NULL);
	(void)pthread_cond_init(&made->end, NULL);
	for (uint32_t h = 0; h < helpers; h++) {
		int failed = pthread_create(&made->threads[h], NULL, helper, made);
		if (failed != 0) {
			tci_team_destroy(made);
			return tc_error_set(error, TC_NO_MEMORY, "cannot start a thread: %s",
			                    strerror(failed));
		}
		made->thread_count++;
	}
	*team = made;
	return TC_OK;
}

void tci_team_run(struct tci_team *team, void (*part)(void *self, uint64_t number), void *self,
                  uint64_t parts)
{
	pthread_mutex_lock(&team->mutex);
	bool alone = team->busy || team->thread_count == 0 || parts < 2;
	if (!alone) {
		team->busy = true;
		team->part = part;
		team->self = self;
		team->parts = parts;
		atomic_store(&team->next, 0);
		team->working = team->thread_count;
		team->round++;
		pthread_cond_broadcast(&team->begin);
	}
	pthread_mutex_unlock(&team->mutex);
	if (alone) {
		for (uint64_t number = 0; number < parts; number++)
			part(self, number);
		return;
	}
	take_parts(team);
	pthread_mutex_lock(&team->mutex);
	while (team->working > 0)
		pthread_cond_wait(&team->end, &team->mutex);
	team->busy = false;
	pthread_mutex_unlock(&team->mutex);
}

void tci_team_destroy(struct tci_team *team)
{
	if (team == NULL)
		return;
	pthread_mutex_lock(&team->mutex);
	team->stop = true;
	pthread_cond_broadcast(&team->begin);
	pthread_mutex_unlock(&team->mutex);
	for (uint32_t h = 0; h < team->thread_count; h++)
		(void)pthread_join(team->threads[h], NULL);
	pthread_cond_destroy(&team->begin);
	pthread_cond_destroy(&team->end);
	pthread_mutex_destroy(&team->mutex);
	free(team->threads);
	free(team);
}
