/*
 * Updates of a replayed schedule really train: after the run masters and moments hold, bit for bit,
 * what AdamW gives when it is applied outside the executor, tensor by tensor and in the order of
 * the schedule, to the documented initial content and the documented gradients (replay.h). The
 * arithmetic of one step has its own reference in test_replay_adam.c.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "executor.h"
#include "replay_case.h"

static const struct test_limits limits = {.layers = 2,
                                          .modules_per_layer = 2,
                                          .params_per_module = 2,
                                          .param_bytes = 600000,
                                          .activation_bytes = 4096};

static void must(enum tc_status status, const struct tc_error *error)
{
	if (status != TC_OK)
		fail_msg("%s", error->text);
}

/** The state of the plan's tensors outside the executor; NULL: untouched. */
struct state {
	float **values;
	uint32_t count;
};

static float *state_of(struct state *state, const struct tc_plan_info *info, uint32_t tensor)
{
	uint64_t bytes = info->tensors[tensor].bytes;
	if (state->values[tensor] != NULL)
		return state->values[tensor];
	float *values = calloc(1, (size_t)bytes);
	assert_non_null(values);
	if (info->tensors[tensor].role == TC_ROLE_MASTER) {
		void *words = malloc((size_t)bytes);
		assert_non_null(words);
		tc_content_fill(words, tensor, 0, 0, bytes);
		tc_adam_gradient(words, values, bytes / sizeof(float));
		free(words);
	}
	state->values[tensor] = values;
	return values;
}

/** Binds of a parameter's update in the order in which the planner lists them. */
static uint32_t find(const struct tc_plan_info *info, const struct tc_command *command,
                     enum tc_role role, uint32_t k)
{
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_plan_tensor *tensor = &info->tensors[command->binds[b].tensor];
		bool is = role == TC_ROLE_NONE ? tensor->kind == TC_GRAD : tensor->role == role;
		if (is && k-- == 0)
			return b;
	}
	return command->bind_count;
}

static unsigned apply(struct state *state, const struct tc_plan_info *info,
                      const struct tc_command *command)
{
	unsigned applied = 0;
	for (uint32_t k = 0; find(info, command, TC_ROLE_MASTER, k) < command->bind_count; k++) {
		const struct tc_bind *gradient =
		    &command->binds[find(info, command, TC_ROLE_NONE, k)];
		const struct tc_bind *master =
		    &command->binds[find(info, command, TC_ROLE_MASTER, k)];
		uint32_t exp_avg = command->binds[find(info, command, TC_ROLE_EXP_AVG, k)].tensor;
		uint32_t exp_avg_sq =
		    command->binds[find(info, command, TC_ROLE_EXP_AVG_SQ, k)].tensor;
		uint64_t count = master->bytes / sizeof(float);
		assert_int_equal(gradient->bytes, master->bytes);
		void *words = malloc((size_t)gradient->bytes);
		float *values = malloc((size_t)gradient->bytes);
		assert_true(words != NULL && values != NULL);
		tc_content_fill(words, gradient->tensor, gradient->version, 0, gradient->bytes);
		tc_adam_gradient(words, values, count);
		const struct tc_adam adam = {.learning_rate = 1e-3F,
		                             .beta1 = 0.9F,
		                             .beta2 = 0.999F,
		                             .epsilon = 1e-8F,
		                             .weight_decay = 0.01F,
		                             .step = command->iteration + 1};
		tc_adam_update(&adam, state_of(state, info, master->tensor), values,
		               state_of(state, info, exp_avg), state_of(state, info, exp_avg_sq),
		               count);
		free(words);
		free(values);
		applied++;
	}
	return applied;
}

static unsigned compare(const struct tc_replay *replay, const struct state *state)
{
	unsigned compared = 0;
	const struct tc_schedule *schedule = replay->schedule;
	for (uint32_t p = 0; p < schedule->end.place_count; p++) {
		const struct tc_final_place *place = &schedule->end.places[p];
		const float *values = state->values[place->tensor];
		if (values == NULL || schedule->info.pools[place->place.pool].tier == TC_NVME)
			continue;
		assert_true(replay->computed[place->tensor]);
		assert_memory_equal(tci_at(replay, place->place.pool, place->place.offset), values,
		                    schedule->info.tensors[place->tensor].bytes);
		compared++;
	}
	return compared;
}

static void check_policy(const char *policy, uint64_t seed, uint32_t threads)
{
	struct replay_case planned = replay_case_plan(policy, &limits, seed, 3);
	const struct tc_plan_info *info = &planned.schedule->info;
	struct state state = {calloc(info->tensor_count, sizeof(float *)), info->tensor_count};
	struct tc_replay_options options = {.schedule = planned.schedule,
	                                    .device = &tc_device_host,
	                                    .verify = TC_VERIFY_FULL,
	                                    .compute = TC_COMPUTE_NONE,
	                                    .cpu_threads = threads};
	struct tc_replay *replay;
	struct tc_error error = {0};
	unsigned applied = 0;
	assert_non_null(state.values);
	must(tc_replay_create(&options, &replay, &error), &error);
	must(tc_replay_finish(replay, &error), &error);
	for (uint64_t c = 0; c < planned.schedule->command_count; c++)
		if (planned.schedule->commands[c].kind == TC_UPDATE)
			applied += apply(&state, info, &planned.schedule->commands[c]);
	assert_true(applied >= 3); /* every parameter in each of three iterations */
	/* Three state tensors of each parameter, and it was updated three times. */
	assert_int_equal(compare(replay, &state), applied);
	tc_replay_free(replay);
	for (uint32_t t = 0; t < state.count; t++)
		free(state.values[t]);
	free(state.values);
	replay_case_free(&planned);
}

static void test_updates_train(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++) {
		check_policy("lru", seed, 1 + (uint32_t)seed);
		check_policy("zero-infinity:device=cpu:reduce-bucket-size=200000:"
		             "prefetch-bucket-size=200000",
		             seed, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_updates_train)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
