/*
 * Speed of the auditor. The stream is what a planner emits in a steady state: one iteration of
 * fetch, compute, evict per step is made once and pushed again and again with moved ids and
 * versions. A step fetches a tensor into a slot of the GPU, a compute command updates it in place
 * and reads and writes 7 to 19 others, and the tensor is evicted to its home; so a compute command
 * with 8 to 20 binds counts as one of three commands. The time is that of the sink's calls and of
 * moving the ids, on one core; begin and end are left out.
 *
 * Usage: bench_audit [commands per run] (default 3,000,000; 9 runs)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "random.h"
#include "tencache/audit.h"

#define STEPS 512u
#define SLOTS 64u
#define SHARED 96u /* tensors that stay on the GPU */
#define RUNS 9
#define MAX_BINDS 20u
#define TENSOR_BYTES 4096u
#define PER_STEP 3u

struct stream {
	struct tc_trace trace;
	struct tc_tensor tensors[STEPS + SHARED];
	struct tc_plan_tensor plan_tensors[STEPS + SHARED];
	struct tc_op ops[STEPS];
	uint32_t reads[STEPS][MAX_BINDS], writes[STEPS][MAX_BINDS];
	struct tc_pool_info pools[3];
	struct tc_plan_info info;
	struct tc_command commands[STEPS * PER_STEP];
	struct tc_dependency deps[STEPS * PER_STEP][2];
	struct tc_bind binds[STEPS][MAX_BINDS];
	uint32_t written[SHARED]; /* per iteration */
};

static void add_tensors(struct stream *stream)
{
	for (uint32_t t = 0; t < STEPS + SHARED; t++) {
		stream->tensors[t] = (struct tc_tensor){.bytes = TENSOR_BYTES,
		                                        .of = TC_NONE,
		                                        .name = "t",
		                                        .kind = TC_BUFFER,
		                                        .persistent = true};
		stream->plan_tensors[t] = (struct tc_plan_tensor){
		    .name = "t",
		    .kind = TC_BUFFER,
		    .bytes = TENSOR_BYTES,
		    .derived_from = TC_NONE,
		    .placed = true,
		    .start = t < STEPS
		                 ? (struct tc_place){2, (uint64_t)t * TENSOR_BYTES}
		                 : (struct tc_place){1, (uint64_t)(t - STEPS) * TENSOR_BYTES}};
	}
}

/** Step s: its own tensor in place, 6 to 18 distinct shared ones read, one of them written. */
static void add_step(struct stream *stream, uint32_t s, uint64_t *random)
{
	uint32_t shared = 7 + (uint32_t)test_random_below(random, MAX_BINDS - 7);
	uint32_t first = (uint32_t)test_random_below(random, SHARED);
	struct tc_op *op = &stream->ops[s];
	*op = (struct tc_op){.name = "op", .phase = TC_FORWARD};
	stream->reads[s][0] = stream->writes[s][0] = s;
	stream->binds[s][0] = (struct tc_bind){
	    s, 0, (uint64_t)(s % SLOTS) * TENSOR_BYTES, TENSOR_BYTES, 0, TC_READ_WRITE};
	for (uint32_t i = 0; i < shared; i++) {
		uint32_t index = (first + i) % SHARED;
		bool writes = i + 1 == shared;
		stream->reads[s][1 + i] = STEPS + index;
		stream->binds[s][1 + i] = (struct tc_bind){STEPS + index,
		                                           1,
		                                           (uint64_t)index * TENSOR_BYTES,
		                                           TENSOR_BYTES,
		                                           stream->written[index],
		                                           writes ? TC_WRITE : TC_READ};
		if (writes) {
			stream->writes[s][1] = STEPS + index;
			stream->written[index]++;
		}
	}
	op->reads = (struct tc_ids){stream->reads[s], shared};
	op->writes = (struct tc_ids){stream->writes[s], 2};
	struct tc_command *compute = &stream->commands[PER_STEP * s + 1];
	compute->kind = TC_COMPUTE;
	compute->queue = TC_QUEUE_COMPUTE;
	compute->tensor = TC_NONE;
	compute->src.pool = compute->dst.pool = TC_NO_POOL;
	compute->first_op = compute->last_op = s;
	compute->binds = stream->binds[s];
	compute->bind_count = 1 + shared;
}

static void add_moves(struct stream *stream, uint32_t s)
{
	struct tc_place slot = {0, (uint64_t)(s % SLOTS) * TENSOR_BYTES};
	struct tc_place home = {2, (uint64_t)s * TENSOR_BYTES};
	struct tc_command *fetch = &stream->commands[PER_STEP * s];
	*fetch = (struct tc_command){.kind = TC_FETCH,
	                             .queue = TC_QUEUE_H2D,
	                             .tensor = s,
	                             .bytes = TENSOR_BYTES,
	                             .src = home,
	                             .dst = slot,
	                             .first_op = TC_NONE,
	                             .last_op = TC_NONE};
	fetch[2] = *fetch;
	fetch[2].kind = TC_EVICT;
	fetch[2].queue = TC_QUEUE_D2H;
	fetch[2].src = slot;
	fetch[2].dst = home;
}

static struct stream *make_stream(void)
{
	struct stream *stream = calloc(1, sizeof *stream);
	if (stream == NULL)
		abort();
	uint64_t random = 1;
	add_tensors(stream);
	for (uint32_t s = 0; s < STEPS; s++) {
		add_moves(stream, s);
		add_step(stream, s, &random);
	}
	stream->trace = (struct tc_trace){.tensors = stream->tensors,
	                                  .tensor_count = STEPS + SHARED,
	                                  .ops = stream->ops,
	                                  .op_count = STEPS};
	stream->pools[0] =
	    (struct tc_pool_info){"slots", TC_GPU, TC_POOL_CLASSES, false, SLOTS * TENSOR_BYTES};
	stream->pools[1] =
	    (struct tc_pool_info){"shared", TC_GPU, TC_POOL_FIXED, false, SHARED * TENSOR_BYTES};
	stream->pools[2] =
	    (struct tc_pool_info){"home", TC_CPU, TC_POOL_ARENA, true, STEPS * TENSOR_BYTES};
	stream->info = (struct tc_plan_info){.trace = &stream->trace,
	                                     .policy = "bench",
	                                     .scale = 1,
	                                     .lanes = {1, 1, 1, 1, 1, 0, 1, 1},
	                                     .pools = stream->pools,
	                                     .pool_count = 3,
	                                     .tensors = stream->plan_tensors,
	                                     .tensor_count = STEPS + SHARED};
	return stream;
}

/** Give the commands of step s the ids and dependencies of iteration `k`. */
static void renew_step(struct stream *stream, uint32_t s, uint64_t k)
{
	struct tc_command *fetch = &stream->commands[PER_STEP * s];
	uint64_t id = (k * STEPS + s) * PER_STEP;
	for (uint32_t c = 0; c < PER_STEP; c++) {
		fetch[c].id = id + c;
		fetch[c].iteration = (uint32_t)k;
		fetch[c].step = s;
		fetch[c].deps = stream->deps[PER_STEP * s + c];
		fetch[c].dep_count = 1;
	}
	struct tc_dependency(*deps)[2] = &stream->deps[PER_STEP * s];
	/* The slot comes from the evict of the step that had it before; that evict's lane has
	 * written this tensor's home earlier still. */
	fetch->dep_count = id >= SLOTS * PER_STEP ? 1 : 0;
	deps[0][0] = (struct tc_dependency){id - SLOTS * PER_STEP + 2, TC_REASON_SLOT};
	deps[1][0] = (struct tc_dependency){id, TC_REASON_DATA};
	deps[2][0] = (struct tc_dependency){id + 1, TC_REASON_DATA};
	fetch->version = k;
	fetch[2].version = k + 1;
	struct tc_bind *binds = stream->binds[s];
	uint32_t count = fetch[1].bind_count;
	binds[0].version = k;
	for (uint32_t b = 1; k > 0 && b < count; b++)
		binds[b].version += stream->written[binds[b].tensor - STEPS];
}

static double seconds(clockid_t clock)
{
	struct timespec now;
	(void)clock_gettime(clock, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/** One run; commands per second of processor time, and of wall time in *wall. */
static double run(uint64_t iterations, double *wall, uint64_t *binds)
{
	struct stream *stream = make_stream();
	struct tc_audit *audit;
	struct tc_error error = {0};
	stream->info.iterations = (uint32_t)iterations;
	if (tc_audit_create(true, &audit, &error) != TC_OK)
		abort();
	struct tc_sink sink = tc_audit_sink(audit);
	enum tc_status status = sink.begin(sink.self, &stream->info, &error);
	double start = seconds(CLOCK_PROCESS_CPUTIME_ID), wall_start = seconds(CLOCK_MONOTONIC);
	for (uint64_t k = 0; k < iterations && status == TC_OK; k++)
		for (uint32_t s = 0; s < STEPS && status == TC_OK; s++) {
			renew_step(stream, s, k);
			for (uint32_t c = 0; c < PER_STEP && status == TC_OK; c++)
				status = sink.command(sink.self,
				                      &stream->commands[PER_STEP * s + c], &error);
		}
	double used = seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
	*wall = seconds(CLOCK_MONOTONIC) - wall_start;
	struct tc_plan_end end = {iterations * STEPS * PER_STEP, NULL, 0};
	if (status == TC_OK)
		status = sink.end(sink.self, &end, &error);
	if (status != TC_OK || tc_audit_result(audit)->findings != 0) {
		fprintf(stderr, "the stream should be sound: %s\n", error.text);
		exit(1);
	}
	for (uint32_t s = 0; s < STEPS; s++)
		*binds += stream->commands[PER_STEP * s + 1].bind_count;
	tc_audit_free(audit);
	free(stream);
	return (double)end.command_count / used;
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return (a > b) - (a < b);
}

int main(int count, char **arguments)
{
	uint64_t commands = count > 1 ? strtoull(arguments[1], NULL, 10) : 3000000;
	uint64_t iterations = commands / (STEPS * PER_STEP) + 1, binds = 0;
	double rates[RUNS], walls[RUNS];
	for (unsigned r = 0; r < RUNS; r++) {
		double wall;
		rates[r] = run(iterations, &wall, &binds);
		walls[r] = (double)(iterations * STEPS * PER_STEP) / wall;
	}
	qsort(rates, RUNS, sizeof *rates, compare);
	qsort(walls, RUNS, sizeof *walls, compare);
	printf("auditor: %.2f M commands/s of processor time, median of %d runs (%.2f to %.2f); "
	       "wall %.2f (%.2f to %.2f)\n",
	       rates[RUNS / 2] / 1e6, RUNS, rates[0] / 1e6, rates[RUNS - 1] / 1e6,
	       walls[RUNS / 2] / 1e6, walls[0] / 1e6, walls[RUNS - 1] / 1e6);
	printf("%llu commands a run: fetch, compute with %.1f binds, evict\n",
	       (unsigned long long)(iterations * STEPS * PER_STEP), (double)binds / RUNS / STEPS);
	return 0;
}
