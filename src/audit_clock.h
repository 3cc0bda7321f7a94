/** @file audit_clock.h
 * Private: vector clocks over lanes. Entry l of a command's clock is id + 1 of the last command of
 * lane l that has certainly ended when the command starts (0: none). Method: src/AUDIT.md.
 */
#ifndef TENCACHE_SRC_AUDIT_CLOCK_H
#define TENCACHE_SRC_AUDIT_CLOCK_H

#include "tencache/schedule.h"

/** Clocks of this many of the newest commands are kept in any case. */
#define TCI_CLOCK_WINDOW ((uint64_t)1 << 16)
/** Of this many of the newest commands the lane is known. */
#define TCI_CLOCK_LANES ((uint64_t)1 << 20)

struct tci_lane_state {
	uint64_t last;         /**< id + 1 of the lane's newest command; 0: none */
	uint64_t host_version; /**< of the host clock merged last */
	uint32_t slot;         /**< its clock, or TC_NONE */
};

/** What is kept of a command: its lane and its clock, which neighbours on a lane may share. */
struct tci_clock_entry {
	uint32_t slot;
	uint32_t lane;
};

struct tci_clocks {
	uint32_t lanes;
	struct tci_lane_state lane[TC_MAX_LANES];
	uint64_t host[TC_MAX_LANES]; /**< what has ended wherever the host program stands */
	uint64_t host_version;
	uint64_t now[TC_MAX_LANES]; /**< the newest command's clock, itself included */

	struct tci_clock_entry *entries; /**< ring of commands front ... next - 1 */
	size_t entry_capacity;           /**< a power of two */
	uint64_t front, next;

	uint8_t *lane_of;        /**< ring, of up to TCI_CLOCK_LANES */
	size_t lane_of_capacity; /**< a power of two */

	uint64_t *values; /**< `lanes` of each clock */
	uint32_t *references;
	size_t slot_capacity, reference_capacity;
	uint32_t slot_count, free_slot, slots_used;
	uint64_t peak_slots;
};

/** False when out of memory; clear in any case. */
bool tci_clocks_start(struct tci_clocks *clocks, uint32_t lanes);
void tci_clocks_clear(struct tci_clocks *clocks);
/**
 * The next command (ids are dense from 0) enters on `lane` with these dependencies, of which those
 * on itself or later ones are ignored. Leaves its clock in `now`. `host`: a command that blocks
 * the issuing thread, so that everything later comes after it.
 * @return false when out of memory
 */
bool tci_clocks_issue(struct tci_clocks *clocks, uint32_t lane, const struct tc_dependency *deps,
                      uint32_t dep_count, bool host);

#endif
