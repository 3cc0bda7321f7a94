/**
 * @file timeline.h
 * A run as a picture: Chrome trace JSON, which opens in Perfetto (ui.perfetto.dev) and in
 * chrome://tracing. Queues are lanes, memory of each tier is a counter, an arrow leads from the
 * transfer that a compute command waited for last to that command. What is in it: src/TIMELINE.md.
 *
 * One file holds one or more processes, for instance "predicted" and "measured" one under the
 * other, each fed by a plan and by the times of its commands. Slices are written as they come;
 * changes of memory are kept until the end, because a command that started earlier may end later.
 */
#ifndef TENCACHE_TIMELINE_H
#define TENCACHE_TIMELINE_H

#include "tencache/timing.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Iterations shown: all that are planned, or the last so many, the closing one included. */
#define TC_TIMELINE_ITERATIONS 5

struct tc_timeline;
/** One process of a timeline; owned by it. */
struct tc_timeline_process;

/**
 * Start a timeline that takes the name `path` once it is finished, gzipped when that ends in .gz.
 * Free with tc_timeline_free().
 */
enum tc_status tc_timeline_create(const char *path, struct tc_timeline **timeline,
                                  struct tc_error *error);
/**
 * Add a process for one run. Processes are shown in the order in which they were added; they may be
 * fed in turns, but not by two threads at once.
 * @param name what it is: "predicted", "measured"; policy and trace are added from the plan
 */
enum tc_status tc_timeline_add(struct tc_timeline *timeline, const char *name,
                               struct tc_timeline_process **process, struct tc_error *error);
/** Takes the plan: names, iterations, every command before its time is known. The plan info must
 * live until the last command has finished. One process takes one plan. */
struct tc_sink tc_timeline_plan_sink(struct tc_timeline_process *process);
/** Takes the times of the commands, in the order of struct tc_timing_sink. */
struct tc_timing_sink tc_timeline_timing_sink(struct tc_timeline_process *process);
/** Write the counters and rename the file to its name. */
enum tc_status tc_timeline_finish(struct tc_timeline *timeline, struct tc_error *error);
/** Without tc_timeline_finish() before, no file remains. NULL allowed. */
void tc_timeline_free(struct tc_timeline *timeline);

#ifdef __cplusplus
}
#endif
#endif
