/*
 * What a policy hears and is told when steps run in another order: hooks, events, requests, pins,
 * next uses and ends of phases against rules written down here once more; an update before its
 * gradient's event; micro-batches run side by side; and schedule files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "orders.h"
#include "plan_case.h"
#include "policy/policies.h"
#include "random.h"
#include "trace_builder.h"

/** What the rules say about the order at hand, and what came so far. Hooks have no other data. */
static struct {
	const struct tc_steps *steps; /**< as recorded */
	const uint32_t *order;
	const uint32_t *position; /**< of each step */
	bool on_cpu;
	uint32_t next;   /**< position that comes next */
	uint32_t events; /**< of that boundary, heard so far */
	bool after;      /**< after_step came at that boundary */
	uint32_t phase_ends[TC_PHASE_COUNT];
} rules;

/* ---------------------------------------------------------------- the rules */

static uint32_t closes_at(const struct tc_request *request)
{
	uint32_t last = 0;
	for (uint32_t s = request->opens; s < request->closes; s++)
		last = rules.position[s] > last ? rules.position[s] : last;
	return last + 1;
}

static bool is_open(const struct tc_request *request, uint32_t position)
{
	return rules.position[request->opens] <= position && position < closes_at(request);
}

static bool asks_for(const struct tc_request *request, uint32_t tensor)
{
	for (uint32_t r = 0; r < request->row_count; r++)
		if (rules.steps->rows[request->first_row + r] == tensor)
			return true;
	return false;
}

static bool has(struct tc_ids ids, uint32_t id)
{
	for (uint32_t i = 0; i < ids.count; i++)
		if (ids.items[i] == id)
			return true;
	return false;
}

static bool is_used(uint32_t position, uint32_t tensor)
{
	const struct tc_step *s = &rules.steps->steps[rules.order[position]];
	if (rules.on_cpu && s->phase == TC_OPTIMIZER)
		return false;
	bool used = has(s->reads, tensor) || has(s->writes, tensor) || has(s->unpacks, tensor) ||
	            has(s->allocates, tensor) || has(s->frees, tensor);
	for (uint32_t r = 0; r < rules.steps->request_count && !used; r++)
		used = is_open(&rules.steps->requests[r], position) &&
		       asks_for(&rules.steps->requests[r], tensor);
	return used;
}

static uint64_t next_use(uint32_t from, uint32_t tensor)
{
	uint32_t n = rules.steps->step_count;
	for (uint64_t p = from; p < from + (uint64_t)n; p++)
		if (is_used((uint32_t)(p % n), tensor))
			return p;
	return UINT64_MAX;
}

/* ---------------------------------------------------------------- hooks */

static void check_requests(struct tc_planner *planner, struct tc_ids heard, bool opening)
{
	const struct tc_steps *seen = tc_plan_steps(planner);
	uint32_t expected = 0;
	for (uint32_t r = 0; r < rules.steps->request_count; r++) {
		const struct tc_request *request = &rules.steps->requests[r];
		uint32_t at = opening ? rules.position[request->opens] : closes_at(request);
		expected += at == rules.next;
	}
	assert_int_equal(heard.count, expected);
	for (uint32_t i = 0; i < heard.count; i++) {
		const struct tc_request *request = &seen->requests[heard.items[i]];
		assert_true(i == 0 || heard.items[i] > heard.items[i - 1]);
		assert_int_equal(opening ? request->opens : request->closes, rules.next);
		assert_true(request->opens < request->closes);
	}
}

static enum tc_status hear_after(void *self, struct tc_planner *planner, uint32_t step,
                                 struct tc_ids closing, struct tc_error *error)
{
	assert_int_equal(step + 1, rules.next);
	assert_false(rules.after);
	rules.after = true;
	check_requests(planner, closing, false);
	return tci_policy_lru.after_step(self, planner, step, closing, error);
}

static enum tc_status hear_event(void *self, struct tc_planner *planner, uint32_t event,
                                 bool *handled, struct tc_error *error)
{
	uint32_t n = rules.steps->step_count;
	uint32_t recorded = rules.next < n ? rules.order[rules.next] : n;
	(void)self;
	(void)planner;
	(void)error;
	*handled = false;
	assert_int_equal(event, rules.steps->steps[recorded].first_event + rules.events);
	assert_int_equal(rules.after, rules.next > 0);
	rules.events++;
	return TC_OK;
}

static enum tc_status hear_before(void *self, struct tc_planner *planner, uint32_t step,
                                  struct tc_ids opening, struct tc_error *error)
{
	(void)self;
	(void)error;
	assert_int_equal(step, rules.next);
	assert_int_equal(tc_plan_step(planner), step);
	assert_int_equal(tc_plan_steps(planner)->order[step], rules.order[step]);
	assert_int_equal(rules.events, rules.steps->steps[rules.order[step]].event_count);
	check_requests(planner, opening, true);
	for (uint32_t t = 0; t < rules.steps->trace->tensor_count; t++)
		assert_int_equal(tc_plan_next_use(planner, t), next_use(step, t));
	for (uint32_t r = 0; r < rules.steps->request_count; r++) {
		const struct tc_request *request = &rules.steps->requests[r];
		for (uint32_t i = 0; is_open(request, step) && i < request->row_count; i++)
			assert_true(
			    tc_plan_is_pinned(planner, rules.steps->rows[request->first_row + i]));
	}
	rules.next++;
	rules.events = 0;
	rules.after = false;
	return TC_OK;
}

/** Once for each phase, when its last step has run and before the first step of another. */
static enum tc_status hear_phase(void *self, struct tc_planner *planner, enum tc_phase phase,
                                 struct tc_error *error)
{
	uint32_t last = 0;
	(void)self;
	(void)planner;
	(void)error;
	for (uint32_t p = 0; p < rules.steps->step_count; p++)
		if (rules.steps->steps[rules.order[p]].phase == phase)
			last = p;
	assert_int_equal(rules.next, last + 1);
	rules.phase_ends[phase]++;
	return TC_OK;
}

static enum tc_status hear_iteration(void *self, struct tc_planner *planner,
                                     const struct tc_evaluation *timing, struct tc_error *error)
{
	bool there[TC_PHASE_COUNT] = {false};
	(void)self;
	(void)planner;
	(void)timing;
	(void)error;
	assert_int_equal(rules.next, rules.steps->step_count);
	for (uint32_t s = 0; s < rules.steps->step_count; s++)
		there[rules.steps->steps[s].phase] = true;
	for (int phase = 0; phase < TC_PHASE_COUNT; phase++)
		assert_int_equal(rules.phase_ends[phase], there[phase]);
	memset(rules.phase_ends, 0, sizeof rules.phase_ends);
	rules.next = rules.events = 0;
	rules.after = false;
	return TC_OK;
}

/** As lru, listening. */
static struct tc_policy listening(struct orders_wish wish)
{
	struct tc_policy policy = orders_policy(&tci_policy_lru, wish);
	policy.after_step = hear_after;
	policy.on_event = hear_event;
	policy.before_step = hear_before;
	policy.end_of_phase = hear_phase;
	policy.end_of_iteration = hear_iteration;
	return policy;
}

static void follow_rules(struct plan_case *plan, uint64_t seed)
{
	static const char *const texts[] = {"lru:barrier=0", "lru:optimizer=gpu",
	                                    "lru:optimizer=gpu:activations=1"};
	uint64_t random = seed;
	struct tc_steps *steps = plan_case_steps(plan);
	uint32_t *order = calloc(2 * (size_t)steps->step_count + 1, sizeof *order);
	uint32_t *position = order + steps->step_count;
	assert_non_null(order);
	for (int i = 0; i < 3; i++) {
		orders_random_valid(steps, &random, order);
		for (uint32_t p = 0; p < steps->step_count; p++)
			position[order[p]] = p;
		memset(&rules, 0, sizeof rules);
		rules.steps = steps;
		rules.order = order;
		rules.position = position;
		rules.on_cpu = i == 0;
		struct tc_policy policy =
		    listening((struct orders_wish){.order = order, .count = steps->step_count});
		struct tc_policy_choice *choice = plan_case_choice(texts[i]);
		choice->policy = &policy;
		plan->choice = choice;
		struct tc_error error = {0};
		if (plan_case_run(plan, NULL, NULL, &error) != TC_OK)
			fail_msg("seed %llu: %s", (unsigned long long)seed, error.text);
		tc_policy_choice_free(choice);
	}
	free(order);
	tc_steps_free(steps);
}

static void test_hooks_follow_the_order(void **state)
{
	(void)state;
	const struct test_limits limits = {.layers = 3, .modules_per_layer = 2};
	struct tc_machine *machine = plan_case_machine("gpu-memory=32GiB", NULL);
	for (uint64_t seed = 1; seed <= 24; seed++) {
		struct tc_trace *trace =
		    seed % 3 == 0 ? orders_random_trace(seed) : test_random_trace(seed, &limits);
		struct plan_case plan = {
		    .trace = trace,
		    .machine = machine,
		    .iterations = 2,
		    .granularity = seed % 4 == 0 ? TC_GRANULARITY_LAYER : TC_GRANULARITY_MODULE,
		    .requests = seed % 5 == 0 ? TC_REQUESTS_READS : TC_REQUESTS_HOOK,
		    .frees = seed % 2 == 0 ? TC_FREES_EAGER : TC_FREES_LAST_USE,
		};
		follow_rules(&plan, seed);
		tc_trace_free(trace);
	}
	tc_machine_free(machine);
}

/* ---------------------------------------------------------------- gradients before their event */

/** The recorded order with each update directly behind the last step that it must follow. */
static void updates_at_once(const struct tc_steps *steps, uint32_t *order)
{
	uint32_t placed = 0;
	for (uint32_t s = 0; s < steps->step_count; s++) {
		if (steps->steps[s].phase == TC_OPTIMIZER)
			continue;
		order[placed++] = s;
		for (uint32_t u = s + 1; u < steps->step_count; u++) {
			uint32_t last = u;
			for (uint32_t before = 0; before < u; before++)
				if (orders_conflict(steps, before, u))
					last = before;
			if (steps->steps[u].phase == TC_OPTIMIZER && last == s)
				order[placed++] = u;
		}
	}
	assert_int_equal(placed, steps->step_count);
}

struct copies {
	uint64_t gradients, updates;
	bool
	    order_kept; /**< an update directly behind its gradient's copy, on the issuing thread */
	uint32_t copied;
};

static enum tc_status count_copies(void *self, const struct tc_command *command,
                                   struct tc_error *error)
{
	struct copies *copies = self;
	(void)error;
	if (command->kind == TC_GRADIENT) {
		copies->gradients++;
		copies->copied = command->tensor;
	}
	if (command->kind == TC_UPDATE) {
		copies->updates++;
		bool reads = false;
		for (uint32_t b = 0; b < command->bind_count; b++)
			reads = reads || command->binds[b].tensor == copies->copied;
		copies->order_kept = copies->order_kept && reads;
	}
	return TC_OK;
}

/**
 * A gradient event lies at the boundary of the next layer's step, but the update stands before
 * that. So the copy is made when the update needs it, and not again at the event: one copy a
 * parameter and iteration.
 */
static void test_gradient_before_its_event(void **state)
{
	(void)state;
	struct test_model model = {.layers = 4};
	struct tc_machine *machine = plan_case_machine(NULL);
	struct tc_trace *trace = test_model_trace(&model);
	struct plan_case plan = {.trace = trace, .machine = machine, .iterations = 3};
	struct tc_steps *steps = plan_case_steps(&plan);
	uint32_t *order = calloc(steps->step_count, sizeof *order);
	assert_non_null(order);
	updates_at_once(steps, order);
	struct tc_policy policy = orders_policy(
	    &tci_policy_lru, (struct orders_wish){.order = order, .count = steps->step_count});
	struct tc_policy_choice *choice = plan_case_choice("lru");
	choice->policy = &policy;
	plan.choice = choice;
	struct tc_audit_report report;
	struct tc_error error = {0};
	assert_int_equal(plan_case_audit(&plan, &report, &error), TC_OK);
	assert_int_equal(report.findings, 0);
	struct copies copies = {.order_kept = true};
	struct tc_sink sink = {.self = &copies, .command = count_copies};
	assert_int_equal(plan_case_run(&plan, &sink, NULL, &error), TC_OK);
	assert_int_equal(copies.gradients, 4 * 3);
	assert_int_equal(copies.updates, 4 * 3);
	assert_true(copies.order_kept);
	free(order);
	tc_policy_choice_free(choice);
	tc_steps_free(steps);
	tc_trace_free(trace);
	tc_machine_free(machine);
}

/* ---------------------------------------------------------------- micro-batches */

/** Two layers of 1 MiB over two micro-batches: steps 0 and 2 are the first layer's. */
static struct tc_trace *micro_batches(void)
{
	struct test_builder *b = test_builder_new();
	uint32_t input = test_add_tensor(b, TC_INPUT, 512);
	uint32_t first = test_add_tensor(b, TC_PARAM, 1 << 20);
	uint32_t second = test_add_tensor(b, TC_PARAM, 1 << 20);
	uint32_t modules[] = {test_add_module(b, "first", TEST_IDS(first)),
	                      test_add_module(b, "second", TEST_IDS(second))};
	test_add_event(b, TC_EVENT_START, TC_NONE);
	for (uint32_t batch = 0; batch < 2; batch++) {
		uint32_t x = input;
		test_add_event(b, TC_EVENT_MICRO_BATCH, batch);
		for (uint32_t layer = 0; layer < 2; layer++) {
			uint32_t y = test_add_tensor(b, TC_ACTIVATION, 512);
			test_add_event(b, TC_EVENT_FORWARD_PRE, modules[layer]);
			uint32_t op =
			    test_add_op(b, TC_FORWARD, modules[layer],
			                TEST_IDS(x, layer == 0 ? first : second), TEST_IDS(y));
			test_op(b, op)->us = 1;
			test_add_event(b, TC_EVENT_FORWARD_POST, modules[layer]);
			x = y;
		}
	}
	test_add_event(b, TC_EVENT_END, TC_NONE);
	test_fill_lifetimes(b);
	struct tc_trace *trace = test_builder_trace(b);
	test_builder_free(b);
	return trace;
}

static enum tc_status count_fetches(void *self, const struct tc_command *command,
                                    struct tc_error *error)
{
	(void)error;
	*(uint64_t *)self += command->kind == TC_FETCH && command->iteration == 1;
	return TC_OK;
}

/**
 * The GPU holds one layer. In recorded order each of the four steps finds the other layer's
 * parameter there: four fetches an iteration. Vertically, both micro-batches of a layer before the
 * next one: two. belady holds to the same order through next uses.
 */
static void test_vertical_order(void **state)
{
	(void)state;
	static const uint32_t recorded[] = {0, 1, 2, 3}, vertical[] = {0, 2, 1, 3};
	static const struct tc_policy *const bases[] = {&tci_policy_lru, &tci_policy_belady};
	struct tc_machine *machine = plan_case_machine(NULL);
	plan_case_override(machine, "gpu-memory", (UINT64_C(1) << 30) + (3u << 19));
	struct tc_trace *trace = micro_batches();
	for (size_t b = 0; b < 2; b++)
		for (int i = 0; i < 2; i++) {
			struct tc_policy_choice *choice = plan_case_choice(bases[b]->name);
			struct tc_policy policy = orders_policy(
			    bases[b], (struct orders_wish){.order = i == 0 ? recorded : vertical,
			                                   .count = 4});
			choice->policy = &policy;
			struct plan_case plan = {
			    .trace = trace, .machine = machine, .choice = choice, .iterations = 3};
			uint64_t fetches = 0;
			struct tc_sink sink = {.self = &fetches, .command = count_fetches};
			struct tc_error error = {0};
			struct tc_audit_report report;
			assert_int_equal(plan_case_audit(&plan, &report, &error), TC_OK);
			assert_int_equal(report.findings, 0);
			assert_int_equal(plan_case_run(&plan, &sink, NULL, &error), TC_OK);
			/* Of the four, belady cannot spare any with room for one either. */
			assert_int_equal(fetches, i == 0 ? 4 : 2);
			tc_policy_choice_free(choice);
		}
	tc_trace_free(trace);
	tc_machine_free(machine);
}

/* ---------------------------------------------------------------- files */

/** A file says that its plan is reordered; without that it would be refused for its order. */
static void test_file_says_reordered(void **state)
{
	(void)state;
	static const uint32_t vertical[] = {0, 2, 1, 3};
	char path[] = "/tmp/tencache-reorder-XXXXXX";
	struct tc_machine *machine = plan_case_machine(NULL);
	struct tc_trace *trace = micro_batches();
	struct tc_policy_choice *choice = plan_case_choice("lru");
	struct tc_policy policy =
	    orders_policy(&tci_policy_lru, (struct orders_wish){.order = vertical, .count = 4});
	choice->policy = &policy;
	struct plan_case plan = {
	    .trace = trace, .machine = machine, .choice = choice, .iterations = 3};
	struct tc_error error = {0};
	struct tc_schedule_writer *writer = NULL;
	int file = mkstemp(path);
	assert_true(file >= 0);
	(void)close(file);
	assert_int_equal(tc_schedule_writer_create(path, &writer, &error), TC_OK);
	struct tc_sink sink = tc_schedule_writer_sink(writer);
	assert_int_equal(plan_case_run(&plan, &sink, NULL, &error), TC_OK);
	tc_schedule_writer_free(writer);
	struct tc_schedule *schedule = NULL;
	if (tc_schedule_read(path, trace, machine, &schedule, &error) != TC_OK)
		fail_msg("%s", error.text);
	assert_true(schedule->info.reordered);
	assert_false(schedule->info.drives);
	assert_int_equal(plan_case_findings(schedule), 0);
	schedule->info.reordered = false;
	assert_true(plan_case_findings(schedule) > 0);
	tc_schedule_free(schedule);
	(void)unlink(path);
	tc_policy_choice_free(choice);
	tc_trace_free(trace);
	tc_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_hooks_follow_the_order),
	    cmocka_unit_test(test_gradient_before_its_event),
	    cmocka_unit_test(test_vertical_order),
	    cmocka_unit_test(test_file_says_reordered),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
