/** @file folders.c */
#include "folders.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum tc_status make(const char *path, struct tc_error *error)
{
	struct stat status;
	if (mkdir(path, 0777) == 0)
		return TC_OK;
	if (errno != EEXIST)
		return tc_error_set(error, TC_ARGUMENT,
		                    "--nvme-dir %s: cannot make this folder: %s; name one on the "
		                    "drive that is to be used",
		                    path, strerror(errno));
	if (stat(path, &status) != 0)
		return tc_error_set(error, TC_ARGUMENT,
		                    "--nvme-dir %s: a link to nowhere: %s; make what it points to",
		                    path, strerror(errno));
	if (!S_ISDIR(status.st_mode))
		return tc_error_set(error, TC_ARGUMENT,
		                    "--nvme-dir %s is not a folder; name one on the drive that is "
		                    "to be used",
		                    path);
	if (access(path, R_OK | W_OK | X_OK) != 0)
		return tc_error_set(error, TC_ARGUMENT,
		                    "--nvme-dir %s: no files can be made there: %s; name a folder "
		                    "that you may write",
		                    path, strerror(errno));
	return TC_OK;
}

enum tc_status tci_folders_make(const char *const *paths, size_t count, struct tc_error *error)
{
	for (size_t i = 0; i < count; i++)
		TC_TRY(make(paths[i], error));
	return TC_OK;
}
