/**
 * @file units.h
 * Reading and writing sizes, rates and times, overflow-checked arithmetic and nearest names.
 */
#ifndef TENCACHE_UNITS_H
#define TENCACHE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tencache/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Largest integer that JSON readers keep exactly: 2^53 - 1. */
#define TC_MAX_JSON_INTEGER 9007199254740991ull

#define TC_PS_PER_NS 1000ull
#define TC_PS_PER_US 1000000ull
#define TC_PS_PER_S 1000000000000ull

/**
 * Parse a size in bytes: an unsigned decimal number, maybe with a fraction, then K M G T P (10^3
 * steps), Ki Mi Gi Ti Pi (2^10 steps) or nothing, then an optional B. `24GiB`, `24G`, `1.5M`.
 * @param what the option or key to name in the message
 */
enum tc_status tc_parse_bytes(const char *text, const char *what, uint64_t *bytes,
                              struct tc_error *error);

/** As tc_parse_bytes(), with an optional `/s` at the end: `3.2GB/s`. Bytes per second. */
enum tc_status tc_parse_rate(const char *text, const char *what, uint64_t *bytes_per_s,
                             struct tc_error *error);

/** Parse an unsigned integer without unit; `1e9` and `5e7` are accepted when exact. */
enum tc_status tc_parse_count(const char *text, const char *what, uint64_t *count,
                              struct tc_error *error);

/** Parse a factor such as 2.5 or 0.67 as parts per million (rounded to nearest). */
enum tc_status tc_parse_ppm(const char *text, const char *what, uint64_t *ppm,
                            struct tc_error *error);

#define TC_UNIT_TEXT_BYTES 48

/** `22.35 GiB`; buffer of TC_UNIT_TEXT_BYTES. @return `buffer` */
char *tc_format_bytes(uint64_t bytes, char *buffer);
/** Both ways: `24.00 GB = 22.35 GiB`. */
char *tc_format_bytes_both(uint64_t bytes, char *buffer);
/** `3.20 GB/s`. */
char *tc_format_rate(uint64_t bytes_per_s, char *buffer);
/** `1.234 s`, `56.7 ms`, `8.9 us`. */
char *tc_format_ps(uint64_t ps, char *buffer);

/** Checked arithmetic: false (and `*result` untouched) on overflow. */
bool tc_add_u64(uint64_t a, uint64_t b, uint64_t *result);
bool tc_mul_u64(uint64_t a, uint64_t b, uint64_t *result);
/** `bytes` rounded up to a multiple of `alignment` (a power of two). */
bool tc_align_up(uint64_t bytes, uint64_t alignment, uint64_t *result);
/** ceil(a * b / divisor) through 128 bits; false when it does not fit or divisor is 0. */
bool tc_mul_div_ceil(uint64_t a, uint64_t b, uint64_t divisor, uint64_t *result);
/** floor(a * b / divisor) through 128 bits; false when it does not fit or divisor is 0. */
bool tc_mul_div_floor(uint64_t a, uint64_t b, uint64_t divisor, uint64_t *result);
/** round-half-even(a * b / divisor) through 128 bits. */
bool tc_mul_div_half_even(uint64_t a, uint64_t b, uint64_t divisor, uint64_t *result);

/** calloc() of `count` elements that checks the product; the memory belongs to the caller. */
void *tc_alloc_array(size_t count, size_t element_bytes);
/** How many elements an array that grows to at least `needed` should hold; 0: that is too many. */
size_t tc_grown_capacity(size_t capacity, size_t needed, size_t element_bytes);
/** tc_grow_array() where the array is too small. */
bool tc_enlarge_array(void *array_pointer, size_t *capacity, size_t needed, size_t element_bytes);
/** Grow a dynamic array to hold at least `needed` elements (doubling); false when out of memory. */
static inline bool tc_grow_array(void *array_pointer, size_t *capacity, size_t needed,
                                 size_t element_bytes)
{
	return needed <= *capacity ||
	       tc_enlarge_array(array_pointer, capacity, needed, element_bytes);
}

/**
 * The first of `names` that begins with `name` (of three letters or more), else the nearest to a
 * misspelt one (edit distance at most a third of its length, at least 2), or NULL. For "did you
 * mean".
 */
const char *tc_nearest_name(const char *name, const char *const *names, size_t count);

#ifdef __cplusplus
}
#endif
#endif
