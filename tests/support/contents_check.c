#include "contents_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ITERATIONS 3u
#define ALIGNMENT 512u
#define FRAMEWORK_GPU (UINT64_C(1) << 30)

struct contents {
	struct naive_cache *naive;
	const struct tc_steps *steps;
	const char *policy;
	uint64_t seed;
	uint32_t cache_pool, next_step;
	bool *there, *hits;
	struct contents_totals *totals;
};

static void differ(const struct contents *c, const struct tc_command *command, const char *what,
                   uint32_t tensor, bool naive)
{
	fail_msg("seed %llu, %s, iteration %u step %u: %s of tensor %u: reference says %s",
	         (unsigned long long)c->seed, c->policy, command->iteration, command->step, what,
	         tensor, naive ? "yes" : "no");
}

static enum tc_status begin(void *self, const struct tc_plan_info *info, struct tc_error *error)
{
	struct contents *c = self;
	(void)error;
	c->cache_pool = TC_NO_POOL;
	for (uint32_t p = 0; p < info->pool_count; p++)
		if (strcmp(info->pools[p].name, "cache") == 0)
			c->cache_pool = p;
	assert_int_not_equal(c->cache_pool, TC_NO_POOL);
	return TC_OK;
}

/** The reference passes boundaries until the one of this command's step. */
static size_t catch_up(struct contents *c, const struct tc_command *command)
{
	for (;;) {
		uint32_t step = c->next_step;
		c->next_step = step + 1 == c->steps->step_count ? 0 : step + 1;
		size_t rows = naive_boundary(c->naive, step, c->hits);
		if (naive_computes(c->naive, step)) {
			assert_int_equal(step, command->step);
			return rows;
		}
		naive_step_ends(c->naive, step);
	}
}

static void compare(struct contents *c, const struct tc_command *command)
{
	size_t rows = catch_up(c, command);
	assert_int_equal(rows, command->served_count);
	for (uint32_t i = 0; i < command->served_count; i++) {
		enum tc_outcome expected = c->hits[i] ? TC_RESIDENT : TC_DEMAND_MISS;
		if (command->served[i].outcome != expected)
			differ(c, command, "request", command->served[i].tensor, c->hits[i]);
		c->totals->hits += c->hits[i];
	}
	c->totals->requests += rows;
	c->totals->steps++;
	for (uint32_t t = 0; t < c->steps->trace->tensor_count; t++)
		if (c->there[t] != naive_holds(c->naive, t))
			differ(c, command, "presence", t, naive_holds(c->naive, t));
}

static enum tc_status follow(void *self, const struct tc_command *command, struct tc_error *error)
{
	struct contents *c = self;
	(void)error;
	if (command->kind == TC_FETCH && command->dst.pool == c->cache_pool)
		c->there[command->tensor] = true;
	bool stays = command->kind == TC_GRADIENT && command->why == TC_WHY_HOME;
	if ((command->kind == TC_EVICT || command->kind == TC_GRADIENT ||
	     command->kind == TC_DROP) &&
	    command->src.pool == c->cache_pool && !stays) {
		c->there[command->tensor] = false;
		c->totals->evictions += command->kind != TC_GRADIENT;
	}
	if (command->kind != TC_COMPUTE)
		return TC_OK;
	for (uint32_t b = 0; b < command->bind_count; b++)
		if (command->binds[b].tensor != TC_NONE && command->binds[b].pool == c->cache_pool)
			c->there[command->binds[b].tensor] = true;
	compare(c, command);
	naive_step_ends(c->naive, command->step);
	struct tc_ids frees = c->steps->steps[command->step].frees;
	for (uint32_t i = 0; i < frees.count; i++)
		c->there[frees.items[i]] = false;
	return TC_OK;
}

static struct tc_plan_notes notes_of(const struct tc_trace *trace, struct tc_machine *machine,
                                     const char *policy)
{
	struct plan_case plan = {
	    .trace = trace, .machine = machine, .policy = policy, .iterations = 1};
	struct tc_plan_notes notes;
	struct tc_error error = {0};
	plan_case_override(machine, "gpu-memory", UINT64_C(35) << 30);
	assert_int_equal(plan_case_run(&plan, NULL, &notes, &error), TC_OK);
	return notes;
}

void contents_range(const struct tc_trace *trace, struct tc_machine *machine, const char *policy,
                    uint64_t *least, uint64_t *most)
{
	*least = notes_of(trace, machine, policy).largest_need_bytes;
	*most = *least;
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		*most += trace->tensors[t].bytes + ALIGNMENT;
}

void contents_compare(const struct tc_trace *trace, struct tc_machine *machine, const char *policy,
                      uint64_t capacity, uint64_t seed, struct contents_totals *totals)
{
	struct tc_error error = {0};
	struct tc_steps *steps = NULL;
	uint64_t unmanaged = notes_of(trace, machine, policy).unmanaged_bytes;
	plan_case_override(machine, "gpu-memory", FRAMEWORK_GPU + unmanaged + capacity);
	assert_int_equal(tc_steps_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                                 TC_FREES_LAST_USE, &steps, &error),
	                 TC_OK);
	struct naive_rules rules = {.belady = strncmp(policy, "belady", 6) == 0,
	                            .gpu_optimizer = strstr(policy, "optimizer=gpu") != NULL,
	                            .activations = strstr(policy, "activations=1") != NULL,
	                            .capacity = capacity,
	                            .alignment = ALIGNMENT};
	struct contents c = {.naive = naive_new(steps, rules),
	                     .steps = steps,
	                     .policy = policy,
	                     .seed = seed,
	                     .there = calloc(trace->tensor_count + 1u, sizeof(bool)),
	                     .hits = calloc(steps->row_count + 1u, sizeof(bool)),
	                     .totals = totals};
	assert_true(c.there != NULL && c.hits != NULL);
	struct tc_sink sink = {.self = &c, .begin = begin, .command = follow};
	struct plan_case plan = {
	    .trace = trace, .machine = machine, .policy = policy, .iterations = ITERATIONS};
	enum tc_status status = plan_case_run(&plan, &sink, NULL, &error);
	if (status != TC_OK)
		fail_msg("seed %llu, %s: %s", (unsigned long long)seed, policy, error.text);
	naive_free(c.naive);
	free(c.there);
	free(c.hits);
	tc_steps_free(steps);
}
