/*
 * The executor on real plans: sound schedules run under any timing without a wrong byte, measured
 * times obey the rules of a schedule, failures and cancelling end the run with a message and no
 * hang.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "executor.h"
#include "memory_storage.h"
#include "replay_case.h"
#include "tencache/report.h"

static const char *const policies[] = {
    "lru",
    "belady",
    "lru:state=nvme",
    "lru:optimizer=gpu",
    "10cache",
    "zero-infinity:device=cpu:reduce-bucket-size=4096:sub-group-size=4096:"
    "prefetch-bucket-size=4096:param-persistence-threshold=8",
    "zero-infinity:device=nvme:reduce-bucket-size=4096:buffer-size=8192:sub-group-size=8192:"
    "prefetch-bucket-size=4096:param-persistence-threshold=8:max-in-cpu=4000:min-nvme-bytes=1",
};
enum { POLICY_COUNT = sizeof policies / sizeof *policies };

static const struct test_limits limits = {.layers = 3,
                                          .modules_per_layer = 2,
                                          .params_per_module = 2,
                                          .param_bytes = 12000,
                                          .activation_bytes = 12000};

static void must(enum tc_status status, const struct tc_error *error)
{
	if (status != TC_OK)
		fail_msg("%s", error->text);
}

/* ---------------------------------------------------------------- sound schedules */

static void test_sound_schedules(void **state)
{
	(void)state;
	for (int p = 0; p < POLICY_COUNT; p++)
		for (uint64_t seed = 1; seed <= 6; seed++) {
			struct replay_case planned =
			    replay_case_plan(policies[p], &limits, seed, 3);
			struct tc_replay_options options = {
			    .schedule = planned.schedule,
			    .verify = seed % 3 == 0 ? TC_VERIFY_SAMPLE : TC_VERIFY_FULL,
			    .compute = TC_COMPUTE_NONE,
			    .random_delays = seed % 2 == 0 ? seed : 0};
			struct tc_error error = {0};
			enum tc_status status = replay_case_run(&options, &error);
			if (status != TC_OK)
				fail_msg("%s, seed %d: %s", policies[p], (int)seed, error.text);
			replay_case_free(&planned);
		}
}

/** A schedule without its trace: as one that was read from a file. */
static void test_without_trace(void **state)
{
	(void)state;
	for (int p = 0; p < POLICY_COUNT; p++) {
		struct replay_case planned = replay_case_plan(policies[p], &limits, 7, 3);
		planned.schedule->info.trace = NULL;
		planned.schedule->info.steps = NULL;
		planned.schedule->info.machine = NULL;
		struct tc_replay_options options = {.schedule = planned.schedule,
		                                    .verify = TC_VERIFY_FULL,
		                                    .compute = TC_COMPUTE_MODEL,
		                                    .random_delays = 5};
		struct tc_error error = {0};
		enum tc_status status = replay_case_run(&options, &error);
		if (status != TC_OK)
			fail_msg("%s: %s", policies[p], error.text);
		replay_case_free(&planned);
	}
}

/* ---------------------------------------------------------------- rules of execution */

/** Measured times by id, and the sum that every report checks. */
struct seen {
	struct tc_timing *timings;
	uint64_t count, last_end_ps, previous_compute_end_ps;
	bool had_compute;
};

static enum tc_status see(void *self, const struct tc_command *command,
                          const struct tc_timing *timing, struct tc_error *error)
{
	struct seen *seen = self;
	uint64_t stalls = 0;
	(void)error;
	assert_true(timing->end_ps >= seen->last_end_ps);
	seen->last_end_ps = timing->end_ps;
	seen->timings[command->id] = *timing;
	seen->count++;
	for (int cause = 0; cause < TC_STALL_CAUSE_COUNT; cause++)
		stalls += timing->stall_ps[cause];
	if (command->queue == TC_QUEUE_COMPUTE && command->lane == 0) {
		assert_int_equal(stalls, timing->start_ps - seen->previous_compute_end_ps);
		seen->previous_compute_end_ps = timing->end_ps;
	}
	return TC_OK;
}

/** A command starts when it is issued, its lane's predecessor and all dependencies have ended. */
static void check_rules(const struct tc_schedule *schedule, const struct seen *seen)
{
	uint64_t lane_end[TC_MAX_LANES] = {0}, host_ps = 0;
	assert_int_equal(seen->count, schedule->command_count);
	for (uint64_t c = 0; c < schedule->command_count; c++) {
		const struct tc_command *command = &schedule->commands[c];
		const struct tc_timing *timing = &seen->timings[c];
		uint32_t lane = tc_lane_index(schedule->info.lanes, command->queue, command->lane);
		assert_true(timing->issue_ps >= host_ps);
		assert_true(timing->start_ps >= timing->issue_ps);
		assert_true(timing->end_ps >= timing->start_ps);
		assert_true(timing->start_ps >= lane_end[lane]);
		for (uint32_t d = 0; d < command->dep_count; d++)
			assert_true(timing->start_ps >= seen->timings[command->deps[d].id].end_ps);
		lane_end[lane] = timing->end_ps;
		if (command->queue == TC_QUEUE_HOST)
			host_ps = timing->end_ps;
	}
}

static void test_times_obey_the_rules(void **state)
{
	(void)state;
	for (int p = 0; p < POLICY_COUNT; p++) {
		struct replay_case planned = replay_case_plan(policies[p], &limits, 11, 3);
		struct seen seen = {.timings = calloc((size_t)planned.schedule->command_count,
		                                      sizeof *seen.timings)};
		struct tc_timing_sink sink = {&seen, see};
		struct tc_replay_options options = {.schedule = planned.schedule,
		                                    .verify = TC_VERIFY_SAMPLE,
		                                    .compute = TC_COMPUTE_MODEL,
		                                    .random_delays = (uint64_t)p + 1,
		                                    .timing = &sink};
		struct tc_error error = {0};
		must(replay_case_run(&options, &error), &error);
		check_rules(planned.schedule, &seen);
		free(seen.timings);
		replay_case_free(&planned);
	}
}

/** Paced by the machine, no command ends before the engine says, and the report's sum holds. */
static void test_pacing(void **state)
{
	(void)state;
	struct replay_case planned = replay_case_plan("10cache", &limits, 3, 3);
	struct tc_schedule *schedule = planned.schedule;
	struct seen predicted = {
	    .timings = calloc((size_t)schedule->command_count, sizeof *predicted.timings)};
	struct seen measured = {
	    .timings = calloc((size_t)schedule->command_count, sizeof *measured.timings)};
	struct tc_timing_sink predict = {&predicted, see}, measure = {&measured, see};
	struct tc_error error = {0};
	must(tc_replay_predict(schedule, planned.machine, true, &predict, &error), &error);
	struct tc_replay_options options = {.schedule = schedule,
	                                    .verify = TC_VERIFY_SAMPLE,
	                                    .throttle = planned.machine,
	                                    .dilate = 7,
	                                    .timing = &measure};
	must(replay_case_run(&options, &error), &error);
	uint64_t setup_ps = 0;
	for (uint64_t c = 0; c < schedule->command_count; c++)
		if (schedule->commands[c].iteration == TC_ITERATION_INIT &&
		    predicted.timings[c].end_ps > setup_ps)
			setup_ps = predicted.timings[c].end_ps;
	/* One picosecond of rounding of the division by `dilate`. */
	for (uint64_t c = 0; c < schedule->command_count; c++)
		if (schedule->commands[c].iteration != TC_ITERATION_INIT &&
		    schedule->commands[c].queue != TC_QUEUE_HOST)
			assert_true(measured.timings[c].end_ps + 1 >=
			            predicted.timings[c].end_ps - setup_ps);
	free(predicted.timings);
	free(measured.timings);
	replay_case_free(&planned);
}

/** Deadlines that the executor composes of durations are the engine's ends, to the picosecond. */
static void test_deadlines(void **state)
{
	(void)state;
	static const char *const directories[] = {"."};
	for (int p = 0; p < POLICY_COUNT; p++) {
		struct replay_case planned = replay_case_plan(policies[p], &limits, 5, 3);
		struct tc_schedule *schedule = planned.schedule;
		struct seen predicted = {
		    .timings = calloc((size_t)schedule->command_count, sizeof *predicted.timings)};
		struct tc_timing_sink predict = {&predicted, see};
		struct tc_replay_options options = {
		    .schedule = schedule,
		    .device = &tc_device_host,
		    .storage = &memory_storage,
		    .storage_options = {.directories = directories, .directory_count = 1},
		    .throttle = planned.machine,
		    .dilate = 3,
		    .cpu_threads = 1};
		struct tc_replay *replay;
		struct tc_error error = {0};
		uint64_t shift_ps = 0, compared = 0;
		for (uint64_t h = 0; h < TC_HANDOVER_COUNT; h++)
			planned.machine->handover_ps[h] = (11 + 2 * h) * TC_PS_PER_US;
		must(tc_replay_predict(schedule, planned.machine, true, &predict, &error), &error);
		must(tc_replay_create(&options, &replay, &error), &error);
		must(tc_replay_finish(replay, &error), &error);
		for (uint64_t c = 0; c < schedule->command_count; c++) {
			const struct tc_command *command = &schedule->commands[c];
			if (command->iteration == TC_ITERATION_INIT ||
			    command->queue == TC_QUEUE_HOST)
				continue;
			uint64_t due_ps = replay->states[c].due_ps;
			uint64_t end_ps = 3 * predicted.timings[c].end_ps;
			if (compared++ == 0)
				shift_ps = due_ps - end_ps; /* setting up, modulo 2^64 */
			if (due_ps != end_ps + shift_ps)
				fail_msg("%s: command %d is due %lld ps off", policies[p], (int)c,
				         (long long)(due_ps - end_ps - shift_ps));
		}
		assert_true(compared > 50);
		tc_replay_free(replay);
		free(predicted.timings);
		replay_case_free(&planned);
	}
}

/**
 * The prediction of a replay that is not paced: issuing a command costs a launch, whatever kernels
 * it holds, hooks and host calls nothing, and a host command ends when what it waits for has ended.
 */
static void test_prediction_as_executed(void **state)
{
	(void)state;
	for (int p = 0; p < POLICY_COUNT; p++) {
		struct replay_case planned = replay_case_plan(policies[p], &limits, 9, 3);
		struct tc_schedule *schedule = planned.schedule;
		struct seen seen = {
		    .timings = calloc((size_t)schedule->command_count, sizeof *seen.timings)};
		struct tc_timing_sink sink = {&seen, see};
		struct tc_error error = {0};
		uint64_t host_ps = 0;
		planned.machine->launch_ps = 3 * TC_PS_PER_US;
		planned.machine->hook_ps = 7 * TC_PS_PER_US;
		must(tc_replay_predict(schedule, planned.machine, false, &sink, &error), &error);
		for (uint64_t c = 0; c < schedule->command_count; c++) {
			const struct tc_command *command = &schedule->commands[c];
			bool host = command->queue == TC_QUEUE_HOST;
			host_ps += host ? 0 : 3 * TC_PS_PER_US;
			assert_int_equal(seen.timings[c].issue_ps, host_ps);
			for (uint32_t d = 0; d < command->dep_count && host; d++) {
				uint64_t end_ps = seen.timings[command->deps[d].id].end_ps;
				host_ps = end_ps > host_ps ? end_ps : host_ps;
			}
			if (host)
				assert_int_equal(seen.timings[c].end_ps, host_ps);
		}
		free(seen.timings);
		replay_case_free(&planned);
	}
}

/** The same report as the simulator's takes measured times, and its checks hold. */
static void test_report_takes_measured_times(void **state)
{
	(void)state;
	struct replay_case planned = replay_case_plan("lru", &limits, 5, 4);
	struct tc_report *report;
	struct tc_error error = {0};
	struct tc_result result;
	must(tc_report_create(2, &report, &error), &error);
	struct tc_sink plan = tc_report_plan_sink(report);
	must(tc_schedule_play(planned.schedule, &plan, &error), &error);
	struct tc_timing_sink sink = tc_report_timing_sink(report);
	struct tc_replay_options options = {.schedule = planned.schedule,
	                                    .verify = TC_VERIFY_FULL,
	                                    .compute = TC_COMPUTE_MODEL,
	                                    .timing = &sink};
	must(replay_case_run(&options, &error), &error);
	must(tc_report_finish(report, &result, &error), &error);
	assert_true(result.iteration_ps > 0);
	assert_int_equal(result.compute_ps + result.stall_ps, result.iteration_ps);
	tc_result_clear(&result);
	tc_report_free(report);
	replay_case_free(&planned);
}

/* ---------------------------------------------------------------- step by step */

/** advance() stops before a step's own work: what the schedule puts before it was issued. */
static void test_advance(void **state)
{
	(void)state;
	struct replay_case planned = replay_case_plan("lru", &limits, 2, 3);
	struct tc_error error = {0};
	struct tc_replay_options options = {.schedule = planned.schedule,
	                                    .device = &tc_device_host,
	                                    .verify = TC_VERIFY_FULL,
	                                    .compute = TC_COMPUTE_NONE,
	                                    .cpu_threads = 1};
	struct tc_replay *replay;
	must(tc_replay_create(&options, &replay, &error), &error);
	for (uint32_t iteration = 0; iteration < 3; iteration++)
		for (uint32_t step = 0; step <= planned.steps->step_count; step++)
			must(tc_replay_advance(replay, iteration, step, &error), &error);
	must(tc_replay_finish(replay, &error), &error);
	assert_true(tc_replay_facts(replay)->verified_bytes > 0);
	assert_int_equal(tc_replay_finish(replay, &error), TC_ARGUMENT);
	tc_replay_free(replay);
	replay_case_free(&planned);
}

/* ---------------------------------------------------------------- failures */

static void test_unlimited_memory_is_refused(void **state)
{
	(void)state;
	struct replay_case planned = replay_case_plan("ideal", &limits, 1, 3);
	struct tc_replay_options options = {.schedule = planned.schedule};
	struct tc_error error = {0};
	assert_int_equal(replay_case_run(&options, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "unlimited memory"));
	replay_case_free(&planned);
}

static void test_no_directory(void **state)
{
	(void)state;
	struct replay_case planned = replay_case_plan("lru:state=nvme", &limits, 1, 3);
	struct tc_replay_options options = {.schedule = planned.schedule,
	                                    .storage = &memory_storage};
	struct tc_error error = {0};
	assert_int_equal(replay_case_run(&options, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "--nvme-dir"));
	replay_case_free(&planned);
}

static void test_failing_drive(void **state)
{
	(void)state;
	static const char *const directories[] = {"."};
	struct replay_case planned = replay_case_plan("lru:state=nvme", &limits, 1, 3);
	struct tc_replay_options options = {
	    .schedule = planned.schedule,
	    .storage = &memory_storage_failing,
	    .storage_options = {.directories = directories, .directory_count = 1}};
	struct tc_error error = {0};
	assert_int_equal(replay_case_run(&options, &error), TC_IO);
	assert_non_null(strstr(error.text, "injected"));
	assert_non_null(strstr(error.text, "command"));
	replay_case_free(&planned);
}

static void *cancel_soon(void *argument)
{
	struct timespec soon = {.tv_nsec = 30 * 1000 * 1000};
	(void)nanosleep(&soon, NULL);
	tc_replay_cancel(argument);
	return NULL;
}

/** Cancelled in the middle of an iteration that would take hours. */
static void test_cancel(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct replay_case planned =
		    replay_case_plan(policies[seed % POLICY_COUNT], &limits, seed, 3);
		struct tc_error error = {0};
		static const char *const directories[] = {"."};
		struct tc_replay_options options = {
		    .schedule = planned.schedule,
		    .device = &tc_device_host,
		    .storage = &memory_storage,
		    .storage_options = {.directories = directories, .directory_count = 1},
		    .verify = TC_VERIFY_FULL,
		    .throttle = planned.machine,
		    .dilate = 100000000,
		    .cpu_threads = 1};
		struct tc_replay *replay;
		must(tc_replay_create(&options, &replay, &error), &error);
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, cancel_soon, replay), 0);
		assert_int_equal(tc_replay_finish(replay, &error), TC_IO);
		assert_non_null(strstr(error.text, "cancelled"));
		(void)pthread_join(thread, NULL);
		tc_replay_free(replay);
		replay_case_free(&planned);
	}
}

static void test_device_names(void **state)
{
	(void)state;
	const struct tc_device_backend *device;
	struct tc_error error = {0};
	assert_int_equal(tc_device_find("host", &device, &error), TC_OK);
	assert_ptr_equal(device, &tc_device_host);
	assert_int_equal(tc_device_find("hots", &device, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "did you mean \"host\""));
	error = (struct tc_error){0};
	assert_int_equal(tc_device_find("cuda", &device, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "not built"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_sound_schedules),
	    cmocka_unit_test(test_without_trace),
	    cmocka_unit_test(test_times_obey_the_rules),
	    cmocka_unit_test(test_pacing),
	    cmocka_unit_test(test_deadlines),
	    cmocka_unit_test(test_prediction_as_executed),
	    cmocka_unit_test(test_report_takes_measured_times),
	    cmocka_unit_test(test_advance),
	    cmocka_unit_test(test_unlimited_memory_is_refused),
	    cmocka_unit_test(test_no_directory),
	    cmocka_unit_test(test_failing_drive),
	    cmocka_unit_test(test_cancel),
	    cmocka_unit_test(test_device_names),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
