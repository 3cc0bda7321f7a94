/** @file schedule_copy.h
 * Private: copying a command's lists into one block. */
#ifndef TENCACHE_SRC_SCHEDULE_COPY_H
#define TENCACHE_SRC_SCHEDULE_COPY_H

#include "tencache/schedule.h"

/** Bytes of the block that holds all lists of `command`; false when they do not fit in memory. */
bool tci_command_list_bytes(const struct tc_command *command, uint64_t *bytes);
/** Copy `source` to `target`, its lists into `block` (8-byte aligned, as large as said above). */
void tci_command_copy_into(struct tc_command *target, const struct tc_command *source, void *block);

#endif
