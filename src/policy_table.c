/**
 * @file policy_table.c
 * All policies in the order of help: ideal, lru, belady, zero-infinity, 10cache, then others.
 */
#include "policy/policies.h"

static const struct tc_policy *const table[] = {
    &tci_policy_ideal,
    &tci_policy_lru,
    &tci_policy_belady,
    &tci_policy_zero_infinity,
    &tci_policy_ten_cache,
    NULL, /* end */
};

const struct tc_policy *const *tc_policies(size_t *count)
{
	*count = sizeof table / sizeof *table - 1;
	return table;
}
