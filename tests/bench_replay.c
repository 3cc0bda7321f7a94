/*
 * Overhead of the executor, without work: copies of 4 KiB over device `host`.
 *   independent commands   on h2d and d2h, no dependencies: commands per second
 *   dependent chain        each command waits for the one before, on the next of four queues:
 *                          microseconds from the end of one to the start of the next
 *   idle waiting           CPU time while a command holds the compute lane
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "tencache/replay.h"
#include "tencache/units.h"

#define INDEPENDENT 200000u
#define HOPS 20000u
#define SLOTS 64u
#define SLOT_BYTES 4096u

static void must(enum tc_status status, const struct tc_error *error)
{
	if (status == TC_OK)
		return;
	(void)fprintf(stderr, "%s\n", error->text);
	abort();
}

/** A schedule made by hand: a pool on the GPU and one on the host, one tensor a slot. */
struct bench_schedule {
	struct tc_schedule schedule;
	struct tc_pool_info pools[2];
	struct tc_plan_tensor tensors[SLOTS];
	struct tc_command *commands;
	struct tc_dependency *deps;
};

static void init(struct bench_schedule *bench, uint64_t count)
{
	*bench = (struct bench_schedule){.commands = calloc(count, sizeof *bench->commands),
	                                 .deps = calloc(count, sizeof *bench->deps)};
	if (bench->commands == NULL || bench->deps == NULL)
		abort();
	bench->pools[0] =
	    (struct tc_pool_info){"gpu", TC_GPU, TC_POOL_ARENA, false, SLOTS * SLOT_BYTES};
	bench->pools[1] =
	    (struct tc_pool_info){"cpu", TC_CPU, TC_POOL_ARENA, true, SLOTS * SLOT_BYTES};
	for (uint32_t t = 0; t < SLOTS; t++)
		bench->tensors[t] = (struct tc_plan_tensor){.name = "t",
		                                            .kind = TC_PARAM,
		                                            .bytes = SLOT_BYTES,
		                                            .derived_from = TC_NONE,
		                                            .home = TC_CPU};
	struct tc_plan_info *info = &bench->schedule.info;
	*info = (struct tc_plan_info){.policy = "bench",
	                              .scale = 1,
	                              .iterations = 1,
	                              .pools = bench->pools,
	                              .pool_count = 2,
	                              .tensors = bench->tensors,
	                              .tensor_count = SLOTS};
	for (int queue = 0; queue < TC_QUEUE_COUNT; queue++)
		info->lanes[queue] = queue == TC_QUEUE_GPU_NVME ? 0 : 1;
	bench->schedule.commands = bench->commands;
	bench->schedule.command_count = count;
	bench->schedule.end.command_count = count;
}

static void bench_free(struct bench_schedule *bench)
{
	free(bench->commands);
	free(bench->deps);
}

static void set(struct bench_schedule *bench, uint64_t id, enum tc_queue queue)
{
	bool up = queue == TC_QUEUE_H2D;
	bool copy = up || queue == TC_QUEUE_D2H;
	uint64_t offset = id % SLOTS * SLOT_BYTES;
	bench->commands[id] = (struct tc_command){
	    .id = id,
	    .queue = queue,
	    .kind = copy ? (up ? TC_FETCH : TC_EVICT)
	                 : (queue == TC_QUEUE_COMPUTE ? TC_COMPUTE : TC_CONVERT),
	    .tensor = copy ? (uint32_t)(id % SLOTS) : TC_NONE,
	    .bytes = copy ? SLOT_BYTES : 0,
	    .src = {copy ? (up ? 1u : 0u) : TC_NO_POOL, offset},
	    .dst = {copy ? (up ? 0u : 1u) : TC_NO_POOL, offset},
	    .first_op = TC_NONE,
	    .last_op = TC_NONE,
	    .first_chunk = true,
	    .last_chunk = true};
}

static struct tc_replay_facts run(const struct bench_schedule *bench,
                                  const struct tc_timing_sink *sink)
{
	struct tc_error error = {0};
	struct tc_replay *replay;
	struct tc_replay_options options = {.schedule = &bench->schedule,
	                                    .device = &tc_device_host,
	                                    .verify = TC_VERIFY_OFF,
	                                    .compute =
	                                        sink == NULL ? TC_COMPUTE_MODEL : TC_COMPUTE_NONE,
	                                    .cpu_threads = 1,
	                                    .timing = sink};
	must(tc_replay_create(&options, &replay, &error), &error);
	must(tc_replay_finish(replay, &error), &error);
	struct tc_replay_facts facts = *tc_replay_facts(replay);
	tc_replay_free(replay);
	return facts;
}

static enum tc_status ignore(void *self, const struct tc_command *command,
                             const struct tc_timing *timing, struct tc_error *error)
{
	(void)self;
	(void)command;
	(void)timing;
	(void)error;
	return TC_OK;
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return a < b ? -1 : a > b;
}

static void print_spread(const char *what, double *values, const char *unit, double goal,
                         bool least)
{
	qsort(values, BENCH_RUNS, sizeof *values, compare);
	double median = values[BENCH_RUNS / 2];
	bool met = least ? median >= goal : median <= goal;
	printf("%-24s %10.2f %s (%.2f to %.2f), goal %s %.2f: %s\n", what, median, unit, values[0],
	       values[BENCH_RUNS - 1], least ? "at least" : "at most", goal,
	       met ? "met" : "not met");
}

static void bench_independent(void)
{
	struct bench_schedule bench;
	double rates[BENCH_RUNS];
	struct tc_timing_sink sink = {NULL, ignore};
	init(&bench, INDEPENDENT);
	for (uint64_t id = 0; id < INDEPENDENT; id++)
		set(&bench, id, id % 2 == 0 ? TC_QUEUE_H2D : TC_QUEUE_D2H);
	for (int r = 0; r < BENCH_RUNS; r++) {
		struct tc_replay_facts facts = run(&bench, &sink);
		rates[r] = INDEPENDENT / ((double)facts.run_ps / TC_PS_PER_S) / 1000;
	}
	print_spread("independent commands", rates, "thousand/s", 200, true);
	bench_free(&bench);
}

/** Times from the end of a command to the start of the next. */
struct hops {
	double *us;
	uint64_t last_end_ps, count;
};

static enum tc_status hop(void *self, const struct tc_command *command,
                          const struct tc_timing *timing, struct tc_error *error)
{
	struct hops *hops = self;
	(void)error;
	if (command->id > 0)
		hops->us[hops->count++] =
		    (double)(timing->start_ps - hops->last_end_ps) / TC_PS_PER_US;
	hops->last_end_ps = timing->end_ps;
	return TC_OK;
}

static void bench_chain(const char *what, const enum tc_queue *queues, uint64_t queue_count)
{
	struct bench_schedule bench;
	double medians[BENCH_RUNS];
	init(&bench, HOPS);
	for (uint64_t id = 0; id < HOPS; id++) {
		set(&bench, id, queues[id % queue_count]);
		if (id == 0)
			continue;
		bench.deps[id] = (struct tc_dependency){id - 1, TC_REASON_DATA};
		bench.commands[id].deps = &bench.deps[id];
		bench.commands[id].dep_count = 1;
	}
	for (int r = 0; r < BENCH_RUNS; r++) {
		struct hops hops = {.us = calloc(HOPS, sizeof(double))};
		struct tc_timing_sink sink = {&hops, hop};
		if (hops.us == NULL)
			abort();
		(void)run(&bench, &sink);
		qsort(hops.us, (size_t)hops.count, sizeof *hops.us, compare);
		medians[r] = hops.us[hops.count / 2];
		free(hops.us);
	}
	print_spread(what, medians, "us a hop", 15, false);
	bench_free(&bench);
}

static void bench_idle(void)
{
	struct bench_schedule bench;
	double shares[BENCH_RUNS];
	init(&bench, 2);
	set(&bench, 0, TC_QUEUE_COMPUTE);
	bench.commands[0].duration_ps = TC_PS_PER_S / 2;
	set(&bench, 1, TC_QUEUE_H2D);
	bench.deps[1] = (struct tc_dependency){0, TC_REASON_DATA};
	bench.commands[1].deps = &bench.deps[1];
	bench.commands[1].dep_count = 1;
	for (int r = 0; r < BENCH_RUNS; r++) {
		struct tc_replay_facts facts = run(&bench, NULL);
		shares[r] = 100.0 * (double)facts.cpu_ps / (double)facts.run_ps;
	}
	print_spread("idle waiting", shares, "% of a core", 5, false);
	bench_free(&bench);
}

int main(void)
{
	static const enum tc_queue device[] = {TC_QUEUE_H2D, TC_QUEUE_COMPUTE, TC_QUEUE_D2H};
	static const enum tc_queue all[] = {TC_QUEUE_H2D, TC_QUEUE_COMPUTE, TC_QUEUE_D2H,
	                                    TC_QUEUE_CPU};
	bench_independent();
	bench_chain("chain on the device", device, 3);
	bench_chain("chain with queue cpu", all, 4);
	bench_idle();
	return 0;
}
