/*
 * Text of JSON records. Strings are escaped by jansson, numbers written by hand: a schedule is
 * mostly numbers.
 */
#include "schedule_text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

static void fail(struct tci_text *text, enum tc_status status)
{
	if (text->status == TC_OK)
		text->status = status;
}

void tci_text_clear(struct tci_text *text)
{
	free(text->data);
	*text = (struct tci_text){0};
}

void tci_text_begin(struct tci_text *text)
{
	text->bytes = 0;
	text->status = TC_OK;
	text->what = "";
}

static void append(struct tci_text *text, const char *characters, size_t bytes)
{
	if (!tc_grow_array(&text->data, &text->capacity, text->bytes + bytes + 1, 1)) {
		fail(text, TC_NO_MEMORY);
		return;
	}
	memcpy(text->data + text->bytes, characters, bytes);
	text->bytes += bytes;
	text->data[text->bytes] = '\0';
}

void tci_text_raw(struct tci_text *text, const char *characters)
{
	append(text, characters, strlen(characters));
}

void tci_text_comma(struct tci_text *text)
{
	if (text->bytes > 0 && strchr("{[:", text->data[text->bytes - 1]) == NULL)
		append(text, ",", 1);
}

void tci_text_key(struct tci_text *text, const char *key)
{
	tci_text_comma(text);
	append(text, "\"", 1);
	tci_text_raw(text, key);
	append(text, "\":", 2);
	if (text->status == TC_OK)
		text->what = key;
}

void tci_text_number(struct tci_text *text, uint64_t value)
{
	char digits[20];
	size_t first = sizeof digits;
	if (value > TC_MAX_JSON_INTEGER)
		fail(text, TC_TOO_LARGE);
	do {
		digits[--first] = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0);
	append(text, digits + first, sizeof digits - first);
}

void tci_text_signed(struct tci_text *text, int64_t value)
{
	if (value < 0)
		append(text, "-", 1);
	tci_text_number(text, value < 0 ? (uint64_t)0 - (uint64_t)value : (uint64_t)value);
}

void tci_text_string(struct tci_text *text, const char *value)
{
	json_t *string = json_string(value != NULL ? value : "");
	char *escaped = string == NULL ? NULL : json_dumps(string, JSON_ENCODE_ANY);
	if (escaped == NULL)
		fail(text, TC_ARGUMENT);
	else
		tci_text_raw(text, escaped);
	free(escaped);
	json_decref(string);
}

void tci_text_key_number(struct tci_text *text, const char *key, uint64_t value)
{
	tci_text_key(text, key);
	tci_text_number(text, value);
}

void tci_text_key_string(struct tci_text *text, const char *key, const char *value)
{
	tci_text_key(text, key);
	tci_text_string(text, value);
}

void tci_text_key_word(struct tci_text *text, const char *key, const char *word)
{
	tci_text_key(text, key);
	append(text, "\"", 1);
	tci_text_raw(text, word);
	append(text, "\"", 1);
}
