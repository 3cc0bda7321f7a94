/*
 * Random schedules: the engine against the naive simulator of support/naive_engine.h, time by time,
 * cause by cause, with rates memoised and not. Half of the schedules use sizes and times on a grid,
 * so that many things happen at the same instant.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "naive_engine.h"
#include "random.h"
#include "tencache/units.h"

/* ---------------------------------------------------------------- random schedules */

static uint64_t below(uint64_t *random, uint64_t bound)
{
	return test_random_below(random, bound);
}

static struct tc_machine random_machine(uint64_t *random, bool grid)
{
	struct tc_machine machine = {
	    .h2d = {.bytes_per_s = 15625000000},
	    .d2h = {.bytes_per_s = 15625000000},
	    .pageable_ppm = 250000,
	    .dram_bytes_per_s = 31250000000,
	    .nvme_read = {.bytes_per_s = 3906250000},
	    .nvme_write = {.bytes_per_s = 1953125000},
	    .nvme_drives = 1,
	    .nvme_striped = true,
	    .cpu_cores = 4,
	    .adam_parameters_per_s_per_core = 200000000,
	    .cpu_stream_bytes_per_s_per_core = below(random, 2) ? 0 : 3906250000,
	};
	machine.duplex_bytes_per_s = below(random, 2) ? 0 : 23437500000;
	machine.nvme_mixed_bytes_per_s = below(random, 2) ? 0 : 3906250000;
	machine.copy_dram_weight = (uint32_t)below(random, 3);
	bool hands_over = below(random, 2) != 0;
	for (int h = 0; h < TC_HANDOVER_COUNT && hands_over; h++)
		machine.handover_ps[h] = below(random, 3) * 8 * TC_PS_PER_US;
	if (grid) {
		machine.launch_ps = below(random, 2) * 16 * TC_PS_PER_US;
	} else {
		machine.h2d.bytes_per_s += below(random, 1000000000);
		machine.dram_bytes_per_s = 5000000000 + below(random, 30000000000);
		machine.pageable_ppm = 1 + below(random, 1000000);
		machine.h2d.latency_ps = below(random, 20) * TC_PS_PER_US;
		machine.nvme_read.latency_ps = below(random, 100 * TC_PS_PER_US);
		machine.launch_ps = below(random, 20 * TC_PS_PER_US);
		machine.hook_ps = below(random, 5 * TC_PS_PER_US);
	}
	for (int q = 0; q < TC_QUEUE_COUNT; q++)
		machine.lanes[q] = q == TC_QUEUE_GPU_NVME ? 0 : 1 + (uint32_t)below(random, 2);
	machine.lanes[TC_QUEUE_HOST] = 1;
	return machine;
}

static void random_command(struct program *program, uint64_t *random,
                           const struct tc_machine *machine, bool grid)
{
	static const enum tc_queue queues[] = {
	    TC_QUEUE_COMPUTE, TC_QUEUE_COMPUTE,   TC_QUEUE_COMPUTE,    TC_QUEUE_H2D, TC_QUEUE_H2D,
	    TC_QUEUE_D2H,     TC_QUEUE_NVME_READ, TC_QUEUE_NVME_WRITE, TC_QUEUE_CPU, TC_QUEUE_HOST};
	enum tc_queue queue = queues[below(random, sizeof queues / sizeof *queues)];
	uint64_t size = grid ? below(random, 4) * 250000 : below(random, 3000000);
	uint64_t time =
	    grid ? below(random, 4) * 16 * TC_PS_PER_US : below(random, 200 * TC_PS_PER_US);
	uint64_t id;
	switch (queue) {
	case TC_QUEUE_COMPUTE:
		id = program_compute(program, time);
		break;
	case TC_QUEUE_HOST:
		id = program_add(program, queue, TC_WAIT);
		program_at(program, id)->duration_ps = below(random, 3) == 0 ? time / 8 : 0;
		break;
	case TC_QUEUE_CPU:
		id = below(random, 2) ? program_update(program, 1 + size / 28)
		                      : program_add(program, queue, TC_CONVERT);
		if (program_at(program, id)->kind == TC_CONVERT)
			program_at(program, id)->traffic_bytes = size;
		else if (below(random, 8) == 0) /* a fused update of another width */
			program_at(program, id)->traffic_bytes =
			    (20 + below(random, 20)) * program_at(program, id)->elements;
		break;
	default:
		id = program_copy(program, queue, size);
	}
	struct tc_command *command = program_at(program, id);
	command->lane = (uint32_t)below(random, machine->lanes[queue]);
	command->pageable = below(random, 4) == 0;
	command->launches = (uint32_t)below(random, 2);
	command->hooks = (uint32_t)below(random, 2);
	for (uint64_t d = below(random, 4); d > 0 && id > 0; d--) {
		uint64_t reach = below(random, 4) == 0 ? id : (id < 12 ? id : 12);
		program_depend(program, id, id - 1 - below(random, reach),
		               (enum tc_reason)below(random, TC_REASON_COUNT));
	}
	for (uint64_t s = below(random, 3); s > 0 && id > 0 && queue != TC_QUEUE_HOST; s--)
		program_serve(program, id,
		              below(random, 4) == 0 ? TC_NO_COMMAND : below(random, id));
}

static void compare(const struct program *program, const struct naive *n, const struct timed *timed)
{
	uint64_t busy = 0, idle = 0, last_end = 0;
	for (size_t i = 0; i < program->count; i++) {
		const struct tc_timing *timing = &timed[i].timing;
		assert_int_equal(timing->issue_ps, n->issue[i]);
		assert_int_equal(timing->ask_ps, n->ask[i]);
		assert_int_equal(timing->start_ps, n->start[i]);
		assert_int_equal(timing->end_ps, n->end[i]);
		for (uint32_t s = 0; s < program->commands[i].served_count; s++) {
			uint64_t by = program->served[i][s].served_by;
			bool ready = by == TC_NO_COMMAND || n->end[by] <= n->ask[i];
			assert_int_equal(timed[i].ready[s], ready);
		}
		bool lane_0 = program->commands[i].queue == TC_QUEUE_COMPUTE &&
		              program->commands[i].lane == 0;
		for (int c = 0; c < TC_STALL_CAUSE_COUNT; c++) {
			assert_int_equal(timing->stall_ps[c], n->stall[i][c]);
			idle += timing->stall_ps[c];
		}
		if (lane_0) {
			busy += timing->end_ps - timing->start_ps;
			last_end = timing->end_ps;
			assert_int_equal(busy + idle, last_end);
		}
	}
	assert_int_equal(busy + idle, last_end);
}

static void test_against_naive(void **state)
{
	(void)state;
	uint64_t causes[TC_STALL_CAUSE_COUNT] = {0};
	for (uint64_t seed = 0; seed < 6000; seed++) {
		uint64_t random = seed;
		bool grid = seed % 2 == 0;
		struct tc_machine machine = random_machine(&random, grid);
		struct program program;
		program_init(&program);
		size_t count = 1 + below(&random, seed % 10 == 0 ? NAIVE_MOST : 40);
		while (program.count < count)
			random_command(&program, &random, &machine, grid);
		struct naive *n = naive_run(&program, &machine);
		struct timed *timed, *unmemoised;
		struct tc_error error = {0};
		assert_int_equal(program_try(&program, &machine, true, &timed, &error), TC_OK);
		compare(&program, n, timed);
		assert_int_equal(program_try(&program, &machine, false, &unmemoised, &error),
		                 TC_OK);
		compare(&program, n, unmemoised);
		for (size_t i = 0; i < count; i++)
			for (int c = 0; c < TC_STALL_CAUSE_COUNT; c++)
				causes[c] += n->stall[i][c] > 0;
		free(unmemoised);
		free(timed);
		free(n);
		program_free(&program);
	}
	/* The generator reaches every cause that a simulation has. */
	for (int c = 0; c < TC_STALL_CAUSE_COUNT; c++)
		assert_true(c == TC_STALL_FAULT ? causes[c] == 0 : causes[c] > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_against_naive),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
