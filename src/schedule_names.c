/*
 * The words of a schedule and the numbering of lanes.
 */
#include "tencache/schedule.h"

static const char *name_of(const char *const *names, size_t count, unsigned value)
{
	return value < count ? names[value] : "unknown";
}

#define NAME_OF(names, value) name_of(names, sizeof(names) / sizeof *(names), (unsigned)(value))

const char *tc_reason_name(enum tc_reason reason)
{
	static const char *const names[TC_REASON_COUNT] = {"data", "slot", "barrier", "order",
	                                                   "anchor"};
	return NAME_OF(names, reason);
}

const char *tc_command_kind_name(enum tc_command_kind kind)
{
	static const char *const names[TC_COMMAND_KIND_COUNT] = {
	    "fetch",   "load",   "evict",   "spill", "publish", "gradient",
	    "compute", "update", "convert", "wait",  "alloc",   "drop"};
	return NAME_OF(names, kind);
}

const char *tc_why_name(enum tc_why why)
{
	static const char *const names[TC_WHY_COUNT] = {
	    "none",  "prefetch", "demand", "victim", "release", "repair", "repack",
	    "stage", "swap",     "home",   "norm",   "bucket",  "scan"};
	return NAME_OF(names, why);
}

const char *tc_pool_kind_name(enum tc_pool_kind kind)
{
	static const char *const names[] = {"fixed", "arena", "classes", "ring"};
	return NAME_OF(names, kind);
}

uint32_t tc_lane_index(const uint32_t lanes[TC_QUEUE_COUNT], enum tc_queue queue, uint32_t lane)
{
	uint32_t index = lane;
	for (unsigned earlier = 0; earlier < (unsigned)queue; earlier++)
		index += lanes[earlier];
	return index;
}

uint32_t tc_lane_total(const uint32_t lanes[TC_QUEUE_COUNT])
{
	uint32_t total = 0;
	for (unsigned queue = 0; queue < TC_QUEUE_COUNT; queue++)
		total += lanes[queue];
	return total;
}
