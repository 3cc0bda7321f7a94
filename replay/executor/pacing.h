/**
 * @file pacing.h
 * When commands should be issued and end under --throttle: as the engine says.
 */
#ifndef TENCACHE_REPLAY_PACING_H
#define TENCACHE_REPLAY_PACING_H

#include "tencache/replay.h"

/** Per command, picoseconds since the end of setup, not dilated; 0 in setup. */
struct tci_pace {
	uint64_t *issue_ps, *end_ps;
};

enum tc_status tci_pace_create(const struct tc_schedule *schedule, const struct tc_machine *machine,
                               struct tci_pace *pace, struct tc_error *error);
void tci_pace_clear(struct tci_pace *pace);
/** Time of a compute command on a machine. Duration 0 where the machine does not say. */
uint64_t tci_compute_ps(const struct tc_command *command, const struct tc_machine *machine);

#endif
