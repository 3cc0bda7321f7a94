/** @file core.h
 * Private: what the parts of the engine share. README.md in this folder tells the method.
 *
 *     engine.c  the sink: checks, the host thread, admission
 *     run.c     the event loop: instants, lanes, reports in order of end time
 *     flow.c    which resources a lane's flow uses, its cap; rates, memoised by active lanes
 *     share.c   max-min fair sharing
 *     stall.c   why the compute lane was idle
 *     store.c   memory: commands by id, free lists
 */
#ifndef TENCACHE_SIM_ENGINE_CORE_H
#define TENCACHE_SIM_ENGINE_CORE_H

#include <stddef.h>

#include "tencache/engine.h"
#include "tencache/units.h"

/** Work in units of 2^-40 byte: a size of 64 bits or rate x time needs up to 128 bits. */
__extension__ typedef unsigned __int128 tci_work;

/** "Never": the time of an event that is not going to happen as things stand. */
#define TCI_NEVER UINT64_MAX

/** What kept a command from starting earlier, beyond enum tc_reason. */
enum tci_bound { TCI_BOUND_LANE = TC_REASON_COUNT, TCI_BOUND_ISSUE };

/** One dependency of a waiting command, in the list of the command that it waits for. */
struct tci_edge {
	struct tci_node *owner;
	struct tci_edge *next;
	enum tc_reason reason;
};

enum tci_state { TCI_WAITING, TCI_RUNNING, TCI_ENDED };

/**
 * A command from admission until no stall can reach back to it. What the event loop touches comes
 * first, two cache lines; the copy of the command and its lists, the edges and the ready flags
 * follow in the block.
 */
struct tci_node {
	struct tci_node *next;       /**< in the lane's queue, then in order of end, then free */
	struct tci_edge *dependants; /**< who waits for this one */
	uint32_t remaining;          /**< dependencies that have not ended */
	uint8_t lane;                /**< flat index */
	uint8_t state;               /**< enum tci_state */
	uint8_t queue;               /**< as in the command */
	uint8_t shape;               /**< of the flow, see struct tci_shape */
	uint8_t variant;             /**< of the route */
	bool asked;                  /**< the ready flags are set, or there are none to set */
	/**
	 * The last to end of what this waits for: of its dependencies, and from its start on of its
	 * lane's predecessor too, or TCI_BOUND_ISSUE. Ties go to the smaller id.
	 */
	uint8_t bound_reason; /**< enum tc_reason or enum tci_bound */
	uint8_t bound_queue;
	uint32_t block_class;
	const struct tci_node *bound; /**< dereference only if it ended after the last compute */
	uint64_t bound_id, bound_end_ps;
	uint64_t fixed_ps;   /**< whole duration, or the latency of a flow */
	uint64_t flow_bytes; /**< after the latency; 0: none */
	uint64_t cap;        /**< of the flow, 0: none */
	uint64_t issue_ps, start_ps, end_ps;
	uint64_t previous_end_ps; /**< of the lane, at start */
	/** Issue, or the end of the last `order` or `anchor` dependency where that is later. */
	uint64_t wanted_ps;
	uint64_t host_block;       /**< host blocks that lie before the issue, counted from 0 */
	struct tci_edge *edges;    /**< command.dep_count */
	bool *ready;               /**< command.served_count */
	struct tc_command command; /**< binds are not kept */
};

_Static_assert(offsetof(struct tci_node, edges) == 128, "the event loop's part: two cache lines");

/** A time during which a host command blocked the issuing thread. */
struct tci_block {
	uint64_t begin_ps, end_ps;
	const struct tci_node *cause; /**< ended at end_ps; dereference as `bound` */
};

enum tci_lane_phase { TCI_IDLE, TCI_FIXED, TCI_LATENCY, TCI_FLOWING };

struct tci_lane {
	struct tci_node *head, *tail; /**< the head runs unless the phase is idle */
	const struct tci_node *last;  /**< ended last; dereference as `bound` */
	uint64_t last_id, last_end_ps;
	enum tci_lane_phase phase;
	enum tc_queue queue;
	uint64_t rate;    /**< of the flow, 0 before the first solve */
	uint64_t rate_ps; /**< since when */
	tci_work work;    /**< left at rate_ps */
};

/** Flows of one lane that share alike: same route, same cap. */
struct tci_shape {
	uint64_t cap;
	uint32_t variant;
};

/** Shapes kept per lane; a flow beyond them is solved without memo. */
#define TCI_SHAPES 14
#define TCI_SHAPE_OTHER 14
#define TCI_VARIANTS 2
#define TCI_MEMO_BITS 8

struct tci_memo {
	uint64_t key; /**< four bits per lane: shape + 1 where a flow is active; 0: empty */
	uint64_t rates[TC_MAX_LANES];
};

struct tci_flows {
	uint64_t capacity[TC_MAX_RESOURCES];
	uint32_t resource_count;
	struct tc_flow routes[TC_MAX_LANES][TCI_VARIANTS];
	uint64_t route_rate[TC_MAX_LANES][TCI_VARIANTS]; /**< with the machine to itself */
	struct tci_shape shapes[TC_MAX_LANES][TCI_SHAPES];
	uint32_t shape_count[TC_MAX_LANES];
	uint64_t pageable_cap[TCI_VARIANTS]; /**< h2d, d2h */
	uint64_t adam_cap;                   /**< of an update with 28 bytes per parameter */
	uint64_t adam_per_s;                 /**< parameters, all cores; 0: no cap */
	uint64_t stream_cap;                 /**< of other CPU work, 0: none */
	struct tci_memo *memo;               /**< 1 << TCI_MEMO_BITS, direct mapped */
	bool use_memo;
	uint64_t solves;
};

struct tci_free {
	struct tci_free *next;
};

/** Blocks of equal size from big chunks, by size class. */
struct tci_store {
	void *chunks;
	size_t chunk_count;
	unsigned char *fresh;
	size_t fresh_bytes;
	struct tci_free *free_first[32], *free_last[32];
	/** window[id & mask]: the node, or NULL when nothing can need it any more. */
	struct tci_node **window;
	uint64_t mask;
	uint64_t base_id; /**< no node has a smaller id */
	uint64_t next_id;
};

struct tc_engine {
	const struct tc_machine *machine;
	struct tc_timing_sink sink;
	enum tc_status status; /**< the first failure: nothing more is accepted */
	bool begun, ended;
	bool hands_over; /**< the machine has hand-overs that take time */

	uint32_t lane_count; /**< all but the host's */
	uint32_t lanes_of[TC_QUEUE_COUNT], first_lane[TC_QUEUE_COUNT];
	struct tci_lane lanes[TC_MAX_LANES];
	uint32_t busy;                 /**< bit per lane: its head runs */
	uint64_t due_ps[TC_MAX_LANES]; /**< next event of each busy lane */
	uint64_t next_ps;              /**< the smallest of them */
	uint32_t next_lanes;           /**< the lanes for which it is */
	uint32_t due;                  /**< lanes due at now_ps that have not been dealt with */
	uint32_t flowing;              /**< bit per lane */
	uint64_t flow_key;             /**< see struct tci_memo */
	uint32_t other_shapes;         /**< lanes whose flow has TCI_SHAPE_OTHER */
	bool rates_stale;
	uint32_t check;  /**< lanes whose head may be able to start */
	uint32_t asking; /**< lanes whose head is asked for at this instant */
	uint32_t used; /**< lanes that ever had a command; bit 31: host, after the first of them */
	uint64_t now_ps;
	uint64_t waiting; /**< commands that have not ended */

	uint64_t host_ps; /**< clock of the issuing thread */
	struct tci_block *blocks;
	size_t block_capacity;
	uint64_t block_count;  /**< blocks so far; those still kept are at index modulo capacity */
	uint64_t block_oldest; /**< number of the oldest one kept */

	uint64_t compute_end_ps; /**< of the last command of compute lane 0 that ended */
	struct tci_node **batch; /**< ended at this instant, by id */
	size_t batch_count, batch_capacity;
	struct tci_node *kept, *kept_tail; /**< reported, still within reach of a stall */

	struct tci_flows flows;
	struct tci_store store;
};

/** Commands that may wait while a schedule has used one lane only, see README.md. */
#define TCI_WINDOW 16384u

/* ---------------------------------------------------------------- store.c */

enum tc_status tci_store_init(struct tci_store *store, struct tc_error *error);
/** Frees every node as well. */
void tci_store_clear(struct tci_store *store);
/** A node for a copy of `command`, whose id must be next_id; entered in the window. */
enum tc_status tci_store_add(struct tci_store *store, const struct tc_command *command,
                             struct tci_node **node, struct tc_error *error);
/** Count an id that needs no node (a host command: it has ended before anything else is issued). */
enum tc_status tci_store_skip(struct tci_store *store, struct tc_error *error);
void tci_store_remove(struct tci_store *store, struct tci_node *node);

/** The node of an id that was seen, or NULL: it has ended, and no stall reaches back to it. */
static inline struct tci_node *tci_store_find(const struct tci_store *store, uint64_t id)
{
	return id < store->base_id ? NULL : store->window[id & store->mask];
}

/* ---------------------------------------------------------------- flow.c */

enum tc_status tci_flows_init(struct tc_engine *engine, struct tc_error *error);
void tci_flows_clear(struct tci_flows *flows);
/** Set fixed_ps, flow_bytes, cap, variant and shape of a new node. */
enum tc_status tci_flow_prepare(struct tc_engine *engine, struct tci_node *node,
                                struct tc_error *error);
/** Work out the rates after the set of active flows has changed, and when each flow would end. */
void tci_flow_solve(struct tc_engine *engine);
/** Duration with the machine to itself. */
uint64_t tci_flow_alone_ps(const struct tc_engine *engine, const struct tci_node *node);
/** Rates from the memo (default) or solved afresh at every change: for tests and benchmarks. */
void tci_engine_use_memo(struct tc_engine *engine, bool use_memo);
uint64_t tci_engine_solves(const struct tc_engine *engine);

/** Time that `work` takes at `rate`, rounded up; TCI_NEVER when it does not fit. */
static inline uint64_t tci_flow_time(tci_work work, uint64_t rate)
{
	uint64_t high = (uint64_t)(work >> 64), low = (uint64_t)work;
	if (work == 0)
		return 0;
	if (high >= rate)
		return TCI_NEVER;
	if (high == 0)
		return low / rate + (low % rate != 0);
	uint64_t time = (uint64_t)(work / rate);
	bool exact = low == time * rate; /* the rest is below the rate, so the low half tells */
	return exact || time == TCI_NEVER ? time : time + 1;
}

/* ---------------------------------------------------------------- run.c */

/** Let time pass: every event up to and including `until_ps`. */
enum tc_status tci_run_until(struct tc_engine *engine, uint64_t until_ps, struct tc_error *error);
/** Let time pass until the command has ended. */
enum tc_status tci_run_to_end_of(struct tc_engine *engine, uint64_t id, struct tc_error *error);
/** Let time pass until at most `count` commands wait. */
enum tc_status tci_run_to_window(struct tc_engine *engine, uint64_t count, struct tc_error *error);
/** `owner` waited for `ended`: remember the last to end; at the same time the smaller id. */
void tci_note_end(struct tci_node *owner, const struct tci_node *ended, enum tc_reason reason);
/** Start what can start now, and everything that follows at this instant. */
enum tc_status tci_settle(struct tc_engine *engine, struct tc_error *error);

/* ---------------------------------------------------------------- stall.c */

/** The host block of that number, or NULL when no stall can reach it. */
static inline const struct tci_block *tci_block_find(const struct tc_engine *engine,
                                                     uint64_t number)
{
	return number < engine->block_oldest
	           ? NULL
	           : &engine->blocks[number & (engine->block_capacity - 1)];
}

/** Fill timing->stall_ps of a command of compute lane 0 that has ended. */
void tci_attribute_stall(const struct tc_engine *engine, const struct tci_node *node,
                         struct tc_timing *timing);

#endif
