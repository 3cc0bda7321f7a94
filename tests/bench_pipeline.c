/*
 * What a user waits for: parsing a trace, and planning, auditing and simulating 10Cache on it.
 * The trace is traces/opt13b.json unless another is named: bench_pipeline [TRACE [POLICY]]. Build
 * with -DCMAKE_BUILD_TYPE=Release.
 *
 * One figure depends on the minute in which it was taken. To tell whether a change made it faster,
 * run the programs of both builds by turns: scripts/bench-pairs OLD NEW. What time is spent on is
 * mostly waiting for memory: records that are needed here and there are whole cache lines, so that
 * each costs one miss, and as many as possible stay in the second-level cache. Instructions and
 * misses, by function and without noise (a cache of 1 MiB):
 *
 *     valgrind --tool=callgrind --toggle-collect=tc_simulate --cache-sim=yes --LL=1048576,16,64 \
 *         build/release/sim/tencache-sim --trace traces/opt13b.json --policy 10cache --audit \
 *         --iterations 3
 */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "dispatch.h"
#include "tencache/simulate.h"

#define ITERATIONS 3

struct bench_case {
	const char *path;
	struct tc_trace *trace;
	struct tc_steps *steps;
	struct tc_machine *machine;
	struct tc_policy_choice *policy;
	bool audit;
	uint64_t commands; /**< planned in all: N + 2 iterations */
};

static void bench_fail(const struct tc_error *error)
{
	fprintf(stderr, "bench_pipeline: %s\n", error->text);
	exit(1);
}

static void bench_parse(void *self)
{
	struct bench_case *c = self;
	struct tc_error error = {0};
	tc_steps_free(c->steps);
	tc_trace_free(c->trace);
	c->steps = NULL;
	c->trace = NULL;
	if (tc_trace_read(c->path, &c->trace, &error) != TC_OK ||
	    tc_steps_derive(c->trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK, TC_FREES_LAST_USE,
	                    &c->steps, &error) != TC_OK)
		bench_fail(&error);
}

static void bench_simulate(void *self)
{
	struct bench_case *c = self;
	struct tc_error error = {0};
	struct tc_result result;
	struct tc_simulation simulation = {.trace = c->trace,
	                                   .steps = c->steps,
	                                   .machine = c->machine,
	                                   .policy = c->policy,
	                                   .iterations = ITERATIONS,
	                                   .audit = c->audit};
	if (tc_simulate(&simulation, &result, &error) != TC_OK)
		bench_fail(&error);
	if (result.status != TC_OK) {
		fprintf(stderr, "bench_pipeline: %s\n", result.message);
		exit(1);
	}
	c->commands = result.commands * (ITERATIONS + 2);
	tc_result_clear(&result);
}

int main(int argc, char **argv)
{
	tci_keep_memory(); /* as the program does */
	struct tc_error error = {0};
	struct bench_case c = {.path =
	                           argc > 1 ? argv[1] : TENCACHE_SOURCE_DIR "/traces/opt13b.json"};
	if (tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines", &c.machine, &error) !=
	        TC_OK ||
	    tc_policy_parse(argc > 2 ? argv[2] : "10cache", &c.policy, &error) != TC_OK)
		bench_fail(&error);
	bool met = bench_print_time("parse and derive steps", bench_seconds(bench_parse, &c), 55);
	met &= bench_print_time("plan and simulate 3 iterations", bench_seconds(bench_simulate, &c),
	                        25);
	c.audit = true;
	struct bench_spread seconds = bench_seconds(bench_simulate, &c);
	met &= bench_print_rate("plan + audit + simulate", bench_rate(seconds, (double)c.commands),
	                        "commands", 1e6);
	printf("%-34s %7.1f MB (goal at most 64)\n", "peak memory", bench_peak_mb());
	met &= bench_peak_mb() <= 64;
	tc_policy_choice_free(c.policy);
	tc_machine_free(c.machine);
	tc_steps_free(c.steps);
	tc_trace_free(c.trace);
	return met ? 0 : 1;
}
