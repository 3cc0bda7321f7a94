#include "memory_storage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct direction {
	struct memory *memory;
	pthread_t thread;
	struct tc_storage_task **tasks; /**< a FIFO; never shrinks */
	size_t head, tail, capacity;
};

struct memory {
	pthread_mutex_t mutex;
	pthread_cond_t wake;
	struct direction directions[2];
	unsigned char *bytes;
	uint64_t size;
	uint64_t (*clock_ps)(void *clock);
	void *clock;
	unsigned reads_until_failure; /**< 0: never */
	bool stop;
};

static void must(bool condition, const char *what)
{
	if (condition)
		return;
	(void)fprintf(stderr, "memory storage: %s\n", what);
	abort();
}

static void copy(void *to, const void *from, size_t bytes)
{
	if (bytes > 0)
		memcpy(to, from, bytes);
}

static void run(struct memory *memory, struct tc_storage_task *task, bool fail)
{
	uint64_t start = memory->clock_ps(memory->clock);
	must(task->bytes > 0 && task->bytes % 4096 == 0 && task->offset % 4096 == 0 &&
	         (uintptr_t)task->memory % 4096 == 0 && (uintptr_t)task->tail % 4096 == 0 &&
	         task->tail_bytes % 4096 == 0 && task->tail_bytes <= task->bytes,
	     "a task that is not aligned");
	must(task->offset <= memory->size && task->bytes <= memory->size - task->offset,
	     "a task outside the pool");
	size_t tail = (size_t)task->tail_bytes, body = (size_t)task->bytes - tail;
	unsigned char *file = memory->bytes + task->offset;
	if (task->prepare != NULL)
		task->prepare(task->done_self, task);
	if (task->write) {
		copy(file, task->memory, body);
		copy(file + body, task->tail, tail);
	} else if (!fail) {
		copy(task->memory, file, body);
		copy(task->tail, file + body, tail);
	}
	task->done(task->done_self, task, start, memory->clock_ps(memory->clock),
	           fail ? TC_IO : TC_OK, fail ? "injected" : NULL);
}

static void *worker(void *argument)
{
	struct direction *direction = argument;
	struct memory *memory = direction->memory;
	pthread_mutex_lock(&memory->mutex);
	for (;;) {
		while (direction->head == direction->tail && !memory->stop)
			pthread_cond_wait(&memory->wake, &memory->mutex);
		if (direction->head == direction->tail)
			break;
		struct tc_storage_task *task = direction->tasks[direction->head++];
		bool fail = !task->write && memory->reads_until_failure > 0 &&
		            --memory->reads_until_failure == 0;
		pthread_mutex_unlock(&memory->mutex);
		run(memory, task, fail);
		pthread_mutex_lock(&memory->mutex);
	}
	pthread_mutex_unlock(&memory->mutex);
	return NULL;
}

static enum tc_status create_with(const struct tc_storage_options *options,
                                  uint64_t (*clock_ps)(void *clock), void *clock, unsigned failing,
                                  void **self)
{
	struct memory *memory = calloc(1, sizeof *memory);
	must(memory != NULL, "no memory");
	memory->bytes = calloc(1, (size_t)options->bytes);
	must(memory->bytes != NULL && options->bytes % 4096 == 0, "no memory");
	memory->size = options->bytes;
	memory->clock_ps = clock_ps;
	memory->clock = clock;
	memory->reads_until_failure = failing;
	must(pthread_mutex_init(&memory->mutex, NULL) == 0 &&
	         pthread_cond_init(&memory->wake, NULL) == 0,
	     "no locks");
	for (int d = 0; d < 2; d++) {
		memory->directions[d].memory = memory;
		must(pthread_create(&memory->directions[d].thread, NULL, worker,
		                    &memory->directions[d]) == 0,
		     "no thread");
	}
	*self = memory;
	return TC_OK;
}

static enum tc_status create(const struct tc_storage_options *options,
                             uint64_t (*clock_ps)(void *clock), void *clock, void **self,
                             struct tc_error *error)
{
	(void)error;
	return create_with(options, clock_ps, clock, 0, self);
}

static enum tc_status create_failing(const struct tc_storage_options *options,
                                     uint64_t (*clock_ps)(void *clock), void *clock, void **self,
                                     struct tc_error *error)
{
	(void)error;
	return create_with(options, clock_ps, clock, 3, self);
}

static void register_memory(void *self, void *memory, uint64_t bytes)
{
	(void)self;
	(void)memory;
	(void)bytes;
}

static enum tc_status submit(void *self, struct tc_storage_task *task, struct tc_error *error)
{
	struct memory *memory = self;
	struct direction *direction = &memory->directions[task->write];
	(void)error;
	pthread_mutex_lock(&memory->mutex);
	if (direction->tail == direction->capacity) {
		direction->capacity = direction->capacity == 0 ? 64 : 2 * direction->capacity;
		direction->tasks = realloc(direction->tasks,
		                           direction->capacity * sizeof(struct tc_storage_task *));
		must(direction->tasks != NULL, "no memory");
	}
	direction->tasks[direction->tail++] = task;
	pthread_cond_broadcast(&memory->wake);
	pthread_mutex_unlock(&memory->mutex);
	return TC_OK;
}

static void facts(void *self, struct tc_storage_facts *out)
{
	(void)self;
	*out = (struct tc_storage_facts){.backend = "memory", .detail = "for tests"};
}

static void destroy(void *self)
{
	struct memory *memory = self;
	if (memory == NULL)
		return;
	pthread_mutex_lock(&memory->mutex);
	memory->stop = true;
	pthread_cond_broadcast(&memory->wake);
	pthread_mutex_unlock(&memory->mutex);
	for (int d = 0; d < 2; d++) {
		(void)pthread_join(memory->directions[d].thread, NULL);
		free(memory->directions[d].tasks);
	}
	pthread_cond_destroy(&memory->wake);
	pthread_mutex_destroy(&memory->mutex);
	free(memory->bytes);
	free(memory);
}

const struct tc_storage_backend memory_storage = {"memory", "for tests", create, register_memory,
                                                  submit,   facts,       destroy};
const struct tc_storage_backend memory_storage_failing = {
    "memory", "for tests, failing", create_failing, register_memory, submit, facts, destroy};
