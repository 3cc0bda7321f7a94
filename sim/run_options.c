#include "run_options.h"

#include <stdio.h>
#include <string.h>

const char *const tci_standard_policies[] = {
    "ideal",   "lru", "belady", "zero-infinity:device=cpu", "zero-infinity:device=nvme",
    "10cache", NULL};

enum {
	OPTION_POLICY = TCI_OPTION_OWN,
	OPTION_CSV,
	OPTION_SCHEDULE,
	OPTION_AUDIT,
	OPTION_VERBOSE,
	OPTION_SET
};

static const struct tci_option run_options[] = {
    {"trace", "FILE", "trace to simulate, JSON or JSON Lines, gzipped or not (required)",
     TCI_OPTION_TRACE},
    {"policy", "NAME[:KEY=VALUE...]",
     "policies, separated by commas; may be repeated (default: the standard set)", OPTION_POLICY},
    {"machine", "NAME|FILE", "preset or machine file (default: " TCI_DEFAULT_MACHINE ")",
     TCI_OPTION_MACHINE},
    {"set", "PATH=VALUE",
     "any value of the machine by its path; tencache-sim machines NAME lists them", OPTION_SET},
    {"iterations", "N", "iterations measured after the cold one (default: 3)",
     TCI_OPTION_ITERATIONS},
    {"granularity", "module|layer|op", "what a step is (default: module)", TCI_OPTION_GRANULARITY},
    {"requests", "hook|reads", "what a step asks for (default: hook)", TCI_OPTION_REQUESTS},
    {"frees", "last-use|eager", "when transient tensors die (default: last-use)", TCI_OPTION_FREES},
    {"json", NULL, "print one JSON document", TCI_OPTION_JSON},
    {"csv", NULL, "print CSV, one row a policy", OPTION_CSV},
    {"schedule", "FILE", "write the schedule of the only policy (gzipped if FILE ends in .gz)",
     OPTION_SCHEDULE},
    {"timeline", "FILE",
     "write a picture of the only policy's run: Chrome trace JSON, opens in ui.perfetto.dev",
     TCI_OPTION_TIMELINE},
    {"audit", NULL, "prove every schedule safe before reporting it", OPTION_AUDIT},
    {"align", "BYTES", "alignment of GPU and CPU slots (default: 512)", TCI_OPTION_ALIGN},
    {"quiet", NULL, "no messages on stderr but errors", TCI_OPTION_QUIET},
    {"verbose", NULL, "for each policy, its stalls, phases and memory in full", OPTION_VERBOSE},
    {"help", NULL, "this text", TCI_OPTION_HELP},
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
	return tci_add_override(&options->common, text, equals + 1, error);
}

static enum tc_status tci_set_option(void *self, int option, char *value, struct tc_error *error)
{
	struct tci_run_options *options = self;
	switch (option) {
	case OPTION_POLICY:
		return tc_policy_list_add(&options->policies, value, error);
	case OPTION_SET:
		return tci_add_path(options, value, error);
	case OPTION_SCHEDULE:
		options->schedule_path = value;
		return TC_OK;
	case OPTION_CSV:
		options->csv = true;
		return TC_OK;
	case OPTION_AUDIT:
		options->audit = true;
		return TC_OK;
	default: /* OPTION_VERBOSE */
		options->verbose = true;
		return TC_OK;
	}
}

static enum tc_status tci_check_options(struct tci_run_options *options, struct tc_error *error)
{
	if (options->common.help)
		return TC_OK;
	if (options->common.trace_path == NULL)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "no trace given; try \"tencache-sim --trace traces/opt13b.json\"");
	if (options->common.json && options->csv)
		return tc_error_set(error, TC_ARGUMENT, "--json and --csv exclude each other");
	bool standard = options->policies.count == 0;
	for (size_t i = 0; standard && tci_standard_policies[i] != NULL; i++)
		TC_TRY(tc_policy_list_add(&options->policies, tci_standard_policies[i], error));
	if (options->schedule_path != NULL && options->policies.count != 1)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "--schedule writes one schedule: name exactly one --policy (found "
		    "%zu)",
		    options->policies.count);
	if (options->common.timeline_path != NULL && options->policies.count != 1)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "--timeline shows one run: name exactly one --policy (found %zu)",
		    options->policies.count);
	return TC_OK;
}

enum tc_status tci_run_options_parse(int argc, char **argv, struct tci_run_options *options,
                                     struct tc_error *error)
{
	const struct tci_verb_options verb = {run_options, RUN_OPTION_COUNT, tci_set_option,
	                                      options};
	*options = (struct tci_run_options){
	    .common = {.machine_name = TCI_DEFAULT_MACHINE, .iterations = 3}};
	TC_TRY(tci_common_options_parse(argc, argv, &verb, &options->common, error));
	return tci_check_options(options, error);
}

void tci_run_options_clear(struct tci_run_options *options)
{
	tc_policy_list_clear(&options->policies);
	tci_common_options_clear(&options->common);
}
