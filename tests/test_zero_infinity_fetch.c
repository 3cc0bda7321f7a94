/*
 * The parameter coordinator of zero-infinity: what it fetches, when, and what it gives back.
 *
 * Short streams are worked out by hand in comments. Long ones are compared with a naive model of
 * DeepSpeed's coordinator below, written from the description of its behaviour with plain lists and
 * full scans, apart from the policy.
 *
 * A stream is text: `l3` read of parameter 3 from the drive, `d3` demand fetch, `p3` prefetch, `w`
 * a wait of the issuing thread, `x3` dropped from the GPU, `y3` dropped from its staging buffer,
 * `c` compute of one step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planned.h"
#include "random.h"
#include "trace_builder.h"

#define TEXT_BYTES 65536

struct text {
	char items[TEXT_BYTES];
	size_t length;
};

static void say(struct text *text, char what, uint32_t parameter)
{
	assert_true(text->length + 16 < TEXT_BYTES);
	char *end = text->items + text->length;
	int written = parameter == TC_NONE ? snprintf(end, 16, "%c ", what)
	                                   : snprintf(end, 16, "%c%u ", what, parameter);
	text->length += (size_t)written;
}

/* ---------------------------------------------------------------- the stream of a plan */

static void say_command(const struct planned *planned, const struct tc_command *command,
                        struct text *text)
{
	uint32_t t = command->tensor;
	bool parameter =
	    t < planned->trace->tensor_count && planned->trace->tensors[t].kind == TC_PARAM;
	enum tc_tier tier = command->src.pool == TC_NO_POOL
	                        ? TC_GPU
	                        : planned->schedule->info.pools[command->src.pool].tier;
	switch (command->kind) {
	case TC_COMPUTE:
		say(text, 'c', TC_NONE);
		break;
	case TC_WAIT:
		say(text, 'w', TC_NONE);
		break;
	case TC_FETCH:
		assert_true(parameter);
		assert_true(command->why == TC_WHY_DEMAND || command->why == TC_WHY_PREFETCH);
		say(text, command->why == TC_WHY_DEMAND ? 'd' : 'p', t);
		break;
	case TC_LOAD:
		assert_true(parameter);
		say(text, 'l', t);
		break;
	case TC_DROP:
		if (parameter)
			say(text, tier == TC_GPU ? 'x' : 'y', t);
		break;
	default:
		break;
	}
}

/** Of one iteration, up to the last compute command. */
static void stream(const struct planned *planned, uint32_t iteration, struct text *text)
{
	uint64_t last = 0;
	text->length = 0;
	text->items[0] = '\0';
	for (uint64_t id = 0; id < planned->schedule->command_count; id++) {
		const struct tc_command *command = &planned->schedule->commands[id];
		if (command->iteration == iteration && command->kind == TC_COMPUTE)
			last = id;
	}
	for (uint64_t id = 0; id <= last; id++)
		if (planned->schedule->commands[id].iteration == iteration)
			say_command(planned, &planned->schedule->commands[id], text);
}

/* ---------------------------------------------------------------- naive model */

struct naive_settings {
	bool nvme;
	uint64_t prefetch, live, reuse, persistence, buffers;
};

enum host_status { IN_HOST, ON_DRIVE, READING };

struct naive {
	struct naive_settings settings;
	const struct tc_trace *trace;
	const struct tc_steps *steps;
	struct text text;
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

static uint64_t elements_of(const struct naive *naive, uint32_t t)
{
	return naive->trace->tensors[t].bytes / tc_dtype_bytes(naive->trace->tensors[t].dtype);
}

static bool is_persistent(const struct naive *naive, uint32_t t)
{
	return elements_of(naive, t) <= naive->settings.persistence;
}

static uint64_t buffers_in_use(const struct naive *naive)
{
	uint64_t used = 0;
	for (uint32_t t = 0; t < naive->trace->tensor_count; t++)
		used += naive->trace->tensors[t].kind == TC_PARAM && naive->settings.nvme &&
		        naive->host[t] != ON_DRIVE;
	return used;
}

static void naive_wait_for_reads(struct naive *naive)
{
	say(&naive->text, 'w', TC_NONE);
	for (uint32_t t = 0; t < naive->trace->tensor_count; t++)
		if (naive->host[t] == READING)
			naive->host[t] = IN_HOST;
}

static void naive_fetch(struct naive *naive, const uint32_t *batch, size_t count, char what)
{
	bool waiting = false;
	if (count == 0)
		return;
	for (size_t i = 0; i < count; i++) {
		if (naive->host[batch[i]] == ON_DRIVE) {
			say(&naive->text, 'l', batch[i]);
			naive->host[batch[i]] = READING;
			assert_true(buffers_in_use(naive) <= naive->settings.buffers);
		}
		waiting = waiting || naive->host[batch[i]] == READING;
	}
	if (waiting)
		naive_wait_for_reads(naive);
	for (size_t i = 0; i < count; i++) {
		say(&naive->text, what, batch[i]);
		naive->on_gpu[batch[i]] = naive->in_flight[batch[i]] = true;
		naive->batch_of[batch[i]] = naive->batches;
		naive->live_elements += elements_of(naive, batch[i]);
		naive->fetches++;
	}
	naive->batch_done[naive->batches++] = false;
}

static void naive_prefetch(struct naive *naive)
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

static void naive_read_ahead(struct naive *naive)
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
			say(&naive->text, 'l', t);
			naive->host[t] = READING;
			started++;
		}
		considered += elements_of(naive, t);
	}
}

static void naive_access(struct naive *naive, const struct tc_request *request)
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
		say(&naive->text, 'w', TC_NONE);
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
static bool naive_reused(const struct naive *naive, uint32_t t)
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

static bool open_elsewhere(const struct naive *naive, uint32_t t, uint32_t boundary,
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

static void naive_release(struct naive *naive, uint32_t boundary, uint32_t closing_index)
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
			say(&naive->text, 'x', t);
			naive->live_elements -= elements_of(naive, t);
		}
		naive->on_gpu[t] = naive->in_flight[t] = false;
		if (naive->settings.nvme && naive->host[t] != ON_DRIVE) {
			say(&naive->text, 'y', t);
			naive->host[t] = ON_DRIVE;
		}
	}
}

static void naive_start(struct naive *naive, bool recorded)
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

static void naive_iteration(struct naive *naive)
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
		say(&naive->text, 'c', TC_NONE);
	}
}

static void *array(size_t count, size_t bytes)
{
	void *items = calloc(count + 1, bytes);
	assert_non_null(items);
	return items;
}

static struct naive *naive_new(const struct planned *planned, const struct naive_settings *settings)
{
	struct naive *naive = array(1, sizeof *naive);
	size_t tensors = planned->trace->tensor_count, rows = planned->steps->row_count;
	naive->settings = *settings;
	naive->trace = planned->trace;
	naive->steps = planned->steps;
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

static void naive_free(struct naive *naive)
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

/* ---------------------------------------------------------------- by hand */

/** `count` modules in a row, one parameter of 1,000 FP16 elements each: tensors 1, 2, ... */
static struct planned *plan_chain(uint32_t count, const char *policy)
{
	const uint64_t bytes = 2000;
	const struct test_model model = {
	    .layers = count, .half = true, .param_bytes = &bytes, .param_bytes_count = 1};
	const struct planned_options options = {.policy = policy};
	return planned_new(test_model_trace(&model), &options);
}

static void expect_stream(const struct planned *planned, uint32_t iteration, const char *expected)
{
	static struct text text;
	assert_int_equal(planned->status, TC_OK);
	stream(planned, iteration, &text);
	assert_string_equal(text.items, expected);
}

/*
 * Four modules A B C D = 1 2 3 4, one tensor per prefetch batch, tensors kept only when the very
 * next module needs them again. Besides forward and backward of each module the model has one step
 * for the loss and one that seeds the gradient, which access nothing: `c c` in the middle.
 *
 * First iteration: the order is recorded, nothing is prefetched, each module gives back its own.
 * Afterwards: A is demanded, waited for, and only then B is prefetched; from then on each access
 * waits for the one prefetched before, then prefetches the next. At D (fourth access) the queue
 * goes on with D itself, which is there, then C. D is kept: its next use lies 0 elements ahead. In
 * backward C waits for the copy stream, on which B is also under way, and so at B the wait is for
 * A, and at A there is nothing left to wait for.
 */
static void test_issue_after_wait(void **state)
{
	(void)state;
	struct planned *planned =
	    plan_chain(4, "zero-infinity:param-persistence-threshold=0:prefetch-bucket-size=1000:"
	                  "max-reuse-distance=1");
	expect_stream(planned, 0,
	              "d1 w c x1 d2 w c x2 d3 w c x3 d4 w c x4 c c "
	              "d4 w c x4 d3 w c x3 d2 w c x2 d1 w c ");
	expect_stream(planned, 1,
	              "d1 w p2 c x1 w p3 c x2 w p4 c x3 w p3 c c c "
	              "p2 c x4 w p1 c x3 w c x2 c ");
	planned_free(planned);
}

/** The wait after which C runs in backward names the fetch of B, the last one on the copy stream.
 */
static void test_wait_is_for_the_copy_stream(void **state)
{
	(void)state;
	struct planned *planned =
	    plan_chain(4, "zero-infinity:param-persistence-threshold=0:prefetch-bucket-size=1000:"
	                  "max-reuse-distance=1");
	uint64_t last_fetch = TC_NO_COMMAND;
	uint32_t waits = 0;
	for (uint64_t id = 0; id < planned->schedule->command_count; id++) {
		const struct tc_command *command = &planned->schedule->commands[id];
		if (command->iteration != 1 || command->phase == TC_OPTIMIZER)
			continue;
		if (command->kind == TC_FETCH)
			last_fetch = id;
		if (command->kind != TC_WAIT)
			continue;
		waits++;
		assert_int_equal(command->dep_count, 1);
		assert_int_equal(command->deps[0].id, last_fetch);
	}
	assert_int_equal(waits, 6);
	planned_free(planned);
}

/*
 * With reuse distance 0 D goes after forward although the next module needs it, and its later use
 * was already passed by the prefetcher: a demand fetch. The wait for it covers C, too, but nobody
 * has waited for C's batch, and by then B is on the copy stream: C waits for B.
 */
static void test_reuse_distance_zero(void **state)
{
	(void)state;
	struct planned *planned =
	    plan_chain(4, "zero-infinity:param-persistence-threshold=0:prefetch-bucket-size=1000:"
	                  "max-reuse-distance=0");
	expect_stream(planned, 1,
	              "d1 w p2 c x1 w p3 c x2 w p4 c x3 w p3 c x4 c c "
	              "d4 w p2 c x4 w p1 c x3 w c x2 c ");
	planned_free(planned);
}

/*
 * Reuse distance 2,001: after C (third of four) the modules to come are D D C: C is found after
 * 2,000 elements, so it stays; B would be found after 4,000 and goes. The prefetcher passes over
 * both D and C.
 */
static void test_reuse_distance(void **state)
{
	(void)state;
	struct planned *planned =
	    plan_chain(4, "zero-infinity:param-persistence-threshold=0:prefetch-bucket-size=1000:"
	                  "max-reuse-distance=2001");
	expect_stream(planned, 1,
	              "d1 w p2 c x1 w p3 c x2 w p4 c w p2 c c c "
	              "p1 c x4 c x3 w c x2 c ");
	planned_free(planned);
}

/*
 * Live cap 2,500. At A min(2,500 - 1,000, bucket) = 1,500 may be prefetched, so the batch ends
 * after B and C: it may overshoot by part of one tensor, 3,000 are live. At B, with B and C live,
 * 500 are left: D. C belongs to B's batch, which was waited for: no wait. There C and D are live,
 * the queue goes on with D, D, C, all there, and B. C stays, since the prefetcher has passed its
 * later use. At D, with C D B live, nothing is left, in forward and in backward; D goes, then A
 * comes.
 */
static void test_live_cap(void **state)
{
	(void)state;
	struct planned *planned =
	    plan_chain(4, "zero-infinity:param-persistence-threshold=0:max-live-parameters=2500:"
	                  "max-reuse-distance=1");
	expect_stream(planned, 1,
	              "d1 w p2 p3 c x1 w p4 c x2 p2 c w c c c "
	              "c x4 p1 c x3 w c x2 c ");
	planned_free(planned);
}

static void test_no_prefetch(void **state)
{
	(void)state;
	struct planned *planned =
	    plan_chain(3, "zero-infinity:param-persistence-threshold=0:prefetch-bucket-size=0:"
	                  "max-reuse-distance=1");
	expect_stream(planned, 1, "d1 w c x1 d2 w c x2 d3 w c c c c x3 d2 w c x2 d1 w c ");
	planned_free(planned);
}

/*
 * Parameters on the drive, four staging buffers, one tensor a batch. The GPU prefetcher stops at
 * the first tensor that is not in host memory, so in forward each module demands its own, which was
 * read ahead at the module before: two waits, for the read and for the copy. Reading ahead goes up
 * to twice the elements in flight to the GPU: none in forward, so one tensor.
 *
 * At D the queue goes on with D (there) and C (on the drive): read. At D's backward C is being
 * read: the prefetch waits for the read. Then 1,000 elements are in flight: B and A may be read (0
 * and 1,000 are not above 2,000).
 */
static void test_nvme_stream(void **state)
{
	(void)state;
	struct planned *planned = plan_chain(
	    4, "zero-infinity:device=nvme:optimizer-device=cpu:min-nvme-bytes=1:max-in-cpu=0:"
	       "buffer-count=4:buffer-size=1000:param-persistence-threshold=0:"
	       "prefetch-bucket-size=1000:max-reuse-distance=1");
	expect_stream(planned, 1,
	              "l1 w d1 w l2 c x1 y1 w d2 w l3 c x2 y2 w d3 w l4 c x3 y3 w d4 w l3 c c c "
	              "w p3 l2 l1 c x4 y4 w w p2 c x3 y3 w p1 c x2 y2 w c ");
	planned_free(planned);
}

/* ---------------------------------------------------------------- naive comparison */

static struct tc_trace *regular_trace(uint64_t *random, uint64_t *sizes)
{
	for (int i = 0; i < 5; i++)
		sizes[i] = 2 * (1 + test_random_below(random, 2000));
	const struct test_model model = {
	    .layers = 1 + (uint32_t)test_random_below(random, 5),
	    .modules_per_layer = 1 + (uint32_t)test_random_below(random, 3),
	    .params_per_module = 1 + (uint32_t)test_random_below(random, 3),
	    .param_bytes = sizes,
	    .param_bytes_count = 5,
	    .half = true,
	    .checkpoint = test_random_below(random, 2) == 0,
	    .early_stop = test_random_below(random, 2) == 0,
	    .tied_head = test_random_below(random, 3) == 0,
	};
	return test_model_trace(&model);
}

static void compare(uint64_t *random, bool nvme)
{
	static struct text text;
	uint64_t sizes[5];
	struct tc_trace *trace = regular_trace(random, sizes);
	const struct naive_settings settings = {
	    .nvme = nvme,
	    .prefetch = test_random_below(random, 6000),
	    .live = test_random_below(random, 20000),
	    .reuse = test_random_below(random, 20000),
	    .persistence = nvme ? 0 : test_random_below(random, 1000),
	    .buffers = 1000,
	};
	char policy[400];
	(void)snprintf(policy, sizeof policy,
	               "zero-infinity:device=%s:optimizer-device=cpu:min-nvme-bytes=1:"
	               "max-in-cpu=0:buffer-count=%llu:buffer-size=4000:"
	               "prefetch-bucket-size=%llu:max-live-parameters=%llu:"
	               "max-reuse-distance=%llu:param-persistence-threshold=%llu",
	               nvme ? "nvme" : "cpu", (unsigned long long)settings.buffers,
	               (unsigned long long)settings.prefetch, (unsigned long long)settings.live,
	               (unsigned long long)settings.reuse,
	               (unsigned long long)settings.persistence);
	const struct planned_options options = {.policy = policy, .iterations = 4};
	struct planned *planned = planned_new(trace, &options);
	assert_int_equal(planned->status, TC_OK);
	struct naive *naive = naive_new(planned, &settings);
	for (uint32_t iteration = 0; iteration < 4; iteration++) {
		naive_start(naive, iteration > 0);
		naive_iteration(naive);
		stream(planned, iteration, &text);
		assert_string_equal(text.items, naive->text.items);
	}
	naive_free(naive);
	planned_free(planned);
}

static void test_against_naive(void **state)
{
	(void)state;
	uint64_t random = 2104;
	for (int round = 0; round < 300; round++)
		compare(&random, false);
}

static void test_against_naive_nvme(void **state)
{
	(void)state;
	uint64_t random = 7857;
	for (int round = 0; round < 300; round++)
		compare(&random, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_issue_after_wait),
	    cmocka_unit_test(test_wait_is_for_the_copy_stream),
	    cmocka_unit_test(test_reuse_distance_zero),
	    cmocka_unit_test(test_reuse_distance),
	    cmocka_unit_test(test_live_cap),
	    cmocka_unit_test(test_no_prefetch),
	    cmocka_unit_test(test_nvme_stream),
	    cmocka_unit_test(test_against_naive),
	    cmocka_unit_test(test_against_naive_nvme),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
