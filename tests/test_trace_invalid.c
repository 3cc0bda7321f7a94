/*
 * Every rule of the format has a file that breaks it, beside the text that the reader must say:
 * tests/traces/invalid/NAME and NAME.error. The texts were written from the rules; each names file,
 * line, record, what was found and what was expected.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"
#include "tencache/trace.h"
#include "trace_builder.h"

#define FOLDER TENCACHE_SOURCE_DIR "/tests/traces/invalid"

/** Read a fixture from memory under its bare name, so that messages hold no folder. */
static bool check_fixture(const char *name)
{
	char path[512], expected_path[512];
	snprintf(path, sizeof path, "%s/%s", FOLDER, name);
	snprintf(expected_path, sizeof expected_path, "%s/%s.error", FOLDER, name);
	size_t bytes, expected_bytes;
	char *data = test_read_file(path, &bytes);
	char *expected = test_read_file(expected_path, &expected_bytes);
	assert_non_null(data);
	if (expected == NULL)
		print_error("%s has no .error file\n", name);
	struct tc_trace *trace = NULL;
	struct tc_error error = {0};
	enum tc_status status = tc_trace_parse(data, bytes, name, &trace, &error);
	bool right = status == TC_FORMAT && trace == NULL && expected != NULL;
	if (right) {
		expected[expected_bytes - (expected_bytes > 0)] = '\0';
		right = strcmp(error.text, expected) == 0;
	}
	if (!right)
		print_error("%s (%s):\nfound    %s\nexpected %s\n", name, tc_status_name(status),
		            error.text, expected != NULL ? expected : "?");
	tc_trace_free(trace);
	free(data);
	free(expected);
	return right;
}

static void every_fixture_gives_its_text(void **state)
{
	(void)state;
	size_t count, wrong = 0, fixtures = 0;
	char **names = test_list_folder(FOLDER, &count);
	assert_non_null(names);
	for (size_t i = 0; i < count; i++) {
		size_t length = strlen(names[i]);
		if (length > 6 && strcmp(names[i] + length - 6, ".error") == 0)
			continue;
		fixtures++;
		wrong += !check_fixture(names[i]);
	}
	test_free_names(names, count);
	assert_true(fixtures > 100);
	assert_int_equal(wrong, 0);
}

static void files_that_cannot_be_read(void **state)
{
	(void)state;
	struct tc_trace *trace;
	struct tc_error error = {0};
	assert_int_equal(tc_trace_read(FOLDER, &trace, &error), TC_IO);
	assert_non_null(strstr(error.text, "is a directory"));
	error = (struct tc_error){0};
	assert_int_equal(tc_trace_read(FOLDER "/no-such-file", &trace, &error), TC_IO);
	assert_non_null(strstr(error.text, "No such file"));
	assert_null(trace);
	/* No permission: only for users that permissions bind. */
	char path[] = "/tmp/tencache-trace-XXXXXX";
	int file = mkstemp(path);
	assert_true(file >= 0);
	assert_int_equal(fchmod(file, 0), 0);
	close(file);
	error = (struct tc_error){0};
	enum tc_status status = tc_trace_read(path, &trace, &error);
	unlink(path);
	if (geteuid() == 0) {
		assert_int_equal(status, TC_FORMAT); /* root reads it: it is empty */
	} else {
		assert_int_equal(status, TC_IO);
		assert_non_null(strstr(error.text, "Permission denied"));
	}
}

/** Twenty findings are shown, the others counted: 30 tensors above the largest size. */
static void twenty_findings_are_shown(void **state)
{
	(void)state;
	struct test_builder *builder = test_builder_new();
	for (int i = 0; i < 30; i++)
		test_add_tensor(builder, TC_PARAM, 1ull << 51);
	test_add_op(builder, TC_FORWARD, TC_NONE, TEST_IDS(0), TEST_NO_IDS);
	char *text = test_builder_text(builder, TEST_LINES);
	struct tc_trace *trace;
	struct tc_error error = {0};
	assert_int_equal(tc_trace_parse(text, strlen(text), "many", &trace, &error), TC_FORMAT);
	size_t lines = 1;
	for (const char *at = error.text; (at = strchr(at, '\n')) != NULL; at++)
		lines++;
	assert_int_equal(lines, 21);
	assert_non_null(strstr(error.text, "\nmany: and 10 more"));
	free(text);
	test_builder_free(builder);
}

/** Messages are one line of printable text, whatever a file holds. */
static void names_cannot_forge_lines(void **state)
{
	(void)state;
	struct test_builder *builder = test_builder_new();
	uint32_t tensor = test_add_tensor(builder, TC_PARAM, 1ull << 51);
	strcpy(test_tensor(builder, tensor)->name, "a\\n\\u001b[31mred");
	test_add_op(builder, TC_FORWARD, TC_NONE, TEST_IDS(tensor), TEST_NO_IDS);
	char *text = test_builder_text(builder, TEST_DOCUMENT);
	struct tc_trace *trace;
	struct tc_error error = {0};
	assert_int_equal(tc_trace_parse(text, strlen(text), "name", &trace, &error), TC_FORMAT);
	assert_non_null(strstr(error.text, "tensor 0 (a??[31mred):"));
	assert_null(strchr(error.text, '\n'));
	free(text);
	test_builder_free(builder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_fixture_gives_its_text),
	    cmocka_unit_test(files_that_cannot_be_read),
	    cmocka_unit_test(twenty_findings_are_shown),
	    cmocka_unit_test(names_cannot_forge_lines),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
