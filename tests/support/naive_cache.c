#include "naive_cache.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct naive_cache {
	const struct tc_steps *steps;
	const struct tc_trace *trace;
	struct naive_rules rules;
	bool *there, *unfinished; /**< gradients between birth and their event */
	uint64_t *used_at, clock;
};

struct naive_cache *naive_new(const struct tc_steps *steps, struct naive_rules rules)
{
	struct naive_cache *cache = calloc(1, sizeof *cache);
	assert_non_null(cache);
	size_t tensors = steps->trace->tensor_count + 1u;
	*cache = (struct naive_cache){.steps = steps,
	                              .trace = steps->trace,
	                              .rules = rules,
	                              .there = calloc(tensors, sizeof(bool)),
	                              .unfinished = calloc(tensors, sizeof(bool)),
	                              .used_at = calloc(tensors, sizeof(uint64_t))};
	assert_true(cache->there != NULL && cache->unfinished != NULL && cache->used_at != NULL);
	return cache;
}

void naive_free(struct naive_cache *cache)
{
	free(cache->there);
	free(cache->unfinished);
	free(cache->used_at);
	free(cache);
}

bool naive_computes(const struct naive_cache *cache, uint32_t step)
{
	return cache->rules.gpu_optimizer || cache->steps->steps[step].phase != TC_OPTIMIZER;
}

bool naive_manages(const struct naive_cache *cache, uint32_t tensor)
{
	enum tc_tensor_kind kind = cache->trace->tensors[tensor].kind;
	return kind == TC_PARAM || kind == TC_GRAD || kind == TC_OPTIMIZER_STATE ||
	       (cache->rules.activations && kind == TC_ACTIVATION);
}

bool naive_holds(const struct naive_cache *cache, uint32_t tensor)
{
	return cache->there[tensor];
}

static bool listed(struct tc_ids ids, uint32_t tensor)
{
	for (uint32_t i = 0; i < ids.count; i++)
		if (ids.items[i] == tensor)
			return true;
	return false;
}

/** Does the step need the tensor on the GPU? */
static bool needs(const struct naive_cache *cache, uint32_t step, uint32_t tensor)
{
	const struct tc_step *s = &cache->steps->steps[step];
	if (!naive_computes(cache, step))
		return false;
	if (listed(s->requested, tensor) || listed(s->unpacks, tensor))
		return true;
	for (uint32_t o = s->first_op; o <= s->last_op; o++) {
		const struct tc_op *op = &cache->trace->ops[o];
		if (listed(op->reads, tensor) || listed(op->writes, tensor) ||
		    listed(op->allocates, tensor) || listed(op->frees, tensor))
			return true;
	}
	return false;
}

static uint64_t size_of(const struct naive_cache *cache, uint32_t tensor)
{
	uint64_t bytes = cache->trace->tensors[tensor].bytes, a = cache->rules.alignment;
	return (bytes + a - 1) / a * a;
}

static uint64_t held(const struct naive_cache *cache)
{
	uint64_t sum = 0;
	for (uint32_t t = 0; t < cache->trace->tensor_count; t++)
		if (cache->there[t])
			sum += size_of(cache, t);
	return sum;
}

/** Steps until the next use, counted on over iterations; UINT64_MAX: never. */
static uint64_t distance(const struct naive_cache *cache, uint32_t step, uint32_t tensor)
{
	uint32_t count = cache->steps->step_count;
	for (uint32_t ahead = 0; ahead < count; ahead++)
		if (needs(cache, (step + ahead) % count, tensor))
			return ahead;
	return UINT64_MAX;
}

/** Should `a` leave rather than `b`? */
static bool rather(const struct naive_cache *cache, uint32_t step, uint32_t a, uint32_t b)
{
	if (!cache->rules.belady)
		return cache->used_at[a] < cache->used_at[b];
	uint64_t x = distance(cache, step, a), y = distance(cache, step, b);
	if (x != y)
		return x > y;
	return cache->trace->tensors[a].bytes > cache->trace->tensors[b].bytes;
}

static void make_room(struct naive_cache *cache, uint32_t step, uint64_t bytes)
{
	while (held(cache) + bytes > cache->rules.capacity) {
		uint32_t victim = TC_NONE;
		for (uint32_t t = 0; t < cache->trace->tensor_count; t++)
			if (cache->there[t] && !cache->unfinished[t] && !needs(cache, step, t) &&
			    (victim == TC_NONE || rather(cache, step, t, victim)))
				victim = t;
		assert_int_not_equal(victim, TC_NONE);
		cache->there[victim] = false;
	}
}

static void ensure(struct naive_cache *cache, uint32_t step, struct tc_ids ids)
{
	for (uint32_t i = 0; i < ids.count; i++) {
		uint32_t t = ids.items[i];
		if (!naive_manages(cache, t) || cache->there[t])
			continue;
		make_room(cache, step, size_of(cache, t));
		cache->there[t] = true;
	}
}

/** The gradient of a parameter: the last one in the order of the trace. */
static uint32_t gradient_of(const struct naive_cache *cache, uint32_t param)
{
	uint32_t found = TC_NONE;
	for (uint32_t t = 0; t < cache->trace->tensor_count; t++)
		if (cache->trace->tensors[t].kind == TC_GRAD &&
		    cache->trace->tensors[t].of == param)
			found = t;
	return found;
}

static bool has_event(const struct naive_cache *cache, uint32_t gradient)
{
	for (uint32_t e = 0; e < cache->trace->event_count; e++)
		if (cache->trace->events[e].kind == TC_EVENT_GRADIENT &&
		    cache->trace->events[e].tensor == cache->trace->tensors[gradient].of)
			return true;
	return false;
}

static void pass_events(struct naive_cache *cache, const struct tc_step *s)
{
	for (uint32_t e = s->first_event; e < s->first_event + s->event_count; e++) {
		if (cache->trace->events[e].kind != TC_EVENT_GRADIENT)
			continue;
		uint32_t gradient = gradient_of(cache, cache->trace->events[e].tensor);
		if (gradient == TC_NONE)
			continue;
		cache->unfinished[gradient] = false;
		/* Of a persistent one a copy goes down, and it stays. */
		if (!cache->rules.gpu_optimizer && !cache->trace->tensors[gradient].persistent)
			cache->there[gradient] = false;
	}
}

size_t naive_boundary(struct naive_cache *cache, uint32_t step, bool *hits)
{
	const struct tc_step *s = &cache->steps->steps[step];
	size_t count = 0;
	pass_events(cache, s);
	for (uint32_t r = 0; r < s->opening.count; r++) {
		const struct tc_request *request = &cache->steps->requests[s->opening.items[r]];
		for (uint32_t i = 0; i < request->row_count; i++)
			hits[count++] = cache->there[cache->steps->rows[request->first_row + i]];
	}
	if (!naive_computes(cache, step))
		return count;
	ensure(cache, step, s->requested);
	ensure(cache, step, s->unpacks);
	for (uint32_t o = s->first_op; o <= s->last_op; o++) {
		const struct tc_op *op = &cache->trace->ops[o];
		ensure(cache, step, op->allocates);
		for (uint32_t i = 0; i < op->allocates.count; i++) {
			uint32_t t = op->allocates.items[i];
			if (cache->trace->tensors[t].kind == TC_GRAD)
				cache->unfinished[t] = has_event(cache, t);
		}
		ensure(cache, step, op->reads);
		ensure(cache, step, op->writes);
	}
	return count;
}

static void use(struct naive_cache *cache, struct tc_ids ids)
{
	for (uint32_t i = 0; i < ids.count; i++)
		cache->used_at[ids.items[i]] = ++cache->clock;
}

void naive_step_ends(struct naive_cache *cache, uint32_t step)
{
	const struct tc_step *s = &cache->steps->steps[step];
	if (!naive_computes(cache, step))
		return;
	use(cache, s->requested);
	use(cache, s->unpacks);
	use(cache, s->reads);
	use(cache, s->writes);
	for (uint32_t i = 0; i < s->frees.count; i++)
		cache->there[s->frees.items[i]] = false;
}
