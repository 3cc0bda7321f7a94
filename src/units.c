/**
 * @file units.c
 * Numbers with units, exactly. A text is read as digits x 10^exponent x multiplier with at most 64
 * bits of digits, so that everything stays below 2^114 and no floating point is involved:
 * 0.67 is 67 x 10^-2, never 0.67000000000000004.
 */
#include "tencache/units.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

#define MAX_DIGITS 20
#define MAX_EXPONENT 9999

/** digits x 10^exponent */
struct decimal {
	uint64_t digits;
	int exponent;
};

struct unit {
	const char *letters;
	uint64_t bytes;
};

/** Longest first, so that `Ki` is not read as `K`. */
static const struct unit units[] = {
    {"ki", 1ull << 10},         {"mi", 1ull << 20},   {"gi", 1ull << 30},
    {"ti", 1ull << 40},         {"pi", 1ull << 50},   {"k", 1000ull},
    {"m", 1000000ull},          {"g", 1000000000ull}, {"t", 1000000000000ull},
    {"p", 1000000000000000ull},
};

static enum tc_status refuse(const char *what, const char *text, const char *found,
                             const char *expected, struct tc_error *error)
{
	return tc_error_set(error, TC_ARGUMENT, "%s: \"%.60s\" %s; expected %s", what, text, found,
	                    expected);
}

static enum tc_status refuse_large(const char *what, const char *text, struct tc_error *error)
{
	return tc_error_set(error, TC_TOO_LARGE,
	                    "%s: \"%.60s\" is too large; the largest value is %" PRIu64, what, text,
	                    UINT64_MAX);
}

/** Append one digit; zeros are held back until a later digit shows that they matter. */
static bool append_digit(struct decimal *number, unsigned digit, unsigned *significant,
                         unsigned *held_zeros)
{
	if (digit == 0) {
		if (*significant > 0)
			++*held_zeros;
		return true;
	}
	if (*significant + *held_zeros + 1 > MAX_DIGITS)
		return false;
	for (; *held_zeros > 0; --*held_zeros, ++*significant)
		number->digits *= 10;
	if (number->digits > (UINT64_MAX - digit) / 10)
		return false;
	number->digits = number->digits * 10 + digit;
	++*significant;
	return true;
}

/** `e9`, `E+9`, `e-3` after the digits; a lone `e` is left for the unit (and refused there). */
static bool read_exponent(const char **cursor, int *exponent)
{
	const char *p = *cursor;
	if (*p != 'e' && *p != 'E')
		return true;
	++p;
	int sign = *p == '-' ? -1 : 1;
	if (*p == '+' || *p == '-')
		++p;
	if (!isdigit((unsigned char)*p))
		return true;
	int value = 0;
	for (; isdigit((unsigned char)*p); ++p) {
		value = value * 10 + (*p - '0');
		if (value > MAX_EXPONENT)
			return false;
	}
	*exponent += sign * value;
	*cursor = p;
	return true;
}

/** The number at the start of `*cursor`, which is moved behind it. */
static enum tc_status read_decimal(const char *text, const char **cursor, const char *what,
                                   const char *expected, struct decimal *number,
                                   struct tc_error *error)
{
	const char *p = text;
	while (isblank((unsigned char)*p))
		++p;
	if (*p == '\0')
		return refuse(what, text, "is empty", expected, error);
	if (*p == '-')
		return refuse(what, text, "is negative", expected, error);
	if (*p == '+')
		++p;
	*number = (struct decimal){0, 0};
	unsigned significant = 0, held_zeros = 0;
	size_t seen = 0, fraction = 0;
	bool point = false;
	for (; isdigit((unsigned char)*p) || (*p == '.' && !point); ++p) {
		if (*p == '.') {
			point = true;
			continue;
		}
		++seen;
		fraction += point;
		if (seen > MAX_EXPONENT ||
		    !append_digit(number, (unsigned)(*p - '0'), &significant, &held_zeros))
			return refuse(what, text, "has too many significant digits", expected,
			              error);
	}
	if (seen == 0)
		return refuse(what, text, "is not a number", expected, error);
	number->exponent = (int)held_zeros - (int)fraction;
	if (!read_exponent(&p, &number->exponent))
		return refuse(what, text, "has an exponent out of range", expected, error);
	*cursor = p;
	return TC_OK;
}

/** floor(number x multiplier), `*exact` false when something was cut off; false when too large. */
static bool scale(struct decimal number, uint64_t multiplier, uint64_t *result, bool *exact)
{
	wide value = (wide)number.digits * multiplier;
	*exact = true;
	if (value == 0) {
		*result = 0;
		return true;
	}
	for (int i = 0; i < number.exponent; ++i) {
		value *= 10;
		if (value > UINT64_MAX)
			return false;
	}
	for (int i = 0; i > number.exponent; --i) {
		if (value % 10 != 0)
			*exact = false;
		value /= 10;
	}
	if (value > UINT64_MAX)
		return false;
	*result = (uint64_t)value;
	return true;
}

static bool starts_with(const char *text, const char *lower_prefix)
{
	for (; *lower_prefix != '\0'; ++text, ++lower_prefix)
		if (tolower((unsigned char)*text) != *lower_prefix)
			return false;
	return true;
}

static const char *skip_blanks(const char *p)
{
	while (isblank((unsigned char)*p))
		++p;
	return p;
}

static enum tc_status parse_bytes(const char *text, const char *what, const char *expected,
                                  bool per_second, uint64_t *bytes, struct tc_error *error)
{
	struct decimal number;
	const char *p;
	TC_TRY(read_decimal(text, &p, what, expected, &number, error));
	p = skip_blanks(p);
	uint64_t multiplier = 1;
	for (size_t i = 0; i < sizeof units / sizeof *units; ++i) {
		if (starts_with(p, units[i].letters)) {
			multiplier = units[i].bytes;
			p += strlen(units[i].letters);
			break;
		}
	}
	if (*p == 'b')
		return refuse(what, text, "ends in b, which means bits", expected, error);
	if (*p == 'B')
		++p;
	if (per_second && p[0] == '/' && p[1] == 's')
		p += 2;
	if (*skip_blanks(p) != '\0')
		return refuse(what, text, "has an unknown unit", expected, error);
	uint64_t value;
	bool exact;
	if (!scale(number, multiplier, &value, &exact))
		return refuse_large(what, text, error);
	if (!exact && (multiplier == 1 || value == 0))
		return refuse(what, text, "is not a whole number of bytes", expected, error);
	*bytes = value;
	return TC_OK;
}

enum tc_status tc_parse_bytes(const char *text, const char *what, uint64_t *bytes,
                              struct tc_error *error)
{
	return parse_bytes(text, what, "a size in bytes such as 24GiB, 24G or 25769803776", false,
	                   bytes, error);
}

enum tc_status tc_parse_rate(const char *text, const char *what, uint64_t *bytes_per_s,
                             struct tc_error *error)
{
	return parse_bytes(text, what, "a rate in bytes per second such as 3.2GB/s or 3200000000",
	                   true, bytes_per_s, error);
}

enum tc_status tc_parse_count(const char *text, const char *what, uint64_t *count,
                              struct tc_error *error)
{
	static const char expected[] = "a whole number such as 16, 5e7 or 1000000000";
	struct decimal number;
	const char *p;
	TC_TRY(read_decimal(text, &p, what, expected, &number, error));
	if (*skip_blanks(p) != '\0')
		return refuse(what, text, "is not a plain number (no unit belongs here)", expected,
		              error);
	uint64_t value;
	bool exact;
	if (!scale(number, 1, &value, &exact))
		return refuse_large(what, text, error);
	if (!exact)
		return refuse(what, text, "is not a whole number", expected, error);
	*count = value;
	return TC_OK;
}

enum tc_status tc_parse_ppm(const char *text, const char *what, uint64_t *ppm,
                            struct tc_error *error)
{
	static const char expected[] = "a factor such as 2.5 or 0.67";
	struct decimal number;
	const char *p;
	TC_TRY(read_decimal(text, &p, what, expected, &number, error));
	if (*skip_blanks(p) != '\0')
		return refuse(what, text, "is not a plain number (no unit belongs here)", expected,
		              error);
	/* Twice the value, floored, then halved upwards: nearest, halves up. */
	uint64_t doubled;
	bool exact;
	if (!scale(number, 2000000, &doubled, &exact))
		return refuse_large(what, text, error);
	*ppm = doubled / 2 + doubled % 2;
	return TC_OK;
}

/* ---------------------------------------------------------------- formatting */

/** Two decimals, rounded to nearest, of the largest unit in which the number is at least 1. */
static void format_scaled(uint64_t value, uint64_t base, const char *const *names, size_t count,
                          const char *suffix, char *buffer)
{
	if (value < base) {
		(void)snprintf(buffer, TC_UNIT_TEXT_BYTES, "%" PRIu64 " B%s", value, suffix);
		return;
	}
	uint64_t unit = base;
	size_t i = 0;
	wide hundredths = ((wide)value * 100 + unit / 2) / unit;
	while (i + 1 < count && hundredths >= (wide)base * 100) {
		unit *= base;
		++i;
		hundredths = ((wide)value * 100 + unit / 2) / unit;
	}
	(void)snprintf(buffer, TC_UNIT_TEXT_BYTES, "%" PRIu64 ".%02u %s%s",
	               (uint64_t)(hundredths / 100), (unsigned)(hundredths % 100), names[i],
	               suffix);
}

static const char *const decimal_names[] = {"KB", "MB", "GB", "TB", "PB"};
static const char *const binary_names[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};

char *tc_format_bytes(uint64_t bytes, char *buffer)
{
	format_scaled(bytes, 1024, binary_names, 5, "", buffer);
	return buffer;
}

char *tc_format_bytes_both(uint64_t bytes, char *buffer)
{
	char left[TC_UNIT_TEXT_BYTES], right[TC_UNIT_TEXT_BYTES];
	format_scaled(bytes, 1000, decimal_names, 5, "", left);
	format_scaled(bytes, 1024, binary_names, 5, "", right);
	if (bytes < 1000)
		(void)snprintf(buffer, TC_UNIT_TEXT_BYTES, "%s", left);
	else
		(void)snprintf(buffer, TC_UNIT_TEXT_BYTES, "%.20s = %.20s", left, right);
	return buffer;
}

char *tc_format_rate(uint64_t bytes_per_s, char *buffer)
{
	format_scaled(bytes_per_s, 1000, decimal_names, 5, "/s", buffer);
	return buffer;
}

char *tc_format_ps(uint64_t ps, char *buffer)
{
	static const struct {
		uint64_t ps;
		int decimals;
		const char *name;
	} scales[] = {{TC_PS_PER_S, 3, "s"},
	              {TC_PS_PER_S / 1000, 1, "ms"},
	              {TC_PS_PER_US, 1, "us"},
	              {TC_PS_PER_NS, 1, "ns"}};
	for (size_t i = 0; i < sizeof scales / sizeof *scales; ++i) {
		uint64_t step = scales[i].decimals == 3 ? 1000 : 10;
		uint64_t quantum = scales[i].ps / step;
		uint64_t rounded = ps / quantum + (ps % quantum >= quantum - quantum / 2);
		if (rounded >= step) {
			(void)snprintf(buffer, TC_UNIT_TEXT_BYTES, "%" PRIu64 ".%0*" PRIu64 " %s",
			               rounded / step, scales[i].decimals, rounded % step,
			               scales[i].name);
			return buffer;
		}
	}
	(void)snprintf(buffer, TC_UNIT_TEXT_BYTES, "%" PRIu64 " ps", ps);
	return buffer;
}

/* ---------------------------------------------------------------- checked arithmetic */

bool tc_add_u64(uint64_t a, uint64_t b, uint64_t *result)
{
	if (a > UINT64_MAX - b)
		return false;
	*result = a + b;
	return true;
}

bool tc_mul_u64(uint64_t a, uint64_t b, uint64_t *result)
{
	if (b != 0 && a > UINT64_MAX / b)
		return false;
	*result = a * b;
	return true;
}

bool tc_align_up(uint64_t bytes, uint64_t alignment, uint64_t *result)
{
	if (alignment == 0 || bytes > UINT64_MAX - (alignment - 1))
		return false;
	*result = (bytes + (alignment - 1)) & ~(alignment - 1);
	return true;
}

static bool narrow(wide value, uint64_t *result)
{
	if (value > UINT64_MAX)
		return false;
	*result = (uint64_t)value;
	return true;
}

bool tc_mul_div_ceil(uint64_t a, uint64_t b, uint64_t divisor, uint64_t *result)
{
	if (divisor == 0)
		return false;
	wide product = (wide)a * b;
	return narrow(product / divisor + (product % divisor != 0), result);
}

bool tc_mul_div_floor(uint64_t a, uint64_t b, uint64_t divisor, uint64_t *result)
{
	return divisor != 0 && narrow((wide)a * b / divisor, result);
}

bool tc_mul_div_half_even(uint64_t a, uint64_t b, uint64_t divisor, uint64_t *result)
{
	if (divisor == 0)
		return false;
	wide product = (wide)a * b;
	wide quotient = product / divisor;
	uint64_t rest = (uint64_t)(product % divisor);
	uint64_t other = divisor - rest;
	if (rest > other || (rest == other && (quotient & 1) != 0))
		++quotient;
	return narrow(quotient, result);
}

/* ---------------------------------------------------------------- arrays */

void *tc_alloc_array(size_t count, size_t element_bytes)
{
	if (element_bytes == 0 || count > SIZE_MAX / element_bytes)
		return NULL;
	return calloc(count == 0 ? 1 : count, element_bytes);
}

size_t tc_grown_capacity(size_t capacity, size_t needed, size_t element_bytes)
{
	if (element_bytes == 0 || needed > SIZE_MAX / element_bytes)
		return 0;
	size_t larger = capacity < 8 ? 8 : capacity;
	while (larger < needed)
		larger = larger > SIZE_MAX / 2 ? needed : larger * 2;
	return larger > SIZE_MAX / element_bytes ? needed : larger;
}

bool tc_enlarge_array(void *array_pointer, size_t *capacity, size_t needed, size_t element_bytes)
{
	size_t larger = tc_grown_capacity(*capacity, needed, element_bytes);
	if (larger == 0)
		return false;
	/* The caller's variable is a pointer to some type: copied, not read through void **. */
	void *old, *grown;
	memcpy(&old, array_pointer, sizeof old);
	grown = realloc(old, larger * element_bytes);
	if (grown == NULL)
		return false;
	memcpy(array_pointer, &grown, sizeof grown);
	*capacity = larger;
	return true;
}
