/**
 * @file timeline_parts.h
 * Inside of the timeline: where arrows start, and the text of one event each. Times are
 * microseconds with six decimals, so that no picosecond is lost.
 */
#ifndef TENCACHE_SRC_TIMELINE_PARTS_H
#define TENCACHE_SRC_TIMELINE_PARTS_H

#include "schedule_text.h"
#include "tencache/timing.h"

/** Where a slice lies: process and thread of the format. */
struct tci_track {
	uint32_t process, thread;
};

/** What `slice` events show of a command beside its name. */
struct tci_slice {
	struct tci_track track;
	const struct tc_plan_info *info;
	const struct tc_command *command;
	const struct tc_timing *timing;
};

/** "fetch model.decoder.layers.3.fc1.weight", "forward model.decoder.layers.3.fc1"; cut to fit. */
void tci_timeline_name(const struct tc_plan_info *info, const struct tc_command *command,
                       char *buffer, size_t bytes);

/** Each begins a new text that holds one event. */
void tci_event_process(struct tci_text *text, uint32_t process, const char *name);
void tci_event_thread(struct tci_text *text, struct tci_track track, const char *name);
void tci_event_slice(struct tci_text *text, const struct tci_slice *slice);
/** The idle time before a compute command, by cause; named after the largest one. */
void tci_event_stall(struct tci_text *text, const struct tci_slice *slice, uint64_t stalled_ps);
/** Start (`finish` false) and end of arrow number `id`. */
void tci_event_arrow(struct tci_text *text, struct tci_track track, uint64_t id, uint64_t ps,
                     bool finish);
void tci_event_memory(struct tci_text *text, uint32_t process, enum tc_tier tier, uint64_t ps,
                      uint64_t bytes);

/* ---------------------------------------------------------------- arrows (timeline_arrow.c) */

/** A command that has ended. */
struct tci_ended {
	uint64_t id, start_ps, end_ps;
	uint32_t thread;
};
/** A wait of the issuing thread, and what of it ended last. */
struct tci_waited {
	uint64_t id;
	struct tci_ended last;
};
struct tci_arrows {
	struct tci_ended *ended; /**< a ring by id */
	/** What the issuing thread waited for and no compute command has followed yet. */
	struct tci_waited *waited;
	size_t waited_count, waited_capacity;
};
/** False when out of memory. */
bool tci_arrows_create(struct tci_arrows *arrows);
void tci_arrows_clear(struct tci_arrows *arrows);
/** A command that is shown has ended. */
enum tc_status tci_arrows_ended(struct tci_arrows *arrows, const struct tc_command *command,
                                const struct tc_timing *timing, uint32_t thread,
                                struct tc_error *error);
/** What a compute command waited for last; false: nothing that is known. Once for each, in the
 * order in which they end. */
bool tci_arrows_source(struct tci_arrows *arrows, const struct tc_command *compute,
                       struct tci_ended *source);

#endif
