/** @file device.c
 * The table of device backends.
 */
#include <string.h>

#include "tencache/replay.h"
#include "tencache/units.h"

enum tc_status tc_device_find(const char *name, const struct tc_device_backend **backend,
                              struct tc_error *error)
{
	static const struct tc_device_backend *const backends[] = {&tc_device_host};
	static const char *const names[] = {"host", "cuda"};
	for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
		if (strcmp(backends[i]->name, name) == 0) {
			*backend = backends[i];
			return TC_OK;
		}
	if (strcmp(name, "cuda") == 0)
		return tc_error_set(error, TC_ARGUMENT,
		                    "device cuda is not built into this program; use host");
	const char *nearest = tc_nearest_name(name, names, sizeof names / sizeof *names);
	return tc_error_set(error, TC_ARGUMENT, "unknown device \"%s\"; expected host%s%s%s", name,
	                    nearest != NULL ? "; did you mean \"" : "",
	                    nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
}
