/* Records of a trace in memory and their text. The models are in trace_models.c. */
#include "trace_builder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"

static void give_up(const char *what)
{
	fprintf(stderr, "trace_builder: %s\n", what);
	abort();
}

static void *grown(void *items, size_t count, size_t *capacity, size_t bytes)
{
	if (count < *capacity)
		return items;
	*capacity = *capacity == 0 ? 16 : 2 * *capacity;
	items = realloc(items, *capacity * bytes);
	if (items == NULL)
		give_up("out of memory");
	return items;
}

void test_ids_add(struct test_ids *ids, uint32_t id)
{
	ids->items = grown(ids->items, ids->count, &ids->capacity, sizeof *ids->items);
	ids->items[ids->count++] = id;
}

static struct test_ids ids_of(const uint32_t *list)
{
	struct test_ids ids = {0};
	for (size_t i = 0; list[i] != TC_NONE; i++)
		test_ids_add(&ids, list[i]);
	return ids;
}

struct test_builder *test_builder_new(void)
{
	struct test_builder *builder = calloc(1, sizeof *builder);
	if (builder == NULL)
		give_up("out of memory");
	builder->param_dtype = TC_FLOAT32;
	return builder;
}

void test_builder_free(struct test_builder *builder)
{
	if (builder == NULL)
		return;
	for (size_t i = 0; i < builder->module_count; i++)
		free(builder->modules[i].params.items);
	for (size_t i = 0; i < builder->unpack_count; i++)
		free(builder->unpacks[i].events.items);
	for (size_t i = 0; i < builder->bucket_count; i++)
		free(builder->buckets[i].items);
	for (size_t i = 0; i < builder->op_count; i++) {
		free(builder->ops[i].reads.items);
		free(builder->ops[i].writes.items);
		free(builder->ops[i].allocates.items);
		free(builder->ops[i].frees.items);
		free(builder->ops[i].frees_eager.items);
	}
	free(builder->tensors);
	free(builder->modules);
	free(builder->events);
	free(builder->unpacks);
	free(builder->ops);
	free(builder->buckets);
	free(builder);
}

uint32_t test_add_tensor(struct test_builder *builder, enum tc_tensor_kind kind, uint64_t bytes)
{
	builder->tensors = grown(builder->tensors, builder->tensor_count, &builder->tensor_capacity,
	                         sizeof *builder->tensors);
	builder->tensors[builder->tensor_count] = (struct test_tensor){
	    .kind = kind,
	    .bytes = bytes,
	    .dtype = TC_FLOAT32,
	    .of = TC_NONE,
	    .layer = TC_NONE,
	    .persist = -1,
	};
	return (uint32_t)builder->tensor_count++;
}

uint32_t test_add_module(struct test_builder *builder, const char *path, const uint32_t *params)
{
	builder->modules = grown(builder->modules, builder->module_count, &builder->module_capacity,
	                         sizeof *builder->modules);
	struct test_module *module = &builder->modules[builder->module_count];
	*module = (struct test_module){.layer = TC_NONE, .params = ids_of(params)};
	snprintf(module->path, sizeof module->path, "%s", path);
	return (uint32_t)builder->module_count++;
}

uint32_t test_add_event(struct test_builder *builder, enum tc_event_kind kind, uint32_t subject)
{
	builder->events = grown(builder->events, builder->event_count, &builder->event_capacity,
	                        sizeof *builder->events);
	builder->events[builder->event_count] = (struct test_event){kind, subject};
	return (uint32_t)builder->event_count++;
}

uint32_t test_add_bucket(struct test_builder *builder, const uint32_t *params)
{
	builder->buckets = grown(builder->buckets, builder->bucket_count, &builder->bucket_capacity,
	                         sizeof *builder->buckets);
	builder->buckets[builder->bucket_count] = ids_of(params);
	return (uint32_t)builder->bucket_count++;
}

void test_add_unpack(struct test_builder *builder, uint32_t tensor, const uint32_t *events)
{
	builder->unpacks = grown(builder->unpacks, builder->unpack_count, &builder->unpack_capacity,
	                         sizeof *builder->unpacks);
	builder->unpacks[builder->unpack_count++] = (struct test_unpack){tensor, ids_of(events)};
}

uint32_t test_add_op(struct test_builder *builder, enum tc_phase phase, uint32_t module,
                     const uint32_t *reads, const uint32_t *writes)
{
	builder->ops =
	    grown(builder->ops, builder->op_count, &builder->op_capacity, sizeof *builder->ops);
	struct test_op *op = &builder->ops[builder->op_count];
	*op = (struct test_op){
	    .phase = phase,
	    .op_class = TC_ELEMENTWISE,
	    .module = module,
	    .event = builder->event_count == 0 ? TC_NONE : (uint32_t)builder->event_count - 1,
	    .layer = TC_NONE,
	    .us = TEST_ABSENT,
	    .flops = TEST_ABSENT,
	    .bytes = TEST_ABSENT,
	    .workspace = TEST_ABSENT,
	    .reads = ids_of(reads),
	    .writes = ids_of(writes),
	};
	snprintf(op->name, sizeof op->name, "test.op%zu", builder->op_count);
	return (uint32_t)builder->op_count++;
}

struct test_tensor *test_tensor(struct test_builder *builder, uint32_t tensor)
{
	if (tensor >= builder->tensor_count)
		give_up("no such tensor");
	return &builder->tensors[tensor];
}

struct test_op *test_op(struct test_builder *builder, uint32_t op)
{
	if (op >= builder->op_count)
		give_up("no such op");
	return &builder->ops[op];
}

/* ---------------------------------------------------------------- lifetimes */

static bool is_persistent(const struct test_tensor *tensor)
{
	if (tensor->persist >= 0)
		return tensor->persist != 0;
	return tensor->kind == TC_PARAM || tensor->kind == TC_BUFFER ||
	       tensor->kind == TC_OPTIMIZER_STATE || tensor->kind == TC_INPUT;
}

struct lifetime {
	size_t first, last; /* SIZE_MAX: never */
};

static void touch(struct lifetime *lifetimes, const struct test_ids *ids, size_t op)
{
	for (size_t i = 0; i < ids->count; i++) {
		struct lifetime *lifetime = &lifetimes[ids->items[i]];
		if (lifetime->first == SIZE_MAX)
			lifetime->first = op;
		lifetime->last = op;
	}
}

/** The last op of the step that follows an event, or SIZE_MAX. */
static size_t end_of_step(const struct test_builder *builder, uint32_t event)
{
	for (size_t i = 0; i < builder->op_count; i++) {
		if (builder->ops[i].event < event)
			continue;
		while (i + 1 < builder->op_count &&
		       builder->ops[i + 1].event == builder->ops[i].event)
			i++;
		return i;
	}
	return SIZE_MAX;
}

void test_fill_lifetimes(struct test_builder *builder)
{
	struct lifetime *lifetimes = calloc(builder->tensor_count + 1, sizeof *lifetimes);
	if (lifetimes == NULL)
		give_up("out of memory");
	for (size_t i = 0; i < builder->tensor_count; i++)
		lifetimes[i] = (struct lifetime){SIZE_MAX, SIZE_MAX};
	for (size_t i = 0; i < builder->op_count; i++) {
		touch(lifetimes, &builder->ops[i].reads, i);
		touch(lifetimes, &builder->ops[i].writes, i);
	}
	for (size_t i = 0; i < builder->unpack_count; i++) {
		struct lifetime *lifetime = &lifetimes[builder->unpacks[i].tensor];
		for (size_t k = 0; k < builder->unpacks[i].events.count; k++) {
			size_t end = end_of_step(builder, builder->unpacks[i].events.items[k]);
			if (end != SIZE_MAX && end > lifetime->last)
				lifetime->last = end;
		}
	}
	for (uint32_t i = 0; i < builder->tensor_count; i++) {
		if (lifetimes[i].first == SIZE_MAX || is_persistent(&builder->tensors[i]))
			continue;
		size_t eager =
		    builder->tensors[i].eager_until_end ? builder->op_count - 1 : lifetimes[i].last;
		test_ids_add(&builder->ops[lifetimes[i].first].allocates, i);
		test_ids_add(&builder->ops[lifetimes[i].last].frees, i);
		test_ids_add(&builder->ops[eager].frees_eager, i);
	}
	free(lifetimes);
}

/* ---------------------------------------------------------------- text */

static void print_ids(FILE *out, const char *key, const struct test_ids *ids)
{
	if (ids->count == 0)
		return;
	fprintf(out, ",\"%s\":[", key);
	for (size_t i = 0; i < ids->count; i++)
		fprintf(out, "%s%" PRIu32, i == 0 ? "" : ",", ids->items[i]);
	fputc(']', out);
}

static void print_number(FILE *out, const char *key, uint64_t value)
{
	if (value != TEST_ABSENT)
		fprintf(out, ",\"%s\":%" PRIu64, key, value);
}

static void print_id(FILE *out, const char *key, uint32_t id)
{
	if (id != TC_NONE)
		fprintf(out, ",\"%s\":%" PRIu32, key, id);
}

static void print_tensor(FILE *out, const struct test_builder *builder, size_t index)
{
	static const char *const roles[] = {"", "master", "exp_avg", "exp_avg_sq", "other"};
	const struct test_tensor *tensor = &builder->tensors[index];
	fprintf(out, "{\"t\":%zu,\"kind\":\"%s\",\"bytes\":%" PRIu64, index,
	        tc_tensor_kind_name(tensor->kind), tensor->bytes);
	if (tensor->dtype != TC_DTYPE_UNKNOWN)
		fprintf(out, ",\"dtype\":\"%s\"", tc_dtype_name(tensor->dtype));
	if (tensor->name[0] != '\0')
		fprintf(out, ",\"name\":\"%s\"", tensor->name);
	if (tensor->role != TC_ROLE_NONE)
		fprintf(out, ",\"role\":\"%s\"", roles[tensor->role]);
	print_id(out, "of", tensor->of);
	print_id(out, "layer", tensor->layer);
	if (tensor->persist >= 0)
		fprintf(out, ",\"persist\":%s", tensor->persist != 0 ? "true" : "false");
	fputc('}', out);
}

static void print_module(FILE *out, const struct test_builder *builder, size_t index)
{
	const struct test_module *module = &builder->modules[index];
	fprintf(out, "{\"m\":%zu,\"path\":\"%s\",\"class\":\"Test\"", index, module->path);
	if (module->params.count == 0)
		fputs(",\"params\":[]", out);
	print_ids(out, "params", &module->params);
	print_id(out, "layer", module->layer);
	fputc('}', out);
}

static const char *subject_key(enum tc_event_kind kind)
{
	switch (kind) {
	case TC_EVENT_FORWARD_PRE:
	case TC_EVENT_FORWARD_POST:
	case TC_EVENT_BACKWARD:
		return "m";
	case TC_EVENT_GRADIENT:
	case TC_EVENT_NORM:
		return "t";
	case TC_EVENT_OPTIMIZER:
		return "b";
	case TC_EVENT_MICRO_BATCH:
		return "mb";
	default:
		return NULL;
	}
}

static void print_event(FILE *out, const struct test_builder *builder, size_t index)
{
	const struct test_event *event = &builder->events[index];
	const char *key = subject_key(event->kind);
	fprintf(out, "{\"e\":%zu,\"event\":\"%s\"", index, tc_event_kind_name(event->kind));
	if (key != NULL)
		print_id(out, key, event->subject);
	fputc('}', out);
}

static void print_unpack(FILE *out, const struct test_builder *builder, size_t index)
{
	fprintf(out, "{\"t\":%" PRIu32, builder->unpacks[index].tensor);
	print_ids(out, "u", &builder->unpacks[index].events);
	fputc('}', out);
}

static void print_op(FILE *out, const struct test_builder *builder, size_t index)
{
	static const char letters[] = "fbozx";
	const struct test_op *op = &builder->ops[index];
	fprintf(out, "{\"op\":%zu,\"name\":\"%s\",\"phase\":\"%c\"", index, op->name,
	        letters[op->phase]);
	print_id(out, "m", op->module);
	print_id(out, "layer", op->layer);
	print_id(out, "e", op->event);
	if (op->recompute)
		fputs(",\"rc\":1", out);
	print_ids(out, "r", &op->reads);
	print_ids(out, "w", &op->writes);
	print_ids(out, "a", &op->allocates);
	print_ids(out, "f", &op->frees);
	print_ids(out, "fe", &op->frees_eager);
	print_number(out, "us", op->us);
	print_number(out, "flops", op->flops);
	print_number(out, "bytes", op->bytes);
	print_number(out, "ws", op->workspace);
	fprintf(out, ",\"cls\":\"%s\"}", tc_op_class_name(op->op_class));
}

/** The text that events_sha256 is taken over: kind, tab, what it concerns by name, line feed. */
static void print_events_hash(FILE *out, const struct test_builder *builder)
{
	char *text = NULL, hash[TCI_SHA256_TEXT_BYTES];
	size_t bytes = 0;
	FILE *lines = open_memstream(&text, &bytes);
	if (lines == NULL)
		give_up("out of memory");
	for (size_t i = 0; i < builder->event_count; i++) {
		const struct test_event *event = &builder->events[i];
		const char *key = subject_key(event->kind);
		fprintf(lines, "%s\t", tc_event_kind_name(event->kind));
		if (key == NULL)
			;
		else if (strcmp(key, "m") == 0)
			fputs(builder->modules[event->subject].path, lines);
		else if (strcmp(key, "t") == 0)
			fputs(builder->tensors[event->subject].name, lines);
		else
			fprintf(lines, "%" PRIu32, event->subject);
		fputc('\n', lines);
	}
	if (fclose(lines) != 0 || tci_sha256_of(text, bytes, hash, NULL) != TC_OK)
		give_up("cannot hash the events");
	free(text);
	fprintf(out, ",\"events_sha256\":\"%s\"", hash);
}

static void print_header(FILE *out, const struct test_builder *builder, enum test_layout layout)
{
	const char *dtype = tc_dtype_name(builder->param_dtype);
	fprintf(out,
	        "{\"format\":\"tencache-trace\",\"version\":\"1.0\",\"layout\":\"%s\","
	        "\"provenance\":{\"method\":\"hand\"},\"model\":{\"name\":\"test\"},"
	        "\"run\":{\"batch\":1,\"dtype\":{\"param\":\"%s\",\"grad\":\"%s\","
	        "\"compute\":\"%s\",%s\"state\":\"float32\"},"
	        "\"optimizer\":{\"name\":\"adamw\",\"granularity\":\"param\"}%s},"
	        "\"workspace_slack\":%" PRIu64 ",\"buckets\":[",
	        layout == TEST_LINES ? "lines" : "document", dtype, dtype, dtype,
	        builder->has_master ? "\"master\":\"float32\"," : "",
	        builder->has_clip ? ",\"clip\":{\"kind\":\"norm\",\"max_norm\":1.0}" : "",
	        builder->workspace_slack);
	for (size_t i = 0; i < builder->bucket_count; i++) {
		fputs(i == 0 ? "[" : ",[", out);
		for (size_t k = 0; k < builder->buckets[i].count; k++)
			fprintf(out, "%s%" PRIu32, k == 0 ? "" : ",", builder->buckets[i].items[k]);
		fputc(']', out);
	}
	fputc(']', out);
	if (builder->event_count > 0)
		print_events_hash(out, builder);
	fprintf(out,
	        ",\"counts\":{\"tensors\":%zu,\"modules\":%zu,\"events\":%zu,\"unpacks\":%zu,"
	        "\"ops\":%zu},\"requires\":[]",
	        builder->tensor_count, builder->module_count, builder->event_count,
	        builder->unpack_count, builder->op_count);
	fputs(layout == TEST_LINES ? "}\n" : ",\n", out);
}

typedef void (*print_record)(FILE *out, const struct test_builder *builder, size_t index);

static void print_section(FILE *out, const struct test_builder *builder, enum test_layout layout,
                          const char *key, size_t count, print_record print)
{
	if (layout == TEST_DOCUMENT)
		fprintf(out, "\"%s\": [", key);
	for (size_t i = 0; i < count; i++) {
		if (layout == TEST_DOCUMENT)
			fputs(i == 0 ? "\n" : ",\n", out);
		print(out, builder, i);
		if (layout == TEST_LINES)
			fputc('\n', out);
	}
	if (layout == TEST_DOCUMENT)
		fprintf(out, "%s]%s\n", count == 0 ? "" : "\n", strcmp(key, "ops") == 0 ? "" : ",");
}

char *test_builder_text(const struct test_builder *builder, enum test_layout layout)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	if (out == NULL)
		give_up("out of memory");
	print_header(out, builder, layout);
	print_section(out, builder, layout, "tensors", builder->tensor_count, print_tensor);
	print_section(out, builder, layout, "modules", builder->module_count, print_module);
	print_section(out, builder, layout, "events", builder->event_count, print_event);
	print_section(out, builder, layout, "unpacks", builder->unpack_count, print_unpack);
	print_section(out, builder, layout, "ops", builder->op_count, print_op);
	if (layout == TEST_LINES)
		fprintf(out, "{\"end\":true,\"ops\":%zu,\"tensors\":%zu}\n", builder->op_count,
		        builder->tensor_count);
	else
		fputs("}\n", out);
	if (fclose(out) != 0)
		give_up("out of memory");
	return text;
}

struct tc_trace *test_builder_trace(const struct test_builder *builder)
{
	char *text = test_builder_text(builder, TEST_LINES);
	struct tc_trace *trace = NULL;
	struct tc_error error = {0};
	if (tc_trace_parse(text, strlen(text), "test", &trace, &error) != TC_OK)
		give_up(error.text);
	free(text);
	return trace;
}
