/*
 * Schedules small enough to work out on paper, exact to the picosecond.
 *
 * The machine's rates are powers of two of a byte per picosecond, so that they are exact in the
 * engine's unit: a link of 15.625 GB/s moves a byte in 64 ps, DRAM of 31.25 GB/s in 32 ps, the
 * drive reads one in 256 ps and writes one in 512 ps. A copy of 10^6 bytes over the link takes
 * 64 us. Latency, launch and hook costs are 0 where a case does not set them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program.h"
#include "tencache/units.h"

#define US TC_PS_PER_US
#define MB 1000000u

static struct tc_machine machine_for_paper(void)
{
	return (struct tc_machine){
	    .name = "paper",
	    .h2d = {.bytes_per_s = 15625000000},
	    .d2h = {.bytes_per_s = 15625000000},
	    .pageable_ppm = 250000,
	    .dram_bytes_per_s = 31250000000,
	    .nvme_read = {.bytes_per_s = 3906250000},
	    .nvme_write = {.bytes_per_s = 1953125000},
	    .nvme_drives = 1,
	    .nvme_striped = true,
	    .cpu_cores = 4,
	    .adam_parameters_per_s_per_core = 1000000000,
	    .memory_bytes_per_s = {[TC_ELEMENTWISE] = 1000000000000, [TC_COPY] = 500000000000},
	    .lanes = {1, 1, 1, 1, 1, 1, 1, 1},
	};
}

static void assert_times(const struct timed *timed, uint64_t start, uint64_t end)
{
	assert_int_equal(timed->timing.start_ps, start);
	assert_int_equal(timed->timing.end_ps, end);
}

/** Exactly these causes, each with its time; everything else zero. */
static void assert_stall(const struct timed *timed, enum tc_stall_cause cause, uint64_t ps,
                         enum tc_stall_cause other, uint64_t other_ps)
{
	for (int c = 0; c < TC_STALL_CAUSE_COUNT; c++) {
		uint64_t expected = (c == (int)cause ? ps : 0) + (c == (int)other ? other_ps : 0);
		if (timed->timing.stall_ps[c] != expected)
			print_error("cause %s\n", tc_stall_cause_name((enum tc_stall_cause)c));
		assert_int_equal(timed->timing.stall_ps[c], expected);
	}
}

static void assert_no_stall(const struct timed *timed)
{
	assert_stall(timed, TC_STALL_FAULT, 0, TC_STALL_FAULT, 0);
}

/*
 * Full overlap. Three fetches of 64 us on one lane, issued at 0: they end at 64, 128, 192. Each of
 * three computes of 100 us needs its fetch. The first waits 64 us for a fetch that could not have
 * been issued earlier than it was asked for (issued_late); the others find theirs there.
 */
static void test_full_overlap(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	struct program program;
	program_init(&program);
	uint64_t compute[3];
	for (int i = 0; i < 3; i++) {
		uint64_t fetch = program_copy(&program, TC_QUEUE_H2D, MB);
		compute[i] = program_compute(&program, 100 * US);
		program_depend(&program, compute[i], fetch, TC_REASON_DATA);
	}
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[0], 0, 64 * US);
	assert_times(&timed[2], 64 * US, 128 * US);
	assert_times(&timed[4], 128 * US, 192 * US);
	assert_times(&timed[compute[0]], 64 * US, 164 * US);
	assert_times(&timed[compute[1]], 164 * US, 264 * US);
	assert_times(&timed[compute[2]], 264 * US, 364 * US);
	assert_stall(&timed[compute[0]], TC_STALL_ISSUED_LATE, 64 * US, TC_STALL_FAULT, 0);
	assert_no_stall(&timed[compute[1]]);
	assert_no_stall(&timed[compute[2]]);
	assert_int_equal(timed[compute[2]].timing.ask_ps, 264 * US);
	free(timed);
	program_free(&program);
}

/*
 * Pure transfer. 10 us latency, then 10^6 bytes at 64 ps: 74 us each, one after the other on one
 * lane; a copy of no bytes takes its latency. The latency takes no bandwidth: a copy down that
 * starts with the first one up ends at the same time.
 */
static void test_pure_transfer(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	machine.h2d.latency_ps = machine.d2h.latency_ps = 10 * US;
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_H2D, MB);
	program_copy(&program, TC_QUEUE_H2D, MB);
	program_copy(&program, TC_QUEUE_H2D, 0);
	program_copy(&program, TC_QUEUE_D2H, MB);
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[0], 0, 74 * US);
	assert_times(&timed[1], 74 * US, 148 * US);
	assert_times(&timed[2], 148 * US, 158 * US);
	assert_times(&timed[3], 0, 74 * US);
	free(timed);
	program_free(&program);
}

/*
 * Duplex-limited. Both directions together move at most 3/128 byte per ps, so 3/256 each. Down:
 * 1.5 MB x 256/3 = 128 us. Up has then moved 1.5 of 3 MB; alone it is limited by its own direction,
 * 1/64: 1.5 MB x 64 = 96 us more, 224 us.
 */
static void test_duplex_limited(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	machine.duplex_bytes_per_s = 23437500000;
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_H2D, 3 * MB);
	program_copy(&program, TC_QUEUE_D2H, 3 * MB / 2);
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[0], 0, 224 * US);
	assert_times(&timed[1], 0, 128 * US);
	free(timed);
	program_free(&program);
}

/*
 * DRAM-limited. DRAM moves 3/128 byte per ps; copies up and down and a CPU update (28 bytes x
 * 75,000 = 2.1 MB) get 1/128 each, below the links' 1/64. Up ends after 1 MB x 128 = 128 us. The
 * others share 3/256 each: down has 0.6 MB left, x 256/3 = 51.2 us, 179.2 us. The update then has
 * 2.1 - 1.6 = 0.5 MB left and DRAM to itself: x 128/3 = 21,333,333 1/3 ps, rounded up.
 */
static void test_dram_limited(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	machine.dram_bytes_per_s = 23437500000;
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_H2D, MB);
	program_copy(&program, TC_QUEUE_D2H, 1600000);
	program_update(&program, 75000);
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[0], 0, 128 * US);
	assert_times(&timed[1], 0, 179200000);
	assert_times(&timed[2], 0, 179200000 + 21333334);
	free(timed);
	program_free(&program);
}

/*
 * Issue after wait. A host that first waits for the running compute (100 us) and then issues the
 * next fetch makes the next compute wait for all of it, 64 us: issued_late. Without the wait the
 * fetch runs under the compute and nothing stalls.
 */
static void test_issue_after_wait(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	for (int waits = 0; waits < 2; waits++) {
		struct program program;
		program_init(&program);
		uint64_t first = program_compute(&program, 100 * US);
		if (waits)
			program_wait(&program, first);
		uint64_t fetch = program_copy(&program, TC_QUEUE_H2D, MB);
		uint64_t second = program_compute(&program, 100 * US);
		program_depend(&program, second, fetch, TC_REASON_DATA);
		struct timed *timed = program_run(&program, &machine);
		if (waits) {
			assert_times(&timed[1], 100 * US, 100 * US);
			assert_int_equal(timed[1].timing.issue_ps, 0);
			assert_times(&timed[fetch], 100 * US, 164 * US);
			assert_times(&timed[second], 164 * US, 264 * US);
			assert_stall(&timed[second], TC_STALL_ISSUED_LATE, 64 * US, TC_STALL_FAULT,
			             0);
		} else {
			assert_times(&timed[fetch], 0, 64 * US);
			assert_times(&timed[second], 100 * US, 200 * US);
			assert_no_stall(&timed[second]);
		}
		free(timed);
		program_free(&program);
	}
}

/*
 * Free on completion. The fetch of the second compute needs the slot of what the first used: the
 * copy out starts at 100 us and gives the slot back when it ends, at 164, not when it is issued, at
 * 0. The fetch ends at 228. Both were issued early enough (0 <= 100 - 64), the fetch was delayed by
 * its slot, and the walk came to the copy out through that slot: 128 us no_buffer.
 */
static void test_free_on_completion(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	struct program program;
	program_init(&program);
	uint64_t first = program_compute(&program, 100 * US);
	uint64_t evict = program_copy(&program, TC_QUEUE_D2H, MB);
	program_depend(&program, evict, first, TC_REASON_DATA);
	uint64_t fetch = program_copy(&program, TC_QUEUE_H2D, MB);
	program_depend(&program, fetch, evict, TC_REASON_SLOT);
	uint64_t second = program_compute(&program, 10 * US);
	program_depend(&program, second, fetch, TC_REASON_DATA);
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[evict], 100 * US, 164 * US);
	assert_times(&timed[fetch], 164 * US, 228 * US);
	assert_times(&timed[second], 228 * US, 238 * US);
	assert_stall(&timed[second], TC_STALL_NO_BUFFER, 128 * US, TC_STALL_FAULT, 0);
	free(timed);
	program_free(&program);
}

/*
 * Optimizer barrier. Two computes of 100 us; their gradients (64 us each) come down at 164 and 264.
 * The update (28 x 100,000 bytes at 32 ps: 89.6 us) waits for the last gradient although its own
 * came first: 353.6. Then the conversion (1 MB of traffic, 32 us): 385.6, and the copy up
 * (400,000 bytes, 25.6 us): 411.2. The next compute, asked for at 200, waits 211.2 us: all of it
 * for the optimizer, the last gradient included, to which a barrier leads.
 */
static void test_optimizer_barrier(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	struct program program;
	program_init(&program);
	uint64_t gradient[2];
	for (int i = 0; i < 2; i++) {
		uint64_t backward = program_compute(&program, 100 * US);
		gradient[i] = program_copy(&program, TC_QUEUE_D2H, MB);
		program_at(&program, gradient[i])->kind = TC_GRADIENT;
		program_depend(&program, gradient[i], backward, TC_REASON_DATA);
	}
	uint64_t update = program_update(&program, 100000);
	program_depend(&program, update, gradient[0], TC_REASON_DATA);
	program_depend(&program, update, gradient[0], TC_REASON_BARRIER);
	program_depend(&program, update, gradient[1], TC_REASON_BARRIER);
	uint64_t convert = program_add(&program, TC_QUEUE_CPU, TC_CONVERT);
	program_at(&program, convert)->traffic_bytes = MB;
	uint64_t publish = program_copy(&program, TC_QUEUE_H2D, 400000);
	program_at(&program, publish)->kind = TC_PUBLISH;
	program_depend(&program, publish, convert, TC_REASON_DATA);
	uint64_t next = program_compute(&program, 1);
	program_depend(&program, next, publish, TC_REASON_DATA);
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[gradient[0]], 100 * US, 164 * US);
	assert_times(&timed[gradient[1]], 200 * US, 264 * US);
	assert_times(&timed[update], 264 * US, 353600000);
	assert_times(&timed[convert], 353600000, 385600000);
	assert_times(&timed[publish], 385600000, 411200000);
	assert_int_equal(timed[next].timing.ask_ps, 200 * US);
	assert_stall(&timed[next], TC_STALL_OPTIMIZER, 211200000, TC_STALL_FAULT, 0);
	free(timed);
	program_free(&program);
}

/*
 * Two hops in chunks. Chunks of 1 MB: 256 us from the drive, then 64 us up, through two staging
 * slots. Reads end at 256, 512, 768, each copy up starts then and ends at 320, 576, 832; the third
 * read needs the slot of the first chunk, free since 320, so it does not wait. A compute of 500 us
 * runs meanwhile; the next waits from 500 to 832: the last copy up was delayed by the drive, and
 * behind it are reads: 332 us nvme. One hop after the other would have taken 3 x 320 = 960 us.
 */
static void test_two_hops_in_chunks(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	struct program program;
	program_init(&program);
	program_compute(&program, 500 * US);
	uint64_t up[3] = {0};
	for (int chunk = 0; chunk < 3; chunk++) {
		uint64_t read = program_copy(&program, TC_QUEUE_NVME_READ, MB);
		if (chunk == 2)
			program_depend(&program, read, up[0], TC_REASON_SLOT);
		up[chunk] = program_copy(&program, TC_QUEUE_H2D, MB);
		program_depend(&program, up[chunk], read, TC_REASON_DATA);
	}
	uint64_t next = program_compute(&program, 1);
	program_depend(&program, next, up[2], TC_REASON_DATA);
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[up[0]], 256 * US, 320 * US);
	assert_times(&timed[up[1]], 512 * US, 576 * US);
	assert_times(&timed[up[2]], 768 * US, 832 * US);
	assert_int_equal(timed[next].timing.start_ps, 832 * US);
	assert_stall(&timed[next], TC_STALL_NVME, 332 * US, TC_STALL_FAULT, 0);
	free(timed);
	program_free(&program);
}

/*
 * A pageable copy runs at a quarter of the rate (256 us) and blocks the host, 5 us of launch cost
 * before each command. Compute [5, 105]. Copy issued at 10, [10, 266]; the host comes back at 266
 * and reaches the next compute at 271. Idle [105, 271]: 5 us of the host's own; the rest the wait
 * passes on to the copy, which was issued at 10, later than 105 - 256: issued_late.
 */
static void test_pageable_and_host_wait(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	machine.launch_ps = 5 * US;
	struct program program;
	program_init(&program);
	uint64_t first = program_compute(&program, 100 * US);
	uint64_t copy = program_copy(&program, TC_QUEUE_D2H, MB);
	program_wait(&program, copy);
	uint64_t second = program_compute(&program, 100 * US);
	program_at(&program, copy)->pageable = true;
	program_at(&program, first)->launches = 1;
	program_at(&program, copy)->launches = 1;
	program_at(&program, second)->launches = 1;
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[first], 5 * US, 105 * US);
	assert_stall(&timed[first], TC_STALL_HOST_CALL, 5 * US, TC_STALL_FAULT, 0);
	assert_times(&timed[copy], 10 * US, 266 * US);
	assert_times(&timed[second], 271 * US, 371 * US);
	assert_int_equal(timed[second].timing.ask_ps, 271 * US);
	assert_stall(&timed[second], TC_STALL_HOST_CALL, 5 * US, TC_STALL_ISSUED_LATE, 161 * US);
	free(timed);
	program_free(&program);
}

/*
 * Host cost. Four launches of 7 us and one hook of 3 us before each compute of 2 us: issued at 31,
 * 62, 93; each ends 2 us later. An allocation of 20 us on the host comes before the last one, which
 * is issued at 124 + 20 = 144. All idle time is the host's own: 31, 29, 29, 49.
 */
static void test_host_cost(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	machine.launch_ps = 7 * US;
	machine.hook_ps = 3 * US;
	struct program program;
	program_init(&program);
	uint64_t compute[4];
	for (int i = 0; i < 4; i++) {
		if (i == 3) {
			uint64_t alloc = program_add(&program, TC_QUEUE_HOST, TC_ALLOC);
			program_at(&program, alloc)->duration_ps = 20 * US;
		}
		compute[i] = program_compute(&program, 2 * US);
		program_at(&program, compute[i])->launches = 4;
		program_at(&program, compute[i])->hooks = 1;
	}
	struct timed *timed = program_run(&program, &machine);
	static const uint64_t issue[4] = {31 * US, 62 * US, 93 * US, 144 * US};
	static const uint64_t idle[4] = {31 * US, 29 * US, 29 * US, 49 * US};
	for (int i = 0; i < 4; i++) {
		assert_times(&timed[compute[i]], issue[i], issue[i] + 2 * US);
		assert_stall(&timed[compute[i]], TC_STALL_HOST_CALL, idle[i], TC_STALL_FAULT, 0);
	}
	assert_times(&timed[3], 93 * US, 113 * US);
	free(timed);
	program_free(&program);
}

/*
 * CPU rates. 4 cores x 250 M parameters/s x 28 bytes = 28 GB/s, below DRAM: 10^6 parameters take
 * 1 ms, and 1 ps more because 28 GB/s = 30,786,325,577.7 units is rounded down (10^9 ps x 0.73 /
 * 30,786,325,577 = 0.02 ps, rounded up). A conversion is held to 4 x 1.953125 GB/s, 128 ps a byte.
 * Together they need 35.8 GB/s of DRAM's 31.25: on two lanes the conversion keeps its cap and the
 * update gets the rest, 23.4375 GB/s = 3/128: until 128 us it moves 3 MB; 25 MB are left.
 */
static void test_cpu_rates(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	machine.adam_parameters_per_s_per_core = 250000000;
	machine.cpu_stream_bytes_per_s_per_core = 1953125000;
	machine.lanes[TC_QUEUE_CPU] = 2;
	struct program program;
	program_init(&program);
	uint64_t alone = program_update(&program, 1000000);
	uint64_t shared = program_update(&program, 1000000);
	uint64_t convert = program_add(&program, TC_QUEUE_CPU, TC_CONVERT);
	program_at(&program, convert)->traffic_bytes = MB;
	program_at(&program, convert)->lane = 1;
	program_depend(&program, convert, alone, TC_REASON_DATA);
	struct timed *timed = program_run(&program, &machine);
	uint64_t begin = 1000000001;
	assert_times(&timed[alone], 0, begin);
	assert_times(&timed[convert], begin, begin + 128 * US);
	/* 25 x 10^6 x 2^40 / 30,786,325,577 = 892,857,142.88 ps, rounded up. */
	assert_times(&timed[shared], begin, begin + 128 * US + 892857143);
	free(timed);
	program_free(&program);
}

/*
 * A demand fetch is issued when the step is asked for: an order dependency on the previous compute
 * stands for that, so the fetch counts as issued at 100, not at 0: issued_late, not link_busy. An
 * anchor likewise.
 */
static void test_demand_fetch(void **state)
{
	(void)state;
	static const enum tc_reason reasons[] = {TC_REASON_ORDER, TC_REASON_ANCHOR};
	for (size_t i = 0; i < 2; i++) {
		struct tc_machine machine = machine_for_paper();
		struct program program;
		program_init(&program);
		uint64_t first = program_compute(&program, 100 * US);
		uint64_t fetch = program_copy(&program, TC_QUEUE_H2D, MB);
		program_depend(&program, fetch, first, reasons[i]);
		uint64_t second = program_compute(&program, 100 * US);
		program_depend(&program, second, fetch, TC_REASON_DATA);
		struct timed *timed = program_run(&program, &machine);
		assert_int_equal(timed[fetch].timing.issue_ps, 0);
		assert_times(&timed[fetch], 100 * US, 164 * US);
		assert_stall(&timed[second], TC_STALL_ISSUED_LATE, 64 * US, TC_STALL_FAULT, 0);
		free(timed);
		program_free(&program);
	}
}

/*
 * A busy link. (a) Lane: 3 MB for later go first, [0, 192], then what is needed, [192, 256]; asked
 * for at 200: 56 us. (b) Sharing: both directions share 1/64 byte per ps, so 1 MB up takes 128 us
 * while 5 MB go down; asked for at 100: 28 us.
 */
static void test_link_busy(void **state)
{
	(void)state;
	for (int sharing = 0; sharing < 2; sharing++) {
		struct tc_machine machine = machine_for_paper();
		machine.duplex_bytes_per_s = sharing ? 15625000000 : 0;
		struct program program;
		program_init(&program);
		program_compute(&program, sharing ? 100 * US : 200 * US);
		program_copy(&program, sharing ? TC_QUEUE_D2H : TC_QUEUE_H2D,
		             sharing ? 5 * MB : 3 * MB);
		uint64_t fetch = program_copy(&program, TC_QUEUE_H2D, MB);
		uint64_t next = program_compute(&program, 1);
		program_depend(&program, next, fetch, TC_REASON_DATA);
		struct timed *timed = program_run(&program, &machine);
		if (sharing)
			assert_times(&timed[fetch], 0, 128 * US);
		else
			assert_times(&timed[fetch], 192 * US, 256 * US);
		assert_stall(&timed[next], TC_STALL_LINK_BUSY, sharing ? 28 * US : 56 * US,
		             TC_STALL_FAULT, 0);
		free(timed);
		program_free(&program);
	}
}

/*
 * The end of the optimizer phase: the host waits for the update, so the next compute is reached at
 * 553.6 us. Idle since 400: the wait passes on to the update, 89.6 us optimizer, and to the
 * gradient, [400, 464]: data that was not late and came over the link, link_busy.
 */
static void test_end_of_optimizer_wait(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	struct program program;
	program_init(&program);
	uint64_t backward = program_compute(&program, 400 * US);
	uint64_t gradient = program_copy(&program, TC_QUEUE_D2H, MB);
	program_depend(&program, gradient, backward, TC_REASON_DATA);
	uint64_t update = program_update(&program, 100000);
	program_depend(&program, update, gradient, TC_REASON_DATA);
	program_wait(&program, update);
	uint64_t next = program_compute(&program, 1);
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[next], 553600000, 553600001);
	assert_stall(&timed[next], TC_STALL_OPTIMIZER, 89600000, TC_STALL_LINK_BUSY, 64 * US);
	free(timed);
	program_free(&program);
}

/*
 * Ready at ask time. The second compute is asked for at 128 us: served by the initial content, by
 * the first fetch (ended at 64) and by the second (ended exactly then) it is ready; not by the
 * third, which ends at 192.
 */
static void test_ready(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	struct program program;
	program_init(&program);
	program_compute(&program, 128 * US);
	uint64_t fetch[3];
	for (int i = 0; i < 3; i++)
		fetch[i] = program_copy(&program, TC_QUEUE_H2D, MB);
	uint64_t next = program_compute(&program, 1);
	program_serve(&program, next, TC_NO_COMMAND);
	for (int i = 0; i < 3; i++) {
		program_depend(&program, next, fetch[i], TC_REASON_DATA);
		program_serve(&program, next, fetch[i]);
	}
	struct timed *timed = program_run(&program, &machine);
	assert_int_equal(timed[next].timing.ask_ps, 128 * US);
	assert_times(&timed[next], 192 * US, 192 * US + 1);
	assert_true(timed[next].ready[0]);
	assert_true(timed[next].ready[1]);
	assert_true(timed[next].ready[2]);
	assert_false(timed[next].ready[3]);
	free(timed);
	program_free(&program);
}

/*
 * Conversions on the GPU take their traffic over the memory rate, rounded up: 10^6 bytes at 10^12
 * bytes/s 1 us, a repacking copy at half of that 2 us. They are compute: no idle time.
 */
static void test_convert_on_gpu(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	struct program program;
	program_init(&program);
	static const enum tc_why why[] = {TC_WHY_NONE, TC_WHY_REPACK};
	for (int i = 0; i < 2; i++) {
		uint64_t id = program_add(&program, TC_QUEUE_COMPUTE, TC_CONVERT);
		program_at(&program, id)->traffic_bytes = MB;
		program_at(&program, id)->why = why[i];
	}
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[0], 0, US);
	assert_times(&timed[1], US, 3 * US);
	assert_no_stall(&timed[1]);
	free(timed);
	program_free(&program);
}

/*
 * Drives. Unstriped, a drive per lane: two reads of 1 MB on two lanes take 256 us each; striped,
 * one resource of the same rate: 512 us. A write on the first drive shares its 1/256 mixed limit
 * with the read there: 1/512 each, both 512 us, while the other drive's read ends at 256.
 */
static void test_drives(void **state)
{
	(void)state;
	for (int striped = 0; striped < 2; striped++) {
		struct tc_machine machine = machine_for_paper();
		machine.nvme_striped = striped;
		machine.nvme_drives = 2;
		machine.nvme_mixed_bytes_per_s = striped ? 0 : 3906250000;
		machine.lanes[TC_QUEUE_NVME_READ] = 2;
		machine.lanes[TC_QUEUE_NVME_WRITE] = 2;
		struct program program;
		program_init(&program);
		program_copy(&program, TC_QUEUE_NVME_READ, MB);
		uint64_t other = program_copy(&program, TC_QUEUE_NVME_READ, MB);
		program_at(&program, other)->lane = 1;
		if (!striped)
			program_copy(&program, TC_QUEUE_NVME_WRITE, MB);
		struct timed *timed = program_run(&program, &machine);
		assert_times(&timed[0], 0, 512 * US);
		assert_times(&timed[1], 0, striped ? 512 * US : 256 * US);
		if (!striped)
			assert_times(&timed[2], 0, 512 * US);
		free(timed);
		program_free(&program);
	}
}

/*
 * The direct path between drive and GPU uses drive and link but no DRAM: with DRAM as slow as
 * 1/1024 byte per ps 1 MB still comes up in 256 us and goes down in 512 us.
 */
static void test_direct_path(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	machine.gpu_direct = true;
	machine.dram_bytes_per_s = 976562500;
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_GPU_NVME, MB);
	uint64_t down = program_copy(&program, TC_QUEUE_GPU_NVME, MB);
	program_at(&program, down)->kind = TC_EVICT;
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[0], 0, 256 * US);
	assert_times(&timed[1], 256 * US, 768 * US);
	free(timed);
	program_free(&program);
}

/* A size above 4 GiB: 5 x 2^30 bytes x 64 ps, to the picosecond. */
static void test_large_transfer(void **state)
{
	(void)state;
	struct tc_machine machine = machine_for_paper();
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_D2H, UINT64_C(5) << 30);
	struct timed *timed = program_run(&program, &machine);
	assert_times(&timed[0], 0, (UINT64_C(5) << 30) * 64);
	free(timed);
	program_free(&program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_full_overlap),
	    cmocka_unit_test(test_pure_transfer),
	    cmocka_unit_test(test_duplex_limited),
	    cmocka_unit_test(test_dram_limited),
	    cmocka_unit_test(test_issue_after_wait),
	    cmocka_unit_test(test_free_on_completion),
	    cmocka_unit_test(test_optimizer_barrier),
	    cmocka_unit_test(test_two_hops_in_chunks),
	    cmocka_unit_test(test_pageable_and_host_wait),
	    cmocka_unit_test(test_host_cost),
	    cmocka_unit_test(test_cpu_rates),
	    cmocka_unit_test(test_demand_fetch),
	    cmocka_unit_test(test_link_busy),
	    cmocka_unit_test(test_end_of_optimizer_wait),
	    cmocka_unit_test(test_ready),
	    cmocka_unit_test(test_convert_on_gpu),
	    cmocka_unit_test(test_drives),
	    cmocka_unit_test(test_direct_path),
	    cmocka_unit_test(test_large_transfer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
