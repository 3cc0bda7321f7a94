/*
 * How long reading a trace and deriving its steps takes, and how much memory: median and spread of
 * nine runs. Usage: bench_trace [FILE]   (default: the shipped traces/opt13b.json)
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "tencache/steps.h"

#define RUNS 9

static uint64_t now_ns(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
	return (a > b) - (a < b);
}

static void report(const char *what, uint64_t times[RUNS])
{
	qsort(times, RUNS, sizeof *times, compare);
	printf("%-8s median %.2f ms (%.2f to %.2f)\n", what, (double)times[RUNS / 2] / 1e6,
	       (double)times[0] / 1e6, (double)times[RUNS - 1] / 1e6);
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : TENCACHE_SOURCE_DIR "/traces/opt13b.json";
	uint64_t reads[RUNS], derives[RUNS];
	struct tc_error error = {0};
	for (int i = 0; i < RUNS; i++) {
		struct tc_trace *trace = NULL;
		struct tc_steps *steps = NULL;
		uint64_t begin = now_ns();
		if (tc_trace_read(path, &trace, &error) != TC_OK)
			break;
		reads[i] = now_ns() - begin;
		enum tc_request_mode mode =
		    trace->has_events ? TC_REQUESTS_HOOK : TC_REQUESTS_READS;
		if (tc_steps_derive(trace, TC_GRANULARITY_MODULE, mode, TC_FREES_LAST_USE, &steps,
		                    &error) != TC_OK)
			break;
		derives[i] = now_ns() - begin - reads[i];
		tc_steps_free(steps);
		tc_trace_free(trace);
	}
	if (error.status != TC_OK) {
		fprintf(stderr, "bench_trace: %s\n", error.text);
		return 1;
	}
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	printf("%s, %d runs\n", path, RUNS);
	report("read", reads);
	report("steps", derives);
	printf("peak memory %.1f MB\n", (double)usage.ru_maxrss / 1024);
	return 0;
}
