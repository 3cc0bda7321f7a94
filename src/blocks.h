/**
 * @file blocks.h
 * Memory that is given back all at once: blocks handed out one after the other, never moved, so
 * that pointers into them stay valid while more is added; and strings kept once.
 */
#ifndef TENCACHE_SRC_BLOCKS_H
#define TENCACHE_SRC_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

struct tci_blocks;

/** NULL when out of memory. Free with tci_blocks_free(), which frees everything taken from it. */
struct tci_blocks *tci_blocks_create(void);
void tci_blocks_free(struct tci_blocks *blocks);

/** Zeroed memory for `count` elements, aligned for any type; NULL when out of memory. A count of
 * zero gives a valid pointer. */
void *tci_blocks_take(struct tci_blocks *blocks, size_t count, size_t element_bytes);

/** The one copy of a string among these blocks; NULL when out of memory. */
const char *tci_blocks_string(struct tci_blocks *blocks, const char *text);

#endif
