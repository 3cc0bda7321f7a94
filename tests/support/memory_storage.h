/** @file memory_storage.h
 * A storage backend in memory, for tests of the executor: two threads, one a direction. It can be
 * told to fail.
 */
#ifndef TENCACHE_TEST_MEMORY_STORAGE_H
#define TENCACHE_TEST_MEMORY_STORAGE_H

#include "tencache/replay.h"

extern const struct tc_storage_backend memory_storage;
/** The same, but for its third read, which fails with TC_IO and "injected". */
extern const struct tc_storage_backend memory_storage_failing;

#endif
