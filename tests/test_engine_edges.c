/*
 * What the engine refuses, how much it keeps, and what happens at the ends of its numbers. Expected
 * values are the interface's promises (engine.h, sim/engine/README.md).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core.h"
#include "program.h"

#define US TC_PS_PER_US

static struct tc_machine small_machine(void)
{
	return (struct tc_machine){
	    .name = "small",
	    .h2d = {.bytes_per_s = 15625000000},
	    .d2h = {.bytes_per_s = 15625000000},
	    .pageable_ppm = 250000,
	    .dram_bytes_per_s = 31250000000,
	    .nvme_read = {.bytes_per_s = 3906250000},
	    .nvme_write = {.bytes_per_s = 1953125000},
	    .nvme_drives = 1,
	    .nvme_striped = true,
	    .cpu_cores = 1,
	    .adam_parameters_per_s_per_core = 1000,
	    .lanes = {1, 1, 1, 1, 1, 1, 1, 1},
	};
}

static void expect_error(const struct program *program, const struct tc_machine *machine,
                         enum tc_status status, const char *words)
{
	struct timed *timed;
	struct tc_error error = {0};
	assert_int_equal(program_try(program, machine, true, &timed, &error), status);
	assert_int_equal(error.status, status);
	if (strstr(error.text, words) == NULL)
		print_error("'%s' not in: %s\n", words, error.text);
	assert_non_null(strstr(error.text, words));
}

static void test_refused_commands(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	struct program program;
	program_init(&program);
	program_compute(&program, US);
	program_at(&program, 0)->id = 1;
	expect_error(&program, &machine, TC_ARGUMENT, "ids are dense");
	program_at(&program, 0)->id = 0;
	program_at(&program, 0)->lane = 1;
	expect_error(&program, &machine, TC_ARGUMENT, "lane 1 of queue compute, which has 1");
	program_at(&program, 0)->lane = 0;
	program_depend(&program, 0, 0, TC_REASON_DATA);
	expect_error(&program, &machine, TC_ARGUMENT, "waits for command 0");
	program_at(&program, 0)->dep_count = 0;
	program_serve(&program, 0, 7);
	expect_error(&program, &machine, TC_ARGUMENT, "served by command 7");
	program_at(&program, 0)->served_count = 0;
	program_at(&program, 0)->queue = TC_QUEUE_COUNT;
	expect_error(&program, &machine, TC_ARGUMENT, "queue number");
	program_at(&program, 0)->queue = TC_QUEUE_GPU_NVME;
	expect_error(&program, &machine, TC_ARGUMENT, "gpu_direct");
	program_free(&program);
}

static void test_refused_machines(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_H2D, 1);
	machine.dram_bytes_per_s = 0;
	expect_error(&program, &machine, TC_ARGUMENT, "rate is 0");
	machine = small_machine();
	machine.h2d.bytes_per_s = 0;
	expect_error(&program, &machine, TC_ARGUMENT, "queue h2d");
	program_at(&program, 0)->queue = TC_QUEUE_COMPUTE;
	program_at(&program, 0)->kind = TC_CONVERT;
	expect_error(&program, &machine, TC_ARGUMENT, "elementwise");
	machine = small_machine();
	machine.lanes[TC_QUEUE_H2D] = 14;
	expect_error(&program, &machine, TC_ARGUMENT, "more than 16 lanes");
	machine = small_machine();
	machine.nvme_striped = false;
	machine.nvme_drives = 9;
	machine.nvme_mixed_bytes_per_s = 1;
	machine.lanes[TC_QUEUE_NVME_READ] = 9;
	expect_error(&program, &machine, TC_ARGUMENT, "striped");
	program_free(&program);
}

/* Times beyond 2^64 ps are refused, never wrapped: a duration, a transfer, the host's cost. */
static void test_times_that_do_not_fit(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	struct program program;
	program_init(&program);
	program_compute(&program, UINT64_C(1) << 63);
	program_compute(&program, UINT64_C(1) << 63);
	expect_error(&program, &machine, TC_TOO_LARGE, "2^64 ps");
	program_free(&program);

	program_init(&program);
	machine.h2d.bytes_per_s = 1;
	program_copy(&program, TC_QUEUE_H2D, UINT64_C(1) << 40);
	expect_error(&program, &machine, TC_TOO_LARGE, "raise the machine's rate");
	program_wait(&program, 0);
	expect_error(&program, &machine, TC_TOO_LARGE, "raise the machine's rate");
	program_free(&program);

	program_init(&program);
	machine = small_machine();
	machine.launch_ps = UINT64_MAX / 2;
	program_compute(&program, 1);
	program_at(&program, 0)->launches = 3;
	expect_error(&program, &machine, TC_TOO_LARGE, "host thread");
	program_free(&program);

	/* The largest transfer there is, 2^64 - 1 bytes at 2^40 units per ps: 2^64 - 1 ps would be
	 * "never", so it is refused as well; half of it takes exactly its size in ps. */
	program_init(&program);
	machine = small_machine();
	machine.h2d.bytes_per_s = machine.dram_bytes_per_s = 1000000000000;
	program_copy(&program, TC_QUEUE_H2D, UINT64_MAX / 2);
	struct timed *timed = program_run(&program, &machine);
	assert_int_equal(timed[0].timing.end_ps, UINT64_MAX / 2);
	free(timed);
	program_at(&program, 0)->bytes = UINT64_MAX;
	expect_error(&program, &machine, TC_TOO_LARGE, "2^64 ps");
	program_free(&program);
}

static enum tc_status no_more(void *self, const struct tc_command *command,
                              const struct tc_timing *timing, struct tc_error *error)
{
	(void)command;
	(void)timing;
	uint64_t *calls = self;
	++*calls;
	return tc_error_set(error, TC_IO, "the sink has had enough");
}

/* A sink's error comes back to the planner's caller, and the engine stays stopped. */
static void test_sink_error(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	struct program program;
	program_init(&program);
	for (int i = 0; i < 10; i++)
		program_compute(&program, US);
	program_wait(&program, 3);
	uint64_t calls = 0;
	struct tc_timing_sink sink = {&calls, no_more};
	struct tc_engine *engine;
	struct tc_error error = {0};
	assert_int_equal(tc_engine_create(&machine, &sink, &engine, &error), TC_OK);
	struct tc_sink commands = tc_engine_sink(engine);
	struct tc_plan_info info = {.machine = &machine};
	memcpy(info.lanes, machine.lanes, sizeof info.lanes);
	struct tc_plan_end end = {.command_count = program.count};
	assert_int_equal(commands.begin(commands.self, &info, &error), TC_OK);
	assert_int_equal(program_play(&program, &commands, &error), TC_IO);
	assert_string_equal(error.text, "the sink has had enough");
	error = (struct tc_error){0};
	assert_int_equal(commands.end(commands.self, &end, &error), TC_IO);
	assert_int_equal(calls, 1);
	tc_engine_free(engine);
	tc_engine_free(NULL);
	program_free(&program);
}

/* ---------------------------------------------------------------- a stream without end */

struct stream {
	struct tc_engine *engine;
	struct tc_sink sink;
	struct tc_error error;
	uint64_t next;
	uint64_t compute_ps, stall_ps, last_end_ps, last_compute_end_ps, reports;
};

static enum tc_status count_report(void *self, const struct tc_command *command,
                                   const struct tc_timing *timing, struct tc_error *error)
{
	(void)error;
	struct stream *stream = self;
	stream->reports++;
	assert_true(timing->end_ps >= stream->last_end_ps);
	stream->last_end_ps = timing->end_ps;
	if (command->queue != TC_QUEUE_COMPUTE)
		return TC_OK;
	stream->compute_ps += timing->end_ps - timing->start_ps;
	stream->last_compute_end_ps = timing->end_ps;
	for (int c = 0; c < TC_STALL_CAUSE_COUNT; c++)
		stream->stall_ps += timing->stall_ps[c];
	return TC_OK;
}

static void open_stream(struct stream *stream, const struct tc_machine *machine)
{
	*stream = (struct stream){0};
	struct tc_timing_sink sink = {stream, count_report};
	assert_int_equal(tc_engine_create(machine, &sink, &stream->engine, &stream->error), TC_OK);
	stream->sink = tc_engine_sink(stream->engine);
	struct tc_plan_info info = {.machine = machine};
	memcpy(info.lanes, machine->lanes, sizeof info.lanes);
	assert_int_equal(stream->sink.begin(stream->engine, &info, &stream->error), TC_OK);
}

static enum tc_status push(struct stream *stream, enum tc_queue queue, uint64_t amount, uint64_t on,
                           enum tc_reason reason)
{
	struct tc_dependency dependency = {on, reason};
	struct tc_command command = {.id = stream->next,
	                             .queue = queue,
	                             .kind = queue == TC_QUEUE_HOST ? TC_WAIT : TC_COMPUTE,
	                             .launches = queue != TC_QUEUE_HOST,
	                             .deps = &dependency,
	                             .dep_count = on != TC_NO_COMMAND};
	if (queue == TC_QUEUE_COMPUTE)
		command.duration_ps = amount;
	else
		command.bytes = amount;
	stream->next++;
	return stream->sink.command(stream->engine, &command, &stream->error);
}

static void close_stream(struct stream *stream)
{
	struct tc_plan_end end = {.command_count = stream->next};
	assert_int_equal(stream->sink.end(stream->engine, &end, &stream->error), TC_OK);
	assert_int_equal(stream->reports, stream->next);
	assert_int_equal(stream->compute_ps + stream->stall_ps, stream->last_compute_end_ps);
	tc_engine_free(stream->engine);
}

/* Compute alone, no host wait, the host far ahead: what waits stays below the window's bound, and
 * the time is launch + commands x duration. */
static void test_memory_of_one_lane(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	machine.launch_ps = 5 * US;
	struct stream stream;
	open_stream(&stream, &machine);
	enum { COMMANDS = 200000 };
	size_t chunks = 0;
	for (int i = 0; i < COMMANDS; i++) {
		assert_int_equal(push(&stream, TC_QUEUE_COMPUTE, 1000 * US, TC_NO_COMMAND, 0),
		                 TC_OK);
		if (i == 2 * (int)TCI_WINDOW)
			chunks = stream.engine->store.chunk_count;
	}
	assert_true(stream.engine->waiting <= TCI_WINDOW);
	assert_true(stream.engine->store.mask < 2 * TCI_WINDOW);
	assert_int_equal(stream.engine->store.chunk_count, chunks);
	close_stream(&stream);
	assert_int_equal(stream.last_end_ps, 5 * US + COMMANDS * 1000 * US);
}

/* A second lane whose commands depend on recent compute joins at any time. One that could have
 * started before what was reported is refused: there is no right order any more. */
static void test_second_lane_after_running_ahead(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	struct stream stream;
	open_stream(&stream, &machine);
	for (uint64_t i = 0; i < 3 * TCI_WINDOW; i++)
		assert_int_equal(push(&stream, TC_QUEUE_COMPUTE, 1000 * US, TC_NO_COMMAND, 0),
		                 TC_OK);
	assert_int_equal(push(&stream, TC_QUEUE_D2H, 1000000, stream.next - 1, TC_REASON_DATA),
	                 TC_OK);
	close_stream(&stream);
	assert_int_equal(stream.last_end_ps, 3 * TCI_WINDOW * 1000 * US + 64 * US);

	open_stream(&stream, &machine);
	for (uint64_t i = 0; i < 3 * TCI_WINDOW; i++)
		assert_int_equal(push(&stream, TC_QUEUE_COMPUTE, 1000 * US, TC_NO_COMMAND, 0),
		                 TC_OK);
	assert_int_equal(push(&stream, TC_QUEUE_H2D, 1, TC_NO_COMMAND, 0), TC_TOO_LARGE);
	assert_non_null(strstr(stream.error.text, "wait on the host"));
	tc_engine_free(stream.engine);
}

/* Several lanes and a host wait at the end of each iteration: an iteration's worth is kept. */
static void test_memory_of_iterations(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	struct stream stream;
	open_stream(&stream, &machine);
	size_t chunks = 0;
	for (int iteration = 0; iteration < 400; iteration++) {
		uint64_t evict = TC_NO_COMMAND;
		for (int step = 0; step < 100; step++) {
			uint64_t fetch = stream.next;
			assert_int_equal(
			    push(&stream, TC_QUEUE_H2D, 1000000, evict, TC_REASON_SLOT), TC_OK);
			assert_int_equal(
			    push(&stream, TC_QUEUE_COMPUTE, 70 * US, fetch, TC_REASON_DATA), TC_OK);
			evict = stream.next;
			assert_int_equal(
			    push(&stream, TC_QUEUE_D2H, 500000, stream.next - 1, TC_REASON_DATA),
			    TC_OK);
		}
		assert_int_equal(push(&stream, TC_QUEUE_HOST, 0, evict, TC_REASON_DATA), TC_OK);
		if (iteration == 2)
			chunks = stream.engine->store.chunk_count;
	}
	assert_int_equal(stream.engine->store.mask, 1023);
	assert_int_equal(stream.engine->store.chunk_count, chunks);
	assert_true(stream.engine->block_capacity <= 16);
	/* Each step is fetch, compute and copy out one after the other: 64 + 70 + 32 us. */
	close_stream(&stream);
	assert_int_equal(stream.last_end_ps, UINT64_C(400) * 100 * 166 * US);
}

/* ---------------------------------------------------------------- odd but legal */

/* Commands that take no time end in one instant, reported by id, on two lanes that wait for each
 * other in turn. */
static void test_instant_commands(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	struct program program;
	program_init(&program);
	program_compute(&program, 5 * US);
	for (int i = 1; i < 5000; i++) {
		uint64_t id =
		    i % 2 ? program_copy(&program, TC_QUEUE_H2D, 0) : program_compute(&program, 0);
		program_depend(&program, id, id - 1, TC_REASON_DATA);
	}
	struct timed *timed = program_run(&program, &machine);
	for (size_t i = 0; i < program.count; i++)
		assert_int_equal(timed[i].timing.end_ps, 5 * US);
	free(timed);
	program_free(&program);
}

/* More kinds of flow on one lane than the table of rates tells apart: 40 update widths, one after
 * the other, each held to 1000 parameters/s x its width, rounded down to whole units. */
static void test_many_shapes(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	struct program program;
	program_init(&program);
	for (uint64_t width = 1; width <= 40; width++) {
		uint64_t id = program_update(&program, 500);
		program_at(&program, id)->traffic_bytes = 500 * width;
	}
	struct timed *timed = program_run(&program, &machine);
	for (uint64_t i = 0; i < 40; i++) {
		tci_work work = (tci_work)(500 * (i + 1)) << TC_WORK_BITS;
		uint64_t expected = tci_flow_time(work, tc_rate_units(1000 * (i + 1)));
		assert_int_equal(timed[i].timing.end_ps - timed[i].timing.start_ps, expected);
	}
	free(timed);
	program_free(&program);
}

/* A command with lists larger than any block class; the sink sees them all, binds excepted. */
static enum tc_status see_lists(void *self, const struct tc_command *command,
                                const struct tc_timing *timing, struct tc_error *error)
{
	(void)error;
	uint32_t *seen = self;
	if (command->memory_count == 0)
		return TC_OK;
	assert_int_equal(command->bind_count, 0);
	assert_int_equal(command->memory_count, 200);
	for (uint32_t i = 0; i < 200; i++) {
		assert_int_equal(command->memory[i].bytes, i);
		assert_int_equal(command->served[i].tensor, i);
		assert_int_equal(command->deps[i].id, i % 2);
		assert_true(timing->ready[i]);
		++*seen;
	}
	return TC_OK;
}

static void test_long_lists(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	struct tc_memory_change memory[200];
	struct tc_served served[200];
	struct tc_dependency deps[200];
	struct tc_bind bind = {0};
	for (uint32_t i = 0; i < 200; i++) {
		memory[i] = (struct tc_memory_change){.bytes = i, .after = TC_NO_COMMAND};
		served[i] = (struct tc_served){.tensor = i, .served_by = TC_NO_COMMAND};
		deps[i] = (struct tc_dependency){i % 2, TC_REASON_DATA};
	}
	uint32_t seen = 0;
	struct tc_timing_sink sink = {&seen, see_lists};
	struct tc_engine *engine;
	struct tc_error error = {0};
	assert_int_equal(tc_engine_create(&machine, &sink, &engine, &error), TC_OK);
	struct tc_sink commands = tc_engine_sink(engine);
	struct tc_plan_info info = {.machine = &machine};
	memcpy(info.lanes, machine.lanes, sizeof info.lanes);
	assert_int_equal(commands.begin(engine, &info, &error), TC_OK);
	for (uint64_t id = 0; id < 4; id++) {
		struct tc_command command = {
		    .id = id, .queue = TC_QUEUE_COMPUTE, .duration_ps = US};
		if (id >= 2) {
			command.memory = memory;
			command.served = served;
			command.deps = deps;
			command.binds = &bind;
			command.memory_count = command.served_count = command.dep_count = 200;
			command.bind_count = 1;
		}
		assert_int_equal(commands.command(engine, &command, &error), TC_OK);
		if (id == 2) /* the engine has its own copies */
			assert_int_equal(seen, 0);
	}
	struct tc_plan_end end = {.command_count = 4};
	assert_int_equal(commands.end(engine, &end, &error), TC_OK);
	assert_int_equal(seen, 400);
	assert_int_not_equal(commands.begin(engine, &info, &error), TC_OK);
	tc_engine_free(engine);
}

/* Freed in the middle of a run, large blocks and all (the sanitizers watch). */
static void test_abandoned(void **state)
{
	(void)state;
	struct tc_machine machine = small_machine();
	struct stream stream;
	open_stream(&stream, &machine);
	struct tc_memory_change memory[300] = {{0}};
	for (uint64_t id = 0; id < 10; id++) {
		struct tc_command command = {.id = id,
		                             .queue = TC_QUEUE_COMPUTE,
		                             .duration_ps = US,
		                             .memory = memory,
		                             .memory_count = 300};
		assert_int_equal(stream.sink.command(stream.engine, &command, &stream.error),
		                 TC_OK);
	}
	tc_engine_free(stream.engine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_refused_commands),
	    cmocka_unit_test(test_refused_machines),
	    cmocka_unit_test(test_times_that_do_not_fit),
	    cmocka_unit_test(test_sink_error),
	    cmocka_unit_test(test_memory_of_one_lane),
	    cmocka_unit_test(test_second_lane_after_running_ahead),
	    cmocka_unit_test(test_memory_of_iterations),
	    cmocka_unit_test(test_instant_commands),
	    cmocka_unit_test(test_many_shapes),
	    cmocka_unit_test(test_long_lists),
	    cmocka_unit_test(test_abandoned),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
