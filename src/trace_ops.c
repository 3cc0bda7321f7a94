/*
 * Ops, and the lives of the tensors they touch: allocated once, written before read, used only
 * while alive, freed at most once by each of the two lifetimes. All of it in one pass, one small
 * record a tensor.
 */
#include <inttypes.h>
#include <string.h>

#include "tencache/units.h"
#include "trace_reader.h"

/** A list of an op: its key in the record and what an entry means for the tensor. */
struct list {
	const char *key;
	const struct tci_json *json;
	size_t count;
};

static struct list get_list(struct tci_reader *reader, const struct tci_json *object,
                            const char *key)
{
	const struct tci_json *array;
	struct list list = {key, NULL, 0};
	if (tci_get(reader, object, key, TCI_OPTIONAL, TCI_JSON_ARRAY, &array)) {
		list.json = array;
		list.count = array->size;
	}
	return list;
}

static const char *name_of(const struct tci_reader *reader, uint32_t tensor)
{
	const char *name = reader->trace->tensors[tensor].name;
	return name[0] != '\0' ? name : "unnamed";
}

/* ---------------------------------------------------------------- entries */

/** A tensor id; false after a finding. */
static bool read_entry_id(struct tci_reader *reader, const char *key, const struct tci_json *value,
                          uint32_t *id)
{
	const struct tc_trace *trace = reader->trace;
	int64_t number = value->type == TCI_JSON_INTEGER ? value->integer : -1;
	if (number >= 0 && (uint64_t)number < trace->tensor_count) {
		*id = (uint32_t)number;
		return true;
	}
	char buffer[64];
	if (trace->tensor_count == 0)
		tci_finding(reader, "\"%s\" holds %s, but the trace has no tensors", key,
		            tci_found(value, buffer));
	else
		tci_finding(reader, "\"%s\" holds %s, expected a tensor from 0 to %u", key,
		            tci_found(value, buffer), trace->tensor_count - 1);
	return false;
}

/** A sub-range [id, offset, length] that lies within its tensor. */
static bool read_range(struct tci_reader *reader, const char *key, const struct tci_json *value,
                       uint32_t *id, struct tc_range *range)
{
	if (!reader->subranges) {
		tci_finding(reader,
		            "\"%s\" holds a sub-range, expected tensor ids: the header does not "
		            "require \"subrange\"",
		            key);
		return false;
	}
	const struct tci_json *first = tci_json_first(value), *second = tci_json_next(first);
	if (value->size != 3 || second->type != TCI_JSON_INTEGER ||
	    tci_json_next(second)->type != TCI_JSON_INTEGER) {
		tci_finding(reader, "\"%s\" holds an array, expected [tensor, offset, length]",
		            key);
		return false;
	}
	if (!read_entry_id(reader, key, first, id))
		return false;
	int64_t offset = second->integer, length = tci_json_next(second)->integer;
	uint64_t bytes = reader->trace->tensors[*id].bytes;
	if (offset < 0 || length <= 0 || (uint64_t)offset > bytes ||
	    (uint64_t)length > bytes - (uint64_t)offset) {
		tci_finding(reader,
		            "\"%s\" holds bytes %" PRId64 " + %" PRId64
		            " of tensor %u (%s), expected a part of its %" PRIu64 " bytes",
		            key, offset, length, *id, name_of(reader, *id), bytes);
		return false;
	}
	*range = (struct tc_range){(uint64_t)offset, (uint64_t)length};
	return true;
}

/** One id of a list; false (after a finding) when it is wrong or a repetition. Sub-ranges of one
 * tensor may follow each other, in rising order. */
static bool read_entry(struct tci_reader *reader, const struct list *list,
                       const struct tci_json *value, uint32_t *id, struct tc_range *range,
                       bool *is_range)
{
	*is_range = value->type == TCI_JSON_ARRAY && range != NULL;
	bool right = *is_range ? read_range(reader, list->key, value, id, range)
	                       : read_entry_id(reader, list->key, value, id);
	if (!right)
		return false;
	struct tci_life *life = &reader->lives[*id];
	bool seen = life->mark == reader->next_mark;
	if (seen && !(*is_range && range->offset >= life->range_end && life->range_end > 0)) {
		tci_finding(reader, "\"%s\" holds tensor %u (%s) twice", list->key, *id,
		            name_of(reader, *id));
		return false;
	}
	life->mark = reader->next_mark;
	life->range_end = *is_range ? range->offset + range->bytes : 0;
	return true;
}

/** Take a list over into the trace; `ranges` is NULL for lists that cannot hold any. */
static struct tc_ids read_list(struct tci_reader *reader, const struct list *list,
                               const struct tc_range **ranges)
{
	struct tc_ids ids = {0};
	if (list->count == 0)
		return ids;
	reader->next_mark++;
	uint32_t *items = tci_blocks_take(reader->blocks, list->count, sizeof *items);
	struct tc_range *parts = NULL;
	if (items == NULL) {
		(void)tci_out_of_memory(reader);
		return ids;
	}
	const struct tci_json *value = tci_json_first(list->json);
	for (size_t i = 0; i < list->count; i++, value = tci_json_next(value)) {
		struct tc_range range = {0, 0};
		bool is_range;
		if (!read_entry(reader, list, value, &items[ids.count],
		                ranges == NULL ? NULL : &range, &is_range))
			continue;
		if (is_range && parts == NULL) {
			parts = tci_blocks_take(reader->blocks, list->count, sizeof *parts);
			if (parts == NULL) {
				(void)tci_out_of_memory(reader);
				return ids;
			}
			for (uint32_t k = 0; k < ids.count; k++)
				parts[k].bytes = reader->trace->tensors[items[k]].bytes;
		}
		if (parts != NULL)
			parts[ids.count] =
			    is_range ? range
			             : (struct tc_range){
			                   0, reader->trace->tensors[items[ids.count]].bytes};
		ids.count++;
	}
	ids.items = items;
	if (ranges != NULL)
		*ranges = parts;
	return ids;
}

/* ---------------------------------------------------------------- lives */

static void allocate(struct tci_reader *reader, uint32_t op, uint32_t id)
{
	struct tci_life *life = &reader->lives[id];
	if (reader->trace->tensors[id].persistent)
		tci_finding(
		    reader,
		    "\"a\" holds tensor %u (%s), which is persistent; expected only tensors "
		    "that are born in the iteration",
		    id, name_of(reader, id));
	else if (life->allocated != TC_NONE)
		tci_finding(reader,
		            "\"a\" holds tensor %u (%s), allocated already by op %u; expected one "
		            "allocation",
		            id, name_of(reader, id), life->allocated);
	else
		life->allocated = op;
}

/** Is the tensor there when op `op` touches it? */
static void use(struct tci_reader *reader, const char *key, uint32_t id)
{
	struct tci_life *life = &reader->lives[id];
	life->used = true;
	if (reader->trace->tensors[id].persistent)
		return;
	if (life->allocated == TC_NONE) {
		tci_finding(
		    reader,
		    "\"%s\" holds tensor %u (%s) before any op allocates it; expected it in an "
		    "\"a\" first",
		    key, id, name_of(reader, id));
		life->allocated = 0; /* said once is enough */
	} else if (life->freed != TC_NONE) {
		tci_finding(
		    reader,
		    "\"%s\" holds tensor %u (%s) after op %u freed it (\"f\"); expected no use "
		    "after that",
		    key, id, name_of(reader, id), life->freed);
	} else if (life->freed_eager != TC_NONE) {
		tci_finding(
		    reader,
		    "\"%s\" holds tensor %u (%s) after op %u freed it (\"fe\"); expected no "
		    "use after that",
		    key, id, name_of(reader, id), life->freed_eager);
	}
}

static void read_tensor(struct tci_reader *reader, uint32_t id)
{
	use(reader, "r", id);
	struct tci_life *life = &reader->lives[id];
	if (life->written || reader->trace->tensors[id].persistent)
		return;
	tci_finding(reader,
	            "\"r\" holds tensor %u (%s), which no op has written; expected content first",
	            id, name_of(reader, id));
	life->written = true;
}

static void release(struct tci_reader *reader, uint32_t op, uint32_t id, bool eager)
{
	struct tci_life *life = &reader->lives[id];
	uint32_t *freed = eager ? &life->freed_eager : &life->freed;
	const char *key = eager ? "fe" : "f";
	if (reader->trace->tensors[id].persistent)
		tci_finding(
		    reader,
		    "\"%s\" holds tensor %u (%s), which is persistent; expected only tensors "
		    "that are born in the iteration",
		    key, id, name_of(reader, id));
	else if (*freed != TC_NONE)
		tci_finding(reader, "\"%s\" holds tensor %u (%s), freed already by op %u", key, id,
		            name_of(reader, id), *freed);
	else if (life->allocated == TC_NONE)
		tci_finding(reader, "\"%s\" holds tensor %u (%s), which no op has allocated", key,
		            id, name_of(reader, id));
	else if (!eager && life->freed_eager != TC_NONE)
		tci_finding(
		    reader,
		    "\"f\" holds tensor %u (%s), which op %u has in \"fe\"; expected the last "
		    "use not to come after that",
		    id, name_of(reader, id), life->freed_eager);
	else
		*freed = op;
}

/** In the order in which things happen: born, read, written, freed. */
static void live(struct tci_reader *reader, uint32_t index)
{
	const struct tc_op *op = &reader->trace->ops[index];
	for (uint32_t i = 0; i < op->allocates.count; i++)
		allocate(reader, index, op->allocates.items[i]);
	for (uint32_t i = 0; i < op->reads.count; i++)
		read_tensor(reader, op->reads.items[i]);
	for (uint32_t i = 0; i < op->writes.count; i++) {
		use(reader, "w", op->writes.items[i]);
		reader->lives[op->writes.items[i]].written = true;
	}
	for (uint32_t i = 0; i < op->frees.count; i++)
		release(reader, index, op->frees.items[i], false);
	for (uint32_t i = 0; i < op->frees_eager.count; i++)
		release(reader, index, op->frees_eager.items[i], true);
}

/* ---------------------------------------------------------------- order and numbers */

static void read_event_of(struct tci_reader *reader, const struct tci_json *object,
                          struct tc_op *op)
{
	const struct tc_trace *trace = reader->trace;
	if (tci_json_member(object, "e") == NULL) {
		if (trace->event_count > 0)
			tci_finding(reader,
			            "key \"e\" is missing, expected the last event before the "
			            "op: no op comes before \"start\"");
		return;
	}
	if (!tci_get_id(reader, object, "e", TCI_REQUIRED, trace->event_count, "events",
	                &op->event))
		return;
	if (reader->last_event != TC_NONE && op->event < reader->last_event)
		tci_finding(reader,
		            "\"e\" is %u after %u in the op before, expected it not to go back",
		            op->event, reader->last_event);
	reader->last_event = op->event;
	if (op->phase == TC_BACKWARD && op->event < reader->first_backward_event)
		tci_finding(reader, "a backward op before the event \"backward_start\"; expected "
		                    "that event to be the last one before the first backward op");
}

/** Warn once where phases go back without a new micro-batch: usual traces go f, b, o, z. */
static void check_phase_order(struct tci_reader *reader, const struct tc_op *op)
{
	const struct tc_trace *trace = reader->trace;
	uint32_t micro_batch = TC_NONE;
	if (op->phase < reader->last_phase && op->phase != TC_OTHER && !reader->warned_order &&
	    reader->last_phase != TC_OTHER) {
		for (uint32_t e = reader->last_micro_batch; op->event != TC_NONE && e <= op->event;
		     e++) {
			if (trace->events[e].kind == TC_EVENT_MICRO_BATCH)
				micro_batch = e;
		}
		if (micro_batch == TC_NONE) {
			tci_warning(reader,
			            "a %s op after a %s op, expected forward, backward, "
			            "optimizer, zero_grad",
			            tc_phase_name(op->phase), tc_phase_name(reader->last_phase));
			reader->warned_order = true;
		}
	}
	reader->last_phase = op->phase;
	if (op->event != TC_NONE)
		reader->last_micro_batch = op->event + 1;
}

static void read_time(struct tci_reader *reader, const struct tci_json *object, struct tc_op *op)
{
	const struct tci_json *us = tci_json_member(object, "us");
	if (us == NULL)
		return;
	char buffer[64];
	bool is_number = us->type == TCI_JSON_INTEGER || us->type == TCI_JSON_REAL;
	if (!is_number || !tci_json_scaled(us, 6, &op->measured_ps) ||
	    op->measured_ps > TCI_LARGEST_PS) {
		op->measured_ps = 0;
		tci_finding(reader, "\"us\" is %s, expected microseconds from 0 to 1e12",
		            tci_found(us, buffer));
		return;
	}
	op->timed = true;
}

static void add_sum(struct tci_reader *reader, const char *what, uint64_t value, uint64_t *sum)
{
	if (reader->overflowed || (tc_add_u64(*sum, value, sum) && *sum <= TCI_LARGEST_SUM))
		return;
	reader->overflowed = true;
	tci_finding(reader, "the sum of \"%s\" over all ops is above 2^60, expected less", what);
}

static void read_numbers(struct tci_reader *reader, const struct tci_json *object, struct tc_op *op)
{
	const uint64_t largest = TC_MAX_JSON_INTEGER;
	read_time(reader, object, op);
	(void)tci_get_integer(reader, object, "flops", TCI_OPTIONAL, 0, largest, &op->flops);
	op->has_bytes =
	    tci_get_integer(reader, object, "bytes", TCI_OPTIONAL, 0, largest, &op->bytes);
	(void)tci_get_integer(reader, object, "ws", TCI_OPTIONAL, 0, TCI_LARGEST_TENSOR_BYTES,
	                      &op->workspace);
	add_sum(reader, "us", op->measured_ps, &reader->sum_ps);
	add_sum(reader, "flops", op->flops, &reader->sum_flops);
	add_sum(reader, "ws", op->workspace, &reader->sum_workspace);
	add_sum(reader, "bytes", tc_op_traffic_bytes(reader->trace, op), &reader->sum_bytes);
}

/** Keys of the format that this program does not act on. */
static void check_ignored(struct tci_reader *reader, const struct tci_json *object)
{
	uint64_t value = 0;
	const struct tci_json *device;
	(void)tci_get_integer(reader, object, "it", TCI_OPTIONAL, 0, 0, &value);
	if (tci_get_integer(reader, object, "stream", TCI_OPTIONAL, 0, TC_MAX_JSON_INTEGER,
	                    &value) &&
	    value != 0 && !reader->warned_stream) {
		reader->warned_stream = true;
		tci_warning(reader,
		            "\"stream\" is %" PRIu64 ": all ops are run on one stream, in "
		            "the order of the file",
		            value);
	}
	if (tci_get(reader, object, "dev", TCI_OPTIONAL, TCI_JSON_STRING, &device) &&
	    strcmp(device->text, "gpu") != 0 && !reader->warned_device) {
		reader->warned_device = true;
		tci_warning(reader, "\"dev\" is \"%.40s\": all ops are run on the GPU",
		            device->text);
	}
}

/* ---------------------------------------------------------------- op */

void tci_begin_ops(struct tci_reader *reader)
{
	const struct tc_trace *trace = reader->trace;
	if (!tc_grow_array(&reader->lives, &reader->life_capacity, trace->tensor_count + (size_t)1,
	                   sizeof *reader->lives)) {
		(void)tci_out_of_memory(reader);
		return;
	}
	for (uint32_t i = 0; i < trace->tensor_count; i++)
		reader->lives[i] =
		    (struct tci_life){.allocated = TC_NONE,
		                      .freed = TC_NONE,
		                      .freed_eager = TC_NONE,
		                      .gradient = {.event = TC_NONE, .late_op = TC_NONE}};
}

static void read_identity(struct tci_reader *reader, const struct tci_json *object, uint32_t index,
                          struct tc_op *op)
{
	const struct tci_json *number;
	tci_about(reader, "op", index, NULL);
	(void)tci_get_string(reader, object, "name", TCI_REQUIRED, &op->name);
	tci_about(reader, "op", index, op->name);
	if (tci_get(reader, object, "op", TCI_REQUIRED, TCI_JSON_INTEGER, &number) &&
	    number->integer != (int64_t)index)
		tci_finding(reader,
		            "\"op\" is %" PRId64
		            ", expected %u: ids count from 0 in file order, each once",
		            number->integer, index);
}

void tci_read_op(struct tci_reader *reader, const struct tci_json *object)
{
	struct tc_trace *trace = reader->trace;
	struct tc_op *op = tci_add_record(reader, TCI_OPS);
	if (op == NULL)
		return;
	*op = (struct tc_op){.name = "",
	                     .module = TC_NONE,
	                     .event = TC_NONE,
	                     .layer = TC_NONE,
	                     .phase = TC_OTHER,
	                     .op_class = TC_ELEMENTWISE};
	uint32_t index = trace->op_count - 1;
	read_identity(reader, object, index, op);
	unsigned word;
	uint64_t value;
	if (tci_get_word(reader, object, "phase", TCI_REQUIRED, &tci_phases, &word))
		op->phase = (enum tc_phase)word;
	if (tci_get_word(reader, object, "cls", TCI_OPTIONAL, &tci_op_classes, &word))
		op->op_class = (enum tc_op_class)word;
	if (tci_json_member(object, "m") != NULL)
		(void)tci_get_id(reader, object, "m", TCI_OPTIONAL, trace->module_count, "modules",
		                 &op->module);
	if (tci_get_integer(reader, object, "layer", TCI_OPTIONAL, 0, TC_NONE - 1u, &value))
		op->layer = (uint32_t)value;
	(void)tci_get_flag(reader, object, "rc", &op->recompute);
	if (op->recompute && op->phase != TC_BACKWARD)
		tci_finding(reader, "\"rc\" is set on a %s op, expected it on backward ops only",
		            tc_phase_name(op->phase));
	read_event_of(reader, object, op);
	check_phase_order(reader, op);
	const struct list reads = get_list(reader, object, "r"),
	                  writes = get_list(reader, object, "w"),
	                  allocates = get_list(reader, object, "a"),
	                  frees = get_list(reader, object, "f"),
	                  frees_eager = get_list(reader, object, "fe");
	op->reads = read_list(reader, &reads, &op->read_ranges);
	op->writes = read_list(reader, &writes, &op->write_ranges);
	op->allocates = read_list(reader, &allocates, NULL);
	op->frees = read_list(reader, &frees, NULL);
	op->frees_eager = read_list(reader, &frees_eager, NULL);
	if (reader->fatal != TC_OK)
		return;
	read_numbers(reader, object, op);
	check_ignored(reader, object);
	live(reader, index);
	tci_gradients_op(reader, index);
}
