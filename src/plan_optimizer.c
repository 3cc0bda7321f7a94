/*
 * The optimizer on the CPU for policies without a path of their own, and what all of them share:
 * derived masters and FP32 gradients, gradients without a bucket, the wait that ends the phase.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

static enum tc_status tci_derive_master(struct tc_planner *planner, uint32_t param,
                                        struct tc_error *error)
{
	char name[256];
	uint32_t made;
	(void)snprintf(name, sizeof name, "%.240s.master", planner->table[param].name);
	TC_TRY(tc_plan_derive(planner, name, TC_OPTIMIZER_STATE, TC_ROLE_MASTER,
	                      planner->tensors[param].bytes, planner->tensors[param].elements,
	                      param, &made, error));
	planner->relations[param].derived_master = made;
	return TC_OK;
}

/** Parameters that the optimizer writes but that have no master in the trace get one. */
static enum tc_status tci_derive_masters(struct tc_planner *planner, struct tc_error *error)
{
	const struct tc_trace *trace = planner->trace;
	for (uint32_t o = 0; o < trace->op_count; o++) {
		if (trace->ops[o].phase != TC_OPTIMIZER)
			continue;
		for (uint32_t i = 0; i < trace->ops[o].writes.count; i++) {
			uint32_t t = trace->ops[o].writes.items[i];
			if (trace->tensors[t].kind == TC_PARAM &&
			    tc_plan_master_of(planner, t) == TC_NONE)
				TC_TRY(tci_derive_master(planner, t, error));
		}
	}
	return TC_OK;
}

static enum tc_status tci_needs_cpu_optimizer(const struct tc_planner *planner,
                                              struct tc_error *error)
{
	if (planner->trace->has_events || planner->trace->bucket_count > 0)
		return TC_OK;
	return tc_error_set(
	    error, TC_INFEASIBLE,
	    "policy %s runs the optimizer on the CPU, but trace %s has neither events "
	    "nor optimizer buckets to say which ops belong together; use a policy "
	    "with optimizer=gpu",
	    planner->choice->text, planner->trace->name);
}

enum tc_status tci_optimizer_prepare(struct tc_planner *planner, struct tc_error *error)
{
	if (!planner->optimizer_on_cpu)
		return TC_OK;
	TC_TRY(tci_needs_cpu_optimizer(planner, error));
	return tci_derive_masters(planner, error);
}

/** FP32 form of a gradient for policies that leave gradients to the planner. */
enum tc_status tci_derive_fp32_gradients(struct tc_planner *planner, struct tc_error *error)
{
	for (uint32_t t = 0; t < planner->trace->tensor_count; t++) {
		const struct tc_tensor *tensor = &planner->trace->tensors[t];
		uint32_t made;
		char name[256];
		if (tensor->kind != TC_GRAD || tensor->dtype == TC_FLOAT32)
			continue;
		(void)snprintf(name, sizeof name, "%.240s.fp32", planner->table[t].name);
		TC_TRY(tc_plan_derive(planner, name, TC_GRAD, TC_ROLE_NONE,
		                      planner->tensors[t].elements * 4,
		                      planner->tensors[t].elements, t, &made, error));
	}
	return TC_OK;
}

/**
 * Copy a gradient to host memory for its update. A transient one leaves the GPU with that; of a
 * persistent one a clean copy stays, which is as good a victim as any other.
 */
static enum tc_status tci_gradient_down(struct tc_planner *planner, uint32_t gradient,
                                        struct tc_error *error)
{
	if (!planner->tensors[gradient].managed || !planner->optimizer_on_cpu)
		return TC_OK;
	uint32_t below = tci_latest_slot(planner, gradient, TC_CPU);
	if (planner->tensors[gradient].slots[TC_GPU] == TCI_NO_SLOT)
		/* A persistent one may have been evicted: that was its way down. */
		return below == TCI_NO_SLOT
		           ? TC_OK
		           : tc_plan_gradient_done(planner, tci_slot_writer(&planner->slots[below]),
		                                   error);
	bool stays = planner->trace->tensors[gradient].persistent;
	struct tc_move_options options = TC_MOVE(stays ? TC_WHY_HOME : TC_WHY_RELEASE);
	options.keep_source = stays;
	bool moved;
	uint64_t id;
	char label[TCI_LABEL_BYTES];
	TC_TRY(tc_plan_move(planner, gradient, planner->default_pool[TC_CPU], TC_NO_POOL, options,
	                    &moved, &id, error));
	if (!moved)
		return tc_error_set(
		    error, TC_INFEASIBLE,
		    "no room in host memory for %s (%llu bytes); use more --cpu-memory",
		    tci_label(planner, gradient, label),
		    (unsigned long long)planner->tensors[gradient].bytes);
	return tc_plan_gradient_done(planner, id, error);
}

/** Is a persistent gradient added to once more in this iteration (by the next micro-batch)? */
static bool tci_gradient_grows(const struct tc_planner *planner, uint32_t gradient)
{
	uint64_t next = tc_plan_next_use(planner, gradient);
	if (!planner->trace->tensors[gradient].persistent || next >= planner->steps->step_count ||
	    planner->steps->steps[next].phase != TC_BACKWARD)
		return false;
	for (uint32_t i = planner->touch_first[next]; i < planner->touch_first[next + 1]; i++)
		if (planner->touches[i].tensor == gradient)
			return planner->touches[i].writes > 0;
	return false;
}

enum tc_status tci_gradient_event(struct tc_planner *planner, uint32_t param,
                                  struct tc_error *error)
{
	uint32_t gradient = planner->relations[param].gradient_of_param;
	if (gradient == TC_NONE || tci_gradient_grows(planner, gradient))
		return TC_OK;
	return tci_gradient_down(planner, gradient, error);
}

/** FP32 copies of the gradients that the ops read, converted on the CPU. */
static enum tc_status tci_convert_gradients(struct tc_planner *planner, uint32_t first_op,
                                            uint32_t last_op, struct tc_error *error)
{
	for (uint32_t o = first_op; o <= last_op; o++) {
		struct tc_ids reads = planner->trace->ops[o].reads;
		for (uint32_t i = 0; i < reads.count; i++) {
			uint32_t t = reads.items[i], derived = planner->tensors[t].first_derived;
			if (planner->tensors[t].kind != TC_GRAD)
				continue;
			if (tci_latest_slot(planner, t, TC_CPU) == TCI_NO_SLOT)
				TC_TRY(tci_gradient_down(planner, t, error));
			if (derived == TC_NONE ||
			    tci_latest_slot(planner, derived, TC_CPU) != TCI_NO_SLOT)
				continue;
			struct tc_convert_options options = {.queue = TC_QUEUE_CPU};
			bool done;
			char label[TCI_LABEL_BYTES];
			TC_TRY(tc_plan_convert(planner, t, derived, planner->default_pool[TC_CPU],
			                       options, &done, NULL, error));
			if (!done)
				return tc_error_set(error, TC_INFEASIBLE,
				                    "no room in host memory for the FP32 form of "
				                    "%s; use more --cpu-memory",
				                    tci_label(planner, t, label));
		}
	}
	return TC_OK;
}

/**
 * With a barrier every gradient is on its way down before the first update. Those with an event are
 * by then; the others, in a trace without events or of parameters that no hook watched, follow
 * here, or have left as victims.
 */
static enum tc_status tci_gradients_before_updates(struct tc_planner *planner,
                                                   struct tc_error *error)
{
	if (!planner->barrier || planner->barrier_met)
		return TC_OK;
	planner->barrier_met = true;
	for (uint32_t t = 0; t < planner->trace->tensor_count; t++)
		if (planner->tensors[t].kind == TC_GRAD)
			TC_TRY(tci_gradient_down(planner, t, error));
	return TC_OK;
}

/** State that lives on NVMe comes to host memory for its update. */
static enum tc_status tci_load_state(struct tc_planner *planner, uint32_t first_op,
                                     uint32_t last_op, struct tc_error *error)
{
	for (uint32_t o = first_op; o <= last_op; o++) {
		struct tc_ids reads = planner->trace->ops[o].reads;
		for (uint32_t i = 0; i < reads.count; i++) {
			uint32_t t = reads.items[i];
			bool moved = true;
			char label[TCI_LABEL_BYTES];
			if (planner->tensors[t].kind == TC_PARAM)
				t = planner->relations[t].derived_master;
			if (t == TC_NONE || planner->tensors[t].kind != TC_OPTIMIZER_STATE ||
			    tci_latest_slot(planner, t, TC_CPU) != TCI_NO_SLOT)
				continue;
			TC_TRY(tc_plan_move(planner, t, planner->default_pool[TC_CPU], TC_NO_POOL,
			                    TC_MOVE(TC_WHY_SWAP), &moved, NULL, error));
			if (!moved)
				return tc_error_set(
				    error, TC_INFEASIBLE,
				    "no room in host memory for %s; use more --cpu-memory",
				    tci_label(planner, t, label));
		}
	}
	return TC_OK;
}

/** Updated state whose home is NVMe goes back there. */
static enum tc_status tci_store_state(struct tc_planner *planner, uint32_t first_op,
                                      uint32_t last_op, struct tc_error *error)
{
	for (uint32_t o = first_op; o <= last_op; o++) {
		struct tc_ids writes = planner->trace->ops[o].writes;
		for (uint32_t i = 0; i < writes.count; i++) {
			uint32_t t = writes.items[i];
			bool moved;
			uint64_t id;
			if (planner->tensors[t].kind == TC_PARAM)
				t = planner->relations[t].derived_master;
			if (t == TC_NONE || planner->tensors[t].slots[TC_NVME] == TCI_NO_SLOT)
				continue;
			uint32_t pool = planner->slots[planner->tensors[t].slots[TC_NVME]].pool;
			struct tc_move_options options = TC_MOVE(TC_WHY_SWAP);
			options.keep_source = false;
			TC_TRY(tc_plan_move(planner, t, pool, TC_NO_POOL, options, &moved, &id,
			                    error));
			tci_note_lane(planner, &planner->end_last, id);
		}
	}
	return TC_OK;
}

static enum tc_status tci_default_update(struct tc_planner *planner, uint32_t first_op,
                                         uint32_t last_op, struct tc_error *error)
{
	TC_TRY(tci_gradients_before_updates(planner, error));
	TC_TRY(tci_convert_gradients(planner, first_op, last_op, error));
	TC_TRY(tci_load_state(planner, first_op, last_op, error));
	TC_TRY(tc_plan_update(planner, first_op, last_op, NULL, error));
	for (uint32_t o = first_op; o <= last_op; o++) {
		struct tc_ids writes = planner->trace->ops[o].writes;
		for (uint32_t i = 0; i < writes.count; i++)
			if (planner->tensors[writes.items[i]].kind == TC_PARAM)
				TC_TRY(tc_plan_publish(planner, writes.items[i], error));
	}
	return tci_store_state(planner, first_op, last_op, error);
}

enum tc_status tci_optimizer_run(struct tc_planner *planner, uint32_t step, struct tc_error *error)
{
	const struct tc_step *s = &planner->steps->steps[step];
	for (uint32_t op = s->first_op; op <= s->last_op; op++) {
		/* The whole update, even where finer steps split it: the first of them runs it. Ops
		 * of norm events and scaling are work of converts and updates. */
		uint32_t last = tc_plan_update_last(planner, op);
		if (last == TC_NONE)
			continue;
		uint32_t event = planner->trace->ops[op].event;
		TC_TRY(planner->policy->optimizer_event != NULL
		           ? planner->policy->optimizer_event(planner->policy_self, planner, event,
		                                              op, last, error)
		           : tci_default_update(planner, op, last, error));
	}
	return TC_OK;
}

enum tc_status tci_optimizer_end(struct tc_planner *planner, struct tc_error *error)
{
	uint64_t ids[TC_MAX_LANES];
	size_t count = 0;
	for (uint32_t lane = 0; lane < planner->lane_count; lane++)
		if (planner->end_last.last[lane] != 0)
			ids[count++] = planner->end_last.last[lane] - 1;
	planner->end_last = planner->barrier_last = (struct tci_release){{0}};
	planner->barrier_met = false;
	/* A real optimizer.step() waits for its updates; who reorders steps has none. */
	return planner->optimizer_on_cpu && planner->reordered == NULL
	           ? tc_plan_wait(planner, ids, count, error)
	           : TC_OK;
}
