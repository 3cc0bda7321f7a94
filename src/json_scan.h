/**
 * @file json_scan.h
 * Where a JSON value ends, without looking at what is in it.
 */
#ifndef TENCACHE_SRC_JSON_SCAN_H
#define TENCACHE_SRC_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>

/** Set to zero at the first byte of a value; carries over to the next piece of text. */
struct tci_json_scan {
	unsigned depth;
	bool in_string, escaped;
};

/**
 * Scan text[from ... limit-1] of a string, array or object. @return the offset just after the end
 * of the value, or 0 when it goes on; above TCI_JSON_DEEPEST levels `scan->depth` stays above it.
 */
size_t tci_json_scan(struct tci_json_scan *scan, const char *text, size_t from, size_t limit);

#endif
