/**
 * @file ten_cache.h
 * 10Cache (arXiv 2511.14124; code: github.com/Sabiha1225/10cache, commit 1952ab2), its parts:
 * counts of buffers per size, pools and homes, the window over the request table, eviction to host
 * memory and NVMe, the gradient bucket, and the FP32 window of the optimizer.
 * What paper and code leave open is settled in src/PLANNING.md.
 */
#ifndef TENCACHE_SRC_POLICY_TEN_CACHE_H
#define TENCACHE_SRC_POLICY_TEN_CACHE_H

#include "common.h"
#include "order.h"

/** A size class of parameters: exact bytes, in the order of first appearance in forward. */
struct tci_size_class {
	uint64_t bytes; /**< of a parameter */
	uint64_t elements;
	uint64_t tensors;        /**< c(s): distinct tensors, or accesses with hist=accesses */
	uint64_t gpu, cpu, fp32; /**< buffers: g(s), h(s), o(s) */
	uint64_t least;          /**< that must be on the GPU at once: with fewer nothing runs */
};

/** One optimizer unit: the ops of one optimizer event. */
struct tci_unit {
	uint32_t first_op, last_op;
	uint32_t event;
	bool home_nvme;                  /**< FP32 state lives on NVMe */
	size_t first_param, param_count; /**< of unit_params */
};

struct tci_ten_cache {
	/* sizes and pools */
	struct tci_size_class *classes;
	size_t class_count;
	uint32_t *class_of; /**< per tensor, TC_NONE for others */
	uint32_t gpu_pool, cpu_pool, fp32_pool, staging_pool, nvme_pool;
	uint32_t gradient_pool, bucket_pool, gradient_staging, gradient_host;
	bool has_nvme;
	uint64_t largest_bytes, largest_elements; /**< of a parameter */
	uint64_t largest_gradient;

	/* table and window (spec names: T, W, cur, pos, rel) */
	const uint32_t *table;
	uint32_t rows, forward_rows;
	uint32_t *row_first, *row_of;        /**< rows of each tensor, ascending */
	bool *window;                        /**< W */
	uint32_t window_size, window_target; /**< |W|, and what it is between demand misses */
	uint32_t resident;                   /**< n0 */
	uint32_t cursor;                     /**< cur */
	int64_t position;                    /**< pos: last row whose request has opened */
	bool releasing;                      /**< rel */
	bool *home_is_nvme, *home_is_gpu;
	bool *stays; /**< parameters that no module asks for: on the GPU always */
	uint32_t *stage_now, *stage_next, *fetches, *delayed, *leaves;
	uint32_t stage_now_count, stage_next_count, fetch_count, delayed_count;

	/* occupants of the host pool, for the choice of a spill victim */
	struct tci_occupants *occupants; /**< per class */
	uint32_t *class_index;           /**< per tensor: its index within its class */
	uint64_t arrivals;

	/* gradients */
	uint32_t *bucket_copy, *fp32_gradient; /**< derived tensors, per gradient tensor */
	uint32_t *bucket;                      /**< gradients in the bucket */
	uint32_t bucket_count;
	bool *late_gradient; /**< has no gradient event: stays until backward ends */
	uint64_t late_gradient_bytes;

	/* optimizer */
	struct tci_unit *units;
	uint32_t *unit_params; /**< parameters that each unit writes, unit by unit */
	size_t unit_param_count, unit_param_capacity;
	uint32_t unit_count, units_in_cpu; /**< t: the prefix homed in host memory */
	uint32_t next_unit;                /**< unit that the next optimizer event runs */
	uint32_t row;                      /**< next unit to bring in */
	bool streaming;
	bool farthest, delay_empty, blocking_reads, rewrite_clean, sync;
};

/* ten_cache_counts.c */
/** Classes, c(s) and what must be on the GPU at once from the table; largest sizes. */
enum tc_status tci_ten_cache_classes(struct tci_ten_cache *cache, struct tc_planner *planner,
                                     struct tc_error *error);
/** Rows of the largest module. */
uint32_t tci_ten_cache_largest_module(const struct tc_steps *steps);
/** The count rule and correction of each pool (10cache-spec 2.3), or the counts of a parameter. */
enum tc_status tci_ten_cache_count_gpu(struct tci_ten_cache *cache, struct tc_planner *planner,
                                       uint64_t budget, struct tc_error *error);
enum tc_status tci_ten_cache_count_fp32(struct tci_ten_cache *cache, struct tc_planner *planner,
                                        uint64_t budget, struct tc_error *error);
enum tc_status tci_ten_cache_count_cpu(struct tci_ten_cache *cache, struct tc_planner *planner,
                                       uint64_t budget, struct tc_error *error);

/* ten_cache_homes.c */
enum tc_status tci_ten_cache_pools(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   struct tc_error *error);

/* ten_cache_window.c */
enum tc_status tci_ten_cache_rows(struct tci_ten_cache *cache, struct tc_planner *planner,
                                  struct tc_error *error);
/** Start of an iteration: the window is the forward prefix. */
void tci_ten_cache_rewind(struct tci_ten_cache *cache);
/** A request opens: rows up to its last one have been asked for. */
void tci_ten_cache_access(struct tci_ten_cache *cache, const struct tc_request *request);
/**
 * Decide one release: which tensors leave and which come, into `cache->fetches` and stage_next.
 * `leaves` (at least row_count entries) receives those to evict, in order. Pure bookkeeping: the
 * logical run that sizes the classes uses it too.
 */
uint32_t tci_ten_cache_release(struct tci_ten_cache *cache, const struct tc_request *request,
                               uint32_t *leaves);
/** W becomes the forward prefix of `resident` rows. */
void tci_ten_cache_prefix(struct tci_ten_cache *cache, size_t tensors);
/** Largest number of each class that the window ever holds over one iteration, into gpu counts. */
enum tc_status tci_ten_cache_logical_counts(struct tci_ten_cache *cache, struct tc_planner *planner,
                                            struct tc_error *error);

/* ten_cache_occupants.c */
enum tc_status tci_ten_cache_occupants_create(struct tci_ten_cache *cache, uint32_t tensors,
                                              struct tc_error *error);
void tci_ten_cache_occupants_free(struct tci_ten_cache *cache);
void tci_ten_cache_enters_host(struct tci_ten_cache *cache, struct tc_planner *planner,
                               uint32_t tensor);
/** No effect on a tensor that is not there. */
void tci_ten_cache_leaves_host(struct tci_ten_cache *cache, uint32_t tensor);
/** What to spill to free a host buffer of a class; TC_NONE: nothing is there. */
uint32_t tci_ten_cache_host_victim(const struct tci_ten_cache *cache, uint32_t class);

/* ten_cache_evict.c */
enum tc_status tci_ten_cache_evict(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   uint32_t tensor, enum tc_why why, struct tc_error *error);
/** Bring a tensor to the GPU; `*done` false when its class (or staging) has no buffer now. */
enum tc_status tci_ten_cache_fetch(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   uint32_t tensor, enum tc_why why, bool *done,
                                   struct tc_error *error);

/* ten_cache_gradient.c */
enum tc_status tci_ten_cache_derive_gradients(struct tci_ten_cache *cache,
                                              struct tc_planner *planner, struct tc_error *error);
enum tc_status tci_ten_cache_gradient(struct tci_ten_cache *cache, struct tc_planner *planner,
                                      uint32_t param, struct tc_error *error);
/** Backward has ended: gradients without an event go the way of the others. */
enum tc_status tci_ten_cache_late_gradients(struct tci_ten_cache *cache, struct tc_planner *planner,
                                            struct tc_error *error);
enum tc_status tci_ten_cache_flush(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   struct tc_error *error);

/* ten_cache_optimizer.c */
enum tc_status tci_ten_cache_units(struct tci_ten_cache *cache, struct tc_planner *planner,
                                   struct tc_error *error);
/** Homes of the FP32 state: a prefix in host memory, the rest on NVMe (10cache-spec 2.5). */
enum tc_status tci_ten_cache_place_fp32(struct tci_ten_cache *cache, struct tc_planner *planner,
                                        struct tc_error *error);
enum tc_status tci_ten_cache_update(struct tci_ten_cache *cache, struct tc_planner *planner,
                                    uint32_t event, uint32_t first_op, uint32_t last_op,
                                    struct tc_error *error);
/** After the last update: the window ends where it began. */
enum tc_status tci_ten_cache_end_fp32(struct tci_ten_cache *cache, struct tc_planner *planner,
                                      struct tc_error *error);
/** Is the FP32 state of this parameter homed on NVMe? */
bool tci_ten_cache_fp32_on_nvme(const struct tci_ten_cache *cache, const struct tc_planner *planner,
                                uint32_t param);

#endif
