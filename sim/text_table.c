/**
 * @file text_table.c
 * Columns of text. Widths are counted in UTF-8 characters.
 */
#include "text_table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

#define MAX_COLUMNS 32

static size_t width(const char *text)
{
	size_t characters = 0;
	for (; *text != '\0'; ++text)
		characters += ((unsigned char)*text & 0xC0) != 0x80;
	return characters;
}

void tci_table_cell(struct tci_table *table, const char *format, ...)
{
	char text[2048];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	char *cell = length < 0 ? NULL : malloc(strlen(text) + 1);
	if (cell == NULL || !tc_grow_array(&table->cells, &table->capacity, table->count + 1,
	                                   sizeof *table->cells)) {
		free(cell);
		table->failed = true;
		return;
	}
	strcpy(cell, text);
	table->cells[table->count++] = cell;
}

static void print_row(FILE *out, char *const *cells, const char *alignment, size_t columns,
                      const size_t *widths)
{
	size_t last = columns;
	while (last > 0 && *cells[last - 1] == '\0')
		--last;
	for (size_t i = 0; i < last; ++i) {
		size_t blanks = widths[i] - width(cells[i]);
		if (alignment[i] == 'r')
			(void)fprintf(out, "%*s%s", (int)blanks, "", cells[i]);
		else
			(void)fprintf(out, "%s%*s", cells[i], i + 1 < last ? (int)blanks : 0, "");
		if (i + 1 < last)
			(void)fputs("  ", out);
	}
	(void)fputc('\n', out);
}

void tci_table_clear(struct tci_table *table)
{
	for (size_t i = 0; i < table->count; ++i)
		free(table->cells[i]);
	free(table->cells);
	*table = (struct tci_table){.alignment = table->alignment};
}

enum tc_status tci_table_print(struct tci_table *table, FILE *out, struct tc_error *error)
{
	size_t columns = strlen(table->alignment), widths[MAX_COLUMNS] = {0};
	bool failed = table->failed || columns == 0 || columns > MAX_COLUMNS;
	if (!failed) {
		for (size_t i = 0; i < table->count; ++i) {
			size_t here = width(table->cells[i]);
			if (here > widths[i % columns])
				widths[i % columns] = here;
		}
		for (size_t i = 0; i + columns <= table->count; i += columns)
			print_row(out, table->cells + i, table->alignment, columns, widths);
	}
	tci_table_clear(table);
	if (failed)
		return tc_error_no_memory(error, "a table", 0);
	return ferror(out) ? tc_error_set(error, TC_IO, "cannot write the output") : TC_OK;
}
