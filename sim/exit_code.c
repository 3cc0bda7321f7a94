/**
 * @file exit_code.c
 * From a status to an exit code: what the user can put right is 2.
 */
#include "verbs.h"

#include <stdio.h>

int tci_exit_code(enum tc_status status)
{
	switch (status) {
	case TC_OK:
		return TCI_EXIT_OK;
	case TC_IO:
	case TC_FORMAT:
	case TC_ARGUMENT:
	case TC_TOO_LARGE:
		return TCI_EXIT_USAGE;
	case TC_INFEASIBLE:
		return TCI_EXIT_INFEASIBLE;
	default:
		return TCI_EXIT_FAILED;
	}
}

int tci_fail(const struct tc_error *error)
{
	(void)fprintf(stderr, "tencache-sim: %s\n", error->text);
	return tci_exit_code(error->status);
}
