/**
 * @file report_time.c
 * Iterations, phases and stalls, from lane 0 of `compute` alone. Every picosecond between two
 * boundaries is either a command of that lane or idle, and each idle interval belongs to the
 * command that ends it; the idle time before an iteration's first step belongs to the iteration
 * before, whose last updates and copies it waits for.
 */
#include <inttypes.h>

#include "report_parts.h"

uint32_t tci_times_slot(const struct tci_times *times, uint32_t iteration)
{
	uint32_t slots = 2 * times->period;
	if (iteration == 0 || iteration > times->wanted || times->wanted - iteration >= slots)
		return UINT32_MAX;
	return slots - 1 - (times->wanted - iteration);
}

static enum tc_status check_lane(const struct tci_times *times, const struct tc_command *command,
                                 const struct tc_timing *timing, struct tc_error *error)
{
	uint64_t stalls = 0;
	if (timing->start_ps < times->previous_end || timing->end_ps < timing->start_ps)
		return tc_error_set(error, TC_INTERNAL,
		                    "report: command %" PRIu64 " runs [%" PRIu64 ", %" PRIu64
		                    "] ps, but its lane was busy until %" PRIu64,
		                    command->id, timing->start_ps, timing->end_ps,
		                    times->previous_end);
	for (size_t cause = 0; cause < TC_STALL_CAUSE_COUNT; ++cause)
		stalls += timing->stall_ps[cause];
	if (times->has_previous && stalls != timing->start_ps - times->previous_end)
		return tc_error_set(error, TC_INTERNAL,
		                    "report: stalls of command %" PRIu64 " sum to %" PRIu64
		                    " ps, its lane was idle for %" PRIu64,
		                    command->id, stalls, timing->start_ps - times->previous_end);
	return TC_OK;
}

static void count_idle(struct tci_times *times, const struct tc_timing *timing, enum tc_phase phase,
                       uint32_t module)
{
	uint64_t idle = timing->start_ps - times->previous_end;
	if (!times->started || times->closed || times->current != times->wanted || idle == 0)
		return;
	times->phases[phase].time_ps += idle;
	times->phases[phase].stall_ps += idle;
	for (size_t cause = 0; cause < TC_STALL_CAUSE_COUNT; ++cause)
		times->stalls[cause] += timing->stall_ps[cause];
	if (times->module_stalls != NULL)
		times->module_stalls[module < times->module_count ? module : times->module_count] +=
		    idle;
}

static enum tc_status pass_boundary(struct tci_times *times, const struct tc_command *command,
                                    uint64_t start, struct tc_error *error)
{
	uint32_t expected = times->started ? times->current + 1 : 0;
	if (command->iteration != expected)
		return tc_error_set(error, TC_INTERNAL,
		                    "report: iteration %" PRIu32 " starts; expected %" PRIu32,
		                    command->iteration, expected);
	if (expected < 2)
		times->first_boundaries[expected] = start;
	if (times->started && times->current >= 1 && !times->closed) {
		uint64_t duration = start - times->boundary;
		uint32_t slot = tci_times_slot(times, times->current);
		if (slot != UINT32_MAX)
			times->durations[slot] = duration;
		if (times->current == 1 || duration < times->shortest)
			times->shortest = duration;
		if (duration > times->longest)
			times->longest = duration;
	}
	if (times->started && times->current == times->wanted) {
		times->wanted_end = start;
		times->closed = true;
	}
	if (expected == times->wanted)
		times->wanted_start = start;
	times->started = true;
	times->current = expected;
	times->boundary = start;
	return TC_OK;
}

enum tc_status tci_times_finished(struct tci_times *times, const struct tc_command *command,
                                  const struct tc_timing *timing, uint32_t module, bool *boundary,
                                  struct tc_error *error)
{
	bool initial = command->iteration == TC_ITERATION_INIT;
	*boundary = false;
	if (initial && timing->end_ps > times->initial_ps)
		times->initial_ps = timing->end_ps;
	if (command->queue != TC_QUEUE_COMPUTE || command->lane != 0)
		return TC_OK;
	TC_TRY(check_lane(times, command, timing, error));
	bool first = command->kind == TC_COMPUTE && !initial &&
	             (!times->started || command->iteration > times->current);
	enum tc_phase phase = command->phase;
	if (first)
		phase = times->has_optimizer ? TC_OPTIMIZER : times->last_phase;
	count_idle(times, timing, phase, module);
	if (first) {
		TC_TRY(pass_boundary(times, command, timing->start_ps, error));
		*boundary = command->iteration <= times->wanted;
	}
	if (times->started && !times->closed && times->current == times->wanted) {
		uint64_t duration = timing->end_ps - timing->start_ps;
		times->phases[command->phase].time_ps += duration;
		times->phases[command->phase].compute_ps += duration;
	}
	times->previous_end = timing->end_ps;
	times->has_previous = true;
	times->last_phase = command->phase;
	return TC_OK;
}

bool tci_times_steady(const struct tci_times *times)
{
	uint32_t period = times->period;
	uint64_t earlier = 0, later = 0;
	if (times->wanted < 2 * period)
		return false;
	for (uint32_t i = 0; i < period; ++i) {
		if (times->signatures[i] != times->signatures[period + i])
			return false;
		earlier += times->durations[i];
		later += times->durations[period + i];
	}
	uint64_t larger = earlier > later ? earlier : later;
	uint64_t difference = earlier > later ? earlier - later : later - earlier;
	return difference <= larger / 1000000;
}
