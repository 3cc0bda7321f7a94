#include "plan_case.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void must(enum tc_status status, const struct tc_error *error)
{
	if (status != TC_OK)
		fail_msg("%s", error->text);
}

struct tc_trace *plan_case_shipped(const char *file)
{
	char path[512];
	struct tc_trace *trace = NULL;
	struct tc_error error = {0};
	(void)snprintf(path, sizeof path, "%s/traces/%s", TENCACHE_SOURCE_DIR, file);
	must(tc_trace_read(path, &trace, &error), &error);
	return trace;
}

static void override(struct tc_machine *machine, const char *text)
{
	char name[64];
	struct tc_error error = {0};
	const char *equals = strchr(text, '=');
	if (equals == NULL || (size_t)(equals - text) >= sizeof name)
		fail_msg("machine override '%s' is not name=value", text);
	memcpy(name, text, (size_t)(equals - text));
	name[equals - text] = '\0';
	must(tc_machine_override(machine, name, equals + 1, &error), &error);
}

struct tc_machine *plan_case_machine(const char *first, ...)
{
	struct tc_machine *machine = NULL;
	struct tc_error error = {0};
	must(tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines", &machine, &error),
	     &error);
	va_list rest;
	va_start(rest, first);
	for (const char *text = first; text != NULL; text = va_arg(rest, const char *))
		override(machine, text);
	va_end(rest);
	return machine;
}

void plan_case_override(struct tc_machine *machine, const char *name, uint64_t value)
{
	char text[32];
	struct tc_error error = {0};
	(void)snprintf(text, sizeof text, "%" PRIu64, value);
	must(tc_machine_override(machine, name, text, &error), &error);
}

static enum tc_status run(const struct plan_case *plan, const struct tc_steps *steps,
                          const struct tc_sink *sink, struct tc_plan_notes *notes,
                          struct tc_error *error)
{
	static const struct tc_sink nobody = {0};
	struct tc_policy_choice *parsed = NULL;
	if (plan->choice == NULL)
		must(tc_policy_parse(plan->policy, &parsed, error), error);
	struct tc_plan_options options = {
	    .trace = plan->trace,
	    .steps = steps,
	    .machine = plan->machine,
	    .policy = plan->choice != NULL ? plan->choice : parsed,
	    .iterations = plan->iterations,
	    .alignment = plan->alignment,
	    .sink = sink != NULL ? sink : &nobody,
	};
	enum tc_status status = tc_plan(&options, notes, error);
	tc_policy_choice_free(parsed);
	return status;
}

struct tc_steps *plan_case_steps(const struct plan_case *plan)
{
	struct tc_steps *steps = NULL;
	struct tc_error error = {0};
	must(tc_steps_derive(plan->trace, plan->granularity, plan->requests, plan->frees, &steps,
	                     &error),
	     &error);
	return steps;
}

enum tc_status plan_case_run(const struct plan_case *plan, const struct tc_sink *sink,
                             struct tc_plan_notes *notes, struct tc_error *error)
{
	struct tc_steps *steps = plan_case_steps(plan);
	enum tc_status status = run(plan, steps, sink, notes, error);
	tc_steps_free(steps);
	return status;
}

struct plan_kept plan_case_keep(const struct plan_case *plan)
{
	struct plan_kept planned = {.steps = plan_case_steps(plan)};
	struct tc_error error = {0};
	must(tc_schedule_create(&planned.schedule, &error), &error);
	struct tc_sink sink = tc_schedule_sink(planned.schedule);
	must(run(plan, planned.steps, &sink, &planned.notes, &error), &error);
	return planned;
}

void plan_kept_free(struct plan_kept *planned)
{
	tc_schedule_free(planned->schedule);
	tc_steps_free(planned->steps);
}

enum tc_status plan_case_audit(const struct plan_case *plan, struct tc_audit_report *report,
                               struct tc_error *error)
{
	struct tc_audit *audit = NULL;
	must(tc_audit_create(false, &audit, error), error);
	struct tc_sink sink = tc_audit_sink(audit);
	enum tc_status status = plan_case_run(plan, &sink, NULL, error);
	*report = *tc_audit_result(audit);
	tc_audit_free(audit);
	return status;
}

struct tc_policy_choice *plan_case_choice(const char *text)
{
	struct tc_policy_choice *choice = NULL;
	struct tc_error error = {0};
	must(tc_policy_parse(text, &choice, &error), &error);
	return choice;
}

uint64_t plan_case_findings(const struct tc_schedule *schedule)
{
	struct tc_audit *audit = NULL;
	struct tc_error error = {0};
	must(tc_audit_create(false, &audit, &error), &error);
	struct tc_sink sink = tc_audit_sink(audit);
	must(tc_schedule_play(schedule, &sink, &error), &error);
	uint64_t findings = tc_audit_result(audit)->findings;
	tc_audit_free(audit);
	return findings;
}

/* ---------------------------------------------------------------- hash */

static void add(struct plan_hash *hash, uint64_t value)
{
	for (int i = 0; i < 8; i++) {
		hash->hash ^= (value >> (8 * i)) & 0xff;
		hash->hash *= UINT64_C(0x100000001b3);
	}
}

static void add_place(struct plan_hash *hash, struct tc_place place)
{
	add(hash, place.pool);
	add(hash, place.offset);
}

static void add_lists(struct plan_hash *hash, const struct tc_command *command)
{
	for (uint32_t i = 0; i < command->dep_count; i++) {
		add(hash, command->deps[i].id);
		add(hash, command->deps[i].reason);
	}
	for (uint32_t i = 0; i < command->bind_count; i++) {
		const struct tc_bind *bind = &command->binds[i];
		const uint64_t values[] = {bind->tensor, bind->pool,    bind->offset,
		                           bind->bytes,  bind->version, bind->access};
		for (size_t k = 0; k < sizeof values / sizeof *values; k++)
			add(hash, values[k]);
	}
	for (uint32_t i = 0; i < command->served_count; i++) {
		add(hash, command->served[i].tensor);
		add(hash, command->served[i].outcome);
		add(hash, command->served[i].served_by);
		add(hash, command->served[i].is_request);
		add(hash, command->served[i].always_resident);
	}
	for (uint32_t i = 0; i < command->memory_count; i++) {
		add(hash, (uint64_t)command->memory[i].bytes);
		add(hash, command->memory[i].after);
		add(hash, command->memory[i].tier);
		add(hash, command->memory[i].kind);
	}
}

static enum tc_status hash_command(void *self, const struct tc_command *command,
                                   struct tc_error *error)
{
	struct plan_hash *hash = self;
	(void)error;
	const uint64_t values[] = {
	    command->id,       command->rank,     command->iteration,   command->step,
	    command->queue,    command->lane,     command->kind,        command->why,
	    command->phase,    command->tensor,   command->version,     command->tensor_offset,
	    command->bytes,    command->pageable, command->last_chunk,  command->first_chunk,
	    command->first_op, command->last_op,  command->duration_ps, command->traffic_bytes,
	    command->elements, command->launches, command->hooks};
	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		add(hash, values[i]);
	add_place(hash, command->src);
	add_place(hash, command->dst);
	add_lists(hash, command);
	hash->commands++;
	return TC_OK;
}

struct tc_sink plan_hash_sink(struct plan_hash *hash)
{
	*hash = (struct plan_hash){.hash = UINT64_C(0xcbf29ce484222325)};
	return (struct tc_sink){.self = hash, .command = hash_command};
}
