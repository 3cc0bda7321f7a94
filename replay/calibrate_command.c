/**
 * @file calibrate_command.c
 * What a command costs the issuing thread: a schedule of small independent copies goes through the
 * executor itself, and the times at which it reached the first and the last of them tell.
 */
#include <stdlib.h>

#include "calibrate_parts.h"

#define COMMANDS 4096u
#define COPY_BYTES 4096u
#define HOST_POOL 0u
#define GPU_POOL 1u

/** Times of issue of the first and the last command. */
struct issued {
	uint64_t first_ps, last_ps;
};

static enum tc_status note_issue(void *self, const struct tc_command *command,
                                 const struct tc_timing *timing, struct tc_error *error)
{
	struct issued *issued = self;
	(void)error;
	if (command->id == 0)
		issued->first_ps = timing->issue_ps;
	if (command->id == COMMANDS - 1)
		issued->last_ps = timing->issue_ps;
	return TC_OK;
}

/** One tensor for each command, next to each other in host memory; copied to the same places of the
 * GPU's pool. */
static enum tc_status push_copies(const struct tc_sink *sink, struct tc_plan_tensor *tensors,
                                  struct tc_error *error)
{
	const struct tc_pool_info pools[] = {
	    {"host", TC_CPU, TC_POOL_FIXED, true, (uint64_t)COMMANDS * COPY_BYTES},
	    {"gpu", TC_GPU, TC_POOL_FIXED, false, (uint64_t)COMMANDS * COPY_BYTES}};
	const struct tc_plan_info info = {.policy = "calibrate",
	                                  .trace_name = "calibrate",
	                                  .scale = 1,
	                                  .iterations = 1,
	                                  .lanes = {1, 1, 1, 1, 1, 0, 1, 1},
	                                  .pools = pools,
	                                  .pool_count = 2,
	                                  .tensors = tensors,
	                                  .tensor_count = COMMANDS};
	const struct tc_plan_end end = {.command_count = COMMANDS};
	TC_TRY(sink->begin(sink->self, &info, error));
	for (uint32_t i = 0; i < COMMANDS; ++i) {
		uint64_t offset = (uint64_t)i * COPY_BYTES;
		const struct tc_command command = {.id = i,
		                                   .queue = TC_QUEUE_H2D,
		                                   .kind = TC_FETCH,
		                                   .why = TC_WHY_PREFETCH,
		                                   .tensor = i,
		                                   .bytes = COPY_BYTES,
		                                   .first_chunk = true,
		                                   .last_chunk = true,
		                                   .src = {HOST_POOL, offset},
		                                   .dst = {GPU_POOL, offset},
		                                   .first_op = TC_NONE,
		                                   .last_op = TC_NONE,
		                                   .launches = 1};
		TC_TRY(sink->command(sink->self, &command, error));
	}
	return sink->end(sink->self, &end, error);
}

static enum tc_status create_schedule(struct tc_schedule **schedule, struct tc_error *error)
{
	struct tc_plan_tensor *tensors = tc_alloc_array(COMMANDS, sizeof *tensors);
	if (tensors == NULL)
		return tc_error_no_memory(error, "tensors", COMMANDS);
	for (uint32_t i = 0; i < COMMANDS; ++i)
		tensors[i] =
		    (struct tc_plan_tensor){.name = "",
		                            .kind = TC_PARAM,
		                            .bytes = COPY_BYTES,
		                            .derived_from = TC_NONE,
		                            .home = TC_CPU,
		                            .placed = true,
		                            .start = {HOST_POOL, (uint64_t)i * COPY_BYTES}};
	enum tc_status status = tc_schedule_create(schedule, error);
	if (status == TC_OK) {
		struct tc_sink sink = tc_schedule_sink(*schedule);
		status = push_copies(&sink, tensors, error);
	}
	free(tensors);
	return status;
}

static enum tc_status run_once(const struct tci_calibration *calibration,
                               const struct tc_schedule *schedule, uint64_t *ps,
                               struct tc_error *error)
{
	struct issued issued = {0};
	const struct tc_timing_sink timing = {&issued, note_issue};
	const struct tc_replay_options options = {.schedule = schedule,
	                                          .device = calibration->device,
	                                          .verify = TC_VERIFY_OFF,
	                                          .compute = TC_COMPUTE_NONE,
	                                          .timing = &timing};
	struct tc_replay *replay;
	TC_TRY(tc_replay_create(&options, &replay, error));
	enum tc_status status = tc_replay_finish(replay, error);
	tc_replay_free(replay);
	*ps = (issued.last_ps - issued.first_ps) / (COMMANDS - 1);
	return status;
}

enum tc_status tci_measure_command(struct tci_calibration *calibration, struct tc_error *error)
{
	struct tci_samples samples = {0};
	struct tc_schedule *schedule = NULL;
	enum tc_status status = create_schedule(&schedule, error);
	while (status == TC_OK && samples.count < TCI_MOST_SAMPLES) {
		status = tci_check_interrupt(error);
		if (status == TC_OK)
			status =
			    run_once(calibration, schedule, &samples.values[samples.count], error);
		samples.count += status == TC_OK;
	}
	tc_schedule_free(schedule);
	if (status == TC_OK)
		calibration->issue_ps = tci_samples_median(&samples);
	return status;
}
