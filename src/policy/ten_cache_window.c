/*
 * The window over the request table (10cache-spec 2.7, src/PLANNING.md for recomputation). W holds
 * the tensors that are on the GPU or on their way; each release takes one out and admits the next
 * row of the table that is not in it, so that a fetch is issued a whole window ahead of its use.
 */
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"
#include "ten_cache.h"

enum tc_status tci_ten_cache_rows(struct tci_ten_cache *cache, struct tc_planner *planner,
                                  struct tc_error *error)
{
	const struct tc_steps *steps = tc_plan_steps(planner);
	size_t tensors = (size_t)tc_plan_trace(planner)->tensor_count + 1;
	size_t rows = (size_t)steps->row_count + 1;
	cache->table = steps->rows;
	cache->rows = steps->row_count;
	cache->forward_rows = steps->forward_row_count;
	cache->row_first = tc_alloc_array(tensors + 1, sizeof(uint32_t));
	cache->row_of = tc_alloc_array(rows, sizeof(uint32_t));
	cache->window = tc_alloc_array(tensors, sizeof(bool));
	cache->stage_now = tc_alloc_array(rows, sizeof(uint32_t));
	cache->stage_next = tc_alloc_array(rows, sizeof(uint32_t));
	cache->fetches = tc_alloc_array(rows, sizeof(uint32_t));
	cache->delayed = tc_alloc_array(rows, sizeof(uint32_t));
	cache->leaves = tc_alloc_array(rows, sizeof(uint32_t));
	cache->home_is_nvme = tc_alloc_array(tensors, sizeof(bool));
	cache->home_is_gpu = tc_alloc_array(tensors, sizeof(bool));
	if (cache->row_first == NULL || cache->row_of == NULL || cache->window == NULL ||
	    cache->stage_now == NULL || cache->stage_next == NULL || cache->fetches == NULL ||
	    cache->delayed == NULL || cache->leaves == NULL || cache->home_is_nvme == NULL ||
	    cache->home_is_gpu == NULL)
		return tc_error_no_memory(error, "prefetch table", rows);
	/* Counting sort: the rows of each tensor, ascending. */
	for (uint32_t r = 0; r < cache->rows; r++)
		cache->row_first[cache->table[r] + 2]++;
	for (size_t t = 2; t <= tensors; t++)
		cache->row_first[t] += cache->row_first[t - 1];
	for (uint32_t r = 0; r < cache->rows; r++)
		cache->row_of[cache->row_first[cache->table[r] + 1]++] = r;
	return TC_OK;
}

/** Does the tensor have a row in (after, before)? */
static bool tci_row_between(const struct tci_ten_cache *cache, uint32_t tensor, int64_t after,
                            uint32_t before)
{
	uint32_t low = cache->row_first[tensor], high = cache->row_first[tensor + 1];
	uint32_t end = high;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if ((int64_t)cache->row_of[middle] <= after)
			low = middle + 1;
		else
			high = middle;
	}
	return low < end && cache->row_of[low] < before;
}

void tci_ten_cache_rewind(struct tci_ten_cache *cache)
{
	cache->cursor = cache->resident;
	cache->position = -1;
	cache->releasing = true;
	cache->stage_now_count = cache->stage_next_count = cache->fetch_count = 0;
}

void tci_ten_cache_access(struct tci_ten_cache *cache, const struct tc_request *request)
{
	if (request->pass != TC_PASS_FORWARD)
		cache->releasing = true;
	int64_t last = (int64_t)request->first_row + request->row_count - 1;
	if (last > cache->position)
		cache->position = last;
}

uint32_t tci_ten_cache_release(struct tci_ten_cache *cache, const struct tc_request *request,
                               uint32_t *leaves)
{
	uint32_t leaving = 0;
	if (cache->releasing && (int64_t)cache->cursor < cache->position + 1)
		cache->cursor = (uint32_t)(cache->position + 1);
	for (uint32_t r = 0; r < request->row_count && cache->cursor < cache->rows; r++) {
		uint32_t p = cache->table[request->first_row + r];
		if (!cache->window[p])
			continue; /* a tied tensor that left with its other row */
		if (tci_row_between(cache, p, cache->position, cache->cursor))
			continue; /* needed again before anything that is still to be admitted */
		cache->window[p] = false;
		if (--cache->window_size >= cache->window_target) {
			leaves[leaving++] =
			    p; /* came by a demand miss: it leaves without a successor */
			continue;
		}
		while (cache->cursor < cache->rows && cache->window[cache->table[cache->cursor]]) {
			cache->cursor++;
			cache->releasing = false;
		}
		if (cache->cursor == cache->rows) {
			cache->window[p] = true;
			cache->window_size++;
			continue;
		}
		uint32_t q = cache->table[cache->cursor++];
		cache->window[q] = true;
		cache->window_size++;
		cache->fetches[cache->fetch_count++] = q;
		leaves[leaving++] = p;
	}
	return leaving;
}

void tci_ten_cache_prefix(struct tci_ten_cache *cache, size_t tensors)
{
	memset(cache->window, 0, tensors * sizeof *cache->window);
	cache->window_size = 0;
	for (uint32_t r = 0; r < cache->resident; r++) {
		cache->window_size += !cache->window[cache->table[r]];
		cache->window[cache->table[r]] = true;
	}
	cache->window_target = cache->window_size;
}

static void tci_window_count(struct tci_ten_cache *cache, uint64_t *held, uint32_t tensor,
                             int64_t change)
{
	uint32_t class = cache->class_of[tensor];
	held[class] = (uint64_t)((int64_t)held[class] + change);
	if (held[class] > cache->classes[class].gpu)
		cache->classes[class].gpu = held[class];
}

static void tci_logical_step(struct tci_ten_cache *cache, const struct tc_steps *steps,
                             uint32_t step, uint64_t *held, uint32_t *leaves)
{
	struct tc_ids closing = steps->steps[step].closing, opening = steps->steps[step].opening;
	for (uint32_t i = 0; i < closing.count && cache->releasing; i++) {
		cache->fetch_count = 0;
		uint32_t count =
		    tci_ten_cache_release(cache, &steps->requests[closing.items[i]], leaves);
		for (uint32_t k = 0; k < count; k++)
			tci_window_count(cache, held, leaves[k], -1);
		for (uint32_t k = 0; k < cache->fetch_count; k++)
			tci_window_count(cache, held, cache->fetches[k], 1);
	}
	for (uint32_t i = 0; i < opening.count; i++)
		tci_ten_cache_access(cache, &steps->requests[opening.items[i]]);
}

enum tc_status tci_ten_cache_logical_counts(struct tci_ten_cache *cache, struct tc_planner *planner,
                                            struct tc_error *error)
{
	const struct tc_steps *steps = tc_plan_steps(planner);
	size_t tensors = (size_t)tc_plan_trace(planner)->tensor_count + 1;
	uint64_t *held = tc_alloc_array(cache->class_count + 1, sizeof *held);
	uint32_t *leaves = tc_alloc_array((size_t)cache->rows + 1, sizeof *leaves);
	if (held == NULL || leaves == NULL) {
		free(held);
		free(leaves);
		return tc_error_no_memory(error, "logical run", cache->rows);
	}
	for (size_t i = 0; i < cache->class_count; i++)
		cache->classes[i].gpu = 0;
	tci_ten_cache_prefix(cache, tensors);
	for (size_t t = 0; t + 1 < tensors; t++)
		if (cache->window[t])
			tci_window_count(cache, held, (uint32_t)t, 1);
	tci_ten_cache_rewind(cache);
	for (uint32_t s = 0; s <= steps->step_count; s++)
		tci_logical_step(cache, steps, s, held, leaves);
	tci_ten_cache_prefix(cache, tensors);
	free(held);
	free(leaves);
	return TC_OK;
}
