/*
 * What each step does to each tensor, prepared once: access, versions gained, birth and death; the
 * compute steps that use a tensor (a use by a CPU update is none of the GPU's); how long a step
 * computes; and what must fit at once.
 */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

bool tci_step_computes(const struct tc_planner *planner, uint32_t step)
{
	return !(planner->optimizer_on_cpu && planner->steps->steps[step].phase == TC_OPTIMIZER);
}

/** Index of the tensor among the touches of the step being built, by a stamp per tensor. */
struct tci_touch_builder {
	struct tc_planner *planner;
	uint32_t *index; /**< per tensor: touch index + 1, valid if >= first + 1 */
	uint32_t first, count;
	struct tc_error *error;
};

static struct tci_touch *tci_touch_of(struct tci_touch_builder *builder, uint32_t tensor,
                                      enum tc_access access, bool *fresh)
{
	struct tc_planner *planner = builder->planner;
	uint32_t at = builder->index[tensor];
	*fresh = at < builder->first + 1;
	if (!*fresh)
		return &planner->touches[at - 1];
	if (!tc_grow_array(&planner->touches, &planner->touch_capacity, builder->count + 1u,
	                   sizeof *planner->touches)) {
		(void)tc_error_no_memory(builder->error, "touches", builder->count);
		return NULL;
	}
	struct tci_touch *touch = &planner->touches[builder->count++];
	builder->index[tensor] = builder->count;
	*touch = (struct tci_touch){.tensor = tensor, .access = access};
	return touch;
}

static enum tc_status tci_touch_ids(struct tci_touch_builder *builder, struct tc_ids ids,
                                    enum tc_access access)
{
	for (uint32_t i = 0; i < ids.count; i++) {
		bool fresh;
		struct tci_touch *touch = tci_touch_of(builder, ids.items[i], access, &fresh);
		if (touch == NULL)
			return TC_NO_MEMORY;
		if (!fresh && access == TC_WRITE && touch->access == TC_READ)
			touch->access = TC_READ_WRITE;
		if (access == TC_WRITE)
			touch->writes++;
	}
	return TC_OK;
}

static enum tc_status tci_touch_op(struct tci_touch_builder *builder, const struct tc_op *op)
{
	bool fresh;
	for (uint32_t i = 0; i < op->allocates.count; i++) {
		struct tci_touch *touch =
		    tci_touch_of(builder, op->allocates.items[i], TC_WRITE, &fresh);
		if (touch == NULL)
			return TC_NO_MEMORY;
		touch->born = true;
	}
	TC_TRY(tci_touch_ids(builder, op->reads, TC_READ));
	TC_TRY(tci_touch_ids(builder, op->writes, TC_WRITE));
	for (uint32_t i = 0; op->write_ranges != NULL && i < op->writes.count; i++) {
		/* A partial write keeps the rest of the content. */
		struct tci_touch *touch =
		    tci_touch_of(builder, op->writes.items[i], TC_WRITE, &fresh);
		if (!touch->born)
			touch->access = TC_READ_WRITE;
	}
	struct tc_ids frees =
	    builder->planner->steps->frees == TC_FREES_EAGER ? op->frees_eager : op->frees;
	for (uint32_t i = 0; i < frees.count; i++) {
		struct tci_touch *touch = tci_touch_of(builder, frees.items[i], TC_READ, &fresh);
		if (touch == NULL)
			return TC_NO_MEMORY;
		touch->dies = true;
	}
	return TC_OK;
}

static enum tc_status tci_touch_step(struct tci_touch_builder *builder, uint32_t step)
{
	struct tc_planner *planner = builder->planner;
	const struct tc_step *s = &planner->steps->steps[step];
	planner->touch_first[step] = builder->first = builder->count;
	if (!tci_step_computes(planner, step))
		return TC_OK;
	/* Requests first: they are what must be there when the step is asked for, in their order.
	 */
	TC_TRY(tci_touch_ids(builder, s->requested, TC_READ));
	TC_TRY(tci_touch_ids(builder, s->unpacks, TC_READ));
	uint64_t total = 0;
	for (uint32_t o = s->first_op; o <= s->last_op; o++) {
		uint64_t ps;
		TC_TRY(tci_touch_op(builder, &planner->trace->ops[o]));
		TC_TRY(tc_machine_op_ps(planner->machine, planner->trace, o, &ps, builder->error));
		if (!tc_add_u64(total, ps, &total))
			return tc_error_set(builder->error, TC_TOO_LARGE,
			                    "step %u takes longer than 2^64 ps", step);
	}
	planner->step_ps[step] = total;
	return TC_OK;
}

/** Uses on the GPU of each tensor, ascending, from the touches. */
static enum tc_status tci_gpu_uses(struct tc_planner *planner, struct tc_error *error)
{
	uint32_t steps = planner->steps->step_count, tensors = planner->trace->tensor_count;
	uint32_t total = planner->touch_first[steps];
	planner->gpu_use_first = tc_alloc_array((size_t)tensors + 1, sizeof(uint32_t));
	planner->gpu_use_next = tc_alloc_array((size_t)tensors + 1, sizeof(uint32_t));
	planner->gpu_uses = tc_alloc_array((size_t)total + 1, sizeof(uint32_t));
	if (planner->gpu_use_first == NULL || planner->gpu_use_next == NULL ||
	    planner->gpu_uses == NULL)
		return tc_error_no_memory(error, "uses", total);
	for (uint32_t i = 0; i < total; i++)
		planner->gpu_use_first[planner->touches[i].tensor + 1]++;
	for (uint32_t t = 0; t < tensors; t++)
		planner->gpu_use_first[t + 1] += planner->gpu_use_first[t];
	memcpy(planner->gpu_use_next, planner->gpu_use_first, (size_t)tensors * sizeof(uint32_t));
	for (uint32_t s = 0; s < steps; s++)
		for (uint32_t i = planner->touch_first[s]; i < planner->touch_first[s + 1]; i++)
			planner->gpu_uses[planner->gpu_use_next[planner->touches[i].tensor]++] = s;
	memcpy(planner->gpu_use_next, planner->gpu_use_first, (size_t)tensors * sizeof(uint32_t));
	return TC_OK;
}

/** Gradients stay on the GPU from birth until their gradient event. */
struct tci_gradient_walk {
	bool *alive, *has_event;
	uint64_t bytes;
};

static void tci_gradient_leaves(struct tc_planner *planner, struct tci_gradient_walk *walk,
                                uint32_t gradient)
{
	if (gradient == TC_NONE || !walk->alive[gradient])
		return;
	walk->alive[gradient] = false;
	walk->bytes -= tci_align(planner, TC_GPU, planner->tensors[gradient].bytes);
}

static void tci_gradient_events(struct tc_planner *planner, struct tci_gradient_walk *walk,
                                uint32_t step)
{
	const struct tc_step *s = &planner->steps->steps[step];
	for (uint32_t e = s->first_event; e < s->first_event + s->event_count; e++) {
		const struct tc_event *event = &planner->trace->events[e];
		if (event->kind != TC_EVENT_GRADIENT)
			continue;
		tci_gradient_leaves(planner, walk,
		                    planner->relations[event->tensor].gradient_of_param);
	}
}

/** An update that comes before the gradient event takes the gradient with it. */
static void tci_gradient_updates(struct tc_planner *planner, struct tci_gradient_walk *walk,
                                 uint32_t step)
{
	const struct tc_step *s = &planner->steps->steps[step];
	for (uint32_t i = planner->touch_first[step]; i < planner->touch_first[step + 1]; i++)
		if (planner->touches[i].dies)
			tci_gradient_leaves(planner, walk, planner->touches[i].tensor);
	for (uint32_t i = 0; !tci_step_computes(planner, step) && i < s->reads.count; i++)
		tci_gradient_leaves(planner, walk, s->reads.items[i]);
}

static uint64_t tci_step_need(struct tc_planner *planner, struct tci_gradient_walk *walk,
                              uint32_t step)
{
	uint64_t need = 0;
	for (uint32_t i = planner->touch_first[step]; i < planner->touch_first[step + 1]; i++) {
		const struct tci_touch *touch = &planner->touches[i];
		if (!planner->tensors[touch->tensor].managed || walk->alive[touch->tensor])
			continue;
		uint64_t bytes = tci_align(planner, TC_GPU, planner->tensors[touch->tensor].bytes);
		if (touch->born && walk->has_event[touch->tensor]) {
			walk->alive[touch->tensor] = true;
			walk->bytes += bytes;
		} else {
			need += bytes;
		}
	}
	if (walk->bytes > planner->gradient_peak)
		planner->gradient_peak = walk->bytes;
	return need + walk->bytes;
}

static enum tc_status tci_needs(struct tc_planner *planner, struct tc_error *error)
{
	uint32_t tensors = planner->trace->tensor_count;
	struct tci_gradient_walk walk = {.alive = tc_alloc_array((size_t)tensors + 1, sizeof(bool)),
	                                 .has_event =
	                                     tc_alloc_array((size_t)tensors + 1, sizeof(bool))};
	enum tc_status status = TC_OK;
	if (walk.alive == NULL || walk.has_event == NULL) {
		status = tc_error_no_memory(error, "needs of the steps", tensors);
	} else {
		for (uint32_t e = 0; e < planner->trace->event_count; e++) {
			const struct tc_event *event = &planner->trace->events[e];
			if (event->kind != TC_EVENT_GRADIENT)
				continue;
			uint32_t gradient = planner->relations[event->tensor].gradient_of_param;
			if (gradient != TC_NONE)
				walk.has_event[gradient] = true;
		}
		for (uint32_t s = 0; s < planner->steps->step_count; s++) {
			tci_gradient_events(planner, &walk, s);
			uint64_t need = tci_step_need(planner, &walk, s);
			if (need > planner->largest_need) {
				planner->largest_need = need;
				planner->largest_need_step = s;
			}
			tci_gradient_updates(planner, &walk, s);
		}
	}
	free(walk.alive);
	free(walk.has_event);
	return status;
}

enum tc_status tci_touch_prepare(struct tc_planner *planner, struct tc_error *error)
{
	uint32_t steps = planner->steps->step_count;
	struct tci_touch_builder builder = {
	    .planner = planner,
	    .index = tc_alloc_array((size_t)planner->trace->tensor_count + 1, sizeof(uint32_t)),
	    .error = error};
	planner->touch_first = tc_alloc_array((size_t)steps + 1, sizeof(uint32_t));
	planner->step_ps = tc_alloc_array((size_t)steps + 1, sizeof(uint64_t));
	if (builder.index == NULL || planner->touch_first == NULL || planner->step_ps == NULL) {
		free(builder.index);
		return tc_error_no_memory(error, "touches of the steps", steps);
	}
	enum tc_status status = TC_OK;
	for (uint32_t s = 0; s < steps && status == TC_OK; s++)
		status = tci_touch_step(&builder, s);
	planner->touch_first[steps] = builder.count;
	free(builder.index);
	TC_TRY(status);
	TC_TRY(tci_gpu_uses(planner, error));
	return tci_needs(planner, error);
}

void tci_touch_free(struct tc_planner *planner)
{
	free(planner->touches);
	free(planner->touch_first);
	free(planner->step_memory);
	free(planner->step_ps);
	free(planner->gpu_use_first);
	free(planner->gpu_use_next);
	free(planner->gpu_uses);
	free(planner->workspace_offset);
	free(planner->update_last);
}
