/** @file naive_engine.h
 * A simulator written apart from the engine, to check it: it knows the whole schedule, keeps every
 * time in flat arrays, looks at every command at every instant until nothing moves, asks for new
 * rates at every instant, and finds stalls by searching the whole history. It shares the rate
 * solver (which has its own tests) and the words of the rules with the engine, nothing else. No
 * gpu_nvme, one drive, no conversions on compute.
 */
#ifndef TENCACHE_TEST_NAIVE_ENGINE_H
#define TENCACHE_TEST_NAIVE_ENGINE_H

#include "program.h"

/** Commands of a schedule at most. */
#define NAIVE_MOST 160

__extension__ typedef unsigned __int128 naive_work;

struct naive {
	const struct program *program;
	const struct tc_machine *machine;
	uint64_t issue[NAIVE_MOST], start[NAIVE_MOST], end[NAIVE_MOST], ask[NAIVE_MOST];
	uint64_t flow_at[NAIVE_MOST];  /**< when the latency is over */
	uint64_t handover[NAIVE_MOST]; /**< part of the fixed time */
	naive_work left[NAIVE_MOST];
	bool flowing[NAIVE_MOST];
	uint64_t stall[NAIVE_MOST][TC_STALL_CAUSE_COUNT];
	size_t count, reached; /**< commands that the host has dealt with */
	uint64_t host, now;
};

/** Run a schedule; free() the result, which borrows both. */
struct naive *naive_run(const struct program *program, const struct tc_machine *machine);

#endif
