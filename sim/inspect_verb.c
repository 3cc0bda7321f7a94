/* tencache-sim inspect: what is in a trace. */
#include <stdio.h>

#include "inspect.h"
#include "option_words.h"
#include "verbs.h"

static const char help[] =
    "Usage: tencache-sim inspect --trace FILE [OPTIONS]\n"
    "\n"
    "What is in a trace: bytes and sizes per kind of tensor, what must fit into memory, ops and\n"
    "FLOPs per phase, what modules ask for, and how far apart the uses of parameters are.\n"
    "\n"
    "  --trace FILE                   the trace, JSON or JSON Lines, gzipped or not\n"
    "  --granularity module|layer|op  what a step is (default: module)\n"
    "  --requests hook|reads          what a step asks for (default: hook; reads where the trace\n"
    "                                 has no events)\n"
    "  --frees last-use|eager         which lifetime of transient tensors the steps list\n"
    "                                 (default: last-use; both peaks are printed anyway)\n"
    "  --all                          every size, not only those that hold most bytes\n"
    "  --json                         print one JSON document\n"
    "  --help                         this text\n"
    "\n"
    "Examples:\n"
    "  tencache-sim inspect --trace traces/opt13b.json\n"
    "  tencache-sim inspect --trace traces/gpt2.jsonl.gz --granularity layer --all\n"
    "  tencache-sim inspect --trace traces/gpt2.jsonl.gz --json\n";

struct inspect_options {
	const char *trace;
	int granularity, requests, frees; /* requests -1: by the trace */
	bool all, json, help;
};

enum { OPTION_TRACE = 1, OPTION_GRANULARITY, OPTION_REQUESTS, OPTION_FREES };

static const struct option long_options[] = {
    {"trace", required_argument, NULL, OPTION_TRACE},
    {"granularity", required_argument, NULL, OPTION_GRANULARITY},
    {"requests", required_argument, NULL, OPTION_REQUESTS},
    {"frees", required_argument, NULL, OPTION_FREES},
    {"all", no_argument, NULL, 'a'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}};

static enum tc_status set_option(struct inspect_options *options, int option,
                                 struct tc_error *error)
{
	static const char *const granularities[] = {"module", "layer", "op"};
	static const char *const requests[] = {"hook", "reads"};
	static const char *const frees[] = {"last-use", "eager"};
	switch (option) {
	case OPTION_TRACE:
		options->trace = optarg;
		return TC_OK;
	case OPTION_GRANULARITY:
		return tci_choose("granularity", optarg, granularities, 3, &options->granularity,
		                  error);
	case OPTION_REQUESTS:
		return tci_choose("requests", optarg, requests, 2, &options->requests, error);
	case OPTION_FREES:
		return tci_choose("frees", optarg, frees, 2, &options->frees, error);
	case 'a':
		options->all = true;
		return TC_OK;
	case 'j':
		options->json = true;
		return TC_OK;
	default:
		options->help = true;
		return TC_OK;
	}
}

static enum tc_status parse(int argc, char **argv, struct inspect_options *options,
                            struct tc_error *error)
{
	opterr = 0;
	optind = 1;
	for (;;) {
		int current = optind;
		int option = getopt_long(argc, argv, ":h", long_options, NULL);
		if (option == -1)
			break;
		if (option == '?' || option == ':')
			return tci_bad_option(tci_option_at(argv, current), long_options,
			                      option == ':', error);
		TC_TRY(set_option(options, option, error));
	}
	if (options->help)
		return TC_OK;
	if (optind < argc && options->trace == NULL)
		options->trace = argv[optind++];
	if (optind < argc)
		return tc_error_set(error, TC_ARGUMENT, "unexpected argument \"%s\"", argv[optind]);
	if (options->trace == NULL)
		return tc_error_set(error, TC_ARGUMENT,
		                    "no trace given; try \"tencache-sim inspect --trace "
		                    "traces/opt13b.json\"");
	return TC_OK;
}

static enum tc_status print(const struct tc_steps *steps, const struct inspect_options *options,
                            struct tc_error *error)
{
	struct tc_inspection *inspection = NULL;
	TC_TRY(tc_inspect(steps, &inspection, error));
	enum tc_status status = options->json
	                            ? tci_print_inspection_json(stdout, inspection, error)
	                            : tci_print_inspection(stdout, inspection, options->all, error);
	tc_inspection_free(inspection);
	return status;
}

static void print_warnings(const struct tc_trace *trace)
{
	for (uint32_t i = 0; i < trace->warning_count; i++)
		(void)fprintf(stderr, "tencache-sim: warning: %s\n", trace->warnings[i]);
	if (trace->warnings_suppressed > 0)
		(void)fprintf(stderr, "tencache-sim: warning: and %llu more\n",
		              (unsigned long long)trace->warnings_suppressed);
}

static enum tc_status inspect(const struct inspect_options *options, struct tc_error *error)
{
	struct tc_trace *trace = NULL;
	struct tc_steps *steps = NULL;
	TC_TRY(tc_trace_read(options->trace, &trace, error));
	print_warnings(trace);
	enum tc_request_mode mode = trace->has_events ? TC_REQUESTS_HOOK : TC_REQUESTS_READS;
	if (options->requests >= 0)
		mode = (enum tc_request_mode)options->requests;
	enum tc_status status = tc_steps_derive(trace, (enum tc_granularity)options->granularity,
	                                        mode, (enum tc_frees)options->frees, &steps, error);
	if (status == TC_OK)
		status = print(steps, options, error);
	tc_steps_free(steps);
	tc_trace_free(trace);
	if (status == TC_OK && (fflush(stdout) != 0 || ferror(stdout) != 0))
		status = tc_error_set(error, TC_IO, "cannot write to standard output");
	return status;
}

int tci_sim_inspect(int argc, char **argv)
{
	struct inspect_options options = {.requests = -1};
	struct tc_error error = {0};
	enum tc_status status = parse(argc, argv, &options, &error);
	if (status == TC_OK && options.help) {
		(void)fputs(help, stdout);
		return TCI_EXIT_OK;
	}
	if (status == TC_OK)
		status = inspect(&options, &error);
	return status == TC_OK ? TCI_EXIT_OK : tci_fail(&error);
}
