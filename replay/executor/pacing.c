/** @file pacing.c
 * Predictions of a stored schedule, and the durations that --throttle paces lanes by.
 *
 * A deadline is due = max(due of the lane's predecessor, dues of the dependencies, due of the
 * issue) + duration. Only durations are the engine's: end minus start, which holds every sharing of
 * links. What waits for what, and when the issuing thread comes to a command, the executor composes
 * itself, so a measured time equals the predicted one only if both mean the same by a schedule.
 * Deadlines do not depend on what was measured: a command that is late does not delay the deadlines
 * of those behind it, and errors of the timer do not add up.
 */
#include "pacing.h"

#include <stdlib.h>

#include "tencache/engine.h"
#include "tencache/units.h"

#define BLOCK_BYTES 4096u

/* ---------------------------------------------------------------- prediction */

/** Hands commands on as the executor runs them. */
struct padding {
	struct tc_sink next;
	bool paced;
};

static enum tc_status pad_begin(void *self, const struct tc_plan_info *info, struct tc_error *error)
{
	struct padding *padding = self;
	return padding->next.begin(padding->next.self, info, error);
}

static enum tc_status pad_command(void *self, const struct tc_command *command,
                                  struct tc_error *error)
{
	struct padding *padding = self;
	struct tc_command padded = *command;
	bool drive = command->queue == TC_QUEUE_NVME_READ || command->queue == TC_QUEUE_NVME_WRITE;
	if (drive && !tc_align_up(command->bytes, BLOCK_BYTES, &padded.bytes))
		padded.bytes = command->bytes;
	if (!padding->paced) {
		/* One hand-over a command, no kernels, nobody's hooks; nothing is allocated. */
		padded.launches = command->queue == TC_QUEUE_HOST ? 0 : 1;
		padded.hooks = 0;
		if (command->queue == TC_QUEUE_HOST)
			padded.duration_ps = 0;
	}
	return padding->next.command(padding->next.self, &padded, error);
}

static enum tc_status pad_end(void *self, const struct tc_plan_end *end, struct tc_error *error)
{
	struct padding *padding = self;
	return padding->next.end(padding->next.self, end, error);
}

enum tc_status tc_replay_predict(const struct tc_schedule *schedule,
                                 const struct tc_machine *machine, bool paced,
                                 const struct tc_timing_sink *timing, struct tc_error *error)
{
	struct tc_engine *engine;
	TC_TRY(tc_engine_create(machine, timing, &engine, error));
	struct padding padding = {.next = tc_engine_sink(engine), .paced = paced};
	struct tc_sink sink = {
	    .self = &padding, .begin = pad_begin, .command = pad_command, .end = pad_end};
	enum tc_status status = tc_schedule_play(schedule, &sink, error);
	tc_engine_free(engine);
	return status;
}

/* ---------------------------------------------------------------- durations */

static enum tc_status record(void *self, const struct tc_command *command,
                             const struct tc_timing *timing, struct tc_error *error)
{
	uint64_t *durations_ps = self;
	(void)error;
	durations_ps[command->id] = timing->end_ps - timing->start_ps;
	return TC_OK;
}

enum tc_status tci_pace_create(const struct tc_schedule *schedule, const struct tc_machine *machine,
                               uint64_t **durations_ps, struct tc_error *error)
{
	uint64_t count = schedule->command_count;
	*durations_ps = tc_alloc_array((size_t)count + 1, sizeof **durations_ps);
	if (*durations_ps == NULL)
		return tc_error_no_memory(error, "durations", count * sizeof **durations_ps);
	struct tc_timing_sink sink = {*durations_ps, record};
	return tc_replay_predict(schedule, machine, true, &sink, error);
}

uint64_t tci_issue_cost_ps(const struct tc_command *command, const struct tc_machine *machine)
{
	uint64_t hooks, launches, cost;
	if (!tc_mul_u64(command->hooks, machine->hook_ps, &hooks) ||
	    !tc_mul_u64(command->launches, machine->launch_ps, &launches) ||
	    !tc_add_u64(hooks, launches, &cost))
		return UINT64_MAX;
	return cost;
}

uint64_t tci_compute_ps(const struct tc_command *command, const struct tc_machine *machine)
{
	uint64_t ps = 0;
	if (command->kind != TC_CONVERT)
		return command->duration_ps;
	if (machine == NULL)
		return 0;
	/* As the engine: repacking and bucket copies keep the bits, other conversions do not. */
	bool copies = command->why == TC_WHY_REPACK || command->why == TC_WHY_BUCKET;
	uint64_t rate = machine->memory_bytes_per_s[copies ? TC_COPY : TC_ELEMENTWISE];
	return tc_mul_div_ceil(command->traffic_bytes, TC_PS_PER_S, rate, &ps) ? ps : 0;
}
