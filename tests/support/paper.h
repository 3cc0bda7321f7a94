/** @file paper.h
 * A machine for schedules that are worked out on paper, and what such tests say about a command.
 *
 * Its rates are powers of two of a byte per picosecond, so that they are exact in the engine's
 * unit: a link of 15.625 GB/s moves a byte in 64 ps, DRAM of 31.25 GB/s in 32 ps, the drive reads
 * one in 256 ps and writes one in 512 ps. A copy of 10^6 bytes over the link takes 64 us. Latency,
 * launch and hook costs are 0; pageable copies run at a quarter of the rate; the CPU is limited by
 * DRAM.
 */
#ifndef TENCACHE_TEST_PAPER_H
#define TENCACHE_TEST_PAPER_H

#include "program.h"
#include "tencache/units.h"

#define US TC_PS_PER_US
#define MB 1000000u

struct tc_machine paper_machine(void);
/** The command ran in exactly this time. */
void paper_times(const struct timed *timed, uint64_t start, uint64_t end);
/** Exactly these causes, each with its time; everything else zero. */
void paper_stall(const struct timed *timed, enum tc_stall_cause cause, uint64_t ps,
                 enum tc_stall_cause other, uint64_t other_ps);
void paper_no_stall(const struct timed *timed);

#endif
