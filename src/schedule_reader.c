/*
 * Reading a schedule file: the stream cuts the text into records, jansson parses one at a time,
 * each is checked and handed on. Nothing but the tensor table is kept here.
 */
#include "schedule_reader.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "json_stream.h"
#include "schedule_check.h"
#include "tencache/units.h"

struct reading {
	struct tci_schedule_reader reader;
	struct tci_source source;
	struct tci_json_stream stream;
	const struct tc_trace *trace;
	const struct tc_machine *machine;
	struct tc_sink sink;
	bool begun, ended;
};

/** Prefix a message of a record check with file and line. */
static enum tc_status with_line(const struct reading *reading, uint64_t line, enum tc_status status,
                                const struct tc_error *found, struct tc_error *error)
{
	if (status == TC_OK)
		return TC_OK;
	return tc_error_set(error, status, "%s:%" PRIu64 ": %.1800s", reading->reader.file, line,
	                    found->text);
}

static enum tc_status check_hash(const struct reading *reading, const char *what,
                                 const char *in_file, const char *given, const char *given_name,
                                 struct tc_error *error)
{
	if (strcmp(in_file, given) == 0)
		return TC_OK;
	return tc_error_set(
	    error, TC_ARGUMENT,
	    "%s was planned for a %s with SHA-256 %s, but %s has %s; give the %s it "
	    "was planned for, or plan again",
	    reading->reader.file, what, in_file, given_name, given, what);
}

static enum tc_status check_hashes(const struct reading *reading, struct tc_error *error)
{
	const struct tc_plan_info *info = &reading->reader.info;
	if (reading->trace != NULL)
		TC_TRY(check_hash(reading, "trace", info->trace_sha256, reading->trace->sha256,
		                  reading->trace->file_name, error));
	if (reading->machine != NULL)
		TC_TRY(check_hash(reading, "machine", info->machine_sha256,
		                  reading->machine->sha256, reading->machine->name, error));
	return TC_OK;
}

/** The tensor table is complete: the plan begins. */
static enum tc_status begin(struct reading *reading, uint64_t line, struct tc_error *error)
{
	struct tci_schedule_reader *reader = &reading->reader;
	struct tc_plan_info *info = &reader->info;
	if (reading->begun)
		return TC_OK;
	reading->begun = true;
	if (info->tensor_count != reader->tensors_claimed)
		return tc_error_set(
		    error, TC_FORMAT,
		    "%s:%" PRIu64 ": found %" PRIu32 " tensor records before it, expected %" PRIu64
		    " as the header says",
		    reader->file, line, info->tensor_count, reader->tensors_claimed);
	info->tensors = reader->tensors;
	info->copies = reader->copies;
	info->trace = reading->trace;
	info->machine = reading->machine;
	struct tc_error found = {0};
	TC_TRY(with_line(reading, line, tci_plan_info_check(info, &found), &found, error));
	return reading->sink.begin(reading->sink.self, info, error);
}

static enum tc_status take_command(struct reading *reading, struct tci_fields *fields,
                                   struct tc_error *error)
{
	struct tc_command command;
	struct tc_error found = {0};
	TC_TRY(begin(reading, fields->line, error));
	TC_TRY(tci_schedule_read_command(&reading->reader, fields, &command));
	TC_TRY(with_line(
	    reading, fields->line,
	    tci_command_check(&reading->reader.info, &command, reading->reader.commands, &found),
	    &found, error));
	reading->reader.commands++;
	return reading->sink.command(reading->sink.self, &command, error);
}

static enum tc_status take_end(struct reading *reading, struct tci_fields *fields,
                               struct tc_error *error)
{
	struct tc_plan_end end = {0};
	struct tc_error found = {0};
	TC_TRY(begin(reading, fields->line, error));
	TC_TRY(tci_schedule_read_end(&reading->reader, fields, &end));
	TC_TRY(with_line(
	    reading, fields->line,
	    tci_plan_end_check(&reading->reader.info, &end, reading->reader.commands, &found),
	    &found, error));
	reading->ended = true;
	return reading->sink.end(reading->sink.self, &end, error);
}

/** What a record is shows in the key that only it has. */
static enum tc_status take_record(struct reading *reading, const struct tci_record *record,
                                  const json_t *object, struct tc_error *error)
{
	struct tci_fields fields = {reading->reader.file, record->line, object, false, error};
	if (record->kind == TCI_RECORD_HEADER) {
		TC_TRY(tci_schedule_read_header(&reading->reader, &fields));
		return check_hashes(reading, error);
	}
	if (reading->ended)
		return tc_error_set(error, TC_FORMAT,
		                    "%s:%" PRIu64 ": found a record after the end record",
		                    reading->reader.file, record->line);
	if (tci_fields_has(&fields, "id"))
		return take_command(reading, &fields, error);
	if (tci_fields_has(&fields, "end"))
		return take_end(reading, &fields, error);
	if (tci_fields_has(&fields, "t") && !reading->begun)
		return tci_schedule_read_tensor(&reading->reader, &fields);
	return tc_error_set(error, TC_FORMAT,
	                    "%s:%" PRIu64 ": found a record of no known kind here, expected "
	                    "tensors (\"t\"), then commands (\"id\"), then the end (\"end\")",
	                    reading->reader.file, record->line);
}

static enum tc_status parse_record(struct reading *reading, const struct tci_record *record,
                                   struct tc_error *error)
{
	json_error_t json_error;
	if (record->kind != TCI_RECORD_HEADER && record->kind != TCI_RECORD_LINE)
		return tc_error_set(error, TC_FORMAT,
		                    "%s:%" PRIu64
		                    ": found another layout, expected one record a line",
		                    reading->reader.file, record->line);
	json_t *object =
	    json_loadb(record->text, record->bytes, JSON_REJECT_DUPLICATES, &json_error);
	if (!json_is_object(object)) {
		json_decref(object);
		return tc_error_set(error, TC_FORMAT,
		                    "%s:%" PRIu64 ": found no JSON object (%.200s), expected a "
		                    "record",
		                    reading->reader.file, record->line, json_error.text);
	}
	enum tc_status status = take_record(reading, record, object, error);
	json_decref(object);
	return status;
}

static enum tc_status read_all(struct reading *reading, struct tc_error *error)
{
	struct tci_record record;
	for (;;) {
		TC_TRY(tci_json_stream_next(&reading->stream, &record, error));
		if (record.kind == TCI_RECORD_END)
			break;
		TC_TRY(parse_record(reading, &record, error));
	}
	if (!reading->ended)
		return tc_error_set(error, TC_FORMAT,
		                    "%s ends after %" PRIu64
		                    " commands: found no end record, expected one; the file is cut "
		                    "off, copy or plan it again",
		                    reading->reader.file, reading->reader.commands);
	return TC_OK;
}

static void clear(struct reading *reading)
{
	struct tci_schedule_reader *reader = &reading->reader;
	tci_json_stream_end(&reading->stream);
	tci_source_close(&reading->source);
	tci_blocks_free(reader->blocks);
	free(reader->tensors);
	free(reader->copies);
	free(reader->deps);
	free(reader->binds);
	free(reader->served);
	free(reader->memory);
	free(reader->places);
}

static enum tc_status read_into(struct reading *reading, const char *path, struct tc_error *error)
{
	reading->reader.blocks = tci_blocks_create();
	if (reading->reader.blocks == NULL)
		return tc_error_no_memory(error, "a schedule reader", 0);
	TC_TRY(tci_source_open(&reading->source, path, error));
	tci_json_stream_begin(&reading->stream, &reading->source, NULL, 0);
	return read_all(reading, error);
}

enum tc_status tc_schedule_read(const char *path, const struct tc_trace *trace,
                                const struct tc_machine *machine, struct tc_schedule **schedule,
                                struct tc_error *error)
{
	*schedule = NULL;
	/* The status of what is refused is read from the error, so there must be one. */
	struct tc_error own = {0};
	struct tc_error *message = error != NULL ? error : &own;
	struct tc_schedule *created;
	TC_TRY(tc_schedule_create(&created, message));
	struct reading reading = {.reader = {.file = path},
	                          .trace = trace,
	                          .machine = machine,
	                          .sink = tc_schedule_sink(created)};
	enum tc_status status = read_into(&reading, path, message);
	clear(&reading);
	if (status != TC_OK) {
		tc_schedule_free(created);
		return status;
	}
	*schedule = created;
	return TC_OK;
}
