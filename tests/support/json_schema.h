/**
 * @file json_schema.h
 * The part of JSON Schema that our schemas use: type, const, enum, minimum, pattern, required,
 * properties, additionalProperties, items, $ref into the same document, if and then. Any other
 * keyword ends the test, so that none is silently ignored.
 */
#ifndef TENCACHE_TEST_JSON_SCHEMA_H
#define TENCACHE_TEST_JSON_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/** Does `value` satisfy the schema document `root`? If not, `message` says where. */
bool test_schema_accepts(const json_t *root, const json_t *value, char *message, size_t bytes);

#endif
