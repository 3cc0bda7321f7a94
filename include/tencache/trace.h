/**
 * @file trace.h
 * A trace: one recorded training iteration. Format: traces/FORMAT.md.
 *
 * Ids are dense and equal the index into the arrays below. All strings belong to the trace and
 * live as long as it does. A loaded trace has passed every validation rule of the format.
 */
#ifndef TENCACHE_TRACE_H
#define TENCACHE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tencache/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/** "No tensor", "no module", "no event", "no bucket": an absent id. */
#define TC_NONE UINT32_MAX

enum tc_tensor_kind {
	TC_PARAM,
	TC_GRAD,
	TC_OPTIMIZER_STATE,
	TC_ACTIVATION,
	TC_INPUT,
	TC_BUFFER,
	TC_TEMP,
	TC_TENSOR_KIND_COUNT
};

enum tc_role { TC_ROLE_NONE, TC_ROLE_MASTER, TC_ROLE_EXP_AVG, TC_ROLE_EXP_AVG_SQ, TC_ROLE_OTHER };

enum tc_dtype {
	TC_DTYPE_UNKNOWN,
	TC_FLOAT32,
	TC_FLOAT16,
	TC_BFLOAT16,
	TC_FLOAT64,
	TC_FLOAT8,
	TC_INT64,
	TC_INT32,
	TC_INT16,
	TC_INT8,
	TC_UINT8,
	TC_BOOL,
	TC_DTYPE_COUNT
};

enum tc_phase { TC_FORWARD, TC_BACKWARD, TC_OPTIMIZER, TC_ZERO_GRAD, TC_OTHER, TC_PHASE_COUNT };

enum tc_op_class {
	TC_GEMM,
	TC_ATTENTION,
	TC_ELEMENTWISE,
	TC_REDUCTION,
	TC_GATHER,
	TC_OPTIMIZER_OP,
	TC_COMMUNICATION,
	TC_COPY,
	TC_OP_CLASS_COUNT
};

enum tc_event_kind {
	TC_EVENT_START,
	TC_EVENT_MICRO_BATCH,
	TC_EVENT_FORWARD_PRE,
	TC_EVENT_FORWARD_POST,
	TC_EVENT_BACKWARD_START,
	TC_EVENT_BACKWARD,
	TC_EVENT_GRADIENT,
	TC_EVENT_NORM,
	TC_EVENT_OPTIMIZER,
	TC_EVENT_END,
	TC_EVENT_KIND_COUNT
};

enum tc_bind_kind {
	TC_BIND_NONE,
	TC_BIND_PARAM,
	TC_BIND_BUFFER,
	TC_BIND_STATE,
	TC_BIND_MASTER,
	TC_BIND_GRAD,
	TC_BIND_SAVED,
	TC_BIND_INPUT
};

/** A list of ids inside the trace's reference pool; `items` is borrowed from the trace. */
struct tc_ids {
	const uint32_t *items;
	uint32_t count;
};

struct tc_tensor {
	uint64_t bytes; /**< size of the storage, > 0 */
	uint32_t of;    /**< parameter that a gradient, master or state belongs to, or TC_NONE */
	uint32_t layer; /**< index in the repeated block list, or TC_NONE */
	uint32_t bind_module;    /**< for saved activations: the module, or TC_NONE */
	uint32_t bind_ordinal;   /**< ordinal among the pack calls of that module */
	int64_t bound_at;        /**< event from which the name exists; -1: before start */
	const char *name;        /**< "" where there is none */
	enum tc_tensor_kind kind;
	enum tc_role role;
	enum tc_dtype dtype;
	enum tc_bind_kind bind;
	bool persistent; /**< exists before the first op and after the last */
	const char *const *bind_names; /**< every name of a tied parameter; NULL: just `name` */
	uint32_t bind_name_count;
};

struct tc_module {
	const char *path;       /**< "" for the root */
	const char *class_name;
	struct tc_ids params;   /**< directly owned parameters in named_parameters order */
	uint32_t layer;         /**< or TC_NONE */
};

struct tc_event {
	enum tc_event_kind kind;
	uint32_t module;      /**< forward_pre, forward_post, backward */
	uint32_t tensor;      /**< gradient, norm: the parameter */
	uint32_t bucket;      /**< optimizer: index into buckets */
	uint32_t micro_batch; /**< micro_batch */
};

/** A tensor that a saved-tensor hook unpacks in the step that follows each of these events. */
struct tc_unpack {
	uint32_t tensor;
	struct tc_ids events;
};

struct tc_range {
	uint64_t offset;
	uint64_t bytes;
};

struct tc_op {
	const char *name;
	uint32_t module;  /**< or TC_NONE */
	uint32_t event;   /**< the last event before the op, or TC_NONE in a trace without events */
	uint32_t layer;   /**< or TC_NONE */
	enum tc_phase phase;
	enum tc_op_class op_class;
	bool recompute;   /**< forward op run again inside backward */
	bool timed;       /**< `measured_ps` is valid (zero is a real zero) */
	bool has_bytes;   /**< `bytes` was given */
	uint64_t measured_ps;
	uint64_t flops;
	uint64_t bytes;     /**< memory traffic; where absent see tc_op_traffic_bytes() */
	uint64_t workspace; /**< bytes alive only inside the op */
	struct tc_ids reads, writes, allocates;
	struct tc_ids frees;       /**< `f`: after the last use */
	struct tc_ids frees_eager; /**< `fe`: as PyTorch itself would free */
	/** Sub-ranges (feature `subrange`), parallel to reads and writes, or NULL: whole tensors. */
	const struct tc_range *read_ranges, *write_ranges;
};

struct tc_trace {
	const char *file_name;
	char sha256[65];        /**< of the decompressed file, lower-case hex */
	char events_sha256[65]; /**< computed from the events; checked against the header's */
	const char *name;       /**< model name of the header, else the file's base name */
	const char *method;     /**< provenance.method */
	const char *optimizer_name;
	const char *checkpoint_mode; /**< "none", "layer" */
	uint64_t batch, sequence, micro_batches; /**< 0 when unknown */
	uint64_t model_parameters;               /**< elements; 0 when unknown */
	enum tc_dtype param_dtype, grad_dtype, compute_dtype, master_dtype, state_dtype;
	bool has_clip;               /**< run.clip is present: a global norm before the updates */
	uint64_t workspace_slack;    /**< bytes set aside for workspace nobody sees */
	bool has_events;
	uint64_t scale; /**< bytes were divided by this (scale.h); 0 and 1: they were not */

	struct tc_tensor *tensors;
	uint32_t tensor_count;
	struct tc_module *modules;
	uint32_t module_count;
	struct tc_event *events;
	uint32_t event_count;
	struct tc_unpack *unpacks;
	uint32_t unpack_count;
	struct tc_op *ops;
	uint32_t op_count;
	struct tc_ids *buckets; /**< parameters of each optimizer bucket */
	uint32_t bucket_count;

	/** Warnings of the validation (unused tensors, phase order), at most 20, then a count. */
	char **warnings;
	uint32_t warning_count;
	uint64_t warnings_suppressed;

	void *storage; /**< private: the arenas that own everything above */
};

/**
 * Read and validate a trace file in either layout, gzipped or not, told apart by content.
 * Records are parsed one at a time; no whole-file tree is built.
 *
 * On failure the message holds up to 20 errors, one a line, each with file, line or record number,
 * op or tensor by name, found and expected, then the count of the others.
 * @param trace receives a new trace that the caller frees with tc_trace_free()
 */
enum tc_status tc_trace_read(const char *path, struct tc_trace **trace, struct tc_error *error);

/** As tc_trace_read(), from memory. `name` stands for the file name in messages. */
enum tc_status tc_trace_parse(const char *data, size_t bytes, const char *name,
                              struct tc_trace **trace, struct tc_error *error);

/** Free a trace; NULL is allowed. */
void tc_trace_free(struct tc_trace *trace);
/** The first op at or after an event, by bisection; op_count where there is none. */
uint32_t tc_trace_op_after(const struct tc_trace *trace, uint32_t event);

/** Memory traffic of an op: its `bytes`, else the sum over reads and writes (rules: a gather
 * counts its output twice, sub-ranges count their length). */
uint64_t tc_op_traffic_bytes(const struct tc_trace *trace, const struct tc_op *op);

/** Bytes of one element, 0 when unknown. */
uint64_t tc_dtype_bytes(enum tc_dtype dtype);

const char *tc_tensor_kind_name(enum tc_tensor_kind kind);
const char *tc_role_name(enum tc_role role);
const char *tc_phase_name(enum tc_phase phase);
const char *tc_dtype_name(enum tc_dtype dtype);
const char *tc_op_class_name(enum tc_op_class op_class);
const char *tc_event_kind_name(enum tc_event_kind kind);
const char *tc_bind_kind_name(enum tc_bind_kind kind);

#ifdef __cplusplus
}
#endif
#endif
