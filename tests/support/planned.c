#include "planned.h"

#include <stdio.h>
#include <stdlib.h>

static void check(enum tc_status status, const struct tc_error *error)
{
	if (status == TC_OK)
		return;
	fprintf(stderr, "planned: %s\n", error->text);
	abort();
}

static void run(struct planned *planned, const struct planned_options *options)
{
	struct tc_audit *audit;
	check(tc_schedule_create(&planned->schedule, &planned->error), &planned->error);
	check(tc_audit_create(false, &audit, &planned->error), &planned->error);
	struct tc_sink sinks[] = {tc_audit_sink(audit), tc_schedule_sink(planned->schedule)};
	struct tc_tee tee = {.sinks = sinks, .count = 2};
	struct tc_sink sink = tc_tee_sink(&tee);
	struct tc_plan_options plan = {
	    .trace = planned->trace,
	    .steps = planned->steps,
	    .machine = planned->machine,
	    .policy = planned->choice,
	    .iterations = options->iterations != 0 ? options->iterations : 3,
	    .alignment = options->alignment,
	    .sink = &sink,
	};
	planned->status = tc_plan(&plan, &planned->notes, &planned->error);
	const struct tc_audit_report *report = tc_audit_result(audit);
	planned->findings = report->findings;
	if (planned->status == TC_OK && report->findings > 0) {
		fprintf(stderr, "planned: %s is unsafe: %s\n", planned->choice->text,
		        report->first);
		abort();
	}
	tc_audit_free(audit);
}

struct planned *planned_new(struct tc_trace *trace, const struct planned_options *options)
{
	struct planned *planned = calloc(1, sizeof *planned);
	if (planned == NULL)
		abort();
	planned->trace = trace;
	struct tc_error *error = &planned->error;
	check(tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines", &planned->machine,
	                      error),
	      error);
	for (size_t i = 0; options->overrides != NULL && options->overrides[i] != NULL; i += 2)
		check(tc_machine_override(planned->machine, options->overrides[i],
		                          options->overrides[i + 1], error),
		      error);
	check(tc_steps_derive(trace, TC_GRANULARITY_MODULE, options->requests, TC_FREES_LAST_USE,
	                      &planned->steps, error),
	      error);
	check(tc_policy_parse(options->policy, &planned->choice, error), error);
	run(planned, options);
	return planned;
}

void planned_free(struct planned *planned)
{
	if (planned == NULL)
		return;
	tc_schedule_free(planned->schedule);
	tc_policy_choice_free(planned->choice);
	tc_steps_free(planned->steps);
	tc_machine_free(planned->machine);
	tc_trace_free(planned->trace);
	free(planned);
}
