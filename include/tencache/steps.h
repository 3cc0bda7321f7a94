/**
 * @file steps.h
 * What a trace means to a planner: steps, boundaries, requests, uses and the table of requests.
 * Derived from the trace, never stored. Rules: src/PLANNING.md.
 *
 * Boundary b (0 ... step_count) lies before step b; boundary step_count follows the last step.
 * At boundary b the planner calls after_step (step b-1 and what closes here), then on_event for
 * each event of the boundary, then before_step (step b and what opens here).
 */
#ifndef TENCACHE_STEPS_H
#define TENCACHE_STEPS_H

#include "tencache/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tc_granularity { TC_GRANULARITY_MODULE, TC_GRANULARITY_LAYER, TC_GRANULARITY_OP };
enum tc_request_mode { TC_REQUESTS_HOOK, TC_REQUESTS_READS };
enum tc_frees { TC_FREES_LAST_USE, TC_FREES_EAGER };
enum tc_pass { TC_PASS_FORWARD, TC_PASS_RECOMPUTE, TC_PASS_BACKWARD, TC_PASS_OPTIMIZER };

/** What the hook of one module call asks for. Its tensors are rows of the request table. */
struct tc_request {
	uint32_t module;     /**< TC_NONE in a trace without events */
	enum tc_pass pass;
	uint32_t opens;      /**< boundary */
	uint32_t closes;     /**< boundary, > opens */
	uint32_t first_row;  /**< index into rows */
	uint32_t row_count;  /**< > 0 */
};

struct tc_step {
	uint32_t first_op, last_op;       /**< inclusive */
	uint32_t first_event, event_count; /**< events of the boundary before this step */
	uint32_t module;                  /**< of its last event with a module, else of its first op */
	enum tc_phase phase;              /**< of its first op */
	bool recompute;
	/** Distinct tensors of the step in order of first appearance; borrowed. */
	struct tc_ids reads, writes;
	/** Tensors that the ops of this step allocate, and that they free (by the chosen rule). */
	struct tc_ids allocates, frees;
	/** Tensors unpacked in this step without an op that reads them. */
	struct tc_ids unpacks;
	/** Requests that open at the boundary before the step, and that close at it; in order. */
	struct tc_ids opening, closing;
	/** Managed-by-request tensors of every request open during the step (distinct). */
	struct tc_ids requested;
};

struct tc_steps {
	const struct tc_trace *trace;
	enum tc_granularity granularity;
	enum tc_request_mode request_mode;
	enum tc_frees frees;

	struct tc_step *steps;      /**< step_count + 1: the last one holds the final boundary only */
	uint32_t step_count;
	struct tc_request *requests;
	uint32_t request_count;
	uint32_t *rows;             /**< tensors of all requests, in the order they open */
	uint32_t *row_request;      /**< the request of each row */
	uint32_t row_count;
	uint32_t forward_row_count; /**< rows of forward passes; with one micro-batch they precede
	                                 all others */
	uint32_t recompute_row_count;

	/**
	 * Uses of each tensor: use_steps[use_first[t] ... use_first[t+1]-1] are the steps, ascending
	 * and distinct, in which t is read, written, unpacked or requested.
	 */
	uint32_t *use_first;
	uint32_t *use_steps;

	/** The recorded step at each position where a policy has reordered them (tc_plan_reorder());
	 * all numbers of steps above are positions then. NULL: as recorded. */
	const uint32_t *order;

	void *storage;
};

/**
 * Derive steps and requests. TC_ARGUMENT when `hook` requests are asked of a trace without events.
 * @param steps receives a new object that borrows `trace`; free with tc_steps_free()
 */
enum tc_status tc_steps_derive(const struct tc_trace *trace, enum tc_granularity granularity,
                               enum tc_request_mode request_mode, enum tc_frees frees,
                               struct tc_steps **steps, struct tc_error *error);
void tc_steps_free(struct tc_steps *steps);

/**
 * The next step that uses tensor `t`, at or after step `from`, counted on over iterations: a
 * tensor whose next use lies in the next iteration gets step_count + that step. UINT64_MAX when
 * never used. O(log uses).
 */
uint64_t tc_steps_next_use(const struct tc_steps *steps, uint32_t tensor, uint32_t from);

/** "forward step 12 (model.decoder.layers.3.fc1)", for messages, by its recorded number; buffer of
 * `bytes`. */
char *tc_step_describe(const struct tc_steps *steps, uint32_t step, char *buffer, size_t bytes);

const char *tc_granularity_name(enum tc_granularity granularity);
const char *tc_request_mode_name(enum tc_request_mode mode);
const char *tc_pass_name(enum tc_pass pass);

#ifdef __cplusplus
}
#endif
#endif
