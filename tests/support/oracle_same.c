/*
 * Are two schedules the same, field by field?
 */
#include <string.h>

#include "oracle.h"

static bool same_place(struct tc_place a, struct tc_place b)
{
	return a.pool == b.pool && a.offset == b.offset;
}

static bool same_lists(const struct tc_command *a, const struct tc_command *b)
{
	bool same = a->dep_count == b->dep_count && a->bind_count == b->bind_count &&
	            a->served_count == b->served_count && a->memory_count == b->memory_count;
	for (uint32_t i = 0; same && i < a->dep_count; i++)
		same = a->deps[i].id == b->deps[i].id && a->deps[i].reason == b->deps[i].reason;
	for (uint32_t i = 0; same && i < a->bind_count; i++)
		same = a->binds[i].tensor == b->binds[i].tensor &&
		       a->binds[i].pool == b->binds[i].pool &&
		       a->binds[i].offset == b->binds[i].offset &&
		       a->binds[i].bytes == b->binds[i].bytes &&
		       a->binds[i].version == b->binds[i].version &&
		       a->binds[i].access == b->binds[i].access;
	for (uint32_t i = 0; same && i < a->served_count; i++)
		same = a->served[i].tensor == b->served[i].tensor &&
		       a->served[i].outcome == b->served[i].outcome &&
		       a->served[i].is_request == b->served[i].is_request &&
		       a->served[i].always_resident == b->served[i].always_resident &&
		       a->served[i].served_by == b->served[i].served_by;
	for (uint32_t i = 0; same && i < a->memory_count; i++)
		same = a->memory[i].bytes == b->memory[i].bytes &&
		       a->memory[i].after == b->memory[i].after &&
		       a->memory[i].tier == b->memory[i].tier &&
		       a->memory[i].kind == b->memory[i].kind;
	return same;
}

bool oracle_same_command(const struct tc_command *a, const struct tc_command *b)
{
	return a->id == b->id && a->rank == b->rank && a->iteration == b->iteration &&
	       a->step == b->step && a->queue == b->queue && a->lane == b->lane &&
	       a->kind == b->kind && a->why == b->why && a->phase == b->phase &&
	       a->tensor == b->tensor && a->version == b->version &&
	       a->tensor_offset == b->tensor_offset && a->bytes == b->bytes &&
	       a->pageable == b->pageable && a->last_chunk == b->last_chunk &&
	       a->first_chunk == b->first_chunk && same_place(a->src, b->src) &&
	       same_place(a->dst, b->dst) && a->first_op == b->first_op &&
	       a->last_op == b->last_op && a->duration_ps == b->duration_ps &&
	       a->traffic_bytes == b->traffic_bytes && a->elements == b->elements &&
	       a->launches == b->launches && a->hooks == b->hooks && same_lists(a, b);
}

static bool same_info(const struct tc_plan_info *a, const struct tc_plan_info *b)
{
	bool same =
	    strcmp(a->policy, b->policy) == 0 && strcmp(a->trace_name, b->trace_name) == 0 &&
	    strcmp(a->trace_sha256, b->trace_sha256) == 0 &&
	    strcmp(a->events_sha256, b->events_sha256) == 0 &&
	    strcmp(a->machine_sha256, b->machine_sha256) == 0 && a->staleness == b->staleness &&
	    a->drives == b->drives && a->scale == b->scale && a->iterations == b->iterations &&
	    a->unlimited_memory == b->unlimited_memory && a->reordered == b->reordered &&
	    memcmp(a->lanes, b->lanes, sizeof a->lanes) == 0 &&
	    memcmp(a->fixed_bytes, b->fixed_bytes, sizeof a->fixed_bytes) == 0 &&
	    a->pool_count == b->pool_count && a->tensor_count == b->tensor_count &&
	    a->copy_count == b->copy_count;
	for (uint32_t p = 0; same && p < a->pool_count; p++)
		same = strcmp(a->pools[p].name, b->pools[p].name) == 0 &&
		       a->pools[p].tier == b->pools[p].tier &&
		       a->pools[p].kind == b->pools[p].kind &&
		       a->pools[p].pinned == b->pools[p].pinned &&
		       a->pools[p].bytes == b->pools[p].bytes;
	for (uint32_t t = 0; same && t < a->tensor_count; t++)
		same =
		    strcmp(a->tensors[t].name, b->tensors[t].name) == 0 &&
		    a->tensors[t].kind == b->tensors[t].kind &&
		    a->tensors[t].role == b->tensors[t].role &&
		    a->tensors[t].bytes == b->tensors[t].bytes &&
		    a->tensors[t].derived_from == b->tensors[t].derived_from &&
		    a->tensors[t].home == b->tensors[t].home &&
		    a->tensors[t].placed == b->tensors[t].placed &&
		    (!a->tensors[t].placed || same_place(a->tensors[t].start, b->tensors[t].start));
	for (uint32_t c = 0; same && c < a->copy_count; c++)
		same = a->copies[c].tensor == b->copies[c].tensor &&
		       same_place(a->copies[c].place, b->copies[c].place);
	return same;
}

bool oracle_same_schedule(const struct tc_schedule *a, const struct tc_schedule *b)
{
	bool same = same_info(&a->info, &b->info) && a->command_count == b->command_count &&
	            a->end.command_count == b->end.command_count &&
	            a->end.place_count == b->end.place_count;
	for (uint64_t c = 0; same && c < a->command_count; c++)
		same = oracle_same_command(&a->commands[c], &b->commands[c]);
	for (uint32_t p = 0; same && p < a->end.place_count; p++)
		same = a->end.places[p].tensor == b->end.places[p].tensor &&
		       a->end.places[p].version == b->end.places[p].version &&
		       same_place(a->end.places[p].place, b->end.places[p].place);
	return same;
}
