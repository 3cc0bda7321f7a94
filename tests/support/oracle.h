/**
 * @file oracle.h
 * An oracle for the auditor: small schedules made here, mutants of them, and two naive judges that
 * share nothing with the auditor but the meaning of a schedule (src/AUDIT.md).
 *
 * A schedule is first *expanded*: walked in id order, each command turned into the byte ranges it
 * reads and writes and the content it wants or leaves. Then
 *  - the *closure* judge computes which commands are certainly ordered (transitive closure as a
 *    bit matrix) and keeps for every single byte its content, its writer and all its readers;
 *  - the *execution* judge runs the commands on real bytes in random legal orders, where the byte
 *    at offset o of tensor t in version v has the value f(t, v, o), and compares.
 */
#ifndef TENCACHE_TEST_ORACLE_H
#define TENCACHE_TEST_ORACLE_H

#include "tencache/schedule.h"

#define ORACLE_MAX_COMMANDS 400u

/* ---------------------------------------------------------------- small schedules */

/** A small trace with parameters, masters, states, buffers written in place and by parts,
 * activations, gradients and workspace; built in memory. */
struct oracle_model;
/** @param masters FP32 masters are tensors of the trace; else the plan derives them */
struct oracle_model *oracle_model_new(uint64_t seed, bool masters);
void oracle_model_free(struct oracle_model *model);
const struct tc_trace *oracle_model_trace(const struct oracle_model *model);

/**
 * A sound schedule of `iterations` for the model: fetches in chunks, prefetches, clean drops, dirty
 * evictions, gradients through FP32 staging, state on NVMe, updates, converts and publishes, over
 * few slots, with no dependency that others imply. What only reports read (served, memory, costs)
 * is filled at random. `machine` receives capacities that the plan
 * fills to the last byte. Free with tc_schedule_free().
 */
struct tc_schedule *oracle_plan(const struct oracle_model *model, uint64_t seed,
                                uint32_t iterations, struct tc_machine *machine);

/* ---------------------------------------------------------------- judges */

struct oracle_verdict {
	bool wrong; /**< closure or expansion found something, or an execution failed */
	bool fault; /**< wrong in every order: ops, versions, capacity, overlaps */
	bool closure_wrong;
	bool execution_wrong;
	char why[256]; /**< the first reason */
};

/** Judge a schedule that passes the format checks; `orders` random legal orders are executed. */
struct oracle_verdict oracle_judge(const struct tc_schedule *schedule, unsigned orders,
                                   uint64_t seed);

/* ---------------------------------------------------------------- equality */

/** Every field and list equal. */
bool oracle_same_command(const struct tc_command *a, const struct tc_command *b);
/** Header (without trace, steps and machine), tensor table, commands and end record equal. */
bool oracle_same_schedule(const struct tc_schedule *a, const struct tc_schedule *b);

/* ---------------------------------------------------------------- mutants */

enum oracle_mutation {
	ORACLE_DROP_DEPENDENCY,
	ORACLE_OTHER_DEPENDENCY, /**< a dependency names another command */
	ORACLE_SWAP,             /**< a later command comes before an earlier one */
	ORACLE_SHRINK,           /**< a move copies less */
	ORACLE_SHIFT_TARGET,
	ORACLE_SHIFT_SOURCE,
	ORACLE_OTHER_SLOT, /**< a move writes where something else may lie */
	ORACLE_SHIFT_BIND,
	ORACLE_STALE_SOURCE, /**< a move reads an older copy of its tensor */
	ORACLE_OTHER_TENSOR, /**< a move claims to carry another tensor */
	ORACLE_WRONG_VERSION,
	ORACLE_DROP_DIRTY_COPY, /**< the copy down of something changed is left out */
	ORACLE_DROP_COMMAND,
	ORACLE_DROP_WAIT,
	ORACLE_DUPLICATE, /**< a command runs a second time, later */
	ORACLE_OTHER_LANE,
	ORACLE_CAPACITY,    /**< one byte less than the plan needs */
	ORACLE_OTHER_OPS,   /**< a compute or update runs other ops */
	ORACLE_OTHER_BIND,  /**< a bind names what another one names */
	ORACLE_FINAL_PLACE, /**< the end record names another place or version */
	ORACLE_MUTATION_COUNT
};
const char *oracle_mutation_name(enum oracle_mutation mutation);

/**
 * A mutant of a sound schedule (deep copy; free with tc_schedule_free()), or NULL where this kind
 * finds nothing to change. `machine` is the mutant's own and must outlive it.
 */
struct tc_schedule *oracle_mutate(const struct tc_schedule *schedule, enum oracle_mutation mutation,
                                  uint64_t seed, struct tc_machine *machine);

#endif
