/**
 * @file report_memory.c
 * Memory in use over time. A change takes effect when its command starts or when an earlier command
 * has ended, but never before the host reached the command that carries it: until then the slot was
 * taken. The earlier command may end later than the carrier, or long before it; ends are kept as
 * long as a command that was planned meanwhile can name them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report_parts.h"

__extension__ typedef unsigned __int128 wide;

static struct tci_known_command *known(struct tci_memory *memory, uint64_t id)
{
	return &memory->known[id & (memory->known_capacity - 1)];
}

static enum tc_status grow_known(struct tci_memory *memory, struct tc_error *error)
{
	size_t larger = memory->known_capacity == 0 ? 64 : memory->known_capacity * 2;
	struct tci_known_command *ring = tc_alloc_array(larger, sizeof *ring);
	if (ring == NULL)
		return tc_error_no_memory(error, "unfinished commands of a report", larger);
	for (uint64_t id = memory->first_known; id < memory->next_id; ++id)
		ring[id & (larger - 1)] = *known(memory, id);
	free(memory->known);
	memory->known = ring;
	memory->known_capacity = larger;
	return TC_OK;
}

enum tc_status tci_memory_planned(struct tci_memory *memory, const struct tc_command *command,
                                  struct tc_error *error)
{
	if (command->id != memory->next_id)
		return tc_error_set(error, TC_INTERNAL,
		                    "report: command %" PRIu64 " planned; expected %" PRIu64,
		                    command->id, memory->next_id);
	if (memory->next_id - memory->first_known == memory->known_capacity)
		TC_TRY(grow_known(memory, error));
	*known(memory, memory->next_id++) = (struct tci_known_command){0};
	return TC_OK;
}

static enum tc_status add_event(struct tci_memory *memory, struct tci_memory_event event,
                                struct tc_error *error)
{
	if (event.time <= memory->from) {
		memory->level[event.tier][event.kind] += event.bytes;
		return TC_OK;
	}
	if (!tc_grow_array(&memory->events, &memory->event_capacity, memory->event_count + 1,
	                   sizeof *memory->events))
		return tc_error_no_memory(error, "memory events of a report", memory->event_count);
	memory->events[memory->event_count++] = event;
	return TC_OK;
}

static struct tci_memory_event event_of(const struct tc_memory_change *change, uint64_t time)
{
	return (struct tci_memory_event){time, change->bytes, (uint8_t)change->tier,
	                                 (uint8_t)change->kind};
}

static enum tc_status wait_for(struct tci_memory *memory, struct tci_known_command *other,
                               const struct tc_memory_change *change, struct tc_error *error)
{
	uint32_t index = memory->free_waiting;
	if (index != 0) {
		memory->free_waiting = memory->waiting[index - 1].next;
	} else {
		if (memory->waiting_count == UINT32_MAX ||
		    !tc_grow_array(&memory->waiting, &memory->waiting_capacity,
		                   (size_t)memory->waiting_count + 1, sizeof *memory->waiting))
			return tc_error_no_memory(error, "memory changes of a report",
			                          memory->waiting_count);
		index = ++memory->waiting_count;
	}
	memory->waiting[index - 1] = (struct tci_waiting_change){
	    change->bytes, other->waiting, (uint8_t)change->tier, (uint8_t)change->kind};
	other->waiting = index;
	return TC_OK;
}

static enum tc_status apply(struct tci_memory *memory, const struct tc_command *command,
                            const struct tc_timing *timing, const struct tc_memory_change *change,
                            struct tc_error *error)
{
	if (change->after == TC_NO_COMMAND)
		return add_event(memory, event_of(change, timing->start_ps), error);
	if (change->after > command->id)
		return tc_error_set(error, TC_INTERNAL,
		                    "report: command %" PRIu64
		                    " changes memory after command %" PRIu64 ", which comes later",
		                    command->id, change->after);
	uint64_t time = timing->issue_ps;
	if (change->after >= memory->first_known) {
		struct tci_known_command *other = known(memory, change->after);
		if (!other->finished)
			return wait_for(memory, other, change, error);
		if (other->end > time)
			time = other->end;
	}
	return add_event(memory, event_of(change, time), error);
}

static enum tc_status release_waiting(struct tci_memory *memory, struct tci_known_command *done,
                                      struct tc_error *error)
{
	while (done->waiting != 0) {
		uint32_t index = done->waiting;
		struct tci_waiting_change *waiting = &memory->waiting[index - 1];
		struct tci_memory_event event = {done->end, waiting->bytes, waiting->tier,
		                                 waiting->kind};
		TC_TRY(add_event(memory, event, error));
		done->waiting = waiting->next;
		waiting->next = memory->free_waiting;
		memory->free_waiting = index;
	}
	return TC_OK;
}

enum tc_status tci_memory_finished(struct tci_memory *memory, const struct tc_command *command,
                                   const struct tc_timing *timing, struct tc_error *error)
{
	if (command->id < memory->first_known || command->id >= memory->next_id ||
	    known(memory, command->id)->finished)
		return tc_error_set(error, TC_INTERNAL,
		                    "report: command %" PRIu64
		                    " ended without having been planned, or "
		                    "twice",
		                    command->id);
	struct tci_known_command *self = known(memory, command->id);
	self->end = timing->end_ps;
	self->finished = true;
	self->needed_until = memory->next_id;
	for (uint32_t i = 0; i < command->memory_count; ++i)
		TC_TRY(apply(memory, command, timing, &command->memory[i], error));
	TC_TRY(release_waiting(memory, self, error));
	while (memory->lowest_unfinished < memory->next_id &&
	       known(memory, memory->lowest_unfinished)->finished)
		++memory->lowest_unfinished;
	while (memory->first_known < memory->lowest_unfinished &&
	       known(memory, memory->first_known)->needed_until <= memory->lowest_unfinished)
		++memory->first_known;
	return TC_OK;
}

void tci_memory_boundary(struct tci_memory *memory, uint64_t time)
{
	size_t kept = 0;
	memory->from = time;
	for (size_t i = 0; i < memory->event_count; ++i) {
		const struct tci_memory_event *event = &memory->events[i];
		if (event->time <= time)
			memory->level[event->tier][event->kind] += event->bytes;
		else
			memory->events[kept++] = *event;
	}
	memory->event_count = kept;
}

/** By time; of one instant what is given back comes first, so that memory that passes from one
 * command to the next is not counted twice. What a command takes that takes no time is not counted
 * at all. */
static bool comes_before(const struct tci_memory_event *left, const struct tci_memory_event *right)
{
	return left->time < right->time ||
	       (left->time == right->time && left->bytes < right->bytes);
}

struct spare {
	struct tci_memory_event *events;
	size_t capacity;
};

/** Merge the sorted halves [0, middle) and [middle, count). False when out of memory. */
static bool merge_halves(struct tci_memory_event *events, size_t middle, size_t count,
                         struct spare *spare)
{
	size_t begin = middle;
	while (begin > 0 && comes_before(&events[middle], &events[begin - 1]))
		begin--; /* what comes before stands where it belongs */
	size_t moved = middle - begin, taken = 0, to = begin;
	if (moved == 0)
		return true;
	if (!tc_grow_array(&spare->events, &spare->capacity, moved, sizeof *events))
		return false;
	memcpy(spare->events, events + begin, moved * sizeof *events);
	for (size_t from = middle; taken < moved; to++) {
		bool upper = from < count && comes_before(&events[from], &spare->events[taken]);
		events[to] = upper ? events[from++] : spare->events[taken++];
	}
	return true;
}

/** Merge all pairs of neighbouring runs. */
static bool merge_runs(struct tci_memory *memory, size_t run, struct spare *spare)
{
	for (size_t at = 0; memory->event_count - at > run;) {
		size_t rest = memory->event_count - at;
		size_t both = rest / 2 < run ? rest : 2 * run;
		if (!merge_halves(memory->events + at, run, both, spare))
			return false;
		at += both;
	}
	return true;
}

/** A stable merge sort. Events come nearly sorted (by the end of their commands): each merge then
 * touches the few that overlap, and runs that follow each other are left alone. */
enum tc_status tci_memory_sort(struct tci_memory *memory, struct tc_error *error)
{
	size_t count = memory->event_count;
	struct spare spare = {NULL, 0};
	bool sorted = true;
	for (size_t run = 1; run < count && sorted; run = run > count / 2 ? count : run * 2)
		sorted = merge_runs(memory, run, &spare);
	free(spare.events);
	return sorted ? TC_OK
	              : tc_error_no_memory(error, "memory events of a report",
	                                   count * sizeof *memory->events);
}

static void note_peak(const struct tci_memory *memory, const int64_t *total, size_t tier,
                      size_t kind, struct tc_memory_report *report)
{
	uint64_t use = total[tier] > 0 ? (uint64_t)total[tier] : 0;
	int64_t level = memory->level[tier][kind];
	use += report[tier].fixed_bytes;
	if (use > report[tier].peak_bytes)
		report[tier].peak_bytes = use;
	if (level > 0 && (uint64_t)level > report[tier].kind_peak_bytes[kind])
		report[tier].kind_peak_bytes[kind] = (uint64_t)level;
}

enum tc_status tci_memory_report(struct tci_memory *memory, uint64_t to,
                                 struct tc_memory_report *report, struct tc_error *error)
{
	int64_t total[TC_TIER_COUNT] = {0};
	wide area[TC_TIER_COUNT] = {0};
	for (size_t tier = 0; tier < TC_TIER_COUNT; ++tier)
		for (size_t kind = 0; kind < TC_TENSOR_KIND_COUNT; ++kind)
			total[tier] += memory->level[tier][kind];
	TC_TRY(tci_memory_sort(memory, error));
	for (size_t tier = 0; tier < TC_TIER_COUNT; ++tier)
		for (size_t kind = 0; kind < TC_TENSOR_KIND_COUNT; ++kind)
			note_peak(memory, total, tier, kind, report);
	uint64_t now = memory->from;
	for (size_t i = 0; i <= memory->event_count; ++i) {
		bool more = i < memory->event_count && memory->events[i].time < to;
		uint64_t next = more ? memory->events[i].time : to;
		for (size_t tier = 0; tier < TC_TIER_COUNT; ++tier) {
			/* Within one instant a command without duration gives before it takes. */
			if (total[tier] < 0 && next > now)
				return tc_error_set(
				    error, TC_INTERNAL,
				    "report: more %s memory was given back than taken",
				    tc_tier_name((enum tc_tier)tier));
			area[tier] += (wide)(uint64_t)total[tier] * (next - now);
		}
		now = next;
		if (!more)
			break;
		const struct tci_memory_event *event = &memory->events[i];
		memory->level[event->tier][event->kind] += event->bytes;
		total[event->tier] += event->bytes;
		note_peak(memory, total, event->tier, event->kind, report);
	}
	for (size_t tier = 0; tier < TC_TIER_COUNT; ++tier)
		report[tier].mean_bytes =
		    report[tier].fixed_bytes +
		    (to > memory->from ? (uint64_t)(area[tier] / (to - memory->from)) : 0);
	return TC_OK;
}

void tci_memory_clear(struct tci_memory *memory)
{
	free(memory->known);
	free(memory->waiting);
	free(memory->events);
}
