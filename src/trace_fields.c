/* Findings, and typed access to the members of a JSON record. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"
#include "trace_reader.h"

/** One finding is cut here, so that twenty of them fit into an error. */
#define FINDING_BYTES 380

const char *const tci_section_names[TCI_SECTION_COUNT] = {"tensors", "modules", "events", "unpacks",
                                                          "ops"};

/* ---------------------------------------------------------------- findings */

static int print_subject(const struct tci_reader *reader, char *buffer, size_t bytes)
{
	const struct tci_subject *subject = &reader->subject;
	char line[32] = "", id[160] = "";
	if (subject->line > 0)
		snprintf(line, sizeof line, ":%llu", (unsigned long long)subject->line);
	if (subject->word != NULL && subject->name != NULL && subject->name[0] != '\0')
		snprintf(id, sizeof id, " %s %llu (%.100s):", subject->word,
		         (unsigned long long)subject->id, subject->name);
	else if (subject->word != NULL)
		snprintf(id, sizeof id, " %s %llu:", subject->word,
		         (unsigned long long)subject->id);
	return snprintf(buffer, bytes, "%.160s%s:%s ", reader->file, line, id);
}

/** Control characters from a file do not reach a terminal. */
static void make_printable(char *text)
{
	for (; *text != '\0'; text++) {
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
	}
}

static void print_message(const struct tci_reader *reader, char buffer[FINDING_BYTES],
                          const char *format, va_list arguments) TC_PRINTF(3, 0);
static void print_message(const struct tci_reader *reader, char buffer[FINDING_BYTES],
                          const char *format, va_list arguments)
{
	int used = print_subject(reader, buffer, FINDING_BYTES);
	if (used >= 0 && used < FINDING_BYTES)
		(void)vsnprintf(buffer + used, (size_t)(FINDING_BYTES - used), format, arguments);
	make_printable(buffer);
}

void tci_finding(struct tci_reader *reader, const char *format, ...)
{
	const char *word = reader->subject.word;
	reader->events_broken =
	    reader->events_broken || (word != NULL && strcmp(word, "event") == 0);
	if (++reader->finding_count > TCI_SHOWN_FINDINGS)
		return;
	char message[FINDING_BYTES];
	va_list arguments;
	va_start(arguments, format);
	print_message(reader, message, format, arguments);
	va_end(arguments);
	size_t room = sizeof reader->findings - reader->findings_bytes;
	int used = snprintf(reader->findings + reader->findings_bytes, room, "%s%s",
	                    reader->findings_bytes == 0 ? "" : "\n", message);
	if (used > 0 && (size_t)used < room)
		reader->findings_bytes += (size_t)used;
}

void tci_warning(struct tci_reader *reader, const char *format, ...)
{
	struct tc_trace *trace = reader->trace;
	if (trace->warning_count >= TCI_SHOWN_FINDINGS) {
		trace->warnings_suppressed++;
		return;
	}
	char message[FINDING_BYTES];
	va_list arguments;
	va_start(arguments, format);
	print_message(reader, message, format, arguments);
	va_end(arguments);
	char *copy = tci_blocks_take(reader->blocks, strlen(message) + 1, 1);
	if (copy == NULL || !tc_grow_array(&trace->warnings, &reader->warning_capacity,
	                                   trace->warning_count + 1u, sizeof *trace->warnings)) {
		(void)tci_out_of_memory(reader);
		return;
	}
	strcpy(copy, message);
	trace->warnings[trace->warning_count++] = copy;
}

void *tci_out_of_memory(struct tci_reader *reader)
{
	reader->fatal = TC_NO_MEMORY;
	return NULL;
}

void tci_about(struct tci_reader *reader, const char *word, uint64_t id, const char *name)
{
	reader->subject.word = word;
	reader->subject.id = id;
	reader->subject.name = name;
}

const char *tci_found(const struct tci_json *value, char buffer[64])
{
	switch (value->type) {
	case TCI_JSON_OBJECT:
		return "an object";
	case TCI_JSON_ARRAY:
		return "an array";
	case TCI_JSON_STRING:
		snprintf(buffer, 64, "\"%.40s\"", value->text);
		return buffer;
	case TCI_JSON_INTEGER:
	case TCI_JSON_REAL:
		snprintf(buffer, 64, "%.*s", value->text_bytes < 40 ? (int)value->text_bytes : 40,
		         value->text);
		return buffer;
	case TCI_JSON_TRUE:
		return "true";
	case TCI_JSON_FALSE:
		return "false";
	default:
		return "null";
	}
}

/* ---------------------------------------------------------------- members */

static const char *type_name(enum tci_json_type type)
{
	switch (type) {
	case TCI_JSON_OBJECT:
		return "an object";
	case TCI_JSON_ARRAY:
		return "an array";
	case TCI_JSON_STRING:
		return "a string";
	default:
		return "an integer";
	}
}

bool tci_get(struct tci_reader *reader, const struct tci_json *object, const char *key,
             enum tci_need need, enum tci_json_type type, const struct tci_json **value)
{
	const struct tci_json *member = tci_json_member(object, key);
	if (member == NULL) {
		if (need == TCI_REQUIRED)
			tci_finding(reader, "key \"%s\" is missing, expected %s", key,
			            type_name(type));
		return false;
	}
	if (member->type != type) {
		char buffer[64];
		tci_finding(reader, "\"%s\" is %s, expected %s", key, tci_found(member, buffer),
		            type_name(type));
		return false;
	}
	*value = member;
	return true;
}

bool tci_get_integer(struct tci_reader *reader, const struct tci_json *object, const char *key,
                     enum tci_need need, uint64_t smallest, uint64_t largest, uint64_t *value)
{
	const struct tci_json *member;
	if (!tci_get(reader, object, key, need, TCI_JSON_INTEGER, &member))
		return false;
	int64_t number = member->integer;
	if (number < 0 || (uint64_t)number < smallest || (uint64_t)number > largest) {
		tci_finding(reader, "\"%s\" is %" PRId64 ", expected an integer from %llu to %llu",
		            key, number, (unsigned long long)smallest, (unsigned long long)largest);
		return false;
	}
	*value = (uint64_t)number;
	return true;
}

/** The id that `member` holds, or a finding. */
static bool read_id(struct tci_reader *reader, const struct tci_json *member, const char *key,
                    uint32_t count, const char *what, uint32_t *value)
{
	char buffer[64];
	if (member->type != TCI_JSON_INTEGER || member->integer < 0 ||
	    (uint64_t)member->integer >= count) {
		if (count == 0)
			tci_finding(reader, "\"%s\" holds %s, but the trace has no %s", key,
			            tci_found(member, buffer), what);
		else
			tci_finding(reader, "\"%s\" holds %s, expected one of the %s 0 to %u", key,
			            tci_found(member, buffer), what, count - 1);
		return false;
	}
	*value = (uint32_t)member->integer;
	return true;
}

bool tci_get_id(struct tci_reader *reader, const struct tci_json *object, const char *key,
                enum tci_need need, uint32_t count, const char *what, uint32_t *value)
{
	const struct tci_json *member = tci_json_member(object, key);
	if (member == NULL) {
		if (need == TCI_REQUIRED)
			tci_finding(reader, "key \"%s\" is missing, expected one of the %s", key,
			            what);
		return false;
	}
	return read_id(reader, member, key, count, what, value);
}

bool tci_get_string(struct tci_reader *reader, const struct tci_json *object, const char *key,
                    enum tci_need need, const char **value)
{
	const struct tci_json *member;
	if (!tci_get(reader, object, key, need, TCI_JSON_STRING, &member))
		return false;
	const char *copy = tci_blocks_string(reader->blocks, member->text);
	if (copy == NULL) {
		(void)tci_out_of_memory(reader);
		return false;
	}
	*value = copy;
	return true;
}

bool tci_get_word(struct tci_reader *reader, const struct tci_json *object, const char *key,
                  enum tci_need need, const struct tci_words *words, unsigned *value)
{
	const struct tci_json *member;
	if (!tci_get(reader, object, key, need, TCI_JSON_STRING, &member))
		return false;
	const char *text = member->text;
	if (tci_word_find(words, text, value))
		return true;
	char known[256] = "";
	size_t used = 0;
	for (size_t i = 0; i < words->count && used < sizeof known; i++)
		used += (size_t)snprintf(known + used, sizeof known - used, "%s%s",
		                         i == 0 ? "" : ", ", words->items[i].text);
	tci_finding(reader, "\"%s\" is \"%.40s\", expected one of %s", key, text, known);
	return false;
}

bool tci_get_dtype(struct tci_reader *reader, const struct tci_json *object, const char *key,
                   enum tc_dtype *dtype, uint64_t *element_bytes)
{
	const struct tci_json *member;
	if (!tci_get(reader, object, key, TCI_OPTIONAL, TCI_JSON_STRING, &member))
		return false;
	if (tci_dtype_find(member->text, dtype, element_bytes))
		return true;
	tci_finding(reader,
	            "\"%s\" is \"%.40s\", expected a PyTorch data type such as float32, bfloat16, "
	            "float16, int64 or bool",
	            key, member->text);
	return false;
}

bool tci_get_flag(struct tci_reader *reader, const struct tci_json *object, const char *key,
                  bool *value)
{
	const struct tci_json *member = tci_json_member(object, key);
	if (member == NULL)
		return false;
	bool is_bit =
	    member->type == TCI_JSON_INTEGER && (member->integer == 0 || member->integer == 1);
	if (!is_bit && member->type != TCI_JSON_TRUE && member->type != TCI_JSON_FALSE) {
		char buffer[64];
		tci_finding(reader, "\"%s\" is %s, expected true or false", key,
		            tci_found(member, buffer));
		return false;
	}
	*value = is_bit ? member->integer == 1 : member->type == TCI_JSON_TRUE;
	return true;
}

static int compare_ids(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	return (a > b) - (a < b);
}

/** Find an id that comes twice. Short lists, the usual ones, need no memory. */
static void refuse_repeated(struct tci_reader *reader, const char *key, const struct tc_ids *ids)
{
	if (ids->count <= 32) {
		for (uint32_t i = 1; i < ids->count; i++) {
			for (uint32_t k = 0; k < i; k++) {
				if (ids->items[i] == ids->items[k])
					tci_finding(reader, "\"%s\" holds %u twice", key,
					            ids->items[i]);
			}
		}
		return;
	}
	uint32_t *sorted = tc_alloc_array(ids->count, sizeof *sorted);
	if (sorted == NULL) {
		(void)tci_out_of_memory(reader);
		return;
	}
	memcpy(sorted, ids->items, ids->count * sizeof *sorted);
	qsort(sorted, ids->count, sizeof *sorted, compare_ids);
	for (uint32_t i = 1; i < ids->count; i++) {
		if (sorted[i] == sorted[i - 1])
			tci_finding(reader, "\"%s\" holds %u twice", key, sorted[i]);
	}
	free(sorted);
}

bool tci_read_ids(struct tci_reader *reader, const struct tci_json *list, const char *key,
                  uint32_t count, const char *what, struct tc_ids *ids)
{
	uint32_t size = list->size;
	uint32_t *items = tci_blocks_take(reader->blocks, size, sizeof *items);
	if (items == NULL) {
		(void)tci_out_of_memory(reader);
		return false;
	}
	const struct tci_json *member = tci_json_first(list);
	for (uint32_t i = 0; i < size; i++, member = tci_json_next(member)) {
		uint32_t id;
		if (read_id(reader, member, key, count, what, &id))
			items[ids->count++] = id;
	}
	ids->items = items;
	refuse_repeated(reader, key, ids);
	return true;
}

void tci_get_ids(struct tci_reader *reader, const struct tci_json *object, const char *key,
                 enum tci_need need, uint32_t count, const char *what, struct tc_ids *ids)
{
	const struct tci_json *list;
	if (tci_get(reader, object, key, need, TCI_JSON_ARRAY, &list))
		(void)tci_read_ids(reader, list, key, count, what, ids);
}

void *tci_add_record(struct tci_reader *reader, enum tci_section section)
{
	struct tc_trace *trace = reader->trace;
	size_t *capacity = &reader->capacity[section];
	bool grown = false;
	void *record = NULL;
	switch (section) {
	case TCI_TENSORS:
		grown = tc_grow_array(&trace->tensors, capacity, trace->tensor_count + (size_t)1,
		                      sizeof *trace->tensors);
		record = grown ? &trace->tensors[trace->tensor_count++] : NULL;
		break;
	case TCI_MODULES:
		grown = tc_grow_array(&trace->modules, capacity, trace->module_count + (size_t)1,
		                      sizeof *trace->modules);
		record = grown ? &trace->modules[trace->module_count++] : NULL;
		break;
	case TCI_EVENTS:
		grown = tc_grow_array(&trace->events, capacity, trace->event_count + (size_t)1,
		                      sizeof *trace->events);
		record = grown ? &trace->events[trace->event_count++] : NULL;
		break;
	case TCI_UNPACKS:
		grown = tc_grow_array(&trace->unpacks, capacity, trace->unpack_count + (size_t)1,
		                      sizeof *trace->unpacks);
		record = grown ? &trace->unpacks[trace->unpack_count++] : NULL;
		break;
	default:
		grown = tc_grow_array(&trace->ops, capacity, trace->op_count + (size_t)1,
		                      sizeof *trace->ops);
		record = grown ? &trace->ops[trace->op_count++] : NULL;
		break;
	}
	return grown ? record : tci_out_of_memory(reader);
}
