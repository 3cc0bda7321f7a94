/** @file timeline_file.h
 * A timeline read back, with times as whole picoseconds, and what must hold of any of them. */
#ifndef TENCACHE_TEST_TIMELINE_FILE_H
#define TENCACHE_TEST_TIMELINE_FILE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct timeline_event {
	char kind; /**< ph: X, C, s, f, M */
	uint64_t process, thread, start_ps, duration_ps, id;
	const char *name, *category;
	const json_t *arguments;
};

struct timeline_file {
	json_t *root;
	struct timeline_event *events; /**< in the order of the file */
	size_t count;
};

/** Read a file, gzipped or not; every event has the keys that its kind needs, or the test fails. */
struct timeline_file timeline_file_read(const char *path);
void timeline_file_free(struct timeline_file *file);

/**
 * Sound: slices of one thread do not overlap, every arrow has one start inside a slice and one end
 * at the start of a later compute slice, counters ascend in time, every thread and process of a
 * slice has a name. @return the number of arrows
 */
size_t timeline_file_check(const struct timeline_file *file);

#endif
