/*
 * The parameter coordinator of zero-infinity: what it fetches, when, and what it gives back.
 *
 * Short streams are worked out by hand in comments. Long ones are compared with a naive model of
 * DeepSpeed's coordinator (tests/support/naive_coordinator.h), which also says how a stream is
 * written as text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "naive_coordinator.h"
#include "planned.h"
#include "random.h"
#include "trace_builder.h"

/* ---------------------------------------------------------------- the stream of a plan */

static void say_command(const struct planned *planned, const struct tc_command *command,
                        struct coordinator_text *text)
{
	uint32_t t = command->tensor;
	bool parameter =
	    t < planned->trace->tensor_count && planned->trace->tensors[t].kind == TC_PARAM;
	enum tc_tier tier = command->src.pool == TC_NO_POOL
	                        ? TC_GPU
	                        : planned->schedule->info.pools[command->src.pool].tier;
	switch (command->kind) {
	case TC_COMPUTE:
		coordinator_say(text, 'c', TC_NONE);
		break;
	case TC_WAIT:
		coordinator_say(text, 'w', TC_NONE);
		break;
	case TC_FETCH:
		assert_true(parameter);
		assert_true(command->why == TC_WHY_DEMAND || command->why == TC_WHY_PREFETCH);
		coordinator_say(text, command->why == TC_WHY_DEMAND ? 'd' : 'p', t);
		break;
	case TC_LOAD:
		assert_true(parameter);
		coordinator_say(text, 'l', t);
		break;
	case TC_DROP:
		if (parameter)
			coordinator_say(text, tier == TC_GPU ? 'x' : 'y', t);
		break;
	default:
		break;
	}
}

/** Of one iteration, up to the last compute command. */
static void stream(const struct planned *planned, uint32_t iteration, struct coordinator_text *text)
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
	static struct coordinator_text text;
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
	static struct coordinator_text text;
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
	struct naive_coordinator *naive =
	    naive_coordinator_new(planned->trace, planned->steps, &settings);
	for (uint32_t iteration = 0; iteration < 4; iteration++) {
		stream(planned, iteration, &text);
		assert_string_equal(text.items, naive_coordinator_run(naive, iteration > 0));
	}
	naive_coordinator_free(naive);
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
