/*
 * Orders of steps on random traces. A reference in tests/support/orders.c counts the versions that
 * every op finds in both orders; the planner must take and refuse exactly the same orders, and the
 * auditor, shown plans that skip the planner's check, must find exactly the wrong ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "orders.h"
#include "plan_check.h"
#include "policy/policies.h"
#include "random.h"
#include "trace_builder.h"

#define FRAMEWORK_GPU (UINT64_C(1) << 30)

/** A trace of either kind, its steps, and how they were derived. */
struct subject {
	struct tc_trace *trace;
	struct tc_steps *steps;
	struct plan_case plan;
	uint32_t *order;
};

static struct subject subject_new(uint64_t seed, struct tc_machine *machine)
{
	const struct test_limits limits = {.layers = 3,
	                                   .modules_per_layer = 2,
	                                   .no_events = seed % 10 == 5,
	                                   .persistent_gradients = seed % 8 == 3 || seed % 8 == 5};
	struct subject s = {.trace = seed % 2 == 0 ? orders_random_trace(seed)
	                                           : test_random_trace(seed, &limits)};
	s.plan = (struct plan_case){
	    .trace = s.trace,
	    .machine = machine,
	    .iterations = 3,
	    .granularity = (enum tc_granularity)(seed % 3),
	    .requests = seed % 5 == 0 ? TC_REQUESTS_READS : TC_REQUESTS_HOOK,
	    .frees = seed % 7 < 3 ? TC_FREES_EAGER : TC_FREES_LAST_USE,
	};
	s.steps = plan_case_steps(&s.plan);
	s.order = calloc(s.steps->step_count + 1u, sizeof *s.order);
	assert_non_null(s.order);
	return s;
}

static void subject_free(struct subject *s)
{
	free(s->order);
	tc_steps_free(s->steps);
	tc_trace_free(s->trace);
}

/** The recorded order, or a valid one, disturbed or not. */
static void draw(const struct subject *s, uint64_t *random)
{
	if (test_random_below(random, 3) == 0)
		for (uint32_t p = 0; p < s->steps->step_count; p++)
			s->order[p] = p;
	else
		orders_random_valid(s->steps, random, s->order);
	orders_disturb(random, s->steps->step_count, (uint32_t)test_random_below(random, 3),
	               s->order);
}

/* ---------------------------------------------------------------- the planner's check */

/** What a refusal says: "puts step B before step A, but in the trace op O ..." */
static void check_refusal(const struct subject *s, const char *text)
{
	unsigned early, late, op, other;
	const char *at = strstr(text, "puts step ");
	assert_non_null(at);
	assert_int_equal(
	    sscanf(at, "puts step %u before step %u, but in the trace op %u ", &early, &late, &op),
	    3);
	at = strstr(at, " tensor ");
	assert_non_null(at);
	at = strstr(at, " before op ");
	assert_non_null(at);
	assert_int_equal(sscanf(at, " before op %u ", &other), 1);
	/* `late` is the earlier one in the trace; the two conflict, and stand the other way round.
	 */
	assert_true(late < early && op < other);
	assert_true(orders_conflict(s->steps, late, early));
	const struct tc_step *first = &s->steps->steps[late], *second = &s->steps->steps[early];
	assert_true(first->first_op <= op && op <= first->last_op);
	assert_true(second->first_op <= other && other <= second->last_op);
	uint32_t p = 0, q = 0;
	while (s->order[p] != early)
		p++;
	while (s->order[q] != late)
		q++;
	assert_true(p < q);
}

static void test_check_equals_reference(void **state)
{
	(void)state;
	enum { TRACES = 120, ORDERS = 25 };
	unsigned kept = 0, refused = 0;
	struct tc_machine *machine = plan_case_machine("gpu-memory=32GiB", NULL);
	struct tc_policy_choice *choice = plan_case_choice("ideal");
	for (uint64_t seed = 1; seed <= TRACES; seed++) {
		uint64_t random = seed;
		struct subject s = subject_new(seed, machine);
		s.plan.choice = choice;
		s.plan.iterations = 1;
		for (int i = 0; i < ORDERS; i++) {
			draw(&s, &random);
			struct tc_policy policy = orders_policy(
			    &tci_policy_ideal,
			    (struct orders_wish){.order = s.order, .count = s.steps->step_count});
			struct tc_error error = {0};
			choice->policy = &policy;
			enum tc_status status = plan_case_run(&s.plan, NULL, NULL, &error);
			bool keeps = orders_keep_dataflow(s.steps, s.order, true);
			if (status != (keeps ? TC_OK : TC_ARGUMENT))
				fail_msg("trace %llu, order %d: %s, but: %s",
				         (unsigned long long)seed, i,
				         keeps ? "keeps the dataflow" : "breaks it", error.text);
			if (!keeps)
				check_refusal(&s, error.text);
			kept += keeps;
			refused += !keeps;
		}
		subject_free(&s);
	}
	print_message("%u orders taken, %u refused\n", kept, refused);
	assert_true(kept > 500 && refused > 500);
	choice->policy = &tci_policy_ideal; /* those of the loop are gone */
	tc_policy_choice_free(choice);
	tc_machine_free(machine);
}

/* ---------------------------------------------------------------- policies in such orders */

static const struct {
	const char *text;
	const struct tc_policy *base;
} bases[] = {
    {"ideal", &tci_policy_ideal},
    {"lru:barrier=0", &tci_policy_lru},
    {"lru:optimizer=gpu", &tci_policy_lru},
    {"lru:activations=1:optimizer=gpu", &tci_policy_lru},
    {"lru:state=nvme:barrier=0", &tci_policy_lru},
    {"belady:activations=1:barrier=0", &tci_policy_belady},
    {"belady:optimizer=gpu", &tci_policy_belady},
};
enum { BASES = sizeof bases / sizeof *bases };

static bool on_cpu(size_t base)
{
	return base != 0 && strstr(bases[base].text, "optimizer=gpu") == NULL;
}

static void random_gpu(struct tc_machine *machine, uint64_t *random)
{
	uint64_t scale = UINT64_C(1) << (12 + test_random_below(random, 10));
	plan_case_override(machine, "gpu-memory",
	                   FRAMEWORK_GPU + scale + test_random_below(random, scale));
}

/** What a plan says of itself, and the versions at its end: what training has made. */
struct ends {
	bool reordered;
	uint32_t count;
	uint64_t *versions; /**< by tensor of the plan */
};

static enum tc_status ends_begin(void *self, const struct tc_plan_info *info,
                                 struct tc_error *error)
{
	struct ends *ends = self;
	(void)error;
	ends->reordered = info->reordered;
	ends->count = info->tensor_count;
	ends->versions = calloc(info->tensor_count + 1u, sizeof *ends->versions);
	assert_non_null(ends->versions);
	assert_false(info->reordered && info->drives);
	return TC_OK;
}

static enum tc_status ends_end(void *self, const struct tc_plan_end *end, struct tc_error *error)
{
	struct ends *ends = self;
	(void)error;
	for (uint32_t p = 0; p < end->place_count; p++)
		ends->versions[end->places[p].tensor] = end->places[p].version;
	return TC_OK;
}

static enum tc_status run_ends(const struct plan_case *plan, struct ends *ends)
{
	*ends = (struct ends){0};
	struct tc_sink sink = {.self = ends, .begin = ends_begin, .end = ends_end};
	struct tc_error error = {0};
	return plan_case_run(plan, &sink, NULL, &error);
}

static void check_same_ends(const struct ends *recorded, const struct ends *reordered)
{
	assert_true(reordered->reordered && !recorded->reordered);
	assert_int_equal(reordered->count, recorded->count);
	assert_memory_equal(reordered->versions, recorded->versions,
	                    recorded->count * sizeof *recorded->versions);
}

/** One policy in recorded order and in that of the subject. @return whether the latter fits */
static bool try_order(struct subject *s, size_t base, uint64_t seed)
{
	struct tc_policy_choice *choice = plan_case_choice(bases[base].text);
	struct ends recorded, ends = {0};
	s->plan.policy = bases[base].text;
	s->plan.choice = choice;
	enum tc_status fits = run_ends(&s->plan, &recorded);
	struct tc_policy policy =
	    orders_policy(bases[base].base,
	                  (struct orders_wish){.order = s->order, .count = s->steps->step_count});
	choice->policy = &policy;
	enum tc_status status = plan_and_check(&s->plan, seed).status;
	if (status == TC_OK) {
		assert_int_equal(run_ends(&s->plan, &ends), TC_OK);
		if (fits == TC_OK)
			check_same_ends(&recorded, &ends);
	}
	free(recorded.versions);
	free(ends.versions);
	tc_policy_choice_free(choice);
	return status == TC_OK;
}

/** Whatever fits is safe, runs every op once, and makes what the recorded order makes. */
static void test_valid_orders_are_safe(void **state)
{
	(void)state;
	enum { TRACES = 90, SIZES = 3 };
	unsigned feasible[BASES] = {0};
	struct tc_machine *machine = plan_case_machine(NULL);
	for (uint64_t seed = 1; seed <= TRACES; seed++) {
		uint64_t random = seed;
		struct subject s = subject_new(seed, machine);
		/* Without events, norm ops and updates of a bucket are one update on the CPU. */
		bool whole = !s.trace->has_events && s.trace->has_clip;
		for (size_t b = 0; b < BASES; b++)
			for (int i = 0; i < SIZES && !(whole && on_cpu(b)); i++) {
				random_gpu(machine, &random);
				if (i == SIZES - 1)
					plan_case_override(machine, "gpu-memory",
					                   UINT64_C(32) << 30);
				orders_random_valid(s.steps, &random, s.order);
				feasible[b] += try_order(&s, b, seed);
			}
		subject_free(&s);
	}
	for (size_t b = 0; b < BASES; b++) {
		print_message("%s: %u of %d feasible\n", bases[b].text, feasible[b],
		              TRACES * SIZES);
		assert_true(feasible[b] >= TRACES);
	}
	tc_machine_free(machine);
}

/* ---------------------------------------------------------------- the auditor alone */

/** How many orders of each sort went through. */
struct verdicts {
	unsigned right, wrong, stopped;
};

/**
 * The planner without its check walks any order; where it gets through, the auditor has the word.
 * An op that reads after its tensor's death may still find the bytes, so deaths decide nothing.
 */
static void try_auditor(struct subject *s, size_t base, const char *where,
                        struct verdicts *verdicts)
{
	struct tc_policy_choice *choice = plan_case_choice(bases[base].text);
	struct tc_policy policy =
	    orders_policy(bases[base].base, (struct orders_wish){.order = s->order,
	                                                         .count = s->steps->step_count,
	                                                         .unchecked = true});
	struct tc_audit_report report;
	struct tc_error error = {0};
	choice->policy = &policy;
	s->plan.choice = choice;
	enum tc_status status = plan_case_audit(&s->plan, &report, &error);
	bool keeps = orders_keep_dataflow(s->steps, s->order, true);
	bool same_data = orders_keep_dataflow(s->steps, s->order, false);
	if (status == TC_OK && keeps && report.findings > 0)
		fail_msg("%s, %s: a valid order, but %s", where, bases[base].text, report.first);
	if (status == TC_OK && !same_data && report.findings == 0)
		fail_msg("%s, %s: a wrong order is not found", where, bases[base].text);
	verdicts->right += status == TC_OK && keeps;
	verdicts->wrong += status == TC_OK && !same_data;
	verdicts->stopped += status != TC_OK;
	tc_policy_choice_free(choice);
}

static void test_auditor_equals_reference(void **state)
{
	(void)state;
	enum { TRACES = 100, ORDERS = 12 };
	struct verdicts verdicts = {0};
	struct tc_machine *machine = plan_case_machine("gpu-memory=32GiB", NULL);
	for (uint64_t seed = 1; seed <= TRACES; seed++) {
		uint64_t random = seed;
		struct subject s = subject_new(seed, machine);
		for (int i = 0; i < ORDERS; i++) {
			char where[64];
			(void)snprintf(where, sizeof where, "trace %llu, order %d",
			               (unsigned long long)seed, i);
			/* On the CPU norm ops make no command: nobody sees where they stand. */
			size_t b = test_random_below(&random, BASES);
			draw(&s, &random);
			if (!on_cpu(b) || !s.trace->has_clip)
				try_auditor(&s, b, where, &verdicts);
		}
		subject_free(&s);
	}
	print_message("auditor: %u valid orders, %u wrong ones, %u that no plan could follow\n",
	              verdicts.right, verdicts.wrong, verdicts.stopped);
	assert_true(verdicts.right > 200 && verdicts.wrong > 200);
	tc_machine_free(machine);
}

/* ---------------------------------------------------------------- mutants */

static bool depends(const struct tc_trace *trace, const struct tc_command *a,
                    const struct tc_command *b)
{
	for (uint32_t o = a->first_op; o <= a->last_op; o++)
		for (uint32_t w = 0; w < trace->ops[o].writes.count; w++)
			for (uint32_t p = b->first_op; p <= b->last_op; p++)
				for (uint32_t r = 0; r < trace->ops[p].reads.count; r++)
					if (trace->ops[o].writes.items[w] ==
					    trace->ops[p].reads.items[r])
						return true;
	return false;
}

/** The work of two commands changes places; ids, dependencies and all else stay. */
static void swap_work(struct tc_command *a, struct tc_command *b)
{
	struct tc_command other = *a;
	a->first_op = b->first_op;
	a->last_op = b->last_op;
	a->binds = b->binds;
	a->bind_count = b->bind_count;
	b->first_op = other.first_op;
	b->last_op = other.last_op;
	b->binds = other.binds;
	b->bind_count = other.bind_count;
}

static unsigned try_mutants(struct tc_schedule *schedule, uint64_t *random)
{
	unsigned tried = 0;
	for (int i = 0; i < 40; i++) {
		uint64_t a = test_random_below(random, schedule->command_count), b = a + 1;
		while (b < schedule->command_count && schedule->commands[b].kind != TC_COMPUTE)
			b++;
		struct tc_command *first = &schedule->commands[a], *second = first + (b - a);
		if (first->kind != TC_COMPUTE || b == schedule->command_count ||
		    first->iteration != second->iteration ||
		    !depends(schedule->info.trace, first, second))
			continue;
		swap_work(first, second);
		if (plan_case_findings(schedule) == 0)
			fail_msg("commands %llu and %llu swapped: not found", (unsigned long long)a,
			         (unsigned long long)b);
		swap_work(first, second);
		tried++;
	}
	return tried;
}

/** Of two compute commands the second of which reads what the first writes. */
static void test_swapped_commands_are_found(void **state)
{
	(void)state;
	unsigned tried = 0;
	struct tc_machine *machine = plan_case_machine("gpu-memory=32GiB", NULL);
	for (uint64_t seed = 1; seed <= 40; seed++) {
		uint64_t random = seed;
		struct subject s = subject_new(seed, machine);
		struct tc_policy_choice *choice = plan_case_choice("lru:optimizer=gpu");
		orders_random_valid(s.steps, &random, s.order);
		struct tc_policy policy = orders_policy(
		    &tci_policy_lru,
		    (struct orders_wish){.order = s.order, .count = s.steps->step_count});
		choice->policy = &policy;
		s.plan.choice = choice;
		struct plan_kept kept = plan_case_keep(&s.plan);
		assert_int_equal(plan_case_findings(kept.schedule), 0);
		tried += try_mutants(kept.schedule, &random);
		/* The same commands, not declared: unless the order is the recorded one, found. */
		kept.schedule->info.reordered = false;
		uint32_t last = 0, moved = 0;
		for (uint32_t p = 0; p < s.steps->step_count; p++) {
			if (s.steps->steps[s.order[p]].phase > TC_BACKWARD)
				continue;
			moved += s.order[p] < last;
			last = s.order[p];
		}
		assert_int_equal(plan_case_findings(kept.schedule) > 0, moved > 0);
		plan_kept_free(&kept);
		tc_policy_choice_free(choice);
		subject_free(&s);
	}
	print_message("%u mutants\n", tried);
	assert_true(tried > 100);
	tc_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_check_equals_reference),
	    cmocka_unit_test(test_valid_orders_are_safe),
	    cmocka_unit_test(test_auditor_equals_reference),
	    cmocka_unit_test(test_swapped_commands_are_found),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
