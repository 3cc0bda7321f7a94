/*
 * Gradients that persist: the training loop zeroes them in place (set_to_none=False) instead of
 * dropping them. Expected values are counted by hand from the ops: one iteration writes such a
 * gradient twice, when it is added to and when it is zeroed, so in iteration i, counted from 0, an
 * update reads version 2i + 1 where zeroing comes last, and 2i + 2 where it comes first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "orders.h"
#include "policy/policies.h"
#include "small_plan.h"
#include "trace_builder.h"

#define FRAMEWORK_GPU (UINT64_C(1) << 30)
/** Of test_model_builder(): the input, then the parameters. */
#define FIRST_PARAM 1u

static uint32_t gradient_of(const struct tc_trace *trace, uint32_t param)
{
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		if (trace->tensors[t].kind == TC_GRAD && trace->tensors[t].of == param)
			return t;
	fail_msg("parameter %u has no gradient", param);
	return TC_NONE;
}

/** The op of a phase that writes a tensor. */
static uint32_t writer_of(const struct tc_trace *trace, enum tc_phase phase, uint32_t tensor)
{
	for (uint32_t o = 0; o < trace->op_count; o++)
		for (uint32_t i = 0; i < trace->ops[o].writes.count; i++)
			if (trace->ops[o].phase == phase && trace->ops[o].writes.items[i] == tensor)
				return o;
	fail_msg("no such op writes tensor %u", tensor);
	return TC_NONE;
}

static uint64_t copies_down(const struct tc_schedule *schedule, uint32_t tensor, uint32_t iteration)
{
	uint64_t count = 0;
	for (uint64_t c = 0; c < schedule->command_count; c++) {
		const struct tc_command *command = &schedule->commands[c];
		count += command->queue == TC_QUEUE_D2H && command->tensor == tensor &&
		         command->iteration == iteration;
	}
	return count;
}

static uint64_t copies_up(const struct tc_schedule *schedule, uint32_t tensor, uint32_t iteration)
{
	uint64_t count = 0;
	for (uint64_t c = 0; c < schedule->command_count; c++) {
		const struct tc_command *command = &schedule->commands[c];
		count += command->queue == TC_QUEUE_H2D && command->tensor == tensor &&
		         command->iteration == iteration;
	}
	return count;
}

/** Bytes of gradients that all commands together leave taken in a tier, the first places included.
 */
static int64_t bytes_left(const struct tc_schedule *schedule, enum tc_tier tier)
{
	int64_t bytes = 0;
	for (uint64_t c = 0; c < schedule->command_count; c++)
		for (uint32_t m = 0; m < schedule->commands[c].memory_count; m++)
			if (schedule->commands[c].memory[m].tier == tier &&
			    schedule->commands[c].memory[m].kind == TC_GRAD)
				bytes += schedule->commands[c].memory[m].bytes;
	return bytes;
}

static uint64_t final_version(const struct tc_schedule *schedule, uint32_t tensor)
{
	for (uint32_t p = 0; p < schedule->end.place_count; p++)
		if (schedule->end.places[p].tensor == tensor)
			return schedule->end.places[p].version;
	fail_msg("the end record has no place of tensor %u", tensor);
	return 0;
}

/* ---------------------------------------------------------------- the life of one */

/**
 * With room for everything a gradient lives on the GPU: one copy goes down in each iteration, for
 * the update. It comes up once, since it begins in host memory, unless it is overwritten before it
 * is read.
 */
static void check_life(const char *policy, enum test_gradients gradients, bool half)
{
	const struct test_model model = {.half = half, .gradients = gradients};
	struct small small = small_of(test_model_builder(&model), PLENTY);
	struct plan_kept kept = small_kept(&small, policy);
	const struct tc_schedule *schedule = kept.schedule;
	bool last = gradients == TEST_ZEROED_LAST;
	for (uint32_t param = FIRST_PARAM; param < FIRST_PARAM + 2; param++) {
		uint32_t gradient = gradient_of(small.trace, param), reads = gradient;
		uint32_t op = writer_of(small.trace, TC_OPTIMIZER, param);
		assert_int_equal(schedule->info.tensors[gradient].home, TC_CPU);
		if (half)
			reads = small_derived(schedule, gradient, TC_GRAD);
		for (uint32_t i = 0; i < 2; i++) {
			const struct tc_command *update =
			    &schedule->commands[plan_runs(schedule, i, op)];
			assert_int_equal(update->kind, TC_UPDATE);
			const struct tc_bind *bind = small_bind(update, reads);
			assert_non_null(bind);
			assert_int_equal(bind->version, 2 * i + (last ? 1 : 2));
			assert_int_equal(copies_down(schedule, gradient, i), 1);
			assert_int_equal(copies_up(schedule, gradient, i), i == 0 && last ? 1 : 0);
		}
		assert_int_equal(final_version(schedule, gradient), 4);
	}
	/* 1,024 bytes each here and there; what was converted for an update went with it. */
	assert_int_equal(bytes_left(schedule, TC_GPU), 2048);
	assert_int_equal(bytes_left(schedule, TC_CPU), 2048);
	plan_kept_free(&kept);
	small_free(&small);
}

static void test_life(void **state)
{
	(void)state;
	for (int half = 0; half < 2; half++)
		for (int last = 0; last < 2; last++) {
			enum test_gradients how = last ? TEST_ZEROED_LAST : TEST_ZEROED_FIRST;
			check_life("lru", how, half != 0);
			check_life("belady", how, half != 0);
		}
}

/** With the optimizer on the GPU nothing of a gradient moves but for the first fetch. */
static void test_life_with_optimizer_on_gpu(void **state)
{
	(void)state;
	const struct test_model model = {.gradients = TEST_ZEROED_LAST};
	struct small small = small_of(test_model_builder(&model), PLENTY);
	struct plan_kept kept = small_kept(&small, "lru:optimizer=gpu");
	uint32_t gradient = gradient_of(small.trace, FIRST_PARAM);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(copies_down(kept.schedule, gradient, i), 0);
		assert_int_equal(copies_up(kept.schedule, gradient, i), i == 0);
	}
	assert_int_equal(final_version(kept.schedule, gradient), 4);
	plan_kept_free(&kept);
	small_free(&small);
}

/**
 * No event tells the last update from what zeroes gradients behind it, and with the optimizer on
 * the CPU they run on different devices all the same: they are two steps, the second without
 * events.
 */
static void test_zeroing_is_a_step_of_its_own(void **state)
{
	(void)state;
	const struct test_model model = {.gradients = TEST_ZEROED_LAST};
	struct small small = small_of(test_model_builder(&model), PLENTY);
	struct plan_kept kept = small_kept(&small, "lru");
	uint32_t gradient = gradient_of(small.trace, FIRST_PARAM);
	uint32_t zero = writer_of(small.trace, TC_ZERO_GRAD, gradient);
	const struct tc_step *step = &kept.steps->steps[kept.steps->step_count - 1];
	assert_int_equal(small.trace->ops[zero].event, small.trace->ops[zero - 1].event);
	assert_int_equal(step->first_op, zero);
	assert_int_equal(step->phase, TC_ZERO_GRAD);
	assert_int_equal(step->event_count, 0);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(kept.schedule->commands[plan_runs(kept.schedule, i, zero)].kind,
		                 TC_COMPUTE);
	plan_kept_free(&kept);
	small_free(&small);
}

/** Two micro-batches add to the same gradient: it goes down after the second, not after each. */
static void test_micro_batches(void **state)
{
	(void)state;
	struct tc_trace *trace = NULL;
	struct tc_error error = {0};
	assert_int_equal(tc_trace_read(TENCACHE_SOURCE_DIR "/tests/traces/valid/persistent.jsonl",
	                               &trace, &error),
	                 TC_OK);
	struct small small = {trace, plan_case_machine(NULL)};
	struct plan_kept kept = small_kept(&small, "lru");
	uint32_t gradient = gradient_of(trace, 1);
	uint32_t update = writer_of(trace, TC_OPTIMIZER, 1);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(copies_down(kept.schedule, gradient, i), 1);
		const struct tc_command *command =
		    &kept.schedule->commands[plan_runs(kept.schedule, i, update)];
		assert_int_equal(small_bind(command, gradient)->version, 3 * i + 2);
	}
	assert_int_equal(final_version(kept.schedule, gradient), 6);
	plan_kept_free(&kept);
	small_free(&small);
}

/* ---------------------------------------------------------------- little memory */

/** The last copy of `tensor` that goes down before a command. */
static uint64_t last_copy_down(const struct tc_schedule *schedule, uint32_t tensor, uint64_t before)
{
	uint64_t found = TC_NO_COMMAND;
	for (uint64_t c = 0; c < before; c++)
		if (schedule->commands[c].queue == TC_QUEUE_D2H &&
		    schedule->commands[c].tensor == tensor)
			found = c;
	return found;
}

/**
 * As hooks that are slow to fire: each gradient event comes two places late, so that a gradient may
 * be evicted before its event, and the last two gradients have none.
 */
static struct test_builder *with_late_events(struct test_builder *builder)
{
	uint32_t before[2] = {TC_NONE, TC_NONE};
	for (size_t e = 0; e < builder->event_count; e++) {
		uint32_t *subject = &builder->events[e].subject, own = *subject;
		if (builder->events[e].kind != TC_EVENT_GRADIENT)
			continue;
		if (before[0] != TC_NONE)
			*subject = before[0];
		before[0] = before[1];
		before[1] = own;
	}
	return builder;
}

/**
 * With a barrier the first update waits for the way of every gradient, also where that was an
 * eviction before the event, or where no event ever comes.
 */
static void check_barrier(struct test_builder *builder, const char *policy)
{
	struct small small = small_of(builder, PLENTY);
	struct plan_case plan = small_case(&small, policy);
	plan.requests = small.trace->has_events ? TC_REQUESTS_HOOK : TC_REQUESTS_READS;
	struct outcome roomy = plan_and_check(&plan, 0);
	assert_int_equal(roomy.status, TC_OK);
	plan_case_override(small.machine, "gpu-memory",
	                   FRAMEWORK_GPU + roomy.notes.unmanaged_bytes +
	                       roomy.notes.largest_need_bytes);
	struct outcome tight = plan_and_check(&plan, 0);
	assert_int_equal(tight.status, TC_OK);
	struct plan_kept kept = plan_case_keep(&plan);
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t update = plan_find(kept.schedule, 0, FIND(TC_UPDATE, TC_NONE, i));
		assert_int_not_equal(update, TC_NO_COMMAND);
		for (uint32_t t = 0; t < small.trace->tensor_count; t++) {
			if (small.trace->tensors[t].kind != TC_GRAD)
				continue;
			uint64_t copy = last_copy_down(kept.schedule, t, update);
			assert_int_not_equal(copy, TC_NO_COMMAND);
			assert_int_equal(kept.schedule->commands[copy].iteration, i);
			assert_true(plan_ends_before(kept.schedule, copy, update));
		}
	}
	plan_kept_free(&kept);
	small_free(&small);
}

static void test_barrier(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {1024, 2048, 512};
	struct test_model model = {
	    .layers = 5, .params_per_module = 2, .param_bytes = sizes, .param_bytes_count = 3};
	for (int how = TEST_DROPPED; how <= TEST_ZEROED_FIRST; how++)
		for (int no_events = 0; no_events < 2; no_events++) {
			model.gradients = (enum test_gradients)how;
			model.no_events = no_events != 0;
			check_barrier(test_model_builder(&model), "lru:barrier=1");
			check_barrier(test_model_builder(&model), "belady:barrier=1");
			check_barrier(with_late_events(test_model_builder(&model)),
			              "lru:barrier=1");
			check_barrier(with_late_events(test_model_builder(&model)),
			              "belady:barrier=1");
		}
}

/**
 * The gradient of p is complete, and then a step needs all memory: it is evicted, the last copy
 * that goes down. The update of q comes first and does not read it, yet a barrier makes it wait.
 */
static void check_evicted(bool has_event)
{
	struct test_builder *b = test_builder_new();
	uint32_t p = test_add_tensor(b, TC_PARAM, SLOT), q = test_add_tensor(b, TC_PARAM, SLOT);
	uint32_t big = test_add_tensor(b, TC_PARAM, 8 * SLOT);
	uint32_t x = test_add_tensor(b, TC_ACTIVATION, SLOT);
	uint32_t gradients[2] = {test_add_tensor(b, TC_GRAD, SLOT),
	                         test_add_tensor(b, TC_GRAD, SLOT)};
	for (int i = 0; i < 2; i++) {
		test_tensor(b, gradients[i])->of = i == 0 ? p : q;
		test_tensor(b, gradients[i])->persist = 1;
	}
	uint32_t m = test_add_module(b, "m", TEST_IDS(p, q)),
	         n = test_add_module(b, "n", TEST_IDS(big));
	test_add_event(b, TC_EVENT_START, TC_NONE);
	small_forward(b, m, TEST_IDS(p, q), TEST_IDS(x));
	small_forward(b, n, TEST_IDS(big, x), TEST_IDS(x));
	test_add_event(b, TC_EVENT_BACKWARD_START, TC_NONE);
	test_add_event(b, TC_EVENT_BACKWARD, m);
	for (int i = 1; i >= 0; i--)
		test_add_op(b, TC_BACKWARD, m, TEST_IDS(gradients[i], x), TEST_IDS(gradients[i]));
	test_add_event(b, TC_EVENT_GRADIENT, q);
	test_add_event(b, TC_EVENT_BACKWARD, n);
	test_add_op(b, TC_BACKWARD, n, TEST_IDS(big, x), TEST_IDS(x));
	if (has_event)
		test_add_event(b, TC_EVENT_GRADIENT, p);
	for (int i = 1; i >= 0; i--) {
		uint32_t param = i == 0 ? p : q;
		test_add_event(b, TC_EVENT_OPTIMIZER, test_add_bucket(b, TEST_IDS(param)));
		test_add_op(b, TC_OPTIMIZER, TC_NONE, TEST_IDS(gradients[i], param),
		            TEST_IDS(param));
	}
	test_add_op(b, TC_ZERO_GRAD, TC_NONE, TEST_NO_IDS, TEST_IDS(gradients[0], gradients[1]));
	test_add_event(b, TC_EVENT_END, TC_NONE);
	struct small small = small_of(b, 8 * SLOT + SLOT);
	struct plan_kept kept = small_kept(&small, "lru:barrier=1");
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t update = plan_find(kept.schedule, 0, FIND(TC_UPDATE, TC_NONE, i));
		uint64_t copy = last_copy_down(kept.schedule, gradients[0], update);
		assert_null(small_bind(&kept.schedule->commands[update], gradients[0]));
		assert_int_equal(kept.schedule->commands[copy].why, TC_WHY_VICTIM);
		assert_int_equal(kept.schedule->commands[copy].iteration, i);
		assert_int_equal(plan_reason(kept.schedule, update, copy), TC_REASON_BARRIER);
	}
	plan_kept_free(&kept);
	small_free(&small);
}

static void test_evicted_before_the_updates(void **state)
{
	(void)state;
	check_evicted(true);
	check_evicted(false);
}

/** What zeroes gradients after the updates is none that a barrier waits for. */
static void test_barrier_in_declared_order(void **state)
{
	(void)state;
	const struct test_model model = {.gradients = TEST_ZEROED_LAST};
	struct small small = small_of(test_model_builder(&model), PLENTY);
	struct plan_case plan = small_case(&small, "lru:barrier=1");
	struct tc_steps *steps = plan_case_steps(&plan);
	uint32_t *order = calloc(steps->step_count, sizeof *order);
	assert_non_null(order);
	for (uint32_t s = 0; s < steps->step_count; s++)
		order[s] = s;
	struct tc_policy policy = orders_policy(
	    &tci_policy_lru, (struct orders_wish){.order = order, .count = steps->step_count});
	struct tc_policy_choice *choice = plan_case_choice(plan.policy);
	choice->policy = &policy;
	plan.choice = choice;
	struct outcome outcome = plan_and_check(&plan, 0);
	if (outcome.status != TC_OK)
		fail_msg("%s", outcome.text);
	tc_policy_choice_free(choice);
	free(order);
	tc_steps_free(steps);
	small_free(&small);
}

/* ---------------------------------------------------------------- who cannot */

static const char *const refusing[] = {"zero-infinity:device=cpu", "zero-infinity:device=nvme",
                                       "10cache"};
enum { REFUSING = sizeof refusing / sizeof *refusing };

static void assert_refused(const struct small *small, const char *policy, const char *const *texts)
{
	struct plan_case plan = small_case(small, policy);
	plan.requests = small->trace->has_events ? TC_REQUESTS_HOOK : TC_REQUESTS_READS;
	struct outcome outcome = plan_and_check(&plan, 0);
	assert_int_equal(outcome.status, TC_INFEASIBLE);
	for (size_t i = 0; texts[i] != NULL; i++)
		if (strstr(outcome.text, texts[i]) == NULL)
			fail_msg("%s: '%s' lacks '%s'", policy, outcome.text, texts[i]);
}

/** Systems that copy gradients out keep no `.grad`: tensor, reason and remedy are named. */
static void test_systems_that_drop_gradients_refuse(void **state)
{
	(void)state;
	static const char *const texts[] = {"\"layers.0.leaf0.p0\"", "persistent",
	                                    "set_to_none=True", NULL};
	for (int how = TEST_ZEROED_LAST; how <= TEST_ZEROED_FIRST; how++)
		for (int no_events = 0; no_events < 2; no_events++) {
			const struct test_model model = {.gradients = (enum test_gradients)how,
			                                 .no_events = no_events != 0};
			struct small small = small_of(test_model_builder(&model), PLENTY);
			for (int p = 0; p < REFUSING; p++)
				assert_refused(&small, refusing[p], texts);
			small_free(&small);
		}
}

/** An op between backward and optimizer that scales a gradient in place comes after its event. */
static void test_late_uses_are_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {"\"scale\"", "\"layers.1.leaf0.p0\"", NULL};
	const struct test_model model = {.no_optimizer = true};
	struct test_builder *b = test_model_builder(&model);
	uint32_t gradient = TC_NONE;
	for (uint32_t t = 0; t < b->tensor_count; t++)
		if (b->tensors[t].kind == TC_GRAD && b->tensors[t].of == FIRST_PARAM + 1)
			gradient = t;
	for (size_t o = 0; o < b->op_count; o++)
		b->ops[o].allocates.count = b->ops[o].frees.count = b->ops[o].frees_eager.count = 0;
	uint32_t op = test_add_op(b, TC_OTHER, TC_NONE, TEST_IDS(gradient), TEST_IDS(gradient));
	strcpy(test_op(b, op)->name, "scale");
	test_op(b, op)->event--; /* before "end" */
	struct small small = small_of(b, PLENTY);
	for (int p = 0; p < REFUSING; p++)
		assert_refused(&small, refusing[p], texts);
	plan_kept_free(&(struct plan_kept[]){small_kept(&small, "lru")}[0]);
	plan_kept_free(&(struct plan_kept[]){small_kept(&small, "belady:optimizer=gpu")}[0]);
	small_free(&small);
}

/** A gradient that belongs to no parameter: lru needs only its bytes, the others its parameter. */
static void test_gradients_of_nobody(void **state)
{
	(void)state;
	static const char *const texts[] = {"does not say whose it is", "\"of\"", "optim.adamw",
	                                    NULL};
	for (int half = 0; half < 2; half++) {
		const struct test_model model = {.half = half != 0};
		struct test_builder *b = test_model_builder(&model);
		for (size_t t = 0; t < b->tensor_count; t++)
			if (b->tensors[t].kind == TC_GRAD)
				b->tensors[t].of = TC_NONE;
		struct small small = small_of(b, PLENTY);
		for (int p = 0; p < REFUSING; p++)
			assert_refused(&small, refusing[p], texts);
		plan_kept_free(&(struct plan_kept[]){small_kept(&small, "lru:barrier=1")}[0]);
		plan_kept_free(&(struct plan_kept[]){small_kept(&small, "lru:optimizer=gpu")}[0]);
		small_free(&small);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_life),
	    cmocka_unit_test(test_life_with_optimizer_on_gpu),
	    cmocka_unit_test(test_zeroing_is_a_step_of_its_own),
	    cmocka_unit_test(test_micro_batches),
	    cmocka_unit_test(test_barrier),
	    cmocka_unit_test(test_evicted_before_the_updates),
	    cmocka_unit_test(test_barrier_in_declared_order),
	    cmocka_unit_test(test_systems_that_drop_gradients_refuse),
	    cmocka_unit_test(test_late_uses_are_refused),
	    cmocka_unit_test(test_gradients_of_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
