/**
 * @file plan.h
 * Inside of the planner: its state, and what its files promise each other. Rules: src/PLANNING.md.
 *
 * plan.c runs the boundaries; plan_emit.c makes commands and their dependencies; plan_memory.c
 * owns slots and pools; plan_move.c, plan_convert.c and plan_optimizer.c build commands;
 * plan_step.c serves a step; plan_touch.c and plan_unmanaged.c prepare both; plan_declare.c and
 * plan_query.c are the policy's other calls. Steps are positions of the plan's order throughout;
 * they differ from the recorded numbers only after tc_plan_reorder() (plan_reorder.c).
 */
#ifndef TENCACHE_SRC_PLAN_H
#define TENCACHE_SRC_PLAN_H

#include "lines.h"
#include "pool.h"
#include "tencache/planner.h"
#include "tencache/units.h"

#define TCI_NO_SLOT UINT32_MAX
/** Slots on a drive: what O_DIRECT wants. */
#define TCI_DRIVE_ALIGNMENT UINT64_C(4096)
/** Version of a slot that was taken but not written yet. */
#define TCI_NO_CONTENT UINT64_MAX
#define TCI_TIERS TC_TIER_COUNT

/** A plan has fewer commands than this: their ids fit 32 bits in clocks and release vectors. */
#define TCI_MAX_COMMANDS ((uint64_t)UINT32_MAX - 1)

/**
 * Memory that holds, or will hold, one copy of a tensor. With up to TCI_FEW_LANES lanes all that
 * counts of it is on one cache line.
 */
struct tci_slot {
	uint64_t version;
	uint64_t offset;
	uint32_t writer; /**< id + 1 of the last command that wrote the content; 0: none */
	uint32_t pool;
	uint32_t tensor; /**< of a free slot: the next one, or TCI_NO_SLOT */
	bool counted;    /**< its bytes are in the memory changes: from its first writer on */
	struct tci_release touched; /**< last command of each lane that used these bytes */
	uint64_t unused[4];         /**< whole cache lines */
};

struct tci_pool {
	struct tc_pool_info info;
	struct tci_arena *arena;
	struct tci_buffers *buffers;
};

/** What a step does to one tensor. */
struct tci_touch {
	uint32_t tensor;
	enum tc_access access;
	uint32_t writes; /**< ops of the step that write it: versions it gains */
	bool born, dies; /**< allocated, freed by ops of this step */
};

/** Memory of unmanaged tensors over one step, relative to its start. */
struct tci_step_memory {
	int64_t born[TC_TENSOR_KIND_COUNT]; /**< born here, alive afterwards */
	int64_t died[TC_TENSOR_KIND_COUNT]; /**< born earlier, freed here */
	int64_t peak;
};

/** What every command looks at: a cache line. The rest is in struct tci_relations. */
struct tci_tensor {
	uint32_t slots[TCI_TIERS];
	uint32_t source;    /**< whose version it carries: derived_from, or itself */
	uint64_t latest;    /**< version; derived tensors follow their source */
	uint64_t bytes;     /**< as in the table */
	uint64_t pin_stamp; /**< pinned while equal to the planner's stamp */
	uint64_t elements;
	uint32_t first_derived, next_derived; /**< list of tensors derived from this one */
	uint8_t kind;                         /**< as in the table */
	bool managed;
	bool has_gradient_event; /**< a gradient whose parameter has one */
	bool pinned_gradient;    /**< between birth and gradient event */
	bool fetched_since_request;
	bool always_resident;
};
_Static_assert(sizeof(struct tci_slot) % TCI_LINE_BYTES == 0 &&
                   sizeof(struct tci_tensor) == TCI_LINE_BYTES,
               "slots and tensors stand on cache lines of their own");

/** Of one tensor to others, and where it lies if no policy manages it. */
struct tci_relations {
	uint64_t unmanaged_offset;
	uint32_t gradient_of_param;           /**< for parameters: their gradient, or TC_NONE */
	uint32_t master, exp_avg, exp_avg_sq; /**< for parameters */
	uint32_t derived_master; /**< for parameters without a master in the trace, or TC_NONE */
};

/** In tc_memory_change.after, until the next command has its id. */
#define TCI_AFTER_THIS (TC_NO_COMMAND - 1) /**< when the next command ends */

struct tc_planner {
	const struct tc_trace *trace;
	const struct tc_steps *steps; /**< in the order of the plan */
	struct tc_steps *reordered; /**< the same where a policy reordered them, owned; else NULL */
	uint32_t phase_last[TC_PHASE_COUNT]; /**< reordered: the last step of each phase */
	const struct tc_machine *machine;
	const struct tc_policy_choice *choice;
	const struct tc_policy *policy;
	const struct tc_plan_options *options;
	struct tc_plan_notes notes;
	struct tc_plan_info info; /**< what the sink was told: it may keep the address */
	void *policy_self;
	bool declaring; /**< inside begin() */
	bool optimizer_on_cpu, barrier, unlimited;
	bool barrier_met; /**< an update of this iteration has come */
	unsigned managed_kinds;
	uint64_t alignment;

	struct tci_tensor *tensors;
	struct tci_relations *relations; /**< parallel to tensors */
	struct tc_plan_tensor *table;    /**< likewise */
	uint32_t tensor_count;
	size_t tensor_capacity, relation_capacity, table_capacity;
	char **derived_names;
	size_t derived_name_count, derived_name_capacity;

	struct tci_pool *pools;
	uint32_t pool_count;
	size_t pool_capacity;
	struct tc_pool_info *pool_infos;
	uint32_t default_pool[TCI_TIERS];
	uint32_t birth_pool[TC_TENSOR_KIND_COUNT];
	uint32_t publish_pool, unmanaged_pool, staging_pool;
	uint64_t pool_bytes[TCI_TIERS];
	uint64_t unmanaged_bytes;
	struct tci_slot *slots;
	uint32_t slot_count, free_slot;
	size_t slot_capacity;
	uint32_t *passing; /**< managed tensors of the trace that do not outlive an iteration */
	uint32_t passing_count;

	/* what each step does, see plan_touch.c */
	struct tci_touch *touches;
	uint32_t *touch_first; /**< step_count + 1 */
	size_t touch_capacity;
	struct tci_step_memory *step_memory;
	uint64_t *step_ps;
	uint32_t *gpu_use_first, *gpu_uses, *gpu_use_next;
	uint64_t *workspace_offset; /**< per op; UINT64_MAX: none */
	uint32_t *update_last;      /**< per op: last op of the update it starts, or TC_NONE */
	uint64_t largest_need, gradient_peak;
	uint32_t largest_need_step;

	/* emission */
	uint32_t lane_count;
	uint32_t first_lane[TC_QUEUE_COUNT];
	uint64_t next_id;
	struct tci_release host_clock;
	struct tci_release lane_clock[TC_MAX_LANES];
	uint32_t *clocks;     /**< ring of TCI_CLOCKS clocks, clock_width each */
	uint32_t clock_width; /**< tci_release_width() of lane_count */
	uint8_t *clock_lane;
	uint64_t last_compute;
	uint64_t *step_command; /**< compute command of each step in this iteration */
	uint32_t hooks;
	struct tc_memory_change *changes;
	size_t change_count, change_capacity;
	struct tc_bind *binds;
	struct tc_served *served;
	size_t bind_capacity, served_capacity, served_count;
	struct tci_use *uses;
	size_t use_capacity;
	struct tci_release barrier_last, end_last; /**< id + 1 per lane */

	struct tc_schedule *record; /**< for policies that want timing, else NULL */
	struct tc_sink recorder;
	uint32_t next_lane[TC_QUEUE_COUNT];
	uint32_t iteration, step;
	enum tc_phase phase;
	uint64_t stamp;
	uint64_t delayed, repacks, read_misses;
	bool host_full; /**< something could not leave the GPU for want of room in host memory */
};

/** One slot that a command uses. */
struct tci_use {
	uint32_t slot;
	enum tc_access access;
};
#define TCI_USE(slot_index, how) ((struct tci_use){(slot_index), (how)})

/* plan.c */
/** One more tensor of the plan, its number the count so far. `entry->start` need not be set. */
enum tc_status tci_tensor_add(struct tc_planner *planner, const struct tc_plan_tensor *entry,
                              uint64_t elements, struct tc_error *error);

/* plan_emit.c */
enum tc_status tci_emit_create(struct tc_planner *planner, struct tc_error *error);
void tci_emit_free(struct tc_planner *planner);
/**
 * Complete `command` (id, iteration, step, phase, dependencies, memory) and push it. `uses` say
 * what it touches; `extra` are dependencies by id. Updates slots and clocks. `*id` receives the id.
 */
enum tc_status tci_emit(struct tc_planner *planner, struct tc_command *command,
                        const struct tci_use *uses, size_t use_count,
                        const struct tc_dependency *extra, size_t extra_count, uint64_t *id,
                        struct tc_error *error);
/** A zeroed command of a kind on a queue (lane 0), without tensors, ops or places. */
struct tc_command tci_command(enum tc_command_kind kind, enum tc_queue queue, enum tc_why why);
/** `id` used a slot without asking for its dependencies (chunks after the first of a move). */
void tci_slot_touch(struct tc_planner *planner, uint32_t slot, uint64_t id, bool writes);
/** Remember `id` in a per-lane list of latest commands. */
void tci_note_lane(struct tc_planner *planner, struct tci_release *latest, uint64_t id);
enum tc_status tci_memory_change(struct tc_planner *planner, enum tc_tier tier,
                                 enum tc_tensor_kind kind, int64_t bytes, uint64_t after,
                                 struct tc_error *error);

/* plan_memory.c */
enum tc_status tci_pool_add(struct tc_planner *planner, enum tc_tier tier, const char *name,
                            enum tc_pool_kind kind, bool pinned, uint64_t bytes, uint32_t *pool,
                            struct tc_error *error);
/** Take memory for a copy of `tensor`; `*slot` TCI_NO_SLOT when the pool has no room now. */
enum tc_status tci_slot_take(struct tc_planner *planner, uint32_t pool, uint32_t tensor,
                             uint32_t *slot, struct tc_error *error);
/** As above, evicting until it fits or nothing can be evicted any more. */
enum tc_status tci_slot_take_or_make_room(struct tc_planner *planner, uint32_t pool,
                                          uint32_t tensor, uint32_t *slot, struct tc_error *error);
/** Its bytes count from the start of the next command on, unless they do already. */
enum tc_status tci_slot_count(struct tc_planner *planner, uint32_t slot, struct tc_error *error);
/** What the trace never frees, and what is derived from it, goes at the end of an iteration. */
enum tc_status tci_discard_leftovers(struct tc_planner *planner, struct tc_error *error);
/** Give the memory of the copy in `tier` back to its pool. */
enum tc_status tci_slot_put(struct tc_planner *planner, uint32_t tensor, enum tc_tier tier,
                            struct tc_error *error);
static inline uint64_t tci_latest(const struct tc_planner *planner, uint32_t tensor)
{
	return planner->tensors[planner->tensors[tensor].source].latest;
}
/** What a message calls a tensor: its name in quotes, else what it is of, else kind and id. */
#define TCI_LABEL_BYTES 200
const char *tci_label(const struct tc_planner *planner, uint32_t tensor,
                      char text[TCI_LABEL_BYTES]);
/** Slot of the copy that holds the latest version in a tier, or TCI_NO_SLOT. */
static inline uint32_t tci_latest_slot(const struct tc_planner *planner, uint32_t tensor,
                                       enum tc_tier tier)
{
	uint32_t slot = planner->tensors[tensor].slots[tier];
	return slot == TCI_NO_SLOT || planner->slots[slot].version != tci_latest(planner, tensor)
	           ? TCI_NO_SLOT
	           : slot;
}
static inline uint64_t tci_align(const struct tc_planner *planner, enum tc_tier tier,
                                 uint64_t bytes)
{
	uint64_t rest =
	    (tier == TC_NVME && planner->alignment < TCI_DRIVE_ALIGNMENT ? TCI_DRIVE_ALIGNMENT
	                                                                 : planner->alignment) -
	    1;
	return bytes > UINT64_MAX - rest ? UINT64_MAX : (bytes + rest) & ~rest;
}
/** Bytes of the pool that a slot takes: aligned. */
static inline uint64_t tci_slot_bytes(const struct tc_planner *planner, const struct tci_slot *slot)
{
	return tci_align(planner, planner->pools[slot->pool].info.tier,
	                 planner->tensors[slot->tensor].bytes);
}
/** Last command that wrote the content of a slot, or TC_NO_COMMAND. */
static inline uint64_t tci_slot_writer(const struct tci_slot *slot)
{
	return slot->writer == 0 ? TC_NO_COMMAND : (uint64_t)slot->writer - 1;
}
void tci_memory_free(struct tc_planner *planner);

/* plan_touch.c, plan_unmanaged.c */
enum tc_status tci_touch_prepare(struct tc_planner *planner, struct tc_error *error);
void tci_touch_free(struct tc_planner *planner);
enum tc_status tci_unmanaged_prepare(struct tc_planner *planner, struct tc_error *error);
/** True when the ops of this step run as compute (not as CPU updates). */
bool tci_step_computes(const struct tc_planner *planner, uint32_t step);

/* plan_units.c */
enum tc_status tci_units_prepare(struct tc_planner *planner, struct tc_error *error);

/* plan_evaluate.c */
/** Start keeping commands if the policy wants timing; TC_ARGUMENT without a simulator. */
enum tc_status tci_recorder_create(struct tc_planner *planner, struct tc_error *error);
/** Simulate what was planned so far. */
enum tc_status tci_recorder_evaluate(struct tc_planner *planner, struct tc_evaluation *evaluation,
                                     struct tc_error *error);

/* plan_reorder.c */
/** Walk steps in this order from now on: tc_plan_reorder() without its check. */
enum tc_status tci_reorder_apply(struct tc_planner *planner, const uint32_t *order,
                                 struct tc_error *error);
/** After begin(): a CPU update stays whole, and behind all gradients where there is a barrier. */
enum tc_status tci_reorder_check_updates(struct tc_planner *planner, struct tc_error *error);
/** The number under which the trace's steps have the step at this position. */
static inline uint32_t tci_recorded_step(const struct tc_planner *planner, uint32_t position)
{
	return planner->reordered != NULL && position < planner->steps->step_count
	           ? planner->reordered->order[position]
	           : position;
}

/* plan_step.c, plan_optimizer.c, plan_repack.c */
/** Judge the requests that open now: before the policy's before_step(). */
enum tc_status tci_requests_open(struct tc_planner *planner, struct tc_ids opening,
                                 struct tc_error *error);
/** After before_step(): what it fetched, it fetched for these requests and not for later ones. */
void tci_requests_opened(struct tc_planner *planner, struct tc_ids opening);
/** Pin what the step needs, so that nothing makes room at its expense. */
void tci_step_pin(struct tc_planner *planner, uint32_t step);
enum tc_status tci_step_run(struct tc_planner *planner, uint32_t step, struct tc_error *error);
enum tc_status tci_optimizer_prepare(struct tc_planner *planner, struct tc_error *error);
/** In prepare() of policies without a gradient path of their own. */
enum tc_status tci_derive_fp32_gradients(struct tc_planner *planner, struct tc_error *error);
enum tc_status tci_optimizer_run(struct tc_planner *planner, uint32_t step, struct tc_error *error);
/** Gradients without a bucket: copy to the CPU when the gradient event fires. */
enum tc_status tci_gradient_event(struct tc_planner *planner, uint32_t param,
                                  struct tc_error *error);
enum tc_status tci_optimizer_end(struct tc_planner *planner, struct tc_error *error);
/** Move pinned tensors together so that `bytes` fit; `*done` false when they cannot. */
enum tc_status tci_repack(struct tc_planner *planner, uint32_t pool, uint64_t bytes, bool *done,
                          struct tc_error *error);

#endif
