/**
 * @file calibrate_probe.c
 * Small schedules that go through the executor itself, so that what it costs is in what is
 * measured. Command i is on queue i mod n of a pattern: copies and reads of 4 KiB, compute that is
 * held, conversions of nothing. Each has a tensor of its own, the i-th 4 KiB of every pool.
 */
#include <stdlib.h>

#include "calibrate_parts.h"

#define COPY_BYTES 4096u

enum { HOST_POOL, GPU_POOL, DRIVE_POOL, POOLS };

static enum tc_queue queue_of(const struct tci_probe *probe, uint64_t id)
{
	return probe->queues[id % probe->queue_count];
}

static bool uses_drive(const struct tci_probe *probe)
{
	for (size_t i = 0; i < probe->queue_count; ++i)
		if (probe->queues[i] == TC_QUEUE_NVME_READ)
			return true;
	return false;
}

static struct tc_command command_of(const struct tci_probe *probe, uint64_t id)
{
	enum tc_queue queue = queue_of(probe, id);
	struct tc_command command = {.id = id,
	                             .queue = queue,
	                             .why = TC_WHY_PREFETCH,
	                             .tensor = TC_NONE,
	                             .first_chunk = true,
	                             .last_chunk = true,
	                             .src = {TC_NO_POOL, 0},
	                             .dst = {TC_NO_POOL, 0},
	                             .first_op = TC_NONE,
	                             .last_op = TC_NONE,
	                             .launches = 1};
	uint32_t from = HOST_POOL, to = GPU_POOL;
	switch (queue) {
	case TC_QUEUE_COMPUTE:
		command.kind = TC_COMPUTE;
		command.duration_ps = TCI_PROBE_HOLD_PS;
		return command;
	case TC_QUEUE_CPU:
		command.kind = TC_CONVERT;
		return command;
	case TC_QUEUE_D2H:
		command.kind = TC_EVICT;
		from = GPU_POOL;
		to = HOST_POOL;
		break;
	case TC_QUEUE_NVME_READ:
		command.kind = TC_LOAD;
		from = DRIVE_POOL;
		to = HOST_POOL;
		break;
	default:
		command.kind = TC_FETCH;
	}
	command.tensor = (uint32_t)id;
	command.bytes = COPY_BYTES;
	command.src = (struct tc_place){from, id * COPY_BYTES};
	command.dst = (struct tc_place){to, id * COPY_BYTES};
	return command;
}

static enum tc_tier home_of(enum tc_queue queue)
{
	return queue == TC_QUEUE_NVME_READ ? TC_NVME : queue == TC_QUEUE_D2H ? TC_GPU : TC_CPU;
}

static enum tc_status push(const struct tci_probe *probe, const struct tc_sink *sink,
                           struct tc_plan_tensor *tensors, struct tc_error *error)
{
	static const uint32_t pool_of[] = {
	    [TC_GPU] = GPU_POOL, [TC_CPU] = HOST_POOL, [TC_NVME] = DRIVE_POOL};
	uint64_t bytes = (uint64_t)probe->commands * COPY_BYTES;
	const struct tc_pool_info pools[POOLS] = {{"host", TC_CPU, TC_POOL_FIXED, true, bytes},
	                                          {"gpu", TC_GPU, TC_POOL_FIXED, false, bytes},
	                                          {"drive", TC_NVME, TC_POOL_FIXED, false, bytes}};
	const struct tc_plan_info info = {.policy = "calibrate",
	                                  .trace_name = "calibrate",
	                                  .scale = 1,
	                                  .iterations = 1,
	                                  .lanes = {1, 1, 1, 1, 1, 0, 1, 1},
	                                  .pools = pools,
	                                  .pool_count = uses_drive(probe) ? POOLS : DRIVE_POOL,
	                                  .tensors = tensors,
	                                  .tensor_count = probe->commands};
	const struct tc_plan_end end = {.command_count = probe->commands};
	for (uint32_t i = 0; i < probe->commands; ++i) {
		enum tc_tier home = home_of(queue_of(probe, i));
		tensors[i] =
		    (struct tc_plan_tensor){.name = "",
		                            .kind = TC_PARAM,
		                            .bytes = COPY_BYTES,
		                            .derived_from = TC_NONE,
		                            .home = home,
		                            .placed = true,
		                            .start = {pool_of[home], (uint64_t)i * COPY_BYTES}};
	}
	TC_TRY(sink->begin(sink->self, &info, error));
	for (uint32_t i = 0; i < probe->commands; ++i) {
		struct tc_command command = command_of(probe, i);
		const struct tc_dependency before = {i - 1u, TC_REASON_DATA};
		if (probe->is_chain && i > 0) {
			command.deps = &before;
			command.dep_count = 1;
		}
		TC_TRY(sink->command(sink->self, &command, error));
	}
	return sink->end(sink->self, &end, error);
}

static enum tc_status create_schedule(const struct tci_probe *probe, struct tc_schedule **schedule,
                                      struct tc_error *error)
{
	struct tc_plan_tensor *tensors = tc_alloc_array(probe->commands, sizeof *tensors);
	if (tensors == NULL)
		return tc_error_no_memory(error, "tensors", probe->commands);
	enum tc_status status = tc_schedule_create(schedule, error);
	if (status == TC_OK) {
		struct tc_sink sink = tc_schedule_sink(*schedule);
		status = push(probe, &sink, tensors, error);
	}
	free(tensors);
	return status;
}

static enum tc_status note(void *self, const struct tc_command *command,
                           const struct tc_timing *timing, struct tc_error *error)
{
	struct tc_timing *timings = self;
	(void)error;
	timings[command->id] = *timing;
	return TC_OK;
}

static enum tc_status run_once(const struct tci_calibration *calibration,
                               const struct tc_schedule *schedule, struct tc_timing *timings,
                               struct tc_error *error)
{
	const struct tc_timing_sink sink = {timings, note};
	const struct tci_calibrate_options *asked = calibration->options;
	const struct tc_replay_options options = {
	    .schedule = schedule,
	    .device = calibration->device,
	    .storage = calibration->storage,
	    .storage_options = {.directories = asked->directories,
	                        .directory_count = asked->directory_count,
	                        .direct = true},
	    .verify = TC_VERIFY_OFF,
	    .compute = TC_COMPUTE_MODEL,
	    .cpu_threads = 1,
	    .timing = &sink};
	struct tc_replay *replay;
	TC_TRY(tc_replay_create(&options, &replay, error));
	enum tc_status status = tc_replay_finish(replay, error);
	tc_replay_free(replay);
	return status;
}

enum tc_status tci_probe(const struct tci_calibration *calibration, const struct tci_probe *probe,
                         struct tci_measured *measured, struct tc_error *error)
{
	struct tci_samples samples = {0};
	struct tc_schedule *schedule = NULL;
	struct tc_timing *timings = tc_alloc_array(probe->commands, sizeof *timings);
	enum tc_status status = timings == NULL
	                            ? tc_error_no_memory(error, "timings", probe->commands)
	                            : create_schedule(probe, &schedule, error);
	while (status == TC_OK && samples.count < TCI_MOST_SAMPLES) {
		status = tci_check_interrupt(error);
		if (status == TC_OK)
			status = run_once(calibration, schedule, timings, error);
		if (status == TC_OK)
			samples.values[samples.count++] = probe->read(timings, probe->commands);
	}
	tc_schedule_free(schedule);
	free(timings);
	if (status == TC_OK)
		*measured = tci_samples_median(&samples);
	return status;
}
