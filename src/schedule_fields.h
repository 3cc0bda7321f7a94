/** @file schedule_fields.h
 * Private: typed access to the members of a record of a schedule file. The first thing that is
 * wrong becomes the error, with file, line, key, found and expected; later calls do nothing.
 */
#ifndef TENCACHE_SRC_SCHEDULE_FIELDS_H
#define TENCACHE_SRC_SCHEDULE_FIELDS_H

#include <jansson.h>

#include "tencache/schedule.h"

struct tci_fields {
	const char *file;
	uint64_t line;
	const json_t *object;
	bool wrong;
	struct tc_error *error; /**< never NULL */
};

/** Refuse the record: `found` may be NULL (the key is missing). */
void tci_fields_refuse(struct tci_fields *fields, const char *key, const json_t *found,
                       const char *expected);

/** The status of what was refused, TC_OK if nothing was. */
enum tc_status tci_fields_status(const struct tci_fields *fields);

bool tci_fields_has(const struct tci_fields *fields, const char *key);
/** 0 ... largest; `fallback` where the key is absent, or required when `fallback` is
 * TCI_FIELD_REQUIRED. */
#define TCI_FIELD_REQUIRED UINT64_MAX
uint64_t tci_fields_number(struct tci_fields *fields, const char *key, uint64_t largest,
                           uint64_t fallback);
/** An id below 2^32 - 1; TC_NONE where the key is absent. */
uint32_t tci_fields_id(struct tci_fields *fields, const char *key);
/** "" where absent; valid as long as the record. */
const char *tci_fields_string(struct tci_fields *fields, const char *key, bool required);
bool tci_fields_flag(struct tci_fields *fields, const char *key, bool required);
/** The number of the word among `count` names given by `name_of`; `fallback` where absent. */
unsigned tci_fields_word(struct tci_fields *fields, const char *key,
                         const char *(*name_of)(unsigned value), unsigned count, unsigned fallback);
/** An array of at most 2^32 - 2 elements; NULL where absent. */
const json_t *tci_fields_array(struct tci_fields *fields, const char *key, bool required);
/** [pool, offset]; TC_NO_POOL where absent. */
struct tc_place tci_fields_place(struct tci_fields *fields, const char *key);

/* Elements of lists. `expected` describes the whole element for messages. */
/** The i-th element of `list` as a list of `count` elements, or NULL. */
const json_t *tci_element_list(struct tci_fields *fields, const char *key, const json_t *list,
                               size_t i, size_t count, const char *expected);
/** Integer 0 ... largest; with `none`, -1 stands for *none. */
uint64_t tci_element_number(struct tci_fields *fields, const char *key, const json_t *value,
                            uint64_t largest, const uint64_t *none);
unsigned tci_element_word(struct tci_fields *fields, const char *key, const json_t *value,
                          const char *(*name_of)(unsigned value), unsigned count);
struct tc_place tci_element_place(struct tci_fields *fields, const char *key, const json_t *value);

/* Names by number, for the calls above. */
const char *tci_word_tier(unsigned value);
const char *tci_word_queue(unsigned value);
const char *tci_word_phase(unsigned value);
const char *tci_word_tensor_kind(unsigned value);
const char *tci_word_role(unsigned value);
const char *tci_word_pool_kind(unsigned value);
const char *tci_word_command_kind(unsigned value);
const char *tci_word_why(unsigned value);
const char *tci_word_reason(unsigned value);
const char *tci_word_outcome(unsigned value);

#endif
