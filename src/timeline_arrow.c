/**
 * @file timeline_arrow.c
 * Where the arrow to a compute command starts: at the data dependency that ended last, its own or
 * one that the issuing thread waited for in its place. The last commands are remembered in a ring
 * by id; one so old that it was overwritten did not hold anything up.
 */
#include <stdlib.h>

#include "tencache/units.h"
#include "timeline_parts.h"

/** At 50,000 commands an iteration, more than one iteration. */
#define REMEMBERED 65536u

bool tci_arrows_create(struct tci_arrows *arrows)
{
	*arrows = (struct tci_arrows){.ended = tc_alloc_array(REMEMBERED, sizeof *arrows->ended)};
	if (arrows->ended == NULL)
		return false;
	for (size_t i = 0; i < REMEMBERED; ++i)
		arrows->ended[i].id = TC_NO_COMMAND;
	return true;
}

void tci_arrows_clear(struct tci_arrows *arrows)
{
	free(arrows->ended);
	free(arrows->waited);
	*arrows = (struct tci_arrows){0};
}

static void take_later(const struct tci_ended **last, const struct tci_ended *other)
{
	if (*last == NULL || other->end_ps > (*last)->end_ps ||
	    (other->end_ps == (*last)->end_ps && other->id < (*last)->id))
		*last = other;
}

/** The dependency that ended last (ties: the smaller id), or NULL. Of a compute command those that
 * bring data count. */
static const struct tci_ended *last_dependency(const struct tci_arrows *arrows,
                                               const struct tc_command *command)
{
	const struct tci_ended *last = NULL;
	for (uint32_t i = 0; i < command->dep_count; ++i) {
		if (command->kind != TC_WAIT && command->deps[i].reason != TC_REASON_DATA)
			continue;
		uint64_t id = command->deps[i].id;
		const struct tci_ended *found = &arrows->ended[id % REMEMBERED];
		if (found->id == id)
			take_later(&last, found);
	}
	return last;
}

/** Where the issuing thread waits for data, the compute command behind has no dependency left. */
static enum tc_status note_wait(struct tci_arrows *arrows, const struct tc_command *command,
                                struct tc_error *error)
{
	const struct tci_ended *last = last_dependency(arrows, command);
	if (last == NULL)
		return TC_OK;
	if (!tc_grow_array(&arrows->waited, &arrows->waited_capacity, arrows->waited_count + 1,
	                   sizeof *arrows->waited))
		return tc_error_no_memory(error, "waits of a timeline", arrows->waited_count);
	arrows->waited[arrows->waited_count++] = (struct tci_waited){command->id, *last};
	return TC_OK;
}

/** What ended last of the waits before a compute command, which are forgotten; `none` before. */
static struct tci_ended take_waited(struct tci_arrows *arrows, uint64_t id)
{
	struct tci_ended none = {.id = TC_NO_COMMAND}, found = none;
	const struct tci_ended *last = NULL;
	size_t kept = 0;
	for (size_t i = 0; i < arrows->waited_count; ++i) {
		if (arrows->waited[i].id < id) {
			take_later(&last, &arrows->waited[i].last);
			found = *last;
			last = &found;
		} else {
			arrows->waited[kept++] = arrows->waited[i];
		}
	}
	arrows->waited_count = kept;
	return found;
}

enum tc_status tci_arrows_ended(struct tci_arrows *arrows, const struct tc_command *command,
                                const struct tc_timing *timing, uint32_t thread,
                                struct tc_error *error)
{
	arrows->ended[command->id % REMEMBERED] = (struct tci_ended){.id = command->id,
	                                                             .start_ps = timing->start_ps,
	                                                             .end_ps = timing->end_ps,
	                                                             .thread = thread};
	return command->kind == TC_WAIT ? note_wait(arrows, command, error) : TC_OK;
}

bool tci_arrows_source(struct tci_arrows *arrows, const struct tc_command *compute,
                       struct tci_ended *source)
{
	const struct tci_ended waited = take_waited(arrows, compute->id);
	const struct tci_ended *last = last_dependency(arrows, compute);
	if (waited.id != TC_NO_COMMAND)
		take_later(&last, &waited);
	if (last == NULL)
		return false;
	*source = *last;
	return true;
}
