/**
 * @file team.h
 * Helpers of the CPU lanes: one piece of work, cut into parts for several threads.
 */
#ifndef TENCACHE_REPLAY_TEAM_H
#define TENCACHE_REPLAY_TEAM_H

#include "tencache/error.h"

struct tci_team;

/** @param threads in all, the caller's included; at least 1 */
enum tc_status tci_team_create(uint32_t threads, struct tci_team **team, struct tc_error *error);
/** Call part(self, p) for each p < parts, on the caller's thread and the helpers; one caller at a
 * time works with helpers, another meanwhile works alone. */
void tci_team_run(struct tci_team *team, void (*part)(void *self, uint64_t number), void *self,
                  uint64_t parts);
void tci_team_destroy(struct tci_team *team);

#endif
