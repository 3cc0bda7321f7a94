/*
 * The same steps in another order. Each step keeps its ops, its lists and the boundary before it;
 * when requests are open, and which steps use a tensor, is worked out anew, in positions. So
 * whoever walks steps need not know whether they stand as they were recorded.
 */
#include <stdlib.h>
#include <string.h>

#include "steps_derive.h"
#include "tencache/units.h"

/** A request on its way to its new place in the table. */
struct moved_request {
	struct tc_request request; /**< opens and closes are positions */
	uint32_t index;            /**< in the recorded order */
};

static int compare_requests(const void *left, const void *right)
{
	const struct moved_request *a = left, *b = right;
	if (a->request.opens != b->request.opens)
		return a->request.opens < b->request.opens ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

static void place_steps(struct tc_steps *result, const struct tc_steps *steps,
                        const uint32_t *order, uint32_t *positions)
{
	const struct tc_ids none = {0};
	for (uint32_t p = 0; p <= steps->step_count; p++) {
		struct tc_step *step = &result->steps[p];
		*step = steps->steps[p < steps->step_count ? order[p] : p];
		step->opening = step->closing = step->requested = none;
		if (p < steps->step_count)
			positions[order[p]] = p;
	}
}

/** It opens with its step, and closes after the last of its steps, wherever that stands. */
static void move_request(const struct tc_steps *steps, const uint32_t *positions, uint32_t index,
                         struct moved_request *moved)
{
	const struct tc_request *request = &steps->requests[index];
	*moved = (struct moved_request){.request = *request, .index = index};
	moved->request.opens = positions[request->opens];
	moved->request.closes = 0;
	for (uint32_t s = request->opens; s < request->closes; s++)
		if (positions[s] >= moved->request.closes)
			moved->request.closes = positions[s] + 1;
}

/** The table of requests, in the order in which they open now. */
static void place_requests(struct tc_steps *result, const struct tc_steps *steps,
                           const uint32_t *positions, struct moved_request *moved)
{
	for (uint32_t r = 0; r < steps->request_count; r++)
		move_request(steps, positions, r, &moved[r]);
	qsort(moved, steps->request_count, sizeof *moved, compare_requests);
	uint32_t row = 0;
	for (uint32_t r = 0; r < steps->request_count; r++) {
		struct tc_request *request = &result->requests[r];
		*request = moved[r].request;
		memcpy(result->rows + row, steps->rows + request->first_row,
		       request->row_count * sizeof *result->rows);
		request->first_row = row;
		for (uint32_t i = 0; i < request->row_count; i++)
			result->row_request[row++] = r;
	}
}

static enum tc_status reorder_into(struct tci_derive *derive, const struct tc_steps *steps,
                                   const uint32_t *order)
{
	struct tc_steps *result = derive->steps;
	uint32_t *kept = tci_derive_take(derive, steps->step_count + (size_t)1, sizeof *kept);
	result->steps =
	    tci_derive_take(derive, steps->step_count + (size_t)1, sizeof *result->steps);
	result->requests =
	    tci_derive_take(derive, steps->request_count + (size_t)1, sizeof *result->requests);
	result->rows = tci_derive_take(derive, steps->row_count + (size_t)1, sizeof *result->rows);
	result->row_request =
	    tci_derive_take(derive, steps->row_count + (size_t)1, sizeof *result->row_request);
	uint32_t *positions = tc_alloc_array(steps->step_count + (size_t)1, sizeof *positions);
	struct moved_request *moved =
	    tc_alloc_array(steps->request_count + (size_t)1, sizeof *moved);
	enum tc_status status = TC_OK;
	if (kept == NULL || result->steps == NULL || result->requests == NULL ||
	    result->rows == NULL || result->row_request == NULL || positions == NULL ||
	    moved == NULL) {
		status = tc_error_no_memory(derive->error, "reordered steps", steps->step_count);
	} else {
		memcpy(kept, order, steps->step_count * sizeof *kept);
		result->order = kept;
		place_steps(result, steps, order, positions);
		place_requests(result, steps, positions, moved);
		status = tci_fill_opened(derive);
	}
	free(positions);
	free(moved);
	return status;
}

enum tc_status tci_steps_reorder(const struct tc_steps *steps, const uint32_t *order,
                                 struct tc_steps **reordered, struct tc_error *error)
{
	*reordered = NULL;
	struct tci_blocks *blocks = tci_blocks_create();
	struct tc_steps *result =
	    blocks == NULL ? NULL : tci_blocks_take(blocks, 1, sizeof *result);
	if (result == NULL) {
		tci_blocks_free(blocks);
		return tc_error_no_memory(error, "reordered steps", sizeof *result);
	}
	*result = *steps;
	result->storage = blocks;
	result->use_first = result->use_steps = NULL;
	struct tci_derive derive = {
	    .trace = steps->trace, .steps = result, .blocks = blocks, .error = error};
	enum tc_status status = reorder_into(&derive, steps, order);
	if (status == TC_OK)
		*reordered = result;
	else
		tci_blocks_free(blocks);
	return status;
}
