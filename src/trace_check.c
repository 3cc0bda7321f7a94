/* What only the whole trace can tell: references forward, counts, lives that never began, unpacks
 * of tensors that are not there, the hash of the events. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"
#include "trace_reader.h"

static void check_references(struct tci_reader *reader, uint32_t index)
{
	const struct tc_trace *trace = reader->trace;
	const struct tc_tensor *tensor = &trace->tensors[index];
	if (tensor->of != TC_NONE &&
	    (tensor->of >= trace->tensor_count || trace->tensors[tensor->of].kind != TC_PARAM))
		tci_finding(reader, "\"of\" is %u, expected the id of a param", tensor->of);
	if (tensor->bind_module != TC_NONE && tensor->bind_module >= trace->module_count)
		tci_finding(reader, "\"bind\" names module %u, expected one of the %u modules",
		            tensor->bind_module, trace->module_count);
	if (tensor->bound_at >= (int64_t)trace->event_count)
		tci_finding(reader, "\"bound_at\" is %" PRId64 ", expected one of the %u events",
		            tensor->bound_at, trace->event_count);
}

static void check_tensors(struct tci_reader *reader)
{
	const struct tc_trace *trace = reader->trace;
	uint64_t sum = 0;
	reader->subject.line = 0;
	for (uint32_t i = 0; i < trace->tensor_count; i++) {
		const struct tc_tensor *tensor = &trace->tensors[i];
		tci_about(reader, "tensor", i, tensor->name);
		check_references(reader, i);
		if (sum <= TCI_LARGEST_SUM && (sum += tensor->bytes) > TCI_LARGEST_SUM)
			tci_finding(reader, "the sum of \"bytes\" up to this tensor is above 2^60, "
			                    "expected less");
		const struct tci_life *life = &reader->lives[i];
		if (!life->used && tensor->kind != TC_INPUT)
			tci_warning(reader, "no op reads or writes this %s of %" PRIu64 " bytes",
			            tc_tensor_kind_name(tensor->kind), tensor->bytes);
	}
}

/** A module's path and where it stands, for sorting. */
struct path {
	const char *text;
	uint32_t module;
};

static int compare_paths(const void *left, const void *right)
{
	const struct path *a = left, *b = right;
	int order = strcmp(a->text, b->text);
	return order != 0 ? order : (a->module > b->module) - (a->module < b->module);
}

static void check_modules(struct tci_reader *reader)
{
	const struct tc_trace *trace = reader->trace;
	struct path *paths = tc_alloc_array(trace->module_count + (size_t)1, sizeof *paths);
	if (paths == NULL) {
		(void)tci_out_of_memory(reader);
		return;
	}
	for (uint32_t i = 0; i < trace->module_count; i++)
		paths[i] = (struct path){trace->modules[i].path, i};
	qsort(paths, trace->module_count, sizeof *paths, compare_paths);
	for (uint32_t i = 1; i < trace->module_count; i++) {
		if (strcmp(paths[i].text, paths[i - 1].text) != 0)
			continue;
		tci_about(reader, "module", paths[i].module, paths[i].text);
		tci_finding(reader,
		            "\"path\" is \"%.100s\", that of module %u too; expected each once",
		            paths[i].text, paths[i - 1].module);
	}
	free(paths);
}

static void check_buckets(struct tci_reader *reader)
{
	const struct tc_trace *trace = reader->trace;
	reader->next_mark++;
	for (uint32_t i = 0; i < trace->bucket_count; i++) {
		tci_about(reader, "bucket", i, NULL);
		for (uint32_t k = 0; k < trace->buckets[i].count; k++) {
			uint32_t id = trace->buckets[i].items[k];
			if (id >= trace->tensor_count || trace->tensors[id].kind != TC_PARAM) {
				tci_finding(reader, "holds %u, expected the id of a param", id);
			} else if (reader->lives[id].mark == reader->next_mark) {
				tci_finding(reader,
				            "holds tensor %u (%s), which another bucket has", id,
				            trace->tensors[id].name);
			} else {
				reader->lives[id].mark = reader->next_mark;
			}
		}
	}
}

static void check_unpack(struct tci_reader *reader, const struct tc_unpack *unpack, uint32_t event)
{
	const struct tc_trace *trace = reader->trace;
	struct tci_life *life = &reader->lives[unpack->tensor];
	uint32_t first = tc_trace_op_after(trace, event);
	if (first == trace->op_count) {
		tci_finding(reader, "\"u\" holds event %u, which no op follows", event);
		return;
	}
	life->used = true;
	if (trace->tensors[unpack->tensor].persistent)
		return;
	if (life->allocated == TC_NONE || life->allocated >= first)
		tci_finding(
		    reader,
		    "tensor %u (%s) is unpacked after event %u, before an op has allocated it",
		    unpack->tensor, trace->tensors[unpack->tensor].name, event);
	else if (life->freed < first || life->freed_eager < first)
		tci_finding(
		    reader,
		    "tensor %u (%s) is unpacked after event %u, but op %u has freed it before",
		    unpack->tensor, trace->tensors[unpack->tensor].name, event,
		    life->freed < first ? life->freed : life->freed_eager);
}

static void check_unpacks(struct tci_reader *reader)
{
	const struct tc_trace *trace = reader->trace;
	reader->next_mark++;
	for (uint32_t i = 0; i < trace->unpack_count; i++) {
		const struct tc_unpack *unpack = &trace->unpacks[i];
		tci_about(reader, "unpack", i, NULL);
		if (unpack->tensor == TC_NONE)
			continue;
		if (reader->lives[unpack->tensor].mark == reader->next_mark)
			tci_finding(reader,
			            "\"t\" is %u, which has an unpack record already; expected "
			            "one a tensor",
			            unpack->tensor);
		reader->lives[unpack->tensor].mark = reader->next_mark;
		for (uint32_t k = 0; k < unpack->events.count; k++)
			check_unpack(reader, unpack, unpack->events.items[k]);
	}
}

static void check_events(struct tci_reader *reader)
{
	struct tc_trace *trace = reader->trace;
	tci_about(reader, NULL, 0, NULL);
	reader->subject.line = reader->header_line;
	if (trace->event_count == 0)
		return;
	if (!reader->ended)
		tci_finding(reader, "the events do not end with \"end\", expected it last");
	if (reader->fatal != TC_OK || reader->events_hash.context == NULL ||
	    tci_sha256_end(&reader->events_hash, trace->events_sha256, NULL) != TC_OK) {
		reader->fatal = reader->fatal == TC_OK ? TC_INTERNAL : reader->fatal;
		return;
	}
	if (reader->claimed_events_hash == NULL)
		tci_finding(reader, "key \"events_sha256\" is missing, expected \"%s\"",
		            trace->events_sha256);
	else if (!reader->events_broken &&
	         strcmp(reader->claimed_events_hash, trace->events_sha256) != 0)
		tci_finding(reader, "\"events_sha256\" is \"%.64s\", expected \"%s\" by the events",
		            reader->claimed_events_hash, trace->events_sha256);
}

static void check_counts(struct tci_reader *reader)
{
	const struct tc_trace *trace = reader->trace;
	const uint32_t found[TCI_SECTION_COUNT] = {trace->tensor_count, trace->module_count,
	                                           trace->event_count, trace->unpack_count,
	                                           trace->op_count};
	for (unsigned i = 0; i < TCI_SECTION_COUNT; i++) {
		if (reader->counts[i] != UINT64_MAX && reader->counts[i] != found[i])
			tci_finding(reader, "\"counts\" says %" PRIu64 " %s, but there are %u",
			            reader->counts[i], tci_section_names[i], found[i]);
	}
	if (trace->tensor_count == 0)
		tci_finding(reader, "the trace holds no tensors, expected at least one");
	if (trace->op_count == 0)
		tci_finding(reader, "the trace holds no ops, expected at least one");
}

void tci_check_trace(struct tci_reader *reader)
{
	check_events(reader);
	check_counts(reader);
	if (reader->lives == NULL || reader->fatal != TC_OK)
		return;
	tci_gradients_end(reader);
	check_buckets(reader);
	check_modules(reader);
	reader->subject.line = 0;
	check_unpacks(reader);
	check_tensors(reader);
}
