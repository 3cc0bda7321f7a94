/*
 * Schedule files: what is written reads back the same, plain and gzipped; what is broken is refused
 * with file, line, found and expected, and never crashes; no half file is left behind.
 */
#define _GNU_SOURCE /* O_TMPFILE */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "oracle.h"
#include "random.h"
#include "tencache/audit.h"

struct files {
	char folder[64];
	char plain[96], packed[96], broken[96];
};

static int make_files(void **state)
{
	struct files *files = calloc(1, sizeof *files);
	if (files == NULL)
		return -1;
	(void)snprintf(files->folder, sizeof files->folder, "schedule-test-XXXXXX");
	if (mkdtemp(files->folder) == NULL)
		return -1;
	(void)snprintf(files->plain, sizeof files->plain, "%s/plan.jsonl", files->folder);
	(void)snprintf(files->packed, sizeof files->packed, "%s/plan.jsonl.gz", files->folder);
	(void)snprintf(files->broken, sizeof files->broken, "%s/broken", files->folder);
	*state = files;
	return 0;
}

static int remove_files(void **state)
{
	struct files *files = *state;
	(void)remove(files->plain);
	(void)remove(files->packed);
	(void)remove(files->broken);
	int left = rmdir(files->folder); /* fails when something else was left behind */
	free(files);
	return left;
}

static void write_schedule(const char *path, const struct tc_schedule *schedule)
{
	struct tc_schedule_writer *writer;
	struct tc_error error = {0};
	assert_int_equal(tc_schedule_writer_create(path, &writer, &error), TC_OK);
	struct tc_sink sink = tc_schedule_writer_sink(writer);
	if (tc_schedule_play(schedule, &sink, &error) != TC_OK)
		fail_msg("%s", error.text);
	tc_schedule_writer_free(writer);
}

/** A whole file in memory, decompressed; free() it. */
static char *slurp(const char *path, size_t *bytes)
{
	gzFile file = gzopen(path, "rb");
	char *text = malloc(4u << 20);
	assert_non_null(file);
	assert_non_null(text);
	int read = gzread(file, text, 4u << 20);
	assert_true(read > 0);
	assert_int_equal(gzclose(file), Z_OK);
	*bytes = (size_t)read;
	return text;
}

static void spill(const char *path, const char *text, size_t bytes)
{
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

static void test_round_trip(void **state)
{
	struct files *files = *state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct tc_machine machine;
		struct oracle_model *model = oracle_model_new(seed, seed % 2 == 0);
		struct tc_schedule *schedule =
		                       oracle_plan(model, seed, 1 + (uint32_t)(seed % 3), &machine),
		                   *back;
		const char *path = seed % 2 == 0 ? files->plain : files->packed;
		write_schedule(path, schedule);
		struct tc_error error = {0};
		const struct tc_trace *trace = seed % 4 < 2 ? oracle_model_trace(model) : NULL;
		if (tc_schedule_read(path, trace, trace != NULL ? &machine : NULL, &back, &error) !=
		    TC_OK)
			fail_msg("%s", error.text);
		assert_true(oracle_same_schedule(schedule, back));
		assert_ptr_equal(back->info.trace, trace);
		tc_schedule_free(back);
		tc_schedule_free(schedule);
		oracle_model_free(model);
	}
}

/** A file that was read with its trace can be audited like the plan itself. */
static void test_a_file_can_be_audited(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(3, true);
	struct tc_schedule *schedule = oracle_plan(model, 3, 2, &machine), *back;
	write_schedule(files->plain, schedule);
	assert_int_equal(
	    tc_schedule_read(files->plain, oracle_model_trace(model), &machine, &back, NULL),
	    TC_OK);
	struct tc_audit *audit;
	assert_int_equal(tc_audit_create(true, &audit, NULL), TC_OK);
	struct tc_sink sink = tc_audit_sink(audit);
	assert_int_equal(tc_schedule_play(back, &sink, NULL), TC_OK);
	assert_int_equal(tc_audit_result(audit)->commands, schedule->command_count);
	tc_audit_free(audit);
	tc_schedule_free(back);
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

static void test_same_bytes_twice(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(5, true);
	struct tc_schedule *schedule = oracle_plan(model, 5, 2, &machine);
	size_t bytes, again;
	write_schedule(files->packed, schedule);
	char *first = slurp(files->packed, &bytes);
	write_schedule(files->plain, schedule);
	char *second = slurp(files->plain, &again);
	assert_int_equal(bytes, again);
	assert_memory_equal(first, second, bytes);
	free(first);
	free(second);
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

static void test_other_trace_or_machine(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(5, true);
	struct tc_schedule *schedule = oracle_plan(model, 5, 1, &machine), *back;
	write_schedule(files->plain, schedule);
	struct tc_trace other = *oracle_model_trace(model);
	memset(other.sha256, 'd', 64);
	struct tc_error error = {0};
	assert_int_equal(tc_schedule_read(files->plain, &other, NULL, &back, &error), TC_ARGUMENT);
	assert_null(back);
	assert_non_null(strstr(error.text, "aaaaaaaa"));
	assert_non_null(strstr(error.text, "dddddddd"));
	assert_non_null(strstr(error.text, "plan again"));
	error = (struct tc_error){0};
	memset(machine.sha256, 'e', 64);
	assert_int_equal(tc_schedule_read(files->plain, NULL, &machine, &back, &error),
	                 TC_ARGUMENT);
	assert_non_null(strstr(error.text, "cccccccc"));
	assert_non_null(strstr(error.text, "eeeeeeee"));
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

/** Cut anywhere: refused, unless only the last line feed is gone. */
static void test_truncated(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(5, true);
	struct tc_schedule *schedule = oracle_plan(model, 5, 1, &machine), *back;
	write_schedule(files->plain, schedule);
	size_t bytes;
	char *text = slurp(files->plain, &bytes);
	for (size_t cut = 0; cut + 1 < bytes; cut += cut < 200 ? 1 : 97) {
		struct tc_error error = {0};
		spill(files->broken, text, cut);
		enum tc_status status = tc_schedule_read(files->broken, NULL, NULL, &back, &error);
		assert_int_equal(status, TC_FORMAT);
		assert_non_null(strstr(error.text, "broken"));
		assert_null(back);
	}
	/* A gzip file cut in the middle. */
	write_schedule(files->packed, schedule);
	FILE *file = fopen(files->packed, "rb");
	assert_non_null(file);
	size_t packed = fread(text, 1, bytes, file);
	assert_int_equal(fclose(file), 0);
	for (size_t cut = 0; cut < packed; cut += 131) {
		spill(files->broken, text, cut);
		assert_int_not_equal(tc_schedule_read(files->broken, NULL, NULL, &back, NULL),
		                     TC_OK);
	}
	free(text);
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

/** Random bytes anywhere: never a crash; what is still accepted can be walked in full. */
static void test_corrupt(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(6, true);
	struct tc_schedule *schedule = oracle_plan(model, 6, 1, &machine), *back;
	write_schedule(files->plain, schedule);
	size_t bytes;
	char *text = slurp(files->plain, &bytes), *broken = malloc(bytes);
	assert_non_null(broken);
	static const char alphabet[] = "0123456789-{}[],:\"eE.tfn\\\n\0x";
	uint64_t random = 99;
	unsigned refused = 0;
	for (unsigned round = 0; round < 2000; round++) {
		memcpy(broken, text, bytes);
		for (uint64_t n = 1 + test_random_below(&random, 3); n > 0; n--)
			broken[test_random_below(&random, bytes)] =
			    alphabet[test_random_below(&random, sizeof alphabet)];
		spill(files->broken, broken, bytes);
		struct tc_error error = {0};
		enum tc_status status = tc_schedule_read(
		    files->broken, round % 2 == 0 ? oracle_model_trace(model) : NULL, NULL, &back,
		    &error);
		refused += status != TC_OK;
		assert_true(status == TC_OK || error.text[0] != '\0');
		if (status == TC_OK && back->info.trace != NULL) {
			struct tc_audit *audit;
			assert_int_equal(tc_audit_create(false, &audit, NULL), TC_OK);
			struct tc_sink sink = tc_audit_sink(audit);
			(void)tc_schedule_play(back, &sink, NULL);
			tc_audit_free(audit);
		}
		tc_schedule_free(back);
	}
	assert_true(refused > 1000);
	free(text);
	free(broken);
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

/** Replace the first `from` by `to` and expect these words in the message. */
static void expect_refused(const struct files *files, const char *text, const char *from,
                           const char *to, const char *words)
{
	const char *at = strstr(text, from);
	assert_non_null(at);
	char *changed = malloc(strlen(text) + strlen(to) + 1);
	assert_non_null(changed);
	(void)sprintf(changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	spill(files->broken, changed, strlen(changed));
	free(changed);
	struct tc_schedule *back;
	struct tc_error error = {0};
	assert_int_equal(tc_schedule_read(files->broken, NULL, NULL, &back, &error), TC_FORMAT);
	if (strstr(error.text, words) == NULL)
		fail_msg("message '%s' lacks '%s'", error.text, words);
}

static void test_messages(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(6, true);
	struct tc_schedule *schedule = oracle_plan(model, 6, 1, &machine);
	write_schedule(files->plain, schedule);
	size_t bytes;
	char *text = slurp(files->plain, &bytes);
	text = realloc(text, bytes + 1);
	assert_non_null(text);
	text[bytes] = '\0';
	static const struct {
		const char *from, *to, *words;
	} cases[] = {
	    {"tencache-schedule", "tencache-trace", "expected \"tencache-schedule\""},
	    {"\"version\":\"1.0\"", "\"version\":\"2.0\"", "1.x"},
	    {"\"iterations\":1", "\"iterations\":-1", "found -1, expected an integer from 0"},
	    {"\"iterations\":1", "\"iterations\":1.5", "found a fraction"},
	    {"\"iterations\":1", "\"other\":1", "\"iterations\": found nothing"},
	    {"\"compute\":1", "\"compute\":1000", "from 0 to 16"},
	    {"\"kind\":\"arena\"", "\"kind\":\"arenas\"", "\"arena\" (did you mean that?)"},
	    {"{\"t\":1,", "{\"t\":2,", "expected 1 (ids are dense)"},
	    {"\"home\":\"cpu\"", "\"home\":\"disk\"", ":2: \"home\""},
	    {"{\"id\":0,", "{\"id\":1,", "expected 0"},
	    {"{\"id\":0,", "{\"id\":99999999999999999999,", "too big"},
	    {"\"queue\":\"h2d\"", "\"queue\":\"d2h\"", "expected the queue that joins them"},
	    {"\"kind\":\"fetch\"", "\"kind\":\"compute\"", "\"op_ps\": found nothing"},
	    {"\"bind_access\":\"", "\"bind_access\":\"r", "one letter for each bind"},
	    {"\"deps\":[]", "\"deps\":[[999,\"data\"]]", "expected a smaller id"},
	    {"\"deps\":[]", "\"deps\":[[0]]", "expected [command, reason]"},
	    {"\"end\":true,\"commands\":", "\"end\":true,\"commands\":1", "expected"},
	    {"{\"end\":true", "{}\n{\"end\":true", "no known kind"},
	    {"{\"end\":true", "[]\n{\"end\":true", ":"},
	};
	for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
		expect_refused(files, text, cases[c].from, cases[c].to, cases[c].words);
	free(text);
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

static void test_places_that_cannot_be(void **state)
{
	struct files *files = *state;
	struct tc_schedule_writer *writer;
	struct tc_schedule *back;
	struct tc_error error = {0};
	char path[128];
	(void)snprintf(path, sizeof path, "%s/none/plan.jsonl", files->folder);
	assert_int_equal(tc_schedule_writer_create(path, &writer, &error), TC_IO);
	assert_null(writer);
	assert_non_null(strstr(error.text, "none/plan.jsonl"));
	error = (struct tc_error){0};
	assert_int_equal(tc_schedule_read(path, NULL, NULL, &back, &error), TC_IO);
	error = (struct tc_error){0};
	assert_int_equal(tc_schedule_read(files->folder, NULL, NULL, &back, &error), TC_IO);
	error = (struct tc_error){0};
	assert_int_equal(tc_schedule_writer_create(files->folder, &writer, &error), TC_IO);
	assert_non_null(strstr(error.text, "is a directory"));
	assert_int_equal(tc_schedule_writer_create("", &writer, NULL), TC_ARGUMENT);
}

/** A plan that stops midway leaves an older file as it was, and nothing else. */
static void test_abandoned(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(6, true);
	struct tc_schedule *schedule = oracle_plan(model, 6, 1, &machine), *back;
	write_schedule(files->plain, schedule);
	struct tc_schedule_writer *writer;
	assert_int_equal(tc_schedule_writer_create(files->plain, &writer, NULL), TC_OK);
	struct tc_sink sink = tc_schedule_writer_sink(writer);
	assert_int_equal(sink.begin(sink.self, &schedule->info, NULL), TC_OK);
	assert_int_equal(sink.command(sink.self, &schedule->commands[0], NULL), TC_OK);
	tc_schedule_writer_free(writer);
	assert_int_equal(tc_schedule_read(files->plain, NULL, NULL, &back, NULL), TC_OK);
	assert_true(oracle_same_schedule(schedule, back));
	tc_schedule_free(back);
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

/** What has the name of a link goes where the link points, and the link stays. */
static void test_links_are_followed(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(6, true);
	struct tc_schedule *schedule = oracle_plan(model, 6, 1, &machine), *back;
	struct stat status;
	write_schedule(files->plain, schedule);
	assert_int_equal(truncate(files->plain, 0), 0);
	(void)remove(files->broken);
	assert_int_equal(symlink("plan.jsonl", files->broken), 0);
	write_schedule(files->broken, schedule);
	assert_int_equal(lstat(files->broken, &status), 0);
	assert_true(S_ISLNK(status.st_mode));
	assert_int_equal(tc_schedule_read(files->plain, NULL, NULL, &back, NULL), TC_OK);
	assert_true(oracle_same_schedule(schedule, back));
	assert_int_equal(unlink(files->broken), 0);
	tc_schedule_free(back);
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

/** Somebody's pipe (or /dev/null, or a process substitution) is written to, never replaced. */
static void test_pipes_stay_pipes(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(6, true);
	struct tc_schedule *schedule = oracle_plan(model, 6, 1, &machine);
	struct stat status;
	static char written[1 << 16], expected[1 << 16];
	write_schedule(files->plain, schedule);
	int plain = open(files->plain, O_RDONLY);
	ssize_t size = read(plain, expected, sizeof expected);
	(void)close(plain);
	assert_in_range(size, 1, sizeof written - 1); /* fits into a pipe that nobody empties */
	(void)remove(files->broken);
	assert_int_equal(mkfifo(files->broken, 0600), 0);
	int reader = open(files->broken, O_RDONLY | O_NONBLOCK);
	assert_true(reader >= 0);
	write_schedule(files->broken, schedule);
	assert_int_equal(stat(files->broken, &status), 0);
	assert_true(S_ISFIFO(status.st_mode));
	assert_int_equal(read(reader, written, sizeof written), size);
	assert_memory_equal(written, expected, (size_t)size);
	(void)close(reader);
	assert_int_equal(unlink(files->broken), 0);
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

/** A program that is killed while it writes leaves nothing: remove_files() sees what is left. */
static void test_killed(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(6, true);
	struct tc_schedule *schedule = oracle_plan(model, 6, 1, &machine);
	int probe = -1, status;
#ifdef O_TMPFILE
	probe = open(files->folder, O_TMPFILE | O_WRONLY, 0600);
#endif
	if (probe < 0) {
		print_message("skipped: no files without a name in this file system\n");
	} else {
		(void)close(probe);
		pid_t child = fork();
		assert_true(child >= 0);
		if (child == 0) {
			struct tc_schedule_writer *writer;
			if (tc_schedule_writer_create(files->packed, &writer, NULL) != TC_OK)
				_exit(1);
			struct tc_sink sink = tc_schedule_writer_sink(writer);
			if (sink.begin(sink.self, &schedule->info, NULL) != TC_OK)
				_exit(1);
			(void)raise(SIGKILL);
			_exit(1);
		}
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

/** Above 2^53 - 1 a JSON reader would not give the number back. */
static void test_numbers_that_do_not_fit(void **state)
{
	struct files *files = *state;
	struct tc_machine machine;
	struct oracle_model *model = oracle_model_new(6, true);
	struct tc_schedule *schedule = oracle_plan(model, 6, 1, &machine);
	struct tc_schedule_writer *writer;
	struct tc_error error = {0};
	schedule->commands[2].elements = 9007199254740992u;
	assert_int_equal(tc_schedule_writer_create(files->plain, &writer, NULL), TC_OK);
	struct tc_sink sink = tc_schedule_writer_sink(writer);
	assert_int_equal(tc_schedule_play(schedule, &sink, &error), TC_TOO_LARGE);
	assert_non_null(strstr(error.text, "command 2"));
	tc_schedule_writer_free(writer);
	tc_schedule_free(schedule);
	oracle_model_free(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_round_trip),       cmocka_unit_test(test_a_file_can_be_audited),
	    cmocka_unit_test(test_same_bytes_twice), cmocka_unit_test(test_other_trace_or_machine),
	    cmocka_unit_test(test_truncated),        cmocka_unit_test(test_corrupt),
	    cmocka_unit_test(test_messages),         cmocka_unit_test(test_places_that_cannot_be),
	    cmocka_unit_test(test_abandoned),        cmocka_unit_test(test_numbers_that_do_not_fit),
	    cmocka_unit_test(test_killed),           cmocka_unit_test(test_links_are_followed),
	    cmocka_unit_test(test_pipes_stay_pipes),
	};
	return cmocka_run_group_tests(tests, make_files, remove_files);
}
