/** @file executor_check.c
 * Verification: is this the wanted content.
 */
#include "executor.h"

bool tci_check(struct tc_replay *replay, const struct tc_command *command, uint32_t tensor,
               uint64_t version, uint64_t offset, const void *memory, uint64_t bytes,
               const char *when)
{
	enum tc_verify how = replay->options.verify;
	if (how == TC_VERIFY_OFF || bytes == 0)
		return true;
	uint64_t begin_ps = tci_clock_ps(&replay->clock);
	bool known = false;
	uint64_t wrong = UINT64_MAX;
	if (replay->computed[tensor])
		wrong = tc_content_check_hashes(replay->hashes, tensor, version, memory, offset,
		                                bytes, how, &known);
	if (!known)
		wrong = tc_content_check(memory, tensor, version, offset, bytes, how);
	atomic_fetch_add(&replay->verify_ps, tci_clock_ps(&replay->clock) - begin_ps);
	atomic_fetch_add(&replay->verified_bytes, bytes);
	if (wrong == UINT64_MAX)
		return true;
	const char *name = replay->info->tensors[tensor].name;
	if (command == NULL)
		tci_abort_run(replay, TC_UNSAFE,
		              "wrong content %s: tensor %u '%s' version %llu, first wrong byte at "
		              "offset %llu",
		              when, (unsigned)tensor, name != NULL ? name : "",
		              (unsigned long long)version, (unsigned long long)wrong);
	else
		tci_abort_run(
		    replay, TC_UNSAFE,
		    "wrong content %s command %llu (%s on %s, iteration %d, step %u): tensor "
		    "%u '%s' version %llu, first wrong byte at offset %llu",
		    when, (unsigned long long)command->id, tc_command_kind_name(command->kind),
		    tc_queue_name(command->queue),
		    command->iteration == TC_ITERATION_INIT ? -1 : (int)command->iteration,
		    (unsigned)command->step, (unsigned)tensor, name != NULL ? name : "",
		    (unsigned long long)version, (unsigned long long)wrong);
	return false;
}

void tci_leave(struct tc_replay *replay, void *memory, uint32_t tensor, uint64_t version,
               uint64_t bytes, bool whole)
{
	enum tc_verify how = replay->options.verify;
	if (!whole && how == TC_VERIFY_OFF)
		return;
	uint64_t begin_ps = tci_clock_ps(&replay->clock);
	if (whole || how == TC_VERIFY_FULL)
		tc_content_fill(memory, tensor, version, 0, bytes);
	else
		tc_content_stamp(memory, tensor, version, 0, bytes);
	if (how != TC_VERIFY_OFF)
		atomic_fetch_add(&replay->verify_ps, tci_clock_ps(&replay->clock) - begin_ps);
}
