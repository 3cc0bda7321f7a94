/*
 * Traces that are right: every field of a record arrives, in both layouts, gzipped or not. The
 * values of tests/traces/valid/everything.jsonl were written by hand.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "files.h"
#include "hash.h"
#include "tencache/trace.h"
#include "trace_builder.h"

#define VALID TENCACHE_SOURCE_DIR "/tests/traces/valid/"

static struct tc_trace *read_trace(const char *path)
{
	struct tc_trace *trace = NULL;
	struct tc_error error = {0};
	if (tc_trace_read(path, &trace, &error) != TC_OK)
		fail_msg("%s", error.text);
	return trace;
}

static void assert_ids(struct tc_ids ids, const uint32_t *expected)
{
	uint32_t count = 0;
	for (; expected[count] != TC_NONE; count++) {
		assert_true(count < ids.count);
		assert_int_equal(ids.items[count], expected[count]);
	}
	assert_int_equal(ids.count, count);
}

/* ---------------------------------------------------------------- every field */

static void check_header(const struct tc_trace *trace)
{
	assert_string_equal(trace->name, "all");
	assert_string_equal(trace->method, "hand");
	assert_string_equal(trace->optimizer_name, "adamw");
	assert_string_equal(trace->checkpoint_mode, "layer");
	assert_int_equal(trace->batch, 4);
	assert_int_equal(trace->sequence, 2048);
	assert_int_equal(trace->micro_batches, 2);
	assert_int_equal(trace->model_parameters, 12);
	assert_int_equal(trace->param_dtype, TC_BFLOAT16);
	assert_int_equal(trace->grad_dtype, TC_FLOAT16);
	assert_int_equal(trace->compute_dtype, TC_FLOAT64);
	assert_int_equal(trace->master_dtype, TC_FLOAT32);
	assert_int_equal(trace->state_dtype, TC_INT8);
	assert_true(trace->has_clip && trace->has_events);
	assert_int_equal(trace->workspace_slack, 1048576);
	assert_int_equal(trace->bucket_count, 2);
	assert_ids(trace->buckets[0], TEST_IDS(1));
	assert_ids(trace->buckets[1], TEST_IDS(2));
}

static void check_tensors(const struct tc_trace *trace)
{
	const struct tc_tensor *t = trace->tensors;
	assert_int_equal(trace->tensor_count, 11);
	assert_true(t[0].bytes == 5368709120u && t[0].kind == TC_BUFFER && t[0].persistent);
	assert_true(t[1].kind == TC_PARAM && t[1].layer == 3 && t[1].bind == TC_BIND_PARAM);
	assert_int_equal(t[1].bind_name_count, 2);
	assert_string_equal(t[1].bind_names[1], "b.w");
	assert_int_equal(t[1].bound_at, -1);
	assert_string_equal(t[2].name, "b.\xc3\xbc");
	assert_true(t[2].dtype == TC_FLOAT8 && t[2].bind_names == NULL && t[2].layer == TC_NONE);
	assert_true(t[3].role == TC_ROLE_MASTER && t[3].of == 1 && t[3].bind == TC_BIND_MASTER);
	assert_true(t[4].role == TC_ROLE_EXP_AVG && t[5].role == TC_ROLE_EXP_AVG_SQ);
	assert_true(t[6].role == TC_ROLE_OTHER && t[6].dtype == TC_DTYPE_UNKNOWN);
	assert_true(t[7].bytes == 1ull << 50 && t[7].dtype == TC_DTYPE_UNKNOWN);
	assert_true(t[7].bind == TC_BIND_SAVED && t[7].bind_module == 1 && t[7].bind_ordinal == 2);
	assert_true(t[7].bound_at == 4 && !t[7].persistent);
	assert_true(t[8].persistent && t[8].kind == TC_GRAD && t[8].bound_at == 9);
	assert_true(t[9].role == TC_ROLE_NONE && t[9].of == TC_NONE && t[9].bind == TC_BIND_NONE);
	assert_string_equal(t[9].name, "");
	assert_true(t[10].kind == TC_INPUT && !t[10].persistent);
}

static void check_modules_and_events(const struct tc_trace *trace)
{
	assert_int_equal(trace->module_count, 3);
	assert_string_equal(trace->modules[1].path, "a");
	assert_string_equal(trace->modules[1].class_name, "A");
	assert_string_equal(trace->modules[2].class_name, "");
	assert_true(trace->modules[1].layer == 3 && trace->modules[2].layer == TC_NONE);
	assert_ids(trace->modules[1].params, TEST_IDS(1, 2));
	assert_int_equal(trace->event_count, 13);
	const struct tc_event *e = trace->events;
	assert_true(e[0].kind == TC_EVENT_START && e[0].module == TC_NONE);
	assert_true(e[1].kind == TC_EVENT_MICRO_BATCH && e[1].micro_batch == 0);
	assert_true(e[2].kind == TC_EVENT_FORWARD_PRE && e[2].module == 1);
	assert_true(e[5].kind == TC_EVENT_FORWARD_POST && e[5].module == 2);
	assert_true(e[6].kind == TC_EVENT_BACKWARD_START && e[6].tensor == TC_NONE);
	assert_true(e[7].kind == TC_EVENT_BACKWARD && e[7].module == 1);
	assert_true(e[8].kind == TC_EVENT_GRADIENT && e[8].tensor == 1);
	assert_true(e[9].kind == TC_EVENT_NORM && e[9].tensor == 1);
	assert_true(e[11].kind == TC_EVENT_OPTIMIZER && e[11].bucket == 1);
	assert_true(e[12].kind == TC_EVENT_END && e[12].bucket == TC_NONE);
	assert_int_equal(trace->unpack_count, 1);
	assert_int_equal(trace->unpacks[0].tensor, 7);
	assert_ids(trace->unpacks[0].events, TEST_IDS(7));
}

static void check_ops(const struct tc_trace *trace)
{
	const struct tc_op *op = trace->ops;
	assert_int_equal(trace->op_count, 7);
	assert_string_equal(op[0].name, "embed");
	assert_ids(op[0].reads, TEST_IDS(0, 0, 1));
	assert_true(op[0].read_ranges[0].offset == 1ull << 32 && op[0].read_ranges[0].bytes == 512);
	assert_int_equal(op[0].read_ranges[1].bytes, 256);
	assert_true(op[0].read_ranges[2].offset == 0 && op[0].read_ranges[2].bytes == 64);
	assert_null(op[0].write_ranges);
	assert_ids(op[0].allocates, TEST_IDS(7, 10));
	assert_true(op[0].timed && op[0].measured_ps == 1500000);
	assert_true(op[0].op_class == TC_GATHER && op[0].phase == TC_FORWARD && op[0].module == 1);
	assert_true(op[0].event == 2 && op[0].layer == 3 && !op[0].recompute && !op[0].has_bytes);
	assert_true(op[1].timed && op[1].measured_ps == 0 && op[1].flops == 9007199254740991);
	assert_true(op[1].has_bytes && op[1].bytes == 0 && op[1].workspace == 77);
	assert_true(op[1].op_class == TC_ATTENTION && op[1].layer == TC_NONE);
	assert_true(op[2].recompute && !op[2].timed && op[2].phase == TC_BACKWARD);
	assert_true(op[2].write_ranges[0].offset == 32 && op[2].write_ranges[0].bytes == 32);
	assert_ids(op[2].frees, TEST_IDS(9, 10));
	assert_ids(op[2].frees_eager, TEST_IDS(10));
	assert_true(!op[3].recompute && op[3].module == TC_NONE && op[3].phase == TC_OPTIMIZER);
	assert_true(op[4].op_class == TC_OPTIMIZER_OP && op[5].phase == TC_ZERO_GRAD);
	assert_true(op[6].phase == TC_OTHER && op[6].op_class == TC_COMMUNICATION);
	assert_true(op[6].measured_ps == 12345678000000);
}

static void every_field_arrives(void **state)
{
	(void)state;
	static const char *const paths[] = {VALID "everything.jsonl", VALID "everything.json"};
	for (size_t i = 0; i < 2; i++) {
		struct tc_trace *trace = read_trace(paths[i]);
		check_header(trace);
		check_tensors(trace);
		check_modules_and_events(trace);
		check_ops(trace);
		assert_int_equal(trace->warning_count, 0);
		assert_string_equal(trace->file_name, paths[i]);
		tc_trace_free(trace);
	}
}

/**
 * Traffic without `bytes`: a gather counts what it gives out twice (op 0 writes 2^50 bytes), op 2
 * reads 1 byte and writes a range of 32, op 4 reads 64 + 64 + 3 x 128 + 4 and writes 64 + 3 x 128
 * + 4.
 */
static void traffic_of_ops(void **state)
{
	(void)state;
	struct tc_trace *trace = read_trace(VALID "everything.jsonl");
	assert_true(tc_op_traffic_bytes(trace, &trace->ops[0]) == 2ull << 50);
	assert_int_equal(tc_op_traffic_bytes(trace, &trace->ops[1]), 0);
	assert_int_equal(tc_op_traffic_bytes(trace, &trace->ops[2]), 33);
	assert_int_equal(tc_op_traffic_bytes(trace, &trace->ops[4]), 516 + 452);
	tc_trace_free(trace);
}

/* ---------------------------------------------------------------- files */

/** The well-known digest of "abc" (FIPS 180-2, B.1). */
static void hash_of_abc(void **state)
{
	(void)state;
	char text[TCI_SHA256_TEXT_BYTES];
	assert_int_equal(tci_sha256_of("abc", 3, text, NULL), TC_OK);
	assert_string_equal(text,
	                    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/** Gzip `bytes` as `members` members, one after the other, into a temporary file. */
static void write_gzip(const char *path, const char *data, size_t bytes, size_t members)
{
	FILE *file = fopen(path, "wb");
	assert_non_null(file);
	for (size_t i = 0; i < members; i++) {
		size_t begin = bytes * i / members, end = bytes * (i + 1) / members;
		size_t room = compressBound(end - begin) + 64;
		unsigned char *out = malloc(room);
		z_stream stream = {0};
		assert_int_equal(
		    deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
		stream.next_in = (Bytef *)(uintptr_t)(data + begin);
		stream.avail_in = (uInt)(end - begin);
		stream.next_out = out;
		stream.avail_out = (uInt)room;
		assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
		assert_int_equal(fwrite(out, 1, room - stream.avail_out, file),
		                 room - stream.avail_out);
		deflateEnd(&stream);
		free(out);
	}
	fclose(file);
}

/** A gzipped trace is the same trace: same content, same hash (of the decompressed bytes). */
static void gzip_is_transparent(void **state)
{
	(void)state;
	size_t bytes;
	char *data = test_read_file(VALID "everything.jsonl", &bytes);
	char hash[TCI_SHA256_TEXT_BYTES], path[] = "/tmp/tencache-trace-XXXXXX";
	assert_int_equal(tci_sha256_of(data, bytes, hash, NULL), TC_OK);
	int file = mkstemp(path);
	assert_true(file >= 0);
	close(file);
	for (size_t members = 1; members <= 3; members++) {
		write_gzip(path, data, bytes, members);
		struct tc_trace *trace = read_trace(path);
		check_ops(trace);
		assert_string_equal(trace->sha256, hash);
		tc_trace_free(trace);
	}
	unlink(path);
	free(data);
}

static void name_without_model(void **state)
{
	(void)state;
	struct tc_trace *trace = read_trace(VALID "mm.jsonl");
	assert_string_equal(trace->name, "mm");
	assert_string_equal(trace->checkpoint_mode, "none");
	assert_int_equal(trace->compute_dtype, TC_DTYPE_UNKNOWN);
	assert_false(trace->has_clip);
	tc_trace_free(trace);
}

/** CRLF line ends, blank lines and a missing last line feed are all white space of JSON. */
static void white_space_does_not_matter(void **state)
{
	(void)state;
	size_t bytes, used = 0;
	char *data = test_read_file(VALID "mm.jsonl", &bytes);
	char *crlf = malloc(3 * bytes + 8);
	for (size_t i = 0; i < bytes - 1; i++) {
		if (data[i] == '\n') {
			memcpy(crlf + used, "\r\n\n", 3);
			used += 3;
		} else {
			crlf[used++] = data[i];
		}
	}
	struct tc_trace *trace = NULL;
	struct tc_error error = {0};
	assert_int_equal(tc_trace_parse(crlf, used, "crlf", &trace, &error), TC_OK);
	assert_int_equal(trace->op_count, 3);
	tc_trace_free(trace);
	free(crlf);
	free(data);
}

/* ---------------------------------------------------------------- warnings */

/** Warnings do not refuse: an unused tensor, phases that go back, streams and devices. */
static void warnings_are_kept(void **state)
{
	(void)state;
	struct test_builder *builder = test_builder_new();
	test_add_tensor(builder, TC_PARAM, 4);
	for (int i = 0; i < 25; i++)
		test_add_tensor(builder, TC_BUFFER, 8);
	test_add_op(builder, TC_BACKWARD, TC_NONE, TEST_IDS(0), TEST_NO_IDS);
	test_add_op(builder, TC_FORWARD, TC_NONE, TEST_IDS(0), TEST_NO_IDS);
	struct tc_trace *trace = test_builder_trace(builder);
	/* One for the order, 19 of 25 for tensors, the other 6 counted. */
	assert_int_equal(trace->warning_count, 20);
	assert_int_equal(trace->warnings_suppressed, 6);
	assert_non_null(strstr(trace->warnings[0], "a forward op after a backward op"));
	assert_non_null(
	    strstr(trace->warnings[1], "tensor 1: no op reads or writes this buffer of 8 bytes"));
	tc_trace_free(trace);
	test_builder_free(builder);
}

/* ---------------------------------------------------------------- larger ones */

/** The trace that the format's description shows, where the folder is there. */
static void hand_made_example(void **state)
{
	(void)state;
	if (access(TENCACHE_CASES_DIR "/trace-v1/mlp.json", R_OK) != 0) {
		print_message("skipped: no cases\n");
		skip();
	}
	struct tc_trace *trace = read_trace(TENCACHE_CASES_DIR "/trace-v1/mlp.json");
	assert_string_equal(trace->name, "mlp");
	assert_int_equal(trace->tensor_count, 24);
	assert_int_equal(trace->op_count, 15);
	assert_int_equal(trace->bucket_count, 4);
	assert_string_equal(trace->events_sha256,
	                    "96e5f3989f008921a0a35a6dbc8da12d0ea0aa03be24281eb767b20d6c8c1ecd");
	tc_trace_free(trace);
}

/** Every shipped trace passes every rule; its parameters sum up to what the header says. */
static void shipped_traces_are_right(void **state)
{
	(void)state;
	static const char *const names[] = {"opt13b.json", "opt13b-full.jsonl.gz",
	                                    "opt6.7b-paper.jsonl.gz", "opt13b-paper.jsonl.gz",
	                                    "gpt2.jsonl.gz"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		char path[512];
		snprintf(path, sizeof path, "%s/traces/%s", TENCACHE_SOURCE_DIR, names[i]);
		struct tc_trace *trace = read_trace(path);
		uint64_t elements = 0;
		for (uint32_t t = 0; t < trace->tensor_count; t++) {
			if (trace->tensors[t].kind == TC_PARAM)
				elements += trace->tensors[t].bytes /
				            tc_dtype_bytes(trace->tensors[t].dtype);
		}
		assert_true(elements == trace->model_parameters);
		assert_int_equal(trace->warning_count, 0);
		tc_trace_free(trace);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_field_arrives),
	    cmocka_unit_test(traffic_of_ops),
	    cmocka_unit_test(hash_of_abc),
	    cmocka_unit_test(gzip_is_transparent),
	    cmocka_unit_test(name_without_model),
	    cmocka_unit_test(white_space_does_not_matter),
	    cmocka_unit_test(warnings_are_kept),
	    cmocka_unit_test(hand_made_example),
	    cmocka_unit_test(shipped_traces_are_right),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
