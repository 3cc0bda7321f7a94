/**
 * @file pacing.h
 * How long commands last under --throttle, and what they cost the issuing thread.
 */
#ifndef TENCACHE_REPLAY_PACING_H
#define TENCACHE_REPLAY_PACING_H

#include "tencache/replay.h"

/** The engine's duration of each command, not dilated, in memory that is the caller's to free. */
enum tc_status tci_pace_create(const struct tc_schedule *schedule, const struct tc_machine *machine,
                               uint64_t **durations_ps, struct tc_error *error);
/** What the issuing thread spends on a command of that machine. UINT64_MAX: more than there is. */
uint64_t tci_issue_cost_ps(const struct tc_command *command, const struct tc_machine *machine);
/** Time of a compute command on a machine. Duration 0 where the machine does not say. */
uint64_t tci_compute_ps(const struct tc_command *command, const struct tc_machine *machine);

#endif
