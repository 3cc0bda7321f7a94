/**
 * @file report_busy.c
 * Busy time of a queue with several lanes: the union of intervals that arrive by their end. A new
 * interval ends last, so it can only swallow intervals from the end of the list.
 */
#include <string.h>

#include "report_parts.h"

enum tc_status tci_busy_add(struct tci_busy *busy, uint64_t start, uint64_t end,
                            struct tc_error *error)
{
	if (start >= end)
		return TC_OK;
	while (busy->count > 0 && busy->intervals[busy->count - 1].end >= start) {
		--busy->count;
		if (busy->intervals[busy->count].start < start)
			start = busy->intervals[busy->count].start;
	}
	if (!tc_grow_array(&busy->intervals, &busy->capacity, busy->count + 1,
	                   sizeof *busy->intervals))
		return tc_error_no_memory(error, "busy intervals of a report", busy->count);
	busy->intervals[busy->count++] = (struct tci_interval){start, end};
	return TC_OK;
}

void tci_busy_drop(struct tci_busy *busy, uint64_t time)
{
	size_t gone = 0;
	while (gone < busy->count && busy->intervals[gone].end <= time)
		++gone;
	if (gone == 0)
		return;
	memmove(busy->intervals, busy->intervals + gone,
	        (busy->count - gone) * sizeof *busy->intervals);
	busy->count -= gone;
}

uint64_t tci_busy_within(const struct tci_busy *busy, uint64_t from, uint64_t to)
{
	uint64_t total = 0;
	for (size_t i = 0; i < busy->count; ++i) {
		struct tci_interval interval = busy->intervals[i];
		if (interval.start < from)
			interval.start = from;
		if (interval.end > to)
			interval.end = to;
		if (interval.start < interval.end)
			total += interval.end - interval.start;
	}
	return total;
}
