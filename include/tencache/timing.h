/**
 * @file timing.h
 * When a command was issued, started and ended: computed by the engine, measured by the replayer.
 */
#ifndef TENCACHE_TIMING_H
#define TENCACHE_TIMING_H

#include "tencache/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tc_stall_cause {
	TC_STALL_ISSUED_LATE, /**< issued later than ask - its lone duration */
	TC_STALL_LINK_BUSY,   /**< another copy on its lane, or a shared link */
	TC_STALL_NVME,        /**< the drive */
	TC_STALL_NO_BUFFER,   /**< waited for memory to be given back */
	TC_STALL_OPTIMIZER,   /**< barrier, CPU update or conversion */
	TC_STALL_HOST_CALL,   /**< the issuing thread's own cost */
	TC_STALL_FAULT,       /**< replayer only */
	TC_STALL_CAUSE_COUNT
};

/** Times since the start of the run, in picoseconds. */
struct tc_timing {
	uint64_t issue_ps; /**< the host program reached the command (after its launch cost) */
	uint64_t start_ps;
	uint64_t end_ps;
	/** When its lane asked for it: max(issue, end of the previous command of its lane). */
	uint64_t ask_ps;
	/** Commands on lane 0 of compute: idle time [previous end, start] by cause; else zero. */
	uint64_t stall_ps[TC_STALL_CAUSE_COUNT];
	/** Parallel to command.served: the serving command had ended at ask time. */
	const bool *ready;
};

/**
 * Receives each command once it has ended, in order of end time (ties: smaller id). The command
 * and the timing are valid only during the call. The command's binds are not kept (bind_count 0);
 * its other lists are complete.
 */
struct tc_timing_sink {
	void *self;
	enum tc_status (*finished)(void *self, const struct tc_command *command,
	                           const struct tc_timing *timing, struct tc_error *error);
};

/** A sink that passes everything on to `count` others, in order; `sinks` is borrowed. */
struct tc_timing_tee {
	const struct tc_timing_sink *sinks;
	size_t count;
};
struct tc_timing_sink tc_timing_tee_sink(struct tc_timing_tee *tee);

const char *tc_stall_cause_name(enum tc_stall_cause cause);

#ifdef __cplusplus
}
#endif
#endif
