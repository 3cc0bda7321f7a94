#include "storage_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

void storage_case_open(struct storage_case *test, size_t directories, uint64_t bytes)
{
	*test = (struct storage_case){.clock = 1};
	assert_true(directories <= STORAGE_CASE_DIRECTORIES);
	assert_int_equal(pthread_mutex_init(&test->clock_mutex, NULL), 0);
	for (size_t i = 0; i < directories; i++) {
		(void)snprintf(test->folders[i], sizeof test->folders[i], "storage-XXXXXX");
		assert_non_null(mkdtemp(test->folders[i]));
		test->directories[i] = test->folders[i];
	}
	test->options = (struct tc_storage_options){
	    .directories = test->directories,
	    .directory_count = directories,
	    .bytes = bytes,
	    .name = "case",
	    .direct = true,
	};
}

size_t storage_case_files(const struct storage_case *test, unsigned directory)
{
	size_t count = 0;
	char **names = test_list_folder(test->folders[directory], &count);
	test_free_names(names, count);
	return count;
}

void storage_case_close(struct storage_case *test)
{
	for (unsigned i = 0; i < test->options.directory_count; i++)
		assert_int_equal(rmdir(test->folders[i]), 0); /* only an empty one can go */
	pthread_mutex_destroy(&test->clock_mutex);
}

uint64_t storage_case_clock(void *self)
{
	struct storage_case *test = self;
	pthread_mutex_lock(&test->clock_mutex);
	uint64_t now = test->clock++;
	pthread_mutex_unlock(&test->clock_mutex);
	return now;
}

static void done(void *self, const struct tc_storage_task *task, uint64_t start_ps, uint64_t end_ps,
                 enum tc_status status, const char *message)
{
	struct storage_case_task *mine = self;
	(void)task;
	pthread_mutex_lock(&mine->mutex);
	mine->calls++;
	mine->is_done = true;
	mine->start_ps = start_ps;
	mine->end_ps = end_ps;
	mine->status = status;
	(void)snprintf(mine->message, sizeof mine->message, "%s", message == NULL ? "" : message);
	pthread_cond_signal(&mine->changed);
	pthread_mutex_unlock(&mine->mutex);
}

void storage_case_task_init(struct storage_case_task *task, bool write, void *memory,
                            uint64_t offset, uint64_t bytes)
{
	*task = (struct storage_case_task){
	    .task = {
	        .write = write, .memory = memory, .offset = offset, .bytes = bytes, .done = done}};
	task->task.done_self = task;
	assert_int_equal(pthread_mutex_init(&task->mutex, NULL), 0);
	assert_int_equal(pthread_cond_init(&task->changed, NULL), 0);
}

void storage_case_submit(const struct tc_storage_backend *backend, void *self,
                         struct storage_case_task *task)
{
	struct tc_error error = {.status = TC_OK};
	if (backend->submit(self, &task->task, &error) != TC_OK)
		fail_msg("%s", error.text);
}

enum tc_status storage_case_wait(struct storage_case_task *task)
{
	pthread_mutex_lock(&task->mutex);
	while (!task->is_done)
		pthread_cond_wait(&task->changed, &task->mutex);
	pthread_mutex_unlock(&task->mutex);
	pthread_cond_destroy(&task->changed);
	pthread_mutex_destroy(&task->mutex);
	return task->status;
}

enum tc_status storage_case_run(const struct tc_storage_backend *backend, void *self, bool write,
                                void *memory, uint64_t offset, uint64_t bytes, char *message)
{
	struct storage_case_task task;
	storage_case_task_init(&task, write, memory, offset, bytes);
	storage_case_submit(backend, self, &task);
	enum tc_status status = storage_case_wait(&task);
	if (message != NULL)
		memcpy(message, task.message, sizeof task.message);
	return status;
}

void *storage_case_memory(uint64_t bytes)
{
	void *memory = NULL;
	assert_int_equal(posix_memalign(&memory, 4096, bytes), 0);
	return memory;
}
