#include "timeline_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

/* ---------------------------------------------------------------- reading */

static char *read_all(const char *path)
{
	gzFile file = gzopen(path, "rb");
	assert_non_null(file);
	size_t bytes = 0, capacity = 1 << 16;
	char *text = malloc(capacity);
	for (;;) {
		assert_non_null(text);
		int found = gzread(file, text + bytes, (unsigned)(capacity - bytes - 1));
		assert_true(found >= 0);
		if (found == 0)
			break;
		bytes += (size_t)found;
		if (bytes + 1 == capacity)
			text = realloc(text, capacity *= 2);
	}
	(void)gzclose(file);
	text[bytes] = '\0';
	return text;
}

/** Microseconds to picoseconds: exact, since a double holds 2^53 ps (2.5 hours) and more. */
static uint64_t picoseconds(const json_t *event, const char *key)
{
	const json_t *value = json_object_get(event, key);
	assert_true(json_is_number(value));
	double us = json_number_value(value);
	assert_true(us >= 0 && us < 9e9);
	return (uint64_t)(us * 1e6 + 0.5);
}

static const char *word(const json_t *event, const char *key)
{
	const char *text = json_string_value(json_object_get(event, key));
	assert_non_null(text);
	return text;
}

static uint64_t whole(const json_t *event, const char *key)
{
	assert_true(json_is_integer(json_object_get(event, key)));
	return (uint64_t)json_integer_value(json_object_get(event, key));
}

static struct timeline_event read_event(const json_t *json)
{
	struct timeline_event event = {.kind = word(json, "ph")[0],
	                               .name = word(json, "name"),
	                               .process = whole(json, "pid"),
	                               .thread = whole(json, "tid"),
	                               .arguments = json_object_get(json, "args")};
	assert_non_null(strchr("XCsfM", event.kind));
	assert_int_equal(strlen(word(json, "ph")), 1);
	if (event.kind != 'M')
		event.start_ps = picoseconds(json, "ts");
	if (event.kind == 'X')
		event.duration_ps = picoseconds(json, "dur");
	if (event.kind == 's' || event.kind == 'f') {
		event.id = whole(json, "id");
		event.category = word(json, "cat");
	} else {
		assert_true(json_is_object(event.arguments));
	}
	if (event.kind == 'X')
		event.category = word(json, "cat");
	if (event.kind == 'f')
		assert_string_equal(word(json, "bp"), "e");
	return event;
}

struct timeline_file timeline_file_read(const char *path)
{
	struct timeline_file file = {0};
	json_error_t error;
	char *text = read_all(path);
	file.root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	if (file.root == NULL)
		fail_msg("%s:%d: %s", path, error.line, error.text);
	free(text);
	const json_t *list = json_object_get(file.root, "traceEvents");
	assert_true(json_is_array(list));
	file.count = json_array_size(list);
	file.events = calloc(file.count + 1, sizeof *file.events);
	assert_non_null(file.events);
	for (size_t i = 0; i < file.count; ++i)
		file.events[i] = read_event(json_array_get(list, i));
	return file;
}

void timeline_file_free(struct timeline_file *file)
{
	json_decref(file->root);
	free(file->events);
	*file = (struct timeline_file){0};
}

/* ---------------------------------------------------------------- checking */

static int compare_number(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/** By lane, then in time; of one instant what ends first. */
static int compare_slices(const void *a, const void *b)
{
	const struct timeline_event *left = *(const struct timeline_event *const *)a;
	const struct timeline_event *right = *(const struct timeline_event *const *)b;
	int order = compare_number(left->process, right->process);
	order = order != 0 ? order : compare_number(left->thread, right->thread);
	order = order != 0 ? order : compare_number(left->start_ps, right->start_ps);
	return order != 0 ? order : compare_number(left->duration_ps, right->duration_ps);
}

static int compare_arrows(const void *a, const void *b)
{
	const struct timeline_event *left = *(const struct timeline_event *const *)a;
	const struct timeline_event *right = *(const struct timeline_event *const *)b;
	int order = compare_number(left->id, right->id);
	return order != 0 ? order : right->kind - left->kind; /* s before f */
}

/** The events of the given kinds; free(). */
static const struct timeline_event **choose(const struct timeline_file *file, const char *kinds,
                                            size_t *count)
{
	const struct timeline_event **chosen = calloc(file->count + 1, sizeof *chosen);
	assert_non_null(chosen);
	*count = 0;
	for (size_t i = 0; i < file->count; ++i)
		if (strchr(kinds, file->events[i].kind) != NULL)
			chosen[(*count)++] = &file->events[i];
	return chosen;
}

static bool same_lane(const struct timeline_event *a, const struct timeline_event *b)
{
	return a->process == b->process && a->thread == b->thread;
}

static bool has_name(const struct timeline_file *file, const struct timeline_event *slice)
{
	bool process = false, thread = false;
	for (size_t i = 0; i < file->count && !(process && thread); ++i) {
		const struct timeline_event *event = &file->events[i];
		if (event->kind != 'M' || event->process != slice->process)
			continue;
		process |= strcmp(event->name, "process_name") == 0;
		thread |= strcmp(event->name, "thread_name") == 0 && event->thread == slice->thread;
	}
	return process && thread;
}

/** The last slice of the lane of `event` that starts at or before `ps`, or NULL. */
static const struct timeline_event *slice_at(const struct timeline_event **slices, size_t count,
                                             const struct timeline_event *event, uint64_t ps)
{
	struct timeline_event key = *event, *wanted = &key;
	key.start_ps = ps;
	key.duration_ps = UINT64_MAX;
	size_t low = 0, high = count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (compare_slices(&slices[middle], &wanted) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low > 0 && same_lane(slices[low - 1], event) ? slices[low - 1] : NULL;
}

static void check_arrow(const struct timeline_event *start, const struct timeline_event *end,
                        const struct timeline_event **slices, size_t count)
{
	assert_int_equal(start->kind, 's');
	assert_int_equal(end->kind, 'f');
	assert_int_equal(start->id, end->id);
	assert_string_equal(start->category, end->category);
	assert_int_equal(start->process, end->process);
	assert_true(start->start_ps <= end->start_ps);
	const struct timeline_event *from = slice_at(slices, count, start, start->start_ps);
	const struct timeline_event *to = slice_at(slices, count, end, end->start_ps);
	assert_non_null(from);
	assert_true(start->start_ps < from->start_ps + from->duration_ps);
	assert_non_null(to);
	assert_int_equal(to->start_ps, end->start_ps);
	assert_string_equal(to->category, "compute");
	assert_true(from->start_ps + from->duration_ps <= to->start_ps);
}

static void check_counters(const struct timeline_file *file)
{
	size_t count;
	const struct timeline_event **counters = choose(file, "C", &count);
	assert_true(count > 0);
	for (size_t i = 0; i < count; ++i) {
		assert_true(json_is_integer(json_object_get(counters[i]->arguments, "value")));
		assert_true(json_integer_value(json_object_get(counters[i]->arguments, "value")) >=
		            0);
		if (i > 0 && counters[i]->process == counters[i - 1]->process &&
		    strcmp(counters[i]->name, counters[i - 1]->name) == 0)
			assert_true(counters[i]->start_ps > counters[i - 1]->start_ps);
	}
	free(counters);
}

size_t timeline_file_check(const struct timeline_file *file)
{
	size_t slice_count, arrow_count;
	const struct timeline_event **slices = choose(file, "X", &slice_count);
	const struct timeline_event **arrows = choose(file, "sf", &arrow_count);
	assert_true(slice_count > 0);
	qsort(slices, slice_count, sizeof(void *), compare_slices);
	qsort(arrows, arrow_count, sizeof(void *), compare_arrows);
	for (size_t i = 0; i < slice_count; ++i) {
		bool first = i == 0 || !same_lane(slices[i - 1], slices[i]);
		assert_true(strlen(slices[i]->name) > 0);
		if (first)
			assert_true(has_name(file, slices[i]));
		else
			assert_true(slices[i - 1]->start_ps + slices[i - 1]->duration_ps <=
			            slices[i]->start_ps);
	}
	assert_int_equal(arrow_count % 2, 0);
	for (size_t i = 0; i < arrow_count; i += 2) {
		check_arrow(arrows[i], arrows[i + 1], slices, slice_count);
		if (i > 0)
			assert_int_not_equal(arrows[i]->id, arrows[i - 1]->id);
	}
	check_counters(file);
	free(slices);
	free(arrows);
	return arrow_count / 2;
}
