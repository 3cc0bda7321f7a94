/**
 * @file report.h
 * What a person decides by: times, stalls, the three hit metrics, transfers, memory, cost. Collects
 * timed commands from the engine or the replayer and holds the result of one policy.
 * JSON keys: src/REPORT.md and src/report.schema.json.
 */
#ifndef TENCACHE_REPORT_H
#define TENCACHE_REPORT_H

#include "tencache/planner.h"
#include "tencache/timing.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Counts of requests, by outcome; bytes are the tensors' exact bytes. */
struct tc_hits {
	uint64_t requests, request_bytes;
	uint64_t resident, resident_bytes;
	uint64_t covered, covered_bytes; /**< resident ones included */
	uint64_t ready, ready_bytes;
	uint64_t demand_misses;
	uint64_t always_resident; /**< counted in all of the above, and here apart */
};

struct tc_phase_report {
	uint64_t time_ps, stall_ps, compute_ps;
	struct tc_hits hits;
	struct tc_hits kinds[TC_TENSOR_KIND_COUNT]; /**< the same by kind of the requested tensor */
	uint64_t fetches, fetch_bytes, evictions, eviction_bytes;
};

/** Commands of one queue; `busy_ps`: length of the union of their [start, end] over all lanes,
 * within the reported period. */
struct tc_transfer_report {
	uint64_t count, bytes, busy_ps;
	uint64_t kind_count[TC_TENSOR_KIND_COUNT], kind_bytes[TC_TENSOR_KIND_COUNT];
};

/** Slots in use (aligned) plus framework and workspace slack, over the reported period. */
struct tc_memory_report {
	uint64_t capacity_bytes, fixed_bytes, peak_bytes, mean_bytes;
	uint64_t kind_peak_bytes[TC_TENSOR_KIND_COUNT];
};

struct tc_module_stall {
	uint32_t module; /**< TC_NONE: no module */
	uint64_t stall_ps;
};

struct tc_result {
	char *policy; /**< full string */
	const struct tc_policy_choice *choice; /**< borrowed */
	enum tc_status status; /**< TC_OK or TC_INFEASIBLE */
	char message[TC_ERROR_TEXT_BYTES]; /**< why infeasible */
	struct tc_plan_notes notes;

	uint64_t initial_ps, cold_iteration_ps, iteration_ps, iteration_min_ps, iteration_max_ps;
	uint64_t compute_ps, stall_ps, stalls_ps[TC_STALL_CAUSE_COUNT];
	bool steady;
	struct tc_phase_report phases[TC_PHASE_COUNT];
	uint64_t recompute_requests;
	struct tc_transfer_report transfers[TC_QUEUE_COUNT];
	struct tc_memory_report memory[TC_TIER_COUNT];
	struct tc_module_stall *module_stalls; /**< largest first */
	uint32_t module_stall_count;
	uint64_t commands; /**< of the reported iteration */
	uint64_t pinned_bytes, pinned_rounded_bytes;
	uint64_t pool_count;
	bool changes_semantics; /**< staleness > 0 */
	bool reordered;         /**< steps in an order of the policy, no wait after the optimizer */
	uint64_t read_misses;   /**< managed reads that were no request and not there */
	uint64_t tokens;        /**< of one iteration: batch x sequence x micro-batches; 0: unknown */
	uint64_t flops;         /**< of one iteration, recomputation included */
	/** Iterations until the drives' rated endurance is written; 0: unknown or nothing written. */
	uint64_t endurance_iterations;
	uint64_t price_per_million_tokens_micro_usd; /**< 0: unknown */
};

/**
 * Collects one run. Feed it the plan, before the engine or executor in a tee (it must know of a
 * command before the command ends), and the timing. Memory does not depend on the number of
 * iterations.
 */
struct tc_report;
/** @param iterations N > 0: reports period N of a plan of N + 2 iterations (cold, N, closing) */
enum tc_status tc_report_create(uint32_t iterations, struct tc_report **report,
                                struct tc_error *error);
/** Iterations after which residency repeats (tc_policy.period; 1 unless set). Call before use. */
enum tc_status tc_report_set_period(struct tc_report *report, uint32_t period,
                                    struct tc_error *error);
struct tc_sink tc_report_plan_sink(struct tc_report *report);
struct tc_timing_sink tc_report_timing_sink(struct tc_report *report);
/** Work out the result of period `iterations` (see rules on iterations), once; checks that compute plus
 * stalls equals the iteration time (TC_INTERNAL otherwise). Free with tc_result_clear(). */
enum tc_status tc_report_finish(struct tc_report *report, struct tc_result *result,
                                struct tc_error *error);
void tc_report_free(struct tc_report *report);
/** A row for a policy that cannot run: its text and the planner's message. */
enum tc_status tc_result_infeasible(const struct tc_policy_choice *choice,
                                    const struct tc_error *cause, struct tc_result *result,
                                    struct tc_error *error);
void tc_result_clear(struct tc_result *result);

#ifdef __cplusplus
}
#endif
#endif
