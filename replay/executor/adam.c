/**
 * AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2) in
 * the order of operations of common implementations: decay, moments, then the step with both bias
 * corrections.
 *
 * Every operation is one IEEE 754 single operation, in an order that does not depend on the
 * element's position, so the result is the same bit for bit on every machine and for every split
 * into ranges. The build compiles this file without contraction to fused multiply-add, and tells
 * the compiler that nobody reads errno, so that square roots vectorise. The powers of beta are
 * products of doubles and not pow(), whose last bit depends on the C library.
 */
#include "tencache/replay.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0
#error "floats must be evaluated in single precision: on 32-bit x86 build with -mfpmath=sse -msse2"
#endif

#define BATCH 64

/** base^exponent by squaring. */
static double power(double base, uint64_t exponent)
{
	double result = 1.0;
	for (; exponent > 0; exponent >>= 1) {
		if (exponent & 1)
			result *= base;
		base *= base;
	}
	return result;
}

/** What is the same for all elements of one step. */
struct step_constants {
	float beta1, beta2, rest1, rest2; /**< rest = 1 - beta */
	float keep;                       /**< 1 - learning rate x weight decay */
	float step_size;                  /**< learning rate / (1 - beta1^step) */
	float correction;                 /**< sqrt(1 - beta2^step) */
	float epsilon;
};

static struct step_constants constants_of(const struct tc_adam *adam)
{
	double rate = (double)adam->learning_rate;
	double beta1 = (double)adam->beta1, beta2 = (double)adam->beta2;
	return (struct step_constants){
	    .beta1 = adam->beta1,
	    .beta2 = adam->beta2,
	    .rest1 = (float)(1.0 - beta1),
	    .rest2 = (float)(1.0 - beta2),
	    .keep = (float)(1.0 - rate * (double)adam->weight_decay),
	    .step_size = (float)(rate / (1.0 - power(beta1, adam->step))),
	    .correction = (float)sqrt(1.0 - power(beta2, adam->step)),
	    .epsilon = adam->epsilon,
	};
}

/* A function of its own with `restrict`, so that the loop vectorises without overlap checks. */
static void update_elements(struct step_constants c, float *restrict master,
                            const float *restrict gradient, float *restrict exp_avg,
                            float *restrict exp_avg_sq, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		float g = gradient[i];
		float m = c.beta1 * exp_avg[i] + c.rest1 * g;
		float v = c.beta2 * exp_avg_sq[i] + c.rest2 * (g * g);
		float denominator = sqrtf(v) / c.correction + c.epsilon;
		exp_avg[i] = m;
		exp_avg_sq[i] = v;
		master[i] = master[i] * c.keep - c.step_size * (m / denominator);
	}
}

void tc_adam_update(const struct tc_adam *adam, float *master, const float *gradient,
                    float *exp_avg, float *exp_avg_sq, uint64_t count)
{
	update_elements(constants_of(adam), master, gradient, exp_avg, exp_avg_sq, count);
}

void tc_adam_gradient(const void *synthetic, float *gradient, uint64_t count)
{
	/* (w - 2^31) / 2^31 is the same number; w - 2^31 is w with its top bit turned, as a signed
	 * integer, whose conversion rounds once and vectorises. */
	const unsigned char *from = synthetic;
	unsigned char *to = (unsigned char *)gradient;
	while (count > 0) {
		size_t part = count < BATCH ? (size_t)count : BATCH;
		int32_t words[BATCH] = {0};
		float values[BATCH];
		memcpy(words, from, part * sizeof words[0]);
		for (unsigned i = 0; i < BATCH; i++)
			values[i] = (float)(words[i] ^ INT32_MIN) * 0x1p-31f;
		memcpy(to, values, part * sizeof values[0]);
		from += part * sizeof words[0];
		to += part * sizeof values[0];
		count -= part;
	}
}
