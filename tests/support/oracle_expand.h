/** Inside of the oracle: commands as byte ranges. */
#ifndef TENCACHE_TEST_ORACLE_EXPAND_H
#define TENCACHE_TEST_ORACLE_EXPAND_H

#include "oracle.h"

#define EXPANSION_TENSORS 512u
#define EXPANSION_OPS 1024u
#define NO_CONTENT UINT64_MAX

enum action_kind {
	ACTION_READ,  /**< this content is wanted */
	ACTION_WRITE, /**< this content is left (version NO_CONTENT: garbage) */
	ACTION_COPY,  /**< the bytes read by the action before are left */
	ACTION_RENEW, /**< bytes of `from_version` belong to `version` as well; no access */
	ACTION_FORGET /**< this tensor's bytes here count no more, in id order; no access */
};

struct action {
	enum action_kind kind;
	struct tc_place at;
	uint64_t bytes;
	uint32_t tensor;
	uint64_t version, offset, from_version;
};

struct expansion {
	const struct tc_plan_info *info;
	struct action *actions;
	size_t action_count, action_capacity;
	size_t first[ORACLE_MAX_COMMANDS + 1]; /**< actions of each command */
	uint64_t written[EXPANSION_TENSORS], master_then[EXPANSION_TENSORS];
	uint32_t times[EXPANSION_OPS];
	uint32_t iterations;
	unsigned faults; /**< wrong in every order */
	char why[200];
};

struct expansion *expansion_new(const struct tc_schedule *schedule);
void expansion_free(struct expansion *expansion);
/** Version after the whole schedule. */
uint64_t expansion_version(const struct expansion *expansion, uint32_t tensor);

#endif
