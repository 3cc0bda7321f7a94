/**
 * @file timeline.c
 * A timeline is written while the run goes on: each finished command is a slice on the lane of its
 * queue. Two things need more than the command at hand:
 *
 * - An arrow starts at a command that ended earlier (timeline_arrow.c remembers the last ones).
 * - Memory changes become known when the command that carries them ends, which may be after
 *   commands that started later. They are collected as the report does (report_memory.c), sorted
 *   and written at the end; before the first iteration shown only the level is kept.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partial_file.h"
#include "report_parts.h"
#include "tencache/timeline.h"
#include "timeline_parts.h"

/** An arrow must start inside its slice; viewers count in nanoseconds and round down. */
#define ARROW_MARGIN_PS 2000u

struct tc_timeline_process {
	struct tc_timeline *timeline;
	struct tc_timeline_process *next;
	uint32_t number;
	char *name;
	const struct tc_plan_info *info; /**< NULL before the plan begins; not used at the end */
	uint32_t first_iteration;        /**< shown; those before it only change memory */
	uint32_t reached;                /**< iteration whose first compute command has passed */
	uint32_t named;                  /**< lanes that have a name, bit by thread */
	uint64_t setup_ps;               /**< end of setup, from where times count */
	bool is_set_up;                  /**< an iteration has begun */
	uint64_t first_ps;               /**< earliest start of a slice; UINT64_MAX: none yet */
	uint64_t fixed_bytes[TC_TIER_COUNT];
	struct tci_memory memory;
	struct tci_arrows arrows;
};

struct tc_timeline {
	struct tci_partial_file file;
	struct tci_text text;
	uint64_t events, arrows;
	struct tc_timeline_process *first, *last;
};

/* ---------------------------------------------------------------- writing */

static enum tc_status write_event(struct tc_timeline *timeline, struct tc_error *error)
{
	const struct tci_text *text = &timeline->text;
	if (text->status == TC_NO_MEMORY)
		return tc_error_no_memory(error, "an event of a timeline", text->bytes);
	if (text->status != TC_OK)
		return tc_error_set(
		    error, text->status,
		    "%s: \"%s\" of event %" PRIu64 " %s; the timeline cannot be written",
		    timeline->file.path, text->what, timeline->events,
		    text->status == TC_TOO_LARGE
		        ? "is above 2^53 - 1, which JSON readers do not keep exactly"
		        : "is not valid UTF-8");
	if (timeline->events++ > 0)
		TC_TRY(tci_partial_write(&timeline->file, ",\n", 2, error));
	return tci_partial_write(&timeline->file, text->data, text->bytes, error);
}

static enum tc_status write_raw(struct tc_timeline *timeline, const char *text,
                                struct tc_error *error)
{
	return tci_partial_write(&timeline->file, text, strlen(text), error);
}

enum tc_status tc_timeline_create(const char *path, struct tc_timeline **timeline,
                                  struct tc_error *error)
{
	*timeline = NULL;
	struct tc_timeline *created = calloc(1, sizeof *created);
	if (created == NULL)
		return tc_error_no_memory(error, "a timeline", sizeof *created);
	enum tc_status status = tci_partial_open(&created->file, path, "a timeline", error);
	if (status == TC_OK)
		status = write_raw(created,
		                   "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"generator\":"
		                   "\"tencache " TENCACHE_VERSION "\"},\"traceEvents\":[\n",
		                   error);
	if (status != TC_OK) {
		tc_timeline_free(created);
		return status;
	}
	*timeline = created;
	return TC_OK;
}

enum tc_status tc_timeline_add(struct tc_timeline *timeline, const char *name,
                               struct tc_timeline_process **process, struct tc_error *error)
{
	size_t length = strlen(name);
	struct tc_timeline_process *created = calloc(1, sizeof *created);
	char *copy = malloc(length + 1);
	if (created == NULL || copy == NULL || !tci_arrows_create(&created->arrows)) {
		free(created);
		free(copy);
		return tc_error_no_memory(error, "a process of a timeline", sizeof *created);
	}
	memcpy(copy, name, length + 1);
	created->timeline = timeline;
	created->name = copy;
	created->reached = TC_ITERATION_INIT;
	created->first_ps = UINT64_MAX;
	created->number = timeline->last == NULL ? 1 : timeline->last->number + 1;
	if (timeline->last == NULL)
		timeline->first = created;
	else
		timeline->last->next = created;
	timeline->last = created;
	*process = created;
	return TC_OK;
}

void tc_timeline_free(struct tc_timeline *timeline)
{
	if (timeline == NULL)
		return;
	for (struct tc_timeline_process *process = timeline->first; process != NULL;) {
		struct tc_timeline_process *next = process->next;
		tci_memory_clear(&process->memory);
		tci_arrows_clear(&process->arrows);
		free(process->name);
		free(process);
		process = next;
	}
	tci_partial_close(&timeline->file);
	tci_text_clear(&timeline->text);
	free(timeline);
}

/* ---------------------------------------------------------------- the plan */

static enum tc_status plan_begin(void *self, const struct tc_plan_info *info,
                                 struct tc_error *error)
{
	struct tc_timeline_process *process = self;
	char title[512];
	if (process->info != NULL)
		return tc_error_set(error, TC_ARGUMENT,
		                    "a process of a timeline takes one plan only; add another");
	process->info = info;
	memcpy(process->fixed_bytes, info->fixed_bytes, sizeof process->fixed_bytes);
	if (info->iterations > TC_TIMELINE_ITERATIONS)
		process->first_iteration = info->iterations - TC_TIMELINE_ITERATIONS;
	(void)snprintf(title, sizeof title, "%s: %s, %s", process->name, info->policy,
	               info->trace_name != NULL ? info->trace_name : "");
	tci_event_process(&process->timeline->text, process->number, title);
	return write_event(process->timeline, error);
}

static enum tc_status plan_command(void *self, const struct tc_command *command,
                                   struct tc_error *error)
{
	struct tc_timeline_process *process = self;
	return tci_memory_planned(&process->memory, command, error);
}

struct tc_sink tc_timeline_plan_sink(struct tc_timeline_process *process)
{
	return (struct tc_sink){.self = process, .begin = plan_begin, .command = plan_command};
}

/* ---------------------------------------------------------------- slices and arrows */

/** Threads in the order of the queues, the stalls right below the compute lanes. */
static uint32_t stall_thread(const struct tc_plan_info *info)
{
	return info->lanes[TC_QUEUE_COMPUTE] + 1;
}

static uint32_t thread_of(const struct tc_plan_info *info, const struct tc_command *command)
{
	uint32_t lane = tc_lane_index(info->lanes, command->queue, command->lane);
	return command->queue == TC_QUEUE_COMPUTE ? lane + 1 : lane + 2;
}

/** A lane gets its name when something happens on it: empty lanes are not shown. */
static enum tc_status name_thread(struct tc_timeline_process *process, struct tci_track track,
                                  const char *label, uint32_t lane, uint32_t lanes,
                                  struct tc_error *error)
{
	char name[80];
	uint32_t bit = UINT32_C(1) << (track.thread & 31);
	if ((process->named & bit) != 0)
		return TC_OK;
	process->named |= bit;
	if (lanes > 1)
		(void)snprintf(name, sizeof name, "%s, lane %" PRIu32, label, lane);
	else
		(void)snprintf(name, sizeof name, "%s", label);
	tci_event_thread(&process->timeline->text, track, name);
	return write_event(process->timeline, error);
}

static enum tc_status write_slice(struct tc_timeline_process *process,
                                  const struct tc_command *command, const struct tc_timing *timing,
                                  struct tc_error *error)
{
	static const char *const labels[TC_QUEUE_COUNT] = {
	    "compute (GPU)",           "h2d (CPU to GPU)",         "d2h (GPU to CPU)",
	    "nvme_read (NVMe to CPU)", "nvme_write (CPU to NVMe)", "gpu_nvme (direct)",
	    "cpu (optimizer)",         "host (issuing thread)"};
	struct tc_timeline *timeline = process->timeline;
	const struct tc_plan_info *info = process->info;
	struct tci_slice slice = {.track = {process->number, thread_of(info, command)},
	                          .info = info,
	                          .command = command,
	                          .timing = timing};
	TC_TRY(name_thread(process, slice.track, labels[command->queue], command->lane,
	                   info->lanes[command->queue], error));
	tci_event_slice(&timeline->text, &slice);
	TC_TRY(write_event(timeline, error));
	uint64_t stalled = 0;
	for (size_t cause = 0; cause < TC_STALL_CAUSE_COUNT; ++cause)
		stalled += timing->stall_ps[cause];
	/* The first one may have begun before what is shown. */
	if (stalled > timing->start_ps || timing->start_ps - stalled < process->first_ps)
		stalled = timing->start_ps - process->first_ps;
	if (stalled == 0)
		return TC_OK;
	slice.track.thread = stall_thread(info);
	TC_TRY(name_thread(process, slice.track, "compute waits for", 0, 1, error));
	tci_event_stall(&timeline->text, &slice, stalled);
	return write_event(timeline, error);
}

static enum tc_status write_arrow(struct tc_timeline_process *process,
                                  const struct tc_command *command, const struct tc_timing *timing,
                                  struct tc_error *error)
{
	struct tc_timeline *timeline = process->timeline;
	struct tci_ended from;
	uint64_t room = 2 * ARROW_MARGIN_PS;
	if (!tci_arrows_source(&process->arrows, command, &from) ||
	    from.thread <= stall_thread(process->info) || from.end_ps - from.start_ps < room ||
	    timing->end_ps - timing->start_ps < room)
		return TC_OK;
	uint64_t id = ++timeline->arrows;
	tci_event_arrow(&timeline->text, (struct tci_track){process->number, from.thread}, id,
	                from.end_ps - ARROW_MARGIN_PS, false);
	TC_TRY(write_event(timeline, error));
	tci_event_arrow(&timeline->text,
	                (struct tci_track){process->number, thread_of(process->info, command)}, id,
	                timing->start_ps, true);
	return write_event(timeline, error);
}

/** Setup is not: pinning memory for minutes would squeeze the iterations to a line. */
static bool is_shown(const struct tc_timeline_process *process, const struct tc_command *command)
{
	return command->iteration != TC_ITERATION_INIT &&
	       command->iteration >= process->first_iteration;
}

static uint64_t since(uint64_t ps, uint64_t origin_ps)
{
	return ps > origin_ps ? ps - origin_ps : 0;
}

/** Times count from the end of setup, so that processes with and without it begin together. */
static struct tc_timing from_setup(struct tc_timeline_process *process,
                                   const struct tc_command *command, const struct tc_timing *timing)
{
	struct tc_timing shifted = *timing;
	uint64_t idle = 0;
	if (command->iteration != TC_ITERATION_INIT)
		process->is_set_up = true;
	else if (!process->is_set_up && timing->end_ps > process->setup_ps)
		process->setup_ps = timing->end_ps;
	shifted.issue_ps = since(timing->issue_ps, process->setup_ps);
	shifted.ask_ps = since(timing->ask_ps, process->setup_ps);
	shifted.start_ps = since(timing->start_ps, process->setup_ps);
	shifted.end_ps = since(timing->end_ps, process->setup_ps);
	for (size_t cause = 0; cause < TC_STALL_CAUSE_COUNT; ++cause)
		idle += timing->stall_ps[cause];
	/* Waiting for setup is not shown either. */
	if (idle > shifted.start_ps)
		shifted.stall_ps[TC_STALL_HOST_CALL] =
		    since(shifted.stall_ps[TC_STALL_HOST_CALL], idle - shifted.start_ps);
	return shifted;
}

static enum tc_status finished(void *self, const struct tc_command *command,
                               const struct tc_timing *times, struct tc_error *error)
{
	struct tc_timeline_process *process = self;
	if (process->info == NULL)
		return tc_error_set(error, TC_INTERNAL,
		                    "timeline: a command ended before the plan began");
	if (times->end_ps < times->start_ps)
		return tc_error_set(error, TC_INTERNAL,
		                    "timeline: command %" PRIu64 " ended before it started",
		                    command->id);
	const struct tc_timing shifted = from_setup(process, command, times), *timing = &shifted;
	if (!is_shown(process, command) && command->queue == TC_QUEUE_COMPUTE &&
	    command->iteration != process->reached) {
		process->reached = command->iteration;
		tci_memory_boundary(&process->memory, timing->start_ps);
	}
	TC_TRY(tci_memory_finished(&process->memory, command, timing, error));
	if (!is_shown(process, command))
		return TC_OK;
	if (timing->start_ps < process->first_ps)
		process->first_ps = timing->start_ps;
	TC_TRY(write_slice(process, command, timing, error));
	TC_TRY(tci_arrows_ended(&process->arrows, command, timing,
	                        thread_of(process->info, command), error));
	return command->kind == TC_COMPUTE ? write_arrow(process, command, timing, error) : TC_OK;
}

struct tc_timing_sink tc_timeline_timing_sink(struct tc_timeline_process *process)
{
	return (struct tc_timing_sink){.self = process, .finished = finished};
}

/* ---------------------------------------------------------------- memory */

static enum tc_status write_level(struct tc_timeline_process *process, enum tc_tier tier,
                                  uint64_t ps, int64_t level, struct tc_error *error)
{
	if (level < 0)
		return tc_error_set(error, TC_INTERNAL,
		                    "timeline: more %s memory was given back than taken",
		                    tc_tier_name(tier));
	tci_event_memory(&process->timeline->text, process->number, tier, ps,
	                 (uint64_t)level + process->fixed_bytes[tier]);
	return write_event(process->timeline, error);
}

/** Whether anything ever lies in a tier: an empty one gets no counter. */
static bool is_used(const struct tci_memory *memory, enum tc_tier tier)
{
	for (size_t kind = 0; kind < TC_TENSOR_KIND_COUNT; ++kind)
		if (memory->level[tier][kind] != 0)
			return true;
	for (size_t i = 0; i < memory->event_count; ++i)
		if (memory->events[i].tier == tier)
			return true;
	return false;
}

/** One sample for each instant at which the level of the tier changes. */
static enum tc_status write_tier(struct tc_timeline_process *process, enum tc_tier tier,
                                 struct tc_error *error)
{
	const struct tci_memory *memory = &process->memory;
	uint64_t start = memory->from > process->first_ps ? memory->from : process->first_ps;
	int64_t level = 0, written = -1;
	for (size_t kind = 0; kind < TC_TENSOR_KIND_COUNT; ++kind)
		level += memory->level[tier][kind];
	size_t i = 0;
	for (uint64_t now = start;;) {
		for (; i < memory->event_count && memory->events[i].time <= now; ++i)
			if (memory->events[i].tier == tier)
				level += memory->events[i].bytes;
		if (level != written)
			TC_TRY(write_level(process, tier, now, level, error));
		written = level;
		if (i == memory->event_count)
			return TC_OK;
		now = memory->events[i].time;
	}
}

enum tc_status tc_timeline_finish(struct tc_timeline *timeline, struct tc_error *error)
{
	for (struct tc_timeline_process *process = timeline->first; process != NULL;
	     process = process->next) {
		TC_TRY(tci_memory_sort(&process->memory, error));
		for (int tier = 0; tier < TC_TIER_COUNT && process->first_ps != UINT64_MAX; ++tier)
			if (is_used(&process->memory, (enum tc_tier)tier))
				TC_TRY(write_tier(process, (enum tc_tier)tier, error));
	}
	TC_TRY(write_raw(timeline, "\n]}\n", error));
	return tci_partial_commit(&timeline->file, error);
}
