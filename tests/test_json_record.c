/*
 * The record parser against jansson, which has done this for years: on texts written for the
 * difficult places and on thousands of random ones, both accept or both refuse, and what they
 * accept has the same value. Known differences are named in one place, is_known_difference().
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "json_record.h"
#include "random.h"

/* ---------------------------------------------------------------- comparison */

static bool same_value(const struct tci_json *ours, const json_t *theirs);

static bool same_members(const struct tci_json *ours, const json_t *theirs)
{
	if (ours->size != json_object_size(theirs))
		return false;
	const struct tci_json *member = tci_json_first(ours);
	for (uint32_t i = 0; i < ours->size; i++, member = tci_json_next(member)) {
		const json_t *other = json_object_get(theirs, member->key);
		if (strlen(member->key) != member->key_bytes || other == NULL ||
		    tci_json_member(ours, member->key) != member || !same_value(member, other))
			return false;
	}
	return true;
}

static bool same_elements(const struct tci_json *ours, const json_t *theirs)
{
	if (ours->size != json_array_size(theirs))
		return false;
	const struct tci_json *element = tci_json_first(ours);
	for (uint32_t i = 0; i < ours->size; i++, element = tci_json_next(element)) {
		if (!same_value(element, json_array_get(theirs, i)))
			return false;
	}
	return true;
}

static bool same_value(const struct tci_json *ours, const json_t *theirs)
{
	switch (json_typeof(theirs)) {
	case JSON_OBJECT:
		return ours->type == TCI_JSON_OBJECT && same_members(ours, theirs);
	case JSON_ARRAY:
		return ours->type == TCI_JSON_ARRAY && same_elements(ours, theirs);
	case JSON_STRING:
		return ours->type == TCI_JSON_STRING &&
		       ours->text_bytes == json_string_length(theirs) &&
		       strcmp(ours->text, json_string_value(theirs)) == 0;
	case JSON_INTEGER:
		return ours->type == TCI_JSON_INTEGER &&
		       ours->integer == json_integer_value(theirs);
	case JSON_REAL: {
		char text[512];
		if (ours->type != TCI_JSON_REAL || ours->text_bytes >= sizeof text)
			return false;
		memcpy(text, ours->text, ours->text_bytes);
		text[ours->text_bytes] = '\0';
		return strtod(text, NULL) == json_real_value(theirs);
	}
	case JSON_TRUE:
		return ours->type == TCI_JSON_TRUE;
	case JSON_FALSE:
		return ours->type == TCI_JSON_FALSE;
	default:
		return ours->type == TCI_JSON_NULL;
	}
}

/** Ours keeps reals as text, so none overflows; ours nests less deep. */
static bool is_known_difference(const struct tci_json_parser *parser, const json_error_t *theirs)
{
	return json_error_code(theirs) == json_error_numeric_overflow ||
	       strstr(parser->problem, "levels of nesting") != NULL;
}

/** @return accepted by both */
static bool compare(struct tci_json_parser *parser, const char *text, size_t bytes)
{
	char *copy = malloc(bytes == 0 ? 1 : bytes);
	memcpy(copy, text, bytes);
	json_error_t problem;
	json_t *theirs =
	    json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
	const struct tci_json *ours = tci_json_parse(parser, copy, bytes);
	bool agree = (ours == NULL) == (theirs == NULL) || is_known_difference(parser, &problem);
	if (agree && ours != NULL && theirs != NULL)
		agree = same_value(ours, theirs) && ours->span == parser->count;
	if (ours == NULL && parser->problem[0] == '\0')
		agree = false;
	if (!agree)
		fail_msg("differ on %.*s\nours: %s\ntheirs: %s", (int)bytes, text,
		         ours != NULL ? "accepted" : parser->problem,
		         theirs != NULL ? "accepted" : problem.text);
	bool both = ours != NULL && theirs != NULL;
	json_decref(theirs);
	free(copy);
	return both;
}

/* ---------------------------------------------------------------- tests */

static void difficult_places(void **state)
{
	(void)state;
	static const char *const texts[] = {"",
	                                    " ",
	                                    "null",
	                                    "nul",
	                                    "nulll",
	                                    "true false",
	                                    "[]",
	                                    "{}",
	                                    "[ ]",
	                                    "{ }",
	                                    "[[],{},[{}]]",
	                                    "[1,]",
	                                    "[,1]",
	                                    "[1 2]",
	                                    "{\"a\":1,}",
	                                    "{,}",
	                                    "{\"a\"}",
	                                    "{\"a\":}",
	                                    "{a:1}",
	                                    "{1:2}",
	                                    "{\"a\":1 \"b\":2}",
	                                    "[1}",
	                                    "{\"a\":1]",
	                                    "]",
	                                    "[",
	                                    "{",
	                                    "\"",
	                                    "\"a",
	                                    "0",
	                                    "-0",
	                                    "-",
	                                    "00",
	                                    "01",
	                                    "-01",
	                                    "1.",
	                                    ".5",
	                                    "1.5",
	                                    "1e5",
	                                    "1E+5",
	                                    "1e-5",
	                                    "1e",
	                                    "1e+",
	                                    "1.e5",
	                                    "0.0e0",
	                                    "+1",
	                                    "0x10",
	                                    "1a",
	                                    "9223372036854775807",
	                                    "9223372036854775808",
	                                    "-9223372036854775808",
	                                    "-9223372036854775809",
	                                    "123456789012345678901234567890",
	                                    "NaN",
	                                    "Infinity",
	                                    "-Infinity",
	                                    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
	                                    "\"\\a\"",
	                                    "\"\\\"",
	                                    "\"\\u0041\"",
	                                    "\"\\u00e9\\u20AC\"",
	                                    "\"\\ud83d\\ude00\"",
	                                    "\"\\ud83d\"",
	                                    "\"\\ud83dx\"",
	                                    "\"\\ud83d\\u0041\"",
	                                    "\"\\ude00\"",
	                                    "\"\\u0000\"",
	                                    "\"\\u12\"",
	                                    "\"\\u12g4\"",
	                                    "\"\\U0041\"",
	                                    "\"\t\"",
	                                    "\"\x7f\"",
	                                    "\"\xc3\xa9\"",
	                                    "\"\xc3\"",
	                                    "\"\xc0\xaf\"",
	                                    "\"\xe0\x80\xaf\"",
	                                    "\"\xed\xa0\x80\"",
	                                    "\"\xf0\x9f\x98\x80\"",
	                                    "\"\xf0\x80\x80\xaf\"",
	                                    "\"\xf4\x90\x80\x80\"",
	                                    "\"\xf8\"",
	                                    "\"\xef\xbf\xbf\"",
	                                    "\"\xe2\x82\"",
	                                    "\xef\xbb\xbf{}",
	                                    "{\"a\":1,\"a\":2}",
	                                    "{\"a\":1,\"\\u0061\":2}",
	                                    "{\"a\":{\"a\":1},\"b\":{\"a\":1}}",
	                                    "{\"\":1}",
	                                    "{\"\":1,\"\":2}",
	                                    "[\"a\",\"a\"]",
	                                    "{\"a\":[1,{\"b\":[]},2],\"c\":3}",
	                                    "[0,-1,2.5,\"x\",null,true,false]",
	                                    "[1]x",
	                                    "\r\n\t [1] \r\n",
	                                    "[1]\f",
	                                    "/*x*/1",
	                                    "'a'"};
	struct tci_json_parser parser = {0};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		(void)compare(&parser, texts[i], strlen(texts[i]));
	/* A zero byte is white space to jansson's readers; here nothing but JSON is. */
	char zero[][4] = {{'[', '1', '\0', ']'}, {'"', '\0', '"', ' '}, {'1', ' ', ' ', '\0'}};
	for (size_t i = 0; i < 3; i++)
		assert_null(tci_json_parse(&parser, zero[i], 4));
	tci_json_clear(&parser);
}

/** A random value of the grammar, written to `out`; shallow enough for both. */
static void write_random(FILE *out, uint64_t *random, unsigned depth)
{
	static const char *const leaves[] = {
	    "0",    "-1",    "17",      "9007199254740991", "2.5",
	    "-1e3", "\"\"",  "\"abc\"", "\"\\n\\u00e9\"",   "\"\xe2\x82\xac\"",
	    "true", "false", "null"};
	uint64_t kind = test_random_below(random, depth > 4 ? 1 : 3);
	uint64_t count = test_random_below(random, 5);
	if (kind == 0) {
		fputs(leaves[test_random_below(random, sizeof leaves / sizeof *leaves)], out);
		return;
	}
	fputs(kind == 1 ? "[" : "{", out);
	for (uint64_t i = 0; i < count; i++) {
		fputs(i == 0 ? " " : ", ", out);
		if (kind == 2)
			fprintf(out, "\"k%d\":", (int)test_random_below(random, 20));
		write_random(out, random, depth + 1);
	}
	fputs(kind == 1 ? "]" : "}", out);
}

static void random_texts(void **state)
{
	(void)state;
	static const char likely[] = "{}[]\",:0123456789-+e.tfnu \\\n\xc3\xa9";
	struct tci_json_parser parser = {0};
	uint64_t random = 7;
	size_t accepted = 0, refused = 0;
	for (int round = 0; round < 40000; round++) {
		char *text = NULL;
		size_t bytes;
		FILE *out = open_memstream(&text, &bytes);
		write_random(out, &random, 0);
		fclose(out);
		for (uint64_t i = test_random_below(&random, 3); i > 0 && bytes > 0; i--)
			text[test_random_below(&random, bytes)] =
			    likely[test_random_below(&random, sizeof likely - 1)];
		bool both = compare(&parser, text, bytes);
		accepted += both;
		refused += !both;
		free(text);
	}
	assert_true(accepted > 5000 && refused > 5000);
	tci_json_clear(&parser);
}

/** An object of 10,000 keys: repeated ones are found, and quickly. */
static void many_keys(void **state)
{
	(void)state;
	for (int twice = 0; twice < 2; twice++) {
		char *text = NULL;
		size_t bytes;
		FILE *out = open_memstream(&text, &bytes);
		fputc('{', out);
		for (int i = 0; i < 10000; i++)
			fprintf(out, "%s\"key%d\":%d", i == 0 ? "" : ",",
			        twice && i == 9000 ? 77 : i, i);
		fputc('}', out);
		fclose(out);
		struct tci_json_parser parser = {0};
		assert_int_equal(compare(&parser, text, bytes), !twice);
		if (twice)
			assert_string_equal(parser.problem,
			                    "found key \"key77\" twice, expected each key once");
		tci_json_clear(&parser);
		free(text);
	}
}

static void nesting(void **state)
{
	(void)state;
	struct tci_json_parser parser = {0};
	char text[80];
	for (unsigned depth = 30; depth <= 35; depth++) {
		memset(text, '[', depth);
		memset(text + depth, ']', depth);
		bool accepted = tci_json_parse(&parser, text, 2 * depth) != NULL;
		assert_int_equal(accepted, depth <= TCI_JSON_DEEPEST);
	}
	tci_json_clear(&parser);
}

/** Microseconds to picoseconds, half to even; worked out by hand. */
static void scaled_numbers(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		bool fits;
		uint64_t value;
	} cases[] = {
	    {"0", true, 0},
	    {"-0", true, 0},
	    {"-0.0e9", true, 0},
	    {"1", true, 1000000},
	    {"1.5", true, 1500000},
	    {"0.1", true, 100000},
	    {"1e3", true, 1000000000},
	    {"12.5e-1", true, 1250000},
	    {"0.0000005", true, 0},
	    {"0.0000015", true, 2},
	    {"0.0000025", true, 2},
	    {"0.00000250000000000000000000001", true, 3},
	    {"0.0000004999999999999999999999", true, 0},
	    {"123456789.123456789", true, 123456789123457},
	    {"18446744073709.551615", true, UINT64_MAX},
	    {"18446744073709.551616", false, 0},
	    {"1e999", false, 0},
	    {"1e-999", true, 0},
	    {"1e-99999999999999999999", true, 0},
	    {"0e99999999999999999999", true, 0},
	    {"-1", false, 0},
	    {"-1e-9", false, 0},
	    {"10000000000000000000000e-22", true, 1000000},
	    {"0.00000000000000000000000001e26", true, 1000000},
	};
	struct tci_json_parser parser = {0};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[64];
		snprintf(text, sizeof text, "%s", cases[i].text);
		const struct tci_json *number = tci_json_parse(&parser, text, strlen(text));
		assert_non_null(number);
		uint64_t value = 0;
		bool fits = tci_json_scaled(number, 6, &value);
		if (fits != cases[i].fits || (fits && value != cases[i].value))
			fail_msg("%s gives %llu", cases[i].text, (unsigned long long)value);
	}
	tci_json_clear(&parser);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(difficult_places), cmocka_unit_test(random_texts),
	    cmocka_unit_test(many_keys),        cmocka_unit_test(nesting),
	    cmocka_unit_test(scaled_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
