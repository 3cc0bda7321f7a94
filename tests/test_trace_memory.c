/*
 * Memory that runs out at any point of reading a trace, deriving its steps and inspecting it: the
 * n-th allocation fails, for every n. The answer is TC_NO_MEMORY and nothing leaks (the sanitizers
 * look) or crashes. Needs the linker's --wrap and a static library; skipped with a shared one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tencache/inspect.h"
#include "trace_builder.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);

/* The allocation that fails counts down to zero; below: none fails. */
static long remaining = -1;
static long failures;

static bool fails(void)
{
	if (remaining < 0 || remaining-- > 0)
		return false;
	failures++;
	return true;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	return fails() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	return fails() ? NULL : __real_realloc(memory, bytes);
}

static enum tc_status whole_way(const char *text, size_t bytes, enum tc_granularity granularity)
{
	struct tc_trace *trace = NULL;
	struct tc_steps *steps = NULL;
	struct tc_inspection *inspection = NULL;
	struct tc_error error = {0};
	enum tc_status status = tc_trace_parse(text, bytes, "memory", &trace, &error);
	if (status == TC_OK)
		status = tc_steps_derive(trace, granularity, TC_REQUESTS_HOOK, TC_FREES_EAGER,
		                         &steps, &error);
	if (status == TC_OK)
		status = tc_inspect(steps, &inspection, &error);
	assert_int_equal(status, error.status);
	tc_inspection_free(inspection);
	tc_steps_free(steps);
	tc_trace_free(trace);
	return status;
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	const struct test_model model = {.layers = 8,
	                                 .modules_per_layer = 3,
	                                 .params_per_module = 2,
	                                 .checkpoint = true,
	                                 .half = true};
	struct test_builder *builder = test_model_builder(&model);
	test_add_unpack(builder, 1, TEST_IDS(4));
	for (enum test_layout layout = TEST_LINES; layout <= TEST_DOCUMENT; layout++) {
		char *text = test_builder_text(builder, layout);
		size_t bytes = strlen(text);
		for (long n = 0;; n++) {
			failures = 0;
			remaining = n;
			enum tc_status status = whole_way(
			    text, bytes, n % 2 == 0 ? TC_GRANULARITY_LAYER : TC_GRANULARITY_OP);
			remaining = -1;
			if (failures == 0 && n == 0) {
				free(text);
				test_builder_free(builder);
				print_message("skipped: allocations cannot be made to fail\n");
				skip();
			}
			assert_int_equal(status, failures == 0 ? TC_OK : TC_NO_MEMORY);
			if (failures == 0)
				break;
		}
		free(text);
	}
	test_builder_free(builder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
