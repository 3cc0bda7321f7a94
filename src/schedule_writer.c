/*
 * A schedule file: records go to a temporary file beside the target, which end() renames. A plan
 * that fails midway leaves no half file.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "partial_file.h"
#include "schedule_records.h"
#include "tencache/units.h"

struct tc_schedule_writer {
	struct tci_partial_file file;
	const struct tc_plan_info *info;
	uint64_t *op_ps;
	struct tci_text text;
};

static enum tc_status write_text(struct tc_schedule_writer *writer, const char *record,
                                 uint64_t number, struct tc_error *error)
{
	const struct tci_text *text = &writer->text;
	if (text->status == TC_NO_MEMORY)
		return tc_error_no_memory(error, "a record of a schedule file", text->bytes);
	if (text->status != TC_OK)
		return tc_error_set(
		    error, text->status,
		    "%s: %s %" PRIu64 ": \"%s\" %s; the schedule cannot be written",
		    writer->file.path, record, number, text->what,
		    text->status == TC_TOO_LARGE
		        ? "is above 2^53 - 1, which JSON readers do not keep exactly"
		        : "is not valid UTF-8");
	return tci_partial_write(&writer->file, text->data, text->bytes, error);
}

/** Times of all ops, so that a file can be replayed without its trace. */
static enum tc_status prepare_times(struct tc_schedule_writer *writer, struct tc_error *error)
{
	const struct tc_plan_info *info = writer->info;
	if (info->trace == NULL || info->machine == NULL)
		return TC_OK;
	writer->op_ps = tc_alloc_array((size_t)info->trace->op_count + 1, sizeof *writer->op_ps);
	if (writer->op_ps == NULL)
		return tc_error_no_memory(error, "op times", info->trace->op_count * 8ull);
	for (uint32_t o = 0; o < info->trace->op_count; o++)
		TC_TRY(tc_machine_op_ps(info->machine, info->trace, o, &writer->op_ps[o], error));
	return TC_OK;
}

static enum tc_status writer_begin(void *self, const struct tc_plan_info *info,
                                   struct tc_error *error)
{
	struct tc_schedule_writer *writer = self;
	if (writer->info != NULL)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "%s: a schedule file takes one plan only; create another writer",
		    writer->file.path);
	writer->info = info;
	TC_TRY(prepare_times(writer, error));
	tci_record_header(&writer->text, info);
	TC_TRY(write_text(writer, "header", 0, error));
	for (uint32_t t = 0; t < info->tensor_count; t++) {
		tci_record_tensor(&writer->text, info, t);
		TC_TRY(write_text(writer, "tensor", t, error));
	}
	return TC_OK;
}

static enum tc_status writer_command(void *self, const struct tc_command *command,
                                     struct tc_error *error)
{
	struct tc_schedule_writer *writer = self;
	tci_record_command(&writer->text, writer->info, command, writer->op_ps);
	return write_text(writer, "command", command->id, error);
}

static enum tc_status writer_end(void *self, const struct tc_plan_end *end, struct tc_error *error)
{
	struct tc_schedule_writer *writer = self;
	tci_record_end(&writer->text, end);
	TC_TRY(write_text(writer, "end record", 0, error));
	return tci_partial_commit(&writer->file, error);
}

enum tc_status tc_schedule_writer_create(const char *path, struct tc_schedule_writer **writer,
                                         struct tc_error *error)
{
	*writer = NULL;
	struct tc_schedule_writer *created = calloc(1, sizeof *created);
	if (created == NULL)
		return tc_error_no_memory(error, "a schedule writer", sizeof *created);
	enum tc_status status = tci_partial_open(&created->file, path, "a schedule file", error);
	if (status != TC_OK) {
		free(created);
		return status;
	}
	*writer = created;
	return TC_OK;
}

struct tc_sink tc_schedule_writer_sink(struct tc_schedule_writer *writer)
{
	return (struct tc_sink){writer, writer_begin, writer_command, writer_end};
}

void tc_schedule_writer_free(struct tc_schedule_writer *writer)
{
	if (writer == NULL)
		return;
	tci_partial_close(&writer->file);
	tci_text_clear(&writer->text);
	free(writer->op_ps);
	free(writer);
}
