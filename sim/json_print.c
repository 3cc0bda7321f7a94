/** @file json_print.c */
#include <stdlib.h>

#include "print.h"

enum tc_status tci_print_json_value(FILE *out, const json_t *value, size_t indent,
                                    struct tc_error *error)
{
	char *text = value != NULL ? json_dumps(value, JSON_INDENT(indent)) : NULL;
	if (text == NULL)
		return tc_error_no_memory(error, "the output", 0);
	(void)fputs(text, out);
	(void)fputc('\n', out);
	free(text);
	return TC_OK;
}
