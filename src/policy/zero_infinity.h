/**
 * @file zero_infinity.h
 * Inside of `zero-infinity`: ZeRO stage 3 with offloading on one GPU, as DeepSpeed v0.14.2 does it.
 * Rules: src/policy/ZERO_INFINITY.md.
 *
 * zero_infinity.c holds the table and the hooks; zero_infinity_read.c derives from the trace what
 * never changes; zero_infinity_pools.c and zero_infinity_gradient_pools.c decide homes and make
 * pools; zero_infinity_fetch.c is the parameter coordinator (access, prefetch, release),
 * zero_infinity_staging.c its NVMe side; zero_infinity_gradients.c and zero_infinity_optimizer.c
 * are the rest of the step.
 */
#ifndef TENCACHE_SRC_POLICY_ZERO_INFINITY_H
#define TENCACHE_SRC_POLICY_ZERO_INFINITY_H

#include "tencache/planner.h"

/** Sub-groups whose state can be in host memory at once: read, updated, written. */
#define TCI_ZERO_STAGES 3

/** Parameters of the policy, resolved. Elements unless named otherwise. */
struct tci_zero_settings {
	bool parameters_on_nvme, state_on_nvme, pin_memory;
	uint64_t prefetch_bucket, max_live, max_reuse_distance;
	uint64_t persistence_threshold, model_persistence_threshold;
	uint64_t sub_group, reduce_bucket;
	bool contiguous_gradients, scan;
	uint64_t buffer_count, buffer_elements, max_in_cpu, min_nvme_bytes;
	uint64_t optimizer_buffer_count;
	bool pipeline_read, pipeline_write;
};

/** TC_NO_POOL where this plan does not need the pool. */
struct tci_zero_pools {
	uint32_t gpu, gradients, bucket, norm;                /**< GPU */
	uint32_t parameters, state, half_gradients, pageable; /**< host memory */
	uint32_t full_gradients, staging;                     /**< host memory */
	/** Host memory; sub-group g uses entry g modulo tci_zero.stages. */
	uint32_t optimizer_staging[TCI_ZERO_STAGES];
	uint32_t nvme_parameters, nvme_state, nvme_gradients; /**< drive */
};

/** One entry for each tensor of the trace; only those of parameters are used. */
struct tci_zero_parameter {
	uint64_t elements;
	uint32_t gradient;    /**< of the trace, or TC_NONE */
	uint32_t bucket_copy; /**< derived: the gradient in the bucket, later in host memory */
	uint32_t norm_copy;   /**< derived: what goes down after the norm */
	uint32_t full_copy;   /**< derived: FP32 gradient; equals norm_copy where that is FP32 */
	uint32_t last_event;  /**< last gradient event, or TC_NONE */
	bool persistent;      /**< always on the GPU */
	bool on_nvme;         /**< home */

	/* in this iteration */
	uint32_t open;  /**< open requests that hold it */
	uint32_t batch; /**< of its last fetch */
	uint32_t
	    fetched_for;   /**< access + 1 up to which the prefetcher has seen its uses; 0: none */
	uint32_t next_use; /**< index into tci_zero.uses */
	bool in_flight;    /**< fetched for an access that has not come yet */
	bool counted;      /**< in tci_zero.live */
	bool loading;      /**< being read from the drive, nobody has waited for it */
};

/** One call of a module that owns parameters. */
struct tci_zero_access {
	uint32_t first, count;    /**< range of tci_zero.queue */
	uint64_t elements_before; /**< of all accesses before it */
};

/** An entry of the prefetcher's queue: the rows of all accesses in recorded order. */
struct tci_zero_entry {
	uint32_t parameter;
	uint32_t access;
};

/** What one optimizer event, or one optimizer op of a trace without events, updates. */
struct tci_zero_unit {
	uint32_t first_op, last_op;
	uint32_t group;
	uint32_t first_tensor,
	    tensor_count; /**< range of tci_zero.unit_tensors: parameters, states */
	uint64_t elements;
};

/** Consecutive units whose state moves together. */
struct tci_zero_group {
	uint32_t first_unit, unit_count;
	uint64_t elements;
	bool loaded; /**< its reads were issued in this iteration */
};

struct tci_zero_list {
	uint32_t *items;
	size_t count, capacity;
};

struct tci_zero_commands {
	uint64_t *items;
	size_t count, capacity;
};

struct tci_zero {
	struct tci_zero_settings settings;
	struct tci_zero_pools pools;

	/* from the trace */
	struct tci_zero_parameter *parameters;
	uint32_t tensor_count; /**< of the trace */
	uint32_t *access_of_request;
	struct tci_zero_access *accesses;
	size_t access_count, access_capacity;
	struct tci_zero_entry *queue;
	size_t queue_count, queue_capacity;
	uint32_t *use_first; /**< per tensor, range of uses */
	uint32_t *uses;      /**< accesses of each parameter, ascending */
	struct tci_zero_unit *units;
	size_t unit_count, unit_capacity;
	struct tci_zero_list unit_tensors;
	struct tci_zero_group *groups;
	size_t group_count, group_capacity;
	uint32_t stages; /**< pools in use of pools.optimizer_staging */
	uint64_t largest_gradient_bytes;
	bool gradients_come_twice; /**< some parameter has several gradient events */

	/* in this iteration */
	size_t head; /**< first entry of the queue that was not popped */
	uint32_t accesses_made;
	bool *batch_complete; /**< somebody has waited for it */
	size_t batch_capacity;
	uint32_t batch_count;
	uint64_t live;                  /**< elements of fetched, not persistent parameters */
	uint64_t in_flight;             /**< elements of parameters in flight */
	uint64_t last_fetch;            /**< command, or TC_NO_COMMAND */
	struct tci_zero_list batch;     /**< being collected */
	struct tci_zero_list loading;   /**< parameters */
	struct tci_zero_commands loads; /**< their last commands */
	struct tci_zero_list bucket;    /**< parameters whose gradients wait for the flush */
	uint64_t bucket_elements;
	bool stepping; /**< the optimizer step has begun */
	uint32_t next_unit;
	/** Not waited for: of optimizer state, and conversions or writes of parameters. */
	struct tci_zero_commands reads, writes, published;
	uint64_t early_releases; /**< staging buffers taken back; over all iterations */
	bool early_release_noted;
};

/* zero_infinity_read.c */
/** Parameters, accesses, queue, uses, units and sub-groups. Call after tc_plan_manage(). */
enum tc_status tci_zero_read(struct tci_zero *zero, struct tc_planner *planner,
                             struct tc_error *error);
enum tc_status tci_zero_push(struct tci_zero_list *list, uint32_t id, struct tc_error *error);
enum tc_status tci_zero_push_command(struct tci_zero_commands *list, uint64_t id,
                                     struct tc_error *error);

/* zero_infinity_gradient_pools.c */
/** The forms a gradient takes on its way. */
enum tc_status tci_zero_derive_gradients(struct tci_zero *zero, struct tc_planner *planner,
                                         struct tc_error *error);
enum tc_status tci_zero_gradient_pools(struct tci_zero *zero, struct tc_planner *planner,
                                       struct tc_error *error);

/* zero_infinity_pools.c */
/** Homes, derived gradients, pools and initial places. */
enum tc_status tci_zero_settle(struct tci_zero *zero, struct tc_planner *planner,
                               struct tc_error *error);

/** An arena, unless it would be empty: then `*pool` stays as it is. */
enum tc_status tci_zero_arena(struct tc_planner *planner, enum tc_tier tier, const char *name,
                              bool pinned, uint64_t bytes, uint32_t *pool, struct tc_error *error);

/* zero_infinity_fetch.c */
void tci_zero_start_iteration(struct tci_zero *zero);
/** A module asks for its parameters: fetch what is missing, wait, then prefetch. */
enum tc_status tci_zero_access(struct tci_zero *zero, struct tc_planner *planner, uint32_t access,
                               struct tc_error *error);
/** A module has run: give back what is not needed again soon. */
enum tc_status tci_zero_release(struct tci_zero *zero, struct tc_planner *planner, uint32_t access,
                                struct tc_error *error);
/** Take a parameter off the GPU and out of its staging buffer. */
enum tc_status tci_zero_forget(struct tci_zero *zero, struct tc_planner *planner,
                               uint32_t parameter, struct tc_error *error);
/** Take everything off the GPU that is not persistent. */
enum tc_status tci_zero_forget_all(struct tci_zero *zero, struct tc_planner *planner,
                                   struct tc_error *error);
/** Forget the unpinned parameter on the GPU that is used last; `staged_only`: among those that
 * hold a staging buffer, on the GPU or not. */
enum tc_status tci_zero_forget_farthest(struct tci_zero *zero, struct tc_planner *planner,
                                        bool staged_only, uint32_t spare, bool *made,
                                        struct tc_error *error);

/* zero_infinity_staging.c */
/** Is its only copy on the drive, with no read of it issued? */
bool tci_zero_only_on_nvme(const struct tci_zero *zero, const struct tc_planner *planner,
                           uint32_t parameter);
/** DeepSpeed stops where no buffer is free; here the tensor that is used last gives up its own.
 * Infeasible where the coming step needs all of them. */
enum tc_status tci_zero_free_a_buffer(struct tci_zero *zero, struct tc_planner *planner,
                                      uint32_t parameter, struct tc_error *error);
/** See that all of the batch are in host memory: read, and wait for every read under way. */
enum tc_status tci_zero_ensure_staged(struct tci_zero *zero, struct tc_planner *planner,
                                      struct tc_error *error);
/** Start reads of what the queue holds next. */
enum tc_status tci_zero_prefetch_staged(struct tci_zero *zero, struct tc_planner *planner,
                                        struct tc_error *error);

/* zero_infinity_gradients.c */
/** The gradient of a parameter is complete (`event`), or its phase has ended (TC_NONE). */
enum tc_status tci_zero_gradient(struct tci_zero *zero, struct tc_planner *planner,
                                 uint32_t parameter, uint32_t event, struct tc_error *error);
enum tc_status tci_zero_flush(struct tci_zero *zero, struct tc_planner *planner,
                              struct tc_error *error);
/** Gradients that are still on the GPU because the trace has no event for them. */
enum tc_status tci_zero_flush_leftovers(struct tci_zero *zero, struct tc_planner *planner,
                                        struct tc_error *error);
/** Inf and nan scan of all FP16 gradients in host memory. */
enum tc_status tci_zero_scan(struct tci_zero *zero, struct tc_planner *planner,
                             struct tc_error *error);

/* zero_infinity_optimizer.c */
/** Once an iteration: everything leaves the GPU, then the scan. */
enum tc_status tci_zero_begin_step(struct tci_zero *zero, struct tc_planner *planner,
                                   struct tc_error *error);
enum tc_status tci_zero_update(struct tci_zero *zero, struct tc_planner *planner, uint32_t first_op,
                               uint32_t last_op, struct tc_error *error);

#endif
