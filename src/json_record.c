/* One pass, a stack of open containers instead of recursion, strings decoded in place. */
#include "json_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

struct cursor {
	struct tci_json_parser *parser;
	char *at, *end;
	uint32_t open[TCI_JSON_DEEPEST]; /* nodes of the containers that are open */
	uint32_t depth;
	const char *key; /* of the value that comes next */
	uint32_t key_bytes;
};

void tci_json_clear(struct tci_json_parser *parser)
{
	free(parser->nodes);
	*parser = (struct tci_json_parser){0};
}

static bool fail(struct cursor *cursor, const char *expected)
{
	char found[24] = "the end";
	unsigned char byte = cursor->at < cursor->end ? (unsigned char)*cursor->at : 0;
	if (byte > 0x20 && byte < 0x7f)
		snprintf(found, sizeof found, "'%c'", byte);
	else if (cursor->at < cursor->end)
		snprintf(found, sizeof found, "byte 0x%02x", byte);
	snprintf(cursor->parser->problem, sizeof cursor->parser->problem, "found %s, expected %s",
	         found, expected);
	return false;
}

static void skip_space(struct cursor *cursor)
{
	while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\n' ||
	                                    *cursor->at == '\r' || *cursor->at == '\t'))
		cursor->at++;
}

/** The next byte, or 0 at the end (a zero byte is an error wherever one comes). */
static char peek(const struct cursor *cursor)
{
	return cursor->at < cursor->end ? *cursor->at : '\0';
}

/* ---------------------------------------------------------------- strings */

/** Bytes of a well-formed UTF-8 sequence that begins at `at`, or 0 (RFC 3629, section 4). */
static size_t utf8_length(const unsigned char *at, const unsigned char *end)
{
	size_t length = at[0] < 0xc2   ? 0
	                : at[0] < 0xe0 ? 2
	                : at[0] < 0xf0 ? 3
	                : at[0] < 0xf5 ? 4
	                               : 0;
	if (length == 0 || (size_t)(end - at) < length)
		return 0;
	for (size_t i = 1; i < length; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	}
	bool overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
	bool surrogate = at[0] == 0xed && at[1] > 0x9f;
	bool too_large = at[0] == 0xf4 && at[1] > 0x8f;
	return overlong || surrogate || too_large ? 0 : length;
}

static bool read_hex(struct cursor *cursor, uint32_t *code)
{
	*code = 0;
	for (int i = 0; i < 4; i++, cursor->at++) {
		char digit = peek(cursor);
		uint32_t value;
		if (digit >= '0' && digit <= '9')
			value = (uint32_t)(digit - '0');
		else if (digit >= 'a' && digit <= 'f')
			value = (uint32_t)(digit - 'a') + 10;
		else if (digit >= 'A' && digit <= 'F')
			value = (uint32_t)(digit - 'A') + 10;
		else
			return fail(cursor, "four hexadecimal digits after \\u");
		*code = *code * 16 + value;
	}
	return true;
}

/** After "\u": one code point, from a surrogate pair where it needs one. */
static bool read_code_point(struct cursor *cursor, uint32_t *code)
{
	uint32_t low;
	if (!read_hex(cursor, code))
		return false;
	if (*code == 0) {
		snprintf(cursor->parser->problem, sizeof cursor->parser->problem,
		         "found \\u0000 in a string, expected no zero character");
		return false;
	}
	if (*code < 0xd800 || *code > 0xdfff)
		return true;
	if (*code > 0xdbff || peek(cursor) != '\\' || cursor->end - cursor->at < 2 ||
	    cursor->at[1] != 'u')
		return fail(cursor, "a pair of surrogates");
	cursor->at += 2;
	if (!read_hex(cursor, &low))
		return false;
	if (low < 0xdc00 || low > 0xdfff)
		return fail(cursor, "a pair of surrogates");
	*code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
	return true;
}

/** Never longer than the escape it replaces. */
static char *put_utf8(char *out, uint32_t code)
{
	if (code < 0x80) {
		*out++ = (char)code;
		return out;
	}
	if (code < 0x800) {
		*out++ = (char)(0xc0 | (code >> 6));
	} else {
		if (code < 0x10000) {
			*out++ = (char)(0xe0 | (code >> 12));
		} else {
			*out++ = (char)(0xf0 | (code >> 18));
			*out++ = (char)(0x80 | ((code >> 12) & 0x3f));
		}
		*out++ = (char)(0x80 | ((code >> 6) & 0x3f));
	}
	*out++ = (char)(0x80 | (code & 0x3f));
	return out;
}

/** At a backslash. */
static bool read_escape(struct cursor *cursor, char **out)
{
	static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	cursor->at++;
	char letter = peek(cursor);
	if (letter == 'u') {
		uint32_t code;
		cursor->at++;
		if (!read_code_point(cursor, &code))
			return false;
		*out = put_utf8(*out, code);
		return true;
	}
	const char *known = letter == '\0' ? NULL : strchr(letters, letter);
	if (known == NULL)
		return fail(cursor, "an escape: one of \" \\ / b f n r t u");
	*(*out)++ = values[known - letters];
	cursor->at++;
	return true;
}

/** At a quote. The string is decoded to where it stands, and ended by a zero byte. */
static bool read_string(struct cursor *cursor, const char **text, uint32_t *bytes)
{
	char *begin = ++cursor->at, *out = begin;
	for (;;) {
		if (cursor->at == cursor->end)
			return fail(cursor, "'\"' at the end of a string");
		unsigned char byte = (unsigned char)*cursor->at;
		if (byte == '"')
			break;
		if (byte == '\\') {
			if (!read_escape(cursor, &out))
				return false;
		} else if (byte < 0x20) {
			return fail(cursor, "no control character in a string");
		} else {
			size_t length = 1;
			if (byte >= 0x80)
				length = utf8_length((const unsigned char *)cursor->at,
				                     (const unsigned char *)cursor->end);
			if (length == 0)
				return fail(cursor, "UTF-8");
			while (length-- > 0)
				*out++ = *cursor->at++;
		}
	}
	*out = '\0';
	*text = begin;
	*bytes = (uint32_t)(out - begin);
	cursor->at++;
	return true;
}

/* ---------------------------------------------------------------- numbers and words */

static bool is_digit(char byte)
{
	return byte >= '0' && byte <= '9';
}

static bool skip_digits(struct cursor *cursor)
{
	if (!is_digit(peek(cursor)))
		return fail(cursor, "a digit");
	while (is_digit(peek(cursor)))
		cursor->at++;
	return true;
}

/** The digits of an integer, as the negative number that they make with a minus: that range is the
 * larger one. */
static bool accumulate(const char *at, const char *end, int64_t *negative)
{
	*negative = 0;
	for (; at < end; at++) {
		int digit = *at - '0';
		if (*negative < (INT64_MIN + digit) / 10)
			return false;
		*negative = *negative * 10 - digit;
	}
	return true;
}

static bool read_number(struct cursor *cursor, struct tci_json *node)
{
	const char *begin = cursor->at;
	bool minus = *begin == '-';
	cursor->at += minus;
	const char *digits = cursor->at;
	if (!skip_digits(cursor))
		return false;
	if (*digits == '0' && cursor->at - digits > 1) {
		cursor->at -= cursor->at - digits - 1;
		return fail(cursor, "no digit after a leading zero");
	}
	node->type = TCI_JSON_INTEGER;
	const char *end = cursor->at;
	if (peek(cursor) == '.') {
		node->type = TCI_JSON_REAL;
		cursor->at++;
		if (!skip_digits(cursor))
			return false;
	}
	if (peek(cursor) == 'e' || peek(cursor) == 'E') {
		node->type = TCI_JSON_REAL;
		cursor->at++;
		cursor->at += peek(cursor) == '+' || peek(cursor) == '-';
		if (!skip_digits(cursor))
			return false;
	}
	node->text = begin;
	node->text_bytes = (uint32_t)(cursor->at - begin);
	if (node->type == TCI_JSON_REAL)
		return true;
	int64_t negative;
	if (!accumulate(digits, end, &negative) || (!minus && negative == INT64_MIN)) {
		snprintf(cursor->parser->problem, sizeof cursor->parser->problem,
		         "found %.*s, expected an integer below 2^63",
		         (int)(node->text_bytes < 40 ? node->text_bytes : 40), begin);
		return false;
	}
	node->integer = minus ? negative : -negative;
	return true;
}

static bool read_word(struct cursor *cursor, struct tci_json *node)
{
	static const struct {
		const char *text;
		enum tci_json_type type;
	} words[] = {{"true", TCI_JSON_TRUE}, {"false", TCI_JSON_FALSE}, {"null", TCI_JSON_NULL}};
	for (size_t i = 0; i < 3; i++) {
		size_t length = strlen(words[i].text);
		if ((size_t)(cursor->end - cursor->at) >= length &&
		    memcmp(cursor->at, words[i].text, length) == 0) {
			node->type = words[i].type;
			cursor->at += length;
			return true;
		}
	}
	return fail(cursor, "a value");
}

/* ---------------------------------------------------------------- objects */

static int compare_keys(const void *left, const void *right)
{
	const struct tci_json *a = *(const struct tci_json *const *)left;
	const struct tci_json *b = *(const struct tci_json *const *)right;
	if (a->key_bytes != b->key_bytes)
		return a->key_bytes < b->key_bytes ? -1 : 1;
	return memcmp(a->key, b->key, a->key_bytes);
}

static bool refuse_key(struct cursor *cursor, const char *key)
{
	snprintf(cursor->parser->problem, sizeof cursor->parser->problem,
	         "found key \"%.40s\" twice, expected each key once", key);
	return false;
}

/** Objects of usual size: each pair. */
static bool check_few_keys(struct cursor *cursor, const struct tci_json *object)
{
	const struct tci_json *member = tci_json_first(object);
	for (uint32_t i = 0; i < object->size; i++, member = tci_json_next(member)) {
		const struct tci_json *other = tci_json_first(object);
		for (; other != member; other = tci_json_next(other)) {
			if (other->key_bytes == member->key_bytes &&
			    memcmp(other->key, member->key, member->key_bytes) == 0)
				return refuse_key(cursor, member->key);
		}
	}
	return true;
}

static bool check_keys(struct cursor *cursor, const struct tci_json *object)
{
	if (object->size <= 32)
		return check_few_keys(cursor, object);
	const struct tci_json **sorted = tc_alloc_array(object->size, sizeof *sorted);
	if (sorted == NULL)
		return false;
	const struct tci_json *member = tci_json_first(object);
	for (uint32_t i = 0; i < object->size; i++, member = tci_json_next(member))
		sorted[i] = member;
	qsort(sorted, object->size, sizeof *sorted, compare_keys);
	bool right = true;
	for (uint32_t i = 1; i < object->size && right; i++) {
		if (compare_keys(&sorted[i - 1], &sorted[i]) == 0)
			right = refuse_key(cursor, sorted[i]->key);
	}
	free(sorted);
	return right;
}

/* ---------------------------------------------------------------- values */

static bool read_key(struct cursor *cursor)
{
	skip_space(cursor);
	if (peek(cursor) != '"')
		return fail(cursor, "a key");
	if (!read_string(cursor, &cursor->key, &cursor->key_bytes))
		return false;
	skip_space(cursor);
	if (peek(cursor) != ':')
		return fail(cursor, "':'");
	cursor->at++;
	return true;
}

/** A container has begun: its first key, or nothing when it is empty (`*value_follows` false). */
static bool open_container(struct cursor *cursor, struct tci_json *node, bool *value_follows)
{
	if (cursor->depth == TCI_JSON_DEEPEST)
		return fail(cursor, "at most 32 levels of nesting");
	bool is_object = *cursor->at == '{';
	node->type = is_object ? TCI_JSON_OBJECT : TCI_JSON_ARRAY;
	cursor->open[cursor->depth++] = (uint32_t)(node - cursor->parser->nodes);
	cursor->at++;
	skip_space(cursor);
	*value_follows = peek(cursor) != (is_object ? '}' : ']');
	return !*value_follows || !is_object || read_key(cursor);
}

/** The beginning of a value; a container stays open. */
static bool read_value(struct cursor *cursor, bool *value_follows)
{
	struct tci_json_parser *parser = cursor->parser;
	*value_follows = false;
	if (!tc_grow_array(&parser->nodes, &parser->capacity, parser->count + 1,
	                   sizeof *parser->nodes))
		return false;
	struct tci_json *node = &parser->nodes[parser->count++];
	*node = (struct tci_json){.span = 1, .key = cursor->key, .key_bytes = cursor->key_bytes};
	cursor->key = NULL;
	cursor->key_bytes = 0;
	skip_space(cursor);
	char first = peek(cursor);
	if (first == '{' || first == '[')
		return open_container(cursor, node, value_follows);
	if (first == '"') {
		node->type = TCI_JSON_STRING;
		return read_string(cursor, &node->text, &node->text_bytes);
	}
	return first == '-' || is_digit(first) ? read_number(cursor, node)
	                                       : read_word(cursor, node);
}

/** After a value: close what ends here, or go on to the next value of what is open. */
static bool read_after(struct cursor *cursor, bool *value_follows)
{
	struct tci_json *nodes = cursor->parser->nodes;
	while (cursor->depth > 0 && !*value_follows) {
		struct tci_json *container = &nodes[cursor->open[cursor->depth - 1]];
		bool is_object = container->type == TCI_JSON_OBJECT;
		skip_space(cursor);
		if (peek(cursor) == ',' && container->size > 0) {
			cursor->at++;
			*value_follows = true;
			return !is_object || read_key(cursor);
		}
		if (peek(cursor) != (is_object ? '}' : ']'))
			return fail(cursor, is_object ? "',' or '}'" : "',' or ']'");
		cursor->at++;
		cursor->depth--;
		container->span = (uint32_t)(cursor->parser->count - (size_t)(container - nodes));
		if (is_object && !check_keys(cursor, container))
			return false;
		if (cursor->depth > 0)
			nodes[cursor->open[cursor->depth - 1]].size++;
	}
	return true;
}

const struct tci_json *tci_json_parse(struct tci_json_parser *parser, char *text, size_t bytes)
{
	struct cursor cursor = {.parser = parser, .at = text, .end = text + bytes};
	parser->count = 0;
	parser->problem[0] = '\0';
	for (bool follows = true; follows;) {
		if (!read_value(&cursor, &follows))
			return NULL;
		if (follows)
			continue;
		/* A whole value that lies in a container counts there; an empty container closes
		 * itself in read_after(). */
		const struct tci_json *last = &parser->nodes[parser->count - 1];
		bool is_open =
		    cursor.depth > 0 && &parser->nodes[cursor.open[cursor.depth - 1]] == last;
		if (!is_open && cursor.depth > 0)
			parser->nodes[cursor.open[cursor.depth - 1]].size++;
		if (!read_after(&cursor, &follows))
			return NULL;
	}
	skip_space(&cursor);
	if (cursor.at != cursor.end) {
		(void)fail(&cursor, "nothing after the value");
		return NULL;
	}
	return parser->nodes;
}

const struct tci_json *tci_json_member(const struct tci_json *object, const char *key)
{
	size_t length = strlen(key);
	const struct tci_json *member = tci_json_first(object);
	for (uint32_t i = 0; i < object->size; i++, member = tci_json_next(member)) {
		if (member->key_bytes == length && memcmp(member->key, key, length) == 0)
			return member;
	}
	return NULL;
}
