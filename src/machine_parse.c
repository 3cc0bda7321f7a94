/**
 * @file machine_parse.c
 * From JSON to checked values. Strict, because a misspelt key that is silently ignored would change
 * every result: each key must be in the table of machine_fields.c or start with x_. A value is a
 * plain integer or {"value", "source", "confidence"}.
 */
#include "machine_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_PATH 128
#define MAX_CURVE_POINTS 64

static const char *const sections[] = {
    "gpu",
    "gpu.memory_efficiency_ppm",
    "gpu.flops_per_s",
    "gpu.flops_efficiency_ppm",
    "host",
    "host.handover_ns",
    "link",
    "link.h2d",
    "link.d2h",
    "nvme",
    "nvme.drive",
    "nvme.drive.read",
    "nvme.drive.write",
    "lanes",
};
static const char *const head_keys[] = {"format", "version", "name",      "summary",
                                        "source", "date",    "confidence"};
static const struct {
	const char *path;
	enum tci_field_id rate, latency;
} curves[] = {
    {"link.h2d.curve", TCI_H2D_RATE, TCI_H2D_LATENCY},
    {"link.d2h.curve", TCI_D2H_RATE, TCI_D2H_LATENCY},
    {"nvme.drive.read.curve", TCI_READ_RATE, TCI_READ_LATENCY},
    {"nvme.drive.write.curve", TCI_WRITE_RATE, TCI_WRITE_LATENCY},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/** What the functions below share. */
struct reader {
	const char *file_name;
	const char *head_source;
	enum tc_confidence head_confidence;
	struct tci_machine_storage *storage;
	struct tc_error *error;
};

static bool listed(const char *path, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; ++i)
		if (strcmp(path, names[i]) == 0)
			return true;
	return false;
}

static enum tc_status unknown_key(const struct reader *reader, const char *path)
{
	const char *names[TCI_FIELD_COUNT + COUNT(sections) + COUNT(head_keys) + COUNT(curves)];
	size_t count = 0;
	for (size_t i = 0; i < TCI_FIELD_COUNT; ++i)
		names[count++] = tci_fields[i].path;
	for (size_t i = 0; i < COUNT(sections); ++i)
		names[count++] = sections[i];
	for (size_t i = 0; i < COUNT(head_keys); ++i)
		names[count++] = head_keys[i];
	for (size_t i = 0; i < COUNT(curves); ++i)
		names[count++] = curves[i].path;
	const char *nearest = tc_nearest_name(path, names, count);
	if (nearest != NULL)
		return tc_error_set(
		    reader->error, TC_FORMAT,
		    "%s: unknown key \"%s\"; did you mean \"%s\"? (keys of your own "
		    "start with x_)",
		    reader->file_name, path, nearest);
	return tc_error_set(reader->error, TC_FORMAT,
	                    "%s: unknown key \"%s\"; `tencache-sim machines a100-40` lists what "
	                    "exists (keys of your own start with x_)",
	                    reader->file_name, path);
}

static const char *json_type_name(const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "an array";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
		return "an integer";
	case JSON_REAL:
		return "a number with fraction or exponent";
	case JSON_NULL:
		return "null";
	default:
		return "true or false";
	}
}

static enum tc_status read_integer(const struct reader *reader, const char *path,
                                   const json_t *value, uint64_t *number)
{
	if (!json_is_integer(value))
		return tc_error_set(
		    reader->error, TC_FORMAT,
		    "%s: %s is %s; expected a plain integer, all digits written out",
		    reader->file_name, path, json_type_name(value));
	json_int_t integer = json_integer_value(value);
	if (integer < 0 || (uint64_t)integer > TC_MAX_JSON_INTEGER)
		return tc_error_set(reader->error, TC_FORMAT,
		                    "%s: %s is %" JSON_INTEGER_FORMAT "; expected 0 ... %llu",
		                    reader->file_name, path, integer, TC_MAX_JSON_INTEGER);
	*number = (uint64_t)integer;
	return TC_OK;
}

/** The plain value inside `*value`, with its source and confidence where it has its own. */
static enum tc_status unwrap(const struct reader *reader, const char *path, const char *inner_key,
                             const json_t **value, const char **source,
                             enum tc_confidence *confidence)
{
	*source = reader->head_source;
	*confidence = reader->head_confidence;
	if (!json_is_object(*value))
		return TC_OK;
	const json_t *object = *value, *inner = NULL;
	const char *key;
	json_t *member;
	json_object_foreach((json_t *)object, key, member)
	{
		if (strcmp(key, inner_key) == 0) {
			inner = member;
		} else if (strcmp(key, "source") == 0 && json_is_string(member)) {
			*source = json_string_value(member);
		} else if (strcmp(key, "confidence") == 0 && json_is_string(member)) {
			if (!tci_confidence_parse(json_string_value(member), confidence))
				return tc_error_set(
				    reader->error, TC_FORMAT,
				    "%s: %s.confidence is \"%s\"; expected low, medium "
				    "or high",
				    reader->file_name, path, json_string_value(member));
		} else if (strncmp(key, "x_", 2) != 0) {
			return tc_error_set(reader->error, TC_FORMAT,
			                    "%s: %s has the key \"%s\"; expected \"%s\", and the "
			                    "strings \"source\" and \"confidence\"",
			                    reader->file_name, path, key, inner_key);
		}
	}
	if (inner == NULL)
		return tc_error_set(reader->error, TC_FORMAT, "%s: %s lacks the key \"%s\"",
		                    reader->file_name, path, inner_key);
	*value = inner;
	return TC_OK;
}

static void store(const struct reader *reader, enum tci_field_id id, uint64_t number,
                  const char *source, enum tc_confidence confidence)
{
	struct tci_machine_storage *storage = reader->storage;
	storage->values[id] = number;
	storage->present[id] = true;
	storage->listing[id].source = source;
	storage->listing[id].confidence = confidence;
}

static enum tc_status check_range(const struct reader *reader, enum tci_field_id id,
                                  uint64_t number)
{
	const struct tci_field *field = &tci_fields[id];
	uint64_t largest = field->unit == TCI_PPM ? 1000000 : TC_MAX_JSON_INTEGER;
	if (number >= field->smallest && number <= largest)
		return TC_OK;
	return tc_error_set(
	    reader->error, TC_FORMAT,
	    "%s: %s is %" PRIu64 "; expected %" PRIu64 " ... %" PRIu64 "%s%s (%s)%s",
	    reader->file_name, field->path, number, field->smallest, largest,
	    *tci_unit_name(field->unit) != '\0' ? " " : "", tci_unit_name(field->unit), field->help,
	    number == 0 && !field->required ? "; leave the key out if unknown" : "");
}

static enum tc_status read_field(const struct reader *reader, enum tci_field_id id,
                                 const json_t *value)
{
	const struct tci_field *field = &tci_fields[id];
	const char *source;
	enum tc_confidence confidence;
	uint64_t number = 0;
	TC_TRY(unwrap(reader, field->path, "value", &value, &source, &confidence));
	if (field->unit == TCI_FLAG) {
		if (!json_is_boolean(value))
			return tc_error_set(reader->error, TC_FORMAT,
			                    "%s: %s is %s; expected true or false",
			                    reader->file_name, field->path, json_type_name(value));
		number = json_is_true(value);
	} else if (field->unit == TCI_ROUNDING) {
		const char *word = json_is_string(value) ? json_string_value(value) : "";
		if (strcmp(word, "exact") != 0 && strcmp(word, "pow2") != 0)
			return tc_error_set(reader->error, TC_FORMAT,
			                    "%s: %s must be \"exact\" or \"pow2\"",
			                    reader->file_name, field->path);
		number = strcmp(word, "pow2") == 0 ? TC_PINNED_POW2 : TC_PINNED_EXACT;
	} else {
		TC_TRY(read_integer(reader, field->path, value, &number));
		TC_TRY(check_range(reader, id, number));
	}
	store(reader, id, number, source, confidence);
	return TC_OK;
}

static enum tc_status read_curve(const struct reader *reader, size_t which, const json_t *value)
{
	const char *path = curves[which].path, *source;
	enum tc_confidence confidence;
	TC_TRY(unwrap(reader, path, "points", &value, &source, &confidence));
	struct tci_curve_point points[MAX_CURVE_POINTS];
	size_t count = json_array_size(value);
	if (!json_is_array(value) || count < 2 || count > MAX_CURVE_POINTS)
		return tc_error_set(
		    reader->error, TC_FORMAT,
		    "%s: %s must be an array of 2 ... %d pairs [bytes, bytes per second]",
		    reader->file_name, path, MAX_CURVE_POINTS);
	for (size_t i = 0; i < count; ++i) {
		const json_t *pair = json_array_get(value, i);
		if (!json_is_array(pair) || json_array_size(pair) != 2)
			return tc_error_set(reader->error, TC_FORMAT,
			                    "%s: %s[%zu] is not a pair [bytes, bytes per second]",
			                    reader->file_name, path, i);
		TC_TRY(read_integer(reader, path, json_array_get(pair, 0), &points[i].bytes));
		TC_TRY(read_integer(reader, path, json_array_get(pair, 1), &points[i].bytes_per_s));
		if (points[i].bytes == 0 || points[i].bytes_per_s == 0 ||
		    (i > 0 && points[i].bytes <= points[i - 1].bytes))
			return tc_error_set(
			    reader->error, TC_FORMAT,
			    "%s: %s[%zu]: sizes must ascend, sizes and rates be above 0",
			    reader->file_name, path, i);
	}
	uint64_t latency, rate;
	if (!tci_curve_fit(points, count, &latency, &rate))
		return tc_error_set(
		    reader->error, TC_FORMAT,
		    "%s: %s: no latency and rate describe these points; copies of more "
		    "than a day?",
		    reader->file_name, path);
	store(reader, curves[which].rate, rate, source, confidence);
	store(reader, curves[which].latency, latency, source, confidence);
	return TC_OK;
}

static enum tc_status read_section(const struct reader *reader, const char *path,
                                   const json_t *object);

static enum tc_status read_member(const struct reader *reader, const char *path,
                                  const json_t *value)
{
	for (size_t i = 0; i < TCI_FIELD_COUNT; ++i)
		if (strcmp(path, tci_fields[i].path) == 0)
			return read_field(reader, (enum tci_field_id)i, value);
	for (size_t i = 0; i < COUNT(curves); ++i)
		if (strcmp(path, curves[i].path) == 0)
			return read_curve(reader, i, value);
	if (!listed(path, sections, COUNT(sections)))
		return unknown_key(reader, path);
	if (!json_is_object(value))
		return tc_error_set(reader->error, TC_FORMAT, "%s: %s is %s; expected an object",
		                    reader->file_name, path, json_type_name(value));
	/* At most as deep as the longest path of the table. */
	return read_section(reader, path, value);
}

static enum tc_status read_section(const struct reader *reader, const char *path,
                                   const json_t *object)
{
	const char *key;
	json_t *member;
	json_object_foreach((json_t *)object, key, member)
	{
		if (strncmp(key, "x_", 2) == 0 ||
		    (*path == '\0' && listed(key, head_keys, COUNT(head_keys))))
			continue;
		char inner[LONGEST_PATH];
		(void)snprintf(inner, sizeof inner, "%s%s%s", path, *path != '\0' ? "." : "", key);
		TC_TRY(read_member(reader, inner, member));
	}
	return TC_OK;
}

static enum tc_status read_head(struct reader *reader, const json_t *root)
{
	if (!json_is_object(root))
		return tc_error_set(reader->error, TC_FORMAT,
		                    "%s: expected a JSON object that describes a machine",
		                    reader->file_name);
	for (size_t i = 0; i < COUNT(head_keys); ++i) {
		const json_t *value = json_object_get(root, head_keys[i]);
		bool number = strcmp(head_keys[i], "version") == 0;
		if (value == NULL && strcmp(head_keys[i], "summary") == 0)
			continue;
		if (value == NULL)
			return tc_error_set(
			    reader->error, TC_FORMAT,
			    "%s: the key \"%s\" is missing; every machine says format, "
			    "version, name, source, date and confidence",
			    reader->file_name, head_keys[i]);
		if (number ? !json_is_integer(value) : !json_is_string(value))
			return tc_error_set(reader->error, TC_FORMAT,
			                    "%s: \"%s\" is %s; expected %s", reader->file_name,
			                    head_keys[i], json_type_name(value),
			                    number ? "the integer 1" : "a string");
	}
	const char *format = json_string_value(json_object_get(root, "format"));
	json_int_t version = json_integer_value(json_object_get(root, "version"));
	if (strcmp(format, "tencache-machine") != 0 || version != 1)
		return tc_error_set(reader->error, TC_FORMAT,
		                    "%s: format \"%.40s\" version %" JSON_INTEGER_FORMAT
		                    "; expected \"tencache-machine\" version 1",
		                    reader->file_name, format, version);
	reader->head_source = json_string_value(json_object_get(root, "source"));
	const char *word = json_string_value(json_object_get(root, "confidence"));
	if (!tci_confidence_parse(word, &reader->head_confidence))
		return tc_error_set(reader->error, TC_FORMAT,
		                    "%s: confidence is \"%.40s\"; expected low, medium or high",
		                    reader->file_name, word);
	return TC_OK;
}

enum tc_status tci_machine_read_values(const json_t *root, const char *file_name,
                                       struct tci_machine_storage *storage, struct tc_error *error)
{
	struct reader reader = {.file_name = file_name, .storage = storage, .error = error};
	TC_TRY(read_head(&reader, root));
	TC_TRY(read_section(&reader, "", root));
	for (size_t i = 0; i < COUNT(curves); ++i)
		if (tci_machine_lookup(root, curves[i].path) != NULL &&
		    (tci_machine_lookup(root, tci_fields[curves[i].rate].path) != NULL ||
		     tci_machine_lookup(root, tci_fields[curves[i].latency].path) != NULL))
			return tc_error_set(
			    error, TC_FORMAT,
			    "%s: %s and bytes_per_s or latency_ns beside it: give one or "
			    "the other",
			    file_name, curves[i].path);
	bool has_nvme = json_object_get(root, "nvme") != NULL;
	for (size_t i = 0; i < TCI_FIELD_COUNT; ++i) {
		const struct tci_field *field = &tci_fields[i];
		if (storage->present[i])
			continue;
		bool of_nvme = strncmp(field->path, "nvme.", 5) == 0;
		if (field->required && (!of_nvme || has_nvme))
			return tc_error_set(error, TC_FORMAT, "%s: %s is missing (%s%s%s)",
			                    file_name, field->path, field->help,
			                    *tci_unit_name(field->unit) != '\0' ? ", " : "",
			                    tci_unit_name(field->unit));
		storage->values[i] = of_nvme && !has_nvme ? 0 : field->fallback;
		storage->listing[i].source = "";
		storage->listing[i].is_default = true;
	}
	return TC_OK;
}

json_t *tci_machine_lookup(const json_t *root, const char *path)
{
	char key[LONGEST_PATH];
	const json_t *value = root;
	while (value != NULL && *path != '\0') {
		size_t length = strcspn(path, ".");
		if (length >= sizeof key || !json_is_object(value))
			return NULL;
		memcpy(key, path, length);
		key[length] = '\0';
		value = json_object_get(value, key);
		path += length + (path[length] == '.');
	}
	return (json_t *)value;
}
