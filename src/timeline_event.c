/**
 * @file timeline_event.c
 * One event of the Chrome trace format each: "X" slices, "C" counters, "s" and "f" ends of arrows,
 * "M" names of processes and threads.
 */
#include <stdio.h>

#include "tencache/units.h"
#include "timeline_parts.h"

#define LONGEST_NAME 256

/** Picoseconds as microseconds, all digits. */
static void put_time(struct tci_text *text, const char *key, uint64_t ps)
{
	char digits[40];
	(void)snprintf(digits, sizeof digits, "%llu.%06llu",
	               (unsigned long long)(ps / TC_PS_PER_US),
	               (unsigned long long)(ps % TC_PS_PER_US));
	tci_text_key(text, key);
	tci_text_raw(text, digits);
}

/** Opens an event: kind and place. The caller closes it. */
static void begin_event(struct tci_text *text, const char *kind, struct tci_track track)
{
	tci_text_begin(text);
	tci_text_raw(text, "{");
	tci_text_key_word(text, "ph", kind);
	tci_text_key_number(text, "pid", track.process);
	tci_text_key_number(text, "tid", track.thread);
}

static void begin_arguments(struct tci_text *text)
{
	tci_text_key(text, "args");
	tci_text_raw(text, "{");
}

/** Name and place in the order, of a process or a thread: two events in one text. */
static void put_names(struct tci_text *text, const char *what, struct tci_track track,
                      const char *name, uint32_t place)
{
	char key[32];
	begin_event(text, "M", track);
	(void)snprintf(key, sizeof key, "%s_name", what);
	tci_text_key_word(text, "name", key);
	begin_arguments(text);
	tci_text_key_string(text, "name", name);
	tci_text_raw(text, "}},\n{");
	tci_text_key_word(text, "ph", "M");
	tci_text_key_number(text, "pid", track.process);
	tci_text_key_number(text, "tid", track.thread);
	(void)snprintf(key, sizeof key, "%s_sort_index", what);
	tci_text_key_word(text, "name", key);
	begin_arguments(text);
	tci_text_key_number(text, "sort_index", place);
	tci_text_raw(text, "}}");
}

void tci_event_process(struct tci_text *text, uint32_t process, const char *name)
{
	put_names(text, "process", (struct tci_track){process, 0}, name, process);
}

void tci_event_thread(struct tci_text *text, struct tci_track track, const char *name)
{
	put_names(text, "thread", track, name, track.thread);
}

/* ---------------------------------------------------------------- slices */

static void put_stalls(struct tci_text *text, const struct tc_timing *timing)
{
	for (size_t cause = 0; cause < TC_STALL_CAUSE_COUNT; ++cause) {
		char key[48];
		if (timing->stall_ps[cause] == 0)
			continue;
		(void)snprintf(key, sizeof key, "stall %s (us)",
		               tc_stall_cause_name((enum tc_stall_cause)cause));
		put_time(text, key, timing->stall_ps[cause]);
	}
}

/** Bytes and what that makes a second, so that a slow copy shows without a calculator. */
static void put_bytes(struct tci_text *text, const struct tc_command *command,
                      const struct tc_timing *timing)
{
	char both[TC_UNIT_TEXT_BYTES];
	uint64_t rate, ps = timing->end_ps - timing->start_ps;
	if (command->bytes == 0)
		return;
	tci_text_key_number(text, "bytes", command->bytes);
	tci_text_key_string(text, "size", tc_format_bytes(command->bytes, both));
	if (command->queue != TC_QUEUE_HOST &&
	    tc_mul_div_half_even(command->bytes, TC_PS_PER_S, ps, &rate))
		tci_text_key_string(text, "rate", tc_format_rate(rate, both));
	if (!command->first_chunk || !command->last_chunk)
		tci_text_key_number(text, "first byte", command->tensor_offset);
}

static void put_served(struct tci_text *text, const struct tc_command *command)
{
	uint64_t requests = 0, covered = 0, missed = 0;
	for (uint32_t i = 0; i < command->served_count; ++i) {
		if (!command->served[i].is_request)
			continue;
		++requests;
		covered += command->served[i].outcome == TC_COVERED;
		missed += command->served[i].outcome == TC_DEMAND_MISS;
	}
	if (requests == 0)
		return;
	tci_text_key_number(text, "requests", requests);
	tci_text_key_number(text, "resident", requests - covered - missed);
	tci_text_key_number(text, "prefetched", covered);
	tci_text_key_number(text, "demand misses", missed);
}

void tci_event_slice(struct tci_text *text, const struct tci_slice *slice)
{
	const struct tc_command *command = slice->command;
	const struct tc_timing *timing = slice->timing;
	char name[LONGEST_NAME];
	/* The issuing thread is blocked from the moment it reaches a wait. */
	uint64_t start = command->queue == TC_QUEUE_HOST && timing->issue_ps < timing->start_ps
	                     ? timing->issue_ps
	                     : timing->start_ps;
	begin_event(text, "X", slice->track);
	put_time(text, "ts", start);
	put_time(text, "dur", timing->end_ps - start);
	tci_timeline_name(slice->info, command, name, sizeof name);
	tci_text_key_string(text, "name", name);
	tci_text_key_word(text, "cat", tc_command_kind_name(command->kind));
	begin_arguments(text);
	tci_text_key_number(text, "command", command->id);
	tci_text_key_number(text, "iteration", command->iteration);
	tci_text_key_number(text, "step", command->step);
	if (command->why != TC_WHY_NONE)
		tci_text_key_word(text, "why", tc_why_name(command->why));
	put_time(text, "issued (us)", timing->issue_ps);
	put_bytes(text, command, timing);
	if (command->pageable)
		tci_text_key_word(text, "memory", "pageable");
	if (command->first_op != TC_NONE) {
		tci_text_key_number(text, "first op", command->first_op);
		tci_text_key_number(text, "last op", command->last_op);
	}
	if (command->elements > 0)
		tci_text_key_number(text, "parameters", command->elements);
	put_served(text, command);
	put_stalls(text, timing);
	tci_text_raw(text, "}}");
}

void tci_event_stall(struct tci_text *text, const struct tci_slice *slice, uint64_t stalled_ps)
{
	const struct tc_timing *timing = slice->timing;
	size_t largest = 0;
	for (size_t cause = 1; cause < TC_STALL_CAUSE_COUNT; ++cause)
		if (timing->stall_ps[cause] > timing->stall_ps[largest])
			largest = cause;
	begin_event(text, "X", slice->track);
	put_time(text, "ts", timing->start_ps - stalled_ps);
	put_time(text, "dur", stalled_ps);
	tci_text_key_word(text, "name", tc_stall_cause_name((enum tc_stall_cause)largest));
	tci_text_key_word(text, "cat", "stall");
	begin_arguments(text);
	tci_text_key_number(text, "before command", slice->command->id);
	put_stalls(text, timing);
	tci_text_raw(text, "}}");
}

/* ---------------------------------------------------------------- arrows and counters */

void tci_event_arrow(struct tci_text *text, struct tci_track track, uint64_t id, uint64_t ps,
                     bool finish)
{
	begin_event(text, finish ? "f" : "s", track);
	tci_text_key_number(text, "id", id);
	put_time(text, "ts", ps);
	tci_text_key_word(text, "name", "unblocks");
	tci_text_key_word(text, "cat", "data");
	if (finish)
		tci_text_key_word(text, "bp", "e"); /* the slice around it, not the next one */
	tci_text_raw(text, "}");
}

void tci_event_memory(struct tci_text *text, uint32_t process, enum tc_tier tier, uint64_t ps,
                      uint64_t bytes)
{
	char name[32];
	begin_event(text, "C", (struct tci_track){process, 0});
	put_time(text, "ts", ps);
	(void)snprintf(name, sizeof name, "%s memory (bytes)", tc_tier_name(tier));
	tci_text_key_word(text, "name", name);
	begin_arguments(text);
	tci_text_key_number(text, "value", bytes);
	tci_text_raw(text, "}}");
}
