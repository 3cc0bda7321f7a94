/**
 * @file json_schema.c
 * A small validator; recursion follows the depth of our own documents.
 */
#include "json_schema.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check {
	const json_t *root;
	char *message;
	size_t bytes;
};

static bool accepts(const struct check *check, const json_t *schema, const json_t *value,
                    const char *path);

static bool refuse(const struct check *check, const char *path, const char *why, const char *what)
{
	(void)snprintf(check->message, check->bytes, "%s: %s %s", path, why, what);
	return false;
}

static bool has_type(const json_t *value, const char *type)
{
	return (strcmp(type, "object") == 0 && json_is_object(value)) ||
	       (strcmp(type, "array") == 0 && json_is_array(value)) ||
	       (strcmp(type, "string") == 0 && json_is_string(value)) ||
	       (strcmp(type, "integer") == 0 && json_is_integer(value)) ||
	       (strcmp(type, "boolean") == 0 && json_is_boolean(value));
}

static bool matches(const json_t *value, const char *pattern)
{
	regex_t regex;
	if (!json_is_string(value) || regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0)
		return false;
	bool found = regexec(&regex, json_string_value(value), 0, NULL, 0) == 0;
	regfree(&regex);
	return found;
}

static bool one_of(const json_t *value, const json_t *choices)
{
	for (size_t i = 0; i < json_array_size(choices); ++i)
		if (json_equal(value, json_array_get(choices, i)))
			return true;
	return false;
}

static const json_t *resolve(const struct check *check, const char *reference)
{
	static const char prefix[] = "#/$defs/";
	if (strncmp(reference, prefix, sizeof prefix - 1) != 0)
		return NULL;
	return json_object_get(json_object_get(check->root, "$defs"),
	                       reference + sizeof prefix - 1);
}

static bool accepts_members(const struct check *check, const json_t *schema, const json_t *value,
                            const char *path)
{
	const json_t *properties = json_object_get(schema, "properties");
	const json_t *others = json_object_get(schema, "additionalProperties");
	const json_t *required = json_object_get(schema, "required");
	const char *key;
	json_t *member;
	for (size_t i = 0; i < json_array_size(required); ++i) {
		const char *name = json_string_value(json_array_get(required, i));
		if (json_object_get(value, name) == NULL)
			return refuse(check, path, "lacks", name);
	}
	json_object_foreach((json_t *)value, key, member)
	{
		char inner[512];
		const json_t *own = json_object_get(properties, key);
		(void)snprintf(inner, sizeof inner, "%.400s.%.100s", path, key);
		if (own == NULL && json_is_false(others))
			return refuse(check, path, "has the unexpected key", key);
		if (own == NULL)
			own = others;
		if (own != NULL && json_is_object(own) && !accepts(check, own, member, inner))
			return false;
	}
	return true;
}

static bool accepts_keyword(const struct check *check, const json_t *schema, const char *keyword,
                            const json_t *rule, const json_t *value, const char *path)
{
	if (strcmp(keyword, "type") == 0)
		return has_type(value, json_string_value(rule)) ||
		       refuse(check, path, "is no", json_string_value(rule));
	if (strcmp(keyword, "const") == 0)
		return json_equal(value, rule) || refuse(check, path, "is not", "the constant");
	if (strcmp(keyword, "enum") == 0)
		return one_of(value, rule) || refuse(check, path, "is none of", "the choices");
	if (strcmp(keyword, "minimum") == 0)
		return json_integer_value(value) >= json_integer_value(rule) ||
		       refuse(check, path, "is below", "the minimum");
	if (strcmp(keyword, "pattern") == 0)
		return matches(value, json_string_value(rule)) ||
		       refuse(check, path, "does not match", json_string_value(rule));
	if (strcmp(keyword, "$ref") == 0) {
		const json_t *target = resolve(check, json_string_value(rule));
		return target == NULL ? refuse(check, path, "unknown", json_string_value(rule))
		                      : accepts(check, target, value, path);
	}
	if (strcmp(keyword, "items") == 0) {
		for (size_t i = 0; i < json_array_size(value); ++i)
			if (!accepts(check, rule, json_array_get(value, i), path))
				return false;
		return true;
	}
	if (strcmp(keyword, "if") == 0) {
		char ignored[256];
		struct check inner = {check->root, ignored, sizeof ignored};
		return !accepts(&inner, rule, value, path) ||
		       accepts(check, json_object_get(schema, "then"), value, path);
	}
	static const char *const elsewhere[] = {
	    "required", "properties", "additionalProperties", "then", "$defs", "$schema", "title"};
	for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; ++i)
		if (strcmp(keyword, elsewhere[i]) == 0)
			return true;
	return refuse(check, path, "the test does not know the keyword", keyword);
}

static bool accepts(const struct check *check, const json_t *schema, const json_t *value,
                    const char *path)
{
	const char *keyword;
	json_t *rule;
	json_object_foreach(
	    (json_t *)schema, keyword,
	    rule) if (!accepts_keyword(check, schema, keyword, rule, value, path)) return false;
	return !json_is_object(value) || accepts_members(check, schema, value, path);
}

bool test_schema_accepts(const json_t *root, const json_t *value, char *message, size_t bytes)
{
	struct check check = {root, message, bytes};
	*message = '\0';
	return accepts(&check, root, value, "report");
}
