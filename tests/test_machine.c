/* Machine descriptions: what is refused and why, overrides, hashes, curves, times.
 * Times are worked out by hand next to each check; the curve's expected fit is the published one
 * of cuda-oxide#976. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "hash.h"
#include "machine_fields.h"
#include "random.h"
#include "small_machine.h"

static const char complete[] = SMALL_MACHINE_JSON;

/** `complete` with the first `from` replaced by `to`; free(). */
static char *edited(const char *from, const char *to)
{
	const char *at = strstr(complete, from);
	assert_non_null(at);
	char *text = malloc(sizeof complete + strlen(to));
	assert_non_null(text);
	size_t before = (size_t)(at - complete);
	(void)sprintf(text, "%.*s%s%s", (int)before, complete, to, at + strlen(from));
	return text;
}

static void refuse_text(const char *json, size_t bytes, const char *part)
{
	struct tc_error error = {0};
	struct tc_machine *machine = NULL;
	enum tc_status status = tc_machine_parse(json, bytes, "bad.json", &machine, &error);
	if (status == TC_OK || strstr(error.text, part) == NULL ||
	    strstr(error.text, "bad.json") == NULL)
		fail_msg("status %s, message \"%s\", wanted \"%s\"", tc_status_name(status),
		         error.text, part);
	assert_null(machine);
}

static void refuse(const char *from, const char *to, const char *part)
{
	char *json = edited(from, to);
	refuse_text(json, strlen(json), part);
	free(json);
}

static void test_values(void **state)
{
	(void)state;
	struct tc_machine *m = small_machine_parse(complete);
	assert_string_equal(m->name, "small");
	assert_int_equal(m->capacity_bytes[TC_GPU], 1000000000);
	assert_int_equal(m->framework_bytes[TC_GPU], 1000);
	/* Peak times efficiency: 2e9 x 0.5 and 8e9 x 0.25. */
	assert_int_equal(m->flops_per_s[TC_FLOAT32][TC_GEMM], 1000000000);
	assert_int_equal(m->flops_per_s[TC_FLOAT16][TC_ELEMENTWISE], 2000000000);
	assert_int_equal(m->flops_per_s[TC_BFLOAT16][TC_GEMM], 0);
	assert_int_equal(m->memory_bytes_per_s[TC_COPY], 250000000);
	assert_int_equal(m->launch_ps, 5000000);
	assert_int_equal(m->h2d.latency_ps, 3000000);
	/* Two striped drives: capacity, rates and endurance are sums. */
	assert_int_equal(m->capacity_bytes[TC_NVME], 16000000000);
	assert_int_equal(m->nvme_read.bytes_per_s, 600000000);
	assert_int_equal(m->nvme_write.bytes_per_s, 400000000);
	assert_int_equal(m->nvme_endurance_bytes, 1200000000000);
	/* Defaults of the format. */
	assert_int_equal(m->chunk_bytes, 16 << 20);
	assert_int_equal(m->pageable_ppm, 500000);
	assert_int_equal(m->pinned_rounding, TC_PINNED_EXACT);
	for (int q = 0; q < TC_QUEUE_COUNT; ++q)
		assert_int_equal(m->lanes[q], 1);
	/* One value says low, the head medium: the lowest counts. */
	assert_int_equal(m->confidence, TC_CONFIDENCE_LOW);
	size_t count;
	const struct tc_machine_value *values = tc_machine_values(m, &count);
	bool seen = false;
	for (size_t i = 0; i < count; ++i) {
		if (strcmp(values[i].path, "host.adam_parameters_per_s_per_core") == 0) {
			assert_string_equal(values[i].source, "measured by hand");
			seen = true;
		}
	}
	assert_true(seen);
	tc_machine_free(m);
}

static void test_refused(void **state)
{
	(void)state;
	refuse("\"bytes_per_s\":1000000000,\"latency_ns\"", "\"bytes_per_s\":0,\"latency_ns\"",
	       "link.h2d.bytes_per_s is 0");
	refuse("\"capacity_bytes\":1000000000", "\"capacity_bytes\":0", "gpu.capacity_bytes is 0");
	refuse("\"capacity_bytes\":1000000000,", "", "gpu.capacity_bytes is missing");
	refuse("\"capacity_bytes\":1000000000", "\"capacity_bytes\":-5",
	       "gpu.capacity_bytes is -5");
	refuse("\"capacity_bytes\":1000000000", "\"capacity_bytes\":1e9", "plain integer");
	refuse("\"capacity_bytes\":1000000000", "\"capacity_bytes\":\"1G\"", "is a string");
	refuse("\"capacity_bytes\":1000000000", "\"capacity_bytes\":9007199254740992",
	       "9007199254740992");
	refuse("\"capacity_bytes\":1000000000", "\"capacity_bytes\":99999999999999999999", "big");
	refuse("\"capacity_bytes\":1000000000", "\"capacity_bytes\":NaN", "not a machine");
	refuse("\"capacity_bytes\":1000000000", "\"capasity_bytes\":1000000000",
	       "did you mean \"gpu.capacity_bytes\"");
	refuse("\"host\":{", "\"hosts\":{", "did you mean \"host\"");
	refuse("\"host\":{", "\"host\":7,\"x_\":{", "host is an integer; expected an object");
	refuse("\"framework_bytes\":1000,", "\"framework_bytes\":1000000000,", "leaves nothing");
	refuse("\"source\":\"a test\",", "", "\"source\" is missing");
	refuse("\"confidence\":\"medium\"", "\"confidence\":\"sure\"", "low, medium or high");
	refuse("\"version\":1", "\"version\":2", "version 2");
	refuse("\"format\":\"tencache-machine\"", "\"format\":\"tencache-trace\"",
	       "tencache-trace");
	refuse("\"cores\":4", "\"cores\":4,\"cores\":5", "duplicate");
	refuse("\"cores\":4", "\"cores\":{\"valeu\":4}", "\"valeu\"");
	refuse("\"cores\":4", "\"cores\":{\"source\":\"here\"}", "lacks the key \"value\"");
	refuse("\"gemm\":500000", "\"gemm\":1000001", "1000001");
	refuse("\"float32\":2000000000,\"float16\":8000000000", "", "names no data type");
	refuse("\"drives\":2", "\"drives\":8,\"striped\":false", "lanes");
	refuse("\"drives\":2", "\"drives\":5000000000", "nvme.drives");
	refuse("\"drives\":2", "\"drives\":2,\"striped\":1", "true or false");
	refuse("\"bytes_per_s\":1000000000,\"latency_ns\"",
	       "\"curve\":[[1,1],[2,1]],\"bytes_per_s\":1,\"latency_ns\"", "one or the other");
	refuse("\"bytes_per_s\":1000000000,\"latency_ns\":3000", "\"curve\":[[2,1],[1,1]]",
	       "ascend");
	refuse("\"bytes_per_s\":1000000000,\"latency_ns\":3000", "\"curve\":[[2,1]]", "2 ... 64");
	refuse_text("", 0, "not a machine description");
	refuse_text("{", 1, "not a machine description");
	refuse_text("[1,2]", 5, "JSON object");
	refuse_text("\xff\x00\x01\x02", 4, "not a machine description");
	/* Every prefix of a sound description is refused, none crashes. */
	for (size_t bytes = 0; bytes + 1 < sizeof complete - 1; ++bytes)
		refuse_text(complete, bytes, "not a machine description");
	char deep[5000];
	memset(deep, '[', sizeof deep);
	refuse_text(deep, sizeof deep, "not a machine description");
}

/** Random damage is refused or accepted, but never more than that (run under sanitizers). */
static void test_damaged(void **state)
{
	(void)state;
	uint64_t seed = 20251114;
	unsigned refused = 0;
	for (unsigned round = 0; round < 3000; ++round) {
		char json[sizeof complete];
		memcpy(json, complete, sizeof complete);
		for (uint64_t n = 1 + test_random_below(&seed, 4); n > 0; --n)
			json[test_random_below(&seed, sizeof complete - 1)] =
			    "{}[]\",:019-.eax\xff"[test_random_below(&seed, 17)];
		struct tc_error error = {0};
		struct tc_machine *machine = NULL;
		if (tc_machine_parse(json, sizeof complete - 1, "damaged", &machine, &error) ==
		    TC_OK) {
			assert_true(machine->h2d.bytes_per_s > 0 &&
			            machine->capacity_bytes[TC_GPU] > 0);
			tc_machine_free(machine);
		} else {
			assert_null(machine);
			assert_true(*error.text != '\0');
			++refused;
		}
	}
	assert_true(refused > 2000);
}

static void test_files_refused(void **state)
{
	(void)state;
	struct tc_machine *m = NULL;
	static const struct {
		const char *name, *part;
	} cases[] = {{"/no/such/file.json", "cannot open"},
	             {TENCACHE_SOURCE_DIR "/tests/", "cannot read"},
	             {"a100-4O", "did you mean \"a100-40\""},
	             {"a100", "did you mean \"a100-40\""},
	             {"h10", "did you mean \"h100\""},
	             {"", "unknown machine"},
	             {"completely-else", "presets: a100-40"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
		struct tc_error error = {0};
		assert_int_not_equal(tc_machine_load(cases[i].name, NULL, &m, &error), TC_OK);
		if (strstr(error.text, cases[i].part) == NULL)
			fail_msg("\"%s\": %s", cases[i].name, error.text);
	}
}

static void test_lanes_of_drives(void **state)
{
	(void)state;
	char *json = edited("\"drives\":2", "\"drives\":3,\"striped\":false");
	struct tc_machine *m = small_machine_parse(json);
	assert_int_equal(m->lanes[TC_QUEUE_NVME_READ], 3);
	assert_int_equal(m->lanes[TC_QUEUE_NVME_WRITE], 3);
	/* A lane for each drive: the rate is that of one. */
	assert_int_equal(m->nvme_read.bytes_per_s, 300000000);
	assert_int_equal(m->capacity_bytes[TC_NVME], 24000000000);
	tc_machine_free(m);
	free(json);
}

static void test_without_drive(void **state)
{
	(void)state;
	const char *from = strstr(complete, ",\"nvme\":{");
	const char *to = strstr(complete, ",\"x_note\"");
	char json[sizeof complete];
	(void)sprintf(json, "%.*s%s", (int)(from - complete), complete, to);
	struct tc_machine *m = small_machine_parse(json);
	assert_int_equal(m->capacity_bytes[TC_NVME], 0);
	assert_int_equal(m->nvme_drives, 0);
	tc_machine_free(m);
}

/** The hash is that of the JSON printed compactly with sorted keys. */
static void expect_hash(const struct tc_machine *m)
{
	struct tc_error error = {0};
	char *pretty = tc_machine_json(m), wanted[TCI_SHA256_TEXT_BYTES];
	assert_non_null(pretty);
	json_t *root = json_loads(pretty, 0, NULL);
	char *compact = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
	assert_non_null(compact);
	assert_int_equal(tci_sha256_of(compact, strlen(compact), wanted, &error), TC_OK);
	assert_string_equal(m->sha256, wanted);
	free(compact);
	json_decref(root);
	free(pretty);
}

static void test_override(void **state)
{
	(void)state;
	struct tc_error error = {0};
	struct tc_machine *m = small_machine_parse(complete);
	expect_hash(m);
	char before[65];
	strcpy(before, m->sha256);
	assert_int_equal(tc_machine_override(m, "gpu-memory", "24GiB", &error), TC_OK);
	assert_int_equal(m->capacity_bytes[TC_GPU], 24ull << 30);
	assert_string_not_equal(m->sha256, before);
	expect_hash(m);
	assert_int_equal(tc_machine_override(m, "nvme-read", "3.2GB/s", &error), TC_OK);
	assert_int_equal(m->nvme_read.bytes_per_s, 6400000000);
	assert_int_equal(tc_machine_override(m, "adam-rate", "2e7", &error), TC_OK);
	/* The only low value is gone; the head's medium remains. */
	assert_int_equal(m->confidence, TC_CONFIDENCE_MEDIUM);
	assert_int_equal(tc_machine_override(m, "price", "1.25", &error), TC_OK);
	assert_int_equal(m->price_per_hour_micro_usd, 1250000);
	assert_int_equal(tc_machine_override(m, "pinned-rounding", "pow2", &error), TC_OK);
	assert_int_equal(m->pinned_rounding, TC_PINNED_POW2);
	assert_int_equal(tc_machine_override(m, "gpu.flops_per_s.bfloat16", "1e12", &error), TC_OK);
	assert_int_equal(m->flops_per_s[TC_BFLOAT16][TC_GEMM], 500000000000);
	assert_int_equal(tc_machine_override(m, "nvme-striped", "no", &error), TC_OK);
	assert_int_equal(m->lanes[TC_QUEUE_NVME_READ], 2);
	assert_string_equal(error.text, "");
	tc_machine_free(m);
}

/** Together they make a machine, one after the other they would not: the GPU is smaller than what
 * the framework takes in the description, and a drive needs all its values. */
static void test_override_all(void **state)
{
	(void)state;
	const struct tc_machine_setting settings[] = {
	    {"gpu-memory", "900"},  {"gpu-framework", "0"},  {"nvme-drives", "3"},
	    {"nvme-read", "2GB/s"}, {"nvme-write", "1GB/s"}, {"nvme-capacity", "1T"},
	    {"gpu-memory", "800"},
	};
	struct tc_error error = {0};
	char *without_drives = edited("\"nvme\":{", "\"x_nvme\":{");
	struct tc_machine *m = small_machine_parse(without_drives);
	const uint64_t before = m->capacity_bytes[TC_GPU];
	if (tc_machine_override_all(m, settings, sizeof settings / sizeof *settings, &error) !=
	    TC_OK)
		fail_msg("%s", error.text);
	expect_hash(m);
	assert_int_equal(m->capacity_bytes[TC_GPU], 800); /* the later of two */
	assert_int_equal(m->framework_bytes[TC_GPU], 0);
	assert_int_equal(m->nvme_read.bytes_per_s, 6000000000);
	tc_machine_free(m);
	/* All or nothing. */
	const struct tc_machine_setting bad[] = {{"gpu-memory", "100G"}, {"nvme-read", "0"}};
	m = small_machine_parse(without_drives);
	free(without_drives);
	assert_int_not_equal(tc_machine_override_all(m, bad, 2, &error), TC_OK);
	assert_int_equal(m->capacity_bytes[TC_GPU], before);
	tc_machine_free(m);
}

static void test_override_refused(void **state)
{
	(void)state;
	static const struct {
		const char *name, *value, *part;
	} cases[] = {{"gpu-memroy", "1G", "did you mean \"gpu-memory\""},
	             {"gpu.flops_per_s.flaot16", "1", "gpu.flops_per_s.float16"},
	             {"gpu-memory", "0", "gpu.capacity_bytes is 0"},
	             {"gpu-memory", "-1", "negative"},
	             {"gpu-memory", "24Gb", "bits"},
	             {"gpu-memory", "500", "leaves nothing"},
	             {"h2d", "0", "link.h2d.bytes_per_s is 0"},
	             {"nvme-striped", "maybe", "neither yes nor no"},
	             {"pinned-rounding", "half", "exact"},
	             {"cores", "1.5", "whole number"},
	             {"dram-weight", "17", "expected 1 to 16"},
	             {"gpu-memory", "10P", "largest"}};
	struct tc_machine *m = small_machine_parse(complete);
	char before[65];
	strcpy(before, m->sha256);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
		struct tc_error error = {0};
		assert_int_not_equal(tc_machine_override(m, cases[i].name, cases[i].value, &error),
		                     TC_OK);
		if (strstr(error.text, cases[i].part) == NULL)
			fail_msg("%s=%s: %s", cases[i].name, cases[i].value, error.text);
		/* Nothing has changed. */
		assert_string_equal(m->sha256, before);
		assert_int_equal(m->capacity_bytes[TC_GPU], 1000000000);
	}
	tc_machine_free(m);
}

/** Each option changes the description: none is parsed and then unused. */
static void test_every_option_counts(void **state)
{
	(void)state;
	size_t count;
	const struct tc_machine_override_name *options = tc_machine_override_names(&count);
	assert_true(count > 25);
	for (size_t i = 0; i < count; ++i) {
		struct tc_error error = {0};
		struct tc_machine *m = small_machine_parse(complete),
		                  *plain = small_machine_parse(complete);
		/* What the engine and the planner read: from the capacities to the lanes. */
		size_t from = offsetof(struct tc_machine, capacity_bytes);
		size_t bytes = offsetof(struct tc_machine, storage) - from;
		assert_memory_equal((char *)m + from, (char *)plain + from, bytes);
		const char *value = strcmp(options[i].unit, "yes|no") == 0       ? "no"
		                    : strcmp(options[i].unit, "exact|pow2") == 0 ? "pow2"
		                    : strcmp(options[i].unit, "factor") == 0     ? "0.25"
		                                                                 : "7777";
		if (strcmp(options[i].name, "gpu-direct") == 0)
			value = "yes";
		if (strcmp(options[i].name, "nvme-drives") == 0)
			value = "3";
		if (strcmp(options[i].name, "dram-weight") == 0)
			value = "2";
		if (tc_machine_override(m, options[i].name, value, &error) != TC_OK)
			fail_msg("%s=%s: %s", options[i].name, value, error.text);
		if (memcmp((char *)m + from, (char *)plain + from, bytes) == 0)
			fail_msg("%s changes nothing", options[i].name);
		tc_machine_free(plain);
		tc_machine_free(m);
	}
}

static void test_curve(void **state)
{
	(void)state;
	/* cuda-oxide#976, RTX 4090, pinned: 1, 4, 16, 64 MiB at 22.51, 23.57, 23.85, 23.90 GB/s are
	 * described as 2.8 us + n / 23.95 GB/s to better than 0.1 %. */
	static const struct tci_curve_point points[] = {{1 << 20, 22510000000},
	                                                {4 << 20, 23570000000},
	                                                {16 << 20, 23850000000},
	                                                {64 << 20, 23900000000}};
	uint64_t latency, rate;
	assert_true(tci_curve_fit(points, 4, &latency, &rate));
	assert_true(latency > 2600 && latency < 3000);
	assert_true(rate > 23900000000 && rate < 24000000000);
	for (size_t i = 0; i < 4; ++i) {
		double measured = (double)points[i].bytes / (double)points[i].bytes_per_s;
		double fitted = (double)latency * 1e-9 + (double)points[i].bytes / (double)rate;
		assert_true(fitted / measured < 1.001 && fitted / measured > 0.999);
	}
	/* Exact: 1 us + n / 1 GB/s at 1 kB and 9 kB: 2 us (500 MB/s) and 10 us (900 MB/s). */
	static const struct tci_curve_point exact[] = {{1000, 500000000}, {9000, 900000000}};
	assert_true(tci_curve_fit(exact, 2, &latency, &rate));
	assert_int_equal(latency, 1000);
	assert_int_equal(rate, 1000000000);
	/* A rate that falls with size has no latency. */
	static const struct tci_curve_point falling[] = {{1000, 1000000}, {2000, 500000}};
	assert_true(tci_curve_fit(falling, 2, &latency, &rate));
	assert_int_equal(latency, 0);
	static const struct tci_curve_point endless[] = {{1, 1}, {TC_MAX_JSON_INTEGER, 1}};
	assert_false(tci_curve_fit(endless, 2, &latency, &rate));

	char *json = edited("\"bytes_per_s\":1000000000,\"latency_ns\":3000",
	                    "\"curve\":{\"points\":[[1000,500000000],[9000,900000000]],"
	                    "\"source\":\"by hand\",\"confidence\":\"high\"}");
	struct tc_machine *m = small_machine_parse(json);
	assert_int_equal(m->h2d.bytes_per_s, 1000000000);
	assert_int_equal(m->h2d.latency_ps, 1000000);
	/* An override of the rate keeps the fitted latency. */
	struct tc_error error = {0};
	assert_int_equal(tc_machine_override(m, "h2d", "2GB/s", &error), TC_OK);
	assert_int_equal(m->h2d.bytes_per_s, 2000000000);
	assert_int_equal(m->h2d.latency_ps, 1000000);
	tc_machine_free(m);
	free(json);
}

static void test_transfer_times(void **state)
{
	(void)state;
	struct tc_machine *m = small_machine_parse(complete);
	/* 3 us + 1e6 B / 1e9 B/s = 1,003 us. */
	assert_int_equal(tc_machine_transfer_ps(m, TC_QUEUE_H2D, 1000000, false), 1003000000);
	/* Pageable: half the rate. */
	assert_int_equal(tc_machine_transfer_ps(m, TC_QUEUE_H2D, 1000000, true), 2003000000);
	/* 2e9 B/s down; rounded up: 1 B = 500 ps, 3 B at 0.6e9 B/s = 5,000 ps. */
	assert_int_equal(tc_machine_transfer_ps(m, TC_QUEUE_D2H, 1, false), 500);
	assert_int_equal(tc_machine_transfer_ps(m, TC_QUEUE_NVME_READ, 3, false), 5000);
	assert_int_equal(tc_machine_transfer_ps(m, TC_QUEUE_NVME_READ, 1, false), 1667);
	struct tc_error error = {0};
	/* DRAM of 0.5e9 B/s limits every copy. */
	assert_int_equal(tc_machine_override(m, "dram", "500M", &error), TC_OK);
	assert_int_equal(tc_machine_transfer_ps(m, TC_QUEUE_D2H, 1000, false), 2000000);
	tc_machine_free(m);
}

static void test_cpu_times(void **state)
{
	(void)state;
	struct tc_machine *m = small_machine_parse(complete);
	/* 4 cores x 1e7 = 4e7/s; DRAM 2.8e9 / 28 = 1e8/s: the cores limit, 1e6 take 25 ms. */
	assert_int_equal(tc_machine_cpu_ps(m, 1000000, 28000000), 25000000000);
	assert_int_equal(tc_machine_cpu_ps(m, 1000000, 0), 25000000000);
	struct tc_error error = {0};
	assert_int_equal(tc_machine_override(m, "cores", "100", &error), TC_OK);
	/* Now memory limits: 28e6 B / 2.8e9 B/s = 10 ms. */
	assert_int_equal(tc_machine_cpu_ps(m, 1000000, 28000000), 10000000000);
	assert_int_equal(tc_machine_override(m, "cores", "1", &error), TC_OK);
	/* A convert of 1e6 B by one core at 0.5e9 B/s: 2 ms. */
	assert_int_equal(tc_machine_cpu_ps(m, 0, 1000000), 2000000000);
	tc_machine_free(m);
}

/** The shipped presets load, and each of their values has a source of its own. */
static void test_presets(void **state)
{
	(void)state;
	static const char *const wanted[] = {"a100-40", "a100-80", "h100",
	                                     "l40s",    "rtx4090", "v100-32"};
	struct tc_error error = {0};
	char **names;
	size_t count;
	const char *directory = TENCACHE_SOURCE_DIR "/sim/machines";
	assert_int_equal(tc_machine_names(directory, &names, &count, &error), TC_OK);
	assert_int_equal(count, 6);
	for (size_t i = 0; i < count; ++i) {
		assert_string_equal(names[i], wanted[i]);
		struct tc_machine *m = NULL;
		if (tc_machine_load(names[i], directory, &m, &error) != TC_OK)
			fail_msg("%s", error.text);
		assert_string_equal(m->name, names[i]);
		assert_true(*m->summary != '\0');
		size_t values;
		const struct tc_machine_value *value = tc_machine_values(m, &values);
		for (size_t k = 0; k < values; ++k)
			if (!value[k].is_default && strcmp(value[k].source, m->source) == 0)
				fail_msg("%s: %s has no source of its own", names[i],
				         value[k].path);
		tc_machine_free(m);
	}
	tc_machine_names_free(names, count);
}

/** The format page; the buffer has PAGE_BYTES. */
#define PAGE_BYTES 32768
static void read_page(char *page)
{
	FILE *file = fopen(TENCACHE_SOURCE_DIR "/sim/machines/README.md", "rb");
	assert_non_null(file);
	size_t bytes = fread(page, 1, PAGE_BYTES - 1, file);
	(void)fclose(file);
	page[bytes] = '\0';
}

/** The example of the format page is a machine, and the page names every option. */
static void test_page(void **state)
{
	(void)state;
	char page[PAGE_BYTES], option[80];
	size_t count;
	read_page(page);
	const struct tc_machine_override_name *options = tc_machine_override_names(&count);
	for (size_t i = 0; i < count; ++i) {
		(void)snprintf(option, sizeof option, "`--%s`", options[i].name);
		if (strstr(page, option) == NULL)
			fail_msg("the page does not name %s", option);
	}
	char *from = strstr(page, "```json\n{\n");
	assert_non_null(from);
	from += strlen("```json\n");
	char *to = strstr(from, "```");
	assert_non_null(to);
	*to = '\0';
	struct tc_machine *m = small_machine_parse(from);
	assert_string_equal(m->name, "my-box");
	tc_machine_free(m);
}

/** The default machine is what the documentation promises. */
static void test_default_machine(void **state)
{
	(void)state;
	struct tc_error error = {0};
	struct tc_machine *m = NULL;
	assert_int_equal(
	    tc_machine_load(TC_DEFAULT_MACHINE, TENCACHE_SOURCE_DIR "/sim/machines", &m, &error),
	    TC_OK);
	assert_int_equal(m->capacity_bytes[TC_CPU], 512000000000);
	assert_int_equal(m->nvme_drives, 2);
	assert_int_equal(m->nvme_read.bytes_per_s, 6400000000);
	assert_int_equal(m->nvme_write.bytes_per_s, 6400000000);
	assert_int_equal(m->cpu_cores, 32);
	assert_int_equal(m->adam_parameters_per_s_per_core, 270000000);
	assert_int_equal(m->dram_bytes_per_s, 150000000000);
	assert_int_equal(m->framework_bytes[TC_GPU], 1ull << 30);
	assert_int_equal(m->framework_bytes[TC_CPU], 16ull << 30);
	assert_int_equal(m->pin_bytes_per_s, 1070000000);
	assert_int_equal(m->confidence, TC_CONFIDENCE_LOW);
	/* A card of 40 GiB less what ECC and driver take. */
	assert_true(m->capacity_bytes[TC_GPU] > 39ull << 30);
	assert_true(m->capacity_bytes[TC_GPU] < 40ull << 30);
	tc_machine_free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_values),
	    cmocka_unit_test(test_refused),
	    cmocka_unit_test(test_damaged),
	    cmocka_unit_test(test_files_refused),
	    cmocka_unit_test(test_lanes_of_drives),
	    cmocka_unit_test(test_without_drive),
	    cmocka_unit_test(test_override),
	    cmocka_unit_test(test_override_all),
	    cmocka_unit_test(test_override_refused),
	    cmocka_unit_test(test_every_option_counts),
	    cmocka_unit_test(test_curve),
	    cmocka_unit_test(test_transfer_times),
	    cmocka_unit_test(test_cpu_times),
	    cmocka_unit_test(test_presets),
	    cmocka_unit_test(test_page),
	    cmocka_unit_test(test_default_machine),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
