#include "steps_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct tc_steps *test_derive(const struct tc_trace *trace, enum tc_granularity granularity,
                             enum tc_request_mode mode)
{
	struct tc_steps *steps = NULL;
	struct tc_error error = {0};
	if (tc_steps_derive(trace, granularity, mode, TC_FREES_LAST_USE, &steps, &error) != TC_OK)
		fail_msg("%s", error.text);
	return steps;
}

struct tc_trace *test_read_trace(const char *path)
{
	struct tc_trace *trace = NULL;
	struct tc_error error = {0};
	if (tc_trace_read(path, &trace, &error) != TC_OK)
		fail_msg("%s", error.text);
	return trace;
}

void assert_ids_equal(struct tc_ids ids, const uint32_t *expected)
{
	uint32_t count = 0;
	for (; expected[count] != TC_NONE; count++) {
		assert_true(count < ids.count);
		assert_int_equal(ids.items[count], expected[count]);
	}
	assert_int_equal(ids.count, count);
}

void assert_request_equal(const struct tc_steps *steps, uint32_t index, uint32_t module,
                          enum tc_pass pass, uint32_t opens, uint32_t closes, const uint32_t *rows)
{
	assert_true(index < steps->request_count);
	const struct tc_request *request = &steps->requests[index];
	assert_int_equal(request->module, module);
	assert_int_equal(request->pass, pass);
	assert_int_equal(request->opens, opens);
	assert_int_equal(request->closes, closes);
	assert_ids_equal((struct tc_ids){steps->rows + request->first_row, request->row_count},
	                 rows);
	for (uint32_t i = 0; i < request->row_count; i++)
		assert_int_equal(steps->row_request[request->first_row + i], index);
}
