/*
 * Inspections worked out on paper. mm.jsonl: input x of 16 bytes, parameter w of 64, activation y
 * of 16, gradient dw of 64, in three ops; the larger example is the hand-made trace of two linear
 * layers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "inspect.h"
#include "tencache/inspect.h"
#include "trace_builder.h"

struct subject {
	struct tc_trace *trace;
	struct tc_steps *steps;
	struct tc_inspection *inspection;
};

static struct subject inspect(const char *path)
{
	struct subject s = {NULL, NULL, NULL};
	struct tc_error error = {0};
	if (tc_trace_read(path, &s.trace, &error) != TC_OK ||
	    tc_steps_derive(s.trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK, TC_FREES_LAST_USE,
	                    &s.steps, &error) != TC_OK ||
	    tc_inspect(s.steps, &s.inspection, &error) != TC_OK)
		fail_msg("%s", error.text);
	return s;
}

static void forget(struct subject *s)
{
	tc_inspection_free(s->inspection);
	tc_steps_free(s->steps);
	tc_trace_free(s->trace);
}

/**
 * Persistent 80. Op 0 bears y: 96; op 1 bears dw while y lives: 160; op 2 has x, w, dw: 144.
 * Step 0 (op 0) needs x, w, y: 96; step 1 w (requested), x, y, dw: 160; step 2 dw, w: 128. Op 1
 * alone touches x, y, dw: 96, as many as op 0 before it; op 2 dw, w: 128. The parameter is used in
 * every step: no reuse over a distance.
 */
static void small_one(void **state)
{
	(void)state;
	struct subject s = inspect(TENCACHE_SOURCE_DIR "/tests/traces/valid/mm.jsonl");
	const struct tc_inspection *i = s.inspection;
	assert_int_equal(i->persistent_bytes, 80);
	assert_int_equal(i->last_use_peak.bytes, 160);
	assert_int_equal(i->last_use_peak.op, 1);
	assert_int_equal(i->eager_peak.bytes, 160);
	assert_int_equal(i->largest_step.bytes, 160);
	assert_int_equal(i->largest_step.step, 1);
	assert_int_equal(i->largest_step.kind_bytes[TC_PARAM], 64);
	assert_int_equal(i->largest_op.bytes, 128);
	assert_int_equal(i->largest_op.op, 2);
	assert_int_equal(i->reuse_steps.count, 0);
	assert_int_equal(i->events[TC_EVENT_GRADIENT], 1);
	forget(&s);
}

static void check_kinds(const struct tc_inspection *i)
{
	/* Weights 128 + 64, biases 32 + 8; two states of each; gradients like parameters. */
	assert_int_equal(i->kinds[TC_PARAM].count, 4);
	assert_int_equal(i->kinds[TC_PARAM].bytes, 232);
	assert_int_equal(i->kinds[TC_PARAM].persistent_bytes, 232);
	assert_int_equal(i->kinds[TC_OPTIMIZER_STATE].bytes, 464);
	assert_int_equal(i->kinds[TC_GRAD].bytes, 232);
	assert_int_equal(i->kinds[TC_GRAD].persistent_bytes, 0);
	assert_int_equal(i->kinds[TC_ACTIVATION].bytes, 128);
	assert_int_equal(i->kinds[TC_TEMP].bytes, 424); /* 128 + 32 + 4 + 4 + 128 + 128 */
	assert_int_equal(i->persistent_bytes, 64 + 232 + 464);
	/* States: two each of 128, 64, 32, 8; larger first. */
	const struct tc_kind_total *state = &i->kinds[TC_OPTIMIZER_STATE];
	static const uint64_t sizes[] = {128, 64, 32, 8};
	assert_int_equal(state->size_count, 4);
	for (uint32_t k = 0; k < 4; k++) {
		assert_int_equal(i->sizes[state->first_size + k].bytes, sizes[k]);
		assert_int_equal(i->sizes[state->first_size + k].count, 2);
		assert_int_equal(i->sizes[state->first_size + k].kind, TC_OPTIMIZER_STATE);
	}
	assert_int_equal(i->kinds[TC_TEMP].size_count, 3);
}

/**
 * Transient bytes after each birth: 128, 256, 160, 164, 136, 260, 324, 332, 456 (op 8), 328, 360.
 * Eager keeps the 4 bytes of the loss. Step 7 needs 21, x, 22, 23 and fc1's two parameters:
 * 128 + 64 + 128 + 32 + 160 = 512; the update of fc1.weight (op 11) needs four times 128.
 */
static void check_footprints(const struct tc_inspection *i)
{
	assert_int_equal(i->last_use_peak.bytes, 760 + 456);
	assert_int_equal(i->last_use_peak.op, 8);
	assert_int_equal(i->last_use_peak.step, 6);
	assert_int_equal(i->last_use_peak.kind_bytes[TC_TEMP], 256);
	assert_int_equal(i->last_use_peak.kind_bytes[TC_ACTIVATION], 128);
	assert_int_equal(i->last_use_peak.kind_bytes[TC_GRAD], 72);
	assert_int_equal(i->eager_peak.bytes, 760 + 460);
	assert_int_equal(i->eager_peak.op, 8);
	assert_int_equal(i->largest_step.bytes, 512);
	assert_int_equal(i->largest_step.step, 7);
	assert_int_equal(i->largest_step.kind_bytes[TC_PARAM], 160);
	assert_int_equal(i->largest_op.bytes, 512);
	assert_int_equal(i->largest_op.op, 11);
}

/**
 * Uses: fc1.weight in steps 0, 7, 8; fc1.bias 0, 7, 9; fc2.weight 2, 5, 10; fc2.bias 2, 5, 11, of
 * 12 steps. Distances 7 4, 7 2 3, 3 5 4, 3 6 3; bytes between 72 104, 72 128 72, 0 160 168,
 * 0 224 160. Nearest rank of 11 values: ranks 1, 2, 3, 6, 9, 10, 11.
 */
static void check_reuse(const struct tc_inspection *i)
{
	static const uint64_t steps[] = {2, 3, 3, 4, 6, 7, 7};
	static const uint64_t bytes[] = {0, 0, 72, 104, 160, 168, 224};
	assert_int_equal(i->reuse_steps.count, 11);
	assert_int_equal(i->reuse_bytes.count, 11);
	for (size_t q = 0; q < TC_QUANTILE_COUNT; q++) {
		assert_int_equal(i->reuse_steps.values[q], steps[q]);
		assert_int_equal(i->reuse_bytes.values[q], bytes[q]);
	}
}

static void hand_made_example(void **state)
{
	(void)state;
	if (access(TENCACHE_CASES_DIR "/trace-v1/mlp.json", R_OK) != 0) {
		print_message("skipped: no cases\n");
		skip();
	}
	struct subject s = inspect(TENCACHE_CASES_DIR "/trace-v1/mlp.json");
	const struct tc_inspection *i = s.inspection;
	check_kinds(i);
	check_footprints(i);
	check_reuse(i);
	assert_int_equal(i->phases[TC_FORWARD].flops, 256 + 128);
	assert_int_equal(i->phases[TC_BACKWARD].flops, 128 + 128 + 256);
	assert_int_equal(i->phases[TC_FORWARD].traffic_bytes, 352 + 256 + 232 + 36);
	assert_int_equal(i->phases[TC_OPTIMIZER].traffic_bytes, 896 + 224 + 448 + 56);
	assert_int_equal(i->all.ops, 15);
	assert_int_equal(i->phases[TC_BACKWARD].steps, 4);
	assert_int_equal(i->all.timed_ops, 0);
	assert_int_equal(i->passes[TC_PASS_FORWARD].requests, 2);
	assert_int_equal(i->passes[TC_PASS_BACKWARD].rows, 4);
	assert_int_equal(i->passes[TC_PASS_BACKWARD].bytes, 232);
	forget(&s);
}

/**
 * Parameter bytes of OPT-13B with its classification head: 12,853,483,520 elements of 2 bytes
 * (published configuration), FP32 master and two moments: 12 bytes each.
 */
static void shipped_trace(void **state)
{
	(void)state;
	struct subject s = inspect(TENCACHE_SOURCE_DIR "/traces/opt13b-paper.jsonl.gz");
	const struct tc_inspection *i = s.inspection;
	assert_true(i->kinds[TC_PARAM].bytes == 2 * 12853483520);
	assert_true(i->kinds[TC_OPTIMIZER_STATE].bytes == 12 * 12853483520);
	assert_true(i->last_use_peak.bytes <= i->eager_peak.bytes);
	assert_true(i->largest_op.bytes <= i->largest_step.bytes);
	assert_true(i->largest_step.bytes < i->last_use_peak.bytes);
	forget(&s);
}

/** Workspace counts while its op runs. */
static void workspace(void **state)
{
	(void)state;
	const struct test_model model = {.layers = 1, .no_optimizer = true};
	struct test_builder *builder = test_model_builder(&model);
	test_op(builder, 0)->workspace = 1000000;
	struct subject s = {test_builder_trace(builder), NULL, NULL};
	assert_int_equal(tc_steps_derive(s.trace, TC_GRANULARITY_OP, TC_REQUESTS_READS,
	                                 TC_FREES_LAST_USE, &s.steps, NULL),
	                 TC_OK);
	assert_int_equal(tc_inspect(s.steps, &s.inspection, NULL), TC_OK);
	/* x and y of 4,096 bytes, the parameter of 1,024. */
	assert_int_equal(s.inspection->largest_op.bytes, 1000000 + 2 * 4096 + 1024);
	assert_int_equal(s.inspection->largest_op.workspace_bytes, 1000000);
	assert_int_equal(s.inspection->last_use_peak.bytes, 1000000 + 2 * 4096 + 1024);
	forget(&s);
	test_builder_free(builder);
}

/** Both printers: the JSON is a document with the same numbers, and twice the same bytes. */
static void printers(void **state)
{
	(void)state;
	struct subject s = inspect(TENCACHE_SOURCE_DIR "/tests/traces/valid/mm.jsonl");
	char *texts[4] = {NULL};
	for (int i = 0; i < 4; i++) {
		size_t bytes;
		FILE *out = open_memstream(&texts[i], &bytes);
		assert_non_null(out);
		enum tc_status status = i < 2 ? tci_print_inspection_json(out, s.inspection, NULL)
		                              : tci_print_inspection(out, s.inspection, true, NULL);
		assert_int_equal(status, TC_OK);
		fclose(out);
	}
	assert_string_equal(texts[0], texts[1]);
	assert_string_equal(texts[2], texts[3]);
	json_t *document = json_loads(texts[0], JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(document);
	const json_t *fit = json_object_get(document, "must_fit");
	const json_t *step = json_object_get(fit, "largest_step");
	assert_int_equal(json_integer_value(json_object_get(step, "bytes")), 160);
	json_decref(document);
	assert_non_null(strstr(texts[2], "largest step"));
	for (int i = 0; i < 4; i++)
		free(texts[i]);
	forget(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(small_one),     cmocka_unit_test(hand_made_example),
	    cmocka_unit_test(shipped_trace), cmocka_unit_test(workspace),
	    cmocka_unit_test(printers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
