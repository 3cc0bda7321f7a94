/*
 * Nothing in a file may crash the reader, make it hang or take memory without bound. Run under the
 * sanitizers (preset asan) these tests say more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "files.h"
#include "json_stream.h"
#include "random.h"
#include "tencache/steps.h"
#include "trace_builder.h"

#define VALID TENCACHE_SOURCE_DIR "/tests/traces/valid/"

static const char *const layouts[] = {VALID "everything.jsonl", VALID "everything.json"};

/** Parse a copy that ends exactly at its last byte, so that a sanitizer sees a read behind it. */
static enum tc_status parse(const char *data, size_t bytes, struct tc_error *error)
{
	char *exact = malloc(bytes == 0 ? 1 : bytes);
	assert_non_null(exact);
	memcpy(exact, data, bytes);
	struct tc_trace *trace = NULL;
	enum tc_status status = tc_trace_parse(exact, bytes, "torture", &trace, error);
	assert_true((status == TC_OK) == (trace != NULL));
	if (status == TC_OK) {
		/* What the reader accepts, the steps must be able to follow. */
		struct tc_steps *steps = NULL;
		enum tc_request_mode mode =
		    trace->has_events ? TC_REQUESTS_HOOK : TC_REQUESTS_READS;
		enum tc_status derived = tc_steps_derive(trace, TC_GRANULARITY_LAYER, mode,
		                                         TC_FREES_EAGER, &steps, error);
		assert_true(derived == TC_OK || derived == TC_TOO_LARGE);
		tc_steps_free(steps);
	} else {
		assert_true(error->text[0] != '\0');
	}
	tc_trace_free(trace);
	free(exact);
	return status;
}

/** A trace cut anywhere is refused; only the last line feed is not missed. */
static void cut_at_every_byte(void **state)
{
	(void)state;
	for (size_t l = 0; l < 2; l++) {
		size_t bytes;
		char *data = test_read_file(layouts[l], &bytes);
		assert_non_null(data);
		for (size_t i = 0; i < bytes; i++) {
			struct tc_error error = {0};
			enum tc_status status = parse(data, i, &error);
			assert_int_equal(status, i == bytes - 1 ? TC_OK : TC_FORMAT);
		}
		free(data);
	}
}

static void cut_gzip_at_every_byte(void **state)
{
	(void)state;
	size_t bytes;
	char *data = test_read_file(layouts[0], &bytes);
	unsigned char packed[65536];
	z_stream stream = {0};
	assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
	stream.next_in = (Bytef *)data;
	stream.avail_in = (uInt)bytes;
	stream.next_out = packed;
	stream.avail_out = sizeof packed;
	assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
	size_t packed_bytes = sizeof packed - stream.avail_out;
	deflateEnd(&stream);
	for (size_t i = 0; i <= packed_bytes; i++) {
		struct tc_error error = {0};
		enum tc_status status = parse((const char *)packed, i, &error);
		assert_int_equal(status, i == packed_bytes ? TC_OK : TC_FORMAT);
	}
	/* And with one byte wrong: refused, or (in the header's time and name) the same trace. */
	for (size_t i = 0; i < packed_bytes; i++) {
		struct tc_error error = {0};
		packed[i] ^= 0x55;
		enum tc_status status = parse((const char *)packed, packed_bytes, &error);
		assert_true(status == TC_FORMAT || (status == TC_OK && i < 10));
		packed[i] ^= 0x55;
	}
	free(data);
}

/** One to four random bytes replaced, deleted or repeated: an answer, and no crash. */
static void random_bytes(void **state)
{
	(void)state;
	static const char likely[] = "{}[]\",:0123456789-e.tfn \n\\";
	uint64_t random = 20;
	size_t accepted = 0;
	for (size_t round = 0; round < 20000; round++) {
		size_t bytes;
		char *data = test_read_file(layouts[round % 2], &bytes);
		size_t changes = 1 + test_random_below(&random, 4);
		for (size_t i = 0; i < changes; i++) {
			size_t at = test_random_below(&random, bytes);
			uint64_t how = test_random_below(&random, 4);
			if (how == 0)
				data[at] = (char)test_random(&random);
			else if (how == 1)
				data[at] = likely[test_random_below(&random, sizeof likely - 1)];
			else if (how == 2)
				memmove(data + at, data + at + 1, --bytes - at);
			else if (at + 16 < bytes)
				memmove(data + at + 8, data + at, 8);
		}
		struct tc_error error = {0};
		enum tc_status status = parse(data, bytes, &error);
		assert_true(status == TC_OK || status == TC_FORMAT);
		accepted += status == TC_OK;
		free(data);
	}
	/* Some changes do no harm (a name, a number): the test would be blind without them. */
	assert_true(accepted > 50 && accepted < 10000);
}

/** Numbers replaced by extreme ones, one at a time. */
static void extreme_numbers(void **state)
{
	(void)state;
	static const char *const numbers[] = {"-1",
	                                      "4294967295",
	                                      "4294967296",
	                                      "9007199254740991",
	                                      "9223372036854775807",
	                                      "-9223372036854775808",
	                                      "18446744073709551616",
	                                      "1e308",
	                                      "-0.0",
	                                      "null",
	                                      "[]",
	                                      "{}"};
	for (size_t l = 0; l < 2; l++) {
		size_t bytes;
		char *data = test_read_file(layouts[l], &bytes);
		char *changed = malloc(bytes + 64);
		for (size_t i = 1; i < bytes; i++) {
			size_t length = strspn(data + i, "0123456789");
			if (length == 0 || strspn(data + i - 1, "0123456789") != 0)
				continue;
			const char *number = numbers[i % (sizeof numbers / sizeof *numbers)];
			size_t inserted = strlen(number);
			memcpy(changed, data, i);
			memcpy(changed + i, number, inserted);
			memcpy(changed + i + inserted, data + i + length, bytes - i - length);
			struct tc_error error = {0};
			enum tc_status status = parse(changed, bytes - length + inserted, &error);
			assert_true(status == TC_OK || status == TC_FORMAT);
		}
		free(changed);
		free(data);
	}
}

/** A record in which something repeats without end: refused at the limit. */
static void endless_records(void **state)
{
	(void)state;
	static const struct {
		const char *begin, *repeat, *message;
	} cases[] = {
	    {"", "[", "expected '{'"},
	    {"{\"x\":", "[", "nested deeper than 32"},
	    {"{\"x\":", "{\"x\":", "nested deeper than 32"},
	    {"{\"x\":\"", "aaaaaaaa", "larger than 4 MiB"},
	    {"{\"x\":[", "[1,2,3,4,5,6,7],", "larger than 4 MiB"},
	    {"{", "\"a\":1,", "larger than 4 MiB"},
	    {"{\"x\":", "1111111111", "longer than 4096"},
	    {"{\"x\":1}\n{\"op\":[", "1,", "larger than 4 MiB"},
	    {"", "\n\n\n\n\n\n\n\n", "is empty"},
	    {"{}\n", "{\"x_\":1}\n", "and "},
	};
	size_t capacity = 6u << 20;
	char *data = malloc(capacity);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		size_t used = strlen(cases[i].begin), length = strlen(cases[i].repeat);
		memcpy(data, cases[i].begin, used);
		for (; used + length <= capacity; used += length)
			memcpy(data + used, cases[i].repeat, length);
		struct tc_error error = {0};
		assert_int_equal(parse(data, used, &error), TC_FORMAT);
		if (strstr(error.text, cases[i].message) == NULL)
			fail_msg("case %zu: %s", i, error.text);
	}
	free(data);
}

/** One MiB of gzip that claims more than the limit: refused, in little memory. */
static void gzip_bomb(void **state)
{
	(void)state;
	char path[] = "/tmp/tencache-trace-XXXXXX";
	int descriptor = mkstemp(path);
	assert_true(descriptor >= 0);
	close(descriptor);
	gzFile file = gzopen(path, "wb9");
	assert_non_null(file);
	char *blank = malloc(1u << 20);
	memset(blank, '\n', 1u << 20);
	for (size_t i = 0; i <= TCI_LARGEST_SOURCE_BYTES >> 20; i++)
		assert_int_equal(gzwrite(file, blank, 1u << 20), 1 << 20);
	gzclose(file);
	free(blank);
	struct rusage before, after;
	getrusage(RUSAGE_SELF, &before);
	struct tc_trace *trace;
	struct tc_error error = {0};
	enum tc_status status = tc_trace_read(path, &trace, &error);
	getrusage(RUSAGE_SELF, &after);
	unlink(path);
	assert_int_equal(status, TC_TOO_LARGE);
	assert_non_null(strstr(error.text, "more than 268435456 bytes"));
	assert_true(after.ru_maxrss - before.ru_maxrss < 16 * 1024);
}

/** A module of 4,096 parameters open over 32,768 steps: refused instead of 2^27 list entries. */
static void requests_without_bound(void **state)
{
	(void)state;
	struct test_builder *builder = test_builder_new();
	uint32_t module = test_add_module(builder, "huge", TEST_NO_IDS);
	uint32_t inner = test_add_module(builder, "inner", TEST_NO_IDS);
	for (uint32_t i = 0; i < 4096; i++)
		test_ids_add(&builder->modules[module].params,
		             test_add_tensor(builder, TC_PARAM, 4));
	test_add_event(builder, TC_EVENT_START, TC_NONE);
	test_add_event(builder, TC_EVENT_FORWARD_PRE, module);
	for (uint32_t i = 0; i < 32768; i++) {
		test_add_event(builder, TC_EVENT_FORWARD_PRE, inner);
		test_add_op(builder, TC_FORWARD, module, TEST_IDS(0), TEST_NO_IDS);
	}
	test_add_event(builder, TC_EVENT_END, TC_NONE);
	struct tc_trace *trace = test_builder_trace(builder);
	struct tc_steps *steps;
	struct tc_error error = {0};
	assert_int_equal(tc_steps_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                                 TC_FREES_LAST_USE, &steps, &error),
	                 TC_TOO_LARGE);
	assert_null(steps);
	tc_trace_free(trace);
	test_builder_free(builder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(cut_at_every_byte),      cmocka_unit_test(cut_gzip_at_every_byte),
	    cmocka_unit_test(random_bytes),           cmocka_unit_test(extreme_numbers),
	    cmocka_unit_test(endless_records),        cmocka_unit_test(gzip_bomb),
	    cmocka_unit_test(requests_without_bound),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
