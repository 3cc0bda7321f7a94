/** @file executor.h
 * Private: what the parts of the executor share. replay/README.md tells the method.
 *
 *     executor.c          create, free, facts
 *     executor_graph.c    who waits for whom, which lane comes to what next
 *     executor_memory.c   pools, initial and final content
 *     executor_run.c      issuing, admission, completion
 *     executor_submit.c   from a command to tasks of device, storage and own lanes
 *     executor_io.c       drive commands: blocks, aligned buffers, checks after reads
 *     executor_compute.c  what a compute command reads and leaves
 *     executor_cpu.c      optimizer updates, conversions
 *     executor_check.c    is this the wanted content
 *     executor_timing.c   measured times, stalls by cause
 */
#ifndef TENCACHE_REPLAY_EXECUTOR_H
#define TENCACHE_REPLAY_EXECUTOR_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "clock.h"
#include "lanes.h"
#include "pacing.h"
#include "team.h"
#include "tencache/units.h"

#define TCI_BLOCK_BYTES UINT64_C(4096)

struct tci_progress {
	atomic_uint remaining; /**< dependencies that have not ended, and one until it is issued */
	uint32_t lane;         /**< flat index */
	uint64_t next_in_lane; /**< command behind it, or TC_NO_COMMAND */
	uint64_t issue_ps, start_ps, end_ps;
	/** When it should be issued and end: from where the deadlines behind it count. */
	uint64_t issue_due_ps, due_ps;
};

struct tci_exec_lane {
	pthread_mutex_t mutex;
	enum tc_queue queue;
	uint64_t next;   /**< command to submit next, or TC_NO_COMMAND */
	bool pumping;    /**< a thread is submitting a command, and looks for more afterwards */
	bool busy;       /**< drives: a command runs */
	uint64_t due_ps; /**< of the last command submitted that has a deadline */
};

struct tci_pool_memory {
	unsigned char *memory; /**< NULL on drives */
	uint64_t bytes;        /**< as far as the schedule uses the pool */
	void *storage;         /**< drives */
};

/** A drive command: its body where memory is aligned, the rest through a buffer. */
struct tci_io {
	struct tc_storage_task task;     /**< the rest is its tail */
	uint64_t body_bytes, rest_bytes; /**< without padding */
	unsigned char *memory;           /**< the command's own range */
	uint64_t start_ps;
};

struct tc_replay {
	struct tc_replay_options options;
	const struct tc_schedule *schedule;
	const struct tc_plan_info *info;
	const struct tc_machine *machine; /**< for modelled times, or NULL */
	uint64_t count, dilate;
	struct tci_clock clock;
	struct tc_replay_facts facts;

	/* graph */
	struct tci_progress *states;
	uint64_t *first_dependant, *dependants; /**< of command c: [first[c], first[c + 1]) */
	uint64_t *first_after;                  /**< index of a command's binds in `after` */
	uint64_t *after;                        /**< version that each written bind is left with */
	struct tci_exec_lane lanes[TC_MAX_LANES];
	uint32_t lane_count;
	bool *computed; /**< per tensor: its content is what updates compute, not synthetic */

	/* memory */
	struct tci_pool_memory *pools;
	struct tc_content_hashes *hashes;

	/* workers */
	void *device;
	/** Of n lanes: [0, n) queue cpu, [n, 2n) drive commands held to deadlines, [2n, 3n) delays.
	 */
	struct tci_lanes *own;
	struct tci_team *team;
	struct tc_device_task *tasks, *delays;
	struct tci_io *ios;
	uint32_t *io_of; /**< per command: index into ios */
	uint32_t io_count;
	/** Per lane, for what of a drive command is not aligned. */
	unsigned char *buffers[TC_MAX_LANES];
	uint64_t buffer_bytes[TC_MAX_LANES];
	uint64_t *paced_ps;    /**< --throttle: how long each command lasts; else NULL */
	uint64_t issue_due_ps; /**< when the issuing thread should be done with what it issued */
	uint64_t base_ps;      /**< when time began */

	/* progress */
	uint64_t next_issue;
	bool begun, finished;
	uint64_t begin_cpu_ps;
	atomic_uint_fast64_t ended, in_flight;
	sem_t wake; /**< of the issuing thread */
	atomic_bool failed;
	atomic_bool cancelled;
	pthread_mutex_t mutex; /**< of error */
	struct tc_error error;
	atomic_uint_fast64_t verified_bytes, verify_ps, overrun_commands, overrun_ps, bounced_bytes;
};

/* ---------------------------------------------------------------- executor_graph.c */

enum tc_status tci_graph_build(struct tc_replay *replay, struct tc_error *error);
void tci_graph_clear(struct tc_replay *replay);
/** The tensor at the end of the `derived_from` chain. */
uint32_t tci_root(const struct tc_plan_info *info, uint32_t tensor);

/* ---------------------------------------------------------------- executor_memory.c */

enum tc_status tci_contents_create(struct tc_replay *replay, struct tc_error *error);
enum tc_status tci_contents_fill(struct tc_replay *replay, struct tc_error *error);
enum tc_status tci_contents_verify_final(struct tc_replay *replay, struct tc_error *error);
void tci_contents_clear(struct tc_replay *replay);
/** Address of a place in a GPU or CPU pool. */
static inline unsigned char *tci_at(const struct tc_replay *replay, uint32_t pool, uint64_t offset)
{
	return replay->pools[pool].memory + offset;
}

/* ---------------------------------------------------------------- executor_run.c */

/** Remember the first failure and stop. Thread-safe. */
void tci_abort_run(struct tc_replay *replay, enum tc_status status, const char *format, ...)
    TC_PRINTF(3, 4);
bool tci_stopping(const struct tc_replay *replay);
/** The latest deadline of what a command waits for, not before `from_ps`. */
uint64_t tci_dues(const struct tc_replay *replay, const struct tc_command *command,
                  uint64_t from_ps);
/** A command has ended: release what waits for it. */
void tci_complete(struct tc_replay *replay, uint64_t id, uint64_t start_ps, uint64_t end_ps);
/** Submit what the lane may submit. */
void tci_pump(struct tc_replay *replay, uint32_t lane);
/** Wait until nothing is in flight. */
void tci_quiesce(struct tc_replay *replay);

/* ---------------------------------------------------------------- executor_submit.c */

enum tc_status tci_tasks_create(struct tc_replay *replay, struct tc_error *error);
void tci_tasks_clear(struct tc_replay *replay);
/** Hand a command to who runs it; of a lane one at a time does. */
void tci_submit(struct tc_replay *replay, uint64_t id);
/** Work of commands is measured against the time they should last. */
void tci_note_overrun(struct tc_replay *replay, uint64_t work_ps, uint64_t allowed_ps);

/* ---------------------------------------------------------------- executor_io.c */

enum tc_status tci_io_create(struct tc_replay *replay, struct tc_error *error);
void tci_io_clear(struct tc_replay *replay);
void tci_io_submit(struct tc_replay *replay, uint64_t id);
/** One transfer outside the schedule, waited for; memory and bytes aligned. */
enum tc_status tci_io_now(struct tc_replay *replay, uint32_t pool, bool write, void *memory,
                          uint64_t offset, uint64_t bytes, struct tc_error *error);

/* ---------------------------------------------------------------- executor_check.c */

/**
 * Is [offset, offset + bytes) of a tensor's version at `memory`? Else the run fails, naming
 * command, tensor, version and offset. `when` says at which point it was looked at.
 */
bool tci_check(struct tc_replay *replay, const struct tc_command *command, uint32_t tensor,
               uint64_t version, uint64_t offset, const void *memory, uint64_t bytes,
               const char *when);
/** Leave synthetic content, as far as the run will look at it (`whole`: all of it). */
void tci_leave(struct tc_replay *replay, void *memory, uint32_t tensor, uint64_t version,
               uint64_t bytes, bool whole);

/* ---------------------------------------------------------------- executor_compute.c, _cpu.c */

void tci_compute_walk(struct tc_replay *replay, const struct tc_command *command);
/** After the lane was held: nothing may have changed under the command (TC_VERIFY_FULL). */
void tci_compute_look_again(struct tc_replay *replay, const struct tc_command *command);
void tci_convert(struct tc_replay *replay, const struct tc_command *command);
void tci_update(struct tc_replay *replay, const struct tc_command *command);
/** Fill `computed`: the tensors whose content updates really compute. */
enum tc_status tci_mark_computed(struct tc_replay *replay, struct tc_error *error);

/** The indices of the four binds of one parameter's update. */
struct tci_adam_binds {
	uint32_t gradient, master, exp_avg, exp_avg_sq;
};
/** The `k`-th parameter of an update that can be computed; false: there are fewer. */
bool tci_adam_find(const struct tc_plan_info *info, const struct tc_command *command, uint32_t k,
                   struct tci_adam_binds *found);

/* ---------------------------------------------------------------- executor_timing.c */

enum tc_status tci_report_times(struct tc_replay *replay, struct tc_error *error);

#endif
