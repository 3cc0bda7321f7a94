/**
 * @file storage.h
 * What both storage backends share: lanes and their threads. A backend is an engine that runs one
 * task on the lane's thread.
 */
#ifndef TENCACHE_STORAGE_H
#define TENCACHE_STORAGE_H

#include <pthread.h>

#include "stripe.h"

#define TCI_DEFAULT_DEPTH 8u
#define TCI_MOST_DEPTH 1024u
#define TCI_DEFAULT_BLOCK_BYTES (1ull << 20)
#define TCI_MOST_BLOCK_BYTES (1ull << 30)
#define TCI_STORAGE_TEXT_BYTES 160

struct tci_storage_engine;

struct tci_storage_settings {
	uint32_t depth;
	uint64_t block_bytes;
};

/** One direction: a FIFO of tasks and the thread that runs them one after another. */
struct tci_lane {
	const struct tci_storage_engine *engine;
	const struct tci_stripes *stripes;
	struct tci_storage_settings settings;
	uint64_t (*clock_ps)(void *clock);
	void *clock;
	bool write;
	void *own; /**< of the engine */
	/** What the engine obtained, for facts; written on the lane's thread before it is ready. */
	char obtained[TCI_STORAGE_TEXT_BYTES];
	_Atomic uint64_t memory_bytes; /**< registered */
	_Atomic int memory_refused;    /**< a negative errno, or 0 */

	pthread_t thread;
	bool has_thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	/* Below: under the mutex. */
	bool is_ready, is_stopping;
	enum tc_status open_status;
	struct tc_error open_error;
	struct tc_storage_task *first, *last;
	const struct iovec *memory; /**< to be registered */
};

/** Everything here is called on the lane's thread. */
struct tci_storage_engine {
	const char *name;
	enum tc_status (*open)(struct tci_lane *lane, struct tc_error *error);
	/** Run a task to its end; nothing of it may be in flight on return, whatever the status. */
	enum tc_status (*run)(struct tci_lane *lane, struct tc_storage_task *task,
	                      struct tc_error *error);
	void (*add_memory)(struct tci_lane *lane, const struct iovec *memory); /**< or NULL */
	void (*close)(struct tci_lane *lane);
};

extern const struct tci_storage_engine tci_engine_io_uring;
extern const struct tci_storage_engine tci_engine_sync;

/** Start a thread for a lane and wait until its engine is open. On failure nothing runs. */
enum tc_status tci_lane_start(struct tci_lane *lane, struct tc_error *error);
void tci_lane_submit(struct tci_lane *lane, struct tc_storage_task *task);
/** Hand memory to the engine, and wait until it has looked at it. */
void tci_lane_add_memory(struct tci_lane *lane, const struct iovec *memory);
/** Run what is queued, then end the thread. */
void tci_lane_stop(struct tci_lane *lane);

/** Append to a text in a buffer of `bytes`; cut where it is full. */
void tci_append(char *text, size_t bytes, const char *format, ...) TC_PRINTF(3, 4);

enum tci_storage_choice { TCI_STORAGE_IO_URING, TCI_STORAGE_SYNC, TCI_STORAGE_AUTO };
/** As the create() of a backend, through a table of calls. Destroy with the backend's destroy(). */
enum tc_status tci_storage_create(enum tci_storage_choice choice,
                                  const struct tci_storage_calls *calls,
                                  const struct tc_storage_options *options,
                                  uint64_t (*clock_ps)(void *clock), void *clock, void **self,
                                  struct tc_error *error);

#endif
