/**
 * @file queue_stats.h
 * What each queue did in the measured iterations: bytes, rate while busy, latencies of its
 * commands.
 */
#ifndef TENCACHE_REPLAY_QUEUE_STATS_H
#define TENCACHE_REPLAY_QUEUE_STATS_H

#include "tencache/timing.h"

struct tci_queue_summary {
	uint64_t commands, bytes;
	uint64_t busy_ps;                        /**< at least one command ran */
	uint64_t window_ps;                      /**< of the measured iterations */
	uint64_t p50_ps, p95_ps, p99_ps, max_ps; /**< from start to end */
};

struct tci_queue_stats;

/** @param iterations commands of iterations 1 to this count */
enum tc_status tci_queue_stats_create(uint32_t iterations, struct tci_queue_stats **stats,
                                      struct tc_error *error);
struct tc_timing_sink tci_queue_stats_sink(struct tci_queue_stats *stats);
struct tci_queue_summary tci_queue_stats_of(struct tci_queue_stats *stats, enum tc_queue queue);
void tci_queue_stats_free(struct tci_queue_stats *stats);

#endif
