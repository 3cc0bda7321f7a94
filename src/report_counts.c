/**
 * @file report_counts.c
 * Requests by outcome, fetches and evictions, transfers: properties of the schedule, only `ready`
 * is timed.
 */
#include "report_parts.h"

static void count_request(struct tc_hits *hits, const struct tc_served *served, uint64_t bytes,
                          bool ready)
{
	++hits->requests;
	hits->request_bytes += bytes;
	if (served->outcome == TC_RESIDENT) {
		++hits->resident;
		hits->resident_bytes += bytes;
	}
	if (served->outcome == TC_DEMAND_MISS) {
		++hits->demand_misses;
	} else {
		++hits->covered;
		hits->covered_bytes += bytes;
	}
	if (ready) {
		++hits->ready;
		hits->ready_bytes += bytes;
	}
	hits->always_resident += served->always_resident;
}

static void count_served(struct tci_counts *counts, const struct tc_plan_info *info,
                         const struct tc_command *command, const struct tc_timing *timing)
{
	struct tc_phase_report *phase = &counts->phases[command->phase];
	for (uint32_t i = 0; i < command->served_count; ++i) {
		const struct tc_served *served = &command->served[i];
		if (!served->is_request) {
			counts->read_misses += served->outcome == TC_DEMAND_MISS;
			continue;
		}
		const struct tc_plan_tensor *tensor = &info->tensors[served->tensor];
		bool ready = timing->ready != NULL && timing->ready[i];
		count_request(&phase->hits, served, tensor->bytes, ready);
		count_request(&phase->kinds[tensor->kind], served, tensor->bytes, ready);
	}
}

static void count_transfer(struct tci_counts *counts, const struct tc_plan_info *info,
                           const struct tc_command *command)
{
	struct tc_transfer_report *transfer = &counts->transfers[command->queue];
	++transfer->count;
	transfer->bytes += command->bytes;
	if (command->tensor == TC_NONE)
		return;
	enum tc_tensor_kind kind = info->tensors[command->tensor].kind;
	++transfer->kind_count[kind];
	transfer->kind_bytes[kind] += command->bytes;
	uint64_t *moves = counts->moves[command->phase][kind];
	if (command->kind == TC_FETCH) {
		moves[0] += command->first_chunk;
		moves[1] += command->bytes;
	} else if (command->kind == TC_EVICT) {
		moves[2] += command->first_chunk;
		moves[3] += command->bytes;
	}
}

void tci_counts_add(struct tci_counts *counts, const struct tc_plan_info *info,
                    const struct tc_command *command, const struct tc_timing *timing,
                    uint32_t recompute)
{
	++counts->commands;
	counts->recompute_requests += recompute;
	count_served(counts, info, command, timing);
	count_transfer(counts, info, command);
}

void tci_counts_finish(struct tci_counts *counts)
{
	bool requested[TC_TENSOR_KIND_COUNT] = {false};
	for (size_t phase = 0; phase < TC_PHASE_COUNT; ++phase)
		for (size_t kind = 0; kind < TC_TENSOR_KIND_COUNT; ++kind)
			if (counts->phases[phase].kinds[kind].requests > 0)
				requested[kind] = true;
	for (size_t phase = 0; phase < TC_PHASE_COUNT; ++phase) {
		struct tc_phase_report *report = &counts->phases[phase];
		for (size_t kind = 0; kind < TC_TENSOR_KIND_COUNT; ++kind) {
			const uint64_t *moves = counts->moves[phase][kind];
			if (!requested[kind])
				continue;
			report->fetches += moves[0];
			report->fetch_bytes += moves[1];
			report->evictions += moves[2];
			report->eviction_bytes += moves[3];
		}
	}
}

/** The finalizer of splitmix64. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

uint64_t tci_counts_signature(const struct tc_command *command)
{
	uint64_t where = mix(((uint64_t)command->step << 8) + (uint64_t)command->kind + 1);
	uint64_t sum = 0;
	for (uint32_t i = 0; i < command->served_count; ++i) {
		const struct tc_served *served = &command->served[i];
		sum += mix(where + ((uint64_t)served->tensor << 3) +
		           ((uint64_t)served->outcome << 1) + served->is_request);
	}
	/* Sums, because the order in which commands of different lanes end may vary. */
	if (command->bytes > 0)
		sum +=
		    mix(where ^ mix(((uint64_t)command->tensor << 8) + (uint64_t)command->queue) ^
		        command->tensor_offset);
	return sum;
}
