#include <stdio.h>

#include "verbs.h"

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
	case TC_NO_MEMORY:
	case TC_UNSAFE:
	case TC_INTERNAL:
		break;
	}
	return TCI_EXIT_FAILED;
}

int tci_fail(const struct tc_error *error)
{
	fprintf(stderr, "tencache-sim: %s\n", error->text);
	return tci_exit_code(error->status);
}
