/*
 * What holds the compute lane up: schedules small enough to work out on paper, exact to the
 * picosecond, on the machine of support/paper.h. The rules of attribution are in
 * sim/engine/README.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "paper.h"

/*
 * Issue after wait. A host that first waits for the running compute (100 us) and then issues the
 * next fetch makes the next compute wait for all of it, 64 us: issued_late. Without the wait the
 * fetch runs under the compute and nothing stalls.
 */
static void test_issue_after_wait(void **state)
{
	(void)state;
	struct tc_machine machine = paper_machine();
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
			paper_times(&timed[1], 100 * US, 100 * US);
			assert_int_equal(timed[1].timing.issue_ps, 0);
			paper_times(&timed[fetch], 100 * US, 164 * US);
			paper_times(&timed[second], 164 * US, 264 * US);
			paper_stall(&timed[second], TC_STALL_ISSUED_LATE, 64 * US, TC_STALL_FAULT,
			            0);
		} else {
			paper_times(&timed[fetch], 0, 64 * US);
			paper_times(&timed[second], 100 * US, 200 * US);
			paper_no_stall(&timed[second]);
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
	struct tc_machine machine = paper_machine();
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
	paper_times(&timed[evict], 100 * US, 164 * US);
	paper_times(&timed[fetch], 164 * US, 228 * US);
	paper_times(&timed[second], 228 * US, 238 * US);
	paper_stall(&timed[second], TC_STALL_NO_BUFFER, 128 * US, TC_STALL_FAULT, 0);
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
	struct tc_machine machine = paper_machine();
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
	paper_times(&timed[gradient[0]], 100 * US, 164 * US);
	paper_times(&timed[gradient[1]], 200 * US, 264 * US);
	paper_times(&timed[update], 264 * US, 353600000);
	paper_times(&timed[convert], 353600000, 385600000);
	paper_times(&timed[publish], 385600000, 411200000);
	assert_int_equal(timed[next].timing.ask_ps, 200 * US);
	paper_stall(&timed[next], TC_STALL_OPTIMIZER, 211200000, TC_STALL_FAULT, 0);
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
	struct tc_machine machine = paper_machine();
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
	paper_times(&timed[up[0]], 256 * US, 320 * US);
	paper_times(&timed[up[1]], 512 * US, 576 * US);
	paper_times(&timed[up[2]], 768 * US, 832 * US);
	assert_int_equal(timed[next].timing.start_ps, 832 * US);
	paper_stall(&timed[next], TC_STALL_NVME, 332 * US, TC_STALL_FAULT, 0);
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
	struct tc_machine machine = paper_machine();
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
	paper_times(&timed[first], 5 * US, 105 * US);
	paper_stall(&timed[first], TC_STALL_HOST_CALL, 5 * US, TC_STALL_FAULT, 0);
	paper_times(&timed[copy], 10 * US, 266 * US);
	paper_times(&timed[second], 271 * US, 371 * US);
	assert_int_equal(timed[second].timing.ask_ps, 271 * US);
	paper_stall(&timed[second], TC_STALL_HOST_CALL, 5 * US, TC_STALL_ISSUED_LATE, 161 * US);
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
	struct tc_machine machine = paper_machine();
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
		paper_times(&timed[compute[i]], issue[i], issue[i] + 2 * US);
		paper_stall(&timed[compute[i]], TC_STALL_HOST_CALL, idle[i], TC_STALL_FAULT, 0);
	}
	paper_times(&timed[3], 93 * US, 113 * US);
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
		struct tc_machine machine = paper_machine();
		struct program program;
		program_init(&program);
		uint64_t first = program_compute(&program, 100 * US);
		uint64_t fetch = program_copy(&program, TC_QUEUE_H2D, MB);
		program_depend(&program, fetch, first, reasons[i]);
		uint64_t second = program_compute(&program, 100 * US);
		program_depend(&program, second, fetch, TC_REASON_DATA);
		struct timed *timed = program_run(&program, &machine);
		assert_int_equal(timed[fetch].timing.issue_ps, 0);
		paper_times(&timed[fetch], 100 * US, 164 * US);
		paper_stall(&timed[second], TC_STALL_ISSUED_LATE, 64 * US, TC_STALL_FAULT, 0);
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
		struct tc_machine machine = paper_machine();
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
			paper_times(&timed[fetch], 0, 128 * US);
		else
			paper_times(&timed[fetch], 192 * US, 256 * US);
		paper_stall(&timed[next], TC_STALL_LINK_BUSY, sharing ? 28 * US : 56 * US,
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
	struct tc_machine machine = paper_machine();
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
	paper_times(&timed[next], 553600000, 553600001);
	paper_stall(&timed[next], TC_STALL_OPTIMIZER, 89600000, TC_STALL_LINK_BUSY, 64 * US);
	free(timed);
	program_free(&program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_issue_after_wait),
	    cmocka_unit_test(test_free_on_completion),
	    cmocka_unit_test(test_optimizer_barrier),
	    cmocka_unit_test(test_two_hops_in_chunks),
	    cmocka_unit_test(test_pageable_and_host_wait),
	    cmocka_unit_test(test_host_cost),
	    cmocka_unit_test(test_demand_fetch),
	    cmocka_unit_test(test_link_busy),
	    cmocka_unit_test(test_end_of_optimizer_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
