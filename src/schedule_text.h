/** @file schedule_text.h
 * Private: building the text of JSON records in a buffer that is used again for each record. A
 * failure (no memory, an integer above 2^53 - 1, text that is not UTF-8) sticks until it is asked
 * for, so that the calls need no checks in between.
 */
#ifndef TENCACHE_SRC_SCHEDULE_TEXT_H
#define TENCACHE_SRC_SCHEDULE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tencache/error.h"

struct tci_text {
	char *data;
	size_t bytes, capacity;
	enum tc_status status; /**< of the first failure */
	const char *what;      /**< the key that failed */
};

void tci_text_clear(struct tci_text *text); /**< free everything */
void tci_text_begin(struct tci_text *text); /**< a new, empty record */

/** Characters as they are. */
void tci_text_raw(struct tci_text *text, const char *characters);
/** `"key":`, with a comma before it unless the record or object has just begun. */
void tci_text_key(struct tci_text *text, const char *key);
/** A comma unless a list or object has just begun. */
void tci_text_comma(struct tci_text *text);
void tci_text_number(struct tci_text *text, uint64_t value);
void tci_text_signed(struct tci_text *text, int64_t value);
/** A JSON string; NULL gives an empty one. */
void tci_text_string(struct tci_text *text, const char *value);

/* Key and value at once. */
void tci_text_key_number(struct tci_text *text, const char *key, uint64_t value);
/** A fixed word of the format, which needs no escaping. */
void tci_text_key_word(struct tci_text *text, const char *key, const char *word);
void tci_text_key_string(struct tci_text *text, const char *key, const char *value);

#endif
