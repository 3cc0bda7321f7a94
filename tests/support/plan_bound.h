/**
 * @file plan_bound.h
 * A lower bound for what any policy has to fetch, computed from the requests alone.
 */
#ifndef TENCACHE_TEST_PLAN_BOUND_H
#define TENCACHE_TEST_PLAN_BOUND_H

#include "plan_case.h"

/**
 * Bytes of parameters that every plan of `plan->iterations` iterations fetches at least with
 * `capacity` bytes of GPU memory for parameters: each byte is a page of its own, replaced by the
 * rule of farthest next use, which no demand or prefetching policy beats (Belady 1966; Mattson et
 * al. 1970); that a step needs all of its tensors at once can only cost more. The first use of
 * every byte is free, since a policy may start with any content. Parameters requested or read in
 * forward and backward count; sizes are exact, which favours the bound.
 */
uint64_t plan_bound_fetched(const struct plan_case *plan, uint64_t capacity);

#endif
