/**
 * @file partial_file.c
 * Writing to a temporary file that is renamed at the end.
 */
#include "partial_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUFFIX_BYTES 40 /* ".partial-" and a process id */

static bool is_gzip_name(const char *path)
{
	size_t length = strlen(path);
	return length > 3 && strcmp(path + length - 3, ".gz") == 0;
}

static enum tc_status open_partial(struct tci_partial_file *file, const char *what,
                                   struct tc_error *error)
{
	int descriptor = open(file->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (descriptor < 0) {
		int cause = errno;
		file->partial[0] = '\0';
		return tc_error_set(error, TC_IO,
		                    "%s: cannot create the file: %s; check that the folder exists "
		                    "and may be written",
		                    file->path, strerror(cause));
	}
	/* T: as it is, without compression. */
	file->file = gzdopen(descriptor, is_gzip_name(file->path) ? "wb6" : "wbT");
	if (file->file == NULL) {
		(void)close(descriptor);
		return tc_error_no_memory(error, what, 0);
	}
	return TC_OK;
}

enum tc_status tci_partial_open(struct tci_partial_file *file, const char *path, const char *what,
                                struct tc_error *error)
{
	*file = (struct tci_partial_file){0};
	size_t length = strlen(path);
	if (length == 0)
		return tc_error_set(error, TC_ARGUMENT, "%s needs a name", what);
	file->path = malloc(length + 1);
	file->partial = malloc(length + SUFFIX_BYTES);
	if (file->path == NULL || file->partial == NULL) {
		free(file->path);
		free(file->partial);
		*file = (struct tci_partial_file){0};
		return tc_error_no_memory(error, what, 2 * (uint64_t)length);
	}
	memcpy(file->path, path, length + 1);
	(void)snprintf(file->partial, length + SUFFIX_BYTES, "%s.partial-%ld", path,
	               (long)getpid());
	enum tc_status status = open_partial(file, what, error);
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
		                    file->partial, strerror(errno));
	return TC_OK;
}

enum tc_status tci_partial_commit(struct tci_partial_file *file, struct tc_error *error)
{
	int closed = gzclose(file->file);
	file->file = NULL;
	if (closed != Z_OK)
		return tc_error_set(error, TC_IO,
		                    "%s: cannot finish writing: %s; is the disk full?",
		                    file->partial, strerror(errno));
	if (rename(file->partial, file->path) != 0)
		return tc_error_set(error, TC_IO, "%s: cannot rename to %s: %s", file->partial,
		                    file->path, strerror(errno));
	file->partial[0] = '\0';
	return TC_OK;
}

void tci_partial_close(struct tci_partial_file *file)
{
	if (file->path == NULL)
		return;
	if (file->file != NULL)
		(void)gzclose(file->file);
	if (file->partial[0] != '\0')
		(void)remove(file->partial);
	free(file->path);
	free(file->partial);
	*file = (struct tci_partial_file){0};
}
