/**
 * @file machine_curve.c
 * A measured curve size -> rate becomes t(n) = latency + n / rate.
 *
 * Candidates are the lines through every two of the measured points (n, t), and for each point the
 * line through the origin and it. The one whose largest relative error over all points is smallest
 * wins (ties: the first). Integers only, so that a description means the same everywhere.
 */
#include "machine_fields.h"

/** Copies longer than a day do not occur; below it nothing here overflows. */
#define LONGEST_PS (86400 * TC_PS_PER_S)
#define PER_BILLION 1000000000ull

/** Largest relative error of the line over all points, in 1e-9; false when it cannot be a link. */
static bool worst_error(const struct tci_curve_point *points, const uint64_t *ps, size_t count,
                        uint64_t latency_ps, uint64_t rate, uint64_t *worst)
{
	*worst = 0;
	for (size_t i = 0; i < count; ++i) {
		uint64_t time, error;
		if (!tc_mul_div_half_even(points[i].bytes, TC_PS_PER_S, rate, &time) ||
		    !tc_add_u64(time, latency_ps, &time))
			return false;
		uint64_t difference = time > ps[i] ? time - ps[i] : ps[i] - time;
		if (!tc_mul_div_floor(difference, PER_BILLION, ps[i], &error))
			return false;
		if (error > *worst)
			*worst = error;
	}
	return true;
}

bool tci_curve_fit(const struct tci_curve_point *points, size_t count, uint64_t *latency_ns,
                   uint64_t *bytes_per_s)
{
	uint64_t ps[64], best = UINT64_MAX;
	if (count == 0 || count > sizeof ps / sizeof *ps)
		return false;
	for (size_t i = 0; i < count; ++i) {
		if (points[i].bytes_per_s == 0 ||
		    !tc_mul_div_half_even(points[i].bytes, TC_PS_PER_S, points[i].bytes_per_s,
		                          &ps[i]) ||
		    ps[i] == 0 || ps[i] > LONGEST_PS)
			return false;
	}
	for (size_t i = 0; i < count; ++i) {
		for (size_t j = i; j < count; ++j) {
			uint64_t rate = points[i].bytes_per_s, latency = 0, error;
			if (j > i) {
				if (ps[j] <= ps[i] ||
				    !tc_mul_div_half_even(points[j].bytes - points[i].bytes,
				                          TC_PS_PER_S, ps[j] - ps[i], &rate) ||
				    rate == 0)
					continue;
				uint64_t flow;
				if (!tc_mul_div_half_even(points[i].bytes, TC_PS_PER_S, rate,
				                          &flow) ||
				    flow > ps[i])
					continue;
				latency = ps[i] - flow;
			}
			if (worst_error(points, ps, count, latency, rate, &error) && error < best) {
				best = error;
				*latency_ns = latency / TC_PS_PER_NS +
				              (latency % TC_PS_PER_NS >= TC_PS_PER_NS / 2);
				*bytes_per_s = rate;
			}
		}
	}
	return best != UINT64_MAX;
}
