/*
 * Members of records, checked while they are read.
 */
#include "schedule_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tencache/units.h"

static const char *describe(const json_t *value, char buffer[64])
{
	if (value == NULL)
		return "nothing";
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		(void)snprintf(buffer, 64, "a list of %zu", json_array_size(value));
		return buffer;
	case JSON_STRING:
		(void)snprintf(buffer, 64, "\"%.40s\"", json_string_value(value));
		return buffer;
	case JSON_INTEGER:
		(void)snprintf(buffer, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		return buffer;
	case JSON_REAL:
		return "a fraction";
	case JSON_TRUE:
		return "true";
	case JSON_FALSE:
		return "false";
	default:
		return "null";
	}
}

void tci_fields_refuse(struct tci_fields *fields, const char *key, const json_t *found,
                       const char *expected)
{
	char buffer[64];
	if (!fields->wrong)
		(void)tc_error_set(fields->error, TC_FORMAT,
		                   "%s:%" PRIu64 ": \"%s\": found %s, expected %s", fields->file,
		                   fields->line, key, describe(found, buffer), expected);
	fields->wrong = true;
}

enum tc_status tci_fields_status(const struct tci_fields *fields)
{
	return fields->wrong ? fields->error->status : TC_OK;
}

bool tci_fields_has(const struct tci_fields *fields, const char *key)
{
	return json_object_get(fields->object, key) != NULL;
}

uint64_t tci_element_number(struct tci_fields *fields, const char *key, const json_t *value,
                            uint64_t largest, const uint64_t *none)
{
	json_int_t number = json_is_integer(value) ? json_integer_value(value) : -2;
	if (number == -1 && none != NULL)
		return *none;
	if (number < 0 || (uint64_t)number > largest) {
		char expected[64];
		(void)snprintf(expected, sizeof expected, "an integer from %d to %" PRIu64,
		               none != NULL ? -1 : 0, largest);
		tci_fields_refuse(fields, key, value, expected);
		return 0;
	}
	return (uint64_t)number;
}

uint64_t tci_fields_number(struct tci_fields *fields, const char *key, uint64_t largest,
                           uint64_t fallback)
{
	const json_t *value = json_object_get(fields->object, key);
	if (value == NULL && fallback != TCI_FIELD_REQUIRED)
		return fallback;
	return tci_element_number(fields, key, value, largest, NULL);
}

uint32_t tci_fields_id(struct tci_fields *fields, const char *key)
{
	return (uint32_t)tci_fields_number(fields, key, TC_NONE - 1, TC_NONE);
}

const char *tci_fields_string(struct tci_fields *fields, const char *key, bool required)
{
	const json_t *value = json_object_get(fields->object, key);
	if (value == NULL && !required)
		return "";
	if (json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value))
		return json_string_value(value);
	tci_fields_refuse(fields, key, value, "a string");
	return "";
}

bool tci_fields_flag(struct tci_fields *fields, const char *key, bool required)
{
	const json_t *value = json_object_get(fields->object, key);
	if (!json_is_boolean(value) && (value != NULL || required))
		tci_fields_refuse(fields, key, value, "true or false");
	return json_is_true(value);
}

unsigned tci_element_word(struct tci_fields *fields, const char *key, const json_t *value,
                          const char *(*name_of)(unsigned value), unsigned count)
{
	const char *text = json_is_string(value) ? json_string_value(value) : "";
	const char *names[32];
	for (unsigned w = 0; w < count && w < 32; w++) {
		names[w] = name_of(w);
		if (strcmp(text, names[w]) == 0)
			return w;
	}
	char expected[160];
	const char *near = tc_nearest_name(text, names, count < 32 ? count : 32);
	(void)snprintf(expected, sizeof expected, "a word of the format such as \"%s\"%s",
	               near != NULL ? near : names[0], near != NULL ? " (did you mean that?)" : "");
	tci_fields_refuse(fields, key, value, expected);
	return 0;
}

unsigned tci_fields_word(struct tci_fields *fields, const char *key,
                         const char *(*name_of)(unsigned value), unsigned count, unsigned fallback)
{
	const json_t *value = json_object_get(fields->object, key);
	if (value == NULL && fallback < count)
		return fallback;
	return tci_element_word(fields, key, value, name_of, count);
}

const json_t *tci_fields_array(struct tci_fields *fields, const char *key, bool required)
{
	const json_t *value = json_object_get(fields->object, key);
	if (value == NULL && !required)
		return NULL;
	if (json_is_array(value) && json_array_size(value) < TC_NONE)
		return value;
	tci_fields_refuse(fields, key, value, "a list");
	return NULL;
}

const json_t *tci_element_list(struct tci_fields *fields, const char *key, const json_t *list,
                               size_t i, size_t count, const char *expected)
{
	const json_t *element = json_array_get(list, i);
	if (json_is_array(element) && json_array_size(element) == count)
		return element;
	tci_fields_refuse(fields, key, element, expected);
	return NULL;
}

struct tc_place tci_element_place(struct tci_fields *fields, const char *key, const json_t *value)
{
	struct tc_place place = {TC_NO_POOL, 0};
	if (!json_is_array(value) || json_array_size(value) != 2) {
		tci_fields_refuse(fields, key, value, "[pool, offset]");
		return place;
	}
	place.pool = (uint32_t)tci_element_number(fields, key, json_array_get(value, 0),
	                                          TC_NO_POOL - 1, NULL);
	place.offset =
	    tci_element_number(fields, key, json_array_get(value, 1), TC_MAX_JSON_INTEGER, NULL);
	return place;
}

struct tc_place tci_fields_place(struct tci_fields *fields, const char *key)
{
	const json_t *value = json_object_get(fields->object, key);
	if (value == NULL)
		return (struct tc_place){TC_NO_POOL, 0};
	return tci_element_place(fields, key, value);
}

/* ---------------------------------------------------------------- words */

const char *tci_word_tier(unsigned value)
{
	return tc_tier_name((enum tc_tier)value);
}

const char *tci_word_queue(unsigned value)
{
	return tc_queue_name((enum tc_queue)value);
}

const char *tci_word_phase(unsigned value)
{
	return tc_phase_name((enum tc_phase)value);
}

const char *tci_word_tensor_kind(unsigned value)
{
	return tc_tensor_kind_name((enum tc_tensor_kind)value);
}

const char *tci_word_role(unsigned value)
{
	return tc_role_name((enum tc_role)value);
}

const char *tci_word_pool_kind(unsigned value)
{
	return tc_pool_kind_name((enum tc_pool_kind)value);
}

const char *tci_word_command_kind(unsigned value)
{
	return tc_command_kind_name((enum tc_command_kind)value);
}

const char *tci_word_why(unsigned value)
{
	return tc_why_name((enum tc_why)value);
}

const char *tci_word_reason(unsigned value)
{
	return tc_reason_name((enum tc_reason)value);
}

const char *tci_word_outcome(unsigned value)
{
	static const char *const names[] = {"resident", "covered", "demand_miss"};
	return value < 3 ? names[value] : "unknown";
}
