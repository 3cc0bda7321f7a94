/**
 * @file report.c
 * The report of one run: takes the plan and the timing, feeds the parts of report_parts.h, and puts
 * their answers together. What each number means: src/REPORT.md.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "report_parts.h"

struct tc_report {
	/** A copy: the result is asked for when the plan is over. Of its lists only `tensors` is
	 * used after begin, and only while commands come. */
	struct tc_plan_info info;
	bool begun;
	char *policy;
	uint64_t pinned_bytes, pinned_rounded_bytes;
	struct tci_times times;
	struct tci_counts counts;
	struct tci_memory memory;
	struct tci_busy busy[TC_QUEUE_COUNT];
	/** For each step: the requests of a recomputed pass that open before it. */
	uint32_t *recompute_rows;
	uint32_t step_count;
};

enum tc_status tc_report_set_period(struct tc_report *report, uint32_t period,
                                    struct tc_error *error)
{
	if (period == 0 || period > 4096)
		return tc_error_set(error, TC_ARGUMENT,
		                    "a policy's period is %" PRIu32 "; expected 1 ... 4096",
		                    period);
	uint64_t *durations = tc_alloc_array(2 * (size_t)period, sizeof *durations);
	uint64_t *signatures = tc_alloc_array(2 * (size_t)period, sizeof *signatures);
	if (durations == NULL || signatures == NULL) {
		free(durations);
		free(signatures);
		return tc_error_no_memory(error, "a report", period);
	}
	free(report->times.durations);
	free(report->times.signatures);
	report->times.durations = durations;
	report->times.signatures = signatures;
	report->times.period = period;
	return TC_OK;
}

enum tc_status tc_report_create(uint32_t iterations, struct tc_report **report,
                                struct tc_error *error)
{
	if (iterations == 0 || iterations > UINT32_MAX - 3)
		return tc_error_set(error, TC_ARGUMENT,
		                    "a report over %" PRIu32 " iterations; expected at least 1",
		                    iterations);
	struct tc_report *result = calloc(1, sizeof *result);
	if (result == NULL)
		return tc_error_no_memory(error, "a report", sizeof *result);
	result->times.wanted = iterations;
	enum tc_status status = tc_report_set_period(result, 1, error);
	if (status != TC_OK)
		tc_report_free(result);
	else
		*report = result;
	return status;
}

void tc_report_free(struct tc_report *report)
{
	if (report == NULL)
		return;
	free(report->policy);
	free(report->times.durations);
	free(report->times.signatures);
	free(report->times.module_stalls);
	tci_memory_clear(&report->memory);
	for (size_t q = 0; q < TC_QUEUE_COUNT; ++q)
		free(report->busy[q].intervals);
	free(report->recompute_rows);
	free(report);
}

/* ---------------------------------------------------------------- sinks */

static void count_recompute_rows(struct tc_report *report, const struct tc_steps *steps)
{
	for (uint32_t s = 0; s < steps->step_count; ++s) {
		struct tc_ids opening = steps->steps[s].opening;
		for (uint32_t i = 0; i < opening.count; ++i) {
			const struct tc_request *request = &steps->requests[opening.items[i]];
			if (request->pass == TC_PASS_RECOMPUTE)
				report->recompute_rows[s] += request->row_count;
		}
	}
}

static uint64_t round_pow2(uint64_t bytes)
{
	uint64_t rounded = 1;
	while (rounded < bytes && rounded < 1ull << 63)
		rounded *= 2;
	return rounded;
}

static void add_pools(struct tc_report *report, const struct tc_plan_info *info)
{
	bool pow2 = info->machine != NULL && info->machine->pinned_rounding == TC_PINNED_POW2;
	for (uint32_t i = 0; i < info->pool_count; ++i) {
		const struct tc_pool_info *pool = &info->pools[i];
		if (pool->tier != TC_CPU || !pool->pinned || pool->bytes == 0)
			continue;
		report->pinned_bytes += pool->bytes;
		report->pinned_rounded_bytes += pow2 ? round_pow2(pool->bytes) : pool->bytes;
	}
}

static enum tc_status plan_begin(void *self, const struct tc_plan_info *info,
                                 struct tc_error *error)
{
	struct tc_report *report = self;
	size_t length = strlen(info->policy) + 1;
	report->policy = malloc(length);
	if (report->policy == NULL)
		return tc_error_no_memory(error, "a report", length);
	memcpy(report->policy, info->policy, length);
	report->info = *info;
	report->begun = true;
	add_pools(report, info);
	if (info->trace != NULL) {
		report->times.module_count = info->trace->module_count;
		report->times.module_stalls =
		    tc_alloc_array((size_t)info->trace->module_count + 1, sizeof(uint64_t));
		if (report->times.module_stalls == NULL)
			return tc_error_no_memory(error, "a report", info->trace->module_count);
	}
	if (info->steps != NULL) {
		report->step_count = info->steps->step_count;
		report->recompute_rows =
		    tc_alloc_array(report->step_count, sizeof *report->recompute_rows);
		if (report->recompute_rows == NULL)
			return tc_error_no_memory(error, "a report", report->step_count);
		count_recompute_rows(report, info->steps);
	}
	return TC_OK;
}

static enum tc_status plan_command(void *self, const struct tc_command *command,
                                   struct tc_error *error)
{
	struct tc_report *report = self;
	if (command->phase == TC_OPTIMIZER && command->iteration != TC_ITERATION_INIT)
		report->times.has_optimizer = true;
	return tci_memory_planned(&report->memory, command, error);
}

static uint32_t module_of(const struct tc_report *report, const struct tc_command *command)
{
	if (report->info.steps == NULL || command->step >= report->step_count)
		return TC_NONE;
	return report->info.steps->steps[command->step].module;
}

static enum tc_status check_command(const struct tc_report *report,
                                    const struct tc_command *command, struct tc_error *error)
{
	if (!report->begun)
		return tc_error_set(error, TC_INTERNAL,
		                    "report: a command ended before the plan began");
	uint32_t tensors = report->info.tensor_count;
	bool sound = command->tensor == TC_NONE || command->tensor < tensors;
	for (uint32_t i = 0; i < command->served_count; ++i)
		sound = sound && command->served[i].tensor < tensors;
	if (sound)
		return TC_OK;
	return tc_error_set(error, TC_INTERNAL,
	                    "report: command %" PRIu64 " names an unknown tensor", command->id);
}

static enum tc_status finished(void *self, const struct tc_command *command,
                               const struct tc_timing *timing, struct tc_error *error)
{
	struct tc_report *report = self;
	struct tci_times *times = &report->times;
	bool boundary = false;
	TC_TRY(check_command(report, command, error));
	TC_TRY(tci_times_finished(times, command, timing, module_of(report, command), &boundary,
	                          error));
	if (boundary) {
		tci_memory_boundary(&report->memory, times->boundary);
		for (size_t q = 0; q < TC_QUEUE_COUNT; ++q)
			tci_busy_drop(&report->busy[q], times->boundary);
	}
	/* What starts after the reported period cannot matter, and would only take memory. */
	if (!times->closed || timing->start_ps < times->wanted_end)
		TC_TRY(tci_busy_add(&report->busy[command->queue], timing->start_ps, timing->end_ps,
		                    error));
	TC_TRY(tci_memory_finished(&report->memory, command, timing, error));
	if (command->iteration == times->wanted) {
		uint32_t recompute = 0;
		if (command->kind == TC_COMPUTE && command->served_count > 0 &&
		    command->step < report->step_count)
			recompute = report->recompute_rows[command->step];
		tci_counts_add(&report->counts, &report->info, command, timing, recompute);
	}
	uint32_t slot = tci_times_slot(times, command->iteration);
	if (slot != UINT32_MAX)
		times->signatures[slot] += tci_counts_signature(command);
	return TC_OK;
}

struct tc_sink tc_report_plan_sink(struct tc_report *report)
{
	return (struct tc_sink){.self = report, .begin = plan_begin, .command = plan_command};
}

struct tc_timing_sink tc_report_timing_sink(struct tc_report *report)
{
	return (struct tc_timing_sink){.self = report, .finished = finished};
}

/* ---------------------------------------------------------------- the result */

static int compare_modules(const void *a, const void *b)
{
	const struct tc_module_stall *left = a, *right = b;
	if (left->stall_ps != right->stall_ps)
		return left->stall_ps > right->stall_ps ? -1 : 1;
	return left->module < right->module ? -1 : left->module > right->module;
}

static enum tc_status list_modules(const struct tci_times *times, struct tc_result *result,
                                   struct tc_error *error)
{
	if (times->module_stalls == NULL)
		return TC_OK;
	result->module_stalls =
	    tc_alloc_array((size_t)times->module_count + 1, sizeof *result->module_stalls);
	if (result->module_stalls == NULL)
		return tc_error_no_memory(error, "stalls of modules", times->module_count);
	for (uint32_t m = 0; m <= times->module_count; ++m)
		if (times->module_stalls[m] > 0)
			result->module_stalls[result->module_stall_count++] =
			    (struct tc_module_stall){m < times->module_count ? m : TC_NONE,
			                             times->module_stalls[m]};
	qsort(result->module_stalls, result->module_stall_count, sizeof *result->module_stalls,
	      compare_modules);
	return TC_OK;
}

static enum tc_status add_times(const struct tci_times *times, struct tc_result *result,
                                struct tc_error *error)
{
	uint64_t sum = 0;
	result->initial_ps = times->initial_ps;
	result->cold_iteration_ps = times->first_boundaries[1] > times->initial_ps
	                                ? times->first_boundaries[1] - times->initial_ps
	                                : 0;
	result->iteration_ps = times->wanted_end - times->wanted_start;
	result->iteration_min_ps = times->shortest;
	result->iteration_max_ps = times->longest;
	result->steady = tci_times_steady(times);
	for (size_t cause = 0; cause < TC_STALL_CAUSE_COUNT; ++cause)
		result->stalls_ps[cause] = times->stalls[cause];
	for (size_t phase = 0; phase < TC_PHASE_COUNT; ++phase) {
		const struct tc_phase_report *from = &times->phases[phase];
		result->phases[phase].time_ps = from->time_ps;
		result->phases[phase].stall_ps = from->stall_ps;
		result->phases[phase].compute_ps = from->compute_ps;
		result->compute_ps += from->compute_ps;
		result->stall_ps += from->stall_ps;
		sum += from->time_ps;
	}
	uint64_t causes = 0;
	for (size_t cause = 0; cause < TC_STALL_CAUSE_COUNT; ++cause)
		causes += times->stalls[cause];
	if (result->compute_ps + result->stall_ps != result->iteration_ps ||
	    sum != result->iteration_ps || causes != result->stall_ps)
		return tc_error_set(error, TC_INTERNAL,
		                    "report: compute %" PRIu64 " and stalls %" PRIu64
		                    " ps do not make the iteration's %" PRIu64,
		                    result->compute_ps, result->stall_ps, result->iteration_ps);
	return list_modules(times, result, error);
}

static void add_counts(const struct tci_counts *counts, struct tc_result *result)
{
	for (size_t phase = 0; phase < TC_PHASE_COUNT; ++phase) {
		const struct tc_phase_report *from = &counts->phases[phase];
		struct tc_phase_report *to = &result->phases[phase];
		to->hits = from->hits;
		memcpy(to->kinds, from->kinds, sizeof to->kinds);
		to->fetches = from->fetches;
		to->fetch_bytes = from->fetch_bytes;
		to->evictions = from->evictions;
		to->eviction_bytes = from->eviction_bytes;
	}
	for (size_t q = 0; q < TC_QUEUE_COUNT; ++q)
		result->transfers[q] = counts->transfers[q];
	result->commands = counts->commands;
	result->read_misses = counts->read_misses;
	result->recompute_requests = counts->recompute_requests;
}

/** Tokens, FLOPs, price and endurance: what trace and machine say about this iteration. */
static void add_worth(const struct tc_plan_info *info, struct tc_result *result)
{
	const struct tc_machine *machine = info->machine;
	const struct tc_trace *trace = info->trace;
	if (trace != NULL) {
		uint64_t batches = trace->micro_batches > 0 ? trace->micro_batches : 1;
		if (!tc_mul_u64(trace->batch, trace->sequence, &result->tokens) ||
		    !tc_mul_u64(result->tokens, batches, &result->tokens))
			result->tokens = 0;
		for (uint32_t op = 0; op < trace->op_count; ++op)
			if (!tc_add_u64(result->flops, trace->ops[op].flops, &result->flops))
				result->flops = UINT64_MAX;
	}
	if (machine == NULL)
		return;
	uint64_t written = result->transfers[TC_QUEUE_NVME_WRITE].bytes;
	if (written > 0)
		result->endurance_iterations = machine->nvme_endurance_bytes / written;
	/* micro-USD of one iteration = price x time / 3,600 s; a million tokens are 1e6 / tokens of
	 * it, and a microsecond's rounding of the time does not show. */
	uint64_t one;
	if (machine->price_per_hour_micro_usd > 0 && result->tokens > 0 &&
	    tc_mul_div_floor(result->iteration_ps / TC_PS_PER_US, machine->price_per_hour_micro_usd,
	                     3600, &one) &&
	    tc_mul_div_floor(one, 1, result->tokens, &one))
		result->price_per_million_tokens_micro_usd = one;
}

enum tc_status tc_report_finish(struct tc_report *report, struct tc_result *result,
                                struct tc_error *error)
{
	const struct tci_times *times = &report->times;
	*result = (struct tc_result){.status = TC_OK};
	if (report->policy == NULL || !times->closed)
		return tc_error_set(error, TC_ARGUMENT,
		                    "report: the run has no complete iteration %" PRIu32
		                    "; plan %" PRIu64 " iterations",
		                    times->wanted, (uint64_t)times->wanted + 2);
	result->policy = report->policy;
	report->policy = NULL;
	result->pool_count = report->info.pool_count;
	result->pinned_bytes = report->pinned_bytes;
	result->pinned_rounded_bytes = report->pinned_rounded_bytes;
	result->changes_semantics = report->info.staleness > 0;
	result->reordered = report->info.reordered;
	tci_counts_finish(&report->counts);
	add_counts(&report->counts, result);
	enum tc_status status = add_times(times, result, error);
	for (size_t q = 0; q < TC_QUEUE_COUNT; ++q)
		result->transfers[q].busy_ps =
		    tci_busy_within(&report->busy[q], times->wanted_start, times->wanted_end);
	for (size_t tier = 0; tier < TC_TIER_COUNT; ++tier) {
		const struct tc_machine *machine = report->info.machine;
		result->memory[tier].capacity_bytes =
		    machine != NULL ? machine->capacity_bytes[tier] : 0;
		result->memory[tier].fixed_bytes = report->info.fixed_bytes[tier];
	}
	if (status == TC_OK)
		status =
		    tci_memory_report(&report->memory, times->wanted_end, result->memory, error);
	add_worth(&report->info, result);
	if (status != TC_OK)
		tc_result_clear(result);
	return status;
}

enum tc_status tc_result_infeasible(const struct tc_policy_choice *choice,
                                    const struct tc_error *cause, struct tc_result *result,
                                    struct tc_error *error)
{
	size_t length = strlen(choice->text) + 1;
	*result = (struct tc_result){.choice = choice, .status = TC_INFEASIBLE};
	result->policy = malloc(length);
	if (result->policy == NULL)
		return tc_error_no_memory(error, "a result", length);
	memcpy(result->policy, choice->text, length);
	memcpy(result->message, cause->text, sizeof result->message);
	return TC_OK;
}

void tc_result_clear(struct tc_result *result)
{
	free(result->policy);
	free(result->module_stalls);
	*result = (struct tc_result){.status = result->status};
}
