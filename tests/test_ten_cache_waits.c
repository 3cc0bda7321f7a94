/*
 * 10cache against the authors' own CSV of waits (OPT-6.7B, two iterations, beside their code): the
 * same requests in the same order, and a wait of zero exactly where ours was resident.
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

#include "ten_cache_case.h"

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
		if (command->iteration != TEN_CACHE_STEADY || command->kind != TC_COMPUTE)
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
	struct plan_kept planned = ten_cache_plan(trace, machine, "10cache:resident=348");
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
	    cmocka_unit_test(test_authors_waits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
