/**
 * @file machine.c
 * The life of a machine description: parse, override, list, free.
 */
#include "machine_fields.h"

#include <stdlib.h>
#include <string.h>

static void storage_free(struct tci_machine_storage *storage)
{
	if (storage == NULL)
		return;
	json_decref(storage->root);
	free(storage->file_name);
	free(storage);
}

/** Check and derive a new machine from `root`, whose reference it takes over in any case. */
static enum tc_status build(json_t *root, const char *file_name, struct tc_machine *machine,
                            struct tc_error *error)
{
	struct tci_machine_storage *storage = calloc(1, sizeof *storage);
	size_t length = strlen(file_name) + 1;
	char *name = malloc(length);
	if (storage == NULL || name == NULL) {
		json_decref(root);
		free(storage);
		free(name);
		return tc_error_no_memory(error, "a machine description", sizeof *storage + length);
	}
	memcpy(name, file_name, length);
	storage->root = root;
	storage->file_name = name;
	*machine = (struct tc_machine){.storage = storage};
	enum tc_status status = tci_machine_read_values(root, name, storage, error);
	if (status == TC_OK)
		status = tci_machine_derive(machine, error);
	if (status != TC_OK)
		storage_free(storage);
	return status;
}

enum tc_status tc_machine_parse(const char *json, size_t bytes, const char *name,
                                struct tc_machine **machine, struct tc_error *error)
{
	json_error_t json_error;
	json_t *root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &json_error);
	if (root == NULL)
		return tc_error_set(error, TC_FORMAT, "%s:%d:%d: not a machine description: %s",
		                    name, json_error.line, json_error.column, json_error.text);
	struct tc_machine *result = malloc(sizeof *result);
	if (result == NULL) {
		json_decref(root);
		return tc_error_no_memory(error, "a machine description", sizeof *result);
	}
	enum tc_status status = build(root, name, result, error);
	if (status == TC_OK)
		*machine = result;
	else
		free(result);
	return status;
}

void tc_machine_free(struct tc_machine *machine)
{
	if (machine == NULL)
		return;
	storage_free(machine->storage);
	free(machine);
}

const struct tc_machine_value *tc_machine_values(const struct tc_machine *machine, size_t *count)
{
	const struct tci_machine_storage *storage = machine->storage;
	*count = storage->listing_count;
	return storage->listing;
}

char *tc_machine_json(const struct tc_machine *machine)
{
	const struct tci_machine_storage *storage = machine->storage;
	return json_dumps(storage->root, JSON_INDENT(2));
}

/* ---------------------------------------------------------------- overrides */

/** A field by option name, or by path when the name has dots; TCI_FIELD_COUNT: none. */
static size_t find_field(const char *name)
{
	bool by_path = strchr(name, '.') != NULL;
	for (size_t i = 0; i < TCI_FIELD_COUNT; ++i) {
		const char *known = by_path ? tci_fields[i].path : tci_fields[i].option;
		if (known != NULL && strcmp(known, name) == 0)
			return i;
	}
	return TCI_FIELD_COUNT;
}

static enum tc_status unknown_option(const char *name, struct tc_error *error)
{
	const char *names[TCI_FIELD_COUNT];
	size_t count = 0;
	bool by_path = strchr(name, '.') != NULL;
	for (size_t i = 0; i < TCI_FIELD_COUNT; ++i)
		if (by_path || tci_fields[i].option != NULL)
			names[count++] = by_path ? tci_fields[i].path : tci_fields[i].option;
	const char *nearest = tc_nearest_name(name, names, count);
	return tc_error_set(error, TC_ARGUMENT, "machines have no value \"%.80s\"%s%s%s", name,
	                    nearest != NULL ? "; did you mean \"" : "",
	                    nearest != NULL ? nearest : "", nearest != NULL ? "\"?" : "");
}

static enum tc_status parse_flag(const char *text, const char *what, json_t **value,
                                 struct tc_error *error)
{
	static const char *const yes[] = {"true", "yes", "on", "1"};
	static const char *const no[] = {"false", "no", "off", "0"};
	for (size_t i = 0; i < 4; ++i) {
		if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
			*value = json_boolean(strcmp(text, yes[i]) == 0);
			return TC_OK;
		}
	}
	return tc_error_set(error, TC_ARGUMENT, "%s: \"%.40s\" is neither yes nor no", what, text);
}

static enum tc_status parse_value(const struct tci_field *field, const char *text, const char *what,
                                  json_t **value, struct tc_error *error)
{
	uint64_t number = 0;
	switch (field->unit) {
	case TCI_FLAG:
		return parse_flag(text, what, value, error);
	case TCI_ROUNDING:
		*value = json_string(text);
		break;
	case TCI_BYTES:
		TC_TRY(tc_parse_bytes(text, what, &number, error));
		break;
	case TCI_RATE:
		TC_TRY(tc_parse_rate(text, what, &number, error));
		break;
	case TCI_PPM:
	case TCI_MICRO_USD:
		TC_TRY(tc_parse_ppm(text, what, &number, error));
		break;
	default:
		TC_TRY(tc_parse_count(text, what, &number, error));
	}
	if (number > TC_MAX_JSON_INTEGER)
		return tc_error_set(error, TC_TOO_LARGE,
		                    "%s: \"%.40s\" is above the largest value %llu", what, text,
		                    TC_MAX_JSON_INTEGER);
	if (field->unit != TCI_ROUNDING)
		*value = json_integer((json_int_t)number);
	return TC_OK;
}

/** Set `path` in `root` (taking over `value`), making the objects on the way. */
static bool set_path(json_t *root, const char *path, json_t *value)
{
	char key[64];
	json_t *object = root;
	for (;;) {
		size_t length = strcspn(path, ".");
		if (length >= sizeof key) {
			json_decref(value);
			return false;
		}
		memcpy(key, path, length);
		key[length] = '\0';
		if (path[length] == '\0')
			return json_object_set_new(object, key, value) == 0;
		json_t *inner = json_object_get(object, key);
		if (!json_is_object(inner)) {
			inner = json_object();
			if (json_object_set_new(object, key, inner) != 0) {
				json_decref(value);
				return false;
			}
		}
		object = inner;
		path += length + 1;
	}
}

static json_t *wrap(json_t *value)
{
	return json_pack("{s:o, s:s, s:s}", "value", value, "source", "set by an option",
	                 "confidence", "high");
}

/** A curve is replaced by what was fitted to it before one of the two is overridden. */
static bool dissolve_curve(json_t *root, const struct tci_machine_storage *storage, size_t field)
{
	static const struct {
		const char *parent;
		enum tci_field_id rate, latency;
	} links[] = {{"link.h2d", TCI_H2D_RATE, TCI_H2D_LATENCY},
	             {"link.d2h", TCI_D2H_RATE, TCI_D2H_LATENCY},
	             {"nvme.drive.read", TCI_READ_RATE, TCI_READ_LATENCY},
	             {"nvme.drive.write", TCI_WRITE_RATE, TCI_WRITE_LATENCY}};
	for (size_t i = 0; i < sizeof links / sizeof *links; ++i) {
		if (field != links[i].rate && field != links[i].latency)
			continue;
		json_t *parent = tci_machine_lookup(root, links[i].parent);
		if (!json_is_object(parent) || json_object_get(parent, "curve") == NULL)
			return true;
		const enum tci_field_id both[] = {links[i].rate, links[i].latency};
		for (size_t k = 0; k < 2; ++k) {
			enum tci_field_id id = both[k];
			const struct tc_machine_value *listed = &storage->listing[id];
			json_t *value = json_pack(
			    "{s:I, s:s, s:s}", "value", (json_int_t)storage->values[id], "source",
			    listed->source, "confidence", tc_confidence_name(listed->confidence));
			if (value == NULL || !set_path(root, tci_fields[id].path, value))
				return false;
		}
		return json_object_del(parent, "curve") == 0;
	}
	return true;
}

/** Put one value into a description that nobody has checked yet. */
static enum tc_status apply(json_t *root, const struct tci_machine_storage *storage,
                            const struct tc_machine_setting *setting, struct tc_error *error)
{
	size_t field = find_field(setting->name);
	if (field == TCI_FIELD_COUNT)
		return unknown_option(setting->name, error);
	json_t *number = NULL;
	TC_TRY(parse_value(&tci_fields[field], setting->value, setting->name, &number, error));
	json_t *wrapped = number != NULL ? wrap(number) : NULL;
	if (wrapped == NULL || !dissolve_curve(root, storage, field)) {
		json_decref(wrapped);
		return tc_error_no_memory(error, "a machine description", 0);
	}
	if (!set_path(root, tci_fields[field].path, wrapped))
		return tc_error_no_memory(error, "a machine description", 0);
	return TC_OK;
}

enum tc_status tc_machine_override_all(struct tc_machine *machine,
                                       const struct tc_machine_setting *settings, size_t count,
                                       struct tc_error *error)
{
	struct tci_machine_storage *storage = machine->storage;
	if (count == 0)
		return TC_OK;
	json_t *root = json_deep_copy(storage->root);
	if (root == NULL)
		return tc_error_no_memory(error, "a machine description", 0);
	for (size_t i = 0; i < count; ++i) {
		enum tc_status status = apply(root, storage, &settings[i], error);
		if (status != TC_OK) {
			json_decref(root);
			return status;
		}
	}
	struct tc_machine changed;
	TC_TRY(build(root, storage->file_name, &changed, error));
	*machine = changed;
	storage_free(storage);
	return TC_OK;
}

enum tc_status tc_machine_override(struct tc_machine *machine, const char *name, const char *value,
                                   struct tc_error *error)
{
	const struct tc_machine_setting setting = {name, value};
	return tc_machine_override_all(machine, &setting, 1, error);
}
