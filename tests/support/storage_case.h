/** A storage backend in a folder of its own, and tasks that can be waited for. */
#ifndef TENCACHE_TEST_STORAGE_CASE_H
#define TENCACHE_TEST_STORAGE_CASE_H

#include <pthread.h>

#include "tencache/replay.h"

#define STORAGE_CASE_DIRECTORIES 3
#define STORAGE_CASE_TEXT_BYTES 1024

struct storage_case {
	char folders[STORAGE_CASE_DIRECTORIES][32]; /**< in the working directory */
	const char *directories[STORAGE_CASE_DIRECTORIES];
	struct tc_storage_options options;
	struct tc_error error;
	uint64_t clock; /**< counts up by one each time it is read */
	pthread_mutex_t clock_mutex;
};

/** Make `directories` empty folders, and options for a pool of `bytes` in them. */
void storage_case_open(struct storage_case *test, size_t directories, uint64_t bytes);
/** Fail unless the folders are empty, and remove them. */
void storage_case_close(struct storage_case *test);
/** Number of files in a folder. */
size_t storage_case_files(const struct storage_case *test, unsigned directory);
/** The replay clock: `self` is the case. */
uint64_t storage_case_clock(void *self);

/** A task, what became of it, and when relative to others. */
struct storage_case_task {
	struct tc_storage_task task;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool is_done;
	unsigned calls; /**< of done() */
	uint64_t start_ps, end_ps;
	enum tc_status status;
	char message[STORAGE_CASE_TEXT_BYTES];
};

/** Whether memory is 4,096-byte aligned is up to the caller. */
void storage_case_task_init(struct storage_case_task *task, bool write, void *memory,
                            uint64_t offset, uint64_t bytes);
/** Submit; must succeed. */
void storage_case_submit(const struct tc_storage_backend *backend, void *self,
                         struct storage_case_task *task);
/** Wait until done() was called. @return the status */
enum tc_status storage_case_wait(struct storage_case_task *task);
/** Init, submit, wait. @return the status; the message is in `message` if not NULL */
enum tc_status storage_case_run(const struct tc_storage_backend *backend, void *self, bool write,
                                void *memory, uint64_t offset, uint64_t bytes, char *message);
/** 4,096-byte aligned memory; free() it. */
void *storage_case_memory(uint64_t bytes);

#endif
