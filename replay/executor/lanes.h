/**
 * @file lanes.h
 * Lanes with worker threads: each lane is a FIFO of tasks of which one runs at a time. The host
 * device is made of it, and so is the executor's own work (queue `cpu`, checks after I/O).
 */
#ifndef TENCACHE_REPLAY_LANES_H
#define TENCACHE_REPLAY_LANES_H

#include "tencache/replay.h"

/** Lanes of one set: bits of a word. */
#define TCI_MAX_WORK_LANES 64u

struct tci_lanes;

/** @param threads workers, shared by all lanes; at least 1 */
enum tc_status tci_lanes_create(uint32_t lanes, uint32_t threads, uint64_t (*clock_ps)(void *clock),
                                void *clock, struct tci_lanes **set, struct tc_error *error);
/** Append to the FIFO of task->lane; thread-safe, also from inside a task's callbacks. */
void tci_lanes_submit(struct tci_lanes *set, struct tc_device_task *task);
/** Ends what runs, holds at once; what waits in a FIFO is dropped without a call. NULL allowed. */
void tci_lanes_destroy(struct tci_lanes *set);

#endif
