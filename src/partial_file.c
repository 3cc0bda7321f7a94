/**
 * @file partial_file.c
 * The file has no name while it is written (O_TMPFILE), so that a program that is interrupted or
 * killed leaves nothing behind. In the end it gets a temporary name and is renamed, because only
 * renaming replaces a file atomically. File systems without O_TMPFILE: the temporary name is there
 * from the start.
 */
#define _GNU_SOURCE /* O_TMPFILE */
#include "partial_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define DESCRIPTORS "/proc/self/fd"
#define SUFFIX_BYTES 40 /* ".partial-" and a process id */

static bool is_gzip_name(const char *path)
{
	size_t length = strlen(path);
	return length > 3 && strcmp(path + length - 3, ".gz") == 0;
}

static enum tc_status cannot_create(const struct tci_partial_file *file, struct tc_error *error)
{
	return tc_error_set(error, TC_IO,
	                    "%s: cannot create the file: %s; check that the folder exists and may "
	                    "be written",
	                    file->path, strerror(errno));
}

/** A descriptor of a file without a name in the target's folder, or -1. */
static int open_nameless(struct tci_partial_file *file)
{
#ifdef O_TMPFILE
	if (access(DESCRIPTORS, X_OK) != 0) /* it could get no name later */
		return -1;
	/* The folder's name is the target up to its last slash. */
	char *slash = strrchr(file->target, '/');
	char kept = '\0';
	if (slash != NULL) {
		kept = slash[1];
		slash[1] = '\0';
	}
	int descriptor =
	    open(slash != NULL ? file->target : ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
	if (slash != NULL)
		slash[1] = kept;
	if (descriptor < 0)
		return -1;
	/* The twin outlives gzclose(), which may still find that the disk is full. */
	file->nameless = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
	file->is_nameless = file->nameless >= 0;
	if (file->is_nameless)
		return descriptor;
	(void)close(descriptor);
#else
	(void)file;
#endif
	return -1;
}

static enum tc_status open_descriptor(struct tci_partial_file *file, int *descriptor,
                                      struct tc_error *error)
{
	if (file->in_place) {
		*descriptor = open(file->target, O_WRONLY | O_CLOEXEC);
		return *descriptor < 0 ? cannot_create(file, error) : TC_OK;
	}
	*descriptor = open_nameless(file);
	if (*descriptor >= 0)
		return TC_OK;
	*descriptor = open(file->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (*descriptor < 0)
		return cannot_create(file, error);
	file->has_partial = true;
	return TC_OK;
}

static enum tc_status open_file(struct tci_partial_file *file, const char *what,
                                struct tc_error *error)
{
	struct stat status;
	if (stat(file->path, &status) == 0) {
		if (S_ISDIR(status.st_mode))
			return tc_error_set(error, TC_IO, "%s: is a directory; expected a file",
			                    file->path);
		file->in_place = !S_ISREG(status.st_mode);
	}
	int descriptor;
	TC_TRY(open_descriptor(file, &descriptor, error));
	/* T: as it is, without compression. */
	file->file = gzdopen(descriptor, is_gzip_name(file->path) ? "wb6" : "wbT");
	if (file->file == NULL) {
		(void)close(descriptor);
		return tc_error_no_memory(error, what, 0);
	}
	return TC_OK;
}

/** Names of the file; false without memory. */
static bool set_names(struct tci_partial_file *file, const char *path)
{
	file->path = strdup(path);
	file->target = realpath(path, NULL);
	if (file->target == NULL) /* no such file yet */
		file->target = strdup(path);
	if (file->path == NULL || file->target == NULL)
		return false;
	size_t length = strlen(file->target);
	file->partial = malloc(length + SUFFIX_BYTES);
	if (file->partial == NULL)
		return false;
	(void)snprintf(file->partial, length + SUFFIX_BYTES, "%s.partial-%ld", file->target,
	               (long)getpid());
	return true;
}

enum tc_status tci_partial_open(struct tci_partial_file *file, const char *path, const char *what,
                                struct tc_error *error)
{
	*file = (struct tci_partial_file){0};
	if (path[0] == '\0')
		return tc_error_set(error, TC_ARGUMENT, "%s needs a name", what);
	enum tc_status status = TC_OK;
	if (!set_names(file, path))
		status = tc_error_no_memory(error, what, 3 * (uint64_t)strlen(path));
	else
		status = open_file(file, what, error);
	if (status != TC_OK)
		tci_partial_close(file);
	return status;
}

enum tc_status tci_partial_write(struct tci_partial_file *file, const char *data, size_t bytes,
                                 struct tc_error *error)
{
	if (bytes == 0)
		return TC_OK;
	if (bytes > INT_MAX || gzwrite(file->file, data, (unsigned)bytes) != (int)bytes)
		return tc_error_set(error, TC_IO, "%s: cannot write: %s; is the disk full?",
		                    file->path, strerror(errno));
	return TC_OK;
}

/** Give a file without a name its temporary one. */
static bool name_it(struct tci_partial_file *file)
{
	char descriptor[32];
	(void)snprintf(descriptor, sizeof descriptor, DESCRIPTORS "/%d", file->nameless);
	(void)remove(file->partial); /* of a killed program that had our number */
	if (linkat(AT_FDCWD, descriptor, AT_FDCWD, file->partial, AT_SYMLINK_FOLLOW) != 0)
		return false;
	file->has_partial = true;
	return true;
}

enum tc_status tci_partial_commit(struct tci_partial_file *file, struct tc_error *error)
{
	int closed = gzclose(file->file);
	file->file = NULL;
	if (closed != Z_OK)
		return tc_error_set(error, TC_IO,
		                    "%s: cannot finish writing: %s; is the disk full?", file->path,
		                    strerror(errno));
	if (file->in_place)
		return TC_OK;
	if ((file->is_nameless && !name_it(file)) || rename(file->partial, file->target) != 0)
		return cannot_create(file, error);
	file->has_partial = false;
	return TC_OK;
}

void tci_partial_close(struct tci_partial_file *file)
{
	if (file->file != NULL)
		(void)gzclose(file->file);
	if (file->is_nameless)
		(void)close(file->nameless);
	if (file->has_partial)
		(void)remove(file->partial);
	free(file->path);
	free(file->target);
	free(file->partial);
	*file = (struct tci_partial_file){0};
}
