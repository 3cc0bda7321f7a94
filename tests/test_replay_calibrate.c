/*
 * Calibration: medians worked out by hand; a quick run whose file loads, says where each value is
 * from and agrees with itself; manners of the command line; nothing is left when interrupted.
 * No test expects a speed.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "calibrate.h"
#include "calibrate_parts.h"
#include "files.h"
#include "folders.h"
#include "tencache/simulate.h"
#include "trace_builder.h"

struct folder {
	char path[64], drive[96], file[96];
};

static int set_up(void **state)
{
	struct folder *folder = calloc(1, sizeof *folder);
	assert_non_null(folder);
	strcpy(folder->path, "calibrate-test-XXXXXX");
	assert_non_null(mkdtemp(folder->path));
	(void)snprintf(folder->drive, sizeof folder->drive, "%s/nvme", folder->path);
	(void)snprintf(folder->file, sizeof folder->file, "%s/this-machine.json", folder->path);
	assert_int_equal(mkdir(folder->drive, 0777), 0);
	*state = folder;
	return 0;
}

static size_t files_in(const char *path)
{
	size_t count;
	char **names = test_list_folder(path, &count);
	test_free_names(names, count);
	return count;
}

static int tear_down(void **state)
{
	struct folder *folder = *state;
	(void)remove(folder->file);
	/* Nothing remains where drives were measured, and nothing beside the description. */
	assert_int_equal(files_in(folder->drive), 0);
	assert_int_equal(rmdir(folder->drive), 0);
	assert_int_equal(files_in(folder->path), 0);
	assert_int_equal(rmdir(folder->path), 0);
	free(folder);
	return 0;
}

/** Run the verb with these arguments, the last one NULL. Its table goes nowhere. */
static int calibrate(const char *const *arguments)
{
	char *argv[16] = {"calibrate"};
	int argc = 1;
	for (; arguments[argc - 1] != NULL; ++argc)
		argv[argc] = (char *)arguments[argc - 1];
	(void)fflush(stdout);
	int kept = dup(STDOUT_FILENO);
	assert_non_null(freopen("/dev/null", "w", stdout));
	int code = tci_replay_calibrate(argc, argv);
	(void)fflush(stdout);
	assert_int_equal(dup2(kept, STDOUT_FILENO), STDOUT_FILENO);
	(void)close(kept);
	return code;
}

/* ---------------------------------------------------------------- medians */

/*
 * Sorted: 10 20 30 40 50 60 70. The middle one is 40; leaving out a quarter of seven samples, one,
 * at each end leaves 20 ... 60: a width of 40, all of the median. Of three nothing is left out: 100
 * ... 130 is 30 of 120, a quarter.
 */
static void test_medians(void **state)
{
	(void)state;
	struct tci_samples seven = {{70, 10, 40, 30, 60, 20, 50}, 7}, three = {{130, 100, 120}, 3};
	struct tci_samples one = {{7}, 1}, none = {{0}, 0};
	struct tci_measured measured = tci_samples_median(&seven);
	assert_int_equal(measured.value, 40);
	assert_int_equal(measured.samples, 7);
	assert_int_equal(measured.spread_ppm, 1000000);
	assert_int_equal(seven.values[0], 70); /* left as it was */
	measured = tci_samples_median(&three);
	assert_int_equal(measured.value, 120);
	assert_int_equal(measured.spread_ppm, 250000);
	measured = tci_samples_median(&one);
	assert_int_equal(measured.value, 7);
	assert_int_equal(measured.spread_ppm, 0);
	assert_int_equal(tci_samples_median(&none).samples, 0);
}

/** 3 GB in 1.5 s are 2 GB/s; a rate is never zero, and never larger than JSON keeps. */
static void test_rates(void **state)
{
	(void)state;
	assert_int_equal(tci_rate(3000000000, TC_PS_PER_S * 3 / 2), 2000000000);
	assert_int_equal(tci_rate(0, 1), 1);
	assert_int_equal(tci_rate(UINT64_MAX, 1), TC_MAX_JSON_INTEGER);
}

/* ---------------------------------------------------------------- the description */

static struct tc_machine *load(const char *name)
{
	struct tc_machine *machine = NULL;
	struct tc_error error = {0};
	if (tc_machine_load(name, TENCACHE_SOURCE_DIR "/sim/machines", &machine, &error) != TC_OK)
		fail_msg("%s", error.text);
	return machine;
}

static const struct tc_machine_value *value_at(const struct tc_machine *machine, const char *path)
{
	size_t count;
	const struct tc_machine_value *values = tc_machine_values(machine, &count);
	for (size_t i = 0; i < count; ++i)
		if (strcmp(values[i].path, path) == 0)
			return &values[i];
	fail_msg("no value %s", path);
	return NULL;
}

static void expect_measured(const struct tc_machine *machine, const char *path)
{
	const struct tc_machine_value *value = value_at(machine, path);
	if (value->is_default || value->number == 0)
		fail_msg("%s is absent or zero", path);
	if (strstr(value->source, "measured by tencache-replay calibrate: ") != value->source ||
	    strstr(value->source, "median") == NULL || strstr(value->source, "spread") == NULL)
		fail_msg("%s: source \"%s\"", path, value->source);
}

static void expect_assumed(const struct tc_machine *machine, const struct tc_machine *base,
                           const char *path)
{
	const struct tc_machine_value *value = value_at(machine, path);
	if (strstr(value->source, "assumed: as of a100-40") != value->source)
		fail_msg("%s: source \"%s\"", path, value->source);
	assert_int_equal(value->confidence, TC_CONFIDENCE_LOW);
	assert_int_equal(value->number, value_at(base, path)->number);
}

static const json_t *at(const json_t *value, const char *path)
{
	char copy[128];
	(void)snprintf(copy, sizeof copy, "%s", path);
	for (char *key = strtok(copy, "."); key != NULL; key = strtok(NULL, "."))
		value = json_object_get(value, key);
	if (value == NULL)
		fail_msg("the file lacks %s", path);
	return value;
}

/** Sizes ascend from 4 KiB, rates are positive, each has a spread, and the loader made a link of it.
 * How well that fits depends on what else the machine does, so no test asserts it: the spread in
 * the file tells. */
static void check_curve(const json_t *root, const char *path, struct tc_link link)
{
	const json_t *curve = at(root, path), *points = at(curve, "points");
	size_t count = json_array_size(points);
	assert_true(count >= 2);
	assert_int_equal(json_array_size(at(curve, "x_spread_ppm")), count);
	json_int_t before = 0;
	assert_true(link.bytes_per_s > 0);
	for (size_t i = 0; i < count; ++i) {
		const json_t *point = json_array_get(points, i);
		json_int_t bytes = json_integer_value(json_array_get(point, 0));
		json_int_t rate = json_integer_value(json_array_get(point, 1));
		assert_true(bytes > before && rate > 0);
		before = bytes;
	}
	assert_int_equal(json_integer_value(json_array_get(json_array_get(points, 0), 0)), 4096);
}

static json_t *read_json(const char *path)
{
	size_t bytes;
	json_error_t error;
	char *text = test_read_file(path, &bytes);
	assert_non_null(text);
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
	free(text);
	if (root == NULL)
		fail_msg("%s:%d: %s", path, error.line, error.text);
	return root;
}

static void check_sources(const struct tc_machine *machine, const struct tc_machine *base,
                          bool drives)
{
	static const char *const measured[] = {"link.h2d.bytes_per_s",
	                                       "link.d2h.bytes_per_s",
	                                       "link.duplex_bytes_per_s",
	                                       "link.pageable_ppm",
	                                       "gpu.launch_ns",
	                                       "host.dram_bytes_per_s",
	                                       "host.adam_parameters_per_s_per_core",
	                                       "host.stream_bytes_per_s_per_core",
	                                       "host.handover_ns.compute",
	                                       "host.handover_ns.other",
	                                       "host.pin_bytes_per_s"};
	static const char *const assumed[] = {"gpu.capacity_bytes",
	                                      "gpu.memory_bytes_per_s",
	                                      "gpu.memory_efficiency_ppm.copy",
	                                      "gpu.flops_per_s.float16",
	                                      "gpu.flops_efficiency_ppm.gemm",
	                                      "gpu.hook_ns",
	                                      "host.capacity_bytes",
	                                      "host.pinned_rounding",
	                                      "link.chunk_bytes",
	                                      "nvme.drive.capacity_bytes"};
	static const char *const drive[] = {"nvme.drive.read.bytes_per_s",
	                                    "nvme.drive.write.bytes_per_s",
	                                    "nvme.drive.mixed_bytes_per_s",
	                                    "host.handover_ns.drive"};
	for (size_t i = 0; i < sizeof measured / sizeof *measured; ++i)
		expect_measured(machine, measured[i]);
	for (size_t i = 0; i < sizeof assumed / sizeof *assumed; ++i)
		expect_assumed(machine, base, assumed[i]);
	for (size_t i = 0; i < sizeof drive / sizeof *drive && drives; ++i)
		expect_measured(machine, drive[i]);
	for (size_t i = 0; i < 2 && !drives; ++i)
		expect_assumed(machine, base, drive[i]);
	/* Nobody rents out this machine, and its drive has no data sheet here. */
	assert_true(value_at(machine, "price_per_hour_micro_usd")->is_default);
	if (drives)
		assert_true(value_at(machine, "nvme.drive.endurance_bytes")->is_default);
}

/** The description serves its purpose: a policy is simulated on it. */
static void check_use(const struct tc_machine *machine)
{
	struct tc_error error = {0};
	struct tc_trace *trace = test_random_trace(3, &(struct test_limits){0});
	struct tc_steps *steps;
	struct tc_policy_choice *policy;
	struct tc_result result;
	assert_int_equal(tc_steps_derive(trace, TC_GRANULARITY_MODULE, TC_REQUESTS_HOOK,
	                                 TC_FREES_LAST_USE, &steps, &error),
	                 TC_OK);
	assert_int_equal(tc_policy_parse("lru:state=nvme", &policy, &error), TC_OK);
	struct tc_simulation simulation = {.trace = trace,
	                                   .steps = steps,
	                                   .machine = machine,
	                                   .policy = policy,
	                                   .iterations = 2,
	                                   .audit = true};
	if (tc_simulate(&simulation, &result, &error) != TC_OK)
		fail_msg("%s", error.text);
	assert_int_equal(result.status, TC_OK);
	assert_true(result.iteration_ps > 0);
	assert_true(result.transfers[TC_QUEUE_NVME_READ].bytes > 0);
	tc_result_clear(&result);
	tc_policy_choice_free(policy);
	tc_steps_free(steps);
	tc_trace_free(trace);
}

static void check_file(const struct folder *folder, bool drives)
{
	struct tc_machine *machine = load(folder->file), *base = load("a100-40");
	json_t *root = read_json(folder->file);
	assert_string_equal(machine->name, "this-machine");
	assert_true(machine->cpu_cores > 0);
	check_sources(machine, base, drives);
	check_curve(root, "link.h2d.curve", machine->h2d);
	check_curve(root, "link.d2h.curve", machine->d2h);
	assert_int_equal(json_integer_value(at(root, "host.dram_bytes_per_s.value")),
	                 machine->dram_bytes_per_s);
	assert_int_equal(json_integer_value(at(root, "link.duplex_bytes_per_s.value")),
	                 machine->duplex_bytes_per_s);
	assert_true(machine->pageable_ppm <= 1000000);
	if (drives) {
		assert_int_equal(machine->nvme_drives, 1);
		assert_int_equal(machine->nvme_queue_depth, 8);
		check_curve(root, "nvme.drive.read.curve", machine->nvme_read);
		check_curve(root, "nvme.drive.write.curve", machine->nvme_write);
		assert_int_equal(json_array_size(at(root, "x_calibration.by_depth")), 2);
		assert_true(strlen(json_string_value(at(root, "x_calibration.storage.backend"))) >
		            0);
	} else {
		assert_int_equal(machine->nvme_drives, base->nvme_drives);
	}
	check_use(machine);
	json_decref(root);
	tc_machine_free(machine);
	tc_machine_free(base);
}

static void test_quick(void **state)
{
	const struct folder *folder = *state;
	const char *const arguments[] = {"--quick", "--quiet",    "--nvme-dir", folder->drive,
	                                 "-o",      folder->file, NULL};
	assert_int_equal(calibrate(arguments), 0);
	check_file(folder, true);
}

/** The same folder twice is one drive; without a folder, drives are assumed. */
static void test_drives(void **state)
{
	const struct folder *folder = *state;
	const char *const twice[] = {"--quick",    "--quiet",     "--storage",  "sync",
	                             "--nvme-dir", folder->drive, "--nvme-dir", folder->path,
	                             "-o",         folder->file,  NULL};
	assert_int_equal(calibrate(twice), 0);
	check_file(folder, true);
	const char *const none[] = {"--quick", "--quiet", "--output", folder->file, NULL};
	assert_int_equal(calibrate(none), 0);
	check_file(folder, false);
}

static void test_date(void **state)
{
	const struct folder *folder = *state;
	const char *const arguments[] = {"--quick", "--quiet", "-o", folder->file, NULL};
	/* 2001-09-09 is the day of the second 10^9. */
	assert_int_equal(setenv("SOURCE_DATE_EPOCH", "1000000000", 1), 0);
	assert_int_equal(calibrate(arguments), 0);
	assert_int_equal(unsetenv("SOURCE_DATE_EPOCH"), 0);
	struct tc_machine *machine = load(folder->file);
	assert_string_equal(machine->date, "2001-09-09");
	tc_machine_free(machine);
}

/* ---------------------------------------------------------------- manners */

static void test_bad_arguments(void **state)
{
	const struct folder *folder = *state;
	const char *const cases[][8] = {
	    {"--quick"},
	    {"--quick", "-o", folder->file, "more"},
	    {"--quik", "-o", folder->file},
	    {"--quick", "-o"},
	    {"--quick", "-o", folder->file, "--base", "a100-41"},
	    {"--quick", "-o", folder->file, "--device", "toaster"},
	    {"--quick", "-o", folder->file, "--storage", "tape"},
	    {"--quick", "-o", "no/such/folder/this.json"},
	    {"--quick", "-o", folder->file, "--nvme-dir", "no/such/folder"},
	};
	/* What is wrong is said on stderr; here only that nothing comes of it. */
	int kept = dup(STDERR_FILENO);
	assert_non_null(freopen("/dev/null", "w", stderr));
	for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
		assert_int_equal(calibrate(cases[i]), 2);
		assert_int_not_equal(access(folder->file, F_OK), 0);
	}
	(void)fflush(stderr);
	assert_int_equal(dup2(kept, STDERR_FILENO), STDERR_FILENO);
	(void)close(kept);
	assert_int_equal(calibrate((const char *const[]){"--help", NULL}), 0);
}

/** What is no folder, or leads to none, is refused before anything is measured or planned. */
static void test_bad_folders(void **state)
{
	const struct folder *folder = *state;
	char link[128];
	const char *paths[] = {link};
	struct tc_error error = {0};
	(void)snprintf(link, sizeof link, "%s/link", folder->path);
	assert_int_equal(symlink("this-machine.json", link), 0);
	assert_int_equal(tci_folders_make(paths, 1, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "nowhere"));
	FILE *file = fopen(folder->file, "w");
	assert_non_null(file);
	assert_int_equal(fclose(file), 0);
	error = (struct tc_error){0};
	assert_int_equal(tci_folders_make(paths, 1, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "is not a folder"));
	/* A link to a folder is as good as the folder. */
	assert_int_equal(unlink(link), 0);
	assert_int_equal(symlink("nvme", link), 0);
	assert_int_equal(tci_folders_make(paths, 1, &error), TC_OK);
	assert_int_equal(unlink(link), 0);
}

/** A child that calibrates; SIGTERM reaches it while files lie in the drive's folder. @return it
 * died of the signal (it may have been too fast) */
static bool stop_child(const struct folder *folder)
{
	(void)fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		const char *const arguments[] = {
		    "--quick", "--quiet", "--nvme-dir", folder->drive, "-o", folder->file, NULL};
		assert_non_null(freopen("/dev/null", "w", stderr));
		_exit(calibrate(arguments));
	}
	int status = 0;
	while (waitpid(child, &status, WNOHANG) == 0) {
		if (files_in(folder->drive) > 0) {
			(void)kill(child, SIGTERM);
			assert_int_equal(waitpid(child, &status, 0), child);
			break;
		}
		(void)nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
	}
	if (WIFEXITED(status)) {
		assert_int_equal(WEXITSTATUS(status), 0);
		(void)remove(folder->file);
		return false;
	}
	assert_int_equal(WTERMSIG(status), SIGTERM);
	return true;
}

static void test_interrupted(void **state)
{
	const struct folder *folder = *state;
	bool stopped = false;
	for (int attempt = 0; attempt < 20 && !stopped; ++attempt)
		stopped = stop_child(folder);
	assert_true(stopped);
	/* Drive files and description are looked for in tear_down() as well. */
	assert_int_equal(files_in(folder->drive), 0);
	assert_int_not_equal(access(folder->file, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_medians),
	    cmocka_unit_test(test_rates),
	    cmocka_unit_test_setup_teardown(test_quick, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_drives, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_date, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_bad_arguments, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_bad_folders, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_interrupted, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
