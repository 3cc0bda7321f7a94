/**
 * @file calibrate_options.c
 * Command line of `tencache-replay calibrate`.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "calibrate_parts.h"
#include "option_words.h"

enum {
	OPTION_DEVICE = 1,
	OPTION_STORAGE,
	OPTION_DIRECTORY,
	OPTION_OUTPUT,
	OPTION_BASE,
	OPTION_QUICK,
	OPTION_QUIET,
	OPTION_HELP
};

static const struct option long_options[] = {
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"storage", required_argument, NULL, OPTION_STORAGE},
    {"nvme-dir", required_argument, NULL, OPTION_DIRECTORY},
    {"output", required_argument, NULL, OPTION_OUTPUT},
    {"base", required_argument, NULL, OPTION_BASE},
    {"quick", no_argument, NULL, OPTION_QUICK},
    {"quiet", no_argument, NULL, OPTION_QUIET},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

void tci_calibrate_help(void)
{
	printf("Usage: tencache-replay calibrate -o FILE [OPTIONS]\n\n"
	       "Measures this machine for at most three minutes and writes a description that\n"
	       "tencache-sim --machine FILE and tencache-replay --machine FILE read.\n\n"
	       "  -o, --output FILE        the description (required)\n"
	       "  --nvme-dir DIR           measure the drive under this folder; again for each "
	       "further\n"
	       "                           drive of a stripe set (without: drives are assumed). "
	       "Needs up\n"
	       "                           to 1 GiB there while it runs\n"
	       "  --device host            whose copies are measured (default: host)\n"
	       "  --storage auto|io_uring|sync\n"
	       "                           how drives are driven (default: auto)\n"
	       "  --base NAME|FILE         machine that the GPU, capacities and efficiencies are "
	       "taken\n"
	       "                           from, marked as assumed (default: " TC_DEFAULT_MACHINE
	       ")\n"
	       "  --quick                  a few seconds, few and small sizes: for tests\n"
	       "  --quiet                  no messages on stderr but errors\n"
	       "  --help                   this text\n\n"
	       "Examples:\n"
	       "  tencache-replay calibrate --nvme-dir ./nvme -o this-machine.json\n"
	       "  tencache-replay calibrate --base rtx4090 -o this-machine.json\n"
	       "  tencache-sim --trace traces/opt13b.json --machine this-machine.json\n");
}

static enum tc_status add_directory(struct tci_calibrate_options *options, const char *path,
                                    struct tc_error *error)
{
	if (!tc_grow_array(&options->directories, &options->directory_capacity,
	                   options->directory_count + 1, sizeof *options->directories))
		return tc_error_no_memory(error, "folders", options->directory_count);
	options->directories[options->directory_count++] = path;
	return TC_OK;
}

static enum tc_status set_option(struct tci_calibrate_options *options, int option,
                                 const char *value, struct tc_error *error)
{
	switch (option) {
	case OPTION_DEVICE:
		options->device = value;
		break;
	case OPTION_STORAGE:
		options->storage = value;
		break;
	case OPTION_DIRECTORY:
		return add_directory(options, value, error);
	case 'o':
	case OPTION_OUTPUT:
		options->output = value;
		break;
	case OPTION_BASE:
		options->base = value;
		break;
	case OPTION_QUICK:
		options->quick = true;
		break;
	case OPTION_QUIET:
		options->quiet = true;
		break;
	default:
		options->help = true;
	}
	return TC_OK;
}

enum tc_status tci_calibrate_options_parse(int argc, char **argv,
                                           struct tci_calibrate_options *options,
                                           struct tc_error *error)
{
	*options = (struct tci_calibrate_options){
	    .device = "host", .storage = "auto", .base = TC_DEFAULT_MACHINE};
	opterr = 0;
	optind = 1;
	for (;;) {
		int current = optind;
		int option = getopt_long(argc, argv, ":ho:", long_options, NULL);
		if (option == -1)
			break;
		if (option == '?' || option == ':')
			return tci_bad_option(tci_option_at(argv, current), long_options,
			                      option == ':', error);
		TC_TRY(set_option(options, option, optarg, error));
	}
	if (options->help)
		return TC_OK;
	if (optind < argc)
		return tc_error_set(error, TC_ARGUMENT,
		                    "unexpected argument \"%s\"; options begin with --",
		                    argv[optind]);
	if (options->output == NULL || options->output[0] == '\0')
		return tc_error_set(error, TC_ARGUMENT,
		                    "no file to write named; try \"tencache-replay calibrate "
		                    "--nvme-dir ./nvme -o this-machine.json\"");
	return TC_OK;
}

void tci_calibrate_options_clear(struct tci_calibrate_options *options)
{
	free(options->directories);
	*options = (struct tci_calibrate_options){0};
}
