/**
 * @file verbs.h
 * The verbs of tencache-sim. Each takes its own argv (argv[0] is the verb's or program's name) and
 * returns an exit code.
 */
#ifndef TENCACHE_SIM_VERBS_H
#define TENCACHE_SIM_VERBS_H

#include "tencache/error.h"

enum tci_exit {
	TCI_EXIT_OK = 0,
	TCI_EXIT_FAILED = 1,     /**< something broke on the way */
	TCI_EXIT_USAGE = 2,      /**< usage or bad input */
	TCI_EXIT_INFEASIBLE = 3, /**< everything asked for is infeasible */
	TCI_EXIT_CHECK = 4       /**< a check failed */
};

/** The exit code that belongs to a status. */
int tci_exit_code(enum tc_status status);
/** Print `tencache-sim: message` on stderr. @return the exit code of the error's status */
int tci_fail(const struct tc_error *error);

int tci_sim_run(int argc, char **argv);
int tci_sim_policies(int argc, char **argv);
int tci_sim_machines(int argc, char **argv);
int tci_sim_inspect(int argc, char **argv);

#endif
