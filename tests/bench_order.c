/*
 * Accesses per second of the recency list and the next-use heap on T2 (a training loop over 48
 * layers) with room for half of its bytes. Median of nine runs, and the spread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cache_traces.h"

#define RUNS 9
#define PASSES 200
#define HALF_OF_THE_BYTES 21745

static double seconds_now(void)
{
	struct timespec now;
	if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
		abort();
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare_rates(const void *left, const void *right)
{
	double a = *(const double *)left;
	double b = *(const double *)right;
	return (a > b) - (a < b);
}

static int measure(const char *name, const struct test_requests *requests, double goal,
                   struct test_cache_result (*cache)(const struct test_requests *, uint64_t))
{
	double rates[RUNS];
	uint64_t hits = 0;
	for (int run = 0; run < RUNS; run++) {
		double start = seconds_now();
		for (int pass = 0; pass < PASSES; pass++)
			hits += cache(requests, HALF_OF_THE_BYTES).hits;
		rates[run] = (double)requests->count * PASSES / (seconds_now() - start) * 1e-6;
	}
	qsort(rates, RUNS, sizeof *rates, compare_rates);
	printf("%-13s %6.1f M accesses/s (median of %d; %.1f to %.1f; goal %.0f; %llu hits)\n",
	       name, rates[RUNS / 2], RUNS, rates[0], rates[RUNS - 1], goal,
	       (unsigned long long)hits / (RUNS * PASSES));
	return rates[RUNS / 2] >= goal ? 0 : 1;
}

int main(void)
{
	struct test_requests requests = test_requests_t2();
	int missed = measure("recency list", &requests, 20, test_cache_lru);
	missed += measure("next-use heap", &requests, 10, test_cache_belady);
	test_requests_free(&requests);
	return missed;
}
