/**
 * @file lines.h
 * Private: arrays whose elements are whole cache lines, each element on lines of its own. For
 * records that are looked at here and there: none then costs two misses where one would do.
 */
#ifndef TENCACHE_SRC_LINES_H
#define TENCACHE_SRC_LINES_H

#include <stdbool.h>
#include <stddef.h>

/** Of the machines that this runs on; elsewhere it is a size like any other. */
#define TCI_LINE_BYTES 64u

/** tc_grow_array() for such arrays; `element_bytes` is a multiple of TCI_LINE_BYTES. free() them.
 */
bool tci_grow_lines(void *array_pointer, size_t *capacity, size_t needed, size_t element_bytes);

#endif
