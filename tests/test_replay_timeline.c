/*
 * Predicted and measured one under the other in one timeline: both sound, the same commands in
 * both, on the same lanes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "replay_case.h"
#include "tencache/timeline.h"
#include "timeline_file.h"

static void must(enum tc_status status, const struct tc_error *error)
{
	if (status != TC_OK)
		fail_msg("%s", error->text);
}

static struct tc_timing_sink process_of(struct tc_timeline *timeline, const char *name,
                                        const struct tc_schedule *schedule)
{
	struct tc_error error = {0};
	struct tc_timeline_process *process;
	must(tc_timeline_add(timeline, name, &process, &error), &error);
	struct tc_sink plan = tc_timeline_plan_sink(process);
	must(tc_schedule_play(schedule, &plan, &error), &error);
	return tc_timeline_timing_sink(process);
}

static void write_timeline(const char *path, const struct replay_case *planned)
{
	struct tc_error error = {0};
	struct tc_timeline *timeline;
	must(tc_timeline_create(path, &timeline, &error), &error);
	struct tc_timing_sink predicted = process_of(timeline, "predicted", planned->schedule);
	struct tc_timing_sink measured = process_of(timeline, "measured", planned->schedule);
	must(tc_replay_predict(planned->schedule, planned->machine, true, &predicted, &error),
	     &error);
	struct tc_replay_options options = {.schedule = planned->schedule,
	                                    .verify = TC_VERIFY_SAMPLE,
	                                    .compute = TC_COMPUTE_MODEL,
	                                    .random_delays = 3,
	                                    .timing = &measured};
	must(replay_case_run(&options, &error), &error);
	must(tc_timeline_finish(timeline, &error), &error);
	tc_timeline_free(timeline);
}

/** Thread of each command in a process; 0 where it has none. The stalls are not commands. */
static uint64_t *threads_by_command(const struct timeline_file *file, uint64_t process,
                                    uint64_t commands)
{
	uint64_t *threads = calloc(commands + 1, sizeof *threads);
	assert_non_null(threads);
	for (size_t i = 0; i < file->count; ++i) {
		const struct timeline_event *event = &file->events[i];
		if (event->kind != 'X' || event->process != process ||
		    strcmp(event->category, "stall") == 0)
			continue;
		uint64_t id =
		    (uint64_t)json_integer_value(json_object_get(event->arguments, "command"));
		assert_true(id < commands);
		assert_int_equal(threads[id], 0); /* once */
		threads[id] = event->thread;
	}
	return threads;
}

static void check_timeline(const char *path, const struct tc_schedule *schedule)
{
	struct timeline_file file = timeline_file_read(path);
	uint64_t commands = schedule->command_count, setup = 0;
	assert_true(timeline_file_check(&file) > 0);
	uint64_t *predicted = threads_by_command(&file, 1, commands);
	uint64_t *measured = threads_by_command(&file, 2, commands);
	for (uint64_t c = 0; c < commands; ++c) {
		bool shown = schedule->commands[c].iteration != TC_ITERATION_INIT;
		setup += !shown;
		assert_int_equal(predicted[c], measured[c]);
		assert_int_equal(predicted[c] != 0, shown);
	}
	assert_true(setup < commands);
	free(predicted);
	free(measured);
	timeline_file_free(&file);
}

static void test_predicted_and_measured(void **state)
{
	static const char *const policies[] = {"lru", "belady:state=nvme", "10cache"};
	static const struct test_limits limits = {.layers = 3,
	                                          .modules_per_layer = 2,
	                                          .params_per_module = 2,
	                                          .param_bytes = 12000,
	                                          .activation_bytes = 12000};
	char path[64];
	(void)state;
	for (size_t p = 0; p < sizeof policies / sizeof *policies; ++p) {
		struct replay_case planned = replay_case_plan(policies[p], &limits, p + 1, 3);
		(void)snprintf(path, sizeof path, "replay-timeline-%ld.json", (long)getpid());
		write_timeline(path, &planned);
		check_timeline(path, planned.schedule);
		assert_int_equal(remove(path), 0);
		replay_case_free(&planned);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_predicted_and_measured)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
