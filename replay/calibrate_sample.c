/**
 * @file calibrate_sample.c
 * Medians and spreads, the shares of the time, and the line on the terminal.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calibrate_parts.h"

#define NS_PER_S 1000000000u
/** Fewer samples have no median worth the name. */
#define FEWEST_SAMPLES 3u

/* ---------------------------------------------------------------- samples */

static int compare_values(const void *a, const void *b)
{
	const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return left < right ? -1 : left > right;
}

struct tci_measured tci_samples_median(const struct tci_samples *samples)
{
	uint64_t sorted[TCI_MOST_SAMPLES], spread;
	struct tci_measured measured = {.samples = samples->count};
	if (samples->count == 0)
		return measured;
	memcpy(sorted, samples->values, samples->count * sizeof *sorted);
	qsort(sorted, samples->count, sizeof *sorted, compare_values);
	measured.value = sorted[samples->count / 2];
	uint64_t quarter = samples->count / 4;
	uint64_t width = sorted[samples->count - 1 - quarter] - sorted[quarter];
	if (!tc_mul_div_half_even(width, 1000000, measured.value, &spread) || spread > UINT32_MAX)
		spread = UINT32_MAX;
	measured.spread_ppm = (uint32_t)spread;
	return measured;
}

uint64_t tci_rate(uint64_t bytes, uint64_t ps)
{
	uint64_t rate;
	if (!tc_mul_div_half_even(bytes, TC_PS_PER_S, ps, &rate) || rate > TC_MAX_JSON_INTEGER)
		rate = TC_MAX_JSON_INTEGER;
	return rate > 0 ? rate : 1;
}

/* ---------------------------------------------------------------- time */

static const struct {
	const char *name;
	uint64_t seconds; /**< at most, in about; the sum is below three minutes */
} stages[TCI_STAGE_COUNT] = {
    [TCI_STAGE_COPY_UP] = {"copies host to GPU", 20},
    [TCI_STAGE_COPY_DOWN] = {"copies GPU to host", 20},
    [TCI_STAGE_COPY_BOTH] = {"copies both ways", 20},
    [TCI_STAGE_CPU] = {"CPU and memory", 10},
    [TCI_STAGE_DEPTHS] = {"drive by depth", 40},
    [TCI_STAGE_DRIVE_READ] = {"drive read", 25},
    [TCI_STAGE_DRIVE_WRITE] = {"drive write", 25},
};

static uint64_t budget_ps(const struct tci_clockwork *clockwork, size_t stage)
{
	if (stage >= TCI_STAGE_DEPTHS && !clockwork->drives)
		return 0;
	return stages[stage].seconds * TC_PS_PER_S / (clockwork->quick ? 100 : 1);
}

void tci_clockwork_start(struct tci_clockwork *clockwork)
{
	(void)clock_gettime(CLOCK_MONOTONIC, &clockwork->base);
}

uint64_t tci_clockwork_ps(void *self)
{
	const struct tci_clockwork *clockwork = self;
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	uint64_t seconds = (uint64_t)(now.tv_sec - clockwork->base.tv_sec);
	uint64_t ns =
	    seconds * NS_PER_S + (uint64_t)now.tv_nsec - (uint64_t)clockwork->base.tv_nsec;
	return (ns + 1) * TC_PS_PER_NS;
}

static uint64_t now_ps(const struct tci_clockwork *clockwork)
{
	struct tci_clockwork copy = *clockwork;
	return tci_clockwork_ps(&copy);
}

void tci_stage_begin(struct tci_clockwork *clockwork, enum tci_stage stage, size_t points)
{
	clockwork->stage = stage;
	clockwork->stage_start_ps = tci_clockwork_ps(clockwork);
	clockwork->stage_budget_ps = budget_ps(clockwork, (size_t)stage);
	clockwork->point = 0;
	clockwork->points = points;
}

/** Parts per million of all budgets that lie behind. */
static uint64_t progress_ppm(const struct tci_clockwork *clockwork)
{
	uint64_t all = 0, behind = 0, ppm;
	for (size_t stage = 0; stage < TCI_STAGE_COUNT; ++stage) {
		uint64_t budget = budget_ps(clockwork, stage);
		all += budget;
		if (stage < (size_t)clockwork->stage)
			behind += budget;
		else if (stage == (size_t)clockwork->stage && clockwork->points > 0)
			behind += budget / clockwork->points * clockwork->point;
	}
	return tc_mul_div_floor(behind, 1000000, all, &ppm) ? ppm : 0;
}

/** As fast as so far, but no longer than what is set aside. */
static uint64_t left_ps(const struct tci_clockwork *clockwork, uint64_t ppm)
{
	uint64_t all = 0, limit = 0, left = UINT64_MAX;
	for (size_t stage = 0; stage < TCI_STAGE_COUNT; ++stage)
		all += budget_ps(clockwork, stage);
	(void)tc_mul_div_floor(all, 1000000 - ppm, 1000000, &limit);
	(void)tc_mul_div_floor(now_ps(clockwork), 1000000 - ppm, ppm, &left);
	return left < limit ? left : limit;
}

static void show(const struct tci_clockwork *clockwork, const char *what)
{
	uint64_t ppm = progress_ppm(clockwork);
	if (!clockwork->shown)
		return;
	uint64_t seconds = left_ps(clockwork, ppm) / TC_PS_PER_S;
	fprintf(stderr, "\r\033[K%s, %s: %u %%, about %u:%02u left", stages[clockwork->stage].name,
	        what, (unsigned)(ppm / 10000), (unsigned)(seconds / 60), (unsigned)(seconds % 60));
	(void)fflush(stderr);
}

void tci_point_begin(struct tci_clockwork *clockwork, const char *what)
{
	show(clockwork, what);
	clockwork->point_start_ps = tci_clockwork_ps(clockwork);
	clockwork->point++;
}

bool tci_point_wants(const struct tci_clockwork *clockwork, uint32_t samples)
{
	if (samples < FEWEST_SAMPLES)
		return true;
	if (samples >= (clockwork->quick ? FEWEST_SAMPLES : TCI_MOST_SAMPLES))
		return false;
	uint64_t now = now_ps(clockwork), end;
	size_t left = clockwork->points - clockwork->point + 1;
	end = clockwork->stage_start_ps + clockwork->stage_budget_ps;
	if (now >= end || clockwork->point > clockwork->points)
		return false;
	/* What earlier points did not need, later ones may use. */
	uint64_t share = (end - clockwork->point_start_ps) / left;
	uint64_t spent = now - clockwork->point_start_ps;
	return spent + spent / samples <= share;
}

bool tci_stage_allows(const struct tci_clockwork *clockwork, uint64_t ps)
{
	uint64_t end = clockwork->stage_start_ps + clockwork->stage_budget_ps;
	uint64_t now = now_ps(clockwork);
	return clockwork->quick || (now < end && ps <= end - now);
}

void tci_clockwork_done(struct tci_clockwork *clockwork)
{
	if (!clockwork->shown)
		return;
	fprintf(stderr, "\r\033[K");
	(void)fflush(stderr);
}

/* ---------------------------------------------------------------- interruption */

enum tc_status tci_check_interrupt(struct tc_error *error)
{
	sigset_t pending;
	if (sigpending(&pending) == 0 &&
	    (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1))
		return tc_error_set(error, TC_INTERNAL, "interrupted; no file was written");
	return TC_OK;
}
