/*
 * Timelines: one worked out on paper to the picosecond, those of real plans against the report of
 * the same run, and the manners of the file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"
#include "paper.h"
#include "tencache/simulate.h"
#include "timeline_file.h"
#include "trace_builder.h"

struct folder {
	char path[64], file[96];
};

static int set_up(void **state)
{
	struct folder *folder = calloc(1, sizeof *folder);
	assert_non_null(folder);
	strcpy(folder->path, "timeline-test-XXXXXX");
	assert_non_null(mkdtemp(folder->path));
	(void)snprintf(folder->file, sizeof folder->file, "%s/run.json", folder->path);
	*state = folder;
	return 0;
}

static size_t files_in(const struct folder *folder)
{
	size_t count;
	char **names = test_list_folder(folder->path, &count);
	test_free_names(names, count);
	return count;
}

static int tear_down(void **state)
{
	struct folder *folder = *state;
	(void)remove(folder->file);
	assert_int_equal(files_in(folder), 0);
	(void)rmdir(folder->path);
	free(folder);
	return 0;
}

static void expect_ok(enum tc_status status, const struct tc_error *error)
{
	if (status != TC_OK)
		fail_msg("%s: %s", tc_status_name(status), error->text);
}

/* ---------------------------------------------------------------- on paper */

static void run_program(const struct program *program, const struct tc_machine *machine,
                        const struct tc_plan_info *info, struct tc_timeline_process *process)
{
	struct tc_error error = {0};
	struct tc_engine *engine;
	struct tc_timing_sink timing = tc_timeline_timing_sink(process);
	expect_ok(tc_engine_create(machine, &timing, &engine, &error), &error);
	struct tc_sink sinks[] = {tc_timeline_plan_sink(process), tc_engine_sink(engine)};
	struct tc_tee tee = {.sinks = sinks, .count = 2};
	struct tc_sink sink = tc_tee_sink(&tee);
	struct tc_plan_end end = {.command_count = program->count};
	expect_ok(sink.begin(sink.self, info, &error), &error);
	expect_ok(program_play(program, &sink, &error), &error);
	expect_ok(sink.end(sink.self, &end, &error), &error);
	tc_engine_free(engine);
}

static const struct timeline_event *find(const struct timeline_file *file, char kind,
                                         const char *name, size_t skip)
{
	for (size_t i = 0; i < file->count; ++i)
		if (file->events[i].kind == kind && strcmp(file->events[i].name, name) == 0 &&
		    skip-- == 0)
			return &file->events[i];
	fail_msg("no event %c \"%s\"", kind, name);
	return NULL;
}

static void expect_level(const struct timeline_event *event, uint64_t ps, uint64_t bytes)
{
	assert_int_equal(event->start_ps, ps);
	assert_int_equal(json_integer_value(json_object_get(event->arguments, "value")), bytes);
}

/*
 * Two copies up (10^6 bytes at 64 ps each: 64 us and again 64 us on the same lane, 0 ... 64 and
 * 64 ... 128) and a compute of 1,234,567 ps that needs both: it starts at 128, waited all that time
 * and is unblocked by the second copy. The copy down that follows ends at 128 + 1.234567 + 64 us.
 * Memory: 1,000 bytes of framework; each copy takes 10^6 from its start, and the first one's slot
 * is given back when the copy down has ended.
 */
static void build_paper(struct program *program, struct tc_memory_change changes[3])
{
	uint64_t first = program_copy(program, TC_QUEUE_H2D, MB);
	uint64_t second = program_copy(program, TC_QUEUE_H2D, MB);
	uint64_t compute = program_compute(program, 1234567);
	uint64_t down = program_copy(program, TC_QUEUE_D2H, MB);
	program_depend(program, compute, second, TC_REASON_DATA);
	program_depend(program, compute, first, TC_REASON_DATA);
	program_depend(program, down, compute, TC_REASON_DATA);
	program_wait(program, down);
	for (uint32_t i = 0; i < 3; ++i)
		changes[i] = (struct tc_memory_change){
		    .bytes = MB, .after = TC_NO_COMMAND, .tier = TC_GPU, .kind = TC_PARAM};
	changes[2].bytes = -(int64_t)MB;
	changes[2].after = down;
	const uint64_t carriers[] = {first, second, down};
	for (uint32_t i = 0; i < 3; ++i) {
		program_at(program, carriers[i])->memory = &changes[i];
		program_at(program, carriers[i])->memory_count = 1;
		program_at(program, carriers[i])->tensor = i < 2 ? i : 0;
		program_at(program, carriers[i])->first_op = TC_NONE;
	}
}

static void check_paper(const struct timeline_file *file)
{
	const uint64_t compute_end = 128 * US + 1234567, end = compute_end + 64 * US;
	const struct timeline_event *event = find(file, 'X', "fetch fc1.weight", 0);
	uint64_t lane = event->thread;
	assert_int_equal(event->start_ps, 0);
	assert_int_equal(event->duration_ps, 64 * US);
	event = find(file, 'X', "fetch grad 1", 0);
	assert_int_equal(event->thread, lane);
	assert_int_equal(event->start_ps, 64 * US);
	assert_int_equal(event->duration_ps, 64 * US);
	/* 10^6 bytes in 64 us. */
	assert_string_equal(json_string_value(json_object_get(event->arguments, "rate")),
	                    "15.63 GB/s");
	event = find(file, 'X', "forward step 0", 0);
	assert_int_equal(event->start_ps, 128 * US);
	assert_int_equal(event->duration_ps, 1234567);
	event = find(file, 'X', "evict fc1.weight", 0);
	assert_int_equal(event->start_ps, compute_end);
	assert_int_equal(event->duration_ps, 64 * US);
	/* Reached at 0, over when the copy down is. */
	event = find(file, 'X', "wait for 1 command", 0);
	assert_int_equal(event->start_ps, 0);
	assert_int_equal(event->duration_ps, end);
	/* All of [0, 128] is idle, whatever its causes. */
	uint64_t stalled = 0;
	for (size_t i = 0; i < file->count; ++i)
		if (file->events[i].kind == 'X' && strcmp(file->events[i].category, "stall") == 0)
			stalled += file->events[i].duration_ps;
	assert_int_equal(stalled, 128 * US);
	event = find(file, 's', "unblocks", 0);
	assert_int_equal(event->thread, lane);
	assert_true(event->start_ps > 64 * US && event->start_ps < 128 * US);
	assert_int_equal(find(file, 'f', "unblocks", 0)->start_ps, 128 * US);
	expect_level(find(file, 'C', "gpu memory (bytes)", 0), 0, 1000 + MB);
	expect_level(find(file, 'C', "gpu memory (bytes)", 1), 64 * US, 1000 + 2 * MB);
	expect_level(find(file, 'C', "gpu memory (bytes)", 2), end, 1000 + MB);
}

static void test_paper(void **state)
{
	const struct folder *folder = *state;
	struct tc_machine machine = paper_machine();
	struct tc_plan_tensor tensors[] = {{.name = "fc1.weight", .kind = TC_PARAM},
	                                   {.name = "", .kind = TC_GRAD}};
	struct tc_plan_info info = {.machine = &machine,
	                            .policy = "by hand",
	                            .trace_name = "paper",
	                            .iterations = 1,
	                            .tensors = tensors,
	                            .tensor_count = 2,
	                            .fixed_bytes = {1000, 0, 0}};
	struct tc_memory_change changes[3];
	struct tc_error error = {0};
	struct tc_timeline *timeline;
	struct tc_timeline_process *process;
	struct program program;
	memcpy(info.lanes, machine.lanes, sizeof info.lanes);
	program_init(&program);
	build_paper(&program, changes);
	expect_ok(tc_timeline_create(folder->file, &timeline, &error), &error);
	expect_ok(tc_timeline_add(timeline, "predicted", &process, &error), &error);
	run_program(&program, &machine, &info, process);
	expect_ok(tc_timeline_finish(timeline, &error), &error);
	tc_timeline_free(timeline);
	program_free(&program);
	struct timeline_file file = timeline_file_read(folder->file);
	assert_int_equal(timeline_file_check(&file), 1);
	check_paper(&file);
	assert_string_equal(json_string_value(json_object_get(
	                        find(&file, 'M', "process_name", 0)->arguments, "name")),
	                    "predicted: by hand, paper");
	timeline_file_free(&file);
}

/* ---------------------------------------------------------------- plans */

struct case_ {
	struct tc_trace *trace;
	struct tc_machine *machine;
	struct tc_steps *steps;
	struct tc_policy_list policies;
};

static void case_open(struct case_ *x, struct tc_trace *trace, const char *policies,
                      const char *gpu_memory)
{
	struct tc_error error = {0};
	*x = (struct case_){.trace = trace};
	expect_ok(
	    tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines", &x->machine, &error),
	    &error);
	expect_ok(tc_machine_override(x->machine, "gpu-memory", gpu_memory, &error), &error);
	expect_ok(tc_steps_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK, TC_FREES_LAST_USE,
	                          &x->steps, &error),
	          &error);
	expect_ok(tc_policy_list_add(&x->policies, policies, &error), &error);
}

static void case_close(struct case_ *x)
{
	tc_policy_list_clear(&x->policies);
	tc_steps_free(x->steps);
	tc_machine_free(x->machine);
	tc_trace_free(x->trace);
}

static void simulate(const struct case_ *x, size_t policy, uint32_t iterations,
                     struct tc_timeline *timeline, struct tc_result *result)
{
	struct tc_error error = {0};
	struct tc_simulation simulation = {.trace = x->trace,
	                                   .steps = x->steps,
	                                   .machine = x->machine,
	                                   .policy = x->policies.choices[policy],
	                                   .iterations = iterations,
	                                   .timeline = timeline};
	expect_ok(tc_simulate(&simulation, result, &error), &error);
}

static int64_t number(const struct timeline_event *event, const char *key)
{
	return json_integer_value(json_object_get(event->arguments, key));
}

/** Start of the first compute slice of an iteration. */
static uint64_t start_of(const struct timeline_file *file, uint32_t iteration)
{
	uint64_t start = UINT64_MAX;
	for (size_t i = 0; i < file->count; ++i) {
		const struct timeline_event *event = &file->events[i];
		if (event->kind == 'X' && event->thread == 1 && event->start_ps < start &&
		    number(event, "iteration") == iteration)
			start = event->start_ps;
	}
	return start;
}

/** Time of the slices on a thread that start within the period. */
static uint64_t time_on(const struct timeline_file *file, uint64_t thread, uint64_t from,
                        uint64_t to)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < file->count; ++i) {
		const struct timeline_event *event = &file->events[i];
		if (event->kind == 'X' && event->thread == thread && event->start_ps >= from &&
		    event->start_ps < to)
			sum += event->duration_ps;
	}
	return sum;
}

/** Peak and mean of a counter over a period: a staircase through its samples. */
static void check_memory(const struct timeline_file *file, const char *name, uint64_t from,
                         uint64_t to, const struct tc_memory_report *expected)
{
	uint64_t level = 0, since = from, peak = 0;
	long double area = 0;
	for (size_t i = 0; i < file->count; ++i) {
		const struct timeline_event *event = &file->events[i];
		if (event->kind != 'C' || strcmp(event->name, name) != 0 || event->start_ps >= to)
			continue;
		if (event->start_ps > from) {
			peak = level > peak ? level : peak;
			area += (long double)level * (long double)(event->start_ps - since);
			since = event->start_ps;
		}
		level = (uint64_t)number(event, "value");
	}
	/* A tier that nothing ever lay in has no counter. */
	level = level == 0 ? expected->fixed_bytes : level;
	peak = level > peak ? level : peak;
	area += (long double)level * (long double)(to - since);
	assert_int_equal(peak, expected->peak_bytes);
	double mean = (double)(area / (long double)(to - from));
	/* The report rounds down; the area has 64 bits here. */
	assert_true(mean > (double)expected->mean_bytes - 1 &&
	            mean < (double)expected->mean_bytes + 2);
}

static void check_against_report(const struct timeline_file *file, const struct tc_result *result,
                                 uint32_t iteration)
{
	uint64_t from = start_of(file, iteration), to = start_of(file, iteration + 1);
	assert_int_equal(to - from, result->iteration_ps);
	assert_int_equal(time_on(file, 1, from, to), result->compute_ps);
	/* Thread 2: the stalls. What ends the last idle time starts at `to`. */
	assert_int_equal(time_on(file, 2, from, to), result->stall_ps);
	check_memory(file, "gpu memory (bytes)", from, to, &result->memory[TC_GPU]);
	check_memory(file, "cpu memory (bytes)", from, to, &result->memory[TC_CPU]);
}

static struct tc_trace *layers_trace(void)
{
	static const uint64_t sizes[] = {1 << 20, 4 << 20, 1 << 10};
	return test_model_trace(&(struct test_model){.layers = 6,
	                                             .modules_per_layer = 2,
	                                             .params_per_module = 2,
	                                             .param_bytes = sizes,
	                                             .param_bytes_count = 3,
	                                             .forward_us = 50,
	                                             .backward_us = 100,
	                                             .half = true});
}

/** Times, stalls and memory of the picture are those of the report. */
static void test_policies(void **state)
{
	const struct folder *folder = *state;
	static const struct {
		const char *policy, *gpu_memory;
		bool moves; /* copies that a compute waits for */
	} cases[] = {{"ideal", "1100MiB", false},
	             {"lru", "1100MiB", true},
	             {"belady:state=nvme", "1090MiB", true},
	             {"zero-infinity:device=nvme", "8GiB", true},
	             {"10cache", "1100MiB", true}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
		struct tc_error error = {0};
		struct case_ x;
		struct tc_timeline *timeline;
		struct tc_result result;
		case_open(&x, layers_trace(), cases[i].policy, cases[i].gpu_memory);
		expect_ok(tc_timeline_create(folder->file, &timeline, &error), &error);
		simulate(&x, 0, 3, timeline, &result);
		if (result.status != TC_OK)
			fail_msg("%s", result.message);
		expect_ok(tc_timeline_finish(timeline, &error), &error);
		tc_timeline_free(timeline);
		struct timeline_file file = timeline_file_read(folder->file);
		if ((timeline_file_check(&file) > 0) != cases[i].moves)
			fail_msg("%s: arrows or none", cases[i].policy);
		check_against_report(&file, &result, 3);
		timeline_file_free(&file);
		tc_result_clear(&result);
		case_close(&x);
	}
}

/** Of 10 planned iterations (8 wanted, cold, closing) the last five are there, and memory is right
 * although it began before. Two runs one under the other, compressed. */
static void test_window_and_processes(void **state)
{
	struct folder *folder = *state;
	struct tc_error error = {0};
	struct tc_timeline *timeline;
	struct tc_result results[2];
	struct case_ x;
	(void)snprintf(folder->file, sizeof folder->file, "%s/run.json.gz", folder->path);
	case_open(&x, test_random_trace(7, &(struct test_limits){0}), "lru,belady", "1100MiB");
	expect_ok(tc_timeline_create(folder->file, &timeline, &error), &error);
	for (size_t i = 0; i < 2; ++i)
		simulate(&x, i, 8, timeline, &results[i]);
	expect_ok(tc_timeline_finish(timeline, &error), &error);
	tc_timeline_free(timeline);
	struct timeline_file file = timeline_file_read(folder->file), one;
	(void)timeline_file_check(&file);
	for (size_t i = 0; i < 2; ++i) {
		/* One process by itself, as the checks look at a single run. */
		one = (struct timeline_file){.events = calloc(file.count, sizeof *one.events)};
		uint64_t iterations = 0;
		for (size_t e = 0; e < file.count; ++e) {
			if (file.events[e].process != i + 1)
				continue;
			one.events[one.count++] = file.events[e];
			if (file.events[e].kind == 'X' && file.events[e].thread == 1)
				iterations |= UINT64_C(1) << number(&file.events[e], "iteration");
		}
		assert_int_equal(iterations, 0x3E0); /* 5 ... 9 */
		check_against_report(&one, &results[i], 8);
		free(one.events);
		tc_result_clear(&results[i]);
	}
	timeline_file_free(&file);
	case_close(&x);
}

/* ---------------------------------------------------------------- manners */

static void test_no_file_without_finish(void **state)
{
	const struct folder *folder = *state;
	struct tc_error error = {0};
	struct tc_timeline *timeline;
	expect_ok(tc_timeline_create(folder->file, &timeline, &error), &error);
	assert_int_not_equal(access(folder->file, F_OK), 0);
	tc_timeline_free(timeline);
	assert_int_equal(files_in(folder), 0);
	assert_int_equal(tc_timeline_create("no/such/folder/run.json", &timeline, &error), TC_IO);
	assert_null(timeline);
	assert_non_null(strstr(error.text, "no/such/folder/run.json"));
	tc_timeline_free(NULL);
}

static void test_broken_promises(void **state)
{
	const struct folder *folder = *state;
	struct tc_machine machine = paper_machine();
	struct tc_plan_info info = {.machine = &machine, .policy = "p", .iterations = 1};
	struct tc_command command = {.queue = TC_QUEUE_COMPUTE, .kind = TC_COMPUTE};
	struct tc_timing timing = {.start_ps = 2, .end_ps = 1};
	struct tc_error error = {0};
	struct tc_timeline *timeline;
	struct tc_timeline_process *process;
	memcpy(info.lanes, machine.lanes, sizeof info.lanes);
	expect_ok(tc_timeline_create(folder->file, &timeline, &error), &error);
	expect_ok(tc_timeline_add(timeline, "measured", &process, &error), &error);
	struct tc_timing_sink times = tc_timeline_timing_sink(process);
	struct tc_sink plan = tc_timeline_plan_sink(process);
	assert_int_equal(times.finished(times.self, &command, &timing, NULL), TC_INTERNAL);
	expect_ok(plan.begin(plan.self, &info, &error), &error);
	assert_int_equal(plan.begin(plan.self, &info, NULL), TC_ARGUMENT);
	expect_ok(plan.command(plan.self, &command, &error), &error);
	assert_int_equal(times.finished(times.self, &command, &timing, NULL), TC_INTERNAL);
	tc_timeline_free(timeline);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_paper, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_policies, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_window_and_processes, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_no_file_without_finish, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_broken_promises, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
