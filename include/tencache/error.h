/**
 * @file error.h
 * Errors are values: a status and one message. The library never prints and never exits.
 *
 * Every function that can fail returns enum tc_status and takes an optional `struct tc_error *`
 * as its last parameter. The first error wins: a later tc_error_set() on an error that is already
 * set keeps the first text, so that clean-up code cannot hide the cause.
 */
#ifndef TENCACHE_ERROR_H
#define TENCACHE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What went wrong, coarse enough for an exit code. The numbers are part of the interface. */
enum tc_status {
	TC_OK = 0,
	TC_NO_MEMORY = 1,  /**< an allocation failed */
	TC_IO = 2,         /**< the operating system refused to open, read, write or rename a file */
	TC_FORMAT = 3,     /**< a file is not what it should be: the message names file and record */
	TC_ARGUMENT = 4,   /**< a name, a value or a combination of them that makes no sense */
	TC_INFEASIBLE = 5, /**< the plan cannot fit: the message names the step and what would help */
	TC_TOO_LARGE = 6,  /**< a size or time does not fit its integer */
	TC_UNSAFE = 7,     /**< the auditor found a schedule that can go wrong */
	TC_INTERNAL = 8    /**< a broken promise inside tencache: please report it */
};

/** Room for 20 findings of a reader or the auditor, one a line. */
#define TC_ERROR_TEXT_BYTES 8192

/** Owned by the caller, who sets it to zero (`struct tc_error error = {0};`) before use. */
struct tc_error {
	enum tc_status status;
	char text[TC_ERROR_TEXT_BYTES]; /**< one message, no trailing newline */
};

#if defined(__GNUC__)
#define TC_PRINTF(format_index, first_index)                                                      \
	__attribute__((format(printf, format_index, first_index)))
#else
#define TC_PRINTF(format_index, first_index)
#endif

/**
 * Store a message (truncated to fit) unless `error` is NULL or holds one already.
 * @return `status`, so that a failing function can end with `return tc_error_set(...)`.
 */
enum tc_status tc_error_set(struct tc_error *error, enum tc_status status, const char *format, ...)
    TC_PRINTF(3, 4);

/** Shorthand for a failed allocation of `bytes` for `what`. @return TC_NO_MEMORY */
enum tc_status tc_error_no_memory(struct tc_error *error, const char *what, uint64_t bytes);

/** Fixed lower-case word for a status, e.g. "infeasible". */
const char *tc_status_name(enum tc_status status);

/** Return from the calling function when `expression` (an enum tc_status) is not TC_OK. */
#define TC_TRY(expression)                                                                        \
	do {                                                                                      \
		enum tc_status tc_try_status = (expression);                                      \
		if (tc_try_status != TC_OK)                                                       \
			return tc_try_status;                                                     \
	} while (0)

#ifdef __cplusplus
}
#endif
#endif
