/*
 * Orders and places in memory that results depend on: the report's events, merged by time, and
 * arrays that stand on cache lines.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lines.h"
#include "random.h"
#include "report_parts.h"

#define MOST 300u

/** Which comes first, by the rule: time, then what is given back; else as they came. */
static bool belongs_before(const struct tci_memory_event *a, const struct tci_memory_event *b)
{
	return a->time != b->time ? a->time < b->time : a->bytes < b->bytes;
}

/** Insertion of one after the other behind all that do not belong behind it: stable by nature. */
static void insert_in_order(struct tci_memory_event *sorted, size_t count,
                            struct tci_memory_event event)
{
	size_t at = count;
	for (; at > 0 && belongs_before(&event, &sorted[at - 1]); at--)
		sorted[at] = sorted[at - 1];
	sorted[at] = event;
}

/** Events of `count` random times, in order but for `disorder` at most; kinds tell equal ones
 * apart. */
static void try_events(uint64_t *random, size_t count, uint64_t disorder)
{
	struct tci_memory_event expected[MOST];
	struct tci_memory memory = {0};
	memory.events = tc_alloc_array(count + 1, sizeof *memory.events);
	assert_non_null(memory.events);
	memory.event_capacity = count + 1;
	for (size_t i = 0; i < count; i++) {
		struct tci_memory_event event = {.time =
		                                     i / 3 + test_random_below(random, disorder),
		                                 .bytes = (int64_t)test_random_below(random, 3) - 1,
		                                 .tier = (uint8_t)(i >> 8),
		                                 .kind = (uint8_t)i};
		memory.events[memory.event_count++] = event;
		insert_in_order(expected, i, event);
	}
	struct tc_error error = {0};
	assert_int_equal(tci_memory_sort(&memory, &error), TC_OK);
	assert_int_equal(memory.event_count, count);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(memory.events[i].time, expected[i].time);
		assert_int_equal(memory.events[i].bytes, expected[i].bytes);
		assert_int_equal(memory.events[i].tier, expected[i].tier);
		assert_int_equal(memory.events[i].kind, expected[i].kind);
	}
	tci_memory_clear(&memory);
}

static void test_events_are_merged(void **state)
{
	(void)state;
	uint64_t random = 7;
	for (size_t count = 0; count <= 40; count++)
		for (uint64_t disorder = 1; disorder <= 1000; disorder *= 10)
			try_events(&random, count, disorder);
	for (int round = 0; round < 200; round++)
		try_events(&random, test_random_below(&random, MOST + 1),
		           1 + test_random_below(&random, 200));
}

struct record {
	uint64_t number;
	unsigned char rest[2 * TCI_LINE_BYTES - sizeof(uint64_t)];
};

/** Every element on lines of its own, and all of them where they were after growing. */
static void test_lines_keep_content(void **state)
{
	(void)state;
	struct record *records = NULL;
	size_t capacity = 0;
	for (size_t count = 1; count <= 1000; count++) {
		assert_true(tci_grow_lines(&records, &capacity, count, sizeof *records));
		assert_true(capacity >= count);
		assert_int_equal((uintptr_t)records % TCI_LINE_BYTES, 0);
		memset(&records[count - 1], (int)(count % 251), sizeof *records);
		records[count - 1].number = count;
	}
	for (size_t i = 0; i < 1000; i++) {
		assert_int_equal(records[i].number, i + 1);
		for (size_t b = 0; b < sizeof records[i].rest; b++)
			assert_int_equal(records[i].rest[b], (i + 1) % 251);
	}
	free(records);
}

/** What cannot be is refused, and nothing has changed. */
static void test_lines_refuse(void **state)
{
	(void)state;
	struct record *records = NULL;
	size_t capacity = 0;
	assert_false(tci_grow_lines(&records, &capacity, SIZE_MAX / 2, sizeof *records));
	assert_false(tci_grow_lines(&records, &capacity, 1, TCI_LINE_BYTES - 1));
	assert_false(tci_grow_lines(&records, &capacity, 1, 0));
	assert_null(records);
	assert_int_equal(capacity, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_events_are_merged),
	    cmocka_unit_test(test_lines_keep_content),
	    cmocka_unit_test(test_lines_refuse),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
