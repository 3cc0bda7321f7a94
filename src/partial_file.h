/**
 * @file partial_file.h
 * A file that is there in full or not at all: written without a name, or under a temporary one
 * where the file system cannot do that, and given its own name once it is complete. What is not
 * committed leaves nothing behind.
 */
#ifndef TENCACHE_SRC_PARTIAL_FILE_H
#define TENCACHE_SRC_PARTIAL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

#include "tencache/error.h"

struct tci_partial_file {
	char *path;       /**< as given; owned, as all names */
	char *target;     /**< where it goes: `path` without symbolic links */
	char *partial;    /**< temporary name beside the target */
	gzFile file;      /**< NULL once closed */
	int nameless;     /**< a second descriptor of a file without a name */
	bool is_nameless; /**< `nameless` is one */
	bool has_partial; /**< a file of the temporary name exists */
	bool in_place;    /**< pipe or device */
};

/**
 * Create the file; gzipped when `path` ends in .gz. A symbolic link is followed. What is no regular
 * file (a pipe, a device) is written to as it stands and never replaced.
 * @param what for messages: "a schedule file"
 * @return TC_OK, or `file` is set to zero. Release with tci_partial_close().
 */
enum tc_status tci_partial_open(struct tci_partial_file *file, const char *path, const char *what,
                                struct tc_error *error);
/** Append bytes. */
enum tc_status tci_partial_write(struct tci_partial_file *file, const char *data, size_t bytes,
                                 struct tc_error *error);
/** Complete the file and put it in the place of what had its name. No write may follow. */
enum tc_status tci_partial_commit(struct tci_partial_file *file, struct tc_error *error);
/** Free; what was not committed is gone. A file set to zero is left alone. */
void tci_partial_close(struct tci_partial_file *file);

#endif
