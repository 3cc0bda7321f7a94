/**
 * @file calibrate_command.c
 * What a command costs the executor: to issue it, and to hand over from one that has ended to one
 * that waited for it. Small schedules tell, run by the executor itself.
 */
#include <stdlib.h>

#include "calibrate_parts.h"

#define COPIES 4096u
#define HOPS 512u
#define DRIVE_HOPS 128u

static int compare(const void *a, const void *b)
{
	const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return left < right ? -1 : left > right;
}

/** Median of `count` values, which are sorted. */
static uint64_t median(uint64_t *values, size_t count)
{
	qsort(values, count, sizeof *values, compare);
	return values[count / 2];
}

static uint64_t after(uint64_t later_ps, uint64_t earlier_ps)
{
	return later_ps > earlier_ps ? later_ps - earlier_ps : 0;
}

static uint64_t read_issue(const struct tc_timing *timings, uint32_t count)
{
	return (timings[count - 1].issue_ps - timings[0].issue_ps) / (count - 1);
}

/** From one end to the next start. */
static uint64_t read_hop(const struct tc_timing *timings, uint32_t count)
{
	uint64_t hops[HOPS];
	for (uint32_t i = 0; i + 1 < count; ++i)
		hops[i] = after(timings[i + 1].start_ps, timings[i].end_ps);
	return median(hops, count - 1);
}

/** From the end of a copy over compute that is held to the start of the next copy, without that
 * time: there and back. Copies have even numbers. */
static uint64_t read_held(const struct tc_timing *timings, uint32_t count)
{
	uint64_t hops[HOPS];
	uint32_t found = 0;
	for (uint32_t i = 0; i + 2 < count; i += 2)
		hops[found++] =
		    after(timings[i + 2].start_ps, timings[i].end_ps + TCI_PROBE_HOLD_PS);
	return median(hops, found);
}

/** There and back again, each half. */
static uint64_t read_both_ways(const struct tc_timing *timings, uint32_t count)
{
	uint64_t hops[HOPS];
	uint32_t found = 0;
	for (uint32_t i = 0; i + 2 < count; i += 2)
		hops[found++] = (after(timings[i + 1].start_ps, timings[i].end_ps) +
		                 after(timings[i + 2].start_ps, timings[i + 1].end_ps)) /
		                2;
	return median(hops, found);
}

enum tc_status tci_measure_command(struct tci_calibration *calibration, struct tc_error *error)
{
	static const enum tc_queue copies[] = {TC_QUEUE_H2D};
	static const enum tc_queue mixed[] = {TC_QUEUE_H2D, TC_QUEUE_D2H, TC_QUEUE_CPU};
	static const enum tc_queue held[] = {TC_QUEUE_H2D, TC_QUEUE_COMPUTE};
	static const enum tc_queue drive[] = {TC_QUEUE_H2D, TC_QUEUE_NVME_READ};
	const struct tci_probe issue = {copies, 1, COPIES, false, read_issue};
	const struct tci_probe other = {mixed, 3, HOPS, true, read_hop};
	const struct tci_probe compute = {held, 2, HOPS, true, read_held};
	const struct tci_probe reads = {drive, 2, DRIVE_HOPS, true, read_both_ways};
	struct tci_measured *handover = calibration->handover_ps;
	TC_TRY(tci_probe(calibration, &issue, &calibration->issue_ps, error));
	TC_TRY(tci_probe(calibration, &other, &handover[TC_HANDOVER_OTHER], error));
	TC_TRY(tci_probe(calibration, &compute, &handover[TC_HANDOVER_COMPUTE], error));
	/* The way to compute is a hand-over of its own. What was measured is never nothing. */
	handover[TC_HANDOVER_COMPUTE].value =
	    1 + after(handover[TC_HANDOVER_COMPUTE].value, handover[TC_HANDOVER_OTHER].value);
	if (calibration->options->directory_count == 0)
		return TC_OK;
	return tci_probe(calibration, &reads, &handover[TC_HANDOVER_DRIVE], error);
}
