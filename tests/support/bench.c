#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double bench_now(void)
{
	struct timespec now;
	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) != 0)
		abort();
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int bench_compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return (a > b) - (a < b);
}

struct bench_spread bench_seconds(void (*work)(void *self), void *self)
{
	double seconds[BENCH_RUNS];
	for (int run = 0; run < BENCH_RUNS; run++) {
		double start = bench_now();
		work(self);
		seconds[run] = bench_now() - start;
	}
	qsort(seconds, BENCH_RUNS, sizeof *seconds, bench_compare);
	return (struct bench_spread){seconds[BENCH_RUNS / 2], seconds[0], seconds[BENCH_RUNS - 1]};
}

struct bench_spread bench_rate(struct bench_spread seconds, double units)
{
	return (struct bench_spread){units / seconds.median, units / seconds.highest,
	                             units / seconds.lowest};
}

bool bench_print_rate(const char *what, struct bench_spread rate, const char *unit, double goal)
{
	bool met = rate.median >= goal;
	printf("%-34s %7.2f M %s per CPU second (median of %d; %.2f to %.2f; goal %.2f%s)\n", what,
	       rate.median * 1e-6, unit, BENCH_RUNS, rate.lowest * 1e-6, rate.highest * 1e-6,
	       goal * 1e-6, met ? "" : " MISSED");
	return met;
}

bool bench_print_time(const char *what, struct bench_spread seconds, double limit_ms)
{
	bool met = seconds.median * 1e3 <= limit_ms;
	printf("%-34s %7.2f ms of CPU (median of %d; %.2f to %.2f; goal at most %.0f ms%s)\n", what,
	       seconds.median * 1e3, BENCH_RUNS, seconds.lowest * 1e3, seconds.highest * 1e3,
	       limit_ms, met ? "" : " MISSED");
	return met;
}

double bench_peak_mb(void)
{
	struct rusage usage;
	if (getrusage(RUSAGE_SELF, &usage) != 0)
		abort();
	return (double)usage.ru_maxrss * 1024e-6;
}
