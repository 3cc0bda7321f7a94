#include "ten_cache_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

struct plan_kept ten_cache_plan(const struct tc_trace *trace, const struct tc_machine *machine,
                                const char *policy)
{
	struct plan_case plan = {
	    .trace = trace, .machine = machine, .policy = policy, .iterations = TEN_CACHE_PLANNED};
	struct plan_kept planned = plan_case_keep(&plan);
	struct tc_audit *audit = NULL;
	struct tc_error error = {0};
	assert_int_equal(tc_audit_create(false, &audit, &error), TC_OK);
	struct tc_sink sink = tc_audit_sink(audit);
	assert_int_equal(tc_schedule_play(planned.schedule, &sink, &error), TC_OK);
	if (tc_audit_result(audit)->findings > 0)
		print_error("%s: %s\n", policy, tc_audit_result(audit)->first);
	assert_int_equal(tc_audit_result(audit)->findings, 0);
	tc_audit_free(audit);
	return planned;
}

uint32_t ten_cache_pool(const struct plan_kept *planned, const char *name)
{
	const struct tc_plan_info *info = &planned->schedule->info;
	for (uint32_t p = 0; p < info->pool_count; p++)
		if (strcmp(info->pools[p].name, name) == 0)
			return p;
	fail_msg("no pool '%s'", name);
	return TC_NO_POOL;
}

uint64_t ten_cache_class_sum(const struct class_count *classes, size_t count)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += classes[i].bytes * classes[i].count; /* all are multiples of the alignment */
	return sum;
}

void ten_cache_occupy(struct occupancy *o, uint64_t bytes, int64_t change)
{
	for (size_t i = 0; i < o->class_count; i++) {
		if (o->classes[i].bytes != bytes)
			continue;
		o->now[i] = (uint64_t)((int64_t)o->now[i] + change);
		if (o->now[i] > o->most[i])
			o->most[i] = o->now[i];
		return;
	}
	fail_msg("a parameter of a class that the test does not list");
}

void ten_cache_occupancy(const struct plan_kept *planned, struct occupancy *o)
{
	const struct tc_schedule *s = planned->schedule;
	const struct tc_plan_info *info = &s->info;
	bool steady = false;
	for (uint32_t t = 0; t < info->tensor_count; t++)
		if (info->tensors[t].placed && info->tensors[t].start.pool == o->pool)
			ten_cache_occupy(o, info->tensors[t].bytes, 1);
	for (uint32_t c = 0; c < info->copy_count; c++)
		assert_int_not_equal(info->copies[c].place.pool, o->pool);
	for (uint64_t c = 0; c < s->command_count; c++) {
		const struct tc_command *command = &s->commands[c];
		if (!steady && command->iteration == TEN_CACHE_STEADY) {
			memcpy(o->most, o->now, sizeof o->most);
			steady = true;
		}
		if (command->kind == TC_FETCH && command->dst.pool == o->pool)
			ten_cache_occupy(o, info->tensors[command->tensor].bytes, 1);
		if ((command->kind == TC_EVICT && command->src.pool == o->pool) ||
		    (command->kind == TC_DROP && command->src.pool == o->pool))
			ten_cache_occupy(o, info->tensors[command->tensor].bytes, -1);
	}
}
