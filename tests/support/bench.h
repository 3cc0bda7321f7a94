/**
 * @file bench.h
 * Timing for the bench programs: nine runs, their median and spread, in CPU time of the process:
 * what is measured runs on one core, and waiting for a core that somebody else uses is not its cost.
 * Nothing asserts a time; a program says whether its goal was met.
 */
#ifndef TENCACHE_TEST_BENCH_H
#define TENCACHE_TEST_BENCH_H

#include <stdbool.h>

#define BENCH_RUNS 9

struct bench_spread {
	double median, lowest, highest;
};

/** CPU seconds of each of BENCH_RUNS calls of `work(self)`. */
struct bench_spread bench_seconds(void (*work)(void *self), void *self);
/** `units` of work per second, from the seconds of a run. */
struct bench_spread bench_rate(struct bench_spread seconds, double units);
/** Print a rate in millions per second beside its goal. @return the goal was met */
bool bench_print_rate(const char *what, struct bench_spread rate, const char *unit, double goal);
/** Print milliseconds beside a limit. @return the limit was kept */
bool bench_print_time(const char *what, struct bench_spread seconds, double limit_ms);
/** Largest resident set of this process so far, MB (10^6 bytes). */
double bench_peak_mb(void);

#endif
