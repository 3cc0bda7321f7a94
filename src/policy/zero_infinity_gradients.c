/*
 * The way of a gradient: into the bucket on the GPU; at a flush, in its own width, down to pinned
 * memory, up again for the norm, and down a second time through pageable memory, where it is
 * converted to FP32; with the optimizer on the drive, from there to its file. The first copy stays
 * in host memory for the inf and nan scan of the step.
 */
#include <stdlib.h>

#include "zero_infinity.h"

/** The norm is taken in double precision: 8 bytes per element are written and read again. */
#define TCI_ZERO_NORM_BYTES_PER_ELEMENT 16u
/** isinf() and isnan(), each followed by any(): gradient read, one boolean written and read. */
#define TCI_ZERO_SCAN_PASSES 2u
#define TCI_ZERO_SCAN_BOOLEAN_BYTES 2u

static uint64_t tci_zero_gradient_bytes(const struct tci_zero *zero,
                                        const struct tc_planner *planner, uint32_t parameter)
{
	return tc_plan_bytes(planner, zero->parameters[parameter].gradient);
}

static enum tc_status tci_zero_no_room(const struct tc_planner *planner, uint32_t parameter,
                                       const char *where, struct tc_error *error)
{
	return tc_error_set(
	    error, TC_INTERNAL,
	    "zero-infinity: the gradient of \"%s\" does not fit %s that was made for "
	    "it; please report this",
	    tc_plan_trace(planner)->tensors[parameter].name, where);
}

static enum tc_status tci_zero_move(struct tc_planner *planner, uint32_t parameter, uint32_t tensor,
                                    uint32_t pool, bool keep, enum tc_why why, uint64_t *id,
                                    struct tc_error *error)
{
	struct tc_move_options options = TC_MOVE(why);
	bool moved;
	options.keep_source = keep;
	TC_TRY(tc_plan_move(planner, tensor, pool, TC_NO_POOL, options, &moved, id, error));
	return moved ? TC_OK : tci_zero_no_room(planner, parameter, "the pool", error);
}

static enum tc_status tci_zero_convert(struct tc_planner *planner, uint32_t parameter,
                                       uint32_t source, uint32_t target, uint32_t pool,
                                       struct tc_convert_options options, uint64_t *id,
                                       struct tc_error *error)
{
	bool done;
	TC_TRY(tc_plan_convert(planner, source, target, pool, options, &done, id, error));
	return done ? TC_OK : tci_zero_no_room(planner, parameter, "the pool", error);
}

/* ---------------------------------------------------------------- flush */

/** From the norm's copy to FP32 in host memory. */
static enum tc_status tci_zero_to_full(struct tci_zero *zero, struct tc_planner *planner,
                                       uint32_t parameter, struct tc_error *error)
{
	const struct tci_zero_parameter *p = &zero->parameters[parameter];
	uint32_t target = zero->settings.state_on_nvme ? zero->pools.optimizer_staging[0]
	                                               : zero->pools.full_gradients;
	struct tc_convert_options options = {.queue = TC_QUEUE_CPU, .why = TC_WHY_NONE};
	uint64_t id;
	if (p->full_copy == p->norm_copy) {
		TC_TRY(tci_zero_move(planner, parameter, p->norm_copy, target, false,
		                     TC_WHY_RELEASE, &id, error));
	} else {
		TC_TRY(tci_zero_move(planner, parameter, p->norm_copy, zero->pools.pageable, false,
		                     TC_WHY_RELEASE, NULL, error));
		TC_TRY(tci_zero_convert(planner, parameter, p->norm_copy, p->full_copy, target,
		                        options, &id, error));
		/* The same call of the framework copies and converts: it returns after both. */
		TC_TRY(tc_plan_wait(planner, &id, 1, error));
		TC_TRY(tc_plan_discard(planner, p->norm_copy, error));
	}
	if (!zero->settings.scan)
		TC_TRY(tc_plan_gradient_done(planner, id, error));
	return zero->settings.state_on_nvme
	           ? tci_zero_move(planner, parameter, p->full_copy, zero->pools.nvme_gradients,
	                           false, TC_WHY_SWAP, NULL, error)
	           : TC_OK;
}

/** `source` is the gradient in the bucket, or the trace's own where that passes the bucket. */
static enum tc_status tci_zero_flush_one(struct tci_zero *zero, struct tc_planner *planner,
                                         uint32_t parameter, struct tc_error *error)
{
	const struct tci_zero_parameter *p = &zero->parameters[parameter];
	uint32_t source =
	    tc_plan_copy(planner, p->bucket_copy, TC_GPU).latest ? p->bucket_copy : p->gradient;
	TC_TRY(tci_zero_move(planner, parameter, source, zero->pools.half_gradients, false,
	                     TC_WHY_BUCKET, NULL, error));
	TC_TRY(tci_zero_move(planner, parameter, source, zero->pools.norm, true, TC_WHY_NORM, NULL,
	                     error));
	struct tc_convert_options norm = {.queue = TC_QUEUE_COMPUTE,
	                                  .why = TC_WHY_NORM,
	                                  .traffic_bytes =
	                                      tci_zero_gradient_bytes(zero, planner, parameter) +
	                                      p->elements * TCI_ZERO_NORM_BYTES_PER_ELEMENT};
	TC_TRY(tci_zero_convert(planner, parameter, source, p->norm_copy, zero->pools.norm, norm,
	                        NULL, error));
	TC_TRY(tc_plan_drop(planner, source, TC_GPU, error));
	return tci_zero_to_full(zero, planner, parameter, error);
}

static int tci_zero_compare(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	return (a > b) - (a < b);
}

enum tc_status tci_zero_flush(struct tci_zero *zero, struct tc_planner *planner,
                              struct tc_error *error)
{
	/* In the order of definition, as DeepSpeed sorts its bucket. */
	if (zero->bucket.count > 1)
		qsort(zero->bucket.items, zero->bucket.count, sizeof *zero->bucket.items,
		      tci_zero_compare);
	for (size_t i = 0; i < zero->bucket.count; i++)
		TC_TRY(tci_zero_flush_one(zero, planner, zero->bucket.items[i], error));
	zero->bucket.count = 0;
	zero->bucket_elements = 0;
	return TC_OK;
}

/* ---------------------------------------------------------------- into the bucket */

static enum tc_status tci_zero_into_bucket(struct tci_zero *zero, struct tc_planner *planner,
                                           uint32_t parameter, struct tc_error *error)
{
	const struct tci_zero_parameter *p = &zero->parameters[parameter];
	struct tc_convert_options copy = {.queue = TC_QUEUE_COMPUTE, .why = TC_WHY_BUCKET};
	TC_TRY(tci_zero_push(&zero->bucket, parameter, error));
	zero->bucket_elements += p->elements;
	if (!zero->settings.contiguous_gradients)
		return TC_OK; /* waits for the flush where it was born */
	TC_TRY(tci_zero_convert(planner, parameter, p->gradient, p->bucket_copy, zero->pools.bucket,
	                        copy, NULL, error));
	return tc_plan_discard(planner, p->gradient, error);
}

enum tc_status tci_zero_gradient(struct tci_zero *zero, struct tc_planner *planner,
                                 uint32_t parameter, uint32_t event, struct tc_error *error)
{
	const struct tci_zero_parameter *p = &zero->parameters[parameter];
	if (p->gradient == TC_NONE || !tc_plan_copy(planner, p->gradient, TC_GPU).latest)
		return TC_OK;
	/* More micro-batches follow: it waits for them in host memory. */
	if (event != TC_NONE && event != p->last_event)
		return tci_zero_move(planner, parameter, p->gradient, zero->pools.half_gradients,
		                     false, TC_WHY_RELEASE, NULL, error);
	if (p->elements > zero->settings.reduce_bucket - zero->bucket_elements ||
	    (zero->settings.contiguous_gradients &&
	     !tc_plan_pool_fits(planner, zero->pools.bucket,
	                        tci_zero_gradient_bytes(zero, planner, parameter))))
		TC_TRY(tci_zero_flush(zero, planner, error));
	if (p->elements > zero->settings.reduce_bucket)
		return tci_zero_flush_one(zero, planner, parameter, error);
	return tci_zero_into_bucket(zero, planner, parameter, error);
}

enum tc_status tci_zero_flush_leftovers(struct tci_zero *zero, struct tc_planner *planner,
                                        struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	for (uint32_t t = 0; t < zero->tensor_count; t++)
		if (trace->tensors[t].kind == TC_PARAM && zero->parameters[t].last_event == TC_NONE)
			TC_TRY(tci_zero_gradient(zero, planner, t, TC_NONE, error));
	return tci_zero_flush(zero, planner, error);
}

/* ---------------------------------------------------------------- scan */

static enum tc_status tci_zero_scan_one(struct tci_zero *zero, struct tc_planner *planner,
                                        uint32_t parameter, uint32_t tensor, struct tc_error *error)
{
	uint64_t id;
	uint64_t traffic = TCI_ZERO_SCAN_PASSES *
	                   (tci_zero_gradient_bytes(zero, planner, parameter) +
	                    zero->parameters[parameter].elements * TCI_ZERO_SCAN_BOOLEAN_BYTES);
	if (!tc_plan_copy(planner, tensor, TC_CPU).latest)
		return TC_OK;
	if (zero->settings.scan) {
		TC_TRY(tc_plan_scan(planner, tensor, traffic, &id, error));
		TC_TRY(tc_plan_gradient_done(planner, id, error));
	}
	/* The update reads the FP32 copy. */
	return tc_plan_discard(planner, tensor, error);
}

enum tc_status tci_zero_scan(struct tci_zero *zero, struct tc_planner *planner,
                             struct tc_error *error)
{
	for (uint32_t t = 0; t < zero->tensor_count; t++) {
		const struct tci_zero_parameter *p = &zero->parameters[t];
		if (p->full_copy == TC_NONE)
			continue;
		TC_TRY(tci_zero_scan_one(zero, planner, t, p->bucket_copy, error));
		TC_TRY(tci_zero_scan_one(zero, planner, t, p->gradient, error));
	}
	return TC_OK;
}
