/**
 * @file partial_file.h
 * A file that appears whole or not at all: bytes go to a temporary file beside the target, which
 * committing renames. What is not committed leaves nothing behind.
 */
#ifndef TENCACHE_SRC_PARTIAL_FILE_H
#define TENCACHE_SRC_PARTIAL_FILE_H

#include <stddef.h>
#include <zlib.h>

#include "tencache/error.h"

struct tci_partial_file {
	char *path, *partial; /**< owned; `partial` is "" when there is no temporary file */
	gzFile file;          /**< NULL once closed */
};

/**
 * Create the temporary file; gzipped when `path` ends in .gz.
 * @param what for messages: "a schedule file"
 * @return TC_OK, or `file` is set to zero. Release with tci_partial_close().
 */
enum tc_status tci_partial_open(struct tci_partial_file *file, const char *path, const char *what,
                                struct tc_error *error);
enum tc_status tci_partial_write(struct tci_partial_file *file, const char *data, size_t bytes,
                                 struct tc_error *error);
/** Close and rename: the file is there under its name. */
enum tc_status tci_partial_commit(struct tci_partial_file *file, struct tc_error *error);
/** Free; without commit the temporary file is removed. A file set to zero is left alone. */
void tci_partial_close(struct tci_partial_file *file);

#endif
