/**
 * @file plan_graph.h
 * Questions about a kept schedule: which command is where, and what must end before what. The
 * order is walked backwards from the rules of execution alone: lane predecessor, dependencies, and
 * host commands that were issued before.
 */
#ifndef TENCACHE_TEST_PLAN_GRAPH_H
#define TENCACHE_TEST_PLAN_GRAPH_H

#include "plan_case.h"

/** Must `first` have ended in every legal execution when `second` starts? */
bool plan_ends_before(const struct tc_schedule *schedule, uint64_t first, uint64_t second);
/** The reason of the direct dependency of `id` on `on`, or TC_REASON_COUNT: there is none. */
enum tc_reason plan_reason(const struct tc_schedule *schedule, uint64_t id, uint64_t on);

/** What to look for. */
struct plan_query {
	enum tc_command_kind kind;
	uint32_t tensor;    /**< TC_NONE: any */
	uint32_t iteration; /**< UINT32_MAX: any */
};
/** The first such command at or after `from`, or TC_NO_COMMAND. */
uint64_t plan_find(const struct tc_schedule *schedule, uint64_t from, struct plan_query query);
uint64_t plan_count(const struct tc_schedule *schedule, struct plan_query query);
/** The compute or update command that runs an op in an iteration; fails the test if none does. */
uint64_t plan_runs(const struct tc_schedule *schedule, uint32_t iteration, uint32_t op);

#endif
