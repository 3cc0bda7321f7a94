/**
 * @file run_options.h
 * Command line of `tencache-sim run`.
 */
#ifndef TENCACHE_SIM_RUN_OPTIONS_H
#define TENCACHE_SIM_RUN_OPTIONS_H

#include <stdbool.h>

#include "tencache/machine.h"
#include "tencache/policy.h"

#define TCI_DEFAULT_MACHINE "a100-40"
/** Policies of a run that names none; later ones join when they land. */
extern const char *const tci_standard_policies[];

struct tci_run_options {
	const char *trace_path;
	const char *machine_name;
	const char *schedule_path;
	const char *timeline_path;
	struct tc_policy_choice **policies; /**< owned */
	size_t policy_count, policy_capacity;
	struct tc_machine_setting *overrides; /**< owned; the strings are argv's */
	size_t override_count, override_capacity;
	enum tc_granularity granularity;
	enum tc_request_mode request_mode;
	enum tc_frees frees;
	uint32_t iterations;
	uint64_t alignment;
	bool json, csv, audit, quiet, verbose, help;
};

/**
 * Parse argv (argv[0] is skipped). Unknown options suggest the nearest. On success the caller frees
 * with tci_run_options_clear(), which also works after a failure.
 */
enum tc_status tci_run_options_parse(int argc, char **argv, struct tci_run_options *options,
                                     struct tc_error *error);
void tci_run_options_clear(struct tci_run_options *options);
void tci_run_help(void);

#endif
