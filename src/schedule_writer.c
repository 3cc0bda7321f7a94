/*
 * A schedule file: records go to a temporary file beside the target, which end() renames. A plan
 * that fails midway leaves no half file.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "schedule_records.h"
#include "tencache/units.h"

#define SUFFIX_BYTES 40 /* ".partial-" and a process id */

struct tc_schedule_writer {
	char *path, *partial;
	gzFile file; /**< NULL once closed */
	const struct tc_plan_info *info;
	uint64_t *op_ps;
	struct tci_text text;
};

static bool is_gzip_name(const char *path)
{
	size_t length = strlen(path);
	return length > 3 && strcmp(path + length - 3, ".gz") == 0;
}

static enum tc_status write_text(struct tc_schedule_writer *writer, const char *record,
                                 uint64_t number, struct tc_error *error)
{
	const struct tci_text *text = &writer->text;
	if (text->status == TC_NO_MEMORY)
		return tc_error_no_memory(error, "a record of a schedule file", text->bytes);
	if (text->status != TC_OK)
		return tc_error_set(
		    error, text->status,
		    "%s: %s %" PRIu64 ": \"%s\" %s; the schedule cannot be written", writer->path,
		    record, number, text->what,
		    text->status == TC_TOO_LARGE
		        ? "is above 2^53 - 1, which JSON readers do not keep exactly"
		        : "is not valid UTF-8");
	if (text->bytes > UINT_MAX ||
	    gzwrite(writer->file, text->data, (unsigned)text->bytes) != (int)text->bytes)
		return tc_error_set(error, TC_IO, "%s: cannot write: %s; is the disk full?",
		                    writer->partial, strerror(errno));
	return TC_OK;
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
		    "%s: a schedule file takes one plan only; create another writer", writer->path);
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
	int closed = gzclose(writer->file);
	writer->file = NULL;
	if (closed != Z_OK)
		return tc_error_set(error, TC_IO,
		                    "%s: cannot finish writing: %s; is the disk full?",
		                    writer->partial, strerror(errno));
	if (rename(writer->partial, writer->path) != 0)
		return tc_error_set(error, TC_IO, "%s: cannot rename to %s: %s", writer->partial,
		                    writer->path, strerror(errno));
	writer->partial[0] = '\0';
	return TC_OK;
}

static enum tc_status open_partial(struct tc_schedule_writer *writer, struct tc_error *error)
{
	int descriptor = open(writer->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (descriptor < 0) {
		int cause = errno;
		writer->partial[0] = '\0';
		return tc_error_set(error, TC_IO,
		                    "%s: cannot create the file: %s; check that the folder exists "
		                    "and may be written",
		                    writer->path, strerror(cause));
	}
	/* T: as it is, without compression. */
	writer->file = gzdopen(descriptor, is_gzip_name(writer->path) ? "wb6" : "wbT");
	if (writer->file == NULL) {
		(void)close(descriptor);
		return tc_error_no_memory(error, "a schedule file's buffer", 0);
	}
	return TC_OK;
}

enum tc_status tc_schedule_writer_create(const char *path, struct tc_schedule_writer **writer,
                                         struct tc_error *error)
{
	*writer = NULL;
	size_t length = strlen(path);
	if (length == 0)
		return tc_error_set(error, TC_ARGUMENT, "a schedule file needs a name");
	struct tc_schedule_writer *created = calloc(1, sizeof *created);
	char *copy = malloc(length + 1), *partial = malloc(length + SUFFIX_BYTES);
	if (created == NULL || copy == NULL || partial == NULL) {
		free(created);
		free(copy);
		free(partial);
		return tc_error_no_memory(error, "a schedule writer", 2 * (uint64_t)length);
	}
	memcpy(copy, path, length + 1);
	(void)snprintf(partial, length + SUFFIX_BYTES, "%s.partial-%ld", path, (long)getpid());
	created->path = copy;
	created->partial = partial;
	enum tc_status status = open_partial(created, error);
	if (status != TC_OK) {
		tc_schedule_writer_free(created);
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
	if (writer->file != NULL)
		(void)gzclose(writer->file);
	if (writer->partial[0] != '\0')
		(void)remove(writer->partial);
	tci_text_clear(&writer->text);
	free(writer->op_ps);
	free(writer->path);
	free(writer->partial);
	free(writer);
}
