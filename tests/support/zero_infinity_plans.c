#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "trace_builder.h"
#include "zero_infinity_plans.h"

struct planned *plan_sizes(const uint64_t *elements, uint32_t count, bool full, const char *policy)
{
	uint64_t bytes[16];
	assert_in_range(count, 1, 16);
	for (uint32_t i = 0; i < count; i++)
		bytes[i] = elements[i] * (full ? 4 : 2);
	const struct test_model model = {
	    .layers = count, .half = !full, .param_bytes = bytes, .param_bytes_count = count};
	const struct planned_options options = {.policy = policy};
	return planned_new(test_model_trace(&model), &options);
}

struct planned *plan_four(const char *policy)
{
	static const uint64_t elements[] = {1000, 1000, 1000, 1000};
	struct planned *planned = plan_sizes(elements, 4, false, policy);
	if (planned->status != TC_OK)
		fprintf(stderr, "%s\n", planned->error.text);
	assert_int_equal(planned->status, TC_OK);
	return planned;
}

/* ---------------------------------------------------------------- looking at commands */

const struct tc_pool_info *pool_of(const struct planned *planned, struct tc_place place)
{
	static const struct tc_pool_info none = {.name = ""};
	return place.pool == TC_NO_POOL ? &none : &planned->schedule->info.pools[place.pool];
}

uint32_t parameter_of(const struct planned *planned, uint32_t tensor)
{
	while (tensor != TC_NONE && tensor >= planned->trace->tensor_count)
		tensor = planned->schedule->info.tensors[tensor].derived_from;
	if (tensor == TC_NONE)
		return TC_NONE;
	return planned->trace->tensors[tensor].kind == TC_PARAM
	           ? tensor
	           : planned->trace->tensors[tensor].of;
}

bool commands_pass(const struct planned *planned, const struct tc_command *command,
                   const struct command_filter *filter)
{
	return command->kind == filter->kind && command->iteration == filter->iteration &&
	       (filter->parameter == TC_NONE ||
	        parameter_of(planned, command->tensor) == filter->parameter) &&
	       (filter->from == NULL ||
	        strcmp(pool_of(planned, command->src)->name, filter->from) == 0) &&
	       (filter->to == NULL ||
	        strcmp(pool_of(planned, command->dst)->name, filter->to) == 0);
}

uint64_t commands_count(const struct planned *planned, const struct command_filter *filter,
                        uint64_t *bytes)
{
	uint64_t found = 0;
	if (bytes != NULL)
		*bytes = 0;
	for (uint64_t id = 0; id < planned->schedule->command_count; id++) {
		const struct tc_command *command = &planned->schedule->commands[id];
		if (!commands_pass(planned, command, filter))
			continue;
		found++;
		if (bytes != NULL)
			*bytes += command->bytes;
	}
	return found;
}

uint64_t commands_find(const struct planned *planned, const struct command_filter *filter,
                       uint64_t index)
{
	for (uint64_t id = 0; id < planned->schedule->command_count; id++)
		if (commands_pass(planned, &planned->schedule->commands[id], filter) &&
		    index-- == 0)
			return id;
	fail_msg("no such command");
	return TC_NO_COMMAND;
}

const struct tc_pool_info *pool_named(const struct planned *planned, const char *name,
                                      enum tc_tier tier)
{
	for (uint32_t i = 0; i < planned->schedule->info.pool_count; i++) {
		const struct tc_pool_info *pool = &planned->schedule->info.pools[i];
		if (strcmp(pool->name, name) == 0 && pool->tier == tier)
			return pool;
	}
	return NULL;
}
