/** @file audit_state.h
 * Private: what the auditor knows while it walks a schedule. Method: src/AUDIT.md.
 */
#ifndef TENCACHE_SRC_AUDIT_STATE_H
#define TENCACHE_SRC_AUDIT_STATE_H

#include "audit_clock.h"
#include "audit_map.h"
#include "tencache/audit.h"

#define TCI_AUDIT_SHOWN 20u

/**
 * What an op does with one tensor. The touches of an op stand in the order in which they are
 * checked: fresh bytes, reads of what it also writes, writes, its other reads. So an output laid
 * over an input is seen.
 */
enum tci_touch_kind {
	TCI_TOUCH_ALLOCATE, /**< born here without being written as a whole */
	TCI_TOUCH_READ,
	TCI_TOUCH_WRITE
};
struct tci_op_touch {
	uint32_t tensor;
	uint8_t kind;        /**< enum tci_touch_kind */
	uint8_t tensor_kind; /**< enum tc_tensor_kind, from the trace */
};

/** How an op takes part in an iteration. */
enum tci_op_duty {
	TCI_OP_IN_ORDER =
	    1,             /**< forward or backward: exactly once, and in order unless reordered */
	TCI_OP_NEEDED = 2, /**< writes persistent tensors: exactly once */
	TCI_OP_SUBRANGES = 4, /**< some reads or writes are sub-ranges */
	TCI_OP_WORKSPACE = 8,
	TCI_OP_PARAMS = 16 /**< writes parameters */
};
struct tci_op_state {
	uint32_t first_touch; /**< its touches end where the next op's begin */
	uint32_t next_in_order;
	uint32_t executed_in; /**< iteration + 1; 0: never */
	uint32_t duty;
};

/** Where the command at hand has a tensor. */
struct tci_bound {
	uint32_t stamp; /**< of the command; others are old */
	uint32_t bind;
};

/** What every command asks of a tensor of the plan: half a cache line. */
struct tci_audit_tensor {
	uint64_t latest;        /**< version: writes by executed ops; of derived ones see root */
	uint64_t bytes;         /**< as in the plan info */
	struct tci_bound bound; /**< its bind in the command at hand */
	uint32_t root;          /**< the tensor whose versions a derived one carries */
	uint32_t master;        /**< params: the trace's FP32 master, or TC_NONE */
};

struct tci_turn;

struct tc_audit {
	bool stop;
	bool out_of_memory;
	struct tc_audit_report report;
	size_t text_used;
	struct tc_error scratch; /**< of a check of one record; clearing 2 KiB each time is slow */

	const struct tc_plan_info *info;
	struct tci_clocks clocks;
	struct tci_map map;
	uint32_t lane_total;
	uint32_t first_lane[TC_QUEUE_COUNT];

	/* By tensor of the plan. */
	struct tci_audit_tensor *tensors;
	uint64_t *converted;     /**< params: the master's version that equals the latest one */
	uint32_t *writes;        /**< ops of one iteration that write it, for staleness */
	struct tci_bound *alias; /**< as bound, by root of derived tensors */
	uint32_t stamp;
	bool *bind_touched; /**< per bind of the command at hand */
	size_t bind_capacity;

	struct tci_op_touch *touches;
	struct tci_op_state *ops; /**< one more than the trace has */
	uint32_t needed_total, needed_done;
	uint32_t ordered_total, ordered_done; /**< forward and backward ops */
	/* Reordered plans only, see audit_order.c. */
	struct tci_turn *turns;                  /**< by tensor of the trace */
	uint32_t *unpack_first, *unpack_tensors; /**< what is unpacked before each op */
	uint32_t in_order; /**< the op that must come next in this iteration, or the op count */
	uint32_t iterations_begun;

	/* The command at hand. */
	const struct tc_command *command;
	uint64_t mark; /**< its id + 1 */
	uint32_t lane;
};

/** Build all tables from the plan's header. Statuses other than TC_OK mean out of memory. */
enum tc_status tci_audit_begin_tables(struct tc_audit *audit, struct tc_error *error);
void tci_audit_clear_tables(struct tc_audit *audit);

/** Count a finding about the command at hand (or NULL: the plan) and keep its text. */
void tci_audit_report(struct tc_audit *audit, const char *format, ...) TC_PRINTF(2, 3);

/** A range in a pool and the content it should have or gets. */
struct tci_range {
	uint32_t pool;
	uint64_t offset, bytes;
	uint32_t tensor; /**< or TC_NONE: workspace */
	uint64_t version, tensor_offset;
};
/** The command at hand reads this content. */
void tci_audit_read(struct tc_audit *audit, const struct tci_range *range);
/**
 * The command at hand writes this content. `exclusive`: the command's accesses happen all at once,
 * so what it reads or wrote before must not be hit.
 */
void tci_audit_write(struct tc_audit *audit, const struct tci_range *range, bool exclusive);
/** The whole of a bind with content of this version. */
static inline struct tci_range tci_bind_range(const struct tc_bind *bind, uint64_t version)
{
	return (struct tci_range){bind->pool, bind->offset, bind->bytes, bind->tensor, version, 0};
}

/** Latest version of a tensor of the plan, in program order. */
static inline uint64_t tci_audit_latest(const struct tc_audit *audit, uint32_t tensor)
{
	return audit->tensors[audit->tensors[tensor].root].latest;
}
/** Is `version` older than the latest one by no more than the declared staleness? */
bool tci_audit_version_lags(const struct tc_audit *audit, uint32_t tensor, uint64_t version);
/** Does the version that the command names do, the declared staleness allowed for? */
static inline bool tci_audit_version_allowed(const struct tc_audit *audit, uint32_t tensor,
                                             uint64_t version)
{
	return version == tci_audit_latest(audit, tensor) ||
	       (audit->info->staleness > 0 && tci_audit_version_lags(audit, tensor, version));
}

/** Register the binds of the command at hand; findings for doubles. False: out of memory. */
bool tci_audit_bind_all(struct tc_audit *audit);
/** The bind of a tensor in the command at hand, or NULL. Notes that it was asked for. */
static inline const struct tc_bind *tci_audit_bound(const struct tc_audit *audit, uint32_t tensor)
{
	const struct tci_bound *bound = &audit->tensors[tensor].bound;
	if (bound->stamp != audit->stamp)
		return NULL;
	audit->bind_touched[bound->bind] = true;
	return &audit->command->binds[bound->bind];
}
/** The same, or that of a tensor derived from it. */
const struct tc_bind *tci_audit_bound_or_derived(const struct tc_audit *audit, uint32_t tensor);

/* Kinds of commands. */
void tci_audit_move(struct tc_audit *audit);
void tci_audit_compute(struct tc_audit *audit);
void tci_audit_update(struct tc_audit *audit);
void tci_audit_convert(struct tc_audit *audit);
void tci_audit_drop(struct tc_audit *audit);

/** An op has run: the new versions of the parameters that it wrote are what their masters' latest
 * ones convert to (an op may write the parameter before its master). */
void tci_audit_note_masters(struct tc_audit *audit, uint32_t op);
/** Of reordered plans: tables for the order of accesses. */
enum tc_status tci_audit_begin_turns(struct tc_audit *audit, struct tc_error *error);
/** Of reordered plans: an op that is executed reads the tensor, or writes or allocates it; has an
 * op that belongs behind it done so already? */
void tci_audit_turn(struct tc_audit *audit, uint32_t op, uint32_t tensor, bool writes);
/** An op is executed by the command at hand: duty, order, how often. */
void tci_audit_execute(struct tc_audit *audit, uint32_t op);
/** Commands of `iteration` begin. */
void tci_audit_iteration(struct tc_audit *audit, uint32_t iteration);
/** The iteration is over: nothing may be missing. */
void tci_audit_iteration_done(struct tc_audit *audit);
/** Where everything persistent ended. */
enum tc_status tci_audit_final(struct tc_audit *audit, const struct tc_plan_end *end,
                               struct tc_error *error);

#endif
