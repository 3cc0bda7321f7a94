/** @file executor_cpu.c
 * Queue `cpu`: optimizer updates that really compute AdamW over FP32 state, and conversions.
 *
 * The binds of an update come in op order: per parameter its gradient and its state. The k-th
 * gradient, master, exp_avg and exp_avg_sq among them belong together. State that does not come in
 * such fours (another optimizer, a gradient that is not FP32) is left as synthetic content.
 *
 * A conversion looks at its sources and leaves the synthetic content of its target; where both are
 * the same tensor, or both optimizer state, it copies the bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "executor.h"

/** Parameters of one part of an update: whole blocks of hashes, and its state fits into a cache. */
#define PART_ELEMENTS UINT64_C(65536)
/** Of a conversion's target. */
#define PART_BYTES (PART_ELEMENTS * sizeof(float))
/** Less is looked at sooner than helpers are awake. */
#define WORTH_A_TEAM_BYTES (UINT64_C(1) << 20)
/** Gradients that are mapped at a time, on the stack. */
#define PIECE_ELEMENTS 2048u

/* ---------------------------------------------------------------- which binds */

static bool is_state(const struct tc_plan_info *info, const struct tc_bind *bind, enum tc_role role)
{
	return bind->tensor != TC_NONE && info->tensors[bind->tensor].role == role &&
	       bind->access != TC_READ;
}

static bool is_gradient(const struct tc_plan_info *info, const struct tc_bind *bind)
{
	return bind->tensor != TC_NONE && info->tensors[bind->tensor].kind == TC_GRAD &&
	       bind->access != TC_WRITE;
}

bool tci_adam_find(const struct tc_plan_info *info, const struct tc_command *command, uint32_t k,
                   struct tci_adam_binds *found)
{
	uint32_t counts[4] = {0, 0, 0, 0}, at[4] = {0, 0, 0, 0};
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		const bool is[4] = {is_gradient(info, bind), is_state(info, bind, TC_ROLE_MASTER),
		                    is_state(info, bind, TC_ROLE_EXP_AVG),
		                    is_state(info, bind, TC_ROLE_EXP_AVG_SQ)};
		for (int i = 0; i < 4; i++)
			if (is[i] && counts[i]++ == k)
				at[i] = b;
	}
	for (int i = 0; i < 4; i++) {
		const struct tc_bind *bind = &command->binds[at[i]];
		if (counts[i] <= k || bind->bytes != command->binds[at[1]].bytes ||
		    bind->bytes % sizeof(float) != 0 || bind->offset % sizeof(float) != 0)
			return false;
	}
	*found = (struct tci_adam_binds){at[0], at[1], at[2], at[3]};
	return true;
}

/** Is the bind one of the fours? */
static bool is_adam(const struct tc_plan_info *info, const struct tc_command *command, uint32_t b)
{
	struct tci_adam_binds found;
	for (uint32_t k = 0; k < command->bind_count && tci_adam_find(info, command, k, &found);
	     k++)
		if (b == found.master || b == found.exp_avg || b == found.exp_avg_sq)
			return true;
	return false;
}

/* A tensor that some update cannot compute is synthetic everywhere. */
enum tc_status tci_mark_computed(struct tc_replay *replay, struct tc_error *error)
{
	const struct tc_plan_info *info = replay->info;
	replay->computed = tc_alloc_array((size_t)info->tensor_count + 1, sizeof(bool));
	bool *synthetic = tc_alloc_array((size_t)info->tensor_count + 1, sizeof(bool));
	if (replay->computed == NULL || synthetic == NULL) {
		free(synthetic);
		return tc_error_no_memory(error, "tensors", info->tensor_count);
	}
	for (uint64_t c = 0; c < replay->count; c++) {
		const struct tc_command *command = &replay->schedule->commands[c];
		struct tci_adam_binds found;
		for (uint32_t b = 0; b < command->bind_count; b++) {
			const struct tc_bind *bind = &command->binds[b];
			if (bind->tensor == TC_NONE || bind->access == TC_READ)
				continue;
			synthetic[bind->tensor] |=
			    command->kind == TC_COMPUTE ||
			    (command->kind == TC_UPDATE && !is_adam(info, command, b));
		}
		for (uint32_t k = 0; command->kind == TC_UPDATE && k < command->bind_count &&
		                     tci_adam_find(info, command, k, &found);
		     k++)
			replay->computed[command->binds[found.master].tensor] =
			    replay->computed[command->binds[found.exp_avg].tensor] =
			        replay->computed[command->binds[found.exp_avg_sq].tensor] = true;
	}
	for (uint32_t t = 0; t < info->tensor_count; t++)
		replay->computed[t] = replay->computed[t] && !synthetic[t];
	free(synthetic);
	return TC_OK;
}

/* ---------------------------------------------------------------- update */

struct adam_work {
	struct tc_replay *replay;
	struct tc_adam adam;
	float *master, *exp_avg, *exp_avg_sq;
	const unsigned char *gradient;
	uint64_t count;
	struct tc_content_note *notes[3]; /**< of the state in that order; NULL: not to be hashed */
};

/** What was written is hashed while it is in the cache. */
static void note_part(const struct adam_work *work, uint64_t first, uint64_t last)
{
	float *const state[] = {work->master, work->exp_avg, work->exp_avg_sq};
	struct tc_replay *replay = work->replay;
	if (replay->options.verify == TC_VERIFY_OFF)
		return;
	uint64_t begin_ps = tci_clock_ps(&replay->clock);
	for (int i = 0; i < 3; i++)
		if (work->notes[i] != NULL)
			tc_content_note_hash(work->notes[i], state[i], first * sizeof(float),
			                     (last - first) * sizeof(float));
	atomic_fetch_add(&replay->verify_ps, tci_clock_ps(&replay->clock) - begin_ps);
}

static void adam_part(void *self, uint64_t number)
{
	const struct adam_work *work = self;
	float gradient[PIECE_ELEMENTS];
	uint64_t first = number * PART_ELEMENTS;
	uint64_t last = work->count - first < PART_ELEMENTS ? work->count : first + PART_ELEMENTS;
	for (uint64_t e = first; e < last; e += PIECE_ELEMENTS) {
		uint64_t count = last - e < PIECE_ELEMENTS ? last - e : PIECE_ELEMENTS;
		tc_adam_gradient(work->gradient + e * sizeof(float), gradient, count);
		tc_adam_update(&work->adam, work->master + e, gradient, work->exp_avg + e,
		               work->exp_avg_sq + e, count);
	}
	note_part(work, first, last);
}

static void remember(struct tc_replay *replay, uint32_t tensor, uint64_t version,
                     const void *memory, uint64_t bytes)
{
	struct tc_error error = {0};
	if (tc_content_remember(replay->hashes, tensor, version, memory, bytes, &error) != TC_OK)
		tci_abort_run(replay, error.status, "%s", error.text);
}

static void begin_notes(struct tc_replay *replay, const struct tc_command *command,
                        const uint32_t state[3], struct adam_work *work)
{
	const uint64_t *after = replay->after + replay->first_after[command->id];
	for (int i = 0; i < 3 && replay->options.verify != TC_VERIFY_OFF; i++) {
		const struct tc_bind *bind = &command->binds[state[i]];
		struct tc_error error = {0};
		if (replay->computed[bind->tensor] &&
		    tc_content_note_begin(after[state[i]], bind->bytes, replay->options.verify,
		                          &work->notes[i], &error))
			tci_abort_run(replay, error.status, "%s", error.text);
	}
}

static void keep_notes(struct tc_replay *replay, const struct tc_command *command,
                       const uint32_t state[3], const struct adam_work *work)
{
	for (int i = 0; i < 3; i++) {
		struct tc_error error = {0};
		if (work->notes[i] != NULL &&
		    tc_content_note_keep(replay->hashes, command->binds[state[i]].tensor,
		                         work->notes[i], &error) != TC_OK)
			tci_abort_run(replay, error.status, "%s", error.text);
	}
}

static void update_one(struct tc_replay *replay, const struct tc_command *command,
                       const struct tci_adam_binds *at)
{
	const uint64_t *after = replay->after + replay->first_after[command->id];
	const uint32_t state[] = {at->master, at->exp_avg, at->exp_avg_sq};
	float *memory[3];
	for (int i = 0; i < 3; i++) {
		const struct tc_bind *bind = &command->binds[state[i]];
		memory[i] = (float *)(void *)tci_at(replay, bind->pool, bind->offset);
	}
	const struct tc_bind *gradient = &command->binds[at->gradient];
	struct adam_work work = {.replay = replay,
	                         .adam = {.learning_rate = 1e-3F,
	                                  .beta1 = 0.9F,
	                                  .beta2 = 0.999F,
	                                  .epsilon = 1e-8F,
	                                  .weight_decay = 0.01F,
	                                  .step = after[at->master]},
	                         .master = memory[0],
	                         .exp_avg = memory[1],
	                         .exp_avg_sq = memory[2],
	                         .gradient = tci_at(replay, gradient->pool, gradient->offset),
	                         .count = gradient->bytes / sizeof(float)};
	if (work.adam.step == 0)
		work.adam.step = 1;
	begin_notes(replay, command, state, &work);
	tci_team_run(replay->team, adam_part, &work,
	             (work.count + PART_ELEMENTS - 1) / PART_ELEMENTS);
	keep_notes(replay, command, state, &work);
}

struct reads {
	struct tc_replay *replay;
	const struct tc_command *command;
};

static void check_read(void *self, uint64_t number)
{
	const struct reads *reads = self;
	const struct tc_bind *bind = &reads->command->binds[number];
	if (bind->tensor == TC_NONE || bind->access == TC_WRITE || tci_stopping(reads->replay))
		return;
	(void)tci_check(reads->replay, reads->command, bind->tensor, bind->version, 0,
	                tci_at(reads->replay, bind->pool, bind->offset), bind->bytes, "read by");
}

/** @return the run may go on */
static bool check_reads(struct tc_replay *replay, const struct tc_command *command)
{
	struct reads reads = {replay, command};
	uint64_t bytes = 0;
	if (replay->options.verify == TC_VERIFY_OFF)
		return true;
	for (uint32_t b = 0; b < command->bind_count; b++)
		bytes += command->binds[b].bytes;
	if (bytes >= WORTH_A_TEAM_BYTES)
		tci_team_run(replay->team, check_read, &reads, command->bind_count);
	else
		for (uint32_t b = 0; b < command->bind_count; b++)
			check_read(&reads, b);
	return !tci_stopping(replay);
}

/** Written binds that are no part of an Adam update. */
static void leave_others(struct tc_replay *replay, const struct tc_command *command)
{
	const uint64_t *after = replay->after + replay->first_after[command->id];
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		if (bind->tensor == TC_NONE || bind->access == TC_READ ||
		    replay->computed[bind->tensor])
			continue;
		tci_leave(replay, tci_at(replay, bind->pool, bind->offset), bind->tensor, after[b],
		          bind->bytes, true);
	}
}

void tci_update(struct tc_replay *replay, const struct tc_command *command)
{
	struct tci_adam_binds found;
	if (!check_reads(replay, command))
		return;
	for (uint32_t k = 0; k < command->bind_count; k++) {
		if (!tci_adam_find(replay->info, command, k, &found))
			break;
		update_one(replay, command, &found);
	}
	leave_others(replay, command);
}

/* ---------------------------------------------------------------- convert */

/** The source whose bytes the target takes over, or NULL: the target is synthetic. */
static const struct tc_bind *copied_source(const struct tc_replay *replay,
                                           const struct tc_command *command,
                                           const struct tc_bind *target)
{
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *source = &command->binds[b];
		if (source->tensor == TC_NONE || source->access == TC_WRITE ||
		    source->bytes != target->bytes)
			continue;
		if (source->tensor == target->tensor)
			return source;
		if (replay->computed[source->tensor] && replay->computed[target->tensor])
			return source;
	}
	return NULL;
}

struct conversion {
	unsigned char *target;
	uint32_t tensor;
	uint64_t version, bytes;
};

static void convert_part(void *self, uint64_t number)
{
	const struct conversion *work = self;
	uint64_t offset = number * PART_BYTES, left = work->bytes - offset;
	tc_content_fill(work->target + offset, work->tensor, work->version, offset,
	                left < PART_BYTES ? left : PART_BYTES);
}

/** The processor writes all of the target; of a modelled GPU only what is looked at remains. */
static void convert_into(struct tc_replay *replay, const struct tc_command *command,
                         const struct tc_bind *target, uint64_t version)
{
	struct conversion work = {tci_at(replay, target->pool, target->offset), target->tensor,
	                          version, target->bytes};
	if (command->queue != TC_QUEUE_CPU)
		tci_leave(replay, work.target, work.tensor, version, work.bytes, false);
	else
		tci_team_run(replay->team, convert_part, &work,
		             work.bytes / PART_BYTES + (work.bytes % PART_BYTES != 0));
}

void tci_convert(struct tc_replay *replay, const struct tc_command *command)
{
	const uint64_t *after = replay->after + replay->first_after[command->id];
	if (!check_reads(replay, command))
		return;
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *target = &command->binds[b];
		if (target->tensor == TC_NONE || target->access != TC_WRITE)
			continue;
		unsigned char *memory = tci_at(replay, target->pool, target->offset);
		const struct tc_bind *source = copied_source(replay, command, target);
		if (source == NULL)
			convert_into(replay, command, target, after[b]);
		else
			memmove(memory, tci_at(replay, source->pool, source->offset),
			        (size_t)target->bytes);
		if (source != NULL && source->tensor != target->tensor &&
		    replay->options.verify != TC_VERIFY_OFF)
			remember(replay, target->tensor, after[b], memory, target->bytes);
	}
}
