#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "naive_coordinator.h"

void coordinator_say(struct coordinator_text *text, char what, uint32_t parameter)
{
	assert_true(text->length + 16 < COORDINATOR_TEXT_BYTES);
	char *end = text->items + text->length;
	int written = parameter == TC_NONE ? snprintf(end, 16, "%c ", what)
	                                   : snprintf(end, 16, "%c%u ", what, parameter);
	text->length += (size_t)written;
}

enum host_status { IN_HOST, ON_DRIVE, READING };

struct naive_coordinator {
	struct naive_settings settings;
	const struct tc_trace *trace;
	const struct tc_steps *steps;
	struct coordinator_text text;
	uint32_t *queue_parameter, *queue_step; /* what is left starts at queue_first */
	size_t queue_first, queue_count;
	bool *on_gpu, *in_flight, *batch_done;
	uint32_t *batch_of;
	enum host_status *host;
	long *fetched_until; /* most recent step that the prefetcher has seen; -1 */
	uint32_t batches, step, fetches, fetches_waited_for;
	uint64_t live_elements;
	bool recorded;
};

static uint64_t elements_of(const struct naive_coordinator *naive, uint32_t t)
{
	return naive->trace->tensors[t].bytes / tc_dtype_bytes(naive->trace->tensors[t].dtype);
}

static bool is_persistent(const struct naive_coordinator *naive, uint32_t t)
{
	return elements_of(naive, t) <= naive->settings.persistence;
}

static uint64_t buffers_in_use(const struct naive_coordinator *naive)
{
	uint64_t used = 0;
	for (uint32_t t = 0; t < naive->trace->tensor_count; t++)
		used += naive->trace->tensors[t].kind == TC_PARAM && naive->settings.nvme &&
		        naive->host[t] != ON_DRIVE;
	return used;
}

static void naive_wait_for_reads(struct naive_coordinator *naive)
{
	coordinator_say(&naive->text, 'w', TC_NONE);
	for (uint32_t t = 0; t < naive->trace->tensor_count; t++)
		if (naive->host[t] == READING)
			naive->host[t] = IN_HOST;
}

static void naive_fetch(struct naive_coordinator *naive, const uint32_t *batch, size_t count,
                        char what)
{
	bool waiting = false;
	if (count == 0)
		return;
	for (size_t i = 0; i < count; i++) {
		if (naive->host[batch[i]] == ON_DRIVE) {
			coordinator_say(&naive->text, 'l', batch[i]);
			naive->host[batch[i]] = READING;
			assert_true(buffers_in_use(naive) <= naive->settings.buffers);
		}
		waiting = waiting || naive->host[batch[i]] == READING;
	}
	if (waiting)
		naive_wait_for_reads(naive);
	for (size_t i = 0; i < count; i++) {
		coordinator_say(&naive->text, what, batch[i]);
		naive->on_gpu[batch[i]] = naive->in_flight[batch[i]] = true;
		naive->batch_of[batch[i]] = naive->batches;
		naive->live_elements += elements_of(naive, batch[i]);
		naive->fetches++;
	}
	naive->batch_done[naive->batches++] = false;
}

static void naive_prefetch(struct naive_coordinator *naive)
{
	uint32_t batch[256];
	size_t count = 0;
	uint64_t elements = 0;
	uint64_t room = naive->settings.live > naive->live_elements
	                    ? naive->settings.live - naive->live_elements
	                    : 0;
	uint64_t limit = room < naive->settings.prefetch ? room : naive->settings.prefetch;
	while (naive->queue_first < naive->queue_count && elements < limit) {
		uint32_t t = naive->queue_parameter[naive->queue_first];
		long step = (long)naive->queue_step[naive->queue_first];
		bool again = false;
		for (size_t i = 0; i < count; i++)
			again = again || batch[i] == t;
		if (!naive->on_gpu[t] && !again && naive->host[t] == ON_DRIVE)
			break;
		naive->queue_first++;
		if (naive->fetched_until[t] < step)
			naive->fetched_until[t] = step;
		if (naive->on_gpu[t] || again)
			continue;
		batch[count++] = t;
		elements += elements_of(naive, t);
	}
	naive_fetch(naive, batch, count, 'p');
}

static void naive_read_ahead(struct naive_coordinator *naive)
{
	uint64_t in_flight = 0, considered = 0, started = 0;
	uint64_t available = naive->settings.buffers - buffers_in_use(naive);
	for (uint32_t t = 0; t < naive->trace->tensor_count; t++)
		if (naive->in_flight[t])
			in_flight += elements_of(naive, t);
	for (size_t i = naive->queue_first; i < naive->queue_count; i++) {
		uint32_t t = naive->queue_parameter[i];
		if (considered > 2 * in_flight || started >= available)
			return;
		if (naive->host[t] == ON_DRIVE && !naive->on_gpu[t]) {
			coordinator_say(&naive->text, 'l', t);
			naive->host[t] = READING;
			started++;
		}
		considered += elements_of(naive, t);
	}
}

static void naive_access(struct naive_coordinator *naive, const struct tc_request *request)
{
	uint32_t missing[256];
	size_t count = 0;
	const uint32_t *rows = naive->steps->rows + request->first_row;
	for (uint32_t i = 0; i < request->row_count; i++)
		if (!naive->on_gpu[rows[i]])
			missing[count++] = rows[i];
	naive_fetch(naive, missing, count, 'd');
	bool sync = false;
	for (uint32_t i = 0; i < request->row_count; i++) {
		if (!naive->in_flight[rows[i]])
			continue;
		naive->in_flight[rows[i]] = false;
		sync = sync || !naive->batch_done[naive->batch_of[rows[i]]];
		naive->batch_done[naive->batch_of[rows[i]]] = true;
	}
	/* The whole copy stream; nothing to wait for if it has not grown since. */
	if (sync && naive->fetches > naive->fetches_waited_for) {
		coordinator_say(&naive->text, 'w', TC_NONE);
		naive->fetches_waited_for = naive->fetches;
	}
	if (naive->recorded) {
		while (naive->queue_first < naive->queue_count &&
		       naive->queue_step[naive->queue_first] <= naive->step) {
			uint32_t t = naive->queue_parameter[naive->queue_first];
			long step = (long)naive->queue_step[naive->queue_first++];
			if (naive->fetched_until[t] < step)
				naive->fetched_until[t] = step;
		}
		if (naive->settings.prefetch > 0) {
			naive_prefetch(naive);
			if (naive->settings.nvme)
				naive_read_ahead(naive);
		}
	}
	naive->step++;
}

/** Does `t` reappear within the reuse distance of the modules that come next? */
static bool naive_reused(const struct naive_coordinator *naive, uint32_t t)
{
	uint64_t walked = 0;
	uint32_t step = 0;
	for (uint32_t r = 0; r < naive->steps->request_count; r++) {
		const struct tc_request *request = &naive->steps->requests[r];
		if (step++ < naive->step)
			continue;
		if (walked >= naive->settings.reuse)
			return false;
		for (uint32_t i = 0; i < request->row_count; i++) {
			uint32_t other = naive->steps->rows[request->first_row + i];
			if (other == t)
				return true;
			walked += elements_of(naive, other);
		}
	}
	return false;
}

static bool open_elsewhere(const struct naive_coordinator *naive, uint32_t t, uint32_t boundary,
                           uint32_t closing_index)
{
	const struct tc_ids closing = naive->steps->steps[boundary].closing;
	for (uint32_t r = 0; r < naive->steps->request_count; r++) {
		const struct tc_request *request = &naive->steps->requests[r];
		bool holds = false;
		for (uint32_t i = 0; i < request->row_count; i++)
			holds = holds || naive->steps->rows[request->first_row + i] == t;
		bool open = request->opens < boundary && request->closes > boundary;
		for (uint32_t i = closing_index + 1; i < closing.count; i++)
			open = open || closing.items[i] == r;
		if (holds && open)
			return true;
	}
	return false;
}

static void naive_release(struct naive_coordinator *naive, uint32_t boundary,
                          uint32_t closing_index)
{
	uint32_t r = naive->steps->steps[boundary].closing.items[closing_index];
	const struct tc_request *request = &naive->steps->requests[r];
	for (uint32_t i = 0; i < request->row_count; i++) {
		uint32_t t = naive->steps->rows[request->first_row + i];
		if (is_persistent(naive, t) || open_elsewhere(naive, t, boundary, closing_index))
			continue;
		if (naive->recorded &&
		    (naive->fetched_until[t] > (long)naive->step || naive_reused(naive, t)))
			continue;
		if (naive->on_gpu[t]) {
			coordinator_say(&naive->text, 'x', t);
			naive->live_elements -= elements_of(naive, t);
		}
		naive->on_gpu[t] = naive->in_flight[t] = false;
		if (naive->settings.nvme && naive->host[t] != ON_DRIVE) {
			coordinator_say(&naive->text, 'y', t);
			naive->host[t] = ON_DRIVE;
		}
	}
}

static void naive_start(struct naive_coordinator *naive, bool recorded)
{
	naive->recorded = recorded;
	naive->text.length = 0;
	naive->text.items[0] = '\0';
	naive->queue_first = naive->queue_count = 0;
	naive->batches = naive->step = naive->fetches = naive->fetches_waited_for = 0;
	naive->live_elements = 0;
	for (uint32_t r = 0; r < naive->steps->request_count; r++)
		for (uint32_t i = 0; i < naive->steps->requests[r].row_count; i++) {
			uint32_t row = naive->steps->requests[r].first_row + i;
			naive->queue_parameter[naive->queue_count] = naive->steps->rows[row];
			naive->queue_step[naive->queue_count++] = r;
		}
	for (uint32_t t = 0; t < naive->trace->tensor_count; t++) {
		naive->on_gpu[t] = is_persistent(naive, t);
		naive->in_flight[t] = false;
		naive->fetched_until[t] = -1;
		naive->host[t] = naive->settings.nvme ? ON_DRIVE : IN_HOST;
	}
}

static void naive_iteration(struct naive_coordinator *naive)
{
	uint32_t last = 0;
	for (uint32_t s = 0; s < naive->steps->step_count; s++)
		if (naive->steps->steps[s].phase != TC_OPTIMIZER)
			last = s;
	for (uint32_t s = 0; s <= last; s++) {
		const struct tc_step *step = &naive->steps->steps[s];
		for (uint32_t i = 0; i < step->closing.count; i++)
			naive_release(naive, s, i);
		for (uint32_t i = 0; i < step->opening.count; i++)
			naive_access(naive, &naive->steps->requests[step->opening.items[i]]);
		coordinator_say(&naive->text, 'c', TC_NONE);
	}
}

static void *array(size_t count, size_t bytes)
{
	void *items = calloc(count + 1, bytes);
	assert_non_null(items);
	return items;
}

struct naive_coordinator *naive_coordinator_new(const struct tc_trace *trace,
                                                const struct tc_steps *steps,
                                                const struct naive_settings *settings)
{
	struct naive_coordinator *naive = array(1, sizeof *naive);
	size_t tensors = trace->tensor_count, rows = steps->row_count;
	naive->settings = *settings;
	naive->trace = trace;
	naive->steps = steps;
	naive->queue_parameter = array(rows, sizeof *naive->queue_parameter);
	naive->queue_step = array(rows, sizeof *naive->queue_step);
	naive->on_gpu = array(tensors, sizeof *naive->on_gpu);
	naive->in_flight = array(tensors, sizeof *naive->in_flight);
	naive->batch_of = array(tensors, sizeof *naive->batch_of);
	naive->batch_done = array(2 * rows, sizeof *naive->batch_done);
	naive->host = array(tensors, sizeof *naive->host);
	naive->fetched_until = array(tensors, sizeof *naive->fetched_until);
	return naive;
}

const char *naive_coordinator_run(struct naive_coordinator *naive, bool recorded)
{
	naive_start(naive, recorded);
	naive_iteration(naive);
	return naive->text.items;
}

void naive_coordinator_free(struct naive_coordinator *naive)
{
	free(naive->queue_parameter);
	free(naive->queue_step);
	free(naive->on_gpu);
	free(naive->in_flight);
	free(naive->batch_of);
	free(naive->batch_done);
	free(naive->host);
	free(naive->fetched_until);
	free(naive);
}
