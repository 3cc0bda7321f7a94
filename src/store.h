/**
 * @file store.h
 * Memory that is given back all at once: blocks handed out one after the other, never moved, so
 * that pointers into them stay valid while more is added; and strings kept once.
 */
#ifndef TENCACHE_SRC_STORE_H
#define TENCACHE_SRC_STORE_H

#include <stddef.h>
#include <stdint.h>

struct tci_store;

/** NULL when out of memory. Free with tci_store_free(), which frees everything taken from it. */
struct tci_store *tci_store_create(void);
void tci_store_free(struct tci_store *store);

/** Zeroed memory for `count` elements, aligned for any type; NULL when out of memory. A count of
 * zero gives a valid pointer. */
void *tci_store_take(struct tci_store *store, size_t count, size_t element_bytes);

/** The one copy of a string in this store; NULL when out of memory. */
const char *tci_store_string(struct tci_store *store, const char *text);

#endif
