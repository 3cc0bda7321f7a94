/**
 * @file policy_parse.h
 * Policy strings against any table of policies: the public functions use the real one, tests their
 * own.
 */
#ifndef TENCACHE_POLICY_PARSE_H
#define TENCACHE_POLICY_PARSE_H

#include "tencache/policy.h"

enum tc_status tci_policy_find_in(const struct tc_policy *const *table, size_t count,
                                  const char *name, const struct tc_policy **policy,
                                  struct tc_error *error);
enum tc_status tci_policy_parse_in(const struct tc_policy *const *table, size_t count,
                                   const char *text, struct tc_policy_choice **choice,
                                   struct tc_error *error);

#endif
