/**
 * Memory for pools: all of it is there (mincore says so), zero, writable to the last byte, and
 * gives back what it took.
 */
#define _DEFAULT_SOURCE /* mincore */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pages.h"

static uint64_t mapped_pages(void)
{
	unsigned long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%lu", &pages), 1);
	(void)fclose(file);
	return pages;
}

static void mapped_test(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {1,       4096,    4097,       2097151,         2097152,
	                                 2097153, 5000000, 8ull << 20, (8ull << 20) + 1};
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	(void)mapped_pages(); /* what it needs itself is mapped now */
	for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (unsigned huge = 0; huge < 2; huge++) {
			size_t pages = (sizes[i] + page - 1) / page;
			unsigned char *there = malloc(pages);
			assert_non_null(there);
			uint64_t before = mapped_pages();
			unsigned char *memory = tci_pages_map(sizes[i], huge == 1);
			assert_non_null(memory);
			assert_true((uintptr_t)memory % page == 0);
			assert_int_equal(mapped_pages() - before, pages); /* nothing to spare */
			assert_int_equal(mincore(memory, sizes[i], there), 0);
			for (size_t k = 0; k < pages; k++)
				assert_true((there[k] & 1) != 0);
			for (uint64_t k = 0; k < sizes[i]; k++)
				assert_true(memory[k] == 0);
			memset(memory, 1, sizes[i]);
			assert_int_equal(munmap(memory, sizes[i]), 0);
			assert_int_equal(mapped_pages(), before);
			free(there);
		}
}

static void too_much_test(void **state)
{
	(void)state;
	assert_null(tci_pages_map(0, true));
	assert_null(tci_pages_map(UINT64_MAX, true));
	assert_null(tci_pages_map(1ull << 60, true));
	assert_null(tci_pages_map(1ull << 60, false));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(mapped_test),
	    cmocka_unit_test(too_much_test),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
