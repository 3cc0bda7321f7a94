/* The report on timings made by hand and at random: no planner and no engine are needed to know
 * what it must say. Hand case: the time line is drawn beside the commands. Random cases: compared
 * with a naive computation that keeps everything and looks only at definitions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "random.h"
#include "tencache/report.h"

static const struct tc_plan_tensor tensors[] = {
    {.name = "w", .kind = TC_PARAM, .bytes = 1000, .derived_from = TC_NONE},
    {.name = "g", .kind = TC_GRAD, .bytes = 500, .derived_from = TC_NONE},
    {.name = "a", .kind = TC_ACTIVATION, .bytes = 200, .derived_from = TC_NONE},
};
static const struct tc_pool_info pools[] = {
    {.name = "gpu", .tier = TC_GPU, .bytes = 4096},
    {.name = "host", .tier = TC_CPU, .pinned = true, .bytes = 3000},
};

static struct tc_plan_info plan_info(const struct tc_machine *machine)
{
	struct tc_plan_info info = {.policy = "hand:x=1",
	                            .machine = machine,
	                            .tensors = tensors,
	                            .tensor_count = 3,
	                            .pools = pools,
	                            .pool_count = 2};
	info.fixed_bytes[TC_GPU] = 10;
	return info;
}

/** Feeds a report; fails the test on an error. */
struct feeder {
	struct tc_report *report;
	struct tc_sink plan;
	struct tc_timing_sink timing;
	uint64_t next_id;
};

static struct feeder feed(uint32_t iterations, const struct tc_plan_info *info)
{
	struct feeder f = {0};
	struct tc_error error = {0};
	assert_int_equal(tc_report_create(iterations, &f.report, &error), TC_OK);
	f.plan = tc_report_plan_sink(f.report);
	f.timing = tc_report_timing_sink(f.report);
	assert_int_equal(f.plan.begin(f.plan.self, info, &error), TC_OK);
	return f;
}

static void plan(struct feeder *f, struct tc_command *command)
{
	struct tc_error error = {0};
	command->id = f->next_id++;
	if (f->plan.command(f->plan.self, command, &error) != TC_OK)
		fail_msg("%s", error.text);
}

static void finish(struct feeder *f, const struct tc_command *command,
                   const struct tc_timing *timing)
{
	struct tc_error error = {0};
	if (f->timing.finished(f->timing.self, command, timing, &error) != TC_OK)
		fail_msg("%s", error.text);
}

static struct tc_command command_of(enum tc_command_kind kind, enum tc_queue queue,
                                    enum tc_phase phase, uint32_t iteration)
{
	return (struct tc_command){.kind = kind,
	                           .queue = queue,
	                           .phase = phase,
	                           .iteration = iteration,
	                           .tensor = TC_NONE,
	                           .first_chunk = true,
	                           .last_chunk = true};
}

/*
 * One iteration of the hand case, 1000 ps long, T = start:
 *
 *   compute  [T, T+100] forward        [T+250, T+400] backward
 *   h2d            [T+50 .. T+250] w, a prefetch
 *   d2h                                      [T+400 .. T+700] w back
 *   cpu                                               [T+600 .. T+900] update
 *
 * Idle: 150 before backward (100 issued late, 50 link busy), 600 before the next iteration (500
 * optimizer, 100 host call). The second CPU lane is busy [T+650, T+950]: the union is 350. Memory:
 * 1024 bytes from T+50 until the copy back has ended at T+700.
 */
static void hand_iteration(struct feeder *f, uint32_t iteration, uint64_t t)
{
	static const bool ready[] = {true, false};
	struct tc_served served_forward[] = {
	    {.tensor = 0, .outcome = TC_RESIDENT, .is_request = true, .always_resident = true},
	    {.tensor = 2, .outcome = TC_DEMAND_MISS, .is_request = false}};
	struct tc_served served_backward[] = {
	    {.tensor = 0, .outcome = TC_COVERED, .is_request = true},
	    {.tensor = 0, .outcome = TC_DEMAND_MISS, .is_request = true}};
	struct tc_served served_update[] = {
	    {.tensor = 1, .outcome = TC_RESIDENT, .is_request = true}};
	struct tc_command forward = command_of(TC_COMPUTE, TC_QUEUE_COMPUTE, TC_FORWARD, iteration);
	struct tc_command fetch = command_of(TC_FETCH, TC_QUEUE_H2D, TC_FORWARD, iteration);
	struct tc_command backward =
	    command_of(TC_COMPUTE, TC_QUEUE_COMPUTE, TC_BACKWARD, iteration);
	struct tc_command evict = command_of(TC_EVICT, TC_QUEUE_D2H, TC_BACKWARD, iteration);
	struct tc_command update = command_of(TC_UPDATE, TC_QUEUE_CPU, TC_OPTIMIZER, iteration);
	struct tc_command second = command_of(TC_CONVERT, TC_QUEUE_CPU, TC_OPTIMIZER, iteration);
	forward.served = served_forward;
	forward.served_count = 2;
	backward.served = served_backward;
	backward.served_count = 2;
	update.served = served_update;
	update.served_count = 1;
	fetch.tensor = evict.tensor = 0;
	fetch.bytes = evict.bytes = 1000;
	second.lane = 1;
	plan(f, &forward);
	struct tc_memory_change taken = {1024, TC_NO_COMMAND, TC_GPU, TC_PARAM};
	fetch.memory = &taken;
	fetch.memory_count = 1;
	plan(f, &fetch);
	plan(f, &backward);
	plan(f, &evict);
	/* Given back by a later command, when the copy has ended. */
	struct tc_memory_change given = {-1024, evict.id, TC_GPU, TC_PARAM};
	update.memory = &given;
	update.memory_count = 1;
	plan(f, &update);
	plan(f, &second);

	struct tc_timing timing = {.issue_ps = t, .start_ps = t, .end_ps = t + 100, .ready = ready};
	if (iteration > 0) {
		timing.stall_ps[TC_STALL_OPTIMIZER] = 500;
		timing.stall_ps[TC_STALL_HOST_CALL] = 100;
	}
	finish(f, &forward, &timing);
	finish(f, &fetch,
	       &(struct tc_timing){.issue_ps = t, .start_ps = t + 50, .end_ps = t + 250});
	timing = (struct tc_timing){
	    .issue_ps = t + 1, .start_ps = t + 250, .end_ps = t + 400, .ready = ready};
	timing.stall_ps[TC_STALL_ISSUED_LATE] = 100;
	timing.stall_ps[TC_STALL_LINK_BUSY] = 50;
	finish(f, &backward, &timing);
	finish(f, &evict,
	       &(struct tc_timing){.issue_ps = t + 2, .start_ps = t + 400, .end_ps = t + 700});
	finish(f, &update,
	       &(struct tc_timing){
	           .issue_ps = t + 3, .start_ps = t + 600, .end_ps = t + 900, .ready = ready});
	finish(f, &second,
	       &(struct tc_timing){.issue_ps = t + 4, .start_ps = t + 650, .end_ps = t + 950});
}

static void test_by_hand(void **state)
{
	(void)state;
	struct tc_machine machine = {.capacity_bytes = {4096, 8192, 0},
	                             .nvme_endurance_bytes = 1,
	                             .pinned_rounding = TC_PINNED_POW2};
	struct tc_plan_info info = plan_info(&machine);
	struct feeder f = feed(2, &info);
	struct tc_command init = command_of(TC_ALLOC, TC_QUEUE_HOST, TC_OTHER, TC_ITERATION_INIT);
	plan(&f, &init);
	finish(&f, &init, &(struct tc_timing){.end_ps = 60});
	for (uint32_t i = 0; i < 4; ++i)
		hand_iteration(&f, i, 100 + 1000 * (uint64_t)i);

	struct tc_error error = {0};
	struct tc_result r;
	if (tc_report_finish(f.report, &r, &error) != TC_OK)
		fail_msg("%s", error.text);
	assert_string_equal(r.policy, "hand:x=1");
	assert_int_equal(r.initial_ps, 60);
	/* From the end of init to the start of iteration 1: 1100 - 60. */
	assert_int_equal(r.cold_iteration_ps, 1040);
	assert_int_equal(r.iteration_ps, 1000);
	assert_int_equal(r.iteration_min_ps, 1000);
	assert_int_equal(r.iteration_max_ps, 1000);
	assert_true(r.steady);
	assert_int_equal(r.compute_ps, 250);
	assert_int_equal(r.stall_ps, 750);
	assert_int_equal(r.stalls_ps[TC_STALL_OPTIMIZER], 500);
	assert_int_equal(r.stalls_ps[TC_STALL_HOST_CALL], 100);
	assert_int_equal(r.stalls_ps[TC_STALL_ISSUED_LATE], 100);
	assert_int_equal(r.stalls_ps[TC_STALL_LINK_BUSY], 50);
	assert_int_equal(r.phases[TC_FORWARD].time_ps, 100);
	assert_int_equal(r.phases[TC_BACKWARD].time_ps, 300);
	assert_int_equal(r.phases[TC_BACKWARD].stall_ps, 150);
	/* The wait for the update belongs to the optimizer of the iteration that it ends. */
	assert_int_equal(r.phases[TC_OPTIMIZER].time_ps, 600);
	const struct tc_hits *forward = &r.phases[TC_FORWARD].hits;
	assert_int_equal(forward->requests, 1);
	assert_int_equal(forward->request_bytes, 1000);
	assert_int_equal(forward->resident, 1);
	assert_int_equal(forward->covered_bytes, 1000);
	assert_int_equal(forward->ready, 1);
	assert_int_equal(forward->always_resident, 1);
	const struct tc_hits *backward = &r.phases[TC_BACKWARD].hits;
	assert_int_equal(backward->requests, 2);
	assert_int_equal(backward->resident, 0);
	assert_int_equal(backward->covered, 1);
	assert_int_equal(backward->demand_misses, 1);
	assert_int_equal(backward->ready, 1);
	assert_int_equal(r.phases[TC_OPTIMIZER].kinds[TC_GRAD].requests, 1);
	assert_int_equal(r.read_misses, 1);
	assert_int_equal(r.phases[TC_FORWARD].fetches, 1);
	assert_int_equal(r.phases[TC_FORWARD].fetch_bytes, 1000);
	assert_int_equal(r.phases[TC_BACKWARD].evictions, 1);
	assert_int_equal(r.transfers[TC_QUEUE_H2D].busy_ps, 200);
	assert_int_equal(r.transfers[TC_QUEUE_D2H].busy_ps, 300);
	assert_int_equal(r.transfers[TC_QUEUE_CPU].busy_ps, 350);
	assert_int_equal(r.transfers[TC_QUEUE_COMPUTE].busy_ps, 250);
	assert_int_equal(r.transfers[TC_QUEUE_H2D].kind_bytes[TC_PARAM], 1000);
	assert_int_equal(r.memory[TC_GPU].peak_bytes, 1024 + 10);
	/* 1024 bytes for 650 of 1000 ps: 665.6. */
	assert_int_equal(r.memory[TC_GPU].mean_bytes, 665 + 10);
	assert_int_equal(r.memory[TC_GPU].kind_peak_bytes[TC_PARAM], 1024);
	assert_int_equal(r.memory[TC_GPU].capacity_bytes, 4096);
	assert_int_equal(r.commands, 6);
	assert_int_equal(r.pinned_bytes, 3000);
	assert_int_equal(r.pinned_rounded_bytes, 4096);
	assert_int_equal(r.pool_count, 2);
	assert_int_equal(r.endurance_iterations, 0);
	tc_result_clear(&r);
	tc_report_free(f.report);
}

/** Iterations of 1000, 1000, 1000 and 1001 ps: one in a thousand is not steady. */
static void test_not_steady(void **state)
{
	(void)state;
	struct tc_plan_info info = plan_info(NULL);
	for (uint64_t longer = 0; longer < 2; ++longer) {
		struct feeder f = feed(3, &info);
		struct tc_error error = {0};
		struct tc_result r;
		for (uint32_t i = 0; i < 5; ++i) {
			struct tc_command c =
			    command_of(TC_COMPUTE, TC_QUEUE_COMPUTE, TC_FORWARD, i);
			uint64_t at = 1000 * (uint64_t)i + (i == 4 ? longer : 0);
			struct tc_timing t = {.start_ps = at, .end_ps = at + 1000};
			if (i == 3)
				t.end_ps += longer;
			plan(&f, &c);
			finish(&f, &c, &t);
		}
		assert_int_equal(tc_report_finish(f.report, &r, &error), TC_OK);
		assert_int_equal(r.iteration_ps, 1000 + longer);
		assert_int_equal(r.iteration_min_ps, 1000);
		assert_int_equal(r.iteration_max_ps, 1000 + longer);
		assert_int_equal(r.steady, longer == 0);
		/* Without an optimizer phase idle time belongs to the last phase; here there is
		 * none. */
		assert_int_equal(r.phases[TC_FORWARD].time_ps, 1000 + longer);
		tc_result_clear(&r);
		tc_report_free(f.report);
	}
}

/** Equal times are not enough: residency must repeat, too; with period 2 it does. */
static void test_residency_repeats(void **state)
{
	(void)state;
	struct tc_plan_info info = plan_info(NULL);
	for (uint32_t period = 1; period <= 2; ++period) {
		struct feeder f = feed(4, &info);
		struct tc_error error = {0};
		struct tc_result r;
		assert_int_equal(tc_report_set_period(f.report, period, &error), TC_OK);
		for (uint32_t i = 0; i < 6; ++i) {
			struct tc_served served = {.tensor = 0,
			                           .outcome = i % 2 ? TC_RESIDENT : TC_COVERED,
			                           .is_request = true};
			struct tc_command c =
			    command_of(TC_COMPUTE, TC_QUEUE_COMPUTE, TC_FORWARD, i);
			c.served = &served;
			c.served_count = 1;
			plan(&f, &c);
			finish(&f, &c,
			       &(struct tc_timing){.start_ps = 1000 * (uint64_t)i,
			                           .end_ps = 1000 * (uint64_t)i + 1000});
		}
		assert_int_equal(tc_report_finish(f.report, &r, &error), TC_OK);
		assert_int_equal(r.steady, period == 2);
		tc_result_clear(&r);
		tc_report_free(f.report);
	}
}

/**
 * The second command of each iteration takes no time, as ops measured at 0 us do, and needs 700
 * bytes within: what it gives back comes at the instant at which it took it, so that the mean is
 * what is fixed.
 */
static void test_commands_without_duration(void **state)
{
	(void)state;
	struct tc_plan_info info = plan_info(NULL);
	struct tc_error error = {0};
	struct feeder f = feed(2, &info);
	for (uint32_t i = 0; i < 4; i++) {
		uint64_t t = 100 * i;
		struct tc_command one = command_of(TC_COMPUTE, TC_QUEUE_COMPUTE, TC_FORWARD, i);
		struct tc_command two = one;
		struct tc_timing timing = {.issue_ps = t, .start_ps = t, .end_ps = t + 60};
		timing.stall_ps[TC_STALL_HOST_CALL] = i == 0 ? 0 : 40;
		plan(&f, &one);
		finish(&f, &one, &timing);
		struct tc_memory_change within[] = {{700, TC_NO_COMMAND, TC_GPU, TC_TEMP},
		                                    {-700, f.next_id, TC_GPU, TC_TEMP}};
		two.memory = within;
		two.memory_count = 2;
		plan(&f, &two);
		finish(&f, &two,
		       &(struct tc_timing){.issue_ps = t, .start_ps = t + 60, .end_ps = t + 60});
	}
	struct tc_result r;
	if (tc_report_finish(f.report, &r, &error) != TC_OK)
		fail_msg("%s", error.text);
	assert_int_equal(r.memory[TC_GPU].mean_bytes, 10);
	tc_result_clear(&r);
	tc_report_free(f.report);
}

static void test_broken_promises(void **state)
{
	(void)state;
	struct tc_plan_info info = plan_info(NULL);
	struct tc_error error = {0};
	struct tc_report *none = NULL;
	assert_int_equal(tc_report_create(0, &none, &error), TC_ARGUMENT);
	/* Stalls that do not sum to the idle time. */
	struct feeder f = feed(1, &info);
	struct tc_command c = command_of(TC_COMPUTE, TC_QUEUE_COMPUTE, TC_FORWARD, 0);
	plan(&f, &c);
	finish(&f, &c, &(struct tc_timing){.end_ps = 10});
	plan(&f, &c);
	struct tc_error sum = {0};
	assert_int_equal(f.timing.finished(f.timing.self, &c,
	                                   &(struct tc_timing){.start_ps = 15, .end_ps = 20}, &sum),
	                 TC_INTERNAL);
	assert_non_null(strstr(sum.text, "idle for 5"));
	/* Twice the same end; an end without a plan; a run that is too short. */
	struct tc_command other = command_of(TC_FETCH, TC_QUEUE_H2D, TC_FORWARD, 0);
	plan(&f, &other);
	finish(&f, &other, &(struct tc_timing){.end_ps = 10});
	struct tc_error twice = {0}, unplanned = {0}, shorter = {0};
	assert_int_equal(
	    f.timing.finished(f.timing.self, &other, &(struct tc_timing){.end_ps = 10}, &twice),
	    TC_INTERNAL);
	other.id = 99;
	assert_int_equal(
	    f.timing.finished(f.timing.self, &other, &(struct tc_timing){.end_ps = 10}, &unplanned),
	    TC_INTERNAL);
	struct tc_result r;
	assert_int_equal(tc_report_finish(f.report, &r, &shorter), TC_ARGUMENT);
	assert_non_null(strstr(shorter.text, "plan 3 iterations"));
	tc_report_free(f.report);
}

/* ---------------------------------------------------------------- random runs */

#define PER_ITERATION 60
#define RUN_ITERATIONS 4
#define RUN_COMMANDS (PER_ITERATION * RUN_ITERATIONS)

struct run {
	struct tc_command commands[RUN_COMMANDS];
	struct tc_timing timings[RUN_COMMANDS];
	struct tc_memory_change changes[RUN_COMMANDS][3];
	uint64_t starts[RUN_ITERATIONS]; /**< of iterations */
	uint64_t memory_at[RUN_COMMANDS][3];
};

/** Issue times rise; each lane is in order; stalls are cut at random. */
static void random_run(struct run *run, uint64_t seed)
{
	static const enum tc_queue queues[] = {TC_QUEUE_COMPUTE, TC_QUEUE_H2D, TC_QUEUE_D2H,
	                                       TC_QUEUE_CPU};
	uint64_t lane_end[TC_QUEUE_COUNT][2] = {{0}}, now = 0;
	for (uint32_t i = 0; i < RUN_COMMANDS; ++i) {
		bool first = i % PER_ITERATION == 0;
		enum tc_queue queue =
		    first ? TC_QUEUE_COMPUTE : queues[test_random_below(&seed, 4)];
		uint32_t lane =
		    queue == TC_QUEUE_COMPUTE ? 0 : (uint32_t)test_random_below(&seed, 2);
		struct tc_command *c = &run->commands[i];
		struct tc_timing *t = &run->timings[i];
		*c = command_of(queue == TC_QUEUE_COMPUTE ? TC_COMPUTE : TC_CONVERT, queue,
		                (enum tc_phase)test_random_below(&seed, 3), i / PER_ITERATION);
		c->lane = lane;
		*t = (struct tc_timing){0};
		now += test_random_below(&seed, 20);
		t->issue_ps = now;
		t->start_ps = lane_end[queue][lane] > now ? lane_end[queue][lane] : now;
		t->start_ps += test_random_below(&seed, 30);
		t->end_ps = t->start_ps + test_random_below(&seed, 200);
		if (queue == TC_QUEUE_COMPUTE) {
			uint64_t idle = t->start_ps - lane_end[queue][lane];
			t->stall_ps[TC_STALL_NVME] = test_random_below(&seed, idle + 1);
			t->stall_ps[TC_STALL_NO_BUFFER] = idle - t->stall_ps[TC_STALL_NVME];
			if (first)
				run->starts[i / PER_ITERATION] = t->start_ps;
		}
		lane_end[queue][lane] = t->end_ps;
		/* Take some memory at the start, give it back after any earlier command or this. */
		uint64_t after = test_random_below(&seed, (uint64_t)i + 1);
		int64_t bytes = (int64_t)test_random_below(&seed, 1000) + 1;
		enum tc_tier tier = (enum tc_tier)test_random_below(&seed, 2);
		run->changes[i][0] = (struct tc_memory_change){bytes, TC_NO_COMMAND, tier, TC_GRAD};
		run->changes[i][1] = (struct tc_memory_change){-bytes, i, tier, TC_GRAD};
		run->changes[i][2] = (struct tc_memory_change){bytes, after, tier, TC_PARAM};
		c->memory = run->changes[i];
		c->memory_count = 3;
		run->memory_at[i][0] = t->start_ps;
		run->memory_at[i][1] = t->end_ps;
		uint64_t given = run->timings[after].end_ps;
		run->memory_at[i][2] = given > t->issue_ps ? given : t->issue_ps;
		c->id = i;
	}
}

/** Ends in order of time; a command is planned when the host reaches it. */
static void feed_run(struct feeder *f, const struct run *run)
{
	bool ended[RUN_COMMANDS] = {false};
	for (uint32_t planned = 0;;) {
		uint32_t next = RUN_COMMANDS;
		for (uint32_t i = 0; i < planned; ++i)
			if (!ended[i] && (next == RUN_COMMANDS ||
			                  run->timings[i].end_ps < run->timings[next].end_ps))
				next = i;
		bool plans = planned < RUN_COMMANDS &&
		             (next == RUN_COMMANDS ||
		              run->timings[planned].issue_ps <= run->timings[next].end_ps);
		if (plans) {
			struct tc_command copy = run->commands[planned++];
			plan(f, &copy);
		} else if (next < RUN_COMMANDS) {
			ended[next] = true;
			finish(f, &run->commands[next], &run->timings[next]);
		} else {
			return;
		}
	}
}

static uint64_t naive_busy(const struct run *run, enum tc_queue queue, uint64_t from, uint64_t to)
{
	uint64_t busy = 0;
	for (uint64_t time = from; time < to; ++time) {
		bool found = false;
		for (uint32_t i = 0; i < RUN_COMMANDS && !found; ++i)
			found = run->commands[i].queue == queue &&
			        run->timings[i].start_ps <= time && time < run->timings[i].end_ps;
		busy += found;
	}
	return busy;
}

/** Level of a tier at one instant, what is given back then not counted any more. */
static int64_t naive_level(const struct run *run, enum tc_tier tier, uint64_t time)
{
	int64_t level = 0;
	for (uint32_t i = 0; i < RUN_COMMANDS; ++i)
		for (uint32_t k = 0; k < 3; ++k)
			if (run->changes[i][k].tier == tier && run->memory_at[i][k] <= time)
				level += run->changes[i][k].bytes;
	return level;
}

static void check_run(const struct run *run, const struct tc_result *r)
{
	uint64_t from = run->starts[RUN_ITERATIONS - 2], to = run->starts[RUN_ITERATIONS - 1];
	assert_int_equal(r->iteration_ps, to - from);
	for (int q = 0; q < TC_QUEUE_COUNT; ++q)
		assert_int_equal(r->transfers[q].busy_ps,
		                 naive_busy(run, (enum tc_queue)q, from, to));
	uint64_t compute = naive_busy(run, TC_QUEUE_COMPUTE, from, to);
	assert_int_equal(r->compute_ps, compute);
	assert_int_equal(r->stall_ps, to - from - compute);
	for (int tier = 0; tier < 2; ++tier) {
		uint64_t peak = 0, area = 0;
		for (uint64_t time = from; time < to; ++time) {
			int64_t level = naive_level(run, (enum tc_tier)tier, time);
			assert_true(level >= 0);
			peak = (uint64_t)level > peak ? (uint64_t)level : peak;
			area += (uint64_t)level;
		}
		uint64_t fixed = tier == TC_GPU ? 10 : 0;
		assert_int_equal(r->memory[tier].peak_bytes, peak + fixed);
		assert_int_equal(r->memory[tier].mean_bytes, area / (to - from) + fixed);
	}
}

static void test_random_runs(void **state)
{
	(void)state;
	struct tc_plan_info info = plan_info(NULL);
	struct run *run = malloc(sizeof *run);
	assert_non_null(run);
	for (uint64_t seed = 1; seed <= 40; ++seed) {
		random_run(run, seed);
		struct feeder f = feed(RUN_ITERATIONS - 2, &info);
		feed_run(&f, run);
		struct tc_error error = {0};
		struct tc_result r;
		if (tc_report_finish(f.report, &r, &error) != TC_OK)
			fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
		check_run(run, &r);
		tc_result_clear(&r);
		tc_report_free(f.report);
	}
	free(run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_by_hand),
	    cmocka_unit_test(test_not_steady),
	    cmocka_unit_test(test_residency_repeats),
	    cmocka_unit_test(test_commands_without_duration),
	    cmocka_unit_test(test_broken_promises),
	    cmocka_unit_test(test_random_runs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
