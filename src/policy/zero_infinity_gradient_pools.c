/*
 * The tensors and the GPU memory of the way of the gradients: where they are born, the bucket, and
 * two slots for the norm.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tencache/units.h"
#include "zero_infinity.h"

/* ---------------------------------------------------------------- derived gradients */

static enum tc_status tci_zero_derive(struct tc_planner *planner, uint32_t gradient,
                                      const char *what, uint64_t bytes, uint64_t elements,
                                      uint32_t *made, struct tc_error *error)
{
	char name[256];
	(void)snprintf(name, sizeof name, "%.200s.%s",
	               tc_plan_trace(planner)->tensors[gradient].name, what);
	return tc_plan_derive(planner, name, TC_GRAD, TC_ROLE_NONE, bytes, elements, gradient, made,
	                      error);
}

enum tc_status tci_zero_derive_gradients(struct tci_zero *zero, struct tc_planner *planner,
                                         struct tc_error *error)
{
	for (uint32_t t = 0; t < zero->tensor_count; t++) {
		struct tci_zero_parameter *p = &zero->parameters[t];
		if (p->gradient == TC_NONE)
			continue;
		uint64_t bytes = tc_plan_tensor(planner, p->gradient).bytes, full;
		if (!tc_mul_u64(p->elements, 4, &full))
			return tc_error_set(error, TC_TOO_LARGE,
			                    "parameter \"%s\" has too many elements",
			                    tc_plan_trace(planner)->tensors[t].name);
		TC_TRY(tci_zero_derive(planner, p->gradient, "bucket", bytes, p->elements,
		                       &p->bucket_copy, error));
		TC_TRY(tci_zero_derive(planner, p->gradient, "norm", bytes, p->elements,
		                       &p->norm_copy, error));
		p->full_copy = p->norm_copy;
		/* Last, so that it is the first that the update finds. */
		if (bytes != full)
			TC_TRY(tci_zero_derive(planner, p->gradient, "fp32", full, p->elements,
			                       &p->full_copy, error));
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- memory */

/** Bytes per element of the gradients: of the trace, else of the widest. */
static uint64_t tci_zero_gradient_width(const struct tci_zero *zero,
                                        const struct tc_planner *planner)
{
	uint64_t width = 0;
	for (uint32_t t = 0; t < zero->tensor_count; t++) {
		const struct tci_zero_parameter *p = &zero->parameters[t];
		if (p->gradient == TC_NONE || p->elements == 0)
			continue;
		uint64_t own = tc_plan_tensor(planner, p->gradient).bytes / p->elements;
		width = own > width ? own : width;
	}
	return width;
}

/** The most that gradients of one bucket filling take with all slots rounded up, bytes. */
static uint64_t tci_zero_bucket_bytes(const struct tci_zero *zero, const struct tc_planner *planner)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	uint64_t elements = 0, bytes = 0, most = 0;
	for (uint32_t e = 0; e < trace->event_count; e++) {
		if (trace->events[e].kind != TC_EVENT_GRADIENT)
			continue;
		const struct tci_zero_parameter *parameter =
		    &zero->parameters[trace->events[e].tensor];
		if (parameter->gradient == TC_NONE)
			continue;
		uint64_t size = tc_plan_tensor(planner, parameter->gradient).bytes;
		if (parameter->elements > zero->settings.reduce_bucket - elements)
			elements = bytes = 0; /* flushed before this one */
		if (parameter->elements > zero->settings.reduce_bucket)
			continue; /* passes the bucket */
		elements += parameter->elements;
		bytes += tc_plan_aligned(planner, TC_GPU, size);
		if (bytes > most)
			most = bytes;
	}
	return most;
}

/**
 * When gradients leave the place where they were born: with a contiguous bucket at their event,
 * else when the bucket that counts them is flushed. Those without an event wait for the end of the
 * phase.
 */
static void tci_zero_departures(const struct tci_zero *zero, const struct tc_planner *planner,
                                uint32_t *until)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	uint64_t elements = 0;
	size_t first = 0; /* event from which on gradients are in the bucket */
	for (uint32_t t = 0; t < zero->tensor_count; t++)
		until[t] = TC_NONE;
	for (uint32_t e = 0; e < trace->event_count; e++) {
		if (trace->events[e].kind != TC_EVENT_GRADIENT)
			continue;
		const struct tci_zero_parameter *p = &zero->parameters[trace->events[e].tensor];
		if (p->gradient == TC_NONE || until[p->gradient] != TC_NONE)
			continue;
		bool passes = p->elements > zero->settings.reduce_bucket;
		if (zero->settings.contiguous_gradients || passes || e != p->last_event)
			until[p->gradient] = e;
		if (p->elements <= zero->settings.reduce_bucket - elements) {
			elements += p->elements;
			continue;
		}
		for (; first < e; first++) {
			const struct tc_event *earlier = &trace->events[first];
			uint32_t gradient = earlier->kind == TC_EVENT_GRADIENT
			                        ? zero->parameters[earlier->tensor].gradient
			                        : TC_NONE;
			if (gradient != TC_NONE && until[gradient] == TC_NONE)
				until[gradient] = e;
		}
		elements = passes ? 0 : p->elements;
	}
}

static enum tc_status tci_zero_birth_pool(struct tci_zero *zero, struct tc_planner *planner,
                                          struct tc_error *error)
{
	uint64_t bytes;
	uint32_t *until = tc_alloc_array((size_t)zero->tensor_count + 1, sizeof *until);
	if (until == NULL)
		return tc_error_no_memory(error, "departures of gradients", zero->tensor_count);
	tci_zero_departures(zero, planner, until);
	enum tc_status status = tc_plan_gradient_arena_bytes(planner, until, &bytes, error);
	free(until);
	TC_TRY(status);
	TC_TRY(tci_zero_arena(planner, TC_GPU, "gradients", false, bytes, &zero->pools.gradients,
	                      error));
	if (zero->pools.gradients != TC_NO_POOL)
		tc_plan_birth_pool(planner, TC_GRAD, zero->pools.gradients);
	return TC_OK;
}

enum tc_status tci_zero_gradient_pools(struct tci_zero *zero, struct tc_planner *planner,
                                       struct tc_error *error)
{
	struct tci_zero_pools *pools = &zero->pools;
	uint64_t bucket, filling = tci_zero_bucket_bytes(zero, planner);
	if (!tc_mul_u64(zero->settings.reduce_bucket, tci_zero_gradient_width(zero, planner),
	                &bucket))
		return tc_error_set(error, TC_TOO_LARGE, "reduce-bucket-size=%llu is too large",
		                    (unsigned long long)zero->settings.reduce_bucket);
	bucket = tc_plan_aligned(planner, TC_GPU, bucket);
	bucket = filling > bucket ? filling : bucket;
	TC_TRY(tci_zero_birth_pool(zero, planner, error));
	if (zero->settings.contiguous_gradients && zero->largest_gradient_bytes > 0)
		TC_TRY(tci_zero_arena(planner, TC_GPU, "bucket", false, bucket, &pools->bucket,
		                      error));
	if (zero->largest_gradient_bytes == 0)
		return TC_OK;
	/* What came up for the norm, and what goes down after it. */
	struct tc_class_size two = {.bytes = zero->largest_gradient_bytes, .count = 2};
	return tc_plan_classes(planner, TC_GPU, "norm", false, &two, 1, false, &pools->norm, error);
}
