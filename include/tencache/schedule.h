/**
 * @file schedule.h
 * The schedule: a program of commands, each on one lane of one queue, each with the earlier
 * commands it must wait for. File format: src/SCHEDULE.md.
 *
 * The planner pushes commands into a sink one by one, in id order; nothing keeps them all, so
 * memory does not grow with the number of iterations. Pointers inside a command are valid only
 * during the call; a consumer that needs them later copies (tc_command_copy()).
 */
#ifndef TENCACHE_SCHEDULE_H
#define TENCACHE_SCHEDULE_H

#include "tencache/machine.h"
#include "tencache/steps.h"

#ifdef __cplusplus
extern "C" {
#endif

/** "No command". */
#define TC_NO_COMMAND UINT64_MAX
/** Iteration number of the commands that set up pools before the first iteration. */
#define TC_ITERATION_INIT UINT32_MAX
/** "No pool", for commands without source or destination. */
#define TC_NO_POOL UINT32_MAX

/** Why a command waits for another. */
enum tc_reason {
	TC_REASON_DATA,    /**< reads what the other writes */
	TC_REASON_SLOT,    /**< writes where the other still reads or writes */
	TC_REASON_BARRIER, /**< optimizer barrier */
	TC_REASON_ORDER,   /**< the policy wants it so (demand fetch: when the step is asked for) */
	TC_REASON_ANCHOR,  /**< starts no earlier than the end of a given compute command */
	TC_REASON_COUNT
};

enum tc_command_kind {
	TC_FETCH,    /**< any tier to GPU */
	TC_LOAD,     /**< NVMe to CPU */
	TC_EVICT,    /**< GPU to CPU or NVMe */
	TC_SPILL,    /**< CPU to NVMe */
	TC_PUBLISH,  /**< an updated parameter, CPU to GPU */
	TC_GRADIENT, /**< a gradient, GPU to CPU (and back for a norm) */
	TC_COMPUTE,  /**< ops first..last of the trace */
	TC_UPDATE,   /**< optimizer step of one bucket on the CPU */
	TC_CONVERT,  /**< change of data type, bucket copy or repacking; queue cpu or compute */
	TC_WAIT,     /**< host: the issuing thread waits for the dependencies */
	TC_ALLOC,    /**< host marker: a pool is set up; may cost host time */
	TC_DROP,     /**< host marker: a clean copy is forgotten */
	TC_COMMAND_KIND_COUNT
};

enum tc_why {
	TC_WHY_NONE,
	TC_WHY_PREFETCH,
	TC_WHY_DEMAND,
	TC_WHY_VICTIM,
	TC_WHY_RELEASE,
	TC_WHY_REPAIR,
	TC_WHY_REPACK,
	TC_WHY_STAGE,
	TC_WHY_SWAP,
	TC_WHY_HOME,
	TC_WHY_NORM,
	TC_WHY_BUCKET,
	TC_WHY_SCAN,
	TC_WHY_COUNT
};

struct tc_dependency {
	uint64_t id;
	enum tc_reason reason;
};

/** A range in a pool. */
struct tc_place {
	uint32_t pool; /**< index into the plan's pools, or TC_NO_POOL */
	uint64_t offset;
};

enum tc_access { TC_READ, TC_WRITE, TC_READ_WRITE };

/**
 * Where a tensor that a compute, update or convert touches lies. For compute, `version` is the one
 * on entry, whatever the access, and the ops say who reads and writes. `tensor` TC_NONE: workspace,
 * one bind for each op of the command that has some, in op order, or one for all of them.
 */
struct tc_bind {
	uint32_t tensor;
	uint32_t pool;
	uint64_t offset;
	uint64_t bytes;
	uint64_t version; /**< update, convert: what is left where access is TC_WRITE, else what is read */
	enum tc_access access;
};

/** How a request (or, with `is_request` false, a mere read of a managed tensor) was served. */
enum tc_outcome { TC_RESIDENT, TC_COVERED, TC_DEMAND_MISS };
struct tc_served {
	uint32_t tensor;
	enum tc_outcome outcome;
	bool is_request;
	bool always_resident;   /**< never leaves: counted, and apart */
	uint64_t served_by;     /**< command that brought the copy; TC_NO_COMMAND: initial content */
};

/** Memory that comes into use or is given back, for peak and mean per tier and kind. */
struct tc_memory_change {
	int64_t bytes;
	uint64_t after; /**< takes effect when this command has ended; TC_NO_COMMAND: when this starts */
	enum tc_tier tier;
	enum tc_tensor_kind kind;
};

struct tc_command {
	uint64_t id;         /**< dense, from 0, in issue order */
	uint32_t rank;
	uint32_t iteration;  /**< from 0 (cold), or TC_ITERATION_INIT */
	uint32_t step;       /**< issued before this step of the trace (not of a reordered plan);
	                      * step_count after the last op */
	enum tc_queue queue;
	uint32_t lane;       /**< within the queue */
	enum tc_command_kind kind;
	enum tc_why why;
	enum tc_phase phase; /**< of the iteration at the point of issue */

	uint32_t tensor;       /**< moved or converted tensor, or TC_NONE */
	uint64_t version;      /**< of its content */
	uint64_t tensor_offset; /**< first byte within the tensor (chunks, sub-ranges) */
	uint64_t bytes;        /**< moved by a transfer; 0 for compute, update, convert, host */
	bool pageable;         /**< a copy from or to unpinned host memory */
	bool last_chunk;       /**< of a move; true for whole moves */
	bool first_chunk;      /**< of a move: it alone counts as one fetch or eviction */
	struct tc_place src, dst;

	uint32_t first_op, last_op; /**< compute, update: inclusive; TC_NONE where no op */
	uint64_t duration_ps;  /**< compute: sum of its ops; host: cost of the command itself */
	uint64_t traffic_bytes; /**< convert on compute: device memory bytes; cpu: DRAM bytes */
	uint64_t elements;     /**< update: parameters */
	uint32_t launches;     /**< host launch costs charged before admission */
	uint32_t hooks;        /**< events passed since the command before */

	const struct tc_dependency *deps; /**< smaller ids; for a wait: what it waits for */
	uint32_t dep_count;
	const struct tc_bind *binds;      /**< compute, update, convert */
	uint32_t bind_count;
	const struct tc_served *served;   /**< compute, update: requests and managed reads */
	uint32_t served_count;
	const struct tc_memory_change *memory;
	uint32_t memory_count;
};

enum tc_pool_kind { TC_POOL_FIXED, TC_POOL_ARENA, TC_POOL_CLASSES, TC_POOL_RING };

struct tc_pool_info {
	const char *name;
	enum tc_tier tier;
	enum tc_pool_kind kind;
	bool pinned;
	uint64_t bytes;
};

/** A tensor of the plan: those of the trace (same ids), then the derived ones. */
struct tc_plan_tensor {
	const char *name;
	enum tc_tensor_kind kind;
	enum tc_role role;
	uint64_t bytes;
	uint32_t derived_from; /**< or TC_NONE */
	enum tc_tier home;
	bool placed;           /**< has content before the first command, at `start` */
	struct tc_place start;
};

/** A further initial copy of a tensor (for instance a persistent parameter's GPU copy). */
struct tc_initial_copy {
	uint32_t tensor;
	struct tc_place place;
};

/** Everything a consumer knows before the first command. Borrowed for the life of the plan. */
struct tc_plan_info {
	const struct tc_trace *trace;     /**< NULL for a schedule read from a file without one */
	const struct tc_steps *steps;     /**< likewise */
	const struct tc_machine *machine; /**< likewise */
	const char *policy;               /**< full string with every parameter that differs */
	const char *trace_name;
	const char *trace_sha256, *events_sha256, *machine_sha256;
	uint32_t staleness; /**< updates may read versions this many iterations old */
	bool drives;        /**< could drive a real run (trace with events, module granularity) */
	uint64_t scale;     /**< 1 unless bytes were divided for the replayer */
	uint32_t iterations; /**< planned, the cold one and the closing one included */
	uint32_t lanes[TC_QUEUE_COUNT];
	const struct tc_pool_info *pools;
	uint32_t pool_count;
	const struct tc_plan_tensor *tensors;
	uint32_t tensor_count;
	const struct tc_initial_copy *copies; /**< sorted by tensor */
	uint32_t copy_count;
	uint64_t fixed_bytes[TC_TIER_COUNT]; /**< framework and workspace slack */
	bool unlimited_memory; /**< `ideal`: capacities are not checked; such a plan cannot be run */
	/** The policy declared an order of steps of its own: ops come in another order than in the
	 * trace, with the same dataflow, and no wait ends the optimizer phase. */
	bool reordered;
};

/** Where a persistent tensor's latest version lies at the end. */
struct tc_final_place {
	uint32_t tensor;
	uint64_t version;
	struct tc_place place;
};

struct tc_plan_end {
	uint64_t command_count;
	const struct tc_final_place *places;
	uint32_t place_count;
};

/**
 * A consumer of commands: engine, auditor, file writer, store, counter. Any function may be NULL.
 * A status other than TC_OK stops the plan and is handed to the planner's caller.
 */
struct tc_sink {
	void *self;
	enum tc_status (*begin)(void *self, const struct tc_plan_info *info, struct tc_error *error);
	enum tc_status (*command)(void *self, const struct tc_command *command,
	                          struct tc_error *error);
	enum tc_status (*end)(void *self, const struct tc_plan_end *end, struct tc_error *error);
};

/** Number the lanes of all queues: flat index of a queue's lane, < TC_MAX_LANES. */
uint32_t tc_lane_index(const uint32_t lanes[TC_QUEUE_COUNT], enum tc_queue queue, uint32_t lane);
uint32_t tc_lane_total(const uint32_t lanes[TC_QUEUE_COUNT]);

/** A whole schedule in memory: for tests and for files. Owns its commands and lists. */
struct tc_schedule {
	struct tc_plan_info info;
	struct tc_command *commands;
	uint64_t command_count;
	struct tc_plan_end end;
	void *storage;
};

/** A sink that stores everything; `*schedule` is complete after end(). */
enum tc_status tc_schedule_create(struct tc_schedule **schedule, struct tc_error *error);
struct tc_sink tc_schedule_sink(struct tc_schedule *schedule);
/** Push a stored schedule into a sink. */
enum tc_status tc_schedule_play(const struct tc_schedule *schedule, const struct tc_sink *sink,
                                struct tc_error *error);
void tc_schedule_free(struct tc_schedule *schedule);

/** A sink that passes everything on to `count` others, in order; `sinks` is borrowed. */
struct tc_tee {
	const struct tc_sink *sinks;
	size_t count;
};
struct tc_sink tc_tee_sink(struct tc_tee *tee);

/** Deep copy of a command into caller-owned memory; free with tc_command_clear(). */
enum tc_status tc_command_copy(struct tc_command *target, const struct tc_command *source,
                               struct tc_error *error);
void tc_command_clear(struct tc_command *command);

/** Write a schedule file (JSON Lines, gzipped when `path` ends in .gz). It gets its name in end();
 * without that nothing is left behind. A pipe or a device is written to and never replaced. */
struct tc_schedule_writer;
enum tc_status tc_schedule_writer_create(const char *path, struct tc_schedule_writer **writer,
                                         struct tc_error *error);
struct tc_sink tc_schedule_writer_sink(struct tc_schedule_writer *writer);
void tc_schedule_writer_free(struct tc_schedule_writer *writer);

/**
 * Read a schedule file. With `trace` (may be NULL) the hashes must match (TC_ARGUMENT), and with
 * `machine` likewise. Every id, range and name is checked.
 */
enum tc_status tc_schedule_read(const char *path, const struct tc_trace *trace,
                                const struct tc_machine *machine, struct tc_schedule **schedule,
                                struct tc_error *error);

const char *tc_reason_name(enum tc_reason reason);
const char *tc_command_kind_name(enum tc_command_kind kind);
const char *tc_why_name(enum tc_why why);
const char *tc_pool_kind_name(enum tc_pool_kind kind);

#ifdef __cplusplus
}
#endif
#endif
