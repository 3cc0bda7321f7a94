#include "replay_case.h"

#include <stdio.h>
#include <stdlib.h>

#include "memory_storage.h"
#include "tencache/audit.h"

static void must(enum tc_status status, const struct tc_error *error)
{
	if (status == TC_OK)
		return;
	(void)fprintf(stderr, "%s\n", error->text);
	abort();
}

static enum tc_status plan(struct replay_case *planned, uint32_t iterations, struct tc_error *error)
{
	struct tc_audit *audit;
	must(tc_schedule_create(&planned->schedule, error), error);
	must(tc_audit_create(true, &audit, error), error);
	struct tc_sink sinks[] = {tc_schedule_sink(planned->schedule), tc_audit_sink(audit)};
	struct tc_tee tee = {sinks, 2};
	struct tc_sink sink = tc_tee_sink(&tee);
	const struct tc_plan_options options = {.trace = planned->trace,
	                                        .steps = planned->steps,
	                                        .machine = planned->machine,
	                                        .policy = planned->choice,
	                                        .iterations = iterations,
	                                        .alignment = 64,
	                                        .sink = &sink};
	enum tc_status status = tc_plan(&options, NULL, error);
	tc_audit_free(audit);
	return status;
}

struct replay_case replay_case_plan(const char *policy, const struct test_limits *limits,
                                    uint64_t seed, uint32_t iterations)
{
	struct tc_error error = {0};
	struct replay_case planned = {.trace = test_random_trace(seed, limits)};
	must(tc_steps_derive(planned.trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                     TC_FREES_LAST_USE, &planned.steps, &error),
	     &error);
	must(tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines", &planned.machine,
	                     &error),
	     &error);
	must(tc_policy_parse(policy, &planned.choice, &error), &error);
	struct tc_machine *machine = planned.machine;
	machine->chunk_bytes = 4096;
	machine->framework_bytes[TC_GPU] = machine->framework_bytes[TC_CPU] = 0;
	machine->capacity_bytes[TC_CPU] = 1 << 26;
	machine->capacity_bytes[TC_NVME] = 1 << 28;
	for (uint64_t bytes = 256; bytes < 1 << 26; bytes += bytes / 8) {
		machine->capacity_bytes[TC_GPU] = bytes;
		error = (struct tc_error){0};
		enum tc_status status = plan(&planned, iterations, &error);
		if (status == TC_OK)
			return planned;
		tc_schedule_free(planned.schedule);
		planned.schedule = NULL;
		if (status != TC_INFEASIBLE)
			must(status, &error);
	}
	(void)fprintf(stderr, "%s fits no machine: %s\n", policy, error.text);
	abort();
}

void replay_case_free(struct replay_case *planned)
{
	tc_schedule_free(planned->schedule);
	tc_policy_choice_free(planned->choice);
	tc_machine_free(planned->machine);
	tc_steps_free(planned->steps);
	tc_trace_free(planned->trace);
}

enum tc_status replay_case_run(const struct tc_replay_options *options, struct tc_error *error)
{
	static const char *const directories[] = {"."};
	struct tc_replay_options all = *options;
	struct tc_replay *replay;
	all.device = &tc_device_host;
	if (all.storage == NULL) {
		all.storage = &memory_storage;
		all.storage_options.directories = directories;
		all.storage_options.directory_count = 1;
	}
	if (all.cpu_threads == 0)
		all.cpu_threads = 2;
	enum tc_status status = tc_replay_create(&all, &replay, error);
	if (status != TC_OK)
		return status;
	status = tc_replay_finish(replay, error);
	tc_replay_free(replay);
	return status;
}
