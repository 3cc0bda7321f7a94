/** @file queue_stats.c
 * Commands of the measured iterations by queue. Percentiles are by nearest rank: the smallest
 * latency that at least so many percent of the commands do not exceed.
 */
#include "queue_stats.h"

#include <stdlib.h>

#include "tencache/units.h"

struct sample {
	uint64_t start_ps, end_ps;
};

struct queue {
	struct sample *samples;
	size_t count, capacity;
	uint64_t bytes;
};

struct tci_queue_stats {
	uint32_t iterations;
	uint64_t first_ps, last_ps; /**< starts of iteration 1 and of the closing one */
	bool begun, closed;
	struct queue queues[TC_QUEUE_COUNT];
};

enum tc_status tci_queue_stats_create(uint32_t iterations, struct tci_queue_stats **stats,
                                      struct tc_error *error)
{
	*stats = calloc(1, sizeof **stats);
	if (*stats == NULL)
		return tc_error_no_memory(error, "statistics", sizeof **stats);
	(*stats)->iterations = iterations;
	return TC_OK;
}

/** The window: as the report, from the first step of an iteration to that of the next. */
static void note_window(struct tci_queue_stats *stats, const struct tc_command *command,
                        const struct tc_timing *timing)
{
	if (command->kind != TC_COMPUTE || command->lane != 0)
		return;
	if (command->iteration == 1 && !stats->begun) {
		stats->begun = true;
		stats->first_ps = timing->start_ps;
	}
	if (command->iteration == stats->iterations + 1 && !stats->closed) {
		stats->closed = true;
		stats->last_ps = timing->start_ps;
	}
}

static enum tc_status finished(void *self, const struct tc_command *command,
                               const struct tc_timing *timing, struct tc_error *error)
{
	struct tci_queue_stats *stats = self;
	struct queue *queue = &stats->queues[command->queue];
	note_window(stats, command, timing);
	if (command->iteration == TC_ITERATION_INIT || command->iteration == 0 ||
	    command->iteration > stats->iterations || command->queue == TC_QUEUE_HOST)
		return TC_OK;
	if (!tc_grow_array(&queue->samples, &queue->capacity, queue->count + 1,
	                   sizeof *queue->samples))
		return tc_error_no_memory(error, "statistics", queue->count);
	queue->samples[queue->count++] = (struct sample){timing->start_ps, timing->end_ps};
	queue->bytes += command->queue == TC_QUEUE_CPU ? command->traffic_bytes : command->bytes;
	return TC_OK;
}

struct tc_timing_sink tci_queue_stats_sink(struct tci_queue_stats *stats)
{
	return (struct tc_timing_sink){stats, finished};
}

static int by_start(const void *left, const void *right)
{
	const struct sample *a = left, *b = right;
	return a->start_ps < b->start_ps ? -1 : a->start_ps > b->start_ps;
}

static int by_latency(const void *left, const void *right)
{
	const struct sample *a = left, *b = right;
	uint64_t x = a->end_ps - a->start_ps, y = b->end_ps - b->start_ps;
	return x < y ? -1 : x > y;
}

static uint64_t percentile(const struct queue *queue, uint64_t percent)
{
	size_t rank = (size_t)((queue->count * percent + 99) / 100);
	const struct sample *sample = &queue->samples[rank > 0 ? rank - 1 : 0];
	return sample->end_ps - sample->start_ps;
}

struct tci_queue_summary tci_queue_stats_of(struct tci_queue_stats *stats, enum tc_queue which)
{
	struct queue *queue = &stats->queues[which];
	struct tci_queue_summary summary = {
	    .commands = queue->count,
	    .bytes = queue->bytes,
	    .window_ps = stats->closed ? stats->last_ps - stats->first_ps : 0};
	uint64_t until = 0;
	if (queue->count == 0)
		return summary;
	qsort(queue->samples, queue->count, sizeof *queue->samples, by_start);
	for (size_t i = 0; i < queue->count; i++) {
		const struct sample *sample = &queue->samples[i];
		uint64_t from = sample->start_ps > until ? sample->start_ps : until;
		if (sample->end_ps > from) {
			summary.busy_ps += sample->end_ps - from;
			until = sample->end_ps;
		}
	}
	qsort(queue->samples, queue->count, sizeof *queue->samples, by_latency);
	summary.p50_ps = percentile(queue, 50);
	summary.p95_ps = percentile(queue, 95);
	summary.p99_ps = percentile(queue, 99);
	summary.max_ps = percentile(queue, 100);
	return summary;
}

void tci_queue_stats_free(struct tci_queue_stats *stats)
{
	if (stats == NULL)
		return;
	for (size_t q = 0; q < TC_QUEUE_COUNT; q++)
		free(stats->queues[q].samples);
	free(stats);
}
