/**
 * @file replay.h
 * libtencache_replay: runs a schedule for real, command by command, by the rules of the schedule
 * and nothing else. Design: replay/README.md.
 *
 * One thread issues (the caller's); lanes run on their own; a completion releases its dependants
 * without polling. The heart is tc_replay_advance(): issue everything that the schedule puts before
 * a step of an iteration. A timer and a synthetic allocator drive it in tencache-replay; hooks of a
 * running program can drive it later.
 */
#ifndef TENCACHE_REPLAY_H
#define TENCACHE_REPLAY_H

#include "tencache/timing.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tc_verify { TC_VERIFY_OFF, TC_VERIFY_SAMPLE, TC_VERIFY_FULL };
enum tc_compute_mode {
	TC_COMPUTE_MODEL, /**< the compute lane is held for the modelled time */
	TC_COMPUTE_NONE   /**< compute ends at once */
};

/* ---------------------------------------------------------------- device backends */

/** Where a task stands when its `work` is called. */
enum tc_device_stage {
	TC_STAGE_BEGIN, /**< nothing has happened yet */
	TC_STAGE_DONE,  /**< the copy is made; the lane has not been held yet */
	TC_STAGE_HELD   /**< the lane was held as long as asked for; the end follows */
};

/** Work for one lane of the device: a copy, or compute that is modelled by time. */
struct tc_device_task {
	const struct tc_command *command;
	uint32_t lane; /**< flat lane index */
	void *target;  /**< copies: where to; NULL else */
	const void *source;
	uint64_t bytes;
	uint64_t hold_ps; /**< compute: modelled duration; 0: none */
	/** Do not end earlier (replay clock); 0: hold_ps after the start. */
	uint64_t not_before_ps;
	/** What the host does as part of the task, on the lane: checks, stamps, CPU work; NULL:
	 * none. A device whose memory the host cannot reach does the like itself. */
	void (*work)(void *self, const struct tc_device_task *task, enum tc_device_stage stage);
	/** Asked now and then while the lane is held; true: end now. NULL: never. */
	bool (*cancelled)(void *self);
	/** Called by the backend's own thread when the task ends; must not block. */
	void (*done)(void *self, const struct tc_device_task *task, uint64_t start_ps,
	             uint64_t end_ps, enum tc_status status, const char *message);
	void *done_self; /**< `self` of done, work and cancelled */
	/* Private to the backend while it has the task. */
	struct tc_device_task *next;
	uint64_t start_ps, due_ps;
};

/**
 * A device backend: `host` (worker threads, memcpy between two arenas) now, `cuda` later. All
 * functions return a status and set `error`; `self` is what create() made.
 */
struct tc_device_backend {
	const char *name, *summary;
	/** @param lanes flat number of lanes @param clock_ps the replay clock, for start and end */
	enum tc_status (*create)(uint32_t lanes, uint64_t (*clock_ps)(void *clock), void *clock,
	                         void **self, struct tc_error *error);
	void (*destroy)(void *self); /**< waits for what runs; NULL allowed */
	/** Device memory, or pinned host memory; faulted in. Freed by release(). */
	enum tc_status (*allocate)(void *self, enum tc_tier tier, bool pinned, uint64_t bytes,
	                           void **memory, struct tc_error *error);
	void (*release)(void *self, void *memory, uint64_t bytes);
	/** Append to the lane's FIFO. The task stays the caller's until done() was called. */
	enum tc_status (*submit)(void *self, struct tc_device_task *task, struct tc_error *error);
	/** Host view of device memory for verification, or NULL when content must be copied first.
	 */
	void *(*host_view)(void *self, void *memory);
};
extern const struct tc_device_backend tc_device_host;
/** By name; unknown names suggest the nearest, `cuda` says that it is not built in yet. */
enum tc_status tc_device_find(const char *name, const struct tc_device_backend **backend,
                              struct tc_error *error);

/* ---------------------------------------------------------------- storage backends */

struct tc_storage_options {
	const char *const *directories; /**< 1 MiB stripes over several */
	size_t directory_count;
	uint64_t bytes;       /**< of the pool, a multiple of 4,096 */
	const char *name;     /**< schedule and pool name, part of the file names */
	uint32_t depth;       /**< I/Os in flight; 0: 8 */
	uint64_t block_bytes; /**< of one I/O; 0: 1 MiB */
	bool direct;          /**< try O_DIRECT */
	/** Asked between blocks while the files are written, and by tc_replay_create() while memory
	 * is allocated and filled; true ends create(). NULL: never. */
	bool (*cancelled)(void *self);
	void *cancelled_self;
};

/** What was really obtained, for the report. */
struct tc_storage_facts {
	char backend[32]; /**< "io_uring", "sync" */
	char detail[256]; /**< ring flags, registered or not, O_DIRECT or why not, alignment */
	uint64_t retries, short_transfers;
};

struct tc_storage_task {
	const struct tc_command *command;
	bool write;
	void *memory;           /**< 4,096-byte aligned, as `tail` */
	uint64_t offset, bytes; /**< in the pool's file; whole 4 KiB blocks */
	/** The last `tail_bytes` of `bytes`, whole blocks, lie here instead of in `memory`. */
	void *tail;
	uint64_t tail_bytes;
	/** NULL, or called on the direction's thread when the task starts, before it transfers. */
	void (*prepare)(void *self, const struct tc_storage_task *task);
	void (*done)(void *self, const struct tc_storage_task *task, uint64_t start_ps,
	             uint64_t end_ps, enum tc_status status, const char *message);
	void *done_self;
	uint64_t remaining;           /**< private to the backend */
	struct tc_storage_task *next; /**< private to the backend */
};

struct tc_storage_backend {
	const char *name, *summary;
	/** Create the stripe files (reserved and written once), outside any timed region. */
	enum tc_status (*create)(const struct tc_storage_options *options,
	                         uint64_t (*clock_ps)(void *clock), void *clock, void **self,
	                         struct tc_error *error);
	/**
	 * Register memory that tasks will use, where the backend can; never fails the run. Call it
	 * before the first task; the memory must stay mapped until destroy().
	 */
	void (*register_memory)(void *self, void *memory, uint64_t bytes);
	/**
	 * Append to the direction's FIFO: reads and writes each run in order, both at once. The
	 * task stays the caller's until done() was called, which happens once for each submitted
	 * task; the next of its direction starts after done() returned.
	 */
	enum tc_status (*submit)(void *self, struct tc_storage_task *task, struct tc_error *error);
	void (*facts)(void *self, struct tc_storage_facts *facts);
	/** Wait for what runs, close and remove the files. NULL allowed. */
	void (*destroy)(void *self);
};
extern const struct tc_storage_backend tc_storage_io_uring;
extern const struct tc_storage_backend tc_storage_sync;
/** "auto" probes io_uring and falls back to sync, saying why in the facts. */
enum tc_status tc_storage_find(const char *name, const struct tc_storage_backend **backend,
                               struct tc_error *error);

/* ---------------------------------------------------------------- running */

struct tc_replay_options {
	const struct tc_schedule *schedule; /**< borrowed; complete */
	const struct tc_device_backend *device;
	const struct tc_storage_backend *storage; /**< NULL where no pool is on NVMe */
	struct tc_storage_options storage_options;
	enum tc_verify verify;
	enum tc_compute_mode compute;
	const struct tc_machine
	    *throttle; /**< pace lanes by this machine; NULL: as fast as it goes */
	/** For modelled times where `throttle` is NULL; NULL: the schedule's own, if it has one. */
	const struct tc_machine *machine;
	uint64_t dilate;        /**< stretch modelled time by this factor; 0: 1 */
	uint32_t cpu_threads;   /**< for the CPU optimizer; 0: all cores */
	uint64_t random_delays; /**< tests: seed of random delays before tasks; 0: none */
	const struct tc_timing_sink *timing; /**< receives measured times (divided by dilate) */
};

struct tc_replay_facts {
	struct tc_storage_facts storage;
	uint64_t setup_ps, pin_ps, file_ps; /**< outside every timed region */
	uint64_t verified_bytes;
	uint64_t verify_ps; /**< thread time of looking at content and of leaving it, hashes included */
	uint64_t cpu_ps; /**< CPU time of the process during the run */
	uint64_t run_ps; /**< from the first command to the last end, not divided by dilate */
	/** Compute whose checks and stamps took longer than it was to last: raise `dilate`. */
	uint64_t overrun_commands, overrun_ps;
	uint64_t
	    bounced_bytes; /**< passed through an aligned buffer on their way to or from a drive */
};

/**
 * What the engine predicts for a stored schedule. Drive commands move whole 4 KiB blocks here. With
 * `paced` (--throttle) the machine's own costs of hooks, launches and host calls count, which a
 * paced replay keeps. Else it is what this executor does as fast as it goes: issuing a command
 * costs `launch_ps` once, as calibrate measured, hooks and host calls nothing.
 * The sink receives the timing of every command.
 */
enum tc_status tc_replay_predict(const struct tc_schedule *schedule,
                                 const struct tc_machine *machine, bool paced,
                                 const struct tc_timing_sink *timing, struct tc_error *error);

struct tc_replay;
/** Allocate pools, create files, write the initial content. Nothing is timed yet. */
enum tc_status tc_replay_create(const struct tc_replay_options *options, struct tc_replay **replay,
                                struct tc_error *error);
/**
 * Issue every command that the schedule puts before `step` of `iteration` (step_count: the end),
 * obeying host waits. TC_UNSAFE for wrong content: the message names tensor, version, offset and
 * command.
 */
enum tc_status tc_replay_advance(struct tc_replay *replay, uint32_t iteration, uint32_t step,
                                 struct tc_error *error);
/** Issue the rest, wait for everything, verify the final content. */
enum tc_status tc_replay_finish(struct tc_replay *replay, struct tc_error *error);
/** Ask a running replay to stop as soon as possible; async-signal-safe. */
void tc_replay_cancel(struct tc_replay *replay);
const struct tc_replay_facts *tc_replay_facts(const struct tc_replay *replay);
/** Free everything, files included; after a failure, too. NULL allowed. */
void tc_replay_free(struct tc_replay *replay);

/* ---------------------------------------------------------------- content */

/**
 * Synthetic content: word w (8 bytes) of version v of tensor t is a fixed mix of (t, v, w). Ranges
 * must start and end on 8-byte boundaries except at the tensor's end.
 */
void tc_content_fill(void *memory, uint32_t tensor, uint64_t version, uint64_t offset,
                     uint64_t bytes);
/** First and last 64 bytes of each 4 KiB only. */
void tc_content_stamp(void *memory, uint32_t tensor, uint64_t version, uint64_t offset,
                      uint64_t bytes);
/**
 * @return UINT64_MAX when the content is right, else the offset in the tensor of the first wrong
 * byte that was looked at
 */
uint64_t tc_content_check(const void *memory, uint32_t tensor, uint64_t version, uint64_t offset,
                          uint64_t bytes, enum tc_verify how);

/** Content that was computed, not synthetic: xxHash64 of each 64 KiB block of (tensor, version). */
struct tc_content_hashes;
enum tc_status tc_content_hashes_create(struct tc_content_hashes **hashes, struct tc_error *error);
void tc_content_hashes_free(struct tc_content_hashes *hashes);
/** Remember the content of a tensor's version; older versions of it are forgotten. Thread-safe. */
enum tc_status tc_content_remember(struct tc_content_hashes *hashes, uint32_t tensor,
                                   uint64_t version, const void *memory, uint64_t bytes,
                                   struct tc_error *error);
/**
 * The same in parts, so that several threads can hash what is still in their caches: a note is begun,
 * hashed in any order, each range by one thread, and kept. Nobody sees it before; a note that is not
 * kept is dropped with free().
 */
struct tc_content_note;
/** @param how with `sample` only the first and last block and an eighth of the others are hashed */
enum tc_status tc_content_note_begin(uint64_t version, uint64_t bytes, enum tc_verify how,
                                     struct tc_content_note **note, struct tc_error *error);
/** @param memory the whole tensor @param offset of the range: whole 64 KiB blocks, but for the end */
void tc_content_note_hash(struct tc_content_note *note, const void *memory, uint64_t offset,
                          uint64_t bytes);
/** The note is the table's afterwards, or freed where that fails. */
enum tc_status tc_content_note_keep(struct tc_content_hashes *hashes, uint32_t tensor,
                                    struct tc_content_note *note, struct tc_error *error);
/**
 * As tc_content_check(). `*known` is false when nothing was remembered of the tensor, or only later
 * versions: the content is synthetic. A later version than the first remembered one that is neither
 * of the two newest is wrong (`offset`): nobody can have computed it by now, or it is forgotten.
 * Looks at 64 KiB blocks of the tensor that lie wholly in the range, and returns the start of the
 * first wrong one; `sample` looks at the outer ones of the range and an eighth of the others, others
 * per version, as far as the note has hashes of them.
 */
uint64_t tc_content_check_hashes(const struct tc_content_hashes *hashes, uint32_t tensor,
                                 uint64_t version, const void *memory, uint64_t offset,
                                 uint64_t bytes, enum tc_verify how, bool *known);

/* ---------------------------------------------------------------- CPU optimizer */

struct tc_adam {
	float learning_rate, beta1, beta2, epsilon, weight_decay;
	uint64_t step; /**< from 1 */
};
/** AdamW in FP32 over `count` elements in place; the same values bit for bit on every machine and
 * with any number of threads (fused multiply-add is not used). */
void tc_adam_update(const struct tc_adam *adam, float *master, const float *gradient,
                    float *exp_avg, float *exp_avg_sq, uint64_t count);
/** Map synthetic words to gradients in [-1, 1]: 32-bit word w becomes w / 2^31 - 1 in FP32. */
void tc_adam_gradient(const void *synthetic, float *gradient, uint64_t count);

#ifdef __cplusplus
}
#endif
#endif
