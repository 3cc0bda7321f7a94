/**
 * Small plans of zero-infinity, and looking for commands in them.
 */
#ifndef TENCACHE_TEST_ZERO_INFINITY_PLANS_H
#define TENCACHE_TEST_ZERO_INFINITY_PLANS_H

#include "planned.h"

/** All parameters on the drive, staging buffers of 10,000 elements. */
#define NVME "zero-infinity:device=nvme:min-nvme-bytes=1:max-in-cpu=0:buffer-size=10000"

/** Modules in a row, one FP16 parameter each (FP32 with `full`): tensors 1, 2, ..., at most 16. */
struct planned *plan_sizes(const uint64_t *elements, uint32_t count, bool full, const char *policy);
/** Four of 1,000 FP16 elements; fails the test if the plan does. */
struct planned *plan_four(const char *policy);

/** Pool of a place; one with an empty name where there is none. */
const struct tc_pool_info *pool_of(const struct planned *planned, struct tc_place place);
/** NULL where the plan has no such pool. */
const struct tc_pool_info *pool_named(const struct planned *planned, const char *name,
                                      enum tc_tier tier);
/** Parameter that a tensor, derived or not, belongs to; TC_NONE for others. */
uint32_t parameter_of(const struct planned *planned, uint32_t tensor);

struct command_filter {
	enum tc_command_kind kind;
	uint32_t iteration;
	uint32_t parameter;    /**< TC_NONE: any */
	const char *from, *to; /**< pools; NULL: any */
};

bool commands_pass(const struct planned *planned, const struct tc_command *command,
                   const struct command_filter *filter);
/** How many commands pass, and the sum of their bytes (`bytes` may be NULL). */
uint64_t commands_count(const struct planned *planned, const struct command_filter *filter,
                        uint64_t *bytes);
/** Id of the `index`-th command that passes; fails the test where there is none. */
uint64_t commands_find(const struct planned *planned, const struct command_filter *filter,
                       uint64_t index);

#endif
