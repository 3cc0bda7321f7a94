/**
 * @file pages.h
 * Memory for pools: pages that are there before anything is timed.
 */
#ifndef TENCACHE_PAGES_H
#define TENCACHE_PAGES_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Map `bytes` of zeros, faulted in. With `huge`, in huge pages where the system gives them: a drive
 * then gets its memory in few long pieces instead of one per 4 KiB (a block of 1 MiB in small pages
 * has more pieces than many drives take in one request).
 * @return NULL with errno set; give back with munmap(memory, bytes)
 */
void *tci_pages_map(uint64_t bytes, bool huge);

#endif
