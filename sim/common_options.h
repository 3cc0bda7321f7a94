/**
 * @file common_options.h
 * What the `run` of both programs shares: the same options with the same meaning, and the parsing
 * of a table of options. Each verb lists all of its options in a table, with its own help for them.
 */
#ifndef TENCACHE_SIM_COMMON_OPTIONS_H
#define TENCACHE_SIM_COMMON_OPTIONS_H

#include <stdbool.h>

#include "option_words.h"
#include "tencache/machine.h"
#include "tencache/steps.h"

#define TCI_DEFAULT_MACHINE TC_DEFAULT_MACHINE

/** Values of tci_option.value. */
enum tci_common_option {
	TCI_OPTION_TRACE = 1,
	TCI_OPTION_MACHINE,
	TCI_OPTION_ITERATIONS,
	TCI_OPTION_GRANULARITY,
	TCI_OPTION_REQUESTS,
	TCI_OPTION_FREES,
	TCI_OPTION_ALIGN,
	TCI_OPTION_TIMELINE,
	TCI_OPTION_JSON,
	TCI_OPTION_QUIET,
	TCI_OPTION_HELP,
	TCI_OPTION_OWN,            /**< the first of the verb's own */
	TCI_OPTION_OVERRIDE = 1000 /**< this and all above: machine overrides */
};

struct tci_common_options {
	const char *trace_path, *machine_name, *timeline_path; /**< NULL: not given */
	struct tc_machine_setting *overrides;                  /**< owned; the strings are argv's */
	size_t override_count, override_capacity;
	enum tc_granularity granularity;
	enum tc_request_mode request_mode;
	enum tc_frees frees;
	uint32_t iterations;
	uint64_t alignment;
	bool json, quiet, help;
};

struct tci_verb_options {
	const struct tci_option *table;
	int count;
	/** Takes an option of the verb's own; `value` is argv's. */
	enum tc_status (*set)(void *self, int option, char *value, struct tc_error *error);
	void *self;
};

/**
 * Parse argv (argv[0] is skipped) against the verb's table and the machine overrides. `common`
 * holds the defaults; free it with tci_common_options_clear() in any case.
 */
enum tc_status tci_common_options_parse(int argc, char **argv, const struct tci_verb_options *verb,
                                        struct tci_common_options *common, struct tc_error *error);
void tci_common_options_clear(struct tci_common_options *common);

enum tc_status tci_add_override(struct tci_common_options *common, const char *name,
                                const char *value, struct tc_error *error);

#endif
