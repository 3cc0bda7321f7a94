/**
 * @file run_options.h
 * Command line of `tencache-sim run`.
 */
#ifndef TENCACHE_SIM_RUN_OPTIONS_H
#define TENCACHE_SIM_RUN_OPTIONS_H

#include "common_options.h"
#include "tencache/policy.h"

/** Policies of a run that names none; later ones join when they land. */
extern const char *const tci_standard_policies[];

struct tci_run_options {
	struct tci_common_options common;
	const char *schedule_path;
	struct tc_policy_list policies;
	bool csv, audit, verbose;
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
