/**
 * @file text_table.h
 * Columns of text, aligned when printed.
 */
#ifndef TENCACHE_SIM_TEXT_TABLE_H
#define TENCACHE_SIM_TEXT_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "tencache/error.h"

/** Filled cell by cell, row by row. Owned by the caller. */
struct tci_table {
	const char *alignment; /**< one letter for each column: l or r */
	char **cells;
	size_t count, capacity;
	bool failed; /**< out of memory: printing does nothing */
};

/** Add the next cell. */
void tci_table_cell(struct tci_table *table, const char *format, ...) TC_PRINTF(2, 3);
/** Print with two blanks between columns, no trailing blanks, then forget the cells. The first row
 * is a header. @return TC_NO_MEMORY or TC_IO */
enum tc_status tci_table_print(struct tci_table *table, FILE *out, struct tc_error *error);
/** Forget the cells. */
void tci_table_clear(struct tci_table *table);

#endif
