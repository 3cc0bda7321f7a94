/**
 * @file planner.h
 * The planner turns a policy's wishes into commands and adds every dependency that safety needs:
 * a policy cannot express a race. src/PLANNING.md holds the rules.
 *
 * Two halves: tc_plan() runs a policy over a trace into a sink; the tc_plan_*() calls are what a
 * policy uses inside its hooks. All byte counts are exact; slots are aligned by the planner.
 */
#ifndef TENCACHE_PLANNER_H
#define TENCACHE_PLANNER_H

#include "tencache/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- running a plan */

struct tc_plan_options {
	const struct tc_trace *trace;
	const struct tc_steps *steps;
	const struct tc_machine *machine;
	const struct tc_policy_choice *policy;
	uint32_t iterations;    /**< planned in all, cold and closing one included; > 0 */
	uint64_t alignment;     /**< of GPU and CPU slots; 0: 512. NVMe: at least 4,096 */
	const struct tc_sink *sink;
	/** Simulates a schedule for policies that refine by it (tc_simulate() provides one); NULL: they
	 * say that they need a simulator. Measured times never come in here. */
	enum tc_status (*evaluate)(void *self, const struct tc_schedule *schedule,
	                           struct tc_evaluation *evaluation, struct tc_error *error);
	void *evaluate_self;
};

/** Counts of the plan itself, per iteration of interest (the last complete one). */
struct tc_plan_notes {
	uint64_t unmanaged_bytes;   /**< size of the GPU pool for what the policy does not manage */
	uint64_t largest_need_bytes; /**< of any step, managed tensors, aligned */
	uint32_t largest_need_step; /**< its recorded number */
	uint64_t delayed_fetches, repacks, read_misses; /**< of the last complete iteration */
	char text[1024]; /**< what the policy wants a reader to know (budgets, departures), or "" */
};

/**
 * Plan `iterations` iterations into the sink. On TC_INFEASIBLE the message names the step, needed
 * and available bytes and what could be changed. `notes` may be NULL.
 */
enum tc_status tc_plan(const struct tc_plan_options *options, struct tc_plan_notes *notes,
                       struct tc_error *error);

/* ---------------------------------------------------------------- what a policy may ask */

const struct tc_trace *tc_plan_trace(const struct tc_planner *planner);
const struct tc_steps *tc_plan_steps(const struct tc_planner *planner);
const struct tc_machine *tc_plan_machine(const struct tc_planner *planner);
/** Value of a parameter by name (must exist in the policy's table). */
const struct tc_policy_value *tc_plan_value(const struct tc_planner *planner, const char *name);
/** Parameter as number; for words the index among the choices. */
uint64_t tc_plan_number(const struct tc_planner *planner, const char *name);
uint32_t tc_plan_iteration(const struct tc_planner *planner);
/** The step whose boundary is being planned: a position, where steps are reordered. */
uint32_t tc_plan_step(const struct tc_planner *planner);

struct tc_plan_tensor_view {
	enum tc_tensor_kind kind;
	enum tc_role role;
	uint64_t bytes;
	uint64_t elements; /**< 0 when the data type is unknown */
	uint32_t of, derived_from;
};
struct tc_plan_tensor_view tc_plan_tensor(const struct tc_planner *planner, uint32_t tensor);

struct tc_copy_view {
	bool present;         /**< allocated in that tier, content there or on its way */
	bool latest;          /**< holds the latest version */
	uint32_t pool;
	uint64_t offset;
	uint64_t written_by;  /**< command, or TC_NO_COMMAND for initial content */
};
struct tc_copy_view tc_plan_copy(const struct tc_planner *planner, uint32_t tensor,
                                 enum tc_tier tier);
/** tc_plan_copy().present alone, which costs much less. */
bool tc_plan_has(const struct tc_planner *planner, uint32_t tensor, enum tc_tier tier);
/** tc_plan_tensor().elements and .bytes, likewise. */
uint64_t tc_plan_elements(const struct tc_planner *planner, uint32_t tensor);
uint64_t tc_plan_bytes(const struct tc_planner *planner, uint32_t tensor);
/** Pinned tensors cannot be evicted: open requests, reads of the step, unfinished gradients. */
bool tc_plan_is_pinned(const struct tc_planner *planner, uint32_t tensor);
/** Next use at or after the coming step, in steps from the start of this iteration (positions, where
 * they are reordered); UINT64_MAX. */
uint64_t tc_plan_next_use(const struct tc_planner *planner, uint32_t tensor);
/** State tensors (role master, exp_avg, exp_avg_sq) of a parameter, TC_NONE where absent. */
uint32_t tc_plan_state_of(const struct tc_planner *planner, uint32_t param, enum tc_role role);
/**
 * The last op of the CPU update that starts with `op`; TC_NONE when none starts there. An update is
 * all ops of one optimizer event; in a trace without events, consecutive ones of one bucket.
 */
uint32_t tc_plan_update_last(const struct tc_planner *planner, uint32_t op);
/** The gradient tensor of a parameter (the last one in trace order), or TC_NONE. */
uint32_t tc_plan_gradient_of(const struct tc_planner *planner, uint32_t param);

/** Bytes of GPU or CPU left for pools: capacity - framework - slack - unmanaged - pools so far. */
uint64_t tc_plan_free_bytes(const struct tc_planner *planner, enum tc_tier tier);
/** Size of the pool for unmanaged tensors (GPU), from the pre-pass. */
uint64_t tc_plan_unmanaged_bytes(const struct tc_planner *planner);
/** Rounded up to the alignment of a tier. */
uint64_t tc_plan_aligned(const struct tc_planner *planner, enum tc_tier tier, uint64_t bytes);
/** Largest sum of aligned bytes of gradients alive at once between birth and gradient event. */
uint64_t tc_plan_gradient_peak_bytes(const struct tc_planner *planner);
/**
 * Bytes of a GPU arena (best fit) in which every gradient finds a place from its birth until it
 * leaves, holes included. After tc_plan_manage().
 * @param until per tensor of the trace, the event at which it leaves, TC_NONE: after the last step;
 * NULL: each leaves at its own gradient event
 */
enum tc_status tc_plan_gradient_arena_bytes(struct tc_planner *planner, const uint32_t *until,
                                            uint64_t *bytes, struct tc_error *error);
/** Largest need of a step (aligned): requests, reads, unfinished gradients of managed kinds. */
uint64_t tc_plan_largest_need(const struct tc_planner *planner, uint32_t *step);

uint64_t tc_plan_pool_free(const struct tc_planner *planner, uint32_t pool);
/** Could `bytes` be allocated from the pool now? */
bool tc_plan_pool_fits(const struct tc_planner *planner, uint32_t pool, uint64_t bytes);
/** Free buffers of exactly this class (classes pools). */
uint64_t tc_plan_class_free(const struct tc_planner *planner, uint32_t pool, uint64_t bytes);

/* ---------------------------------------------------------------- declaring, in begin() */

/**
 * Run the steps of every iteration in another order: `order[p]` is the number of the step at
 * position p, a permutation of the recorded steps. TC_ARGUMENT where that is no permutation or
 * breaks the trace's dataflow; the message names both steps, both ops and the tensor, and nothing
 * is changed. From then on every step number that the planner hands out or takes is a position, and
 * tc_plan_steps() holds the steps in that order (its `order` the recorded numbers). Only in
 * begin(), once, before tc_plan_manage(). With the optimizer on the CPU an order (even the recorded
 * one) also says that no wait ends the optimizer phase. Rules: src/PLANNING.md, "Other orders".
 */
enum tc_status tc_plan_reorder(struct tc_planner *planner, const uint32_t *order, uint32_t count,
                               struct tc_error *error);
/** Tensors of these kinds (bit 1 << kind) are the policy's; all others go to `unmanaged`. Call
 * first: sizes the unmanaged pool. */
enum tc_status tc_plan_manage(struct tc_planner *planner, unsigned kinds, struct tc_error *error);
/** Optimizer ops become `update` commands on the CPU (true) or stay compute (false). Call before
 * tc_plan_manage(). */
void tc_plan_optimizer_on_cpu(struct tc_planner *planner, bool on_cpu);
/** The first update depends on the last command of every gradient's path. */
void tc_plan_use_barrier(struct tc_planner *planner, bool barrier);

/** Best fit with coalescing. `bytes` must fit what is free in the tier. */
enum tc_status tc_plan_arena(struct tc_planner *planner, enum tc_tier tier, const char *name,
                             bool pinned, uint64_t bytes, uint32_t *pool, struct tc_error *error);
/** Fixed buffers per exact size; LIFO reuse (or FIFO). */
enum tc_status tc_plan_classes(struct tc_planner *planner, enum tc_tier tier, const char *name,
                               bool pinned, const struct tc_class_size *classes, size_t count,
                               bool fifo, uint32_t *pool, struct tc_error *error);
/** The pool into which a tier's demand fetches and gradients' births go. */
void tc_plan_default_pool(struct tc_planner *planner, enum tc_tier tier, uint32_t pool);
/** Host memory through which demand fetches from NVMe pass (else they are TC_INTERNAL). */
void tc_plan_staging_pool(struct tc_planner *planner, uint32_t pool);
/** The pool into which one kind's births go on the GPU (else the tier's default pool). */
void tc_plan_birth_pool(struct tc_planner *planner, enum tc_tensor_kind kind, uint32_t pool);

/** A tensor that is not in the trace; versions follow `source` (or TC_NONE). */
enum tc_status tc_plan_derive(struct tc_planner *planner, const char *name,
                              enum tc_tensor_kind kind, enum tc_role role, uint64_t bytes,
                              uint64_t elements, uint32_t source, uint32_t *tensor,
                              struct tc_error *error);
/** Initial content: a slot in `pool` that holds the tensor before the first command. */
enum tc_status tc_plan_place(struct tc_planner *planner, uint32_t tensor, uint32_t pool,
                             struct tc_error *error);
void tc_plan_home(struct tc_planner *planner, uint32_t tensor, enum tc_tier tier);
/** `ideal`: capacities do not count. Call first in begin(). */
void tc_plan_unlimited_memory(struct tc_planner *planner);
/** Never evicted and never a victim (persistent parameters). Counted apart in reports. */
void tc_plan_always_resident(struct tc_planner *planner, uint32_t tensor);
/** Text for tc_plan_notes.text; printf-like, appended with "; " between parts. */
void tc_plan_note(struct tc_planner *planner, const char *format, ...) TC_PRINTF(2, 3);

/* ---------------------------------------------------------------- moving, in any other hook */

struct tc_move_options {
	enum tc_why why;
	bool keep_source;   /**< keep the copy the bytes come from (inclusive); else give it back */
	bool exclusive_dirty; /**< evict: copy even if a clean copy exists below */
	uint32_t lane;      /**< of the queue, from 1; 0: the planner takes them in turn */
	uint64_t after;     /**< extra order dependency, or TC_NO_COMMAND */
	enum tc_reason after_reason;
};
#define TC_MOVE(reason_why)                                                                       \
	((struct tc_move_options){.why = (reason_why), .keep_source = true, .after = TC_NO_COMMAND, \
	                          .after_reason = TC_REASON_ORDER})

/**
 * Bring the latest version of a tensor to a pool of another tier from the nearest copy; allocates
 * there (calling make_room for a default pool) and emits fetch, load, evict, spill or publish by
 * direction. Two-hop moves (NVMe to GPU) go in chunks through `staging`, or TC_NO_POOL where the
 * copy is one hop. A copy that is already there and latest is left alone (`*command` = its writer).
 * @param command receives the id of the last command of the move; may be NULL
 * TC_ARGUMENT where no copy of the latest version exists elsewhere.
 * When the pool has no room and none can be made: `*moved` false and TC_OK (the policy decides).
 */
enum tc_status tc_plan_move(struct tc_planner *planner, uint32_t tensor, uint32_t pool,
                            uint32_t staging, struct tc_move_options options, bool *moved,
                            uint64_t *command, struct tc_error *error);
/**
 * Take a tensor off the GPU: a clean copy is dropped, a dirty one moved to the default CPU pool.
 * `*done` false when that pool has no room.
 */
enum tc_status tc_plan_evict(struct tc_planner *planner, uint32_t tensor, enum tc_why why,
                             bool *done, struct tc_error *error);
/** Forget the copy in a tier. TC_INTERNAL if it is the last one of the latest version. */
enum tc_status tc_plan_drop(struct tc_planner *planner, uint32_t tensor, enum tc_tier tier,
                            struct tc_error *error);
/** Give back a transient tensor's copy everywhere (a gradient that was consumed). */
enum tc_status tc_plan_discard(struct tc_planner *planner, uint32_t tensor,
                               struct tc_error *error);

struct tc_convert_options {
	enum tc_queue queue;     /**< TC_QUEUE_CPU or TC_QUEUE_COMPUTE */
	enum tc_why why;
	uint64_t traffic_bytes;  /**< memory traffic; 0: source + destination bytes */
};
/**
 * Convert or copy `source` (its copy in the tier of the queue) into `target`: a slot of `pool`, or
 * in place of the target's existing copy there. The target then holds the latest version.
 */
enum tc_status tc_plan_convert(struct tc_planner *planner, uint32_t source, uint32_t target,
                               uint32_t pool, struct tc_convert_options options, bool *done,
                               uint64_t *command, struct tc_error *error);
/**
 * CPU work that reads a tensor's CPU copy and writes nothing anybody needs (inf/nan scan): a
 * convert on queue cpu without target.
 */
enum tc_status tc_plan_scan(struct tc_planner *planner, uint32_t tensor, uint64_t traffic_bytes,
                            uint64_t *command, struct tc_error *error);
/**
 * One `update` on queue cpu for optimizer ops first..last. Reads of a gradient are served by the
 * CPU copy of a tensor derived from it where that is the latest, else of the gradient itself;
 * master (or derived master), exp_avg and exp_avg_sq are read and written in their CPU copies. All
 * of them must be there (TC_INTERNAL). Gradients that die with it are discarded afterwards, of
 * persistent ones what is derived from them; the parameter has a new version that tc_plan_publish()
 * brings out.
 */
enum tc_status tc_plan_update(struct tc_planner *planner, uint32_t first_op, uint32_t last_op,
                              uint64_t *command, struct tc_error *error);
/** The optimizer state, or derived master, that `update` works on; TC_NONE where the trace and the
 * plan have none. */
uint32_t tc_plan_master_of(const struct tc_planner *planner, uint32_t param);
/**
 * After an update: `convert` writes the parameter's CPU copy, or one of the two `publish` slots
 * where there is none, then `publish` refreshes its GPU copy and `spill` its NVMe copy (home NVMe).
 */
enum tc_status tc_plan_publish(struct tc_planner *planner, uint32_t param, struct tc_error *error);
/** Create the `publish` pool (two pinned buffers of the largest parameter). In begin(). */
enum tc_status tc_plan_publish_pool(struct tc_planner *planner, struct tc_error *error);
/** The issuing thread waits for `ids`. */
enum tc_status tc_plan_wait(struct tc_planner *planner, const uint64_t *ids, size_t count,
                            struct tc_error *error);
/** Tell the planner that `command` is the end of a gradient's path (for the barrier). */
enum tc_status tc_plan_gradient_done(struct tc_planner *planner, uint64_t command,
                                     struct tc_error *error);
/** Tell the planner that the end of the optimizer phase waits for `command`. */
enum tc_status tc_plan_end_waits(struct tc_planner *planner, uint64_t command,
                                 struct tc_error *error);
/** Last compute command issued, or TC_NO_COMMAND: for order and anchor dependencies. */
uint64_t tc_plan_last_compute(const struct tc_planner *planner);
/** Compute command of a step of this iteration that was issued already, or TC_NO_COMMAND. */
uint64_t tc_plan_after(const struct tc_planner *planner, uint32_t step);
/**
 * Plan the same trace on the same machine with another choice of policy or parameters and simulate
 * it: for policies that try candidates. TC_ARGUMENT where the plan has no simulator; TC_INFEASIBLE
 * when the candidate does not fit (nothing else is disturbed).
 */
enum tc_status tc_plan_evaluate(struct tc_planner *planner,
                                const struct tc_policy_choice *candidate, uint32_t iterations,
                                struct tc_evaluation *evaluation, struct tc_error *error);
/** A fetch was put off because its pool was empty: counted. */
void tc_plan_count_delayed(struct tc_planner *planner);
/** Time a transfer, or the ops of a step, would take alone, ps. */
uint64_t tc_plan_estimated_transfer_ps(const struct tc_planner *planner, enum tc_queue queue,
                                       uint64_t bytes);
uint64_t tc_plan_estimated_step_ps(const struct tc_planner *planner, uint32_t step);

#ifdef __cplusplus
}
#endif
#endif
