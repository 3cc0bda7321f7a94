#include "paper.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct tc_machine paper_machine(void)
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

void paper_times(const struct timed *timed, uint64_t start, uint64_t end)
{
	assert_int_equal(timed->timing.start_ps, start);
	assert_int_equal(timed->timing.end_ps, end);
}

void paper_stall(const struct timed *timed, enum tc_stall_cause cause, uint64_t ps,
                 enum tc_stall_cause other, uint64_t other_ps)
{
	for (int c = 0; c < TC_STALL_CAUSE_COUNT; c++) {
		uint64_t expected = (c == (int)cause ? ps : 0) + (c == (int)other ? other_ps : 0);
		if (timed->timing.stall_ps[c] != expected)
			print_error("cause %s\n", tc_stall_cause_name((enum tc_stall_cause)c));
		assert_int_equal(timed->timing.stall_ps[c], expected);
	}
}

void paper_no_stall(const struct timed *timed)
{
	paper_stall(timed, TC_STALL_FAULT, 0, TC_STALL_FAULT, 0);
}
