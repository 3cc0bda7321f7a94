/*
 * What zero-infinity needs to know about a trace and never changes: the accesses of modules that
 * own parameters, the queue of the prefetcher, and the sub-groups of the optimizer.
 */
#include <stdlib.h>

#include "tencache/units.h"
#include "zero_infinity.h"

enum tc_status tci_zero_push(struct tci_zero_list *list, uint32_t id, struct tc_error *error)
{
	if (!tc_grow_array(&list->items, &list->capacity, list->count + 1, sizeof *list->items))
		return tc_error_no_memory(error, "list of tensors",
		                          (uint64_t)list->count * sizeof *list->items);
	list->items[list->count++] = id;
	return TC_OK;
}

enum tc_status tci_zero_push_command(struct tci_zero_commands *list, uint64_t id,
                                     struct tc_error *error)
{
	if (id == TC_NO_COMMAND)
		return TC_OK;
	if (!tc_grow_array(&list->items, &list->capacity, list->count + 1, sizeof *list->items))
		return tc_error_no_memory(error, "list of commands",
		                          (uint64_t)list->count * sizeof *list->items);
	list->items[list->count++] = id;
	return TC_OK;
}

/* ---------------------------------------------------------------- parameters */

static enum tc_status tci_zero_read_parameters(struct tci_zero *zero, struct tc_planner *planner,
                                               struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	zero->tensor_count = trace->tensor_count;
	zero->parameters =
	    tc_alloc_array((size_t)trace->tensor_count + 1, sizeof *zero->parameters);
	if (zero->parameters == NULL)
		return tc_error_no_memory(error, "parameters", trace->tensor_count);
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		struct tci_zero_parameter *parameter = &zero->parameters[t];
		*parameter = (struct tci_zero_parameter){.gradient = TC_NONE,
		                                         .bucket_copy = TC_NONE,
		                                         .norm_copy = TC_NONE,
		                                         .full_copy = TC_NONE,
		                                         .last_event = TC_NONE};
		if (trace->tensors[t].kind != TC_PARAM)
			continue;
		parameter->elements = tc_plan_elements(planner, t);
		parameter->gradient = tc_plan_gradient_of(planner, t);
		uint64_t bytes = parameter->gradient == TC_NONE
		                     ? 0
		                     : tc_plan_tensor(planner, parameter->gradient).bytes;
		if (bytes > zero->largest_gradient_bytes)
			zero->largest_gradient_bytes = bytes;
	}
	for (uint32_t e = 0; e < trace->event_count; e++) {
		if (trace->events[e].kind != TC_EVENT_GRADIENT)
			continue;
		struct tci_zero_parameter *parameter = &zero->parameters[trace->events[e].tensor];
		if (parameter->last_event != TC_NONE)
			zero->gradients_come_twice = true;
		parameter->last_event = e;
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- accesses */

static enum tc_status tci_zero_read_rows(struct tci_zero *zero, const struct tc_steps *steps,
                                         uint32_t request, uint64_t *elements,
                                         struct tc_error *error)
{
	const struct tc_request *r = &steps->requests[request];
	struct tci_zero_access access = {.first = (uint32_t)zero->queue_count,
	                                 .elements_before = *elements};
	for (uint32_t row = r->first_row; row < r->first_row + r->row_count; row++) {
		uint32_t t = steps->rows[row];
		if (steps->trace->tensors[t].kind != TC_PARAM)
			continue;
		if (!tc_grow_array(&zero->queue, &zero->queue_capacity, zero->queue_count + 1,
		                   sizeof *zero->queue))
			return tc_error_no_memory(error, "prefetch queue", zero->queue_count);
		zero->queue[zero->queue_count++] =
		    (struct tci_zero_entry){.parameter = t, .access = (uint32_t)zero->access_count};
		*elements += zero->parameters[t].elements;
		access.count++;
	}
	zero->access_of_request[request] = TC_NONE;
	if (access.count == 0)
		return TC_OK;
	if (!tc_grow_array(&zero->accesses, &zero->access_capacity, zero->access_count + 1,
	                   sizeof *zero->accesses))
		return tc_error_no_memory(error, "accesses", zero->access_count);
	zero->access_of_request[request] = (uint32_t)zero->access_count;
	zero->accesses[zero->access_count++] = access;
	return TC_OK;
}

/** The accesses of each parameter, ascending, from the queue. */
static enum tc_status tci_zero_read_uses(struct tci_zero *zero, struct tc_error *error)
{
	zero->use_first = tc_alloc_array((size_t)zero->tensor_count + 2, sizeof *zero->use_first);
	zero->uses = tc_alloc_array(zero->queue_count + 1, sizeof *zero->uses);
	if (zero->use_first == NULL || zero->uses == NULL)
		return tc_error_no_memory(error, "uses of parameters", zero->queue_count);
	/* Counted two places further on, so that filling leaves each start where it belongs. */
	for (size_t i = 0; i < zero->queue_count; i++)
		zero->use_first[zero->queue[i].parameter + 2]++;
	for (uint32_t t = 1; t <= zero->tensor_count; t++)
		zero->use_first[t + 1] += zero->use_first[t];
	for (size_t i = 0; i < zero->queue_count; i++)
		zero->uses[zero->use_first[zero->queue[i].parameter + 1]++] = zero->queue[i].access;
	return TC_OK;
}

static enum tc_status tci_zero_read_accesses(struct tci_zero *zero, struct tc_planner *planner,
                                             struct tc_error *error)
{
	const struct tc_steps *steps = tc_plan_steps(planner);
	uint64_t elements = 0;
	zero->access_of_request =
	    tc_alloc_array((size_t)steps->request_count + 1, sizeof *zero->access_of_request);
	if (zero->access_of_request == NULL)
		return tc_error_no_memory(error, "requests", steps->request_count);
	for (uint32_t request = 0; request < steps->request_count; request++) {
		zero->access_of_request[request] = TC_NONE;
		if (steps->requests[request].pass != TC_PASS_OPTIMIZER)
			TC_TRY(tci_zero_read_rows(zero, steps, request, &elements, error));
	}
	zero->batch_capacity = 2 * zero->access_count + 1; /* a demand and a prefetch batch each */
	zero->batch_complete = tc_alloc_array(zero->batch_capacity, sizeof *zero->batch_complete);
	if (zero->batch_complete == NULL)
		return tc_error_no_memory(error, "batches", zero->batch_capacity);
	return tci_zero_read_uses(zero, error);
}

/* ---------------------------------------------------------------- optimizer */

static enum tc_status tci_zero_add_unit_tensor(struct tci_zero *zero, struct tci_zero_unit *unit,
                                               uint32_t tensor, struct tc_error *error)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		if (zero->unit_tensors.items[unit->first_tensor + i] == tensor)
			return TC_OK;
	unit->tensor_count++;
	return tci_zero_push(&zero->unit_tensors, tensor, error);
}

/** Parameters that the ops write, with derived masters, and the optimizer state they touch. */
static enum tc_status tci_zero_read_unit(struct tci_zero *zero, struct tc_planner *planner,
                                         struct tci_zero_unit *unit, struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	for (uint32_t o = unit->first_op; o <= unit->last_op; o++) {
		const struct tc_ids lists[] = {trace->ops[o].writes, trace->ops[o].reads};
		for (size_t l = 0; l < 2; l++) {
			for (uint32_t i = 0; i < lists[l].count; i++) {
				uint32_t t = lists[l].items[i];
				enum tc_tensor_kind kind = trace->tensors[t].kind;
				if (kind != TC_OPTIMIZER_STATE && (kind != TC_PARAM || l != 0))
					continue;
				TC_TRY(tci_zero_add_unit_tensor(zero, unit, t, error));
				if (kind != TC_PARAM)
					continue;
				uint32_t master = tc_plan_master_of(planner, t);
				if (master != TC_NONE)
					TC_TRY(tci_zero_add_unit_tensor(zero, unit, master, error));
			}
		}
	}
	for (uint32_t i = 0; i < unit->tensor_count; i++) {
		uint32_t t = zero->unit_tensors.items[unit->first_tensor + i];
		if (t < zero->tensor_count && trace->tensors[t].kind == TC_PARAM)
			unit->elements += zero->parameters[t].elements;
	}
	return TC_OK;
}

/** A unit joins the last sub-group unless that has reached its size. */
static enum tc_status tci_zero_group_unit(struct tci_zero *zero, struct tci_zero_unit *unit,
                                          struct tc_error *error)
{
	struct tci_zero_group *last =
	    zero->group_count == 0 ? NULL : &zero->groups[zero->group_count - 1];
	if (last == NULL || last->elements >= zero->settings.sub_group) {
		if (!tc_grow_array(&zero->groups, &zero->group_capacity, zero->group_count + 1,
		                   sizeof *zero->groups))
			return tc_error_no_memory(error, "sub-groups", zero->group_count);
		last = &zero->groups[zero->group_count++];
		*last = (struct tci_zero_group){.first_unit = (uint32_t)zero->unit_count};
	}
	last->unit_count++;
	last->elements += unit->elements;
	unit->group = (uint32_t)zero->group_count - 1;
	return TC_OK;
}

static enum tc_status tci_zero_read_units(struct tci_zero *zero, struct tc_planner *planner,
                                          struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	for (uint32_t op = 0; op < trace->op_count; op++) {
		uint32_t last_op = tc_plan_update_last(planner, op);
		if (last_op == TC_NONE)
			continue;
		struct tci_zero_unit unit = {.first_op = op,
		                             .last_op = last_op,
		                             .first_tensor = (uint32_t)zero->unit_tensors.count};
		TC_TRY(tci_zero_read_unit(zero, planner, &unit, error));
		TC_TRY(tci_zero_group_unit(zero, &unit, error));
		if (!tc_grow_array(&zero->units, &zero->unit_capacity, zero->unit_count + 1,
		                   sizeof *zero->units))
			return tc_error_no_memory(error, "optimizer events", zero->unit_count);
		zero->units[zero->unit_count++] = unit;
		op = unit.last_op;
	}
	return TC_OK;
}

enum tc_status tci_zero_read(struct tci_zero *zero, struct tc_planner *planner,
                             struct tc_error *error)
{
	TC_TRY(tci_zero_read_parameters(zero, planner, error));
	TC_TRY(tci_zero_read_accesses(zero, planner, error));
	return tci_zero_read_units(zero, planner, error);
}
