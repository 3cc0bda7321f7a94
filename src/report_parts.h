/**
 * @file report_parts.h
 * Inside of the report: one part per question, each fed by report.c.
 *
 * Commands arrive in the order in which they end, so what lies in a period is known only
 * afterwards. Each part keeps what could still belong to the reported period and drops the rest at
 * every boundary (the start of an iteration's first compute command).
 */
#ifndef TENCACHE_REPORT_PARTS_H
#define TENCACHE_REPORT_PARTS_H

#include "tencache/report.h"
#include "tencache/units.h"

/* ---------------------------------------------------------------- busy time (report_busy.c) */

struct tci_interval {
	uint64_t start, end;
};
/** Disjoint intervals of one queue, ascending. */
struct tci_busy {
	struct tci_interval *intervals;
	size_t count, capacity;
};
/** Add [start, end]; ends must not fall. */
enum tc_status tci_busy_add(struct tci_busy *busy, uint64_t start, uint64_t end,
                            struct tc_error *error);
/** Forget what ended at or before `time`. */
void tci_busy_drop(struct tci_busy *busy, uint64_t time);
/** Length of the union within [from, to]. */
uint64_t tci_busy_within(const struct tci_busy *busy, uint64_t from, uint64_t to);

/* ---------------------------------------------------------------- memory (report_memory.c) */

/** A command that was planned and may still be asked for its end. */
struct tci_known_command {
	uint64_t end;
	uint64_t needed_until; /**< commands below this id may name it */
	uint32_t waiting;      /**< first change that waits for its end, index + 1 */
	bool finished;
};
/** A change whose `after` has not ended, though the command that carries it has (and so was issued
 * before that end). */
struct tci_waiting_change {
	int64_t bytes;
	uint32_t next; /**< index + 1 */
	uint8_t tier, kind;
};
struct tci_memory_event {
	uint64_t time;
	int64_t bytes;
	uint8_t tier, kind;
};
struct tci_memory {
	struct tci_known_command *known; /**< a ring, commands first_known ... next_id - 1 */
	size_t known_capacity;           /**< power of two */
	uint64_t first_known, lowest_unfinished, next_id;
	struct tci_waiting_change *waiting;
	size_t waiting_capacity;
	uint32_t waiting_count, free_waiting;
	struct tci_memory_event *events; /**< later than `from` */
	size_t event_count, event_capacity;
	uint64_t from;
	int64_t level[TC_TIER_COUNT][TC_TENSOR_KIND_COUNT]; /**< at `from` */
};
enum tc_status tci_memory_planned(struct tci_memory *memory, const struct tc_command *command,
                                  struct tc_error *error);
enum tc_status tci_memory_finished(struct tci_memory *memory, const struct tc_command *command,
                                   const struct tc_timing *timing, struct tc_error *error);
/** The period that may be reported starts at `time`. */
void tci_memory_boundary(struct tci_memory *memory, uint64_t time);
/** The events in the order of their times, for what walks through them. */
enum tc_status tci_memory_sort(struct tci_memory *memory, struct tc_error *error);
/** Peak and mean of each tier over [from, to]; `report[tier]` has capacity_bytes and fixed_bytes.
 * Sorts the events. */
enum tc_status tci_memory_report(struct tci_memory *memory, uint64_t to,
                                 struct tc_memory_report *report, struct tc_error *error);
void tci_memory_clear(struct tci_memory *memory);

/* ---------------------------------------------------------------- periods (report_time.c) */

struct tci_times {
	uint32_t wanted;      /**< the iteration that is reported */
	uint32_t period;      /**< of the policy */
	bool started, closed; /**< the first compute command has passed; so has the closing one */
	uint32_t current;     /**< iteration whose first compute command was the last boundary */
	uint64_t boundary, previous_end;
	bool has_previous;
	bool has_optimizer; /**< a command of the optimizer phase was planned */
	enum tc_phase last_phase;
	uint64_t initial_ps;
	uint64_t first_boundaries[2]; /**< starts of iterations 0 and 1 */
	uint64_t wanted_start, wanted_end;
	uint64_t shortest, longest;
	uint64_t *durations;  /**< of the last 2 x period iterations up to the wanted one */
	uint64_t *signatures; /**< residency of the same */
	struct tc_phase_report phases[TC_PHASE_COUNT]; /**< times only */
	uint64_t stalls[TC_STALL_CAUSE_COUNT];
	uint64_t *module_stalls; /**< module_count + 1, the last for no module */
	uint32_t module_count;
};
/** @param boundary receives whether the wanted or an earlier iteration starts with this command */
enum tc_status tci_times_finished(struct tci_times *times, const struct tc_command *command,
                                  const struct tc_timing *timing, uint32_t module, bool *boundary,
                                  struct tc_error *error);
/** Index into durations and signatures, or UINT32_MAX. */
uint32_t tci_times_slot(const struct tci_times *times, uint32_t iteration);
bool tci_times_steady(const struct tci_times *times);

/* ---------------------------------------------------------------- counts (report_counts.c) */

struct tci_counts {
	struct tc_phase_report phases[TC_PHASE_COUNT]; /**< hits */
	uint64_t moves[TC_PHASE_COUNT][TC_TENSOR_KIND_COUNT]
	              [4]; /**< fetches, bytes, evictions, bytes */
	struct tc_transfer_report transfers[TC_QUEUE_COUNT];
	uint64_t commands, read_misses, recompute_requests;
};
/** A command of the reported iteration. `recompute`: how many of its requests are of that pass. */
void tci_counts_add(struct tci_counts *counts, const struct tc_plan_info *info,
                    const struct tc_command *command, const struct tc_timing *timing,
                    uint32_t recompute);
/** Fetches and evictions of the kinds that are requested anywhere go into the phases. */
void tci_counts_finish(struct tci_counts *counts);
/** What a command says about residency, as a number that does not depend on timing. */
uint64_t tci_counts_signature(const struct tc_command *command);

#endif
