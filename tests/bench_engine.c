/*
 * Commands per second through the engine, on one core, for real plans and for a hard one.
 *
 * Real: the plans of policies for traces/opt13b.json on the default machine, made beforehand and
 * played from memory.
 *
 * Hard: a stream that resembles 10Cache with all optimizer state on NVMe and only one compute in
 * six commands. Per step a read, a copy up into the slot of an earlier copy down, the step's
 * compute with the lists a planner attaches (what served it, memory that comes and goes), a copy
 * down, a CPU update and a write; sizes are mostly a few KiB, sometimes up to 200 MiB. The host
 * waits for the last write of each iteration of 1,000 steps. Building a command is part of the
 * time. The last line solves rates at every change instead of looking them up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "core.h"
#include "random.h"
#include "tencache/planner.h"

#define STEPS 1000u
#define ITERATIONS 100u
#define SLOTS 16u

struct load {
	struct tc_sink sink;
	struct tc_error error;
	uint64_t random, id;
	uint64_t copied_down[SLOTS]; /**< last command that gave each slot back */
	uint64_t last_compute, last_write;
	uint64_t reports, end_ps, stall_ps;
};

static enum tc_status count_report(void *self, const struct tc_command *command,
                                   const struct tc_timing *timing, struct tc_error *error)
{
	(void)error;
	struct load *load = self;
	load->reports++;
	load->end_ps = timing->end_ps;
	if (command->queue == TC_QUEUE_COMPUTE)
		for (int cause = 0; cause < TC_STALL_CAUSE_COUNT; cause++)
			load->stall_ps += timing->stall_ps[cause];
	return TC_OK;
}

static uint64_t push(struct load *load, struct tc_command *command, uint64_t first_dep,
                     enum tc_reason first_reason, uint64_t second_dep, enum tc_reason second_reason)
{
	struct tc_dependency deps[2];
	command->id = load->id++;
	command->deps = deps;
	if (first_dep != TC_NO_COMMAND)
		deps[command->dep_count++] = (struct tc_dependency){first_dep, first_reason};
	if (second_dep != TC_NO_COMMAND)
		deps[command->dep_count++] = (struct tc_dependency){second_dep, second_reason};
	if (load->sink.command(load->sink.self, command, &load->error) != TC_OK) {
		fprintf(stderr, "%s\n", load->error.text);
		exit(1);
	}
	return command->id;
}

static uint64_t push_copy(struct load *load, enum tc_queue queue, enum tc_command_kind kind,
                          uint64_t bytes, uint64_t data, uint64_t slot)
{
	struct tc_command command = {
	    .queue = queue, .kind = kind, .bytes = bytes, .launches = 1, .tensor = 1};
	return push(load, &command, data, TC_REASON_DATA, slot, TC_REASON_SLOT);
}

static void push_step(struct load *load, uint32_t step)
{
	uint64_t bytes = 8192 + 2 * test_random_below(&load->random, 512);
	if (test_random_below(&load->random, 8) == 0)
		bytes = (1 + test_random_below(&load->random, 200)) << 20;
	uint64_t *slot = &load->copied_down[step % SLOTS];
	uint64_t read = push_copy(load, TC_QUEUE_NVME_READ, TC_LOAD, bytes, TC_NO_COMMAND,
	                          load->copied_down[(step + 5) % SLOTS]);
	uint64_t up = push_copy(load, TC_QUEUE_H2D, TC_FETCH, bytes, read, *slot);
	struct tc_served served[2] = {{.served_by = up, .is_request = true},
	                              {.served_by = TC_NO_COMMAND, .is_request = true}};
	struct tc_memory_change memory[2] = {{(int64_t)bytes, TC_NO_COMMAND, TC_GPU, TC_ACTIVATION},
	                                     {-(int64_t)bytes, load->id, TC_GPU, TC_ACTIVATION}};
	struct tc_command compute = {
	    .queue = TC_QUEUE_COMPUTE,
	    .kind = TC_COMPUTE,
	    .duration_ps = 100000000 + test_random_below(&load->random, 400000000),
	    .launches = 10,
	    .hooks = 1,
	    .served = served,
	    .served_count = 2,
	    .memory = memory,
	    .memory_count = 2,
	};
	load->last_compute =
	    push(load, &compute, up, TC_REASON_DATA, load->last_compute, TC_REASON_DATA);
	uint64_t down =
	    push_copy(load, TC_QUEUE_D2H, TC_EVICT, bytes, load->last_compute, TC_NO_COMMAND);
	*slot = down;
	struct tc_command update = {.queue = TC_QUEUE_CPU,
	                            .kind = TC_UPDATE,
	                            .elements = bytes / 2,
	                            .traffic_bytes = bytes * 14,
	                            .launches = 1};
	uint64_t updated = push(load, &update, down, TC_REASON_DATA, TC_NO_COMMAND, TC_REASON_DATA);
	load->last_write =
	    push_copy(load, TC_QUEUE_NVME_WRITE, TC_SPILL, bytes * 6, updated, TC_NO_COMMAND);
}

struct run {
	const struct tc_machine *machine;
	bool use_memo;
	struct load load;
};

static void stream(void *self)
{
	struct run *run = self;
	struct load *load = &run->load;
	*load =
	    (struct load){.random = 1, .last_compute = TC_NO_COMMAND, .last_write = TC_NO_COMMAND};
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		load->copied_down[slot] = TC_NO_COMMAND;
	struct tc_timing_sink timings = {load, count_report};
	struct tc_engine *engine;
	if (tc_engine_create(run->machine, &timings, &engine, &load->error) != TC_OK)
		exit(1);
	tci_engine_use_memo(engine, run->use_memo);
	load->sink = tc_engine_sink(engine);
	struct tc_plan_info info = {.machine = run->machine};
	memcpy(info.lanes, run->machine->lanes, sizeof info.lanes);
	if (load->sink.begin(engine, &info, &load->error) != TC_OK)
		exit(1);
	for (uint32_t iteration = 0; iteration < ITERATIONS; iteration++) {
		for (uint32_t step = 0; step < STEPS; step++)
			push_step(load, step);
		struct tc_command wait = {.queue = TC_QUEUE_HOST, .kind = TC_WAIT};
		push(load, &wait, load->last_write, TC_REASON_DATA, TC_NO_COMMAND, TC_REASON_DATA);
	}
	struct tc_plan_end end = {.command_count = load->id};
	if (load->sink.end(engine, &end, &load->error) != TC_OK)
		exit(1);
	tc_engine_free(engine);
}

static bool measure(const struct tc_machine *machine, const char *name, bool use_memo, double goal)
{
	struct run run = {.machine = machine, .use_memo = use_memo};
	struct bench_spread seconds = bench_seconds(stream, &run);
	struct bench_spread rate = bench_rate(seconds, (double)run.load.reports);
	bool met = bench_print_rate(name, rate, "commands", goal);
	printf("  %llu commands, %.3f s simulated, %.3f s of it stalled\n",
	       (unsigned long long)run.load.reports, (double)run.load.end_ps * 1e-12,
	       (double)run.load.stall_ps * 1e-12);
	return met;
}

/* ---------------------------------------------------------------- real plans */

#define REAL_ITERATIONS 12
#define REAL_REPEATS 3

struct real {
	struct tc_trace *trace;
	struct tc_steps *steps;
	struct tc_machine *machine;
	struct tc_schedule *schedule;
	struct load load;
};

static void require(enum tc_status status, const struct tc_error *error)
{
	if (status == TC_OK)
		return;
	fprintf(stderr, "bench_engine: %s\n", error->text);
	exit(1);
}

static void play(void *self)
{
	struct real *real = self;
	struct tc_error error = {0};
	real->load = (struct load){0};
	struct tc_timing_sink timings = {&real->load, count_report};
	for (int repeat = 0; repeat < REAL_REPEATS; repeat++) {
		struct tc_engine *engine;
		require(tc_engine_create(real->machine, &timings, &engine, &error), &error);
		struct tc_sink sink = tc_engine_sink(engine);
		require(tc_schedule_play(real->schedule, &sink, &error), &error);
		tc_engine_free(engine);
	}
}

static bool measure_policy(struct real *real, const char *text, double goal)
{
	struct tc_error error = {0};
	struct tc_policy_choice *policy;
	require(tc_policy_parse(text, &policy, &error), &error);
	require(tc_schedule_create(&real->schedule, &error), &error);
	struct tc_sink sink = tc_schedule_sink(real->schedule);
	struct tc_plan_options options = {.trace = real->trace,
	                                  .steps = real->steps,
	                                  .machine = real->machine,
	                                  .policy = policy,
	                                  .iterations = REAL_ITERATIONS,
	                                  .sink = &sink};
	require(tc_plan(&options, NULL, &error), &error);
	struct bench_spread seconds = bench_seconds(play, real);
	struct bench_spread rate = bench_rate(seconds, (double)real->load.reports);
	char name[64];
	snprintf(name, sizeof name, "engine, %s", text);
	bool met = bench_print_rate(name, rate, "commands", goal);
	tc_schedule_free(real->schedule);
	tc_policy_choice_free(policy);
	return met;
}

static bool measure_real(double goal)
{
	static const char *const policies[] = {"10cache", "lru", "zero-infinity:device=nvme"};
	struct tc_error error = {0};
	struct real real = {0};
	require(tc_trace_read(TENCACHE_SOURCE_DIR "/traces/opt13b.json", &real.trace, &error),
	        &error);
	require(tc_steps_derive(real.trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                        TC_FREES_LAST_USE, &real.steps, &error),
	        &error);
	require(tc_machine_load(TC_DEFAULT_MACHINE, NULL, &real.machine, &error), &error);
	bool met = true;
	for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
		met &= measure_policy(&real, policies[i], goal);
	tc_machine_free(real.machine);
	tc_steps_free(real.steps);
	tc_trace_free(real.trace);
	return met;
}

int main(void)
{
	const struct tc_machine machine = {
	    .name = "bench",
	    .h2d = {26000000000, 10000000},
	    .d2h = {26000000000, 10000000},
	    .duplex_bytes_per_s = 37000000000,
	    .dram_bytes_per_s = 80000000000,
	    .nvme_read = {6500000000, 80000000},
	    .nvme_write = {5000000000, 20000000},
	    .nvme_mixed_bytes_per_s = 8000000000,
	    .nvme_drives = 2,
	    .nvme_striped = true,
	    .pageable_ppm = 500000,
	    .cpu_cores = 32,
	    .adam_parameters_per_s_per_core = 270000000,
	    .launch_ps = 5000000,
	    .hook_ps = 2000000,
	    .lanes = {1, 1, 1, 1, 1, 1, 1, 1},
	};
	bool met = measure_real(6e6);
	met &= measure(&machine, "engine, hard stream", true, 6e6);
	met &= measure(&machine, "engine, hard, a solve per change", false, 1e6);
	return met ? 0 : 1;
}
