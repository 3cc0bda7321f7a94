/**
 * The plain engine: pread() and pwrite(). The lane's thread and depth - 1 helpers share the pieces
 * of one task, so as many transfers are in flight as with a ring. A task of one piece wakes nobody.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage.h"
#include "tencache/units.h"

/** Helpers cost a thread each; more in flight than this gains nothing measurable. */
#define MOST_THREADS 16u

struct crew {
	struct tci_lane *lane;
	pthread_t *helpers;
	uint32_t helper_count;
	uint64_t block_bytes;
	pthread_mutex_t mutex;
	pthread_cond_t work, idle;
	/* Under the mutex. */
	struct tc_storage_task *task; /**< NULL: no pieces to take */
	uint32_t busy;                /**< who has a piece */
	bool is_ending;
	enum tc_status status; /**< of the task */
	struct tc_error error;
};

/**
 * Take pieces and transfer them until none is left or one failed. With the mutex, which is released
 * during transfers.
 */
static void take_pieces(struct crew *crew)
{
	const struct tci_stripes *stripes = crew->lane->stripes;
	struct tci_piece piece;
	while (crew->task != NULL && crew->status == TC_OK &&
	       tci_stripes_cut(stripes, crew->block_bytes, crew->task, &piece)) {
		struct tc_error error = {.status = TC_OK};
		int failure;
		crew->busy++;
		pthread_mutex_unlock(&crew->mutex);
		enum tci_progress end =
		    tci_piece_transfer(stripes, crew->lane->write, &piece, &failure);
		if (end != TCI_DONE)
			(void)tci_piece_error(stripes, crew->lane->write, &piece, failure, &error);
		pthread_mutex_lock(&crew->mutex);
		crew->busy--;
		if (end != TCI_DONE && crew->status == TC_OK) {
			crew->status = error.status;
			crew->error = error;
		}
	}
	if (crew->busy == 0)
		pthread_cond_signal(&crew->idle);
}

static bool has_pieces(const struct crew *crew)
{
	return crew->task != NULL && crew->task->remaining > 0 && crew->status == TC_OK;
}

static void *help(void *self)
{
	struct crew *crew = self;
	pthread_mutex_lock(&crew->mutex);
	while (!crew->is_ending) {
		if (has_pieces(crew))
			take_pieces(crew);
		else
			pthread_cond_wait(&crew->work, &crew->mutex);
	}
	pthread_mutex_unlock(&crew->mutex);
	return NULL;
}

static enum tc_status sync_run(struct tci_lane *lane, struct tc_storage_task *task,
                               struct tc_error *error)
{
	struct crew *crew = lane->own;
	pthread_mutex_lock(&crew->mutex);
	crew->task = task;
	crew->status = TC_OK;
	crew->error.status = TC_OK;
	if (task->bytes > crew->block_bytes)
		pthread_cond_broadcast(&crew->work);
	take_pieces(crew);
	while (crew->busy > 0)
		pthread_cond_wait(&crew->idle, &crew->mutex);
	crew->task = NULL;
	enum tc_status status = crew->status;
	if (status != TC_OK)
		(void)tc_error_set(error, status, "%s", crew->error.text);
	pthread_mutex_unlock(&crew->mutex);
	return status;
}

static void sync_close(struct tci_lane *lane)
{
	struct crew *crew = lane->own;
	pthread_mutex_lock(&crew->mutex);
	crew->is_ending = true;
	pthread_cond_broadcast(&crew->work);
	pthread_mutex_unlock(&crew->mutex);
	for (uint32_t i = 0; i < crew->helper_count; i++)
		pthread_join(crew->helpers[i], NULL);
	pthread_cond_destroy(&crew->work);
	pthread_cond_destroy(&crew->idle);
	pthread_mutex_destroy(&crew->mutex);
	free(crew->helpers);
	free(crew);
	lane->own = NULL;
}

static enum tc_status sync_open(struct tci_lane *lane, struct tc_error *error)
{
	uint32_t threads =
	    lane->settings.depth < MOST_THREADS ? lane->settings.depth : MOST_THREADS;
	struct crew *crew = calloc(1, sizeof *crew);
	pthread_t *helpers = tc_alloc_array(threads, sizeof *helpers);
	if (crew == NULL || helpers == NULL || pthread_mutex_init(&crew->mutex, NULL) != 0 ||
	    pthread_cond_init(&crew->work, NULL) != 0 ||
	    pthread_cond_init(&crew->idle, NULL) != 0) {
		free(crew);
		free(helpers);
		return tc_error_no_memory(error, "threads of an NVMe lane",
		                          sizeof *crew + threads * sizeof *helpers);
	}
	crew->lane = lane;
	crew->helpers = helpers;
	crew->block_bytes = lane->settings.block_bytes;
	lane->own = crew;
	/* Fewer helpers than wished for only means fewer transfers in flight: facts say how many.
	 */
	while (crew->helper_count + 1 < threads &&
	       pthread_create(&helpers[crew->helper_count], NULL, help, crew) == 0)
		crew->helper_count++;
	(void)snprintf(lane->obtained, sizeof lane->obtained, "pread/pwrite, %u threads each way",
	               crew->helper_count + 1);
	return TC_OK;
}

const struct tci_storage_engine tci_engine_sync = {
    .name = "sync",
    .open = sync_open,
    .run = sync_run,
    .close = sync_close,
};
