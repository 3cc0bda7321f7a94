/*
 * Memory that no policy manages (activations, temporaries, buffers, inputs, op workspace): placed
 * once by best fit over one iteration, at the same offsets in every iteration. All of it is used
 * by the compute lane only, in order, so it needs no dependencies.
 */
#include <stdlib.h>

#include "plan.h"

/** Large enough for any iteration, so that best fit prefers holes and the end only grows. */
#define TCI_UNBOUNDED (UINT64_C(1) << 60)

struct tci_unmanaged {
	struct tc_planner *planner;
	struct tci_arena *arena;
	struct tci_release none;
	bool *alive;
	uint64_t end;
	int64_t live;
	struct tc_error *error;
};

static enum tc_status tci_unmanaged_take(struct tci_unmanaged *u, uint64_t bytes, uint64_t *offset)
{
	struct tci_release ignored;
	if (!tci_arena_take(u->arena, bytes, offset, &ignored, u->error))
		return tc_error_set(u->error, TC_TOO_LARGE,
		                    "the unmanaged tensors of trace %s need more than 2^60 bytes",
		                    u->planner->trace->name);
	if (*offset + bytes > u->end)
		u->end = *offset + bytes;
	return TC_OK;
}

static bool tci_is_unmanaged(const struct tc_planner *planner, uint32_t tensor)
{
	return !planner->tensors[tensor].managed;
}

static uint64_t tci_gpu_bytes(const struct tc_planner *planner, uint32_t tensor)
{
	return tci_align(planner, TC_GPU, planner->tensors[tensor].bytes);
}

static enum tc_status tci_unmanaged_keep(struct tci_unmanaged *u, uint32_t t)
{
	struct tc_planner *planner = u->planner;
	if (!tci_is_unmanaged(planner, t) || !planner->trace->tensors[t].persistent || u->alive[t])
		return TC_OK;
	u->alive[t] = true;
	TC_TRY(tci_unmanaged_take(u, tci_gpu_bytes(planner, t),
	                          &planner->relations[t].unmanaged_offset));
	return tci_memory_change(planner, TC_GPU, planner->tensors[t].kind,
	                         (int64_t)tci_gpu_bytes(planner, t), TC_NO_COMMAND, u->error);
}

/** Persistent tensors lie below everything else: those that steps touch, in order of use, then what
 * nothing touches (a buffer that this model does not read is on its GPU all the same). */
static enum tc_status tci_unmanaged_persistent(struct tci_unmanaged *u)
{
	struct tc_planner *planner = u->planner;
	uint32_t touches = planner->touch_first[planner->steps->step_count];
	for (uint32_t i = 0; i < touches; i++)
		TC_TRY(tci_unmanaged_keep(u, planner->touches[i].tensor));
	for (uint32_t t = 0; t < planner->trace->tensor_count; t++)
		TC_TRY(tci_unmanaged_keep(u, t));
	return TC_OK;
}

static enum tc_status tci_unmanaged_births(struct tci_unmanaged *u, const struct tc_op *op,
                                           struct tci_step_memory *memory)
{
	struct tc_planner *planner = u->planner;
	for (uint32_t i = 0; i < op->allocates.count; i++) {
		uint32_t t = op->allocates.items[i];
		if (!tci_is_unmanaged(planner, t) || u->alive[t])
			continue;
		uint64_t bytes = tci_gpu_bytes(planner, t);
		TC_TRY(tci_unmanaged_take(u, bytes, &planner->relations[t].unmanaged_offset));
		u->alive[t] = true;
		u->live += (int64_t)bytes;
		memory->born[planner->tensors[t].kind] += (int64_t)bytes;
	}
	return TC_OK;
}

static enum tc_status tci_unmanaged_deaths(struct tci_unmanaged *u, const struct tc_op *op,
                                           struct tci_step_memory *memory, const bool *born_here)
{
	struct tc_planner *planner = u->planner;
	struct tc_ids frees = planner->steps->frees == TC_FREES_EAGER ? op->frees_eager : op->frees;
	for (uint32_t i = 0; i < frees.count; i++) {
		uint32_t t = frees.items[i];
		if (!tci_is_unmanaged(planner, t) || !u->alive[t])
			continue;
		int64_t bytes = (int64_t)tci_gpu_bytes(planner, t);
		u->alive[t] = false;
		u->live -= bytes;
		if (born_here[t])
			memory->born[planner->tensors[t].kind] -= bytes;
		else
			memory->died[planner->tensors[t].kind] += bytes;
		TC_TRY(tci_arena_put(u->arena, planner->relations[t].unmanaged_offset,
		                     (uint64_t)bytes, &u->none, u->error));
	}
	return TC_OK;
}

static enum tc_status tci_unmanaged_workspace(struct tci_unmanaged *u, uint32_t op, int64_t start,
                                              struct tci_step_memory *memory)
{
	struct tc_planner *planner = u->planner;
	uint64_t bytes = planner->trace->ops[op].workspace, offset;
	int64_t peak = u->live - start;
	if (bytes > 0) {
		bytes = tci_align(planner, TC_GPU, bytes);
		TC_TRY(tci_unmanaged_take(u, bytes, &offset));
		planner->workspace_offset[op] = offset;
		TC_TRY(tci_arena_put(u->arena, offset, bytes, &u->none, u->error));
		peak += (int64_t)bytes;
	}
	if (peak > memory->peak)
		memory->peak = peak;
	return TC_OK;
}

static enum tc_status tci_unmanaged_step(struct tci_unmanaged *u, uint32_t step, bool *born_here)
{
	struct tc_planner *planner = u->planner;
	const struct tc_step *s = &planner->steps->steps[step];
	struct tci_step_memory *memory = &planner->step_memory[step];
	int64_t start = u->live;
	for (uint32_t o = s->first_op; o <= s->last_op; o++) {
		const struct tc_op *op = &planner->trace->ops[o];
		for (uint32_t i = 0; i < op->allocates.count; i++)
			born_here[op->allocates.items[i]] = true;
		TC_TRY(tci_unmanaged_births(u, op, memory));
		TC_TRY(tci_unmanaged_workspace(u, o, start, memory));
		TC_TRY(tci_unmanaged_deaths(u, op, memory, born_here));
	}
	for (uint32_t o = s->first_op; o <= s->last_op; o++)
		for (uint32_t i = 0; i < planner->trace->ops[o].allocates.count; i++)
			born_here[planner->trace->ops[o].allocates.items[i]] = false;
	return TC_OK;
}

/** What is never freed, or freed by ops that a CPU optimizer replaces, goes when the last step has
 * run: the next iteration starts as this one did. */
static void tci_unmanaged_leftovers(struct tci_unmanaged *u, uint32_t last_compute_step)
{
	struct tc_planner *planner = u->planner;
	for (uint32_t t = 0; t < planner->trace->tensor_count; t++)
		if (u->alive[t] && tci_is_unmanaged(planner, t) &&
		    !planner->trace->tensors[t].persistent)
			planner->step_memory[last_compute_step].died[planner->tensors[t].kind] +=
			    (int64_t)tci_gpu_bytes(planner, t);
}

static enum tc_status tci_unmanaged_run(struct tci_unmanaged *u, bool *born_here)
{
	struct tc_planner *planner = u->planner;
	uint32_t last = 0;
	TC_TRY(tci_unmanaged_persistent(u));
	for (uint32_t s = 0; s < planner->steps->step_count; s++) {
		if (!tci_step_computes(planner, s))
			continue;
		TC_TRY(tci_unmanaged_step(u, s, born_here));
		last = s;
	}
	tci_unmanaged_leftovers(u, last);
	planner->unmanaged_bytes = u->end;
	return tci_pool_add(planner, TC_GPU, "unmanaged", TC_POOL_FIXED, false, u->end,
	                    &planner->unmanaged_pool, u->error);
}

enum tc_status tci_unmanaged_prepare(struct tc_planner *planner, struct tc_error *error)
{
	size_t tensors = (size_t)planner->trace->tensor_count + 1;
	struct tci_unmanaged u = {.planner = planner, .error = error};
	bool *born_here = tc_alloc_array(tensors, sizeof *born_here);
	u.alive = tc_alloc_array(tensors, sizeof *u.alive);
	planner->step_memory =
	    tc_alloc_array((size_t)planner->steps->step_count + 1, sizeof *planner->step_memory);
	planner->workspace_offset =
	    tc_alloc_array((size_t)planner->trace->op_count + 1, sizeof *planner->workspace_offset);
	for (uint32_t o = 0; planner->workspace_offset != NULL && o < planner->trace->op_count; o++)
		planner->workspace_offset[o] = UINT64_MAX;
	enum tc_status status = TC_OK;
	if (born_here == NULL || u.alive == NULL || planner->step_memory == NULL ||
	    planner->workspace_offset == NULL)
		status = tc_error_no_memory(error, "unmanaged memory", tensors);
	if (status == TC_OK)
		status = tci_arena_create(TCI_UNBOUNDED, 1, &u.arena, error);
	if (status == TC_OK)
		status = tci_unmanaged_run(&u, born_here);
	tci_arena_free(u.arena);
	free(u.alive);
	free(born_here);
	return status;
}
