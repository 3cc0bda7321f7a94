/** @file lanes.c
 * Workers are not bound to lanes: a lane with something to do is *ready*, and any worker takes it
 * for one task. A worker whose task ends looks again before it sleeps, and what the end of its task
 * released is usually what it finds, so a chain of commands over several lanes runs on one thread
 * without waking another. Others are woken only for what it leaves.
 *
 * A task that must last longer than its work is *held*: its lane waits for a deadline, the thread
 * does not. Of the idle workers one sleeps until the earliest deadline: it is the timer of all
 * lanes.
 */
#include "lanes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "clock.h"
#include "tencache/units.h"

/** How often a held task is asked whether it was cancelled. */
#define ASK_PS (50 * 1000 * TC_PS_PER_US)

struct lane {
	struct tc_device_task *current;     /**< runs, or is held */
	struct tc_device_task *head, *tail; /**< wait behind it */
};

struct tci_lanes {
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	uint64_t (*clock_ps)(void *clock);
	void *clock;
	uint32_t lane_count, thread_count;
	uint64_t ready;    /**< bit per lane: a worker may take it */
	uint64_t held;     /**< bit per lane: its current task waits for a deadline */
	uint32_t turn;     /**< the lane that is looked at first */
	uint32_t sleeping; /**< workers that wait, the timer included */
	bool timer;        /**< one of them keeps the deadlines */
	bool stop;
	/** Workers inside done(): each looks for ready lanes once more before it sleeps. */
	atomic_uint ending;
	struct lane lanes[TCI_MAX_WORK_LANES];
	pthread_t threads[TCI_MAX_WORK_LANES];
};

/* ---------------------------------------------------------------- one task */

static void copy(const struct tc_device_task *task)
{
	if (task->target != NULL && task->bytes > 0)
		memcpy(task->target, task->source, (size_t)task->bytes);
}

static void work(const struct tc_device_task *task, enum tc_device_stage stage)
{
	if (task->work != NULL)
		task->work(task->done_self, task, stage);
}

/** @return the task is to be held until task->due_ps */
static bool begin(struct tci_lanes *set, struct tc_device_task *task)
{
	task->start_ps = set->clock_ps(set->clock);
	work(task, TC_STAGE_BEGIN);
	copy(task);
	work(task, TC_STAGE_DONE);
	if (task->not_before_ps == 0 && task->hold_ps == 0)
		return false;
	task->due_ps = task->not_before_ps;
	if (task->due_ps == 0 && !tc_add_u64(task->start_ps, task->hold_ps, &task->due_ps))
		task->due_ps = UINT64_MAX;
	return task->due_ps > set->clock_ps(set->clock);
}

static void end(struct tci_lanes *set, struct tc_device_task *task)
{
	work(task, TC_STAGE_HELD);
	uint64_t end_ps = set->clock_ps(set->clock);
	atomic_fetch_add(&set->ending, 1);
	task->done(task->done_self, task, task->start_ps, end_ps, TC_OK, NULL);
}

/* ---------------------------------------------------------------- workers */

static uint64_t bit(uint32_t lane)
{
	return UINT64_C(1) << lane;
}

/** A worker that sleeps is told if there is more to do than those awake will see to. */
static void wake_one(struct tci_lanes *set)
{
	if (set->sleeping > 0)
		pthread_cond_signal(&set->wake);
}

/** Held tasks whose time has come are ready again. @return the earliest deadline of the others */
static uint64_t expire(struct tci_lanes *set)
{
	uint64_t next = UINT64_MAX, now = set->clock_ps(set->clock);
	for (uint64_t rest = set->held; rest != 0; rest &= rest - 1) {
		uint32_t index = (uint32_t)__builtin_ctzll(rest);
		const struct tc_device_task *task = set->lanes[index].current;
		bool cut =
		    set->stop || (task->cancelled != NULL && task->cancelled(task->done_self));
		if (cut || task->due_ps <= now) {
			set->held &= ~bit(index);
			set->ready |= bit(index);
		} else if (task->due_ps < next) {
			next = task->due_ps;
		}
	}
	return next;
}

static void sleep_until(struct tci_lanes *set, uint64_t due_ps)
{
	uint64_t now = set->clock_ps(set->clock);
	uint64_t rest = due_ps > now ? due_ps - now : 0;
	struct timespec until = tci_clock_after(rest < ASK_PS ? rest : ASK_PS);
	set->timer = true;
	set->sleeping++;
	(void)pthread_cond_timedwait(&set->wake, &set->mutex, &until);
	set->sleeping--;
	set->timer = false;
}

static void sleep_until_woken(struct tci_lanes *set)
{
	set->sleeping++;
	(void)pthread_cond_wait(&set->wake, &set->mutex);
	set->sleeping--;
}

/** The next ready lane in turn, which is no longer ready. */
static uint32_t take(struct tci_lanes *set)
{
	uint64_t after = set->turn < 64 ? set->ready >> set->turn << set->turn : 0;
	uint32_t index = (uint32_t)__builtin_ctzll(after != 0 ? after : set->ready);
	set->turn = index + 1;
	set->ready &= ~bit(index);
	return index;
}

/** One visit to a lane: a task's beginning, its end, or both. The mutex is held before and after.
 */
static void visit(struct tci_lanes *set, uint32_t index)
{
	struct lane *lane = &set->lanes[index];
	bool resumed = lane->current != NULL;
	if (!resumed) {
		lane->current = lane->head;
		lane->head = lane->current->next;
	}
	struct tc_device_task *task = lane->current;
	pthread_mutex_unlock(&set->mutex);
	if (!resumed && begin(set, task)) {
		pthread_mutex_lock(&set->mutex);
		set->held |= bit(index);
		return;
	}
	end(set, task); /* from here on the task is its owner's */
	pthread_mutex_lock(&set->mutex);
	atomic_fetch_sub(&set->ending, 1);
	lane->current = NULL;
	if (lane->head != NULL)
		set->ready |= bit(index);
}

static void *worker(void *argument)
{
	struct tci_lanes *set = argument;
	/* Deadlines are kept to the microsecond, not to the kernel's 50 us of slack. */
	(void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
	pthread_mutex_lock(&set->mutex);
	for (;;) {
		uint64_t next = set->held != 0 ? expire(set) : UINT64_MAX;
		if (set->ready != 0) {
			uint32_t index = take(set);
			if (set->ready != 0 || (set->held != 0 && !set->timer))
				wake_one(set);
			visit(set, index);
		} else if (set->stop) {
			break;
		} else if (set->held != 0 && !set->timer) {
			sleep_until(set, next);
		} else {
			sleep_until_woken(set);
		}
	}
	pthread_mutex_unlock(&set->mutex);
	return NULL;
}

/* ---------------------------------------------------------------- interface */

/** Condition with deadlines on the monotonic clock. */
static bool init_locks(struct tci_lanes *set)
{
	pthread_condattr_t attributes;
	if (pthread_mutex_init(&set->mutex, NULL) != 0)
		return false;
	bool made = pthread_condattr_init(&attributes) == 0;
	if (made) {
		made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
		       pthread_cond_init(&set->wake, &attributes) == 0;
		pthread_condattr_destroy(&attributes);
	}
	if (!made)
		pthread_mutex_destroy(&set->mutex);
	return made;
}

enum tc_status tci_lanes_create(uint32_t lanes, uint32_t threads, uint64_t (*clock_ps)(void *clock),
                                void *clock, struct tci_lanes **set, struct tc_error *error)
{
	*set = NULL;
	if (lanes == 0 || lanes > TCI_MAX_WORK_LANES || threads == 0 ||
	    threads > TCI_MAX_WORK_LANES)
		return tc_error_set(error, TC_ARGUMENT,
		                    "%u lanes with %u threads: expected 1 to %u of each",
		                    (unsigned)lanes, (unsigned)threads, TCI_MAX_WORK_LANES);
	struct tci_lanes *made = calloc(1, sizeof *made);
	if (made == NULL || !init_locks(made)) {
		free(made);
		return tc_error_no_memory(error, "lanes", sizeof *made);
	}
	made->clock_ps = clock_ps;
	made->clock = clock;
	made->lane_count = lanes;
	for (uint32_t t = 0; t < threads; t++) {
		int failed = pthread_create(&made->threads[t], NULL, worker, made);
		if (failed != 0) {
			tci_lanes_destroy(made);
			return tc_error_set(error, TC_NO_MEMORY, "cannot start a thread: %s",
			                    strerror(failed));
		}
		made->thread_count++;
	}
	*set = made;
	return TC_OK;
}

void tci_lanes_submit(struct tci_lanes *set, struct tc_device_task *task)
{
	struct lane *lane = &set->lanes[task->lane];
	task->next = NULL;
	pthread_mutex_lock(&set->mutex);
	if (!set->stop) {
		if (lane->head != NULL)
			lane->tail->next = task;
		else
			lane->head = task;
		lane->tail = task;
		if (lane->current == NULL && lane->head == task) {
			set->ready |= bit(task->lane);
			if (atomic_load(&set->ending) == 0)
				wake_one(set);
		}
	}
	pthread_mutex_unlock(&set->mutex);
}

void tci_lanes_destroy(struct tci_lanes *set)
{
	if (set == NULL)
		return;
	pthread_mutex_lock(&set->mutex);
	set->stop = true;
	for (uint32_t index = 0; index < set->lane_count; index++) {
		set->lanes[index].head = NULL;
		if (set->lanes[index].current == NULL)
			set->ready &= ~bit(index);
	}
	pthread_cond_broadcast(&set->wake);
	pthread_mutex_unlock(&set->mutex);
	for (uint32_t t = 0; t < set->thread_count; t++)
		(void)pthread_join(set->threads[t], NULL);
	pthread_cond_destroy(&set->wake);
	pthread_mutex_destroy(&set->mutex);
	free(set);
}
