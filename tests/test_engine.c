/*
 * When commands run: schedules small enough to work out on paper, exact to the picosecond, on the
 * machine of support/paper.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "paper.h"

/*
 * Full overlap. Three fetches of 64 us on one lane, issued at 0: they end at 64, 128, 192. Each of
 * three computes of 100 us needs its fetch. The first waits 64 us for a fetch that could not have
 * been issued earlier than it was asked for (issued_late); the others find theirs there.
 */
static void test_full_overlap(void **state)
{
	(void)state;
	struct tc_machine machine = paper_machine();
	struct program program;
	program_init(&program);
	uint64_t compute[3];
	for (int i = 0; i < 3; i++) {
		uint64_t fetch = program_copy(&program, TC_QUEUE_H2D, MB);
		compute[i] = program_compute(&program, 100 * US);
		program_depend(&program, compute[i], fetch, TC_REASON_DATA);
	}
	struct timed *timed = program_run(&program, &machine);
	paper_times(&timed[0], 0, 64 * US);
	paper_times(&timed[2], 64 * US, 128 * US);
	paper_times(&timed[4], 128 * US, 192 * US);
	paper_times(&timed[compute[0]], 64 * US, 164 * US);
	paper_times(&timed[compute[1]], 164 * US, 264 * US);
	paper_times(&timed[compute[2]], 264 * US, 364 * US);
	paper_stall(&timed[compute[0]], TC_STALL_ISSUED_LATE, 64 * US, TC_STALL_FAULT, 0);
	paper_no_stall(&timed[compute[1]]);
	paper_no_stall(&timed[compute[2]]);
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
	struct tc_machine machine = paper_machine();
	machine.h2d.latency_ps = machine.d2h.latency_ps = 10 * US;
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_H2D, MB);
	program_copy(&program, TC_QUEUE_H2D, MB);
	program_copy(&program, TC_QUEUE_H2D, 0);
	program_copy(&program, TC_QUEUE_D2H, MB);
	struct timed *timed = program_run(&program, &machine);
	paper_times(&timed[0], 0, 74 * US);
	paper_times(&timed[1], 74 * US, 148 * US);
	paper_times(&timed[2], 148 * US, 158 * US);
	paper_times(&timed[3], 0, 74 * US);
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
	struct tc_machine machine = paper_machine();
	machine.duplex_bytes_per_s = 23437500000;
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_H2D, 3 * MB);
	program_copy(&program, TC_QUEUE_D2H, 3 * MB / 2);
	struct timed *timed = program_run(&program, &machine);
	paper_times(&timed[0], 0, 224 * US);
	paper_times(&timed[1], 0, 128 * US);
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
	struct tc_machine machine = paper_machine();
	machine.dram_bytes_per_s = 23437500000;
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_H2D, MB);
	program_copy(&program, TC_QUEUE_D2H, 1600000);
	program_update(&program, 75000);
	struct timed *timed = program_run(&program, &machine);
	paper_times(&timed[0], 0, 128 * US);
	paper_times(&timed[1], 0, 179200000);
	paper_times(&timed[2], 0, 179200000 + 21333334);
	free(timed);
	program_free(&program);
}

/*
 * Copies weigh twice on DRAM's 3/128 byte per ps. One alone gets 3/256, less than the link's 1/64:
 * 0.6 MB take 51.2 us. Beside an update the level is 3/128 / (2 + 1) = 1/128: 1 MB takes 128 us,
 * and of the update's 2.1 MB the other 1.1 MB have DRAM to themselves: x 128/3 = 46,933,333 1/3 ps.
 */
static void test_copies_weigh_twice(void **state)
{
	(void)state;
	struct tc_machine machine = paper_machine();
	machine.dram_bytes_per_s = 23437500000;
	machine.copy_dram_weight = 2;
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_D2H, 600000);
	struct timed *timed = program_run(&program, &machine);
	paper_times(&timed[0], 0, 51200000);
	assert_int_equal(tc_machine_transfer_ps(&machine, TC_QUEUE_D2H, 600000, false), 51200000);
	free(timed);
	program_free(&program);
	program_init(&program);
	program_copy(&program, TC_QUEUE_H2D, MB);
	program_update(&program, 75000);
	timed = program_run(&program, &machine);
	paper_times(&timed[0], 0, 128 * US);
	paper_times(&timed[1], 0, 128 * US + 46933334);
	free(timed);
	program_free(&program);
}

/*
 * Hand-overs of 50 us from compute, 8 us from or to a drive, 2 us else. 0: up, from the issuing
 * thread, 2 + 1 MB x 64 = 66 us. 1: up behind it, no hand-over, 64 us. 2: compute after 0, 2 + 100
 * us. 3: down after it, 50 + 64 us. 4: to the drive after that, 8 + 1 MB x 512 us. 5: the host waits
 * for the compute command and goes on 50 us later: 6 is issued then, and is 2 + 10 us.
 */
static void test_handovers(void **state)
{
	(void)state;
	struct tc_machine machine = paper_machine();
	machine.handover_ps[TC_HANDOVER_COMPUTE] = 50 * US;
	machine.handover_ps[TC_HANDOVER_DRIVE] = 8 * US;
	machine.handover_ps[TC_HANDOVER_OTHER] = 2 * US;
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_H2D, MB);
	program_copy(&program, TC_QUEUE_H2D, MB);
	program_depend(&program, program_compute(&program, 100 * US), 0, TC_REASON_DATA);
	program_depend(&program, program_copy(&program, TC_QUEUE_D2H, MB), 2, TC_REASON_DATA);
	program_depend(&program, program_copy(&program, TC_QUEUE_NVME_WRITE, MB), 3,
	               TC_REASON_DATA);
	program_wait(&program, 2);
	program_compute(&program, 10 * US);
	struct timed *timed = program_run(&program, &machine);
	paper_times(&timed[0], 0, 66 * US);
	paper_times(&timed[1], 66 * US, 130 * US);
	paper_times(&timed[2], 66 * US, 168 * US);
	paper_times(&timed[3], 168 * US, 282 * US);
	paper_times(&timed[4], 282 * US, 802 * US);
	paper_times(&timed[5], 168 * US, 218 * US);
	paper_times(&timed[6], 218 * US, 230 * US);
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
	struct tc_machine machine = paper_machine();
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
	paper_times(&timed[alone], 0, begin);
	paper_times(&timed[convert], begin, begin + 128 * US);
	/* 25 x 10^6 x 2^40 / 30,786,325,577 = 892,857,142.88 ps, rounded up. */
	paper_times(&timed[shared], begin, begin + 128 * US + 892857143);
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
	struct tc_machine machine = paper_machine();
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
	paper_times(&timed[next], 192 * US, 192 * US + 1);
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
	struct tc_machine machine = paper_machine();
	struct program program;
	program_init(&program);
	static const enum tc_why why[] = {TC_WHY_NONE, TC_WHY_REPACK};
	for (int i = 0; i < 2; i++) {
		uint64_t id = program_add(&program, TC_QUEUE_COMPUTE, TC_CONVERT);
		program_at(&program, id)->traffic_bytes = MB;
		program_at(&program, id)->why = why[i];
	}
	struct timed *timed = program_run(&program, &machine);
	paper_times(&timed[0], 0, US);
	paper_times(&timed[1], US, 3 * US);
	paper_no_stall(&timed[1]);
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
		struct tc_machine machine = paper_machine();
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
		paper_times(&timed[0], 0, 512 * US);
		paper_times(&timed[1], 0, striped ? 512 * US : 256 * US);
		if (!striped)
			paper_times(&timed[2], 0, 512 * US);
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
	struct tc_machine machine = paper_machine();
	machine.gpu_direct = true;
	machine.dram_bytes_per_s = 976562500;
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_GPU_NVME, MB);
	uint64_t down = program_copy(&program, TC_QUEUE_GPU_NVME, MB);
	program_at(&program, down)->kind = TC_EVICT;
	struct timed *timed = program_run(&program, &machine);
	paper_times(&timed[0], 0, 256 * US);
	paper_times(&timed[1], 256 * US, 768 * US);
	free(timed);
	program_free(&program);
}

/* A size above 4 GiB: 5 x 2^30 bytes x 64 ps, to the picosecond. */
static void test_large_transfer(void **state)
{
	(void)state;
	struct tc_machine machine = paper_machine();
	struct program program;
	program_init(&program);
	program_copy(&program, TC_QUEUE_D2H, UINT64_C(5) << 30);
	struct timed *timed = program_run(&program, &machine);
	paper_times(&timed[0], 0, (UINT64_C(5) << 30) * 64);
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
	    cmocka_unit_test(test_copies_weigh_twice),
	    cmocka_unit_test(test_handovers),
	    cmocka_unit_test(test_cpu_rates),
	    cmocka_unit_test(test_ready),
	    cmocka_unit_test(test_convert_on_gpu),
	    cmocka_unit_test(test_drives),
	    cmocka_unit_test(test_direct_path),
	    cmocka_unit_test(test_large_transfer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
