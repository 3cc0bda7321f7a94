/**
 * The CPU optimizer against a plain reference in which every single operation is rounded on its own
 * (bit for bit), and against what AdamW's definition gives on paper.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "tencache/replay.h"

#define ELEMENTS 10007u /* a prime: no vector width divides it */
#define STEPS 3

static const struct tc_adam settings = {.learning_rate = 1e-3f,
                                        .beta1 = 0.9f,
                                        .beta2 = 0.999f,
                                        .epsilon = 1e-8f,
                                        .weight_decay = 0.01f};

struct state_of {
	float master[ELEMENTS], gradient[ELEMENTS], exp_avg[ELEMENTS], exp_avg_sq[ELEMENTS];
};

/* One rounded operation each: what is volatile cannot be fused or reordered. */
static float rounded(float value)
{
	volatile float kept = value;
	return kept;
}

static void plain_adam(const struct tc_adam *adam, struct state_of *s, unsigned i)
{
	double power1 = 1.0, power2 = 1.0;
	for (uint64_t k = 0; k < adam->step; k++) {
		power1 *= (double)adam->beta1;
		power2 *= (double)adam->beta2;
	}
	float rest1 = (float)(1.0 - (double)adam->beta1);
	float rest2 = (float)(1.0 - (double)adam->beta2);
	float keep = (float)(1.0 - (double)adam->learning_rate * (double)adam->weight_decay);
	float step_size = (float)((double)adam->learning_rate / (1.0 - power1));
	float correction = (float)sqrt(1.0 - power2);
	float g = s->gradient[i];
	float m1 = rounded(adam->beta1 * s->exp_avg[i]), m2 = rounded(rest1 * g);
	float m = rounded(m1 + m2);
	float square = rounded(g * g);
	float v1 = rounded(adam->beta2 * s->exp_avg_sq[i]), v2 = rounded(rest2 * square);
	float v = rounded(v1 + v2);
	float root = rounded(sqrtf(v));
	float denominator = rounded(rounded(root / correction) + adam->epsilon);
	float change = rounded(step_size * rounded(m / denominator));
	float decayed = rounded(s->master[i] * keep);
	s->exp_avg[i] = m;
	s->exp_avg_sq[i] = v;
	s->master[i] = rounded(decayed - change);
}

static struct state_of *new_state(void)
{
	struct state_of *s = calloc(1, sizeof *s);
	assert_non_null(s);
	tc_content_fill(s->master, 1, 0, 0, sizeof s->master);
	tc_adam_gradient(s->master, s->master, ELEMENTS); /* in place */
	return s;
}

static void new_gradient(struct state_of *s, uint64_t version)
{
	tc_content_fill(s->gradient, 2, version, 0, sizeof s->gradient);
	tc_adam_gradient(s->gradient, s->gradient, ELEMENTS);
}

static void three_steps_bit_for_bit_test(void **state)
{
	(void)state;
	struct state_of *fast = new_state(), *plain = new_state();
	struct tc_adam adam = settings;
	for (adam.step = 1; adam.step <= STEPS; adam.step++) {
		new_gradient(fast, adam.step);
		new_gradient(plain, adam.step);
		fast->gradient[17] = plain->gradient[17] = 0.0f;
		tc_adam_update(&adam, fast->master, fast->gradient, fast->exp_avg, fast->exp_avg_sq,
		               ELEMENTS);
		for (unsigned i = 0; i < ELEMENTS; i++)
			plain_adam(&adam, plain, i);
		assert_memory_equal(fast, plain, sizeof *fast);
	}
	free(fast);
	free(plain);
}

/* Any split into ranges, at any alignment, gives the same bits. */
static void ranges_give_the_same_bits_test(void **state)
{
	(void)state;
	struct state_of *whole = new_state(), *parts = new_state();
	struct tc_adam adam = settings;
	uint64_t seed = 3;
	for (adam.step = 1; adam.step <= STEPS; adam.step++) {
		new_gradient(whole, adam.step);
		new_gradient(parts, adam.step);
		tc_adam_update(&adam, whole->master, whole->gradient, whole->exp_avg,
		               whole->exp_avg_sq, ELEMENTS);
		for (uint64_t at = 0; at < ELEMENTS;) {
			uint64_t count = 1 + test_random_below(&seed, 97);
			if (count > ELEMENTS - at)
				count = ELEMENTS - at;
			tc_adam_update(&adam, parts->master + at, parts->gradient + at,
			               parts->exp_avg + at, parts->exp_avg_sq + at, count);
			at += count;
		}
		assert_memory_equal(whole, parts, sizeof *whole);
	}
	free(whole);
	free(parts);
}

/* In the first step from zero state m / (1 - beta1) = g and v / (1 - beta2) = g^2, so the change is
 * learning rate x sign(g) for any |g| far above epsilon, after the decay; with g = 0 the decay is
 * all. float has 24 bits: a few units of 2^-24 relative to the step. */
static void first_step_is_the_learning_rate_test(void **state)
{
	(void)state;
	struct tc_adam adam = settings;
	adam.step = 1;
	static const float gradients[] = {1.0f, -1.0f, 0.25f, -1e-3f, 0.0f};
	for (unsigned i = 0; i < sizeof gradients / sizeof *gradients; i++) {
		float master = 0.0f, exp_avg = 0.0f, exp_avg_sq = 0.0f, g = gradients[i];
		tc_adam_update(&adam, &master, &g, &exp_avg, &exp_avg_sq, 1);
		double sign = (double)((g > 0) - (g < 0));
		/* epsilon / |g| is at most 1e-5 here; a beta in single precision is off by up to
		 * 2^-25 = 3e-8. */
		assert_true(fabs((double)master + 1e-3 * sign) <= 1e-3 * 2e-5);
		assert_true(fabs((double)exp_avg - 0.1 * (double)g) <= 4e-8);
		assert_true(fabs((double)exp_avg_sq - 0.001 * (double)g * (double)g) <= 4e-8);
	}
	float master = 2.0f, exp_avg = 0.0f, exp_avg_sq = 0.0f, zero = 0.0f;
	tc_adam_update(&adam, &master, &zero, &exp_avg, &exp_avg_sq, 1);
	assert_true(fabs((double)master - 2.0 * (1.0 - 1e-5)) <= 2e-7);
}

/* With one constant gradient both corrected moments stay g and g^2 in every step, so after n steps
 * without decay the parameter has moved by n learning rates. */
static void constant_gradient_moves_evenly_test(void **state)
{
	(void)state;
	struct tc_adam adam = settings;
	float master = 0.0f, exp_avg = 0.0f, exp_avg_sq = 0.0f, g = -0.5f;
	adam.weight_decay = 0.0f;
	for (adam.step = 1; adam.step <= 1000; adam.step++)
		tc_adam_update(&adam, &master, &g, &exp_avg, &exp_avg_sq, 1);
	assert_true(fabs((double)master - 1.0) <= 1e-4);
}

/* w / 2^31 - 1, rounded once, of 32-bit words; in exact arithmetic this is (w - 2^31) / 2^31, and a
 * double holds it exactly. */
static void gradient_values_test(void **state)
{
	(void)state;
	uint32_t words[1000] = {0, UINT32_MAX, 1u << 31, (1u << 31) + 1, (1u << 31) - 1, 1};
	float values[1000];
	uint64_t seed = 1;
	for (unsigned i = 6; i < 1000; i++)
		words[i] = (uint32_t)test_random(&seed);
	tc_adam_gradient(words, values, 1000);
	for (unsigned i = 0; i < 1000; i++) {
		float wanted = (float)(((double)words[i] - 2147483648.0) / 2147483648.0);
		assert_true(values[i] >= wanted && values[i] <= wanted);
		assert_true(values[i] >= -1.0f && values[i] <= 1.0f);
	}
	assert_true(values[0] <= -1.0f && values[1] >= 1.0f);
	assert_true(values[2] >= 0.0f && values[2] <= 0.0f);
	tc_adam_gradient(words, (float *)(void *)words, 1000);
	assert_memory_equal(words, values, sizeof words);
}

struct range_work {
	const struct tc_adam *adam;
	struct state_of *s;
	uint64_t first, count;
};

static void *update_range(void *self)
{
	struct range_work *work = self;
	tc_adam_update(work->adam, work->s->master + work->first, work->s->gradient + work->first,
	               work->s->exp_avg + work->first, work->s->exp_avg_sq + work->first,
	               work->count);
	return NULL;
}

static void threads_test(void **state)
{
	(void)state;
	struct state_of *alone = new_state(), *together = new_state();
	struct tc_adam adam = settings;
	pthread_t threads[3];
	struct range_work work[3];
	adam.step = 1;
	new_gradient(alone, 1);
	new_gradient(together, 1);
	tc_adam_update(&adam, alone->master, alone->gradient, alone->exp_avg, alone->exp_avg_sq,
	               ELEMENTS);
	for (unsigned i = 0; i < 3; i++) {
		uint64_t first = ELEMENTS * i / 3, end = ELEMENTS * (i + 1) / 3;
		work[i] = (struct range_work){&adam, together, first, end - first};
		assert_int_equal(pthread_create(&threads[i], NULL, update_range, &work[i]), 0);
	}
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_memory_equal(alone, together, sizeof *alone);
	free(alone);
	free(together);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(three_steps_bit_for_bit_test),
	    cmocka_unit_test(ranges_give_the_same_bits_test),
	    cmocka_unit_test(first_step_is_the_learning_rate_test),
	    cmocka_unit_test(constant_gradient_moves_evenly_test),
	    cmocka_unit_test(gradient_values_test),
	    cmocka_unit_test(threads_test),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
