/** @file folders.c */
#include "folders.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum tc_status tci_folders_make(const char *const *paths, size_t count, struct tc_error *error)
{
	for (size_t i = 0; i < count; i++)
		if (mkdir(paths[i], 0777) != 0 && errno != EEXIST)
			return tc_error_set(
			    error, TC_ARGUMENT,
			    "--nvme-dir %s: cannot make this folder: %s; name one on "
			    "the drive that is to be used",
			    paths[i], strerror(errno));
	return TC_OK;
}
