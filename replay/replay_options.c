/** @file replay_options.c
 * One table of options; what it shares with the simulator's is in common_options.c.
 */
#include "replay_options.h"

#include <stdio.h>
#include <string.h>

#include "tencache/scale.h"
#include "tencache/units.h"

enum {
	OPTION_SCHEDULE = TCI_OPTION_OWN,
	OPTION_WRITE_SCHEDULE,
	OPTION_POLICY,
	OPTION_DEVICE,
	OPTION_NVME_DIR,
	OPTION_STORAGE,
	OPTION_DEPTH,
	OPTION_BLOCK,
	OPTION_BUFFERED,
	OPTION_SCALE,
	OPTION_VERIFY,
	OPTION_COMPUTE,
	OPTION_THROTTLE,
	OPTION_DILATE,
	OPTION_CPU_THREADS,
	OPTION_CHECK
};

static const struct tci_option table[] = {
    {"trace", "FILE", "trace to plan and replay", TCI_OPTION_TRACE},
    {"schedule", "FILE", "replay a schedule file instead; with --trace its ops are known too",
     OPTION_SCHEDULE},
    {"write-schedule", "FILE", "write down what is planned, with its scale, before it runs",
     OPTION_WRITE_SCHEDULE},
    {"policy", "NAME[:KEY=VALUE...]", "the policy (default: 10cache)", OPTION_POLICY},
    {"machine", "NAME|FILE",
     "plan for and predict with this machine (default: " TCI_DEFAULT_MACHINE ")",
     TCI_OPTION_MACHINE},
    {"device", "host", "what plays the GPU (default: host)", OPTION_DEVICE},
    {"nvme-dir", "DIR", "folder on the drive, made if missing; several are striped",
     OPTION_NVME_DIR},
    {"storage", "auto|io_uring|sync", "how files are read and written (default: auto)",
     OPTION_STORAGE},
    {"depth", "N", "I/Os in flight (default: 8)", OPTION_DEPTH},
    {"block", "BYTES", "of one I/O (default: 1MiB)", OPTION_BLOCK},
    {"buffered", NULL, "go through the page cache instead of O_DIRECT", OPTION_BUFFERED},
    {"scale", "N", "divide bytes, capacities and FLOPs before planning (default: 1)", OPTION_SCALE},
    {"iterations", "N", "iterations measured after the cold one (default: 3)",
     TCI_OPTION_ITERATIONS},
    {"verify", "full|sample|off", "look at content: all, 128 bytes of 4 KiB (default), nothing",
     OPTION_VERIFY},
    {"compute", "model|none", "hold the compute lane for the modelled time (default), or not",
     OPTION_COMPUTE},
    {"throttle", NULL, "pace every lane by the machine's rates instead of this computer's",
     OPTION_THROTTLE},
    {"dilate", "N", "with --throttle, stretch time by N (default: 1)", OPTION_DILATE},
    {"cpu-threads", "N", "threads of the CPU optimizer (default: all cores)", OPTION_CPU_THREADS},
    {"check", "PERCENT", "exit with 4 where measured and predicted differ by more", OPTION_CHECK},
    {"timeline", "FILE", "predicted and measured as Chrome trace JSON (opens in Perfetto)",
     TCI_OPTION_TIMELINE},
    {"granularity", "module|layer|op", "what a step is (default: module)", TCI_OPTION_GRANULARITY},
    {"requests", "hook|reads", "what a step asks for (default: hook)", TCI_OPTION_REQUESTS},
    {"frees", "last-use|eager", "when transient tensors die (default: last-use)", TCI_OPTION_FREES},
    {"align", "BYTES", "alignment of GPU and CPU slots (default: 4096, as drives want it)",
     TCI_OPTION_ALIGN},
    {"json", NULL, "print one JSON document", TCI_OPTION_JSON},
    {"quiet", NULL, "no messages on stderr but errors", TCI_OPTION_QUIET},
    {"help", NULL, "this text", TCI_OPTION_HELP},
};
enum { OPTION_COUNT = sizeof table / sizeof *table };

void tci_replay_run_help(void)
{
	printf(
	    "Usage: tencache-replay [run] --trace FILE [OPTIONS]\n"
	    "       tencache-replay [run] --schedule FILE [OPTIONS]\n\n"
	    "Runs one policy's schedule with real copies, real file I/O and a real optimizer on\n"
	    "the CPU, checks the content of every tensor, and prints what was measured beside\n"
	    "what the simulator predicts.\n\n");
	tci_print_options(table, OPTION_COUNT);
	printf("\nOverrides of single machine values (before scaling):\n");
	tci_print_overrides();
	printf(
	    "\nExamples:\n"
	    "  tencache-replay --trace traces/opt13b.json --policy 10cache --nvme-dir ./nvme "
	    "--scale 256\n"
	    "  tencache-replay --trace traces/opt6.7b-paper.jsonl.gz --policy lru --scale 1024 \\\n"
	    "      --throttle --dilate 4 --check 20%%\n"
	    "  tencache-replay --schedule plan.json --nvme-dir ./nvme --nvme-dir ./second "
	    "--json\n");
}

/* ---------------------------------------------------------------- values */

/** `10%` or `10` to parts per million. */
static enum tc_status set_check(struct tci_replay_options *options, const char *value,
                                struct tc_error *error)
{
	char text[32];
	uint64_t percent_ppm;
	size_t length = strlen(value);
	if (length > 0 && value[length - 1] == '%')
		length--;
	if (length == 0 || length >= sizeof text)
		return tc_error_set(error, TC_ARGUMENT, "--check %s: expected percent, like 10%%",
		                    value);
	memcpy(text, value, length);
	text[length] = '\0';
	TC_TRY(tc_parse_ppm(text, "--check", &percent_ppm, error));
	options->check_ppm = percent_ppm / 100;
	options->check = true;
	return TC_OK;
}

static enum tc_status add_directory(struct tci_replay_options *options, const char *value,
                                    struct tc_error *error)
{
	if (options->directory_count == TCI_MOST_DIRECTORIES)
		return tc_error_set(error, TC_ARGUMENT, "--nvme-dir: at most %u directories",
		                    TCI_MOST_DIRECTORIES);
	options->directories[options->directory_count++] = value;
	return TC_OK;
}

static enum tc_status set_word(struct tci_replay_options *options, int option, const char *value,
                               struct tc_error *error)
{
	static const char *const verify[] = {"off", "sample", "full"};
	static const char *const compute[] = {"model", "none"};
	int chosen = 0;
	if (option == OPTION_VERIFY) {
		TC_TRY(tci_choose("verify", value, verify, 3, &chosen, error));
		options->verify = (enum tc_verify)chosen;
	} else {
		TC_TRY(tci_choose("compute", value, compute, 2, &chosen, error));
		options->compute = (enum tc_compute_mode)chosen;
	}
	return TC_OK;
}

static enum tc_status set_number(struct tci_replay_options *options, int option, const char *value,
                                 struct tc_error *error)
{
	switch (option) {
	case OPTION_SCALE:
		return tci_set_count("--scale", value, TC_MAX_SCALE, &options->scale, error);
	case OPTION_DILATE:
		return tci_set_count("--dilate", value, 1000000, &options->dilate, error);
	case OPTION_DEPTH:
		return tci_set_count("--depth", value, 4096, &options->depth, error);
	case OPTION_BLOCK:
		return tc_parse_bytes(value, "--block", &options->block_bytes, error);
	case OPTION_CPU_THREADS:
		return tci_set_small("--cpu-threads", value, 256, &options->threads, error);
	case OPTION_CHECK:
		return set_check(options, value, error);
	default:
		return set_word(options, option, value, error);
	}
}

static enum tc_status set_option(void *self, int option, char *value, struct tc_error *error)
{
	struct tci_replay_options *options = self;
	switch (option) {
	case OPTION_SCHEDULE:
		options->schedule_path = value;
		return TC_OK;
	case OPTION_WRITE_SCHEDULE:
		options->write_path = value;
		return TC_OK;
	case OPTION_POLICY:
		options->policy = value;
		return TC_OK;
	case OPTION_DEVICE:
		options->device = value;
		return TC_OK;
	case OPTION_STORAGE:
		options->storage = value;
		return TC_OK;
	case OPTION_NVME_DIR:
		return add_directory(options, value, error);
	case OPTION_BUFFERED:
		options->buffered = true;
		return TC_OK;
	case OPTION_THROTTLE:
		options->throttle = true;
		return TC_OK;
	default:
		return set_number(options, option, value, error);
	}
}

/* ---------------------------------------------------------------- parsing */

static enum tc_status check(const struct tci_replay_options *options, struct tc_error *error)
{
	if (options->common.help)
		return TC_OK;
	if (options->common.trace_path == NULL && options->schedule_path == NULL)
		return tc_error_set(error, TC_ARGUMENT,
		                    "nothing to replay; try \"tencache-replay --trace "
		                    "traces/opt13b.json --nvme-dir ./nvme --scale 256\"");
	if (options->schedule_path != NULL && options->policy != NULL)
		return tc_error_set(error, TC_ARGUMENT,
		                    "--policy and --schedule exclude each other: a schedule file "
		                    "holds one policy's plan");
	if (options->schedule_path != NULL &&
	    (options->common.iterations != 0 || options->common.alignment != 0))
		return tc_error_set(error, TC_ARGUMENT,
		                    "%s and --schedule exclude each other: a schedule file is "
		                    "replayed as it was planned",
		                    options->common.iterations != 0 ? "--iterations" : "--align");
	if (options->schedule_path != NULL && options->write_path != NULL)
		return tc_error_set(error, TC_ARGUMENT,
		                    "--write-schedule writes what is planned: give --trace, not "
		                    "--schedule");
	if (strchr(options->policy != NULL ? options->policy : "", ',') != NULL)
		return tc_error_set(error, TC_ARGUMENT,
		                    "--policy %s: a replay runs one policy at a time",
		                    options->policy);
	if (options->dilate > 1 && !options->throttle)
		return tc_error_set(error, TC_ARGUMENT,
		                    "--dilate needs --throttle: real copies do not slow down");
	return TC_OK;
}

enum tc_status tci_replay_options_parse(int argc, char **argv, struct tci_replay_options *options,
                                        struct tc_error *error)
{
	const struct tci_verb_options verb = {table, OPTION_COUNT, set_option, options};
	*options = (struct tci_replay_options){.common = {.machine_name = TCI_DEFAULT_MACHINE},
	                                       .device = "host",
	                                       .storage = "auto",
	                                       .verify = TC_VERIFY_SAMPLE,
	                                       .dilate = 1};
	TC_TRY(tci_common_options_parse(argc, argv, &verb, &options->common, error));
	TC_TRY(check(options, error));
	if (options->common.iterations == 0)
		options->common.iterations = 3;
	if (options->common.alignment == 0)
		options->common.alignment = 4096;
	return TC_OK;
}

void tci_replay_options_clear(struct tci_replay_options *options)
{
	tci_common_options_clear(&options->common);
}
