/*
 * Calibration of drives with a storage backend in memory, which ends the program when a task leaves
 * its file: files of the smallest sizes, where reads and writes at once have little room each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "calibrate_parts.h"
#include "memory_storage.h"

#define MIB (UINT64_C(1) << 20)

/** All sizes and depths of a long run in the time of a quick one. */
static void measure(uint64_t largest_bytes)
{
	const char *directories[] = {"."};
	const struct tci_calibrate_options options = {.directories = directories,
	                                              .directory_count = 1};
	struct tci_calibration calibration = {.options = &options,
	                                      .device = &tc_device_host,
	                                      .storage = &memory_storage,
	                                      .clockwork = {.quick = true, .drives = true},
	                                      .largest_bytes = largest_bytes,
	                                      .cores = 1};
	struct tc_error error = {0};
	tci_clockwork_start(&calibration.clockwork);
	assert_int_equal(tci_look_at_drives(&calibration, &error), TC_OK);
	if (tci_measure_drives(&calibration, &error) != TC_OK)
		fail_msg("largest %d MiB: %s", (int)(largest_bytes / MIB), error.text);
	assert_int_equal(calibration.depth_count, TCI_MOST_DEPTHS);
	for (size_t i = 0; i < calibration.depth_count; ++i) {
		assert_true(calibration.depths[i].read.samples > 0);
		assert_true(calibration.depths[i].write.samples > 0);
		assert_true(calibration.depths[i].mixed.samples > 0);
	}
	/* 4 KiB, 16 KiB ... up to 16 MiB, the smallest file: 7 sizes. */
	assert_true(calibration.read.count >= 7);
	assert_int_equal(calibration.read.count, calibration.write.count);
}

static void test_small_files(void **state)
{
	(void)state;
	measure(2 * MIB);  /* memory is short: a file of 16 MiB all the same */
	measure(25 * MIB); /* as on a drive with 100 MiB left, not a power of two */
	measure(33 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_small_files)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
