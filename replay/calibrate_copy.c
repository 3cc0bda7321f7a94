/**
 * @file calibrate_copy.c
 * Copies through the device backend: size to rate alone and both ways, the way there and back on an
 * idle lane, and pinning.
 *
 * A burst is a queue full of copies of one size that walk through two arenas, so that what is
 * copied has left the caches, as tensors have. The rate counts the whole time of the lane, the gaps
 * between its tasks included.
 */
#include <stdlib.h>
#include <string.h>

#include "calibrate_parts.h"

#define UP_LANE 0u
#define DOWN_LANE 1u
#define LANES 2u
#define SMALLEST_BYTES 4096u
#define MOST_TASKS 512u
/** Bytes of a burst, unless one copy is larger or the number of tasks limits it. */
#define BURST_BYTES (UINT64_C(32) << 20)

struct copies {
	struct tci_calibration *calibration;
	const struct tc_device_backend *device;
	void *self;
	struct tci_burst *burst;
	/** Source and target of each lane. */
	unsigned char *source[LANES], *target[LANES];
	unsigned char *pageable;
	uint64_t arena_bytes;
	uint64_t next[LANES]; /**< where the lane's next copy lies in its arenas */
	struct tc_device_task tasks[LANES][MOST_TASKS];
	struct tc_command command; /**< what the tasks are parts of: any fetch */
};

/* ---------------------------------------------------------------- set up */

static enum tc_status allocate(struct copies *copies, enum tc_tier tier, bool pinned,
                               unsigned char **memory, struct tc_error *error)
{
	void *pages = NULL;
	TC_TRY(copies->device->allocate(copies->self, tier, pinned, copies->arena_bytes, &pages,
	                                error));
	*memory = pages;
	return TC_OK;
}

/** Host memory is pinned once; how fast is measured on the way. */
static enum tc_status allocate_pinned(struct copies *copies, struct tci_samples *pinning,
                                      unsigned char **memory, struct tc_error *error)
{
	struct tci_clockwork *clockwork = &copies->calibration->clockwork;
	uint64_t start = tci_clockwork_ps(clockwork);
	TC_TRY(allocate(copies, TC_CPU, true, memory, error));
	pinning->values[pinning->count++] =
	    tci_rate(copies->arena_bytes, tci_clockwork_ps(clockwork) - start);
	return TC_OK;
}

static enum tc_status open_copies(struct copies *copies, struct tci_calibration *calibration,
                                  struct tc_error *error)
{
	struct tci_samples pinning = {0};
	copies->calibration = calibration;
	copies->device = calibration->device;
	copies->arena_bytes = calibration->largest_bytes;
	copies->command = (struct tc_command){.kind = TC_FETCH, .queue = TC_QUEUE_H2D};
	TC_TRY(tci_burst_create(&copies->burst, error));
	TC_TRY(copies->device->create(LANES, tci_clockwork_ps, &calibration->clockwork,
	                              &copies->self, error));
	TC_TRY(allocate_pinned(copies, &pinning, &copies->source[UP_LANE], error));
	TC_TRY(allocate(copies, TC_GPU, false, &copies->target[UP_LANE], error));
	TC_TRY(allocate(copies, TC_GPU, false, &copies->source[DOWN_LANE], error));
	TC_TRY(allocate_pinned(copies, &pinning, &copies->target[DOWN_LANE], error));
	TC_TRY(allocate(copies, TC_CPU, false, &copies->pageable, error));
	calibration->pin = tci_samples_median(&pinning);
	return TC_OK;
}

static void close_copies(struct copies *copies)
{
	if (copies->self != NULL) {
		for (unsigned lane = 0; lane < LANES; ++lane) {
			copies->device->release(copies->self, copies->source[lane],
			                        copies->arena_bytes);
			copies->device->release(copies->self, copies->target[lane],
			                        copies->arena_bytes);
		}
		copies->device->release(copies->self, copies->pageable, copies->arena_bytes);
		copies->device->destroy(copies->self);
	}
	tci_burst_free(copies->burst);
	free(copies);
}

/* ---------------------------------------------------------------- bursts */

static size_t tasks_of(const struct copies *copies, uint64_t bytes)
{
	uint64_t wanted = BURST_BYTES < copies->arena_bytes ? BURST_BYTES : copies->arena_bytes;
	uint64_t tasks = wanted / bytes;
	tasks = tasks > MOST_TASKS ? MOST_TASKS : tasks;
	return tasks > 0 ? (size_t)tasks : 1;
}

/** Task `index` of a lane: the next `bytes` of its arenas. */
static void prepare_task(struct copies *copies, unsigned lane, size_t index, uint64_t bytes)
{
	if (copies->next[lane] + bytes > copies->arena_bytes)
		copies->next[lane] = 0;
	copies->tasks[lane][index] =
	    (struct tc_device_task){.command = &copies->command,
	                            .lane = lane,
	                            .target = copies->target[lane] + copies->next[lane],
	                            .source = copies->source[lane] + copies->next[lane],
	                            .bytes = bytes,
	                            .done = tci_burst_device_done,
	                            .done_self = copies->burst};
	copies->next[lane] += bytes;
}

/** The lanes of the mask copy `tasks` times `bytes` each. @param ps from first start to last end */
static enum tc_status run_burst(struct copies *copies, unsigned mask, uint64_t bytes, size_t tasks,
                                uint64_t *ps, struct tc_error *error)
{
	size_t all = 0, submitted = 0;
	for (unsigned lane = 0; lane < LANES; ++lane) {
		if ((mask & (1u << lane)) == 0)
			continue;
		for (size_t i = 0; i < tasks; ++i)
			prepare_task(copies, lane, i, bytes);
		all += tasks;
	}
	tci_burst_begin(copies->burst, all);
	enum tc_status status = TC_OK;
	for (size_t i = 0; i < tasks && status == TC_OK; ++i) {
		for (unsigned lane = 0; lane < LANES && status == TC_OK; ++lane) {
			if ((mask & (1u << lane)) == 0)
				continue;
			status =
			    copies->device->submit(copies->self, &copies->tasks[lane][i], error);
			submitted += status == TC_OK;
		}
	}
	tci_burst_skip(copies->burst, all - submitted);
	enum tc_status waited = tci_burst_wait(copies->burst, ps, error);
	return status != TC_OK ? status : waited;
}

static enum tc_status measure_size(struct copies *copies, unsigned mask, uint64_t bytes,
                                   struct tci_measured *rate, struct tc_error *error)
{
	struct tci_clockwork *clockwork = &copies->calibration->clockwork;
	struct tci_samples samples = {0};
	size_t tasks = tasks_of(copies, bytes);
	uint64_t lanes = mask == (1u << UP_LANE | 1u << DOWN_LANE) ? 2 : 1;
	char size[TC_UNIT_TEXT_BYTES];
	tci_point_begin(clockwork, tc_format_bytes(bytes, size));
	while (tci_point_wants(clockwork, samples.count)) {
		uint64_t ps;
		TC_TRY(tci_check_interrupt(error));
		TC_TRY(run_burst(copies, mask, bytes, tasks, &ps, error));
		samples.values[samples.count++] = tci_rate(lanes * bytes * tasks, ps);
	}
	*rate = tci_samples_median(&samples);
	return TC_OK;
}

static enum tc_status measure_curve(struct copies *copies, enum tci_stage stage, unsigned mask,
                                    struct tci_curve_points *curve, struct tc_error *error)
{
	unsigned shift = copies->calibration->options->quick ? 3 : 1;
	size_t points = 0;
	for (uint64_t bytes = SMALLEST_BYTES; bytes <= copies->arena_bytes; bytes <<= shift)
		++points;
	tci_stage_begin(&copies->calibration->clockwork, stage, points);
	for (uint64_t bytes = SMALLEST_BYTES;
	     bytes <= copies->arena_bytes && curve->count < TCI_MOST_POINTS; bytes <<= shift) {
		TC_TRY(measure_size(copies, mask, bytes, &curve->rates[curve->count], error));
		curve->bytes[curve->count++] = bytes;
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- single figures */

/** The largest copy of the curve again, from memory that is not pinned. */
static enum tc_status measure_pageable(struct copies *copies, struct tc_error *error)
{
	unsigned char *pinned = copies->source[UP_LANE];
	copies->source[UP_LANE] = copies->pageable;
	enum tc_status status = measure_size(copies, 1u << UP_LANE, copies->arena_bytes,
	                                     &copies->calibration->pageable, error);
	copies->source[UP_LANE] = pinned;
	return status;
}

/** How long the smallest copy takes on an idle lane, from its submission until one hears of it. */
static enum tc_status measure_round_trip(struct copies *copies, struct tc_error *error)
{
	struct tci_clockwork *clockwork = &copies->calibration->clockwork;
	struct tci_samples samples = {0};
	while (samples.count < TCI_MOST_SAMPLES) {
		uint64_t ps, start = tci_clockwork_ps(clockwork);
		TC_TRY(run_burst(copies, 1u << UP_LANE, SMALLEST_BYTES, 1, &ps, error));
		samples.values[samples.count++] = tci_clockwork_ps(clockwork) - start;
	}
	copies->calibration->round_trip_ps = tci_samples_median(&samples);
	return TC_OK;
}

static enum tc_status measure(struct copies *copies, struct tc_error *error)
{
	struct tci_calibration *calibration = copies->calibration;
	uint64_t ps;
	/* Threads start and pages are touched before anything counts. */
	TC_TRY(run_burst(copies, 3u, copies->arena_bytes, 1, &ps, error));
	TC_TRY(measure_curve(copies, TCI_STAGE_COPY_UP, 1u << UP_LANE, &calibration->up, error));
	TC_TRY(measure_pageable(copies, error));
	TC_TRY(
	    measure_curve(copies, TCI_STAGE_COPY_DOWN, 1u << DOWN_LANE, &calibration->down, error));
	TC_TRY(measure_curve(copies, TCI_STAGE_COPY_BOTH, 3u, &calibration->both, error));
	return measure_round_trip(copies, error);
}

enum tc_status tci_measure_copies(struct tci_calibration *calibration, struct tc_error *error)
{
	struct copies *copies = calloc(1, sizeof *copies);
	if (copies == NULL)
		return tc_error_no_memory(error, "copies", sizeof *copies);
	enum tc_status status = open_copies(copies, calibration, error);
	if (status == TC_OK)
		status = measure(copies, error);
	close_copies(copies);
	return status;
}
