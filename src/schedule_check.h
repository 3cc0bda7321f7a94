/** @file schedule_check.h
 * Private: what can be said of a plan's header and of one command without knowing the others:
 * numbers in range, places inside their pools, queues that fit what they move. The file reader
 * refuses what fails here, the auditor reports it.
 */
#ifndef TENCACHE_SRC_SCHEDULE_CHECK_H
#define TENCACHE_SRC_SCHEDULE_CHECK_H

#include "tencache/schedule.h"

/** TC_FORMAT with a message that says what was found and expected. */
enum tc_status tci_plan_info_check(const struct tc_plan_info *info, struct tc_error *error);
/** `id` is the one that the command must have. `info` has passed tci_plan_info_check(). */
enum tc_status tci_command_check(const struct tc_plan_info *info, const struct tc_command *command,
                                 uint64_t id, struct tc_error *error);
/**
 * Where the sizes of the tensors stand: that of tensor t at bytes[t * stride]. The plan info's own
 * table is wide; who checks many commands may have them in a place that it looks at anyway.
 */
struct tci_sizes {
	const uint64_t *bytes;
	size_t stride;
};
/** tci_command_check() with sizes from there. */
enum tc_status tci_command_check_sized(const struct tc_plan_info *info, struct tci_sizes sizes,
                                       const struct tc_command *command, uint64_t id,
                                       struct tc_error *error);
/** The end record: count and places. */
enum tc_status tci_plan_end_check(const struct tc_plan_info *info, const struct tc_plan_end *end,
                                  uint64_t commands, struct tc_error *error);

/** Moves bytes from `src` to `dst`: fetch, load, evict, spill, publish, gradient. */
static inline bool tci_is_move(enum tc_command_kind kind)
{
	return kind <= TC_GRADIENT;
}

#endif
