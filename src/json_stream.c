/* Finds where JSON values begin and end: strings, escapes, brackets and their depth; whether the
 * text in between is right is for the parser of each record to say. */
#include "json_stream.h"

#include "json_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum state { AT_START, IN_LINES, IN_ARRAY, AFTER_ARRAY, AT_END };

void tci_json_stream_begin(struct tci_json_stream *stream, struct tci_source *source,
                           const char *const *names, unsigned name_count)
{
	*stream = (struct tci_json_stream){
	    .source = source, .names = names, .name_count = name_count, .line = 1};
}

void tci_json_stream_end(struct tci_json_stream *stream)
{
	free(stream->header);
	stream->header = NULL;
}

static enum tc_status refuse(const struct tci_json_stream *stream, const char *what,
                             struct tc_error *error)
{
	return tc_error_set(error, TC_FORMAT, "%s:%llu: %s", stream->source->name,
	                    (unsigned long long)stream->line, what);
}

static enum tc_status refuse_end(const struct tci_json_stream *stream, const char *where,
                                 struct tc_error *error)
{
	return tc_error_set(error, TC_FORMAT, "%s:%llu: the file ends inside %s: it is truncated",
	                    stream->source->name, (unsigned long long)stream->line, where);
}

/** Say what stands where something else was expected. */
static enum tc_status refuse_byte(const struct tci_json_stream *stream, unsigned char byte,
                                  const char *expected, struct tc_error *error)
{
	char found[16];
	if (byte >= 0x20 && byte < 0x7f)
		snprintf(found, sizeof found, "'%c'", byte);
	else
		snprintf(found, sizeof found, "byte 0x%02x", byte);
	return tc_error_set(error, TC_FORMAT, "%s:%llu: found %s, expected %s",
	                    stream->source->name, (unsigned long long)stream->line, found,
	                    expected);
}

/* ---------------------------------------------------------------- moving on */

static uint64_t count_lines(const char *at, size_t bytes)
{
	const char *end = at + bytes;
	uint64_t lines = 0;
	while (at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
		lines++;
		at++;
	}
	return lines;
}

static void consume(struct tci_json_stream *stream, size_t bytes)
{
	if (bytes == 0)
		return; /* before the first read there is no window to point into */
	stream->line += count_lines(stream->source->window + stream->source->begin, bytes);
	tci_source_skip(stream->source, bytes);
}

/** What has been handed out is consumed at the next call. */
static void set_pending(struct tci_json_stream *stream, size_t bytes)
{
	stream->pending = bytes;
	stream->pending_lines = count_lines(stream->source->window + stream->source->begin, bytes);
}

/**
 * Make byte `offset` after the window's begin available.
 * @param available false when the input ends before it
 */
static enum tc_status need(struct tci_json_stream *stream, size_t offset, bool *available,
                           struct tc_error *error)
{
	struct tci_source *source = stream->source;
	while (source->end - source->begin <= offset && !source->at_end)
		TC_TRY(tci_source_more(source, error));
	*available = source->end - source->begin > offset;
	return TC_OK;
}

static bool is_space(char byte)
{
	return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

/** Consume white space. `*next` is the byte that follows, or -1 at the end. */
static enum tc_status skip_space(struct tci_json_stream *stream, int *next, struct tc_error *error)
{
	struct tci_source *source = stream->source;
	for (;;) {
		size_t count = 0, limit = source->end - source->begin;
		const char *at = source->window + source->begin;
		while (count < limit && is_space(at[count]))
			count++;
		if (count < limit)
			*next = (unsigned char)at[count];
		consume(stream, count);
		if (count < limit)
			return TC_OK;
		*next = -1;
		if (source->at_end)
			return TC_OK;
		TC_TRY(tci_source_more(source, error));
	}
}

/* ---------------------------------------------------------------- values */

static bool ends_scalar(char byte)
{
	return is_space(byte) || byte == ',' || byte == '}' || byte == ']' || byte == '"' ||
	       byte == '{' || byte == '[' || byte == ':';
}

static enum tc_status scan_scalar(struct tci_json_stream *stream, size_t from, size_t *end,
                                  struct tc_error *error)
{
	size_t offset = from;
	for (;; offset++) {
		bool available;
		TC_TRY(need(stream, offset, &available, error));
		const char *at = stream->source->window + stream->source->begin;
		if (!available || ends_scalar(at[offset]))
			break;
		if (offset - from > 4096)
			return refuse(stream, "a number or word longer than 4096 bytes", error);
	}
	if (offset == from) {
		bool available;
		TC_TRY(need(stream, from, &available, error));
		if (!available)
			return refuse_end(stream, "a record", error);
		return refuse_byte(
		    stream, (unsigned char)stream->source->window[stream->source->begin + from],
		    "a value", error);
	}
	*end = offset;
	return TC_OK;
}

/** Find the end of the value that begins `from` bytes after the window's begin. */
static enum tc_status scan_value(struct tci_json_stream *stream, size_t from, size_t *end,
                                 struct tc_error *error)
{
	struct tci_source *source = stream->source;
	bool available;
	TC_TRY(need(stream, from, &available, error));
	if (!available)
		return refuse_end(stream, "a record", error);
	char first = source->window[source->begin + from];
	if (first != '{' && first != '[' && first != '"')
		return scan_scalar(stream, from, end, error);
	struct tci_json_scan scan = {0};
	for (size_t offset = from;;) {
		size_t limit = source->end - source->begin;
		*end = tci_json_scan(&scan, source->window + source->begin, offset, limit);
		if (scan.depth > TCI_DEEPEST_RECORD)
			return refuse(stream, "brackets nested deeper than 32 levels", error);
		if ((*end != 0 ? *end : limit) - from > TCI_LARGEST_RECORD_BYTES)
			return refuse(stream, "a record larger than 4 MiB", error);
		if (*end != 0)
			return TC_OK;
		offset = limit;
		if (source->at_end)
			return refuse_end(stream, "a record", error);
		TC_TRY(tci_source_more(source, error));
	}
}

/** As skip_space(), but by offset: nothing is consumed. */
static enum tc_status pass_space(struct tci_json_stream *stream, size_t *offset, int *next,
                                 struct tc_error *error)
{
	for (;; (*offset)++) {
		bool available;
		TC_TRY(need(stream, *offset, &available, error));
		if (!available)
			return refuse_end(stream, "the header", error);
		if (*offset > TCI_LARGEST_RECORD_BYTES)
			return refuse(stream, "a header larger than 4 MiB", error);
		char byte = stream->source->window[stream->source->begin + *offset];
		if (!is_space(byte)) {
			*next = (unsigned char)byte;
			return TC_OK;
		}
	}
}

/** Index of the array whose quoted name is text[0 ... bytes-1], or name_count. */
static unsigned find_array(const struct tci_json_stream *stream, const char *text, size_t bytes)
{
	for (unsigned i = 0; i < stream->name_count; i++) {
		size_t length = strlen(stream->names[i]);
		if (bytes == length + 2 && memcmp(text + 1, stream->names[i], length) == 0)
			return i;
	}
	return stream->name_count;
}

/* ---------------------------------------------------------------- header */

/** The members before the first array, as an object of their own. */
static enum tc_status cut_header(struct tci_json_stream *stream, size_t bytes, size_t *length,
                                 struct tc_error *error)
{
	const char *text = stream->source->window + stream->source->begin;
	while (bytes > 1 && is_space(text[bytes - 1]))
		bytes--;
	if (bytes > 1) {
		if (text[bytes - 1] != ',')
			return refuse(stream, "expected ',' before the first array", error);
		bytes--;
	}
	stream->header = malloc(bytes + 1);
	if (stream->header == NULL)
		return tc_error_no_memory(error, "the header", bytes + 1);
	memcpy(stream->header, text, bytes);
	stream->header[bytes] = '}';
	*length = bytes + 1;
	return TC_OK;
}

/** One member of the header: `*offset` moves behind it; `*array` when it is the first array. */
static enum tc_status pass_member(struct tci_json_stream *stream, size_t *offset, unsigned *array,
                                  struct tc_error *error)
{
	size_t key = *offset, end;
	int next;
	TC_TRY(scan_value(stream, key, &end, error));
	*offset = end;
	TC_TRY(pass_space(stream, offset, &next, error));
	if (next != ':')
		return refuse_byte(stream, (unsigned char)next, "':'", error);
	++*offset;
	TC_TRY(pass_space(stream, offset, &next, error));
	*array =
	    find_array(stream, stream->source->window + stream->source->begin + key, end - key);
	if (*array < stream->name_count && next == '[')
		return TC_OK;
	*array = stream->name_count;
	TC_TRY(scan_value(stream, *offset, offset, error));
	TC_TRY(pass_space(stream, offset, &next, error));
	if (next == ',')
		++*offset;
	else if (next != '}')
		return refuse_byte(stream, (unsigned char)next, "',' or '}'", error);
	return TC_OK;
}

static enum tc_status read_header(struct tci_json_stream *stream, struct tci_record *record,
                                  struct tc_error *error)
{
	int next;
	TC_TRY(skip_space(stream, &next, error));
	if (next < 0)
		return refuse(stream, "the file is empty; expected a trace", error);
	if (next != '{')
		return refuse_byte(stream, (unsigned char)next,
		                   "'{': JSON (one document or JSON Lines), or gzip of it", error);
	record->kind = TCI_RECORD_HEADER;
	record->line = stream->line;
	for (size_t offset = 1;;) {
		TC_TRY(pass_space(stream, &offset, &next, error));
		if (next == '}') {
			record->text = stream->source->window + stream->source->begin;
			record->bytes = offset + 1;
			set_pending(stream, offset + 1);
			stream->state = IN_LINES;
			return TC_OK;
		}
		if (next != '"')
			return refuse_byte(stream, (unsigned char)next, "a key or '}'", error);
		size_t key = offset;
		unsigned array = stream->name_count;
		TC_TRY(pass_member(stream, &offset, &array, error));
		if (offset > TCI_LARGEST_RECORD_BYTES)
			return refuse(stream, "a header larger than 4 MiB", error);
		if (array == stream->name_count)
			continue;
		TC_TRY(cut_header(stream, key, &record->bytes, error));
		record->text = stream->header;
		set_pending(stream, offset + 1); /* up to and with the bracket */
		stream->state = IN_ARRAY;
		stream->document = true;
		stream->array = array;
		stream->next_array = array + 1;
		return TC_OK;
	}
}

/* ---------------------------------------------------------------- after the header */

static enum tc_status hand_out(struct tci_json_stream *stream, struct tci_record *record,
                               struct tc_error *error)
{
	record->line = stream->line;
	TC_TRY(scan_value(stream, 0, &record->bytes, error));
	record->text = stream->source->window + stream->source->begin;
	set_pending(stream, record->bytes);
	return TC_OK;
}

static enum tc_status read_line(struct tci_json_stream *stream, struct tci_record *record,
                                struct tc_error *error)
{
	int next;
	TC_TRY(skip_space(stream, &next, error));
	record->kind = next < 0 ? TCI_RECORD_END : TCI_RECORD_LINE;
	record->line = stream->line;
	if (next < 0)
		return TC_OK;
	if (next != '{')
		return refuse_byte(stream, (unsigned char)next, "'{': a record", error);
	return hand_out(stream, record, error);
}

/** Between the elements of an array: `*closed` at its end, else a value follows. */
static enum tc_status next_element(struct tci_json_stream *stream, bool *closed,
                                   struct tc_error *error)
{
	int next;
	TC_TRY(skip_space(stream, &next, error));
	if (next < 0)
		return refuse_end(stream, stream->names[stream->array], error);
	*closed = next == ']';
	if (*closed) {
		consume(stream, 1);
		return TC_OK;
	}
	/* next_array > array marks the first element: no comma before it. */
	if (stream->next_array > stream->array) {
		stream->next_array = stream->array;
		return TC_OK;
	}
	if (next != ',')
		return refuse_byte(stream, (unsigned char)next, "',' or ']'", error);
	consume(stream, 1);
	TC_TRY(skip_space(stream, &next, error));
	return TC_OK;
}

static enum tc_status begin_array(struct tci_json_stream *stream, unsigned array,
                                  struct tc_error *error)
{
	if (array <= stream->array)
		return tc_error_set(error, TC_FORMAT,
		                    "%s:%llu: array \"%s\" follows \"%s\"; expected each array at "
		                    "most once, in the order of the format",
		                    stream->source->name, (unsigned long long)stream->line,
		                    stream->names[array], stream->names[stream->array]);
	stream->array = array;
	stream->next_array = array + 1;
	stream->state = IN_ARRAY;
	return TC_OK;
}

static enum tc_status finish(struct tci_json_stream *stream, struct tci_record *record,
                             struct tc_error *error)
{
	int next;
	consume(stream, 1);
	TC_TRY(skip_space(stream, &next, error));
	if (next >= 0)
		return refuse_byte(stream, (unsigned char)next, "nothing after the document's '}'",
		                   error);
	stream->state = AT_END;
	record->kind = TCI_RECORD_END;
	record->line = stream->line;
	return TC_OK;
}

/** After an array: the next one, a member that is none of them, or the end. `*found` when
 * `record` is filled. */
static enum tc_status read_member(struct tci_json_stream *stream, struct tci_record *record,
                                  bool *found, struct tc_error *error)
{
	int next;
	TC_TRY(skip_space(stream, &next, error));
	if (next < 0)
		return refuse_end(stream, "the document", error);
	*found = true;
	if (next == '}')
		return finish(stream, record, error);
	if (next != ',')
		return refuse_byte(stream, (unsigned char)next, "',' or '}'", error);
	consume(stream, 1);
	TC_TRY(skip_space(stream, &next, error));
	if (next != '"')
		return refuse_byte(stream, (unsigned char)(next < 0 ? 0 : next), "a key", error);
	record->line = stream->line;
	size_t key_end, offset;
	TC_TRY(scan_value(stream, 0, &key_end, error));
	offset = key_end;
	TC_TRY(pass_space(stream, &offset, &next, error));
	if (next != ':')
		return refuse_byte(stream, (unsigned char)next, "':'", error);
	offset++;
	TC_TRY(pass_space(stream, &offset, &next, error));
	unsigned array =
	    find_array(stream, stream->source->window + stream->source->begin, key_end);
	if (array < stream->name_count) {
		if (next != '[')
			return refuse_byte(stream, (unsigned char)next, "'[': an array of records",
			                   error);
		consume(stream, offset + 1);
		*found = false;
		return begin_array(stream, array, error);
	}
	size_t end;
	TC_TRY(scan_value(stream, offset, &end, error));
	record->kind = TCI_RECORD_EXTRA;
	record->key = stream->source->window + stream->source->begin;
	record->key_bytes = key_end;
	record->text = stream->source->window + stream->source->begin + offset;
	record->bytes = end - offset;
	set_pending(stream, end);
	return TC_OK;
}

enum tc_status tci_json_stream_next(struct tci_json_stream *stream, struct tci_record *record,
                                    struct tc_error *error)
{
	*record = (struct tci_record){.kind = TCI_RECORD_END};
	tci_source_skip(stream->source, stream->pending);
	stream->line += stream->pending_lines;
	stream->pending = 0;
	stream->pending_lines = 0;
	if (stream->state == AT_START)
		return read_header(stream, record, error);
	if (stream->state == IN_LINES)
		return read_line(stream, record, error);
	bool found = stream->state == AT_END;
	while (!found) {
		if (stream->state == IN_ARRAY) {
			bool closed;
			TC_TRY(next_element(stream, &closed, error));
			if (!closed) {
				record->kind = TCI_RECORD_ELEMENT;
				record->array = stream->array;
				return hand_out(stream, record, error);
			}
			stream->state = AFTER_ARRAY;
		}
		TC_TRY(read_member(stream, record, &found, error));
	}
	return TC_OK;
}
