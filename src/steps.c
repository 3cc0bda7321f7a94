/*
 * What a trace means to a planner. First the steps are cut, then each gets its lists, then the
 * requests are found, then the uses of each tensor are collected. Everything lies in blocks that
 * belong to the result; the work is linear in the size of the trace and of what comes out.
 */
#include "tencache/steps.h"

#include <stdio.h>
#include <stdlib.h>

#include "steps_derive.h"
#include "tencache/units.h"

void *tci_derive_take(struct tci_derive *derive, size_t count, size_t element_bytes)
{
	void *memory = tci_blocks_take(derive->blocks, count, element_bytes);
	if (memory == NULL)
		(void)tc_error_no_memory(derive->error, "steps", count);
	return memory;
}

/* ---------------------------------------------------------------- lists of steps */

/** Appends lists to one array: each list of a step is a slice of it. */
struct list_writer {
	uint32_t *items;
	uint32_t
	    *mark; /* per tensor: step + 1 in which it was taken last; NULL: keep repetitions */
	size_t count;
};

static void append(struct list_writer *writer, struct tc_ids *list, uint32_t step,
                   const struct tc_ids *ids)
{
	if (list->items == NULL)
		list->items = writer->items + writer->count;
	for (uint32_t i = 0; i < ids->count; i++) {
		uint32_t id = ids->items[i];
		if (writer->mark != NULL && writer->mark[id] == step + 1)
			continue;
		if (writer->mark != NULL)
			writer->mark[id] = step + 1;
		writer->items[writer->count++] = id;
		list->count++;
	}
}

static const struct tc_ids *frees_of(const struct tc_steps *steps, const struct tc_op *op)
{
	return steps->frees == TC_FREES_EAGER ? &op->frees_eager : &op->frees;
}

static enum tc_status begin_list(struct tci_derive *derive, struct list_writer *writer,
                                 size_t items, bool distinct)
{
	*writer = (struct list_writer){0};
	writer->items = tci_derive_take(derive, items, sizeof *writer->items);
	if (writer->items == NULL)
		return TC_NO_MEMORY;
	if (!distinct)
		return TC_OK;
	writer->mark = tc_alloc_array(derive->trace->tensor_count + (size_t)1, sizeof(uint32_t));
	return writer->mark == NULL
	           ? tc_error_no_memory(derive->error, "steps", derive->trace->tensor_count)
	           : TC_OK;
}

static enum tc_status fill_touched(struct tci_derive *derive)
{
	const struct tc_trace *trace = derive->trace;
	struct list_writer reads, writes = {0};
	size_t read_count = 0, write_count = 0;
	for (uint32_t i = 0; i < trace->op_count; i++) {
		read_count += trace->ops[i].reads.count;
		write_count += trace->ops[i].writes.count;
	}
	enum tc_status status = begin_list(derive, &reads, read_count, true);
	if (status == TC_OK)
		status = begin_list(derive, &writes, write_count, true);
	for (uint32_t i = 0; i < trace->op_count && status == TC_OK; i++) {
		uint32_t s = derive->step_of_op[i];
		append(&reads, &derive->steps->steps[s].reads, s, &trace->ops[i].reads);
		append(&writes, &derive->steps->steps[s].writes, s, &trace->ops[i].writes);
	}
	free(reads.mark);
	free(writes.mark);
	return status;
}

static enum tc_status fill_lives(struct tci_derive *derive)
{
	const struct tc_trace *trace = derive->trace;
	struct list_writer allocates, frees;
	size_t allocate_count = 0, free_count = 0;
	for (uint32_t i = 0; i < trace->op_count; i++) {
		allocate_count += trace->ops[i].allocates.count;
		free_count += frees_of(derive->steps, &trace->ops[i])->count;
	}
	TC_TRY(begin_list(derive, &allocates, allocate_count, false));
	TC_TRY(begin_list(derive, &frees, free_count, false));
	for (uint32_t i = 0; i < trace->op_count; i++) {
		uint32_t s = derive->step_of_op[i];
		append(&allocates, &derive->steps->steps[s].allocates, s, &trace->ops[i].allocates);
		append(&frees, &derive->steps->steps[s].frees, s,
		       frees_of(derive->steps, &trace->ops[i]));
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- sorting into steps */

/**
 * Distribute `count` values over steps: value i goes to step keys[i], in order of i within a step
 * (counting sort). Lists go where `list_of` says.
 */
static enum tc_status distribute(struct tci_derive *derive, const uint32_t *keys,
                                 const uint32_t *values, size_t count,
                                 struct tc_ids *(*list_of)(struct tc_step *step))
{
	struct tc_steps *steps = derive->steps;
	uint32_t *items = tci_derive_take(derive, count, sizeof *items);
	size_t *next = tc_alloc_array(steps->step_count + (size_t)2, sizeof *next);
	if (next == NULL)
		(void)tc_error_no_memory(derive->error, "steps", steps->step_count);
	if (items == NULL || next == NULL) {
		free(next);
		return TC_NO_MEMORY;
	}
	for (size_t i = 0; i < count; i++)
		next[keys[i] + 1]++;
	for (uint32_t s = 0; s <= steps->step_count; s++) {
		struct tc_ids *list = list_of(&steps->steps[s]);
		*list = (struct tc_ids){items + next[s], (uint32_t)next[s + 1]};
		next[s + 1] += next[s];
	}
	for (size_t i = 0; i < count; i++)
		items[next[keys[i]]++] = values[i];
	free(next);
	return TC_OK;
}

static struct tc_ids *unpacks_of(struct tc_step *step)
{
	return &step->unpacks;
}

static struct tc_ids *opening_of(struct tc_step *step)
{
	return &step->opening;
}

static struct tc_ids *closing_of(struct tc_step *step)
{
	return &step->closing;
}

static enum tc_status fill_unpacks(struct tci_derive *derive)
{
	const struct tc_trace *trace = derive->trace;
	size_t count = 0;
	for (uint32_t i = 0; i < trace->unpack_count; i++)
		count += trace->unpacks[i].events.count;
	uint32_t *keys = tc_alloc_array(2 * count + 1, sizeof *keys);
	if (keys == NULL)
		return tc_error_no_memory(derive->error, "unpacks", count);
	uint32_t *tensors = keys + count;
	count = 0;
	for (uint32_t i = 0; i < trace->unpack_count; i++) {
		uint32_t last = TC_NONE;
		for (uint32_t k = 0; k < trace->unpacks[i].events.count; k++) {
			uint32_t op = tc_trace_op_after(trace, trace->unpacks[i].events.items[k]);
			/* Several unpacks in one step, rising: one use. */
			if (derive->step_of_op[op] == last)
				continue;
			last = derive->step_of_op[op];
			keys[count] = last;
			tensors[count++] = trace->unpacks[i].tensor;
		}
	}
	enum tc_status status = distribute(derive, keys, tensors, count, unpacks_of);
	free(keys);
	return status;
}

static enum tc_status fill_boundaries(struct tci_derive *derive)
{
	const struct tc_steps *steps = derive->steps;
	size_t count = steps->request_count;
	uint32_t *keys = tc_alloc_array(2 * count + 1, sizeof *keys);
	if (keys == NULL)
		return tc_error_no_memory(derive->error, "requests", count);
	uint32_t *ids = keys + count;
	for (uint32_t i = 0; i < count; i++) {
		keys[i] = steps->requests[i].opens;
		ids[i] = i;
	}
	enum tc_status status = distribute(derive, keys, ids, count, opening_of);
	for (uint32_t i = 0; i < count; i++)
		keys[i] = steps->requests[i].closes;
	if (status == TC_OK)
		status = distribute(derive, keys, ids, count, closing_of);
	free(keys);
	return status;
}

/* ---------------------------------------------------------------- requested tensors */

/** Open requests in the order in which they opened: a list through an array of links. */
struct open_list {
	uint32_t *next; /* per request; request_count: the head */
};

static void close_requests(const struct tc_steps *steps, struct open_list *open, uint32_t step)
{
	for (uint32_t at = steps->request_count; open->next[at] != TC_NONE;) {
		uint32_t request = open->next[at];
		if (steps->requests[request].closes == step)
			open->next[at] = open->next[request];
		else
			at = request;
	}
}

static void open_requests(const struct tc_steps *steps, struct open_list *open,
                          const struct tc_ids *opening)
{
	uint32_t at = steps->request_count;
	while (open->next[at] != TC_NONE)
		at = open->next[at];
	for (uint32_t i = 0; i < opening->count; i++) {
		open->next[at] = opening->items[i];
		at = opening->items[i];
		open->next[at] = TC_NONE;
	}
}

static enum tc_status count_requested(const struct tci_derive *derive, uint64_t *count)
{
	const struct tc_steps *steps = derive->steps;
	*count = 0;
	for (uint32_t i = 0; i < steps->request_count && *count <= TCI_LARGEST_REQUESTED; i++) {
		const struct tc_request *request = &steps->requests[i];
		*count += (uint64_t)request->row_count * (request->closes - request->opens);
	}
	if (*count > TCI_LARGEST_REQUESTED)
		return tc_error_set(
		    derive->error, TC_TOO_LARGE,
		    "%s: requests stay open for more than %llu tensors x steps; use "
		    "a coarser granularity",
		    derive->trace->file_name, (unsigned long long)TCI_LARGEST_REQUESTED);
	return TC_OK;
}

static enum tc_status fill_requested(struct tci_derive *derive)
{
	struct tc_steps *steps = derive->steps;
	struct list_writer writer = {0};
	uint64_t count;
	TC_TRY(count_requested(derive, &count));
	struct open_list open = {
	    tc_alloc_array(steps->request_count + (size_t)1, sizeof(uint32_t))};
	if (open.next == NULL)
		return tc_error_no_memory(derive->error, "requests", steps->request_count);
	open.next[steps->request_count] = TC_NONE;
	enum tc_status status = begin_list(derive, &writer, (size_t)count, true);
	for (uint32_t s = 0; s < steps->step_count && status == TC_OK; s++) {
		struct tc_step *step = &steps->steps[s];
		close_requests(steps, &open, s);
		open_requests(steps, &open, &step->opening);
		for (uint32_t r = open.next[steps->request_count]; r != TC_NONE; r = open.next[r]) {
			const struct tc_ids rows = {steps->rows + steps->requests[r].first_row,
			                            steps->requests[r].row_count};
			append(&writer, &step->requested, s, &rows);
		}
	}
	free(writer.mark);
	free(open.next);
	return status;
}

/* ---------------------------------------------------------------- uses */

/** Call for each (tensor, step) once: counts, or stores when `store` is set. */
static void pass_uses(const struct tc_steps *steps, uint32_t *mark, uint32_t *next, uint32_t *store)
{
	for (uint32_t s = 0; s < steps->step_count; s++) {
		const struct tc_step *step = &steps->steps[s];
		const struct tc_ids *const lists[] = {&step->reads, &step->writes, &step->unpacks,
		                                      &step->requested};
		for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
			for (uint32_t i = 0; i < lists[l]->count; i++) {
				uint32_t tensor = lists[l]->items[i];
				if (mark[tensor] == s + 1)
					continue;
				mark[tensor] = s + 1;
				if (store != NULL)
					store[next[tensor]] = s;
				next[tensor]++;
			}
		}
	}
}

static enum tc_status fill_uses(struct tci_derive *derive)
{
	struct tc_steps *steps = derive->steps;
	uint32_t tensors = derive->trace->tensor_count;
	uint32_t *mark = tc_alloc_array(2 * ((size_t)tensors + 1), sizeof *mark);
	if (mark == NULL)
		return tc_error_no_memory(derive->error, "uses", tensors);
	uint32_t *next = mark + tensors + 1;
	pass_uses(steps, mark, next, NULL);
	steps->use_first = tci_derive_take(derive, tensors + (size_t)1, sizeof(uint32_t));
	uint64_t total = 0;
	for (uint32_t t = 0; t < tensors && steps->use_first != NULL; t++) {
		steps->use_first[t] = (uint32_t)total;
		total += next[t];
		next[t] = steps->use_first[t];
		mark[t] = 0;
	}
	enum tc_status status = steps->use_first == NULL ? TC_NO_MEMORY : TC_OK;
	if (total >= TC_NONE)
		status = tc_error_set(derive->error, TC_TOO_LARGE,
		                      "%s: more than 2^32 uses of tensors in steps",
		                      derive->trace->file_name);
	if (status == TC_OK) {
		steps->use_first[tensors] = (uint32_t)total;
		steps->use_steps = tci_derive_take(derive, (size_t)total, sizeof(uint32_t));
		status = steps->use_steps == NULL ? TC_NO_MEMORY : TC_OK;
	}
	if (status == TC_OK)
		pass_uses(steps, mark, next, steps->use_steps);
	free(mark);
	return status;
}

/* ---------------------------------------------------------------- public */

enum tc_status tci_fill_opened(struct tci_derive *derive)
{
	TC_TRY(fill_boundaries(derive));
	TC_TRY(fill_requested(derive));
	return fill_uses(derive);
}

static enum tc_status derive_all(struct tci_derive *derive)
{
	TC_TRY(tci_cut_steps(derive));
	TC_TRY(fill_touched(derive));
	TC_TRY(fill_lives(derive));
	TC_TRY(fill_unpacks(derive));
	TC_TRY(tci_find_requests(derive));
	return tci_fill_opened(derive);
}

enum tc_status tc_steps_derive(const struct tc_trace *trace, enum tc_granularity granularity,
                               enum tc_request_mode request_mode, enum tc_frees frees,
                               struct tc_steps **steps, struct tc_error *error)
{
	*steps = NULL;
	if (!trace->has_events && request_mode == TC_REQUESTS_HOOK)
		return tc_error_set(error, TC_ARGUMENT,
		                    "%s: the trace has no events, so no module hook asks for "
		                    "anything; use --requests reads",
		                    trace->file_name);
	struct tci_blocks *blocks = tci_blocks_create();
	struct tc_steps *result =
	    blocks == NULL ? NULL : tci_blocks_take(blocks, 1, sizeof *result);
	if (result == NULL) {
		tci_blocks_free(blocks);
		return tc_error_no_memory(error, "steps", sizeof *result);
	}
	result->storage = blocks;
	result->trace = trace;
	result->granularity = granularity;
	result->request_mode = request_mode;
	result->frees = frees;
	struct tci_derive derive = {
	    .trace = trace, .steps = result, .blocks = blocks, .error = error};
	enum tc_status status = derive_all(&derive);
	if (status == TC_OK)
		*steps = result;
	else
		tci_blocks_free(blocks);
	return status;
}

void tc_steps_free(struct tc_steps *steps)
{
	if (steps != NULL)
		tci_blocks_free(steps->storage);
}

uint64_t tc_steps_next_use(const struct tc_steps *steps, uint32_t tensor, uint32_t from)
{
	uint32_t low = steps->use_first[tensor], end = steps->use_first[tensor + 1], high = end;
	if (low == end)
		return UINT64_MAX;
	uint32_t first = steps->use_steps[low];
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (steps->use_steps[middle] < from)
			low = middle + 1;
		else
			high = middle;
	}
	return low < end ? steps->use_steps[low] : (uint64_t)steps->step_count + first;
}

char *tc_step_describe(const struct tc_steps *steps, uint32_t step, char *buffer, size_t bytes)
{
	if (step >= steps->step_count) {
		(void)snprintf(buffer, bytes, "end of the iteration");
		return buffer;
	}
	const struct tc_step *s = &steps->steps[step];
	const struct tc_trace *trace = steps->trace;
	const char *where = trace->ops[s->first_op].name;
	if (s->module != TC_NONE && trace->modules[s->module].path[0] != '\0')
		where = trace->modules[s->module].path;
	(void)snprintf(buffer, bytes, "%s step %u (%s)",
	               s->recompute ? "recomputed forward" : tc_phase_name(s->phase),
	               steps->order != NULL ? steps->order[step] : step, where);
	return buffer;
}

static const char *word_of(const char *const *words, size_t count, unsigned value)
{
	return value < count ? words[value] : "unknown";
}

const char *tc_granularity_name(enum tc_granularity granularity)
{
	static const char *const words[] = {"module", "layer", "op"};
	return word_of(words, 3, granularity);
}

const char *tc_request_mode_name(enum tc_request_mode mode)
{
	static const char *const words[] = {"hook", "reads"};
	return word_of(words, 2, mode);
}

const char *tc_pass_name(enum tc_pass pass)
{
	static const char *const words[] = {"forward", "recompute", "backward", "optimizer"};
	return word_of(words, 4, pass);
}
