/*
 * How many buffers of each size (10cache-spec 2.2, 2.3). Every class is scaled by the same
 * fraction budget / total, since its share of the bytes divided by its size is c(s) / total; then
 * a correction raises scarce classes at the expense of the most numerous one.
 */
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"
#include "ten_cache.h"

/** A class with at most this many tensors gets a buffer for each, whatever the budget. */
#define TCI_ALWAYS 2u
/** Constants of the authors' code: floor of a class, and what the donor keeps. */
#define TCI_FLOOR 20u
#define TCI_DONOR_KEEPS 100u

static uint32_t tci_class_find(struct tci_ten_cache *cache, uint64_t bytes)
{
	for (size_t i = 0; i < cache->class_count; i++)
		if (cache->classes[i].bytes == bytes)
			return (uint32_t)i;
	return TC_NONE;
}

static enum tc_status tci_class_add(struct tci_ten_cache *cache, const struct tc_planner *planner,
                                    uint32_t tensor, size_t *capacity, struct tc_error *error)
{
	struct tc_plan_tensor_view view = tc_plan_tensor(planner, tensor);
	uint32_t index = tci_class_find(cache, view.bytes);
	if (index == TC_NONE) {
		if (!tc_grow_array(&cache->classes, capacity, cache->class_count + 1,
		                   sizeof *cache->classes))
			return tc_error_no_memory(error, "size classes", cache->class_count);
		index = (uint32_t)cache->class_count++;
		cache->classes[index] =
		    (struct tci_size_class){.bytes = view.bytes, .elements = view.elements};
	}
	bool seen = cache->class_of[tensor] != TC_NONE;
	cache->class_of[tensor] = index;
	if (!seen || tci_value_is(planner, "hist", "accesses"))
		cache->classes[index].tensors++;
	if (view.bytes > cache->largest_bytes)
		cache->largest_bytes = view.bytes;
	if (view.elements > cache->largest_elements)
		cache->largest_elements = view.elements;
	return TC_OK;
}

uint32_t tci_ten_cache_largest_module(const struct tc_steps *steps)
{
	uint32_t largest = 1;
	for (uint32_t r = 0; r < steps->request_count; r++)
		if (steps->requests[r].row_count > largest)
			largest = steps->requests[r].row_count;
	return largest;
}

/** Tensors of each class that are wanted at once; a tensor counts once for each `round`. */
struct tci_class_tally {
	struct tci_ten_cache *cache;
	uint32_t round;         /**< from 1 */
	uint32_t *tensor_round; /**< the last round that counted a tensor */
	uint32_t *class_round;
	uint64_t *class_count; /**< in that round */
};

static void tci_tally(struct tci_class_tally *tally, struct tc_ids ids)
{
	struct tci_ten_cache *cache = tally->cache;
	for (uint32_t i = 0; i < ids.count; i++) {
		uint32_t t = ids.items[i], class = cache->class_of[t];
		if (class == TC_NONE || cache->stays[t] || tally->tensor_round[t] == tally->round)
			continue;
		tally->tensor_round[t] = tally->round;
		if (tally->class_round[class] != tally->round)
			tally->class_count[class] = 0;
		tally->class_round[class] = tally->round;
		if (++tally->class_count[class] > cache->classes[class].least)
			cache->classes[class].least = tally->class_count[class];
	}
}

/**
 * With fewer buffers than a step holds at once of a class, nothing could run, and with fewer than
 * the first rows (as many as the largest module has) take, the window would be too small. A scaled
 * count may round to less, down to none.
 */
static enum tc_status tci_least_counts(struct tci_ten_cache *cache,
                                       const struct tc_planner *planner, struct tc_error *error)
{
	const struct tc_steps *steps = tc_plan_steps(planner);
	size_t tensors = (size_t)tc_plan_trace(planner)->tensor_count + 1;
	uint32_t first_rows = tci_ten_cache_largest_module(steps);
	struct tci_class_tally tally = {
	    .cache = cache,
	    .round = 1,
	    .tensor_round = tc_alloc_array(tensors, sizeof(uint32_t)),
	    .class_round = tc_alloc_array(cache->class_count + 1, sizeof(uint32_t)),
	    .class_count = tc_alloc_array(cache->class_count + 1, sizeof(uint64_t))};
	bool enough =
	    tally.tensor_round != NULL && tally.class_round != NULL && tally.class_count != NULL;
	if (enough)
		tci_tally(&tally, (struct tc_ids){cache->table, first_rows < cache->forward_rows
		                                                    ? first_rows
		                                                    : cache->forward_rows});
	for (uint32_t s = 0; enough && s < steps->step_count; s++) {
		const struct tc_step *step = &steps->steps[s];
		if (step->phase == TC_OPTIMIZER)
			continue; /* runs on the CPU */
		tally.round++;
		tci_tally(&tally, step->requested);
		tci_tally(&tally, step->unpacks);
		tci_tally(&tally, step->reads);
		tci_tally(&tally, step->writes);
	}
	free(tally.tensor_round);
	free(tally.class_round);
	free(tally.class_count);
	return enough ? TC_OK : tc_error_no_memory(error, "size classes", tensors);
}

enum tc_status tci_ten_cache_classes(struct tci_ten_cache *cache, struct tc_planner *planner,
                                     struct tc_error *error)
{
	const struct tc_trace *trace = tc_plan_trace(planner);
	size_t capacity = 0;
	cache->class_of = tc_alloc_array((size_t)trace->tensor_count + 1, sizeof(uint32_t));
	cache->stays = tc_alloc_array((size_t)trace->tensor_count + 1, sizeof(bool));
	if (cache->class_of == NULL || cache->stays == NULL)
		return tc_error_no_memory(error, "size classes", trace->tensor_count);
	memset(cache->class_of, 0xff, ((size_t)trace->tensor_count + 1) * sizeof(uint32_t));
	for (uint32_t row = 0; row < cache->forward_rows; row++)
		TC_TRY(tci_class_add(cache, planner, cache->table[row], &capacity, error));
	/* Parameters that forward never asks for (none in the shipped traces) still need a class.
	 */
	for (uint32_t row = cache->forward_rows; row < cache->rows; row++)
		if (cache->class_of[cache->table[row]] == TC_NONE)
			TC_TRY(tci_class_add(cache, planner, cache->table[row], &capacity, error));
	/* Those that no module asks for have FP32 state like the others. */
	for (uint32_t t = 0; t < trace->tensor_count; t++) {
		cache->stays[t] =
		    trace->tensors[t].kind == TC_PARAM && cache->class_of[t] == TC_NONE;
		if (cache->stays[t])
			TC_TRY(tci_class_add(cache, planner, t, &capacity, error));
	}
	return tci_least_counts(cache, planner, error);
}

/* ---------------------------------------------------------------- the rule */

typedef uint64_t *(*tci_count_field)(struct tci_size_class *class);

static uint64_t *tci_field_gpu(struct tci_size_class *class)
{
	return &class->gpu;
}

static uint64_t *tci_field_cpu(struct tci_size_class *class)
{
	return &class->cpu;
}

static uint64_t *tci_field_fp32(struct tci_size_class *class)
{
	return &class->fp32;
}

/** An FP32 slot holds master, gradient and two moments: 4 x 4 bytes per element. */
static uint64_t tci_unit_bytes(const struct tci_size_class *class, tci_count_field field)
{
	return field == tci_field_fp32 ? 16 * class->elements : class->bytes;
}

/** `*scarce`: the budget does not hold everything. Else the corrections, which take from the most
 * numerous class to raise scarce ones, would only leave tensors without a buffer. */
static enum tc_status tci_scale(struct tci_ten_cache *cache, tci_count_field field, uint64_t budget,
                                uint64_t (*cap)(const struct tci_size_class *, uint64_t extra),
                                uint64_t extra, bool *scarce, struct tc_error *error)
{
	uint64_t total = 0, part;
	for (size_t i = 0; i < cache->class_count; i++) {
		struct tci_size_class *class = &cache->classes[i];
		if (!tc_mul_u64(tci_unit_bytes(class, field), class->tensors, &part) ||
		    !tc_add_u64(total, part, &total))
			return tc_error_set(error, TC_TOO_LARGE, "parameters exceed 2^64 bytes");
	}
	*scarce = budget < total;
	for (size_t i = 0; i < cache->class_count; i++) {
		struct tci_size_class *class = &cache->classes[i];
		uint64_t scaled, most = cap(class, extra);
		if (class->tensors <= TCI_ALWAYS) {
			*field(class) = class->tensors;
			continue;
		}
		if (!tc_mul_div_half_even(class->tensors, budget, total, &scaled))
			scaled = most;
		*field(class) = scaled < most ? scaled : most;
	}
	return TC_OK;
}

static uint64_t tci_cap_tensors(const struct tci_size_class *class, uint64_t extra)
{
	(void)extra;
	return class->tensors;
}

static uint64_t tci_cap_cpu(const struct tci_size_class *class, uint64_t extra)
{
	return (class->tensors > class->gpu ? class->tensors - class->gpu : 0) + extra;
}

/* ---------------------------------------------------------------- the corrections */

static size_t tci_most_numerous(const struct tci_ten_cache *cache, tci_count_field field,
                                size_t except)
{
	size_t best = SIZE_MAX;
	for (size_t i = 0; i < cache->class_count; i++)
		if (i != except && (best == SIZE_MAX ||
		                    *field(&cache->classes[i]) > *field(&cache->classes[best])))
			best = i;
	return best;
}

/** `k` is a multiple of the donor's size: r of its buffers make one. */
static void tci_fix_larger(uint64_t *count, uint64_t *donor, uint64_t r)
{
	uint64_t need = TCI_FLOOR - *count;
	if (*donor > TCI_DONOR_KEEPS + need * r) {
		*count += need;
		*donor -= need * r;
	} else {
		uint64_t moved = (*donor - TCI_DONOR_KEEPS) / r;
		*count += moved;
		*donor -= moved * r;
	}
}

/** The donor's size is a multiple of `k`: one of its buffers makes r. */
static void tci_fix_smaller(uint64_t *count, uint64_t *donor, uint64_t r)
{
	uint64_t need = TCI_FLOOR - *count, given = (need + r - 1) / r;
	if (*donor > TCI_DONOR_KEEPS + given) {
		*donor -= given;
		*count += need;
	} else {
		given = *donor - TCI_DONOR_KEEPS;
		*count += given * r;
		*donor -= given;
	}
}

static void tci_ratio_fix(struct tci_ten_cache *cache, tci_count_field field)
{
	size_t donor = tci_most_numerous(cache, field, SIZE_MAX);
	if (donor == SIZE_MAX)
		return;
	struct tci_size_class *m = &cache->classes[donor];
	for (size_t i = 0; i < cache->class_count; i++) {
		struct tci_size_class *k = &cache->classes[i];
		uint64_t count = *field(k);
		if (i == donor || count <= TCI_ALWAYS || count >= TCI_FLOOR ||
		    *field(m) <= TCI_DONOR_KEEPS)
			continue;
		if (k->bytes % m->bytes == 0)
			tci_fix_larger(field(k), field(m), k->bytes / m->bytes);
		else if (m->bytes % k->bytes == 0)
			tci_fix_smaller(field(k), field(m), m->bytes / k->bytes);
	}
}

/** The FP32 variant of the code: small fixed gifts from the two most numerous classes. */
static void tci_ratio_fix_fp32(struct tci_ten_cache *cache)
{
	size_t first = tci_most_numerous(cache, tci_field_fp32, SIZE_MAX);
	size_t second = first == SIZE_MAX ? first : tci_most_numerous(cache, tci_field_fp32, first);
	for (size_t i = 0; i < cache->class_count && first != SIZE_MAX; i++) {
		struct tci_size_class *k = &cache->classes[i], *m = &cache->classes[first];
		if (i == first || k->fp32 <= TCI_ALWAYS || k->fp32 >= 15)
			continue;
		uint64_t given = 2 * (k->bytes / m->bytes);
		if (k->bytes % m->bytes == 0 && m->fp32 > given) {
			k->fp32 += 2;
			m->fp32 -= given;
		}
		struct tci_size_class *s = second == SIZE_MAX ? NULL : &cache->classes[second];
		if (s != NULL && s != k && s->bytes % k->bytes == 0 && s->bytes / k->bytes > 5 &&
		    s->fp32 > 1) {
			k->fp32 += 5;
			s->fp32 -= 1;
		}
	}
}

/* ---------------------------------------------------------------- counts given by hand */

/** Counts from a parameter; classes not named get none. Sizes that scaling made equal add up. */
static enum tc_status tci_given_counts(struct tci_ten_cache *cache, const char *name,
                                       const struct tc_policy_value *given, tci_count_field field,
                                       struct tc_error *error)
{
	for (size_t i = 0; i < cache->class_count; i++)
		*field(&cache->classes[i]) = 0;
	for (size_t i = 0; i < given->size_count; i++) {
		uint32_t index = tci_class_find(cache, given->sizes[i].bytes);
		if (index == TC_NONE)
			return tc_error_set(error, TC_ARGUMENT,
			                    "10cache:%s=%s: no parameter has %llu bytes; "
			                    "\"tencache-sim inspect\" lists the sizes of a trace",
			                    name, given->text,
			                    (unsigned long long)given->sizes[i].bytes);
		*field(&cache->classes[index]) += given->sizes[i].count;
	}
	return TC_OK;
}

/** A parameter's counts; NULL: the rule makes them. */
static const struct tc_policy_value *tci_given(const struct tc_planner *planner, const char *name)
{
	const struct tc_policy_value *value = tc_plan_value(planner, name);
	return value == NULL || value->is_auto ? NULL : value;
}

static void tci_raise_to_least(struct tci_ten_cache *cache)
{
	for (size_t i = 0; i < cache->class_count; i++)
		if (cache->classes[i].gpu < cache->classes[i].least)
			cache->classes[i].gpu = cache->classes[i].least;
}

enum tc_status tci_ten_cache_count_gpu(struct tci_ten_cache *cache, struct tc_planner *planner,
                                       uint64_t budget, struct tc_error *error)
{
	const struct tc_policy_value *given = tci_given(planner, "gpu-buffers");
	if (given != NULL)
		return tci_given_counts(cache, "gpu-buffers", given, tci_field_gpu, error);
	if (!tc_plan_value(planner, "resident")->is_auto) {
		TC_TRY(tci_ten_cache_logical_counts(cache, planner, error));
	} else {
		bool scarce = false;
		TC_TRY(tci_scale(cache, tci_field_gpu, budget, tci_cap_tensors, 0, &scarce, error));
		if (scarce)
			tci_ratio_fix(cache, tci_field_gpu);
	}
	tci_raise_to_least(cache);
	return TC_OK;
}

enum tc_status tci_ten_cache_count_fp32(struct tci_ten_cache *cache, struct tc_planner *planner,
                                        uint64_t budget, struct tc_error *error)
{
	const struct tc_policy_value *given = tci_given(planner, "fp32-buffers");
	if (given != NULL)
		return tci_given_counts(cache, "fp32-buffers", given, tci_field_fp32, error);
	bool scarce = false;
	TC_TRY(tci_scale(cache, tci_field_fp32, budget, tci_cap_tensors, 0, &scarce, error));
	if (scarce)
		tci_ratio_fix_fp32(cache);
	return TC_OK;
}

enum tc_status tci_ten_cache_count_cpu(struct tci_ten_cache *cache, struct tc_planner *planner,
                                       uint64_t budget, struct tc_error *error)
{
	const struct tc_policy_value *given = tci_given(planner, "cpu-buffers");
	if (given != NULL)
		return tci_given_counts(cache, "cpu-buffers", given, tci_field_cpu, error);
	bool scarce = false;
	TC_TRY(tci_scale(cache, tci_field_cpu, budget, tci_cap_cpu,
	                 tc_plan_number(planner, "x-cpu"), &scarce, error));
	if (scarce)
		tci_ratio_fix(cache, tci_field_cpu);
	/* What leaves the GPU goes to a host buffer, and on from there where it cannot stay. A
	 * count may round to none, and be capped to none with x-cpu=0. */
	for (size_t i = 0; i < cache->class_count; i++)
		if (cache->classes[i].cpu == 0)
			cache->classes[i].cpu = 1;
	return TC_OK;
}
