/* The header of a trace. Bucket members are checked in trace_check.c, once tensors are known. */
#include <string.h>

#include "tencache/units.h"
#include "trace_reader.h"

static void read_version(struct tci_reader *reader, const struct tci_json *object)
{
	const struct tci_json *member;
	if (!tci_get(reader, object, "version", TCI_REQUIRED, TCI_JSON_STRING, &member))
		return;
	const char *text = member->text;
	if (strncmp(text, "1.", 2) != 0 && strcmp(text, "1") != 0)
		tci_finding(reader,
		            "\"version\" is \"%.40s\", expected 1.x: this program reads version 1; "
		            "use a newer one",
		            text);
}

static void read_requires(struct tci_reader *reader, const struct tci_json *object)
{
	const struct tci_json *list;
	if (!tci_get(reader, object, "requires", TCI_OPTIONAL, TCI_JSON_ARRAY, &list))
		return;
	const struct tci_json *feature = tci_json_first(list);
	for (uint32_t i = 0; i < list->size; i++, feature = tci_json_next(feature)) {
		char buffer[64];
		if (feature->type == TCI_JSON_STRING && strcmp(feature->text, "subrange") == 0)
			reader->subranges = true;
		else
			tci_finding(
			    reader,
			    "\"requires\" holds %s, expected nothing but \"subrange\": this "
			    "program lacks that feature; use a newer one",
			    tci_found(feature, buffer));
	}
}

static void read_counts(struct tci_reader *reader, const struct tci_json *object)
{
	for (unsigned i = 0; i < TCI_SECTION_COUNT; i++)
		reader->counts[i] = UINT64_MAX;
	const struct tci_json *counts;
	if (!tci_get(reader, object, "counts", TCI_OPTIONAL, TCI_JSON_OBJECT, &counts))
		return;
	for (unsigned i = 0; i < TCI_SECTION_COUNT; i++)
		(void)tci_get_integer(reader, counts, tci_section_names[i], TCI_OPTIONAL, 0,
		                      TCI_LARGEST_COUNT, &reader->counts[i]);
}

static void read_buckets(struct tci_reader *reader, const struct tci_json *object)
{
	struct tc_trace *trace = reader->trace;
	const struct tci_json *list;
	if (!tci_get(reader, object, "buckets", TCI_OPTIONAL, TCI_JSON_ARRAY, &list))
		return;
	uint32_t count = list->size;
	trace->buckets = tci_blocks_take(reader->blocks, count, sizeof *trace->buckets);
	if (trace->buckets == NULL) {
		(void)tci_out_of_memory(reader);
		return;
	}
	trace->bucket_count = count;
	const struct tci_json *bucket = tci_json_first(list);
	for (uint32_t i = 0; i < count; i++, bucket = tci_json_next(bucket)) {
		char buffer[64];
		if (bucket->type == TCI_JSON_ARRAY)
			(void)tci_read_ids(reader, bucket, "buckets", TC_NONE, "parameters",
			                   &trace->buckets[i]);
		else
			tci_finding(reader,
			            "\"buckets\" holds %s, expected arrays of parameter ids",
			            tci_found(bucket, buffer));
	}
}

static void read_dtypes(struct tci_reader *reader, const struct tci_json *run)
{
	struct tc_trace *trace = reader->trace;
	const struct tci_json *dtypes;
	uint64_t bytes;
	if (!tci_get(reader, run, "dtype", TCI_OPTIONAL, TCI_JSON_OBJECT, &dtypes))
		return;
	(void)tci_get_dtype(reader, dtypes, "param", &trace->param_dtype, &bytes);
	(void)tci_get_dtype(reader, dtypes, "grad", &trace->grad_dtype, &bytes);
	(void)tci_get_dtype(reader, dtypes, "compute", &trace->compute_dtype, &bytes);
	(void)tci_get_dtype(reader, dtypes, "master", &trace->master_dtype, &bytes);
	(void)tci_get_dtype(reader, dtypes, "state", &trace->state_dtype, &bytes);
}

static void read_run(struct tci_reader *reader, const struct tci_json *object)
{
	struct tc_trace *trace = reader->trace;
	const struct tci_json *run, *part;
	if (!tci_get(reader, object, "run", TCI_OPTIONAL, TCI_JSON_OBJECT, &run))
		return;
	const uint64_t largest = TC_MAX_JSON_INTEGER;
	(void)tci_get_integer(reader, run, "batch", TCI_OPTIONAL, 0, largest, &trace->batch);
	(void)tci_get_integer(reader, run, "seq", TCI_OPTIONAL, 0, largest, &trace->sequence);
	(void)tci_get_integer(reader, run, "micro_batches", TCI_OPTIONAL, 0, largest,
	                      &trace->micro_batches);
	read_dtypes(reader, run);
	if (tci_get(reader, run, "optimizer", TCI_OPTIONAL, TCI_JSON_OBJECT, &part))
		(void)tci_get_string(reader, part, "name", TCI_OPTIONAL, &trace->optimizer_name);
	if (tci_get(reader, run, "checkpoint", TCI_OPTIONAL, TCI_JSON_OBJECT, &part))
		(void)tci_get_string(reader, part, "mode", TCI_OPTIONAL, &trace->checkpoint_mode);
	const struct tci_json *clip = tci_json_member(run, "clip");
	if (clip != NULL && clip->type != TCI_JSON_NULL)
		trace->has_clip =
		    tci_get(reader, run, "clip", TCI_OPTIONAL, TCI_JSON_OBJECT, &part);
}

static void read_model(struct tci_reader *reader, const struct tci_json *object)
{
	struct tc_trace *trace = reader->trace;
	const struct tci_json *part;
	if (tci_get(reader, object, "model", TCI_OPTIONAL, TCI_JSON_OBJECT, &part)) {
		(void)tci_get_string(reader, part, "name", TCI_OPTIONAL, &trace->name);
		(void)tci_get_integer(reader, part, "params", TCI_OPTIONAL, 0, TC_MAX_JSON_INTEGER,
		                      &trace->model_parameters);
	}
	if (tci_get(reader, object, "provenance", TCI_OPTIONAL, TCI_JSON_OBJECT, &part))
		(void)tci_get_string(reader, part, "method", TCI_OPTIONAL, &trace->method);
}

void tci_read_header(struct tci_reader *reader, const struct tci_json *object)
{
	const struct tci_json *member;
	reader->header_line = reader->subject.line;
	if (tci_get(reader, object, "format", TCI_REQUIRED, TCI_JSON_STRING, &member) &&
	    strcmp(member->text, "tencache-trace") != 0)
		tci_finding(reader, "\"format\" is \"%.40s\", expected \"tencache-trace\"",
		            member->text);
	read_version(reader, object);
	read_requires(reader, object);
	read_counts(reader, object);
	read_buckets(reader, object);
	read_run(reader, object);
	read_model(reader, object);
	(void)tci_get_integer(reader, object, "workspace_slack", TCI_OPTIONAL, 0,
	                      TCI_LARGEST_TENSOR_BYTES, &reader->trace->workspace_slack);
	(void)tci_get_string(reader, object, "events_sha256", TCI_OPTIONAL,
	                     &reader->claimed_events_hash);
	uint64_t iterations;
	(void)tci_get_integer(reader, object, "iterations", TCI_OPTIONAL, 1, 1, &iterations);
}
