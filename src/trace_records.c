/* Tensors, modules, events and unpacks. What refers forward is checked in trace_check.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tencache/units.h"
#include "trace_reader.h"

/** Ids are dense and in file order: the key must hold the index of the record. */
static void check_number(struct tci_reader *reader, const struct tci_json *object, const char *key,
                         uint32_t index)
{
	const struct tci_json *member;
	if (!tci_get(reader, object, key, TCI_REQUIRED, TCI_JSON_INTEGER, &member))
		return;
	if (member->integer != (int64_t)index)
		tci_finding(reader,
		            "\"%s\" is %" PRId64
		            ", expected %u: ids count from 0 in file order, each once",
		            key, member->integer, index);
}

/** 32-bit index of a layer. */
static void read_layer(struct tci_reader *reader, const struct tci_json *object, uint32_t *layer)
{
	uint64_t value;
	if (tci_get_integer(reader, object, "layer", TCI_OPTIONAL, 0, TC_NONE - 1u, &value))
		*layer = (uint32_t)value;
}

/* ---------------------------------------------------------------- tensors */

static void check_shape(struct tci_reader *reader, const struct tci_json *object,
                        const struct tc_tensor *tensor, uint64_t element_bytes)
{
	const struct tci_json *shape;
	if (!tci_get(reader, object, "shape", TCI_OPTIONAL, TCI_JSON_ARRAY, &shape))
		return;
	uint64_t product = 1;
	const struct tci_json *size = tci_json_first(shape);
	for (uint32_t i = 0; i < shape->size; i++, size = tci_json_next(size)) {
		char buffer[64];
		if (size->type != TCI_JSON_INTEGER || size->integer < 0 ||
		    !tc_mul_u64(product, (uint64_t)size->integer, &product)) {
			tci_finding(reader, "\"shape\" holds %s, expected sizes whose product fits",
			            tci_found(size, buffer));
			return;
		}
	}
	uint64_t bytes;
	if (element_bytes == 0)
		return;
	if (!tc_mul_u64(product, element_bytes, &bytes) || bytes > tensor->bytes)
		tci_finding(reader,
		            "\"bytes\" is %" PRIu64 ", expected at least %" PRIu64
		            " elements x %" PRIu64 " bytes by \"shape\" and \"dtype\"",
		            tensor->bytes, product, element_bytes);
	else if (bytes < tensor->bytes)
		tci_warning(reader,
		            "\"bytes\" is %" PRIu64 ", \"shape\" and \"dtype\" say %" PRIu64
		            ": the rest counts as part of the tensor",
		            tensor->bytes, bytes);
}

static void read_names(struct tci_reader *reader, const struct tci_json *bind,
                       struct tc_tensor *tensor)
{
	const struct tci_json *list;
	if (!tci_get(reader, bind, "names", TCI_OPTIONAL, TCI_JSON_ARRAY, &list))
		return;
	uint32_t count = list->size;
	const char **names = tci_blocks_take(reader->blocks, count, sizeof *names);
	if (names == NULL) {
		(void)tci_out_of_memory(reader);
		return;
	}
	const struct tci_json *name = tci_json_first(list);
	for (uint32_t i = 0; i < count; i++, name = tci_json_next(name)) {
		char buffer[64];
		if (name->type != TCI_JSON_STRING) {
			tci_finding(reader, "\"names\" holds %s, expected strings",
			            tci_found(name, buffer));
			return;
		}
		names[i] = tci_blocks_string(reader->blocks, name->text);
		if (names[i] == NULL) {
			(void)tci_out_of_memory(reader);
			return;
		}
	}
	tensor->bind_names = count > 0 ? names : NULL;
	tensor->bind_name_count = count;
}

static void read_bind(struct tci_reader *reader, const struct tci_json *object,
                      struct tc_tensor *tensor)
{
	const struct tci_json *bind, *bound_at;
	unsigned kind;
	uint64_t value;
	if (!tci_get(reader, object, "bind", TCI_OPTIONAL, TCI_JSON_OBJECT, &bind))
		return;
	if (tci_get_word(reader, bind, "kind", TCI_REQUIRED, &tci_bind_kinds, &kind))
		tensor->bind = (enum tc_bind_kind)kind;
	read_names(reader, bind, tensor);
	if (tci_get_integer(reader, bind, "m", TCI_OPTIONAL, 0, TC_NONE - 1u, &value))
		tensor->bind_module = (uint32_t)value;
	if (tci_get_integer(reader, bind, "ord", TCI_OPTIONAL, 0, TC_NONE - 1u, &value))
		tensor->bind_ordinal = (uint32_t)value;
	if (!tci_get(reader, object, "bound_at", TCI_REQUIRED, TCI_JSON_INTEGER, &bound_at))
		return;
	tensor->bound_at = bound_at->integer;
	if (tensor->bound_at < -1 || tensor->bound_at >= TC_NONE) {
		tci_finding(reader, "\"bound_at\" is %" PRId64 ", expected -1 or an event",
		            tensor->bound_at);
		tensor->bound_at = -1;
	}
}

static bool persists_by_default(enum tc_tensor_kind kind)
{
	return kind == TC_PARAM || kind == TC_BUFFER || kind == TC_OPTIMIZER_STATE ||
	       kind == TC_INPUT;
}

static void read_role(struct tci_reader *reader, const struct tci_json *object,
                      struct tc_tensor *tensor)
{
	const struct tci_json *member;
	unsigned role = TC_ROLE_OTHER;
	if (!tci_get(reader, object, "role", TCI_OPTIONAL, TCI_JSON_STRING, &member))
		return;
	(void)tci_word_find(&tci_roles, member->text, &role);
	tensor->role = (enum tc_role)role;
}

void tci_read_tensor(struct tci_reader *reader, const struct tci_json *object)
{
	struct tc_tensor *tensor = tci_add_record(reader, TCI_TENSORS);
	if (tensor == NULL)
		return;
	*tensor = (struct tc_tensor){
	    .of = TC_NONE, .layer = TC_NONE, .bind_module = TC_NONE, .bound_at = -1, .name = ""};
	uint32_t index = reader->trace->tensor_count - 1;
	tci_about(reader, "tensor", index, NULL);
	(void)tci_get_string(reader, object, "name", TCI_OPTIONAL, &tensor->name);
	tci_about(reader, "tensor", index, tensor->name);
	check_number(reader, object, "t", index);
	unsigned kind = TC_TEMP;
	uint64_t value, element_bytes = 0;
	(void)tci_get_word(reader, object, "kind", TCI_REQUIRED, &tci_tensor_kinds, &kind);
	tensor->kind = (enum tc_tensor_kind)kind;
	(void)tci_get_integer(reader, object, "bytes", TCI_REQUIRED, 1, TCI_LARGEST_TENSOR_BYTES,
	                      &tensor->bytes);
	(void)tci_get_dtype(reader, object, "dtype", &tensor->dtype, &element_bytes);
	read_role(reader, object, tensor);
	if (tci_get_integer(reader, object, "of", TCI_OPTIONAL, 0, TC_NONE - 1u, &value))
		tensor->of = (uint32_t)value;
	read_layer(reader, object, &tensor->layer);
	tensor->persistent = persists_by_default(tensor->kind);
	(void)tci_get_flag(reader, object, "persist", &tensor->persistent);
	if (tensor->bytes > 0) {
		check_shape(reader, object, tensor, element_bytes);
		if (element_bytes > 0 && tensor->bytes % element_bytes != 0 &&
		    (tensor->kind == TC_PARAM || tensor->kind == TC_GRAD ||
		     tensor->kind == TC_OPTIMIZER_STATE))
			tci_finding(reader,
			            "\"bytes\" is %" PRIu64 ", expected a multiple of %" PRIu64
			            ", an element's size by \"dtype\"",
			            tensor->bytes, element_bytes);
	}
	read_bind(reader, object, tensor);
}

/* ---------------------------------------------------------------- modules */

void tci_read_module(struct tci_reader *reader, const struct tci_json *object)
{
	struct tc_trace *trace = reader->trace;
	struct tc_module *module = tci_add_record(reader, TCI_MODULES);
	if (module == NULL)
		return;
	*module = (struct tc_module){.path = "", .class_name = "", .layer = TC_NONE};
	uint32_t index = trace->module_count - 1;
	tci_about(reader, "module", index, NULL);
	(void)tci_get_string(reader, object, "path", TCI_REQUIRED, &module->path);
	tci_about(reader, "module", index, module->path);
	check_number(reader, object, "m", index);
	(void)tci_get_string(reader, object, "class", TCI_OPTIONAL, &module->class_name);
	tci_get_ids(reader, object, "params", TCI_REQUIRED, trace->tensor_count, "tensors",
	            &module->params);
	for (uint32_t i = 0; i < module->params.count; i++) {
		const struct tc_tensor *tensor = &trace->tensors[module->params.items[i]];
		if (tensor->kind != TC_PARAM)
			tci_finding(reader, "\"params\" holds tensor %u, a %s; expected a param",
			            module->params.items[i], tc_tensor_kind_name(tensor->kind));
	}
	read_layer(reader, object, &module->layer);
}

/* ---------------------------------------------------------------- events */

/** What a kind of event concerns: the key that it must have, all others of the list it must not. */
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
		return "";
	}
}

static void read_subject(struct tci_reader *reader, const struct tci_json *object,
                         struct tc_event *event)
{
	static const char *const keys[] = {"m", "t", "b", "mb"};
	const struct tc_trace *trace = reader->trace;
	const char *own = subject_key(event->kind);
	uint64_t value;
	if (own[0] == 'm' && own[1] == '\0')
		(void)tci_get_id(reader, object, "m", TCI_REQUIRED, trace->module_count, "modules",
		                 &event->module);
	else if (own[0] == 't')
		(void)tci_get_id(reader, object, "t", TCI_REQUIRED, trace->tensor_count, "tensors",
		                 &event->tensor);
	else if (own[0] == 'b')
		(void)tci_get_id(reader, object, "b", TCI_REQUIRED, trace->bucket_count, "buckets",
		                 &event->bucket);
	else if (own[0] == 'm' &&
	         tci_get_integer(reader, object, "mb", TCI_REQUIRED, 0, TC_NONE - 1u, &value))
		event->micro_batch = (uint32_t)value;
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		if (strcmp(keys[i], own) != 0 && tci_json_member(object, keys[i]) != NULL)
			tci_finding(reader, "key \"%s\" is there, expected %s%s%s for a %s event",
			            keys[i], own[0] == '\0' ? "none of m, t, b, mb" : "only \"",
			            own, own[0] == '\0' ? "" : "\"",
			            tc_event_kind_name(event->kind));
	}
	if (event->tensor != TC_NONE && trace->tensors[event->tensor].kind != TC_PARAM)
		tci_finding(reader, "\"t\" is tensor %u, a %s; expected a param", event->tensor,
		            tc_tensor_kind_name(trace->tensors[event->tensor].kind));
}

/** Events in an order that no program can produce. */
static void check_order(struct tci_reader *reader, const struct tc_event *event, uint32_t index)
{
	if ((index == 0) != (event->kind == TC_EVENT_START))
		tci_finding(reader, "\"event\" is \"%s\", expected \"start\" first and only there",
		            tc_event_kind_name(event->kind));
	if (reader->ended)
		tci_finding(reader, "\"event\" is \"%s\" after \"end\", expected nothing",
		            tc_event_kind_name(event->kind));
	reader->ended = reader->ended || event->kind == TC_EVENT_END;
	if (event->kind == TC_EVENT_BACKWARD_START && !reader->backward_started) {
		reader->backward_started = true;
		reader->first_backward_event = index;
	}
	if (event->kind == TC_EVENT_MICRO_BATCH) {
		if (event->micro_batch < reader->micro_batch)
			tci_finding(reader, "\"mb\" is %u after %u, expected it not to go back",
			            event->micro_batch, reader->micro_batch);
		reader->micro_batch = event->micro_batch;
	}
	if (event->module == TC_NONE || reader->module_open == NULL)
		return;
	if (event->kind == TC_EVENT_FORWARD_PRE)
		reader->module_open[event->module] = true;
	else if (!reader->module_open[event->module])
		tci_finding(reader, "%s of module %u (%.100s) without a forward_pre before it",
		            tc_event_kind_name(event->kind), event->module,
		            reader->trace->modules[event->module].path);
}

/** One line of what events_sha256 is taken over. */
static void hash_event(struct tci_reader *reader, const struct tc_event *event)
{
	const struct tc_trace *trace = reader->trace;
	const char *kind = tc_event_kind_name(event->kind), *name = "";
	char number[16] = "";
	if (event->module != TC_NONE)
		name = trace->modules[event->module].path;
	else if (event->tensor != TC_NONE)
		name = trace->tensors[event->tensor].name;
	else if (event->bucket != TC_NONE)
		snprintf(number, sizeof number, "%u", event->bucket);
	else if (event->micro_batch != TC_NONE)
		snprintf(number, sizeof number, "%u", event->micro_batch);
	struct tci_sha256 *hash = &reader->events_hash;
	if (hash->context == NULL)
		return;
	if (tci_sha256_add(hash, kind, strlen(kind), NULL) != TC_OK ||
	    tci_sha256_add(hash, "\t", 1, NULL) != TC_OK ||
	    tci_sha256_add(hash, name, strlen(name), NULL) != TC_OK ||
	    tci_sha256_add(hash, number, strlen(number), NULL) != TC_OK ||
	    tci_sha256_add(hash, "\n", 1, NULL) != TC_OK)
		reader->fatal = TC_INTERNAL;
}

void tci_read_event(struct tci_reader *reader, const struct tci_json *object)
{
	struct tc_trace *trace = reader->trace;
	struct tc_event *event = tci_add_record(reader, TCI_EVENTS);
	if (event == NULL)
		return;
	*event = (struct tc_event){TC_EVENT_KIND_COUNT, TC_NONE, TC_NONE, TC_NONE, TC_NONE};
	uint32_t index = trace->event_count - 1;
	if (index == 0) {
		/* One flag per module; at least one, so that no modules is no failure. */
		reader->module_open =
		    tci_blocks_take(reader->blocks, trace->module_count + (size_t)1, sizeof(bool));
		if (reader->module_open == NULL)
			(void)tci_out_of_memory(reader);
		if (tci_sha256_begin(&reader->events_hash, NULL) != TC_OK)
			reader->fatal = TC_INTERNAL;
	}
	tci_about(reader, "event", index, NULL);
	check_number(reader, object, "e", index);
	unsigned kind;
	if (!tci_get_word(reader, object, "event", TCI_REQUIRED, &tci_event_kinds, &kind))
		return;
	event->kind = (enum tc_event_kind)kind;
	read_subject(reader, object, event);
	check_order(reader, event, index);
	hash_event(reader, event);
}

/* ---------------------------------------------------------------- unpacks */

void tci_read_unpack(struct tci_reader *reader, const struct tci_json *object)
{
	struct tc_trace *trace = reader->trace;
	struct tc_unpack *unpack = tci_add_record(reader, TCI_UNPACKS);
	if (unpack == NULL)
		return;
	*unpack = (struct tc_unpack){.tensor = TC_NONE};
	tci_about(reader, "unpack", trace->unpack_count - 1, NULL);
	(void)tci_get_id(reader, object, "t", TCI_REQUIRED, trace->tensor_count, "tensors",
	                 &unpack->tensor);
	tci_get_ids(reader, object, "u", TCI_REQUIRED, trace->event_count, "events",
	            &unpack->events);
	const struct tci_json *list = tci_json_member(object, "u");
	if (list != NULL && list->type == TCI_JSON_ARRAY && list->size == 0)
		tci_finding(reader, "\"u\" is empty, expected at least one event");
	for (uint32_t i = 1; i < unpack->events.count; i++) {
		if (unpack->events.items[i] < unpack->events.items[i - 1])
			tci_finding(reader, "\"u\" holds %u after %u, expected rising events",
			            unpack->events.items[i], unpack->events.items[i - 1]);
	}
}
