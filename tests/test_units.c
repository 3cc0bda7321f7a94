/* Expected values are worked out by hand: powers of ten and two, and round-half-even by its
 * definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tencache/units.h"

typedef enum tc_status parse_function(const char *, const char *, uint64_t *, struct tc_error *);

static void expect(parse_function *parse, const char *text, uint64_t wanted)
{
	struct tc_error error = {0};
	uint64_t value = 12345;
	enum tc_status status = parse(text, "--x", &value, &error);
	if (status != TC_OK || value != wanted)
		fail_msg("\"%s\" gave %llu, wanted %llu (%s)", text, (unsigned long long)value,
		         (unsigned long long)wanted, error.text);
}

static void refuse(parse_function *parse, const char *text, enum tc_status wanted, const char *part)
{
	struct tc_error error = {0};
	uint64_t value = 12345;
	enum tc_status status = parse(text, "--gpu-memory", &value, &error);
	if (status != wanted || strstr(error.text, part) == NULL ||
	    strstr(error.text, "--gpu-memory") == NULL)
		fail_msg("\"%s\": status %s, message \"%s\", wanted \"%s\"", text,
		         tc_status_name(status), error.text, part);
	assert_int_equal(value, 12345);
}

static void test_bytes(void **state)
{
	(void)state;
	expect(tc_parse_bytes, "24GiB", 24ull << 30);
	expect(tc_parse_bytes, "24G", 24000000000ull);
	expect(tc_parse_bytes, "24GB", 24000000000ull);
	expect(tc_parse_bytes, "24 GiB", 24ull << 30);
	expect(tc_parse_bytes, "1.5M", 1500000);
	expect(tc_parse_bytes, "1.5Mi", 1572864);
	expect(tc_parse_bytes, "0", 0);
	expect(tc_parse_bytes, "0.000", 0);
	expect(tc_parse_bytes, "1e9", 1000000000);
	expect(tc_parse_bytes, "512", 512);
	expect(tc_parse_bytes, "512B", 512);
	expect(tc_parse_bytes, "007k", 7000);
	expect(tc_parse_bytes, ".5K", 500);
	expect(tc_parse_bytes, "2TiB", 2ull << 40);
	expect(tc_parse_bytes, "3P", 3000000000000000ull);
	expect(tc_parse_bytes, "18446744073709551615", UINT64_MAX);
	/* 1.3 x 2^30 = 1395864371.2: a capacity is rounded down. */
	expect(tc_parse_bytes, "1.3GiB", 1395864371ull);
	/* 0.1 is not a binary fraction: floating point would give 99 or 101 for some of these. */
	expect(tc_parse_bytes, "0.0001M", 100);
	expect(tc_parse_bytes, "1.000000001G", 1000000001ull);
}

static void test_bytes_refused(void **state)
{
	(void)state;
	refuse(tc_parse_bytes, "", TC_ARGUMENT, "is empty");
	refuse(tc_parse_bytes, "  ", TC_ARGUMENT, "is empty");
	refuse(tc_parse_bytes, "-1G", TC_ARGUMENT, "is negative");
	refuse(tc_parse_bytes, "nan", TC_ARGUMENT, "is not a number");
	refuse(tc_parse_bytes, "inf", TC_ARGUMENT, "is not a number");
	refuse(tc_parse_bytes, "Infinity", TC_ARGUMENT, "is not a number");
	refuse(tc_parse_bytes, "GiB", TC_ARGUMENT, "is not a number");
	refuse(tc_parse_bytes, ".", TC_ARGUMENT, "is not a number");
	refuse(tc_parse_bytes, "0x10", TC_ARGUMENT, "unknown unit");
	refuse(tc_parse_bytes, "24Gb", TC_ARGUMENT, "means bits");
	refuse(tc_parse_bytes, "24GiBB", TC_ARGUMENT, "unknown unit");
	refuse(tc_parse_bytes, "24G/s", TC_ARGUMENT, "unknown unit");
	refuse(tc_parse_bytes, "1e", TC_ARGUMENT, "unknown unit");
	refuse(tc_parse_bytes, "1.2.3G", TC_ARGUMENT, "unknown unit");
	refuse(tc_parse_bytes, "1,5G", TC_ARGUMENT, "unknown unit");
	refuse(tc_parse_bytes, "0.5", TC_ARGUMENT, "whole number of bytes");
	refuse(tc_parse_bytes, "0.0000001K", TC_ARGUMENT, "whole number of bytes");
	refuse(tc_parse_bytes, "18446744073709551616", TC_ARGUMENT, "significant digits");
	refuse(tc_parse_bytes, "20000P", TC_TOO_LARGE, "too large");
	refuse(tc_parse_bytes, "1e20", TC_TOO_LARGE, "too large");
	refuse(tc_parse_bytes, "1e99999999999", TC_ARGUMENT, "exponent out of range");
	refuse(tc_parse_bytes, "100000000000000000000000000000000000000000000000", TC_TOO_LARGE,
	       "too large");
}

static void test_rate(void **state)
{
	(void)state;
	expect(tc_parse_rate, "3.2GB/s", 3200000000ull);
	expect(tc_parse_rate, "3.2G", 3200000000ull);
	expect(tc_parse_rate, "3200000000", 3200000000ull);
	expect(tc_parse_rate, "1.07e9/s", 1070000000ull);
	expect(tc_parse_rate, "1GiB/s", 1073741824ull);
	refuse(tc_parse_rate, "3.2GB/m", TC_ARGUMENT, "unknown unit");
	refuse(tc_parse_rate, "3.2Gb/s", TC_ARGUMENT, "means bits");
}

static void test_count(void **state)
{
	(void)state;
	expect(tc_parse_count, "1e9", 1000000000);
	expect(tc_parse_count, "5e7", 50000000);
	expect(tc_parse_count, "5E+7", 50000000);
	expect(tc_parse_count, "1.5e3", 1500);
	expect(tc_parse_count, "2500e-2", 25);
	expect(tc_parse_count, "16", 16);
	expect(tc_parse_count, "0e9999", 0);
	refuse(tc_parse_count, "0.5", TC_ARGUMENT, "not a whole number");
	refuse(tc_parse_count, "1e-1", TC_ARGUMENT, "not a whole number");
	refuse(tc_parse_count, "16G", TC_ARGUMENT, "no unit");
	refuse(tc_parse_count, "-3", TC_ARGUMENT, "negative");
	refuse(tc_parse_count, "three", TC_ARGUMENT, "not a number");
}

static void test_ppm(void **state)
{
	(void)state;
	expect(tc_parse_ppm, "0.67", 670000);
	expect(tc_parse_ppm, "2.5", 2500000);
	expect(tc_parse_ppm, "0", 0);
	expect(tc_parse_ppm, "1", 1000000);
	expect(tc_parse_ppm, "0.0000004", 0);
	expect(tc_parse_ppm, "0.0000005", 1);
	expect(tc_parse_ppm, "0.9999999", 1000000);
	refuse(tc_parse_ppm, "67%", TC_ARGUMENT, "no unit");
	refuse(tc_parse_ppm, "nan", TC_ARGUMENT, "not a number");
}

static void test_format(void **state)
{
	(void)state;
	char b[TC_UNIT_TEXT_BYTES];
	/* The example of the documentation: 24 GB are 24e9 / 2^30 = 22.3517 GiB. */
	assert_string_equal(tc_format_bytes(24000000000ull, b), "22.35 GiB");
	assert_string_equal(tc_format_bytes_both(24000000000ull, b), "24.00 GB = 22.35 GiB");
	assert_string_equal(tc_format_bytes(1023, b), "1023 B");
	assert_string_equal(tc_format_bytes(1024, b), "1.00 KiB");
	/* 2^20 - 1 bytes round to 1024.00 KiB, shown as the next unit. */
	assert_string_equal(tc_format_bytes((1u << 20) - 1, b), "1.00 MiB");
	assert_string_equal(tc_format_bytes(UINT64_MAX, b), "16384.00 PiB");
	assert_string_equal(tc_format_bytes_both(5, b), "5 B");
	assert_string_equal(tc_format_rate(3200000000ull, b), "3.20 GB/s");
	assert_string_equal(tc_format_ps(1234000000000ull, b), "1.234 s");
	assert_string_equal(tc_format_ps(56700000000ull, b), "56.7 ms");
	assert_string_equal(tc_format_ps(8900000, b), "8.9 us");
	assert_string_equal(tc_format_ps(999, b), "1.0 ns");
	assert_string_equal(tc_format_ps(12, b), "12 ps");
	assert_string_equal(tc_format_ps(999999999999ull, b), "1.000 s");
	assert_string_equal(tc_format_ps(0, b), "0 ps");
	assert_string_equal(tc_format_ps(UINT64_MAX, b), "18446744.074 s");
}

static void test_arithmetic(void **state)
{
	(void)state;
	uint64_t r = 7;
	assert_true(tc_add_u64(UINT64_MAX - 1, 1, &r));
	assert_int_equal(r, UINT64_MAX);
	assert_false(tc_add_u64(UINT64_MAX, 1, &r));
	assert_int_equal(r, UINT64_MAX);
	assert_true(tc_mul_u64(1ull << 32, (1ull << 32) - 1, &r));
	assert_false(tc_mul_u64(1ull << 32, 1ull << 32, &r));
	assert_true(tc_align_up(0, 512, &r) && r == 0);
	assert_true(tc_align_up(1, 512, &r) && r == 512);
	assert_true(tc_align_up(512, 512, &r) && r == 512);
	assert_false(tc_align_up(UINT64_MAX, 512, &r));
	assert_true(tc_mul_div_ceil(10, 10, 3, &r) && r == 34);
	assert_true(tc_mul_div_floor(10, 10, 3, &r) && r == 33);
	assert_true(tc_mul_div_ceil(UINT64_MAX, UINT64_MAX, UINT64_MAX, &r) && r == UINT64_MAX);
	assert_false(tc_mul_div_ceil(UINT64_MAX, 3, 2, &r));
	assert_false(tc_mul_div_floor(1, 1, 0, &r));
	/* 1/2 -> 0, 3/2 -> 2, 5/2 -> 2, 7/2 -> 4; 7/4 -> 2, 5/4 -> 1. */
	static const uint64_t halves[][3] = {{1, 2, 0}, {3, 2, 2}, {5, 2, 2},
	                                     {7, 2, 4}, {7, 4, 2}, {5, 4, 1}};
	for (size_t i = 0; i < sizeof halves / sizeof *halves; ++i) {
		assert_true(tc_mul_div_half_even(halves[i][0], 1, halves[i][1], &r));
		assert_int_equal(r, halves[i][2]);
	}
	/* Divisors above 2^63: twice the remainder would overflow. */
	assert_true(tc_mul_div_half_even(UINT64_MAX - 1, 1, UINT64_MAX, &r) && r == 1);
	assert_true(tc_mul_div_half_even(UINT64_MAX / 2, 1, UINT64_MAX, &r) && r == 0);
}

static void test_arrays(void **state)
{
	(void)state;
	assert_null(tc_alloc_array(SIZE_MAX, 2));
	uint64_t *zeroed = tc_alloc_array(4, sizeof *zeroed);
	assert_non_null(zeroed);
	assert_int_equal(zeroed[3], 0);
	free(zeroed);
	uint32_t *numbers = NULL;
	size_t capacity = 0;
	for (uint32_t i = 0; i < 1000; ++i) {
		assert_true(tc_grow_array(&numbers, &capacity, i + 1, sizeof *numbers));
		numbers[i] = i;
	}
	for (uint32_t i = 0; i < 1000; ++i)
		assert_int_equal(numbers[i], i);
	assert_int_equal(capacity, 1024);
	assert_false(tc_grow_array(&numbers, &capacity, SIZE_MAX, sizeof *numbers));
	assert_int_equal(numbers[999], 999);
	free(numbers);
}

static void test_nearest(void **state)
{
	(void)state;
	static const char *const names[] = {"ideal", "lru", "belady", "zero-infinity", "10cache"};
	assert_string_equal(tc_nearest_name("zero-infinty", names, 5), "zero-infinity");
	assert_string_equal(tc_nearest_name("10chace", names, 5), "10cache");
	assert_string_equal(tc_nearest_name("Beladi", names, 5), "belady");
	assert_string_equal(tc_nearest_name("lr", names, 5), "lru");
	assert_string_equal(tc_nearest_name("zeroinfinity", names, 5), "zero-infinity");
	assert_null(tc_nearest_name("capuchin", names, 5));
	assert_null(tc_nearest_name("x", names, 5));
	assert_null(tc_nearest_name("", names, 5));
	char longest[300];
	memset(longest, 'a', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	assert_null(tc_nearest_name(longest, names, 5));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_bytes),      cmocka_unit_test(test_bytes_refused),
	    cmocka_unit_test(test_rate),       cmocka_unit_test(test_count),
	    cmocka_unit_test(test_ppm),        cmocka_unit_test(test_format),
	    cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_arrays),
	    cmocka_unit_test(test_nearest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
