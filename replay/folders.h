/**
 * @file folders.h
 * The folders of --nvme-dir.
 */
#ifndef TENCACHE_REPLAY_FOLDERS_H
#define TENCACHE_REPLAY_FOLDERS_H

#include "tencache/error.h"

#include <stddef.h>

/**
 * Make those that are missing, one level each, so that a path on a drive that is not mounted is an
 * error and not a folder elsewhere. They stay afterwards. What is there must be a folder that can be
 * written.
 */
enum tc_status tci_folders_make(const char *const *paths, size_t count, struct tc_error *error);

#endif
