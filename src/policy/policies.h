/**
 * @file policies.h
 * The policies of the table in src/policy_table.c, each in its own file.
 */
#ifndef TENCACHE_SRC_POLICY_POLICIES_H
#define TENCACHE_SRC_POLICY_POLICIES_H

#include "tencache/policy.h"

extern const struct tc_policy tci_policy_ideal;
extern const struct tc_policy tci_policy_lru;
extern const struct tc_policy tci_policy_belady;
extern const struct tc_policy tci_policy_zero_infinity;
extern const struct tc_policy tci_policy_ten_cache;

#endif
