/* Printed reports of real runs: JSON against the schema of the tree, CSV against the JSON, and both
 * the same bytes each time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json_schema.h"
#include "print.h"
#include "tencache/policy.h"
#include "tencache/simulate.h"
#include "trace_builder.h"

#define ITERATIONS 3

/** Everything a document borrows. */
struct fixture {
	struct tc_trace *trace;
	struct tc_machine *machine;
	struct tc_steps *steps;
	struct tc_policy_list policies;
	struct tc_result results[4];
	struct tci_document document;
};

static void expect_ok(enum tc_status status, const struct tc_error *error)
{
	if (status != TC_OK)
		fail_msg("%s: %s", tc_status_name(status), error->text);
}

static void run_policy(struct fixture *x, const struct tc_policy_choice *choice,
                       struct tc_result *result)
{
	struct tc_error error = {0};
	struct tc_simulation simulation = {.trace = x->trace,
	                                   .steps = x->steps,
	                                   .machine = x->machine,
	                                   .policy = choice,
	                                   .iterations = ITERATIONS};
	expect_ok(tc_simulate(&simulation, result, &error), &error);
	assert_int_equal(result->status, TC_OK);
}

static int set_up(void **state)
{
	static const uint64_t sizes[] = {1 << 20, 4 << 20, 1 << 10};
	struct fixture *x = calloc(1, sizeof *x);
	struct tc_error error = {0}, cause = {0};
	assert_non_null(x);
	x->trace = test_model_trace(&(struct test_model){.layers = 4,
	                                                 .modules_per_layer = 2,
	                                                 .params_per_module = 2,
	                                                 .param_bytes = sizes,
	                                                 .param_bytes_count = 3,
	                                                 .forward_us = 50,
	                                                 .backward_us = 100,
	                                                 .half = true});
	expect_ok(
	    tc_machine_load("a100-40", TENCACHE_SOURCE_DIR "/sim/machines", &x->machine, &error),
	    &error);
	expect_ok(tc_machine_override(x->machine, "gpu-memory", "1100MiB", &error), &error);
	expect_ok(tc_steps_derive(x->trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                          TC_FREES_LAST_USE, &x->steps, &error),
	          &error);
	expect_ok(
	    tc_policy_list_add(&x->policies, "ideal,lru,belady:state=nvme,lru:barrier=1", &error),
	    &error);
	for (size_t i = 0; i < 3; ++i)
		run_policy(x, x->policies.choices[i], &x->results[i]);
	(void)tc_error_set(&cause, TC_INFEASIBLE, "step 3 needs \"1 GiB\", 7 bytes are free");
	expect_ok(tc_result_infeasible(x->policies.choices[3], &cause, &x->results[3], &error),
	          &error);
	x->document = (struct tci_document){.trace = x->trace,
	                                    .machine = x->machine,
	                                    .steps = x->steps,
	                                    .iterations = ITERATIONS,
	                                    .results = x->results,
	                                    .result_count = 4};
	*state = x;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *x = *state;
	for (size_t i = 0; i < 4; ++i)
		tc_result_clear(&x->results[i]);
	tc_policy_list_clear(&x->policies);
	tc_steps_free(x->steps);
	tc_machine_free(x->machine);
	tc_trace_free(x->trace);
	free(x);
	return 0;
}

typedef enum tc_status print_function(FILE *, const struct tci_document *, struct tc_error *);

/** What a printer writes; free(). */
static char *printed(print_function *print, const struct tci_document *document)
{
	char *text = NULL;
	size_t bytes = 0;
	struct tc_error error = {0};
	FILE *out = open_memstream(&text, &bytes);
	assert_non_null(out);
	expect_ok(print(out, document, &error), &error);
	assert_int_equal(fclose(out), 0);
	return text;
}

static void test_json_follows_schema(void **state)
{
	struct fixture *x = *state;
	char message[1024], *text = printed(tci_print_json, &x->document);
	json_t *schema = json_load_file(TENCACHE_SOURCE_DIR "/src/report.schema.json", 0, NULL);
	json_t *report = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(schema);
	assert_non_null(report);
	if (!test_schema_accepts(schema, report, message, sizeof message))
		fail_msg("%s", message);
	/* The schema refuses what it should: one damage at a time. */
	static const char *const required[] = {"iteration_ps", "stalls_ps", "commands", "memory"};
	for (size_t i = 0; i < 4; ++i) {
		json_t *damaged = json_deep_copy(report);
		json_t *first = json_array_get(json_object_get(damaged, "results"), 0);
		assert_int_equal(json_object_del(first, required[i]), 0);
		assert_false(test_schema_accepts(schema, damaged, message, sizeof message));
		json_decref(damaged);
	}
	json_t *first = json_array_get(json_object_get(report, "results"), 0);
	(void)json_object_set_new(first, "iteration_ps", json_integer(-1));
	assert_false(test_schema_accepts(schema, report, message, sizeof message));
	json_decref(report);
	json_decref(schema);
	free(text);
}

static json_int_t number(const json_t *object, const char *path)
{
	char keys[128];
	(void)snprintf(keys, sizeof keys, "%s", path);
	for (char *key = strtok(keys, "."); key != NULL; key = strtok(NULL, "."))
		object = json_object_get(object, key);
	if (!json_is_integer(object))
		fail_msg("%s is no integer", path);
	return json_integer_value(object);
}

/** Sum of the times that the trace gives. */
static uint64_t ops_ps(const struct tc_trace *trace, enum tc_phase phase)
{
	uint64_t sum = 0;
	for (uint32_t op = 0; op < trace->op_count; ++op)
		if (trace->ops[op].phase == phase)
			sum += trace->ops[op].measured_ps;
	return sum;
}

/** Identities that hold for every run, whatever its policy. */
static void test_identities(void **state)
{
	struct fixture *x = *state;
	static const char *const phases[] = {"forward", "backward", "optimizer", "zero_grad",
	                                     "other"};
	for (size_t i = 0; i < 3; ++i) {
		json_t *r = tci_result_json(&x->document, &x->results[i]);
		json_int_t time = 0, stall = 0, fetched = 0;
		for (size_t p = 0; p < 5; ++p) {
			char path[64];
			(void)snprintf(path, sizeof path, "phases.%s.time_ps", phases[p]);
			time += number(r, path);
			(void)snprintf(path, sizeof path, "phases.%s.stall_ps", phases[p]);
			stall += number(r, path);
			(void)snprintf(path, sizeof path, "phases.%s.fetch_bytes", phases[p]);
			fetched += number(r, path);
		}
		assert_int_equal(time, number(r, "iteration_ps"));
		assert_int_equal(stall, number(r, "stall_ps"));
		assert_int_equal(number(r, "compute_ps") + stall, time);
		assert_true(fetched <= number(r, "transfers.h2d.bytes"));
		assert_true(number(r, "transfers.h2d.busy_ps") <= time);
		if (x->results[i].choice->policy != x->results[0].choice->policy) {
			/* The GPU pool cannot be overrun; `ideal` has no limit. */
			assert_true(number(r, "memory.gpu.peak_bytes") <=
			            number(r, "memory.gpu.capacity_bytes"));
			/* 16 parameters, once in forward and once in backward. */
			assert_int_equal(number(r, "phases.forward.requests"), 16);
			assert_int_equal(number(r, "phases.backward.requests"), 16);
			/* With the optimizer on the CPU at least forward and backward remain. */
			assert_true(time >= (json_int_t)(ops_ps(x->trace, TC_FORWARD) +
			                                 ops_ps(x->trace, TC_BACKWARD)));
		}
		json_decref(r);
	}
	/* `ideal` computes for as long as the trace says. */
	assert_int_equal(x->results[0].phases[TC_FORWARD].compute_ps, ops_ps(x->trace, TC_FORWARD));
	assert_int_equal(x->results[0].phases[TC_BACKWARD].compute_ps,
	                 ops_ps(x->trace, TC_BACKWARD));
}

/** Number of cells of a CSV line (no quotes inside these names). */
static size_t cells_of(const char *line)
{
	size_t cells = 1;
	bool quoted = false;
	for (; *line != '\0' && *line != '\n'; ++line) {
		quoted ^= *line == '"';
		cells += !quoted && *line == ',';
	}
	return cells;
}

/** The cell of a line in a named column; buffer of `bytes`. */
static void cell(const char *header, const char *line, const char *name, char *text, size_t bytes)
{
	size_t index = 0, length = strlen(name);
	const char *at = header;
	while (strncmp(at, name, length) != 0 || (at[length] != ',' && at[length] != '\n')) {
		at = strchr(at, ',');
		assert_non_null(at);
		++at;
		++index;
	}
	for (; index > 0; --index) {
		line = strchr(line, ',');
		assert_non_null(line);
		++line;
	}
	(void)snprintf(text, bytes, "%.*s", (int)strcspn(line, ",\n"), line);
}

static void test_csv_agrees_with_json(void **state)
{
	struct fixture *x = *state;
	char *text = printed(tci_print_csv, &x->document), *lines[5], value[64], wanted[64];
	char *rest = text;
	for (size_t i = 0; i < 5; ++i) {
		lines[i] = rest;
		rest = strchr(rest, '\n');
		assert_non_null(rest);
		*rest++ = '\0';
	}
	assert_string_equal(rest, "");
	char header[16384];
	(void)snprintf(header, sizeof header, "%s\n", lines[0]);
	for (size_t i = 1; i < 5; ++i)
		assert_int_equal(cells_of(lines[i]), cells_of(header));
	static const char *const paths[] = {"iteration_ps",
	                                    "stalls_ps.optimizer",
	                                    "phases.backward.covered_bytes",
	                                    "transfers.nvme_write.kinds.optimizer_state.bytes",
	                                    "memory.gpu.mean_bytes",
	                                    "commands"};
	for (size_t i = 0; i < 3; ++i) {
		json_t *r = tci_result_json(&x->document, &x->results[i]);
		for (size_t p = 0; p < sizeof paths / sizeof *paths; ++p) {
			(void)snprintf(wanted, sizeof wanted, "%lld",
			               (long long)number(r, paths[p]));
			cell(header, lines[i + 1], paths[p], value, sizeof value);
			assert_string_equal(value, wanted);
		}
		json_decref(r);
	}
	/* The infeasible one: its message quoted as RFC 4180 wants it, then nothing. */
	assert_non_null(strstr(lines[4],
	                       ",infeasible,\"step 3 needs \"\"1 GiB\"\", 7 bytes are free\","
	                       ",,,"));
	free(text);
}

static void test_same_bytes(void **state)
{
	struct fixture *x = *state;
	static print_function *const printers[] = {tci_print_json, tci_print_csv, tci_print_table};
	struct tc_result again = {0};
	run_policy(x, x->policies.choices[2], &again);
	struct tc_result first = x->results[2];
	for (size_t i = 0; i < 3; ++i) {
		x->results[2] = first;
		char *before = printed(printers[i], &x->document);
		x->results[2] = again;
		char *after = printed(printers[i], &x->document);
		assert_string_equal(before, after);
		free(before);
		free(after);
	}
	x->results[2] = first;
	tc_result_clear(&again);
}

static void test_table(void **state)
{
	struct fixture *x = *state;
	char *text = printed(tci_print_table, &x->document);
	static const char *const parts[] = {"resident %",
	                                    "covered %",
	                                    "ready %",
	                                    "belady:state=nvme",
	                                    "limited by",
	                                    "Cheapest fix",
	                                    "lru:barrier=1: infeasible: step 3",
	                                    "to the drives in each step",
	                                    "rated endurance is reached after"};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i)
		if (strstr(text, parts[i]) == NULL)
			fail_msg("no \"%s\" in:\n%s", parts[i], text);
	/* A bare "hit rate" would not say which. */
	assert_null(strstr(text, "hit rate"));
	free(text);
}

/** Each cause of stall has its own advice, and it names the queue. */
/** Sum of one column of the rows below a header that begins with `head`, up to a blank line. */
static double column_sum(const char *text, const char *head, int column)
{
	double sum = 0;
	const char *line = strstr(text, head);
	assert_non_null(line);
	while ((line = strchr(line, '\n')) != NULL && line[1] != '\n' && line[1] != '\0') {
		char word[64];
		int used;
		const char *at = ++line;
		for (int i = 0; i <= column; ++i, at += used)
			if (sscanf(at, "%63s%n", word, &used) != 1)
				fail_msg("too few columns: %.60s", line);
		sum += strtod(word, NULL);
	}
	return sum;
}

/** --verbose: causes add up to the stall, phases to the iteration, to the rounding of a microsecond
 * a row; an infeasible policy has no details. */
static void test_details(void **state)
{
	struct fixture *x = *state;
	const struct tc_result *lru = &x->results[1];
	char *text = printed(tci_print_details, &x->document);
	const char *own = strstr(text, "\nlru\n");
	assert_non_null(own);
	assert_true(lru->stall_ps > 0);
	assert_true(fabs(column_sum(own, "  stall ", 1) - (double)lru->stall_ps / 1e12) < 1e-5);
	assert_true(fabs(column_sum(own, "  stall ", 2) - 100) < 1);
	assert_true(fabs(column_sum(own, "  phase ", 1) - (double)lru->iteration_ps / 1e12) < 1e-5);
	assert_null(strstr(text, "\nlru:barrier=1\n"));
	free(text);
}

static void test_advice(void **state)
{
	struct fixture *x = *state;
	static const struct {
		enum tc_stall_cause cause;
		const char *limit, *fix;
	} cases[] = {{TC_STALL_LINK_BUSY, "link between host and GPU", "GPU memory"},
	             {TC_STALL_NVME, "the drives", "host memory"},
	             {TC_STALL_OPTIMIZER, "optimizer on the CPU", "tokens per optimizer step"},
	             {TC_STALL_NO_BUFFER, "given back too late", "GPU memory"},
	             {TC_STALL_HOST_CALL, "issues the work", "micro-batch"},
	             {TC_STALL_ISSUED_LATE, "too late to hide", "fetches ahead"}};
	char text[TCI_ADVICE_BYTES];
	for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
		struct tc_result r = {.iteration_ps = 1000, .compute_ps = 400, .stall_ps = 600};
		r.stalls_ps[cases[i].cause] = 600;
		r.phases[TC_BACKWARD].stall_ps = 600;
		r.memory[TC_NVME].peak_bytes = 5000;
		r.transfers[TC_QUEUE_NVME_READ].busy_ps = 777;
		tci_advise(&x->document, &r, text);
		if (strstr(text, cases[i].limit) == NULL || strstr(text, cases[i].fix) == NULL ||
		    strstr(text, "60.0 %") == NULL)
			fail_msg("%s", text);
		if (cases[i].cause == TC_STALL_NVME)
			assert_non_null(strstr(text, "nvme_read is busy 77.7 %"));
	}
	/* What takes turns with the drives gets shorter with them: 30 % + 20 % of 1000. */
	struct tc_result late = {.iteration_ps = 1000, .compute_ps = 400, .stall_ps = 600};
	late.stalls_ps[TC_STALL_ISSUED_LATE] = late.phases[TC_OPTIMIZER].stall_ps = 600;
	tci_advise(&x->document, &late, text);
	assert_null(strstr(text, "faster drives"));
	late.transfers[TC_QUEUE_NVME_READ].busy_ps = 300;
	late.transfers[TC_QUEUE_NVME_WRITE].busy_ps = 200;
	tci_advise(&x->document, &late, text);
	assert_non_null(strstr(text, "faster drives"));
	assert_non_null(strstr(text, "reading 30.0 %, writing 20.0 %"));
	/* Room alone does not move what a policy keeps on drives. */
	struct tc_error error = {0};
	struct tc_policy_choice *choice = NULL;
	assert_int_equal(tc_policy_parse("10cache", &choice, &error), TC_OK);
	late.choice = choice;
	late.stalls_ps[TC_STALL_ISSUED_LATE] = 0;
	late.stalls_ps[TC_STALL_NVME] = 600;
	late.memory[TC_NVME].peak_bytes = 5000;
	tci_advise(&x->document, &late, text);
	assert_non_null(strstr(text, "f-fp32"));
	tc_policy_choice_free(choice);
	struct tc_result fine = {.iteration_ps = 1000, .compute_ps = 995, .stall_ps = 5};
	tci_advise(&x->document, &fine, text);
	assert_non_null(strstr(text, "none needed"));
}

/** Price and tokens: 3.60 USD/h is 0.001 USD/s; a 2 s iteration of 1000 tokens costs 2 USD per
 * million tokens. Checked on the printed run by scaling: price x time / tokens. */
static void test_price(void **state)
{
	struct fixture *x = *state;
	struct tc_error error = {0};
	struct tc_result r = {0};
	x->trace->batch = 4;
	x->trace->sequence = 250;
	expect_ok(tc_machine_override(x->machine, "price", "3.6", &error), &error);
	run_policy(x, x->policies.choices[1], &r);
	assert_int_equal(r.tokens, 1000);
	double usd = (double)r.iteration_ps / 1e12 * 0.001 / 1000 * 1e6;
	double printed_usd = (double)r.price_per_million_tokens_micro_usd / 1e6;
	assert_true(printed_usd > usd - 2e-6 - usd * 1e-3 && printed_usd <= usd + 1e-9);
	tc_result_clear(&r);
	x->trace->batch = x->trace->sequence = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_json_follows_schema),
	    cmocka_unit_test(test_identities),
	    cmocka_unit_test(test_csv_agrees_with_json),
	    cmocka_unit_test(test_same_bytes),
	    cmocka_unit_test(test_table),
	    cmocka_unit_test(test_details),
	    cmocka_unit_test(test_advice),
	    cmocka_unit_test(test_price),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
