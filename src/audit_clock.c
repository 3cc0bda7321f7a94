/*
 * Vector clocks of commands.
 *
 * A command's clock is the element-wise maximum of its lane predecessor's, of the host program's
 * (the issuing thread passed every earlier wait) and of its dependencies'. Commands that learn
 * nothing new share the clock of their lane predecessor; what differs, the lane's own entry, is
 * the id of the command asked about.
 *
 * A clock is dropped, oldest command first, once the host's clock covers the command: whatever
 * comes later starts from the host's clock. Where a policy never waits, a command older than the
 * window is dropped once every lane that was busy since then covers it. Of what a dependency on
 * such a command tells a lane that was idle all that time, only the command's own end is left: the
 * auditor may then refuse what is safe, never the other way round.
 */
#include "audit_clock.h"

#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

enum { FIRST_LANES = 8192 };

bool tci_clocks_start(struct tci_clocks *clocks, uint32_t lanes)
{
	*clocks = (struct tci_clocks){.lanes = lanes, .free_slot = TC_NONE};
	for (uint32_t l = 0; l < TC_MAX_LANES; l++)
		clocks->lane[l].slot = TC_NONE;
	clocks->lane_of_capacity = FIRST_LANES;
	clocks->lane_of = tc_alloc_array(FIRST_LANES, sizeof *clocks->lane_of);
	return clocks->lane_of != NULL;
}

void tci_clocks_clear(struct tci_clocks *clocks)
{
	free(clocks->entries);
	free(clocks->lane_of);
	free(clocks->values);
	free(clocks->references);
	*clocks = (struct tci_clocks){0};
}

static uint64_t *clock_at(const struct tci_clocks *clocks, uint32_t slot)
{
	return clocks->values + (size_t)slot * clocks->lanes;
}

/** Most machines have eight lanes: a constant, so that it is a few moves. */
static void copy_clock(uint64_t *target, const uint64_t *source, uint32_t lanes)
{
	enum { USUAL = 8 };
	if (lanes == USUAL)
		memcpy(target, source, USUAL * sizeof *target);
	else
		memcpy(target, source, lanes * sizeof *target);
}

/** References of free slots link the free list. */
static bool take_slot(struct tci_clocks *clocks, uint32_t *slot)
{
	if (clocks->free_slot != TC_NONE) {
		*slot = clocks->free_slot;
		clocks->free_slot = clocks->references[*slot];
	} else {
		size_t needed = (size_t)clocks->slot_count + 1;
		if (needed >= TC_NONE ||
		    !tc_grow_array(&clocks->values, &clocks->slot_capacity, needed * clocks->lanes,
		                   sizeof *clocks->values) ||
		    !tc_grow_array(&clocks->references, &clocks->reference_capacity, needed,
		                   sizeof *clocks->references))
			return false;
		*slot = clocks->slot_count++;
	}
	clocks->references[*slot] = 0;
	if (++clocks->slots_used > clocks->peak_slots)
		clocks->peak_slots = clocks->slots_used;
	return true;
}

static void release_slot(struct tci_clocks *clocks, uint32_t slot)
{
	if (slot == TC_NONE || --clocks->references[slot] > 0)
		return;
	clocks->references[slot] = clocks->free_slot;
	clocks->free_slot = slot;
	clocks->slots_used--;
}

static struct tci_clock_entry *entry_of(const struct tci_clocks *clocks, uint64_t id)
{
	return &clocks->entries[id & (clocks->entry_capacity - 1)];
}

static bool grow_entries(struct tci_clocks *clocks)
{
	size_t old = clocks->entry_capacity;
	size_t grown = old == 0 ? 1024 : 2 * old;
	struct tci_clock_entry *entries = tc_alloc_array(grown, sizeof *entries);
	if (entries == NULL)
		return false;
	for (uint64_t id = clocks->front; id < clocks->next; id++)
		entries[id & (grown - 1)] = *entry_of(clocks, id);
	free(clocks->entries);
	clocks->entries = entries;
	clocks->entry_capacity = grown;
	return true;
}

/** While fewer than TCI_CLOCK_LANES commands have come, the lanes of all of them are kept. */
static bool note_lane(struct tci_clocks *clocks, uint64_t id, uint32_t lane)
{
	if (id == clocks->lane_of_capacity && id < TCI_CLOCK_LANES) {
		size_t grown = clocks->lane_of_capacity * 2;
		uint8_t *lanes = realloc(clocks->lane_of, grown);
		if (lanes == NULL)
			return false;
		clocks->lane_of = lanes;
		clocks->lane_of_capacity = grown;
	}
	clocks->lane_of[id & (clocks->lane_of_capacity - 1)] = (uint8_t)lane;
	return true;
}

/** Does every lane that had a command since `id` know that it has ended? */
static bool busy_lanes_cover(const struct tci_clocks *clocks, uint64_t id, uint32_t lane)
{
	for (uint32_t l = 0; l < clocks->lanes; l++) {
		const struct tci_lane_state *state = &clocks->lane[l];
		if (l != lane && state->last > id + 1 &&
		    clock_at(clocks, state->slot)[lane] < id + 1)
			return false;
	}
	return true;
}

static void drop_old(struct tci_clocks *clocks)
{
	while (clocks->front < clocks->next) {
		const struct tci_clock_entry *entry = entry_of(clocks, clocks->front);
		bool known = clocks->host[entry->lane] > clocks->front;
		if (!known && (clocks->next - clocks->front <= TCI_CLOCK_WINDOW ||
		               !busy_lanes_cover(clocks, clocks->front, entry->lane)))
			return;
		release_slot(clocks, entry->slot);
		clocks->front++;
	}
}

/** Element-wise maximum into `now`; true when something rose. */
static bool merge(struct tci_clocks *clocks, const uint64_t *other)
{
	bool rose = false;
	for (uint32_t l = 0; l < clocks->lanes; l++) {
		bool later = other[l] > clocks->now[l];
		clocks->now[l] = later ? other[l] : clocks->now[l];
		rose |= later;
	}
	return rose;
}

/** Of a command whose clock is gone, its own end is still known. */
static bool merge_dropped(struct tci_clocks *clocks, uint64_t id)
{
	if (clocks->next - id > TCI_CLOCK_LANES)
		return false;
	uint64_t *known = &clocks->now[clocks->lane_of[id & (clocks->lane_of_capacity - 1)]];
	if (*known > id)
		return false;
	*known = id + 1;
	return true;
}

static bool merge_dependency(struct tci_clocks *clocks, uint64_t id)
{
	if (id >= clocks->next)
		return false;
	if (id < clocks->front)
		return merge_dropped(clocks, id);
	const struct tci_clock_entry *entry = entry_of(clocks, id);
	if (clocks->now[entry->lane] > id)
		return false; /* covered, and so is all that came before it */
	(void)merge(clocks, clock_at(clocks, entry->slot));
	if (clocks->now[entry->lane] <= id)
		clocks->now[entry->lane] = id + 1;
	return true;
}

bool tci_clocks_issue(struct tci_clocks *clocks, uint32_t lane, const struct tc_dependency *deps,
                      uint32_t dep_count, bool host)
{
	struct tci_lane_state *state = &clocks->lane[lane];
	bool news = state->slot == TC_NONE;
	if (news)
		memset(clocks->now, 0, sizeof clocks->now);
	else
		copy_clock(clocks->now, clock_at(clocks, state->slot), clocks->lanes);
	clocks->now[lane] = state->last;
	if (state->host_version != clocks->host_version) {
		news |= merge(clocks, clocks->host);
		state->host_version = clocks->host_version;
	}
	for (uint32_t d = 0; d < dep_count; d++)
		news |= merge_dependency(clocks, deps[d].id);

	if (clocks->next - clocks->front == clocks->entry_capacity && !grow_entries(clocks))
		return false;
	if (!note_lane(clocks, clocks->next, lane))
		return false;
	if (news) {
		uint32_t slot;
		if (!take_slot(clocks, &slot))
			return false;
		copy_clock(clock_at(clocks, slot), clocks->now, clocks->lanes);
		release_slot(clocks, state->slot);
		clocks->references[slot]++; /* the lane's */
		state->slot = slot;
	}
	clocks->references[state->slot]++; /* the command's */
	*entry_of(clocks, clocks->next) = (struct tci_clock_entry){state->slot, lane};
	state->last = ++clocks->next;
	clocks->now[lane] = state->last;
	if (host) {
		memcpy(clocks->host, clocks->now, sizeof clocks->host);
		state->host_version = ++clocks->host_version;
	}
	drop_old(clocks);
	return true;
}
