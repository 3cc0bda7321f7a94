/*
 * Reading a trace: the stream cuts the text into records, one is parsed at a time, the parts named
 * in trace_reader.h check it and take it over. A finding does not stop the reading, a broken text
 * or lack of memory does.
 */
#include "tencache/trace.h"

#include <stdlib.h>
#include <string.h>

#include "json_stream.h"
#include "tencache/units.h"
#include "trace_reader.h"

typedef void (*read_record)(struct tci_reader *reader, const struct tci_json *object);

/** How a record kind is read, and the key that tells it in the lines layout. */
struct section {
	const char *key;
	read_record read;
};

static const struct section sections[TCI_SECTION_COUNT] = {
    [TCI_TENSORS] = {"kind", tci_read_tensor}, [TCI_MODULES] = {"path", tci_read_module},
    [TCI_EVENTS] = {"event", tci_read_event},  [TCI_UNPACKS] = {"u", tci_read_unpack},
    [TCI_OPS] = {"op", tci_read_op},
};

/** One reading: the parts that only this file needs. */
struct reading {
	struct tci_reader reader;
	struct tci_source source;
	struct tci_json_stream stream;
	struct tci_json_parser parser;
	unsigned section; /* the one that records now belong to */
	bool end_seen;
};

/* ---------------------------------------------------------------- records */

/** From one section to a later one; sections may be empty, but not come back. */
static void enter(struct reading *reading, unsigned section)
{
	if (section == reading->section)
		return;
	if (section < reading->section) {
		tci_about(&reading->reader, NULL, 0, NULL);
		tci_finding(&reading->reader,
		            "a record of %s after %s, expected header, tensors, "
		            "modules, events, unpacks, ops, end",
		            tci_section_names[section], tci_section_names[reading->section]);
		return;
	}
	if (section == TCI_OPS)
		tci_begin_ops(&reading->reader);
	reading->section = section;
}

/** Does the tensor, module or event list still accept records? After a later section it is in use
 * by id, so a record out of order was a finding and is left out. */
static void read_in_section(struct reading *reading, unsigned section,
                            const struct tci_json *object)
{
	enter(reading, section);
	if (section == reading->section && reading->reader.fatal == TC_OK)
		sections[section].read(&reading->reader, object);
}

static void read_end(struct reading *reading, const struct tci_json *object)
{
	struct tci_reader *reader = &reading->reader;
	static const unsigned counted[] = {TCI_TENSORS, TCI_OPS};
	tci_about(reader, NULL, 0, NULL);
	reading->end_seen = true;
	for (size_t i = 0; i < 2; i++) {
		uint64_t claimed = 0;
		uint32_t found =
		    counted[i] == TCI_OPS ? reader->trace->op_count : reader->trace->tensor_count;
		const char *name = tci_section_names[counted[i]];
		if (tci_get_integer(reader, object, name, TCI_REQUIRED, 0, TCI_LARGEST_COUNT,
		                    &claimed) &&
		    claimed != found)
			tci_finding(reader, "the end record says %llu %s, but there are %u",
			            (unsigned long long)claimed, name, found);
	}
}

static void read_line(struct reading *reading, const struct tci_json *object)
{
	struct tci_reader *reader = &reading->reader;
	tci_about(reader, NULL, 0, NULL);
	if (reading->end_seen) {
		tci_finding(reader, "a record after the end record, expected nothing");
		return;
	}
	/* "op" first: most records are ops. A tensor's "kind" is the only key of that name. */
	for (unsigned i = TCI_SECTION_COUNT; i-- > 0;) {
		if (tci_json_member(object, sections[i].key) != NULL) {
			read_in_section(reading, i, object);
			return;
		}
	}
	if (tci_json_member(object, "end") != NULL)
		read_end(reading, object);
	else
		tci_finding(reader,
		            "the record is of no known kind, expected one of the keys kind, "
		            "path, event, u, op, end");
}

/** Members that stand behind the arrays are read too late to be obeyed. */
static void read_extra(struct reading *reading, const struct tci_record *record)
{
	static const char *const late[] = {
	    "format",   "version",       "layout",     "generator",      "provenance",
	    "model",    "run",           "timing",     "buckets",        "counts",
	    "requires", "events_sha256", "iterations", "workspace_slack"};
	tci_about(&reading->reader, NULL, 0, NULL);
	for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
		size_t length = strlen(late[i]);
		if (record->key_bytes == length + 2 &&
		    memcmp(record->key + 1, late[i], length) == 0)
			tci_finding(&reading->reader,
			            "\"%s\" comes after the arrays, expected it before them",
			            late[i]);
	}
}

static enum tc_status refuse_record(struct reading *reading, const struct tci_record *record,
                                    struct tc_error *error)
{
	struct tci_reader *reader = &reading->reader;
	if (reading->parser.problem[0] == '\0')
		return tc_error_no_memory(error, "a record", record->bytes);
	tci_about(reader, NULL, 0, NULL);
	tci_finding(reader, "not JSON: %s", reading->parser.problem);
	return tc_error_set(error, TC_FORMAT, "%s", reader->findings);
}

static enum tc_status read_one(struct reading *reading, const struct tci_record *record,
                               struct tc_error *error)
{
	struct tci_reader *reader = &reading->reader;
	reader->subject.line = record->line;
	const struct tci_json *value =
	    tci_json_parse(&reading->parser, record->text, record->bytes);
	if (value == NULL)
		return refuse_record(reading, record, error);
	if (record->kind == TCI_RECORD_EXTRA) {
		read_extra(reading, record);
	} else if (value->type != TCI_JSON_OBJECT) {
		char buffer[64];
		tci_about(reader, NULL, 0, NULL);
		tci_finding(reader, "a record is %s, expected an object", tci_found(value, buffer));
	} else if (record->kind == TCI_RECORD_HEADER) {
		tci_read_header(reader, value);
	} else if (record->kind == TCI_RECORD_ELEMENT) {
		read_in_section(reading, record->array, value);
	} else {
		read_line(reading, value);
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- whole trace */

/** All findings, one a line, as the error. */
static enum tc_status conclude(struct tci_reader *reader, struct tc_error *error)
{
	if (reader->fatal == TC_NO_MEMORY)
		return tc_error_no_memory(error, "the trace", reader->trace->op_count);
	if (reader->fatal != TC_OK)
		return tc_error_set(error, reader->fatal, "%s: cannot compute SHA-256",
		                    reader->file);
	if (reader->finding_count > TCI_SHOWN_FINDINGS)
		return tc_error_set(
		    error, TC_FORMAT, "%s\n%s: and %llu more", reader->findings, reader->file,
		    (unsigned long long)(reader->finding_count - TCI_SHOWN_FINDINGS));
	if (reader->finding_count > 0)
		return tc_error_set(error, TC_FORMAT, "%s", reader->findings);
	return TC_OK;
}

static bool is_truncated(struct reading *reading)
{
	if (reading->stream.document || reading->end_seen)
		return false;
	tci_about(&reading->reader, NULL, 0, NULL);
	tci_finding(&reading->reader,
	            "the file ends without an end record ({\"end\":true,...}): it "
	            "is truncated");
	return true;
}

static enum tc_status read_all(struct reading *reading, struct tc_error *error)
{
	struct tci_reader *reader = &reading->reader;
	struct tci_record record;
	for (;;) {
		TC_TRY(tci_json_stream_next(&reading->stream, &record, error));
		reader->subject.line = record.line;
		if (record.kind == TCI_RECORD_END)
			break;
		TC_TRY(read_one(reading, &record, error));
		if (reader->fatal != TC_OK)
			return conclude(reader, error);
	}
	/* Of a truncated trace the other sums would only say the same. */
	if (!is_truncated(reading))
		tci_check_trace(reader);
	TC_TRY(conclude(reader, error));
	return tci_source_hash(&reading->source, reader->trace->sha256, error);
}

/** The file's name without folders and known endings. */
static const char *base_name(struct tci_reader *reader, const char *path)
{
	static const char *const endings[] = {".gz", ".json", ".jsonl"};
	const char *slash = strrchr(path, '/');
	const char *name = tci_blocks_string(reader->blocks, slash == NULL ? path : slash + 1);
	if (name == NULL)
		return tci_out_of_memory(reader);
	char *copy = tci_blocks_take(reader->blocks, strlen(name) + 1, 1);
	if (copy == NULL)
		return tci_out_of_memory(reader);
	strcpy(copy, name);
	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
		size_t length = strlen(copy), ending = strlen(endings[i]);
		if (length > ending && strcmp(copy + length - ending, endings[i]) == 0)
			copy[length - ending] = '\0';
	}
	return copy;
}

static enum tc_status begin(struct reading *reading, const char *name, struct tc_error *error)
{
	struct tci_reader *reader = &reading->reader;
	reader->blocks = tci_blocks_create();
	reader->trace = calloc(1, sizeof *reader->trace);
	if (reader->blocks == NULL || reader->trace == NULL)
		return tc_error_no_memory(error, "a trace", sizeof *reader->trace);
	reader->file = name;
	reader->last_event = TC_NONE;
	reader->first_backward_event = TC_NONE;
	reader->last_phase = TC_FORWARD;
	struct tc_trace *trace = reader->trace;
	trace->storage = reader->blocks;
	trace->file_name = tci_blocks_string(reader->blocks, name);
	trace->method = trace->optimizer_name = "";
	trace->checkpoint_mode = "none";
	trace->name = base_name(reader, name);
	if (trace->file_name == NULL || trace->name == NULL)
		return tc_error_no_memory(error, "a trace", strlen(name));
	tci_json_stream_begin(&reading->stream, &reading->source, tci_section_names,
	                      TCI_SECTION_COUNT);
	return TC_OK;
}

static enum tc_status finish(struct reading *reading, enum tc_status status,
                             struct tc_trace **trace, struct tc_error *error)
{
	struct tci_reader *reader = &reading->reader;
	/* A broken text ends the reading; what was found before it says more. */
	if (status == TC_FORMAT && reader->finding_count > 0 && error != NULL &&
	    strncmp(error->text, reader->findings, strlen(reader->findings)) != 0) {
		struct tc_error whole = {0};
		(void)tc_error_set(&whole, status, "%s\n%s", reader->findings, error->text);
		*error = whole;
	}
	if (status == TC_OK) {
		reader->trace->has_events = reader->trace->event_count > 0;
		*trace = reader->trace;
	} else {
		if (reader->trace == NULL)
			tci_blocks_free(reader->blocks);
		tc_trace_free(reader->trace);
	}
	tci_sha256_drop(&reader->events_hash);
	free(reader->lives);
	tci_json_clear(&reading->parser);
	tci_json_stream_end(&reading->stream);
	tci_source_close(&reading->source);
	free(reading);
	return status;
}

static enum tc_status read_trace(const char *path, const char *data, size_t bytes,
                                 struct tc_trace **trace, struct tc_error *error)
{
	*trace = NULL;
	/* Findings of 20 lines live inside: too large for a stack that may be small. */
	struct reading *reading = calloc(1, sizeof *reading);
	if (reading == NULL)
		return tc_error_no_memory(error, "reading a trace", sizeof *reading);
	enum tc_status status = begin(reading, path, error);
	if (status == TC_OK && data == NULL)
		status = tci_source_open(&reading->source, path, error);
	else if (status == TC_OK)
		status = tci_source_of_memory(&reading->source, data, bytes, path, error);
	if (status == TC_OK)
		status = read_all(reading, error);
	return finish(reading, status, trace, error);
}

enum tc_status tc_trace_read(const char *path, struct tc_trace **trace, struct tc_error *error)
{
	return read_trace(path, NULL, 0, trace, error);
}

enum tc_status tc_trace_parse(const char *data, size_t bytes, const char *name,
                              struct tc_trace **trace, struct tc_error *error)
{
	return read_trace(name, data == NULL ? "" : data, bytes, trace, error);
}

uint32_t tc_trace_op_after(const struct tc_trace *trace, uint32_t event)
{
	uint32_t low = 0, high = trace->op_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (trace->ops[middle].event < event)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void tc_trace_free(struct tc_trace *trace)
{
	if (trace == NULL)
		return;
	free(trace->tensors);
	free(trace->modules);
	free(trace->events);
	free(trace->unpacks);
	free(trace->ops);
	free(trace->warnings);
	tci_blocks_free(trace->storage);
	free(trace);
}

/* ---------------------------------------------------------------- traffic */

static uint64_t bytes_of(const struct tc_trace *trace, const struct tc_ids *ids,
                         const struct tc_range *ranges)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < ids->count; i++) {
		uint64_t bytes =
		    ranges != NULL ? ranges[i].bytes : trace->tensors[ids->items[i]].bytes;
		if (!tc_add_u64(sum, bytes, &sum))
			return UINT64_MAX;
	}
	return sum;
}

uint64_t tc_op_traffic_bytes(const struct tc_trace *trace, const struct tc_op *op)
{
	if (op->has_bytes)
		return op->bytes;
	uint64_t written = bytes_of(trace, &op->writes, op->write_ranges), sum;
	/* A gather touches of its table only the rows that it gives out. */
	uint64_t read =
	    op->op_class == TC_GATHER ? written : bytes_of(trace, &op->reads, op->read_ranges);
	return tc_add_u64(read, written, &sum) ? sum : UINT64_MAX;
}
