/*
 * 10cache against numbers that come from elsewhere: counts and bytes of the authors' released code
 * as re-derived independently from module request lists (OPT-6.7B, OPT-13B), the buffer counts that
 * follow from its rule by hand, and the authors' own CSV of waits. All counts are of parameters in
 * forward and backward of a steady iteration; what the optimizer phase does is looked at apart.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "plan_case.h"

/** Iterations planned, and the steady one that is looked at: the one before the closing one. */
#define PLANNED 5u
#define STEADY 3u

#define KIB UINT64_C(1024)
/** Classes of OPT-6.7B: biases and norms, fc1 biases, attention, feed-forward, score, embeddings.
 */
#define OPT67_BIAS (8 * KIB)
#define OPT67_FC1_BIAS (32 * KIB)
#define OPT67_SCORE (16 * KIB)
#define OPT67_ATTENTION UINT64_C(33554432)
#define OPT67_FC UINT64_C(134217728)
#define OPT67_POSITIONS UINT64_C(16793600)
#define OPT67_WORDS UINT64_C(411828224)

/* ---------------------------------------------------------------- counting */

struct moves {
	uint64_t fetches, fetch_bytes, evictions, eviction_bytes;
	uint64_t loads, load_bytes, spills, spill_bytes;
	uint64_t repair_fetches, repair_evictions;
};

static void count_move(struct moves *moves, const struct tc_command *command)
{
	uint64_t one = command->first_chunk ? 1 : 0;
	switch (command->kind) {
	case TC_FETCH:
		moves->fetches += one;
		moves->fetch_bytes += command->bytes;
		moves->repair_fetches += command->why == TC_WHY_REPAIR;
		break;
	case TC_EVICT:
		moves->evictions += one;
		moves->eviction_bytes += command->bytes;
		moves->repair_evictions += command->why == TC_WHY_REPAIR;
		break;
	case TC_LOAD:
		moves->loads += one;
		moves->load_bytes += command->bytes;
		break;
	case TC_SPILL:
		moves->spills += one;
		moves->spill_bytes += command->bytes;
		break;
	default:
		break;
	}
}

/** Moves of parameters in the steady iteration, within forward and backward or in the optimizer. */
static struct moves moves_of(const struct plan_kept *planned, bool optimizer)
{
	struct moves moves = {0};
	const struct tc_schedule *s = planned->schedule;
	for (uint64_t c = 0; c < s->command_count; c++) {
		const struct tc_command *command = &s->commands[c];
		if (command->iteration != STEADY || command->tensor == TC_NONE ||
		    s->info.tensors[command->tensor].kind != TC_PARAM ||
		    (command->phase == TC_OPTIMIZER) != optimizer)
			continue;
		count_move(&moves, command);
	}
	return moves;
}

struct hits {
	uint64_t requests, resident, fetched, demand;
};

static struct hits hits_of(const struct plan_kept *planned, enum tc_phase phase)
{
	struct hits hits = {0};
	const struct tc_schedule *s = planned->schedule;
	for (uint64_t c = 0; c < s->command_count; c++) {
		const struct tc_command *command = &s->commands[c];
		if (command->iteration != STEADY || command->kind != TC_COMPUTE ||
		    command->phase != phase)
			continue;
		for (uint32_t i = 0; i < command->served_count; i++) {
			assert_true(command->served[i].is_request);
			hits.requests++;
			hits.resident += command->served[i].outcome == TC_RESIDENT;
			hits.fetched += command->served[i].outcome == TC_COVERED;
			hits.demand += command->served[i].outcome == TC_DEMAND_MISS;
		}
	}
	return hits;
}

static void assert_hits(const struct plan_kept *planned, enum tc_phase phase, uint64_t resident,
                        uint64_t fetched)
{
	struct hits hits = hits_of(planned, phase);
	assert_int_equal(hits.requests, resident + fetched);
	assert_int_equal(hits.resident, resident);
	assert_int_equal(hits.fetched, fetched);
	assert_int_equal(hits.demand, 0);
}

/** A plan of a shipped trace under one policy, audited along the way. */
static struct plan_kept plan_on(const struct tc_trace *trace, const struct tc_machine *machine,
                                const char *policy)
{
	struct plan_case plan = {
	    .trace = trace, .machine = machine, .policy = policy, .iterations = PLANNED};
	struct plan_kept planned = plan_case_keep(&plan);
	struct tc_audit *audit = NULL;
	struct tc_error error = {0};
	assert_int_equal(tc_audit_create(false, &audit, &error), TC_OK);
	struct tc_sink sink = tc_audit_sink(audit);
	assert_int_equal(tc_schedule_play(planned.schedule, &sink, &error), TC_OK);
	if (tc_audit_result(audit)->findings > 0)
		print_error("%s: %s\n", policy, tc_audit_result(audit)->first);
	assert_int_equal(tc_audit_result(audit)->findings, 0);
	tc_audit_free(audit);
	return planned;
}

static uint32_t pool_named(const struct plan_kept *planned, const char *name)
{
	const struct tc_plan_info *info = &planned->schedule->info;
	for (uint32_t p = 0; p < info->pool_count; p++)
		if (strcmp(info->pools[p].name, name) == 0)
			return p;
	fail_msg("no pool '%s'", name);
	return TC_NO_POOL;
}

struct class_count {
	uint64_t bytes, count;
};

static uint64_t class_sum(const struct class_count *classes, size_t count)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < count; i++)
		sum += classes[i].bytes * classes[i].count; /* all are multiples of the alignment */
	return sum;
}

/* ---------------------------------------------------------------- what lies in the GPU pool */

/** Occupants of the GPU pool by class, followed in the order of issue. */
struct occupancy {
	uint32_t pool;
	const struct class_count *classes;
	size_t class_count;
	uint64_t now[16], most[16];
};

static void occupy(struct occupancy *o, uint64_t bytes, int64_t change)
{
	for (size_t i = 0; i < o->class_count; i++) {
		if (o->classes[i].bytes != bytes)
			continue;
		o->now[i] = (uint64_t)((int64_t)o->now[i] + change);
		if (o->now[i] > o->most[i])
			o->most[i] = o->now[i];
		return;
	}
	fail_msg("a parameter of a class that the test does not list");
}

/** Walk the whole plan; `most` is taken from the steady iteration on. */
static void occupancy_walk(const struct plan_kept *planned, struct occupancy *o)
{
	const struct tc_schedule *s = planned->schedule;
	const struct tc_plan_info *info = &s->info;
	bool steady = false;
	for (uint32_t t = 0; t < info->tensor_count; t++)
		if (info->tensors[t].placed && info->tensors[t].start.pool == o->pool)
			occupy(o, info->tensors[t].bytes, 1);
	for (uint32_t c = 0; c < info->copy_count; c++)
		assert_int_not_equal(info->copies[c].place.pool, o->pool);
	for (uint64_t c = 0; c < s->command_count; c++) {
		const struct tc_command *command = &s->commands[c];
		if (!steady && command->iteration == STEADY) {
			memcpy(o->most, o->now, sizeof o->most);
			steady = true;
		}
		if (command->kind == TC_FETCH && command->dst.pool == o->pool)
			occupy(o, info->tensors[command->tensor].bytes, 1);
		if ((command->kind == TC_EVICT && command->src.pool == o->pool) ||
		    (command->kind == TC_DROP && command->src.pool == o->pool))
			occupy(o, info->tensors[command->tensor].bytes, -1);
	}
}

/* ---------------------------------------------------------------- issue point */

static uint64_t compute_id(const struct plan_kept *planned, uint32_t step)
{
	const struct tc_schedule *s = planned->schedule;
	for (uint64_t c = 0; c < s->command_count; c++)
		if (s->commands[c].iteration == STEADY && s->commands[c].kind == TC_COMPUTE &&
		    s->commands[c].step == step)
			return c;
	fail_msg("step %u has no compute command", step);
	return 0;
}

/**
 * How many of the forward rows n0, n0 + 1 ... have their fetch issued in the release of the row n0
 * before: after the compute command of that row's last step and before the next compute command.
 */
static uint32_t issued_at_release(const struct plan_kept *planned, uint32_t n0)
{
	const struct tc_schedule *s = planned->schedule;
	const struct tc_steps *steps = planned->steps;
	uint32_t on_time = 0;
	for (uint32_t i = 0; n0 + i < steps->forward_row_count; i++) {
		const struct tc_request *request = &steps->requests[steps->row_request[i]];
		uint64_t after = compute_id(planned, request->closes - 1);
		uint32_t wanted = steps->rows[n0 + i];
		bool found = false;
		for (uint64_t c = after + 1; s->commands[c].kind != TC_COMPUTE; c++)
			found = found || (s->commands[c].kind == TC_FETCH &&
			                  s->commands[c].tensor == wanted &&
			                  s->commands[c].why == TC_WHY_PREFETCH);
		on_time += found;
	}
	return on_time;
}

/* ---------------------------------------------------------------- OPT-6.7B */

static void test_opt67_resident_348(void **state)
{
	(void)state;
	struct tc_trace *trace = plan_case_shipped("opt6.7b-paper.jsonl.gz");
	struct tc_machine *machine = plan_case_machine(NULL);
	struct plan_kept planned = plan_on(trace, machine, "10cache:resident=348");
	assert_int_equal(planned.steps->forward_row_count, 517);
	assert_int_equal(planned.steps->row_count, 1034);
	assert_hits(&planned, TC_FORWARD, 348, 169);
	assert_hits(&planned, TC_BACKWARD, 347, 170);
	struct moves moves = moves_of(&planned, false);
	assert_int_equal(moves.fetches, 339);
	assert_int_equal(moves.evictions, 339);
	assert_int_equal(moves.fetch_bytes, UINT64_C(8853045248));
	assert_int_equal(moves.eviction_bytes, UINT64_C(8853045248));
	moves = moves_of(&planned, true);
	assert_int_equal(moves.fetches, 0);
	assert_int_equal(moves.evictions, 0);
	plan_kept_free(&planned);
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/** The largest number of each class that the scheduler ever holds sizes the pool. */
static void test_opt67_logical_counts(void **state)
{
	(void)state;
	static const struct class_count classes[] = {
	    {OPT67_BIAS, 197}, {OPT67_FC1_BIAS, 22}, {OPT67_ATTENTION, 88}, {OPT67_FC, 44},
	    {OPT67_SCORE, 1},  {OPT67_POSITIONS, 1}, {OPT67_WORDS, 1}};
	enum { CLASSES = sizeof classes / sizeof *classes };
	struct tc_trace *trace = plan_case_shipped("opt6.7b-paper.jsonl.gz");
	struct tc_machine *machine = plan_case_machine(NULL);
	struct plan_kept planned = plan_on(trace, machine, "10cache:resident=348");
	struct occupancy o = {
	    .pool = pool_named(&planned, "fp16-gpu"), .classes = classes, .class_count = CLASSES};
	assert_int_equal(planned.schedule->info.pools[o.pool].bytes, class_sum(classes, CLASSES));
	occupancy_walk(&planned, &o);
	for (size_t i = 0; i < CLASSES; i++)
		assert_int_equal(o.most[i], classes[i].count);
	plan_kept_free(&planned);
	tc_machine_free(machine);
	tc_trace_free(trace);
}

static void test_opt67_issue_point(void **state)
{
	(void)state;
	struct tc_trace *trace = plan_case_shipped("opt6.7b-paper.jsonl.gz");
	struct tc_machine *machine = plan_case_machine(NULL);
	struct plan_kept planned = plan_on(trace, machine, "10cache:resident=348");
	assert_int_equal(issued_at_release(&planned, 348), 169);
	plan_kept_free(&planned);
	/* The measure tells policies apart: a demand policy that moves as much never does so. */
	plan_case_override(machine, "gpu-memory", UINT64_C(12000000000));
	planned = plan_on(trace, machine, "lru");
	assert_true(moves_of(&planned, false).fetches > 300);
	assert_int_equal(issued_at_release(&planned, 348), 0);
	plan_kept_free(&planned);
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/** n0 = 347 cuts a module of two parameters: one more on each side, and one swap at the end. */
static void test_opt67_resident_347(void **state)
{
	(void)state;
	struct tc_trace *trace = plan_case_shipped("opt6.7b-paper.jsonl.gz");
	struct tc_machine *machine = plan_case_machine(NULL);
	struct plan_kept planned = plan_on(trace, machine, "10cache:resident=347");
	struct moves moves = moves_of(&planned, false);
	assert_int_equal(moves.fetches, 342);
	assert_int_equal(moves.evictions, 342);
	assert_int_equal(moves.repair_fetches + moves.repair_evictions, 0);
	/* The swapped tensor came by a fetch since its last request, so 346 of the 347 are
	 * resident. */
	assert_hits(&planned, TC_FORWARD, 346, 517 - 346);
	assert_int_equal(hits_of(&planned, TC_BACKWARD).demand, 0);
	moves = moves_of(&planned, true);
	assert_int_equal(moves.fetches, 1);
	assert_int_equal(moves.repair_fetches, 1);
	assert_int_equal(moves.evictions, 1);
	assert_int_equal(moves.repair_evictions, 1);
	plan_kept_free(&planned);
	tc_machine_free(machine);
	tc_trace_free(trace);
}

static void test_opt67_minimum_free_buffers(void **state)
{
	(void)state;
	static const struct class_count classes[] = {
	    {OPT67_BIAS, 203}, {OPT67_FC1_BIAS, 22}, {OPT67_ATTENTION, 90}, {OPT67_FC, 45},
	    {OPT67_SCORE, 1},  {OPT67_POSITIONS, 1}, {OPT67_WORDS, 1}};
	static const uint64_t least_free[] = {6, 0, 2, 1, 0};
	struct tc_trace *trace = plan_case_shipped("opt6.7b-paper.jsonl.gz");
	struct tc_machine *machine = plan_case_machine(NULL);
	struct plan_kept planned =
	    plan_on(trace, machine,
	            "10cache:resident=348:gpu-buffers=8192x203/32768x22/33554432x90/134217728x45/"
	            "16384x1/411828224x1/16793600x1");
	struct occupancy o = {.pool = pool_named(&planned, "fp16-gpu"),
	                      .classes = classes,
	                      .class_count = sizeof classes / sizeof *classes};
	occupancy_walk(&planned, &o);
	for (size_t i = 0; i < sizeof least_free / sizeof *least_free; i++)
		assert_int_equal(classes[i].count - o.most[i], least_free[i]);
	assert_int_equal(planned.notes.delayed_fetches, 0);
	struct moves moves = moves_of(&planned, false);
	assert_int_equal(moves.fetches, 339);
	assert_int_equal(moves.fetch_bytes, UINT64_C(8853045248));
	plan_kept_free(&planned);
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/* ---------------------------------------------------------------- OPT-13B */

static void test_opt13_checkpointed(void **state)
{
	(void)state;
	struct tc_trace *trace = plan_case_shipped("opt13b.json");
	struct tc_machine *machine = plan_case_machine(NULL);
	struct plan_kept planned = plan_on(trace, machine, "10cache:resident=420");
	assert_int_equal(planned.steps->forward_row_count, 645);
	assert_int_equal(planned.steps->row_count, 645 + 1285);
	assert_int_equal(planned.steps->recompute_row_count, 640);
	assert_int_equal(hits_of(&planned, TC_FORWARD).requests, 645);
	assert_int_equal(hits_of(&planned, TC_FORWARD).demand, 0);
	assert_int_equal(hits_of(&planned, TC_BACKWARD).requests, 1285);
	assert_int_equal(hits_of(&planned, TC_BACKWARD).demand, 0);
	struct moves moves = moves_of(&planned, false);
	assert_int_equal(moves.fetches, 451);
	assert_int_equal(moves.fetch_bytes, UINT64_C(18670366720));
	assert_int_equal(moves.evictions, 451);
	moves = moves_of(&planned, true);
	assert_int_equal(moves.fetches, 0);
	assert_int_equal(moves.evictions, 0);
	plan_kept_free(&planned);
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/** GPU 32 GiB x 0.96 / 2.5 with slack 30, and host buffers given by hand: the result is
 * knife-edge, one more host buffer changes it. gpu-memory adds the framework's share to that. */
static struct plan_kept plan_opt13_nvme(const struct tc_trace *trace,
                                        const struct tc_machine *machine, const char *victim)
{
	char policy[256];
	(void)snprintf(policy, sizeof policy,
	               "10cache:slack=30:victim=%s:cpu-buffers=514785280x1/20992000x1/10240x167/"
	               "52428800x75/209715200x38/40960x20/20480x1",
	               victim);
	return plan_on(trace, machine, policy);
}

/** Equal to the hundredth of a gigabyte that the published figures give. */
static void assert_gigabytes(uint64_t bytes, uint64_t hundredths)
{
	assert_int_equal((bytes + 5000000) / 10000000, hundredths);
}

static void assert_homes(const struct plan_kept *planned, uint32_t gpu, uint32_t cpu, uint32_t nvme)
{
	uint32_t homes[TC_TIER_COUNT] = {0};
	const struct tc_plan_info *info = &planned->schedule->info;
	for (uint32_t t = 0; t < info->tensor_count; t++)
		if (info->tensors[t].kind == TC_PARAM)
			homes[info->tensors[t].home]++;
	assert_int_equal(homes[TC_GPU], gpu);
	assert_int_equal(homes[TC_CPU], cpu);
	assert_int_equal(homes[TC_NVME], nvme);
}

static void test_opt13_nvme(void **state)
{
	(void)state;
	struct tc_trace *trace = plan_case_shipped("opt13b-paper.jsonl.gz");
	struct tc_machine *machine = plan_case_machine("gpu-memory=34059090657", NULL);
	struct plan_kept planned = plan_opt13_nvme(trace, machine, "code");
	assert_homes(&planned, 303, 298, 44);
	struct moves moves = moves_of(&planned, false);
	assert_int_equal(moves.loads, 170);
	assert_int_equal(moves.load_bytes, UINT64_C(6606919680));
	assert_int_equal(moves.spills, 126);
	assert_gigabytes(moves.spill_bytes, 488);
	assert_gigabytes(moves.eviction_bytes, 2576);
	assert_gigabytes(moves.fetch_bytes, 2728);
	plan_kept_free(&planned);

	planned = plan_opt13_nvme(trace, machine, "farthest");
	assert_homes(&planned, 303, 298, 44);
	moves = moves_of(&planned, false);
	assert_int_equal(moves.loads, 88);
	assert_gigabytes(moves.load_bytes, 320);
	assert_int_equal(moves.spills, 44);
	assert_gigabytes(moves.spill_bytes, 147);
	assert_gigabytes(moves.eviction_bytes, 2576);
	assert_gigabytes(moves.fetch_bytes, 2728);
	plan_kept_free(&planned);
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/* ---------------------------------------------------------------- buffer counts */

/**
 * The worked example of the count rule: a budget of f = 0.7005 of the parameters' 13,316,964,352
 * bytes gives 363 buffers, and with slack 15 the first 348 rows live on the GPU. The budget is free
 * memory / 2.5, free memory the capacity without the framework's 1 GiB:
 * 0.7005 x 13,316,964,352 x 2.5 = 23,321,333,821; + 1,073,741,824 = 24,395,075,645.
 */
static void test_worked_counts(void **state)
{
	(void)state;
	static const struct class_count classes[] = {
	    {OPT67_WORDS, 1}, {OPT67_POSITIONS, 1}, {OPT67_BIAS, 203}, {OPT67_ATTENTION, 90},
	    {OPT67_FC, 45},   {OPT67_FC1_BIAS, 22}, {OPT67_SCORE, 1}};
	/* What the authors' CSV shows on the GPU: 8 KiB 195, 32 KiB 21, 33.5 MB 88, 134 MB 42, and
	 * both embeddings. */
	static const uint64_t residents[] = {1, 1, 195, 88, 42, 21, 0};
	enum { CLASSES = sizeof classes / sizeof *classes };
	struct tc_trace *trace = plan_case_shipped("opt6.7b-paper.jsonl.gz");
	struct tc_machine *machine = plan_case_machine("gpu-memory=24395075645", NULL);
	assert_int_equal(machine->framework_bytes[TC_GPU], UINT64_C(1) << 30);
	struct plan_kept planned = plan_on(trace, machine, "10cache:slack=15");
	uint32_t pool = pool_named(&planned, "fp16-gpu");
	uint64_t buffers = 0;
	for (size_t i = 0; i < CLASSES; i++)
		buffers += classes[i].count;
	assert_int_equal(buffers, 363);
	assert_int_equal(planned.schedule->info.pools[pool].bytes, class_sum(classes, CLASSES));
	struct occupancy o = {.pool = pool, .classes = classes, .class_count = CLASSES};
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		if (trace->tensors[t].kind == TC_PARAM &&
		    planned.schedule->info.tensors[t].start.pool == pool)
			occupy(&o, trace->tensors[t].bytes, 1);
	for (size_t i = 0; i < CLASSES; i++)
		assert_int_equal(o.now[i], residents[i]);
	for (uint32_t row = 0; row < 517; row++)
		assert_int_equal(planned.schedule->info.tensors[planned.steps->rows[row]].home ==
		                     TC_GPU,
		                 row < 348);
	plan_kept_free(&planned);
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/**
 * Where activations leave less than the buffers that the count rule makes of a budget (each class
 * of one or two tensors gets its own, whatever the budget), the counts shrink to what is left, and
 * use it: OPT-13B, whose embedding of 515 MB is such a class. At 24 GiB the rule itself fits.
 */
static void test_counts_shrink_to_fit(void **state)
{
	(void)state;
	struct tc_trace *trace = plan_case_shipped("opt13b.json");
	struct tc_machine *machine = plan_case_machine(NULL);
	static const uint64_t gib[] = {17, 20, 22, 23};
	for (size_t i = 0; i < sizeof gib / sizeof *gib; i++) {
		plan_case_override(machine, "gpu-memory", gib[i] << 30);
		struct plan_kept planned = plan_on(trace, machine, "10cache");
		const struct tc_plan_info *info = &planned.schedule->info;
		uint32_t pool = pool_named(&planned, "fp16-gpu");
		uint64_t left = (gib[i] << 30) - machine->framework_bytes[TC_GPU];
		for (uint32_t p = 0; p < info->pool_count; p++)
			if (info->pools[p].tier == TC_GPU && p != pool)
				left -= info->pools[p].bytes;
		assert_in_range(info->pools[pool].bytes, left / 10 * 9, left);
		plan_kept_free(&planned);
	}
	tc_machine_free(machine);
	tc_trace_free(trace);
}

/* ---------------------------------------------------------------- the authors' CSV */

struct access {
	uint32_t tensor;
	bool zero_wait, forward;
	uint64_t bytes;
};

/** Rows of a CSV of the authors, or NULL where it is absent. Lines end in CR LF. */
static struct access *read_csv(const char *name, size_t *count)
{
	char path[512], line[512];
	(void)snprintf(path, sizeof path, "%s/10cache/%s", TENCACHE_CASES_DIR, name);
	gzFile file = gzopen(path, "rb");
	if (file == NULL)
		return NULL;
	enum { ROWS = 4096 };
	struct access *rows = calloc(ROWS, sizeof *rows);
	assert_non_null(rows);
	assert_non_null(gzgets(file, line, sizeof line)); /* names of the columns */
	*count = 0;
	while (gzgets(file, line, sizeof line) != NULL) {
		char wait[64], forward[8];
		unsigned tensor;
		unsigned long long bytes;
		assert_true(*count < ROWS);
		assert_int_equal(sscanf(line, "%u,%63[^,],%llu,%*[^,],%*[^,],%7[^,]", &tensor, wait,
		                        &bytes, forward),
		                 4);
		rows[(*count)++] = (struct access){.tensor = tensor,
		                                   .zero_wait = strcmp(wait, "0.0") == 0,
		                                   .forward = strcmp(forward, "True") == 0,
		                                   .bytes = bytes};
	}
	(void)gzclose(file);
	return rows;
}

/** Requests of the steady iteration in their order: tensor and outcome. */
static size_t requests_of(const struct plan_kept *planned, struct tc_served *served, size_t most)
{
	size_t count = 0;
	const struct tc_schedule *s = planned->schedule;
	for (uint64_t c = 0; c < s->command_count; c++) {
		const struct tc_command *command = &s->commands[c];
		if (command->iteration != STEADY || command->kind != TC_COMPUTE)
			continue;
		for (uint32_t i = 0; i < command->served_count; i++) {
			assert_true(count < most);
			served[count++] = command->served[i];
		}
	}
	return count;
}

/** Same tensors in the same order: ids match one to one, sizes and passes are equal. */
static void assert_same_order(const struct access *rows, size_t count,
                              const struct tc_served *served, const struct plan_kept *planned)
{
	uint32_t ours[1024];
	const struct tc_trace *trace = planned->steps->trace;
	memset(ours, 0xff, sizeof ours);
	for (size_t i = 0; i < count; i++) {
		const struct tc_served *request = &served[i % 1034];
		assert_true(rows[i].tensor < sizeof ours / sizeof *ours);
		uint32_t *known = &ours[rows[i].tensor];
		if (*known == UINT32_MAX)
			*known = request->tensor;
		assert_int_equal(*known, request->tensor);
		assert_int_equal(rows[i].bytes, trace->tensors[request->tensor].bytes);
		assert_int_equal(rows[i].forward, i % 1034 < 517);
	}
	for (size_t a = 0; a < 517; a++)
		for (size_t b = 0; b < a; b++)
			assert_int_not_equal(ours[rows[a].tensor], ours[rows[b].tensor]);
}

static void test_authors_waits(void **state)
{
	(void)state;
	size_t count = 0, other_count = 0;
	struct access *rows = read_csv("wait_time_cpu_gpu_opt_6_7_b_10cache.csv.gz", &count);
	struct access *other =
	    read_csv("wait_time_cpu_gpu_opt_6_7_b_zero_infinity.csv.gz", &other_count);
	if (rows == NULL || other == NULL) {
		print_message("skipped: %s/10cache is not there\n", TENCACHE_CASES_DIR);
		free(rows);
		free(other);
		skip();
	}
	assert_int_equal(count, 2068);
	assert_int_equal(other_count, 2068);
	struct tc_trace *trace = plan_case_shipped("opt6.7b-paper.jsonl.gz");
	struct tc_machine *machine = plan_case_machine(NULL);
	struct plan_kept planned = plan_on(trace, machine, "10cache:resident=348");
	struct tc_served served[1034];
	assert_int_equal(requests_of(&planned, served, 1034), 1034);
	assert_same_order(rows, count, served, &planned);
	assert_same_order(other, other_count, served, &planned);
	size_t agreeing[2] = {0, 0};
	for (size_t i = 0; i < count; i++)
		agreeing[i / 1034] += rows[i].zero_wait ? served[i % 1034].outcome == TC_RESIDENT
		                                        : served[i % 1034].outcome == TC_COVERED;
	assert_int_equal(agreeing[0], 1034);
	assert_int_equal(agreeing[1], 1034);
	plan_kept_free(&planned);
	tc_machine_free(machine);
	tc_trace_free(trace);
	free(rows);
	free(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_opt67_resident_348),
	    cmocka_unit_test(test_opt67_logical_counts),
	    cmocka_unit_test(test_opt67_issue_point),
	    cmocka_unit_test(test_opt67_resident_347),
	    cmocka_unit_test(test_opt67_minimum_free_buffers),
	    cmocka_unit_test(test_opt13_checkpointed),
	    cmocka_unit_test(test_opt13_nvme),
	    cmocka_unit_test(test_worked_counts),
	    cmocka_unit_test(test_counts_shrink_to_fit),
	    cmocka_unit_test(test_authors_waits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
