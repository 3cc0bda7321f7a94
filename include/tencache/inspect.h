/**
 * @file inspect.h
 * What is in a trace: counts, sizes, what must fit, and how far apart the uses of parameters are.
 */
#ifndef TENCACHE_INSPECT_H
#define TENCACHE_INSPECT_H

#include "tencache/steps.h"

#ifdef __cplusplus
extern "C" {
#endif

/** How many tensors of a kind have one size. */
struct tc_size_count {
	enum tc_tensor_kind kind;
	uint64_t bytes;
	uint64_t count;
};

struct tc_kind_total {
	uint64_t count, bytes;
	uint64_t persistent_bytes;
	uint32_t first_size, size_count; /**< slice of tc_inspection.sizes */
};

/** Memory at one moment, exact bytes (no alignment, no fragmentation). */
struct tc_footprint {
	uint64_t bytes; /**< sum of what follows */
	uint64_t kind_bytes[TC_TENSOR_KIND_COUNT];
	uint64_t workspace_bytes;
	uint32_t op; /**< first op of the trace at which it occurs */
	uint32_t step;
};

#define TC_QUANTILE_COUNT 7
/** 0, 10, 25, 50, 75, 90 and 100: the percentiles that struct tc_quantiles holds. */
extern const uint32_t tc_quantile_percent[TC_QUANTILE_COUNT];

/** Nearest-rank quantiles: each is a value that occurred. Zero when `count` is. */
struct tc_quantiles {
	uint64_t count;
	uint64_t values[TC_QUANTILE_COUNT];
};

struct tc_phase_total {
	uint64_t ops, steps, flops;
	uint64_t traffic_bytes; /**< memory traffic of the ops */
	uint64_t timed_ops, measured_ps;
};

struct tc_pass_total {
	uint64_t requests, rows, bytes;
};

#define TC_PASS_COUNT 4

struct tc_inspection {
	const struct tc_steps *steps; /**< borrowed */
	struct tc_kind_total kinds[TC_TENSOR_KIND_COUNT];
	struct tc_size_count *sizes; /**< by kind, then larger first */
	uint32_t size_count;
	uint64_t persistent_bytes;

	struct tc_phase_total phases[TC_PHASE_COUNT], all;
	struct tc_pass_total passes[TC_PASS_COUNT];
	uint64_t events[TC_EVENT_KIND_COUNT];

	/** Everything alive at once; freed after the last use, or as PyTorch would free it. */
	struct tc_footprint last_use_peak, eager_peak;
	/** Most that one step needs at once: reads, writes, unpacks, open requests, workspace. */
	struct tc_footprint largest_step;
	/** Most that one op reads and writes, with its workspace. */
	struct tc_footprint largest_op;

	/**
	 * Between two uses of a parameter, in a steady iteration: steps from the end of one use to
	 * the start of the next (uses in adjacent steps are one use), and bytes of other parameters
	 * used in the steps between, each once. A cache of parameters with at least that many bytes
	 * on top of the parameter itself would keep it under LRU.
	 */
	struct tc_quantiles reuse_steps, reuse_bytes;
};

/** @param inspection receives a new object; free with tc_inspection_free() */
enum tc_status tc_inspect(const struct tc_steps *steps, struct tc_inspection **inspection,
                          struct tc_error *error);
void tc_inspection_free(struct tc_inspection *inspection);

#ifdef __cplusplus
}
#endif
#endif
