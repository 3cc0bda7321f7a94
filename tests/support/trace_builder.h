/**
 * @file trace_builder.h
 * Traces for tests, built in memory: by hand record by record, as a small regular model, or at
 * random from a seed. Everything goes through the text of the format and tc_trace_parse(), so a
 * test sees what a user's file would give. A mistake in a test (unknown id, text the reader
 * refuses) ends the program with a message.
 *
 * By hand:
 *
 *     struct test_builder *b = test_builder_new();
 *     uint32_t p = test_add_tensor(b, TC_PARAM, 1024);
 *     uint32_t x = test_add_tensor(b, TC_ACTIVATION, 4096);
 *     uint32_t m = test_add_module(b, "fc", TEST_IDS(p));
 *     test_add_event(b, TC_EVENT_START, TC_NONE);
 *     test_add_event(b, TC_EVENT_FORWARD_PRE, m);
 *     uint32_t op = test_add_op(b, TC_FORWARD, m, TEST_IDS(p), TEST_IDS(x));
 *     test_op(b, op)->us = 10;
 *     test_add_event(b, TC_EVENT_FORWARD_POST, m);
 *     test_add_event(b, TC_EVENT_END, TC_NONE);
 *     test_fill_lifetimes(b);
 *     struct tc_trace *trace = test_builder_trace(b);   // free with tc_trace_free()
 *     test_builder_free(b);
 */
#ifndef TENCACHE_TEST_TRACE_BUILDER_H
#define TENCACHE_TEST_TRACE_BUILDER_H

#include "tencache/trace.h"

/** A list of ids for a call: TEST_IDS(1, 2), or TEST_NO_IDS for none. */
#define TEST_IDS(...) ((const uint32_t[]){__VA_ARGS__, TC_NONE})
#define TEST_NO_IDS ((const uint32_t[]){TC_NONE})
/** A value that is left out of the record. */
#define TEST_ABSENT UINT64_MAX

enum test_layout { TEST_LINES, TEST_DOCUMENT };

struct test_ids {
	uint32_t *items;
	size_t count, capacity;
};

struct test_tensor {
	enum tc_tensor_kind kind;
	enum tc_role role;   /**< TC_ROLE_NONE: absent */
	enum tc_dtype dtype; /**< TC_DTYPE_UNKNOWN: absent */
	uint64_t bytes;
	uint32_t of, layer;   /**< TC_NONE: absent */
	int persist;          /**< -1: the kind's default; else 0 or 1 */
	bool eager_until_end; /**< test_fill_lifetimes() puts `fe` at the last op */
	char name[64];        /**< "": absent */
};

struct test_module {
	char path[64];
	uint32_t layer; /**< TC_NONE: absent */
	struct test_ids params;
};

struct test_event {
	enum tc_event_kind kind;
	uint32_t subject; /**< module, parameter, bucket or micro-batch by kind; TC_NONE: none */
};

struct test_unpack {
	uint32_t tensor;
	struct test_ids events;
};

struct test_op {
	char name[64];
	enum tc_phase phase;
	enum tc_op_class op_class;
	uint32_t module, event, layer; /**< TC_NONE: absent */
	bool recompute;
	uint64_t us, flops, bytes, workspace; /**< TEST_ABSENT: absent */
	struct test_ids reads, writes, allocates, frees, frees_eager;
};

/** All records of a trace; tests may change anything before asking for the text. */
struct test_builder {
	struct test_tensor *tensors;
	size_t tensor_count, tensor_capacity;
	struct test_module *modules;
	size_t module_count, module_capacity;
	struct test_event *events;
	size_t event_count, event_capacity;
	struct test_unpack *unpacks;
	size_t unpack_count, unpack_capacity;
	struct test_op *ops;
	size_t op_count, op_capacity;
	struct test_ids *buckets;
	size_t bucket_count, bucket_capacity;
	enum tc_dtype param_dtype; /**< of header run.dtype: param, grad and compute */
	bool has_clip, has_master;
	uint64_t workspace_slack;
};

struct test_builder *test_builder_new(void);
void test_builder_free(struct test_builder *builder);

/** Each returns the id of the new record. Data type float32, everything optional absent. */
uint32_t test_add_tensor(struct test_builder *builder, enum tc_tensor_kind kind, uint64_t bytes);
uint32_t test_add_module(struct test_builder *builder, const char *path, const uint32_t *params);
uint32_t test_add_event(struct test_builder *builder, enum tc_event_kind kind, uint32_t subject);
uint32_t test_add_bucket(struct test_builder *builder, const uint32_t *params);
void test_add_unpack(struct test_builder *builder, uint32_t tensor, const uint32_t *events);
/** The op's event is the last one added so far (TC_NONE when there is none). */
uint32_t test_add_op(struct test_builder *builder, enum tc_phase phase, uint32_t module,
                     const uint32_t *reads, const uint32_t *writes);

/** Records by id, to change them; valid until the next record of that kind is added. */
struct test_tensor *test_tensor(struct test_builder *builder, uint32_t tensor);
struct test_op *test_op(struct test_builder *builder, uint32_t op);

void test_ids_add(struct test_ids *ids, uint32_t id);

/**
 * Fill `a`, `f` and `fe` of all ops: a transient tensor is allocated by the first op that touches
 * it and freed by the last one (by both lifetimes), or by the last op of the step of its last
 * unpack.
 */
void test_fill_lifetimes(struct test_builder *builder);

/** The text of the trace, with all hashes and counts; free() it. */
char *test_builder_text(const struct test_builder *builder, enum test_layout layout);
/** The trace, parsed from that text (lines). */
struct tc_trace *test_builder_trace(const struct test_builder *builder);

/* ---------------------------------------------------------------- regular models */

/** What becomes of gradients between iterations. */
enum test_gradients {
	TEST_DROPPED,       /**< born in backward, dead after the optimizer: set_to_none=True */
	TEST_ZEROED_LAST,   /**< persistent, zeroed behind the last update, whose event is theirs */
	TEST_ZEROED_FIRST   /**< persistent, zeroed before forward */
};

/**
 * A chain of leaf modules in layers, trained for one iteration. Zero means the default.
 *
 * Forward: each leaf has one op that reads all its parameters and its input and writes its output
 * (an activation). Backward: one op reads the output's gradient, the leaf's *first* parameter and
 * its input and writes the input's gradient (a temp; not for the first leaf), then one op per
 * parameter writes its gradient. Optimizer: one event and one op `optim.adamw` per parameter.
 * Module 0 is the root, each layer a module without parameters, each leaf a module in it.
 * Parameters have tensor ids 1, 2, ... in forward order; tensor 0 is the input.
 */
struct test_model {
	uint32_t layers;             /**< default 2 */
	uint32_t modules_per_layer;  /**< default 1 */
	uint32_t params_per_module;  /**< default 1 */
	const uint64_t *param_bytes; /**< sizes taken in turn over all parameters; default 1024 */
	size_t param_bytes_count;
	uint64_t activation_bytes; /**< default 4096 */
	uint64_t forward_us;   /**< time of each forward op; TEST_ABSENT: none given. Default 0 */
	uint64_t backward_us;  /**< of each backward op */
	uint64_t optimizer_us; /**< of each optimizer op */
	bool half;             /**< float16 parameters and gradients, float32 masters */
	bool no_optimizer;
	bool no_events;  /**< as imports have it; modules stay */
	bool checkpoint; /**< each layer keeps only its input and is run again inside backward */
	bool early_stop; /**< ... and the last leaf's op is not run again */
	bool tied_head;  /**< a last module that owns the first parameter once more */
	bool clip;       /**< norm events before the optimizer, and run.clip */
	/**
	 * Persistent gradients are added to: the op that makes a piece of one writes a temp, and a
	 * second one adds that to the gradient. One op zeroes each, writing without reading.
	 */
	enum test_gradients gradients;
	bool zero_reads;    /**< zeroing multiplies by 0: it reads, too */
	bool zero_at_once;  /**< one op zeroes all */
	bool scale_in_place; /**< with `clip`: the optimizer phase also scales each gradient in place */
	/** Random extra reads of parameters and activations; 0: none. */
	uint64_t seed;
};

/** Records of a model; change what you like, then test_fill_lifetimes() is already done. */
struct test_builder *test_model_builder(const struct test_model *model);
struct tc_trace *test_model_trace(const struct test_model *model);

/** Upper bounds of a random model; zero means the default. */
struct test_limits {
	uint32_t layers;            /**< default 4 */
	uint32_t modules_per_layer; /**< default 3 */
	uint32_t params_per_module; /**< default 3 */
	uint64_t param_bytes;       /**< default 65536 */
	uint64_t activation_bytes;  /**< default 65536 */
	bool equal_sizes;           /**< all parameters, gradients and states of one size */
	bool no_optimizer, no_events;
	bool persistent_gradients; /**< in any of the ways of struct test_model */
};

/** A random model with random extra reads; same seed and limits give the same trace. */
struct test_builder *test_random_builder(uint64_t seed, const struct test_limits *limits);
struct tc_trace *test_random_trace(uint64_t seed, const struct test_limits *limits);

#endif
