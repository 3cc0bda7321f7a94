/* The loop over getopt_long(), and the options that the `run` of both programs has. */
#include "common_options.h"

#include <getopt.h>
#include <stdlib.h>

#include "tencache/units.h"

#define MOST_ITERATIONS 1000000u

enum tc_status tci_add_override(struct tci_common_options *common, const char *name,
                                const char *value, struct tc_error *error)
{
	if (!tc_grow_array(&common->overrides, &common->override_capacity,
	                   common->override_count + 1, sizeof *common->overrides))
		return tc_error_no_memory(error, "overrides", common->override_count);
	common->overrides[common->override_count++] = (struct tc_machine_setting){name, value};
	return TC_OK;
}

static enum tc_status set_word(struct tci_common_options *common, int option, const char *value,
                               struct tc_error *error)
{
	static const char *const granularities[] = {"module", "layer", "op"};
	static const char *const requests[] = {"hook", "reads"};
	static const char *const frees[] = {"last-use", "eager"};
	int chosen = 0;
	if (option == TCI_OPTION_GRANULARITY) {
		TC_TRY(tci_choose("granularity", value, granularities, 3, &chosen, error));
		common->granularity = (enum tc_granularity)chosen;
	} else if (option == TCI_OPTION_REQUESTS) {
		TC_TRY(tci_choose("requests", value, requests, 2, &chosen, error));
		common->request_mode = (enum tc_request_mode)chosen;
	} else {
		TC_TRY(tci_choose("frees", value, frees, 2, &chosen, error));
		common->frees = (enum tc_frees)chosen;
	}
	return TC_OK;
}

static enum tc_status set_common(struct tci_common_options *common, int option, const char *value,
                                 struct tc_error *error)
{
	switch (option) {
	case TCI_OPTION_TRACE:
		common->trace_path = value;
		return TC_OK;
	case TCI_OPTION_MACHINE:
		common->machine_name = value;
		return TC_OK;
	case TCI_OPTION_TIMELINE:
		common->timeline_path = value;
		return TC_OK;
	case TCI_OPTION_ITERATIONS:
		return tci_set_small("--iterations", value, MOST_ITERATIONS, &common->iterations,
		                     error);
	case TCI_OPTION_ALIGN:
		return tc_parse_bytes(value, "--align", &common->alignment, error);
	case TCI_OPTION_JSON:
		common->json = true;
		return TC_OK;
	case TCI_OPTION_QUIET:
		common->quiet = true;
		return TC_OK;
	case TCI_OPTION_HELP:
		common->help = true;
		return TC_OK;
	default:
		return set_word(common, option, value, error);
	}
}

/** For getopt_long(): the verb's table, then the machine overrides. */
static struct option *long_options(const struct tci_verb_options *verb)
{
	size_t count, own = (size_t)verb->count;
	const struct tc_machine_override_name *overrides = tc_machine_override_names(&count);
	struct option *list = tc_alloc_array(own + count + 1, sizeof *list);
	for (size_t i = 0; list != NULL && i < own; i++)
		list[i] = (struct option){verb->table[i].name,
		                          verb->table[i].argument == NULL ? no_argument
		                                                          : required_argument,
		                          NULL, verb->table[i].value};
	for (size_t i = 0; list != NULL && i < count; i++)
		list[own + i] = (struct option){overrides[i].name, required_argument, NULL,
		                                TCI_OPTION_OVERRIDE + (int)i};
	return list;
}

static enum tc_status parse(int argc, char **argv, const struct option *list,
                            const struct tci_verb_options *verb, struct tci_common_options *common,
                            struct tc_error *error)
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
			option = TCI_OPTION_HELP;
		if (option >= TCI_OPTION_OVERRIDE)
			TC_TRY(tci_add_override(
			    common, overrides[option - TCI_OPTION_OVERRIDE].name, optarg, error));
		else if (option >= TCI_OPTION_OWN)
			TC_TRY(verb->set(verb->self, option, optarg, error));
		else
			TC_TRY(set_common(common, option, optarg, error));
	}
	if (optind < argc)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "unexpected argument \"%s\"; the trace is given with --trace %s", argv[optind],
		    argv[optind]);
	return TC_OK;
}

enum tc_status tci_common_options_parse(int argc, char **argv, const struct tci_verb_options *verb,
                                        struct tci_common_options *common, struct tc_error *error)
{
	struct option *list = long_options(verb);
	if (list == NULL)
		return tc_error_no_memory(error, "options", (uint64_t)verb->count);
	enum tc_status status = parse(argc, argv, list, verb, common, error);
	free(list);
	return status;
}

void tci_common_options_clear(struct tci_common_options *common)
{
	free(common->overrides);
	*common = (struct tci_common_options){0};
}
