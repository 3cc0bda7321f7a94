/**
 * @file json_record.h
 * A strict JSON parser for one record at a time (RFC 8259; keys may not repeat, strings may not
 * hold U+0000). The result is a flat list of nodes in one buffer that the next record reuses: a
 * trace has tens of thousands of small records, and building a tree of each with a general library
 * takes longer than everything else. Tests hold it against jansson.
 */
#ifndef TENCACHE_SRC_JSON_RECORD_H
#define TENCACHE_SRC_JSON_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tencache/error.h"

enum tci_json_type {
	TCI_JSON_OBJECT,
	TCI_JSON_ARRAY,
	TCI_JSON_STRING,
	TCI_JSON_INTEGER, /**< without fraction and exponent; fits int64 */
	TCI_JSON_REAL,    /**< any other number; only its text is kept */
	TCI_JSON_TRUE,
	TCI_JSON_FALSE,
	TCI_JSON_NULL
};

/** A value. What it holds follows it, in order. */
struct tci_json {
	enum tci_json_type type;
	uint32_t size; /**< members of an object, elements of an array */
	uint32_t span; /**< nodes of the value, itself included */
	uint32_t key_bytes;
	const char *key;  /**< of a member, zero-terminated; else NULL */
	const char *text; /**< strings: decoded, zero-terminated; numbers: as written */
	uint32_t text_bytes;
	int64_t integer;
};

/** Set to zero before use; free with tci_json_clear(). */
struct tci_json_parser {
	struct tci_json *nodes;
	size_t count, capacity;
	char problem[96]; /**< what is wrong, where parsing failed */
};

/** Deeper nesting is refused. */
#define TCI_JSON_DEEPEST 32u

/**
 * Parse one value that fills the text but for white space around it. Strings are decoded in place:
 * `text` is changed, and must live as long as the nodes are used (until the next call).
 * @return the value; NULL after an error (`problem` says what) or without memory (`problem` empty)
 */
const struct tci_json *tci_json_parse(struct tci_json_parser *parser, char *text, size_t bytes);
void tci_json_clear(struct tci_json_parser *parser);

/** The member of an object, or NULL. */
const struct tci_json *tci_json_member(const struct tci_json *object, const char *key);
/** First member or element; valid when `size` > 0. */
static inline const struct tci_json *tci_json_first(const struct tci_json *value)
{
	return value + 1;
}
/** The one after; valid `size` - 1 times. */
static inline const struct tci_json *tci_json_next(const struct tci_json *value)
{
	return value + value->span;
}

/**
 * A number times 10^`digits`, rounded half to even; exact, without floating point. False when it is
 * negative or does not fit.
 */
bool tci_json_scaled(const struct tci_json *number, int digits, uint64_t *result);

#endif
