#include "small_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define FRAMEWORK_GPU (UINT64_C(1) << 30)

struct small small_of(struct test_builder *builder, uint64_t gpu_bytes)
{
	bool filled = false;
	for (size_t o = 0; o < builder->op_count; o++)
		filled = filled || builder->ops[o].allocates.count > 0;
	if (!filled)
		test_fill_lifetimes(builder);
	struct small small = {test_builder_trace(builder), plan_case_machine(NULL)};
	test_builder_free(builder);
	plan_case_override(small.machine, "gpu-memory", FRAMEWORK_GPU + gpu_bytes);
	return small;
}

void small_free(struct small *small)
{
	tc_trace_free(small->trace);
	tc_machine_free(small->machine);
}

struct plan_case small_case(const struct small *small, const char *policy)
{
	return (struct plan_case){
	    .trace = small->trace, .machine = small->machine, .policy = policy, .iterations = 2};
}

struct plan_kept small_kept(const struct small *small, const char *policy)
{
	struct plan_case plan = small_case(small, policy);
	struct outcome outcome = plan_and_check(&plan, 0);
	if (outcome.status != TC_OK)
		fail_msg("%s: %s", policy, outcome.text);
	return plan_case_keep(&plan);
}

uint32_t small_pool(const struct tc_schedule *schedule, const char *name)
{
	for (uint32_t p = 0; p < schedule->info.pool_count; p++)
		if (strcmp(schedule->info.pools[p].name, name) == 0)
			return p;
	fail_msg("no pool \"%s\"", name);
	return TC_NO_POOL;
}

uint32_t small_derived(const struct tc_schedule *schedule, uint32_t source,
                       enum tc_tensor_kind kind)
{
	for (uint32_t t = 0; t < schedule->info.tensor_count; t++)
		if (schedule->info.tensors[t].derived_from == source &&
		    schedule->info.tensors[t].kind == kind)
			return t;
	fail_msg("nothing is derived from tensor %u", source);
	return TC_NONE;
}

const struct tc_bind *small_bind(const struct tc_command *command, uint32_t tensor)
{
	for (uint32_t b = 0; b < command->bind_count; b++)
		if (command->binds[b].tensor == tensor)
			return &command->binds[b];
	return NULL;
}

void small_forward(struct test_builder *b, uint32_t module, const uint32_t *reads,
                   const uint32_t *writes)
{
	test_add_event(b, TC_EVENT_FORWARD_PRE, module);
	test_add_op(b, TC_FORWARD, module, reads, writes);
	test_add_event(b, TC_EVENT_FORWARD_POST, module);
}

struct test_builder *small_two_modules(void)
{
	struct test_builder *b = test_builder_new();
	uint32_t p0 = test_add_tensor(b, TC_PARAM, SLOT), p1 = test_add_tensor(b, TC_PARAM, SLOT);
	uint32_t x = test_add_tensor(b, TC_ACTIVATION, SLOT);
	uint32_t m0 = test_add_module(b, "a", TEST_IDS(p0));
	uint32_t m1 = test_add_module(b, "b", TEST_IDS(p1));
	test_add_event(b, TC_EVENT_START, TC_NONE);
	small_forward(b, m0, TEST_IDS(p0), TEST_IDS(x, p0));
	small_forward(b, m1, TEST_IDS(p1, x), TEST_IDS(x));
	test_add_event(b, TC_EVENT_END, TC_NONE);
	return b;
}
