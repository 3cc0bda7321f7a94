#include "program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tencache/units.h"

void tci_engine_use_memo(struct tc_engine *engine, bool use_memo);

void program_init(struct program *program)
{
	*program = (struct program){0};
}

void program_free(struct program *program)
{
	free(program->commands);
	free(program->deps);
	free(program->served);
	*program = (struct program){0};
}

static void *grown(void *array, size_t capacity, size_t element_bytes)
{
	void *larger = realloc(array, capacity * element_bytes);
	assert_non_null(larger);
	return larger;
}

uint64_t program_add(struct program *program, enum tc_queue queue, enum tc_command_kind kind)
{
	if (program->count == program->capacity) {
		size_t capacity = program->capacity == 0 ? 64 : program->capacity * 2;
		program->commands = grown(program->commands, capacity, sizeof *program->commands);
		program->deps = grown(program->deps, capacity, sizeof *program->deps);
		program->served = grown(program->served, capacity, sizeof *program->served);
		program->capacity = capacity;
	}
	program->commands[program->count] = (struct tc_command){.id = program->count,
	                                                        .queue = queue,
	                                                        .kind = kind,
	                                                        .tensor = TC_NONE,
	                                                        .first_op = TC_NONE,
	                                                        .last_op = TC_NONE};
	return program->count++;
}

struct tc_command *program_at(struct program *program, uint64_t id)
{
	assert_true(id < program->count);
	return &program->commands[id];
}

uint64_t program_compute(struct program *program, uint64_t duration_ps)
{
	uint64_t id = program_add(program, TC_QUEUE_COMPUTE, TC_COMPUTE);
	program->commands[id].duration_ps = duration_ps;
	return id;
}

uint64_t program_copy(struct program *program, enum tc_queue queue, uint64_t bytes)
{
	static const enum tc_command_kind kinds[TC_QUEUE_COUNT] = {[TC_QUEUE_H2D] = TC_FETCH,
	                                                           [TC_QUEUE_D2H] = TC_EVICT,
	                                                           [TC_QUEUE_NVME_READ] = TC_LOAD,
	                                                           [TC_QUEUE_NVME_WRITE] = TC_SPILL,
	                                                           [TC_QUEUE_GPU_NVME] = TC_FETCH};
	uint64_t id = program_add(program, queue, kinds[queue]);
	program->commands[id].bytes = bytes;
	return id;
}

uint64_t program_update(struct program *program, uint64_t parameters)
{
	uint64_t id = program_add(program, TC_QUEUE_CPU, TC_UPDATE);
	program->commands[id].elements = parameters;
	program->commands[id].traffic_bytes = 28 * parameters;
	return id;
}

uint64_t program_wait(struct program *program, uint64_t on)
{
	uint64_t id = program_add(program, TC_QUEUE_HOST, TC_WAIT);
	program_depend(program, id, on, TC_REASON_DATA);
	return id;
}

void program_depend(struct program *program, uint64_t id, uint64_t on, enum tc_reason reason)
{
	struct tc_command *command = program_at(program, id);
	assert_true(command->dep_count < PROGRAM_DEPS);
	program->deps[id][command->dep_count++] = (struct tc_dependency){on, reason};
}

void program_serve(struct program *program, uint64_t id, uint64_t served_by)
{
	struct tc_command *command = program_at(program, id);
	assert_true(command->served_count < PROGRAM_DEPS);
	program->served[id][command->served_count++] =
	    (struct tc_served){.is_request = true, .served_by = served_by};
}

enum tc_status program_play(const struct program *program, const struct tc_sink *sink,
                            struct tc_error *error)
{
	for (size_t i = 0; i < program->count; i++) {
		struct tc_command command = program->commands[i];
		command.deps = program->deps[i];
		command.served = program->served[i];
		TC_TRY(sink->command(sink->self, &command, error));
	}
	return TC_OK;
}

struct collector {
	struct timed *timed;
	bool *seen;
	uint64_t count, last_id, last_end_ps;
};

static enum tc_status collect(void *self, const struct tc_command *command,
                              const struct tc_timing *timing, struct tc_error *error)
{
	(void)error;
	struct collector *collector = self;
	assert_false(collector->seen[command->id]);
	collector->seen[command->id] = true;
	if (collector->count > 0) {
		assert_true(timing->end_ps >= collector->last_end_ps);
		if (timing->end_ps == collector->last_end_ps)
			assert_true(command->id > collector->last_id);
	}
	collector->last_id = command->id;
	collector->last_end_ps = timing->end_ps;
	struct timed *timed = &collector->timed[command->id];
	timed->timing = *timing;
	timed->order = collector->count++;
	for (uint32_t i = 0; i < command->served_count; i++)
		timed->ready[i] = timing->ready[i];
	timed->timing.ready = timed->ready;
	return TC_OK;
}

enum tc_status program_try(const struct program *program, const struct tc_machine *machine,
                           bool use_memo, struct timed **timed, struct tc_error *error)
{
	struct collector collector = {.timed = calloc(program->count + 1, sizeof **timed),
	                              .seen = calloc(program->count + 1, sizeof(bool))};
	assert_non_null(collector.timed);
	assert_non_null(collector.seen);
	struct tc_timing_sink sink = {&collector, collect};
	struct tc_engine *engine;
	assert_int_equal(tc_engine_create(machine, &sink, &engine, error), TC_OK);
	tci_engine_use_memo(engine, use_memo);
	struct tc_sink commands = tc_engine_sink(engine);
	struct tc_plan_info info = {.machine = machine};
	memcpy(info.lanes, machine->lanes, sizeof info.lanes);
	struct tc_plan_end end = {.command_count = program->count};
	enum tc_status status = commands.begin(commands.self, &info, error);
	if (status == TC_OK)
		status = program_play(program, &commands, error);
	if (status == TC_OK)
		status = commands.end(commands.self, &end, error);
	tc_engine_free(engine);
	if (status == TC_OK)
		assert_int_equal(collector.count, program->count);
	free(collector.seen);
	*timed = collector.timed;
	if (status != TC_OK) {
		free(collector.timed);
		*timed = NULL;
	}
	return status;
}

struct timed *program_run(const struct program *program, const struct tc_machine *machine)
{
	struct timed *timed;
	struct tc_error error = {0};
	enum tc_status status = program_try(program, machine, true, &timed, &error);
	if (status != TC_OK)
		print_error("%s\n", error.text);
	assert_int_equal(status, TC_OK);
	return timed;
}
