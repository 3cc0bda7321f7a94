/**
 * @file engine.h
 * The discrete-event engine (libtencache_sim): runs a stream of commands on a machine in exact
 * integer time. Method: sim/engine/README.md.
 */
#ifndef TENCACHE_ENGINE_H
#define TENCACHE_ENGINE_H

#include "tencache/timing.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tc_engine;

/**
 * An engine that consumes commands as they come and reports each finished one to `sink` (copied).
 * Memory depends on how many commands wait, not on how many pass: the host thread's clock may run
 * ahead of the lanes, and what is issued but has not ended waits. It runs one plan; lanes are those
 * of the plan info. `machine` is borrowed.
 *
 * Errors of its sink: TC_ARGUMENT for ids that are not dense, dependencies on larger ids, lanes or
 * paths that the machine lacks; TC_TOO_LARGE for times beyond 2^64 ps.
 */
enum tc_status tc_engine_create(const struct tc_machine *machine,
                                const struct tc_timing_sink *sink, struct tc_engine **engine,
                                struct tc_error *error);
struct tc_sink tc_engine_sink(struct tc_engine *engine);
void tc_engine_free(struct tc_engine *engine);

/* ---------------------------------------------------------------- max-min fair sharing */

#define TC_MAX_RESOURCES 16
/** Flows that one call of tc_share_rates() divides resources among. */
#define TC_MAX_FLOWS 64

/** Work is counted in units of 2^-40 byte, rates in units per picosecond. */
#define TC_WORK_BITS 40

/** A flow uses resources with integer weights, and may have a cap of its own (0: none). */
struct tc_flow {
	uint32_t resource_count;
	uint8_t resources[TC_MAX_RESOURCES];
	uint32_t weights[TC_MAX_RESOURCES];
	uint64_t cap;
};

/**
 * Max-min fair rates by progressive filling, in integers: shares rounded down, ties by resource
 * index; capped flows freeze first at their cap.
 * @param capacity rate of each resource, same unit as the caps; the result is in that unit
 * @param resource_count at most TC_MAX_RESOURCES; the flows name only such resources
 * @param flow_count at most TC_MAX_FLOWS
 * @param rates one per flow; UINT64_MAX for a flow that nothing limits
 */
void tc_share_rates(const uint64_t *capacity, uint32_t resource_count, const struct tc_flow *flows,
                    uint32_t flow_count, uint64_t *rates);

/** bytes per second to 2^-40 byte per ps, rounded down; saturates at UINT64_MAX. */
uint64_t tc_rate_units(uint64_t bytes_per_s);

#ifdef __cplusplus
}
#endif
#endif
