#include "tencache/error.h"

#include <stdarg.h>
#include <stdio.h>

enum tc_status tc_error_set(struct tc_error *error, enum tc_status status, const char *format, ...)
{
	if (error == NULL || error->status != TC_OK)
		return status;
	error->status = status;
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(error->text, sizeof error->text, format, arguments);
	va_end(arguments);
	return status;
}

enum tc_status tc_error_no_memory(struct tc_error *error, const char *what, uint64_t bytes)
{
	return tc_error_set(error, TC_NO_MEMORY,
	                    "out of memory: %s needs %llu bytes; close other programs or use a "
	                    "smaller trace",
	                    what, (unsigned long long)bytes);
}

const char *tc_status_name(enum tc_status status)
{
	static const char *const names[] = {"ok",         "no memory", "i/o",      "format",
	                                    "argument",   "infeasible", "too large", "unsafe",
	                                    "internal"};
	return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown";
}
