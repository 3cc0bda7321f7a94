#include "run_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "option_words.h"
#include "tencache/machine.h"
#include "tencache/units.h"

const char *const tci_standard_policies[] = {
    "ideal",   "lru", "belady", "zero-infinity:device=cpu", "zero-infinity:device=nvme",
    "10cache", NULL};

enum {
	OPTION_TRACE = 1,
	OPTION_MACHINE,
	OPTION_POLICY,
	OPTION_ITERATIONS,
	OPTION_GRANULARITY,
	OPTION_REQUESTS,
	OPTION_FREES,
	OPTION_JSON,
	OPTION_CSV,
	OPTION_SCHEDULE,
	OPTION_TIMELINE,
	OPTION_AUDIT,
	OPTION_ALIGN,
	OPTION_QUIET,
	OPTION_VERBOSE,
	OPTION_SET,
	OPTION_HELP,
	OPTION_OVERRIDE /* this and all above: machine overrides */
};

static const struct tci_option run_options[] = {
    {"trace", "FILE", "trace to simulate, JSON or JSON Lines, gzipped or not (required)",
     OPTION_TRACE},
    {"policy", "NAME[:KEY=VALUE...]",
     "policies, separated by commas; may be repeated (default: the standard set)", OPTION_POLICY},
    {"machine", "NAME|FILE", "preset or machine file (default: " TCI_DEFAULT_MACHINE ")",
     OPTION_MACHINE},
    {"set", "PATH=VALUE",
     "any value of the machine by its path; tencache-sim machines NAME lists them", OPTION_SET},
    {"iterations", "N", "iterations measured after the cold one (default: 3)", OPTION_ITERATIONS},
    {"granularity", "module|layer|op", "what a step is (default: module)", OPTION_GRANULARITY},
    {"requests", "hook|reads", "what a step asks for (default: hook)", OPTION_REQUESTS},
    {"frees", "last-use|eager", "when transient tensors die (default: last-use)", OPTION_FREES},
    {"json", NULL, "print one JSON document", OPTION_JSON},
    {"csv", NULL, "print CSV, one row a policy", OPTION_CSV},
    {"schedule", "FILE", "write the schedule of the only policy (gzipped if FILE ends in .gz)",
     OPTION_SCHEDULE},
    {"timeline", "FILE",
     "write a picture of the only policy's run: Chrome trace JSON, opens in ui.perfetto.dev",
     OPTION_TIMELINE},
    {"audit", NULL, "prove every schedule safe before reporting it", OPTION_AUDIT},
    {"align", "BYTES", "alignment of GPU and CPU slots (default: 512)", OPTION_ALIGN},
    {"quiet", NULL, "no messages on stderr but errors", OPTION_QUIET},
    {"verbose", NULL, "for each policy, its stalls, phases and memory in full", OPTION_VERBOSE},
    {"help", NULL, "this text", OPTION_HELP},
};
enum { RUN_OPTION_COUNT = sizeof run_options / sizeof *run_options };

void tci_run_help(void)
{
	printf(
	    "Usage: tencache-sim [run] --trace FILE [OPTIONS]\n\n"
	    "Simulates training steps under offloading policies and prints what decides between\n"
	    "them: iteration time, stalls and their causes, hit rates, traffic, memory.\n\n");
	tci_print_options(run_options, RUN_OPTION_COUNT);
	printf(
	    "\nOverrides of single machine values; sizes and rates take units: 24GiB, 6.5GB/s\n");
	tci_print_overrides();
	printf(
	    "\nExamples:\n"
	    "  tencache-sim --trace traces/opt13b.json\n"
	    "  tencache-sim --trace traces/opt13b.json --machine rtx4090 --cpu-memory 128GiB\n"
	    "  tencache-sim --trace traces/opt6.7b-paper.jsonl.gz --policy 10cache:resident=348\n"
	    "  tencache-sim --trace traces/opt13b.json --policy lru,belady --gpu-memory 24GiB "
	    "--json\n"
	    "  tencache-sim --trace traces/gpt2.jsonl.gz --policy 10cache --schedule plan.jsonl "
	    "--audit\n"
	    "  tencache-sim --trace traces/opt13b.json --policy 10cache --timeline run.json.gz\n");
}

static enum tc_status tci_add_policy(struct tci_run_options *options, const char *text,
                                     struct tc_error *error)
{
	struct tc_policy_choice *choice = NULL;
	if (!tc_grow_array(&options->policies, &options->policy_capacity, options->policy_count + 1,
	                   sizeof *options->policies))
		return tc_error_no_memory(error, "policies", options->policy_count);
	TC_TRY(tc_policy_parse(text, &choice, error));
	options->policies[options->policy_count++] = choice;
	return TC_OK;
}

static enum tc_status tci_add_policies(struct tci_run_options *options, const char *list,
                                       struct tc_error *error)
{
	for (const char *at = list;; at++) {
		size_t length = strcspn(at, ",");
		char *one = malloc(length + 1);
		if (one == NULL)
			return tc_error_no_memory(error, "policy", length);
		memcpy(one, at, length);
		one[length] = '\0';
		enum tc_status status = tci_add_policy(options, one, error);
		free(one);
		TC_TRY(status);
		at += length;
		if (*at == '\0')
			return TC_OK;
	}
}

static enum tc_status tci_set_number(const char *value, uint32_t *number, struct tc_error *error)
{
	uint64_t count;
	TC_TRY(tc_parse_count(value, "--iterations", &count, error));
	if (count == 0 || count > 1000000)
		return tc_error_set(error, TC_ARGUMENT, "--iterations %s: expected 1 to 1,000,000",
		                    value);
	*number = (uint32_t)count;
	return TC_OK;
}

static enum tc_status tci_set_choice(struct tci_run_options *options, int option, const char *value,
                                     struct tc_error *error)
{
	static const char *const granularities[] = {"module", "layer", "op"};
	static const char *const requests[] = {"hook", "reads"};
	static const char *const frees[] = {"last-use", "eager"};
	int chosen = 0;
	if (option == OPTION_GRANULARITY) {
		TC_TRY(tci_choose("granularity", value, granularities, 3, &chosen, error));
		options->granularity = (enum tc_granularity)chosen;
	} else if (option == OPTION_REQUESTS) {
		TC_TRY(tci_choose("requests", value, requests, 2, &chosen, error));
		options->request_mode = (enum tc_request_mode)chosen;
	} else {
		TC_TRY(tci_choose("frees", value, frees, 2, &chosen, error));
		options->frees = (enum tc_frees)chosen;
	}
	return TC_OK;
}

static enum tc_status tci_set_option(struct tci_run_options *options, int option, const char *value,
                                     struct tc_error *error)
{
	switch (option) {
	case OPTION_TRACE:
		options->trace_path = value;
		return TC_OK;
	case OPTION_MACHINE:
		options->machine_name = value;
		return TC_OK;
	case OPTION_SCHEDULE:
		options->schedule_path = value;
		return TC_OK;
	case OPTION_TIMELINE:
		options->timeline_path = value;
		return TC_OK;
	case OPTION_POLICY:
		return tci_add_policies(options, value, error);
	case OPTION_ITERATIONS:
		return tci_set_number(value, &options->iterations, error);
	case OPTION_ALIGN:
		return tc_parse_bytes(value, "--align", &options->alignment, error);
	case OPTION_JSON:
		options->json = true;
		return TC_OK;
	case OPTION_CSV:
		options->csv = true;
		return TC_OK;
	case OPTION_AUDIT:
		options->audit = true;
		return TC_OK;
	case OPTION_QUIET:
		options->quiet = true;
		return TC_OK;
	case OPTION_VERBOSE:
		options->verbose = true;
		return TC_OK;
	case OPTION_HELP:
		options->help = true;
		return TC_OK;
	default:
		return tci_set_choice(options, option, value, error);
	}
}

static enum tc_status tci_add_override(struct tci_run_options *options, const char *name,
                                       const char *value, struct tc_error *error)
{
	if (!tc_grow_array(&options->overrides, &options->override_capacity,
	                   options->override_count + 1, sizeof *options->overrides))
		return tc_error_no_memory(error, "overrides", options->override_count);
	options->overrides[options->override_count++] = (struct tc_machine_setting){name, value};
	return TC_OK;
}

/** `text`, one of argv, is cut in two at its first `=`. */
static enum tc_status tci_add_path(struct tci_run_options *options, char *text,
                                   struct tc_error *error)
{
	char *equals = strchr(text, '=');
	if (equals == NULL)
		return tc_error_set(error, TC_ARGUMENT,
		                    "--set %s: expected PATH=VALUE such as "
		                    "gpu.flops_per_s.bfloat16=4e14",
		                    text);
	*equals = '\0';
	return tci_add_override(options, text, equals + 1, error);
}

/** Long options for getopt_long(): the run's own, then the machine overrides. */
static struct option *tci_long_options(void)
{
	size_t count;
	const struct tc_machine_override_name *overrides = tc_machine_override_names(&count);
	struct option *list = tc_alloc_array(RUN_OPTION_COUNT + count + 1, sizeof *list);
	if (list == NULL)
		return NULL;
	for (int i = 0; i < RUN_OPTION_COUNT; i++)
		list[i] = (struct option){run_options[i].name,
		                          run_options[i].argument == NULL ? no_argument
		                                                          : required_argument,
		                          NULL, run_options[i].value};
	for (size_t i = 0; i < count; i++)
		list[(size_t)RUN_OPTION_COUNT + i] = (struct option){
		    overrides[i].name, required_argument, NULL, OPTION_OVERRIDE + (int)i};
	return list;
}

static enum tc_status tci_parse_list(int argc, char **argv, const struct option *list,
                                     struct tci_run_options *options, struct tc_error *error)
{
	size_t count;
	const struct tc_machine_override_name *overrides = tc_machine_override_names(&count);
	opterr = 0;
	optind = 1;
	for (;;) {
		int current = optind;
		int option = getopt_long(argc, argv, ":h", list, NULL);
		if (option == -1)
			break;
		if (option == '?' || option == ':')
			return tci_bad_option(tci_option_at(argv, current), list, option == ':',
			                      error);
		if (option == 'h')
			option = OPTION_HELP;
		if (option >= OPTION_OVERRIDE)
			TC_TRY(tci_add_override(options, overrides[option - OPTION_OVERRIDE].name,
			                        optarg, error));
		else if (option == OPTION_SET)
			TC_TRY(tci_add_path(options, optarg, error));
		else
			TC_TRY(tci_set_option(options, option, optarg, error));
	}
	if (optind < argc)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "unexpected argument \"%s\"; the trace is given with --trace %s", argv[optind],
		    argv[optind]);
	return TC_OK;
}

static enum tc_status tci_check_options(struct tci_run_options *options, struct tc_error *error)
{
	if (options->help)
		return TC_OK;
	if (options->trace_path == NULL)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "no trace given; try \"tencache-sim --trace traces/opt13b.json\"");
	if (options->json && options->csv)
		return tc_error_set(error, TC_ARGUMENT, "--json and --csv exclude each other");
	bool standard = options->policy_count == 0;
	for (size_t i = 0; standard && tci_standard_policies[i] != NULL; i++)
		TC_TRY(tci_add_policy(options, tci_standard_policies[i], error));
	if (options->schedule_path != NULL && options->policy_count != 1)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "--schedule writes one schedule: name exactly one --policy (found "
		    "%zu)",
		    options->policy_count);
	if (options->timeline_path != NULL && options->policy_count != 1)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "--timeline shows one run: name exactly one --policy (found %zu)",
		    options->policy_count);
	return TC_OK;
}

enum tc_status tci_run_options_parse(int argc, char **argv, struct tci_run_options *options,
                                     struct tc_error *error)
{
	*options = (struct tci_run_options){.machine_name = TCI_DEFAULT_MACHINE, .iterations = 3};
	struct option *list = tci_long_options();
	if (list == NULL)
		return tc_error_no_memory(error, "options", RUN_OPTION_COUNT);
	enum tc_status status = tci_parse_list(argc, argv, list, options, error);
	free(list);
	return status == TC_OK ? tci_check_options(options, error) : status;
}

void tci_run_options_clear(struct tci_run_options *options)
{
	for (size_t i = 0; i < options->policy_count; i++)
		tc_policy_choice_free(options->policies[i]);
	free(options->policies);
	free(options->overrides);
	*options = (struct tci_run_options){0};
}
