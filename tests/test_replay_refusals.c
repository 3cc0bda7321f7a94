/*
 * A backend that refuses a task, or fails one: whichever it is, the run ends with that error, hangs
 * nowhere and frees everything, held deadlines included. Each run is given up after a minute.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "memory_storage.h"
#include "replay_case.h"

#define PATIENCE_S 60u
/** Tasks that are refused in turn: the first ones, then one in so many. */
#define EACH 12u
#define ONE_IN 7u

static const struct test_limits limits = {.layers = 2,
                                          .modules_per_layer = 2,
                                          .params_per_module = 2,
                                          .param_bytes = 12000,
                                          .activation_bytes = 12000};

/** Which task is refused, counted from 1; 0: none. */
static atomic_uint device_tasks, storage_tasks;
static unsigned device_refuses, storage_refuses;

static enum tc_status refuse(const char *what, struct tc_error *error)
{
	return tc_error_set(error, TC_NO_MEMORY, "%s refused on purpose", what);
}

static enum tc_status device_submit(void *self, struct tc_device_task *task, struct tc_error *error)
{
	if (atomic_fetch_add(&device_tasks, 1) + 1 == device_refuses)
		return refuse("device", error);
	return tc_device_host.submit(self, task, error);
}

static enum tc_status storage_submit(void *self, struct tc_storage_task *task,
                                     struct tc_error *error)
{
	if (atomic_fetch_add(&storage_tasks, 1) + 1 == storage_refuses)
		return refuse("storage", error);
	return memory_storage.submit(self, task, error);
}

/** One run; `dilate` 0: not paced. */
static enum tc_status run(const struct replay_case *planned, uint64_t dilate, uint64_t delays,
                          struct tc_error *error)
{
	static const char *const directories[] = {"."};
	struct tc_device_backend device = tc_device_host;
	struct tc_storage_backend storage = memory_storage;
	device.submit = device_submit;
	storage.submit = storage_submit;
	struct tc_replay_options options = {
	    .schedule = planned->schedule,
	    .device = &device,
	    .storage = &storage,
	    .storage_options = {.directories = directories, .directory_count = 1},
	    .verify = TC_VERIFY_SAMPLE,
	    .compute = TC_COMPUTE_NONE,
	    .throttle = dilate > 0 ? planned->machine : NULL,
	    .dilate = dilate,
	    .cpu_threads = 2,
	    .random_delays = delays};
	struct tc_replay *replay;
	atomic_store(&device_tasks, 0);
	atomic_store(&storage_tasks, 0);
	*error = (struct tc_error){0};
	(void)alarm(PATIENCE_S);
	enum tc_status status = tc_replay_create(&options, &replay, error);
	if (status == TC_OK) {
		status = tc_replay_finish(replay, error);
		tc_replay_free(replay);
	}
	(void)alarm(0);
	return status;
}

static unsigned next(unsigned refused)
{
	return refused < EACH ? refused + 1 : refused + ONE_IN;
}

/** Refuse one task after the other until there are no more. */
static void refuse_in_turn(const struct replay_case *planned, unsigned *refused, const char *what,
                           uint64_t dilate, uint64_t delays)
{
	struct tc_error error;
	unsigned runs = 0;
	enum tc_status status;
	for (*refused = 1; (status = run(planned, dilate, delays, &error)) != TC_OK;
	     *refused = next(*refused)) {
		assert_int_equal(status, TC_NO_MEMORY);
		if (strstr(error.text, "refused on purpose") == NULL ||
		    strstr(error.text, what) == NULL)
			fail_msg("task %u: %s", *refused, error.text);
		runs++;
	}
	if (runs < EACH)
		fail_msg("%s: only %u tasks", what, runs);
	*refused = 0;
}

static void test_refused(void **state)
{
	(void)state;
	static const char *const policies[] = {"lru:state=nvme", "10cache"};
	for (uint64_t p = 0; p < 2; p++) {
		struct replay_case planned = replay_case_plan(policies[p], &limits, p + 1, 2);
		for (uint64_t delays = 0; delays < 3; delays += 2) {
			refuse_in_turn(&planned, &device_refuses, "device", 0, delays);
			if (p == 0)
				refuse_in_turn(&planned, &storage_refuses, "storage", 0, delays);
		}
		replay_case_free(&planned);
	}
}

/** Other lanes are held to their deadlines when a task is refused. */
static void test_refused_while_deadlines_are_held(void **state)
{
	(void)state;
	struct replay_case planned = replay_case_plan("lru:state=nvme", &limits, 3, 2);
	struct tc_error error;
	device_refuses = 0;
	storage_refuses = 0;
	assert_int_equal(run(&planned, 1, 0, &error), TC_OK);
	unsigned device = atomic_load(&device_tasks), storage = atomic_load(&storage_tasks);
	for (unsigned k = 0; k < 4; k++) {
		/* The first ones are of setting up, which is not paced. */
		device_refuses = 1 + device * k / 4;
		storage_refuses = 1 + storage * k / 4;
		assert_int_equal(run(&planned, 50, 0, &error), TC_NO_MEMORY);
		assert_non_null(strstr(error.text, "refused on purpose"));
	}
	device_refuses = storage_refuses = 0;
	replay_case_free(&planned);
}

static enum tc_status allocate(void *self, enum tc_tier tier, bool pinned, uint64_t bytes,
                               void **memory, struct tc_error *error)
{
	(void)self;
	(void)tier;
	(void)pinned;
	(void)bytes;
	*memory = NULL;
	return refuse("memory", error);
}

/** A missing --nvme-dir is known before memory is allocated, which takes long. */
static void test_no_directory_before_memory(void **state)
{
	(void)state;
	struct replay_case planned = replay_case_plan("lru:state=nvme", &limits, 1, 3);
	struct tc_device_backend device = tc_device_host;
	struct tc_replay_options options = {
	    .schedule = planned.schedule, .device = &device, .storage = &memory_storage};
	struct tc_replay *replay;
	struct tc_error error = {0};
	device.allocate = allocate;
	assert_int_equal(tc_replay_create(&options, &replay, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "--nvme-dir"));
	replay_case_free(&planned);
}

/** True from the `self`-th time on. */
static bool count_down(void *self)
{
	unsigned *left = self;
	*left -= *left > 0;
	return *left == 0;
}

/** Setting up can be stopped between pools and between tensors, where nothing is on drives, too. */
static void test_cancelled_while_set_up(void **state)
{
	(void)state;
	struct replay_case planned = replay_case_plan("lru", &limits, 1, 3);
	unsigned stopped = 0;
	for (enum tc_status status = TC_IO; status != TC_OK; stopped++) {
		unsigned left = stopped + 1;
		struct tc_replay_options options = {
		    .schedule = planned.schedule,
		    .device = &tc_device_host,
		    .storage_options = {.cancelled = count_down, .cancelled_self = &left}};
		struct tc_replay *replay;
		struct tc_error error = {0};
		status = tc_replay_create(&options, &replay, &error);
		if (status == TC_OK) {
			tc_replay_free(replay);
			break;
		}
		assert_int_equal(status, TC_IO);
		assert_non_null(strstr(error.text, "stopped on request"));
	}
	/* Once for each tensor that has a place from the start, at least. */
	assert_true(stopped > planned.trace->tensor_count / 4);
	replay_case_free(&planned);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_refused_while_deadlines_are_held),
	    cmocka_unit_test(test_no_directory_before_memory),
	    cmocka_unit_test(test_cancelled_while_set_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
