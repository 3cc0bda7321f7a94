/** @file executor.c
 * A replay from beginning to end: what it needs is made, nothing of it is timed; then it runs
 * (executor_run.c); then everything goes, files included.
 */
#include <stdlib.h>
#include <unistd.h>

#include "executor.h"

static enum tc_status check_options(const struct tc_replay_options *options, struct tc_error *error)
{
	const struct tc_plan_info *info = &options->schedule->info;
	if (info->unlimited_memory)
		return tc_error_set(error, TC_ARGUMENT,
		                    "policy %s plans with unlimited memory: a bound to compare "
		                    "with, not something that can be run",
		                    info->policy != NULL ? info->policy : "?");
	if (info->lanes[TC_QUEUE_COMPUTE] > 0 && options->throttle == NULL && options->dilate > 1)
		return tc_error_set(error, TC_ARGUMENT,
		                    "time can be dilated only with --throttle: real copies do not "
		                    "slow down");
	for (uint64_t c = 0; c < options->schedule->command_count; c++)
		if (options->schedule->commands[c].queue == TC_QUEUE_GPU_NVME)
			return tc_error_set(
			    error, TC_ARGUMENT,
			    "command %llu uses a direct path between drive and GPU, "
			    "which device %s does not have",
			    (unsigned long long)c, options->device->name);
	return TC_OK;
}

static enum tc_status init_locks(struct tc_replay *replay, struct tc_error *error)
{
	bool made =
	    sem_init(&replay->wake, 0, 0) == 0 && pthread_mutex_init(&replay->mutex, NULL) == 0;
	for (uint32_t lane = 0; lane < TC_MAX_LANES && made; lane++)
		made = pthread_mutex_init(&replay->lanes[lane].mutex, NULL) == 0;
	return made ? TC_OK : tc_error_set(error, TC_NO_MEMORY, "no locks for a replay");
}

static uint32_t cpu_threads(const struct tc_replay *replay)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	if (replay->options.cpu_threads > 0)
		return replay->options.cpu_threads < 256 ? replay->options.cpu_threads : 256;
	return cores > 0 && cores < 256 ? (uint32_t)cores : 1;
}

/** One thread for each own lane that can be busy, so that none waits for another's work. */
static enum tc_status create_workers(struct tc_replay *replay, struct tc_error *error)
{
	const uint32_t *lanes = replay->info->lanes;
	uint32_t drives = lanes[TC_QUEUE_NVME_READ] + lanes[TC_QUEUE_NVME_WRITE];
	uint32_t threads = lanes[TC_QUEUE_CPU] + (replay->io_count > 0 ? drives : 0) + 1;
	TC_TRY(tci_team_create(cpu_threads(replay), &replay->team, error));
	return tci_lanes_create(3 * replay->lane_count, threads, tci_clock_ps, &replay->clock,
	                        &replay->own, error);
}

static void register_memory(struct tc_replay *replay)
{
	const struct tc_plan_info *info = replay->info;
	for (uint32_t drive = 0; drive < info->pool_count; drive++) {
		if (replay->pools[drive].storage == NULL)
			continue;
		for (uint32_t p = 0; p < info->pool_count; p++)
			if (info->pools[p].tier == TC_CPU && replay->pools[p].memory != NULL)
				replay->options.storage->register_memory(
				    replay->pools[drive].storage, replay->pools[p].memory,
				    replay->pools[p].bytes);
		for (uint32_t lane = 0; lane < replay->lane_count; lane++)
			if (replay->buffers[lane] != NULL)
				replay->options.storage->register_memory(
				    replay->pools[drive].storage, replay->buffers[lane],
				    replay->buffer_bytes[lane]);
	}
}

static enum tc_status create(struct tc_replay *replay, struct tc_error *error)
{
	TC_TRY(check_options(&replay->options, error));
	TC_TRY(init_locks(replay, error));
	TC_TRY(tci_graph_build(replay, error));
	TC_TRY(tci_mark_computed(replay, error));
	TC_TRY(tc_content_hashes_create(&replay->hashes, error));
	TC_TRY(tci_tasks_create(replay, error));
	if (replay->options.throttle != NULL)
		TC_TRY(tci_pace_create(replay->schedule, replay->options.throttle,
		                       &replay->paced_ps, error));
	TC_TRY(replay->options.device->create(replay->lane_count, tci_clock_ps, &replay->clock,
	                                      &replay->device, error));
	TC_TRY(tci_contents_create(replay, error));
	TC_TRY(tci_io_create(replay, error));
	TC_TRY(create_workers(replay, error));
	register_memory(replay);
	return tci_contents_fill(replay, error);
}

enum tc_status tc_replay_create(const struct tc_replay_options *options, struct tc_replay **replay,
                                struct tc_error *error)
{
	*replay = NULL;
	struct tc_replay *made = calloc(1, sizeof *made);
	if (made == NULL)
		return tc_error_no_memory(error, "a replay", sizeof *made);
	made->options = *options;
	made->schedule = options->schedule;
	made->info = &options->schedule->info;
	made->count = options->schedule->command_count;
	made->dilate = options->dilate > 0 ? options->dilate : 1;
	made->machine = options->throttle != NULL  ? options->throttle
	                : options->machine != NULL ? options->machine
	                                           : made->info->machine;
	tci_clock_start(&made->clock);
	enum tc_status status = create(made, error);
	made->facts.setup_ps = tci_clock_ps(&made->clock);
	if (status != TC_OK) {
		tc_replay_free(made);
		return status;
	}
	*replay = made;
	return TC_OK;
}

const struct tc_replay_facts *tc_replay_facts(const struct tc_replay *replay)
{
	/* The counters are the workers'; the caller sees a copy of what they say now. */
	struct tc_replay *self = (struct tc_replay *)(uintptr_t)replay;
	struct tc_replay_facts *facts = &self->facts;
	facts->verified_bytes = atomic_load(&self->verified_bytes);
	facts->verify_ps = atomic_load(&self->verify_ps);
	facts->overrun_commands = atomic_load(&self->overrun_commands);
	facts->overrun_ps = atomic_load(&self->overrun_ps);
	facts->bounced_bytes = atomic_load(&self->bounced_bytes);
	uint64_t retries = 0, shorts = 0;
	for (uint32_t p = 0; p < self->info->pool_count; p++) {
		struct tc_storage_facts one = {0};
		if (self->pools[p].storage == NULL)
			continue;
		self->options.storage->facts(self->pools[p].storage, &one);
		retries += one.retries;
		shorts += one.short_transfers;
		facts->storage = one;
	}
	facts->storage.retries = retries;
	facts->storage.short_transfers = shorts;
	return facts;
}

void tc_replay_free(struct tc_replay *replay)
{
	if (replay == NULL)
		return;
	/* What is in flight ends first: its callbacks use everything below. */
	atomic_store(&replay->cancelled, true);
	if (atomic_load(&replay->in_flight) != 0)
		tci_quiesce(replay);
	tci_lanes_destroy(replay->own);
	tci_team_destroy(replay->team);
	if (replay->pools != NULL)
		tci_contents_clear(replay);
	if (replay->device != NULL)
		replay->options.device->destroy(replay->device);
	tci_io_clear(replay);
	tci_tasks_clear(replay);
	free(replay->paced_ps);
	tc_content_hashes_free(replay->hashes);
	free(replay->computed);
	tci_graph_clear(replay);
	for (uint32_t lane = 0; lane < TC_MAX_LANES; lane++)
		pthread_mutex_destroy(&replay->lanes[lane].mutex);
	pthread_mutex_destroy(&replay->mutex);
	(void)sem_destroy(&replay->wake);
	free(replay);
}
