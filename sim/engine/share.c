/** @file share.c
 * Max-min fair rates by progressive filling, in integers.
 *
 * All open flows grow together. Each round finds the smallest level at which something stops them:
 * a resource that is full (what is left of it divided by the weights of the open flows that use
 * it, rounded down), or a flow's own cap. What stops is frozen and its use is taken off the
 * resources. Capped flows freeze first: taking off a cap that is no larger than the level can only
 * raise the level of the others, so all of them freeze in one round.
 *
 * Nothing overflows: a level times the open weights of a resource is at most what is left of it.
 */
#include "core.h"

/** What one solve works on: what is left of each resource, and the open weights on it. */
struct filling {
	uint64_t left[TC_MAX_RESOURCES];
	uint64_t weight[TC_MAX_RESOURCES];
	uint64_t open; /**< bit per flow */
};

uint64_t tc_rate_units(uint64_t bytes_per_s)
{
	tci_work units = ((tci_work)bytes_per_s << TC_WORK_BITS) / TC_PS_PER_S;
	return units > UINT64_MAX ? UINT64_MAX : (uint64_t)units;
}

static void freeze(struct filling *filling, const struct tc_flow *flow, uint32_t index,
                   uint64_t rate, uint64_t *rates)
{
	rates[index] = rate;
	filling->open &= ~(UINT64_C(1) << index);
	for (uint32_t use = 0; use < flow->resource_count; use++) {
		uint32_t resource = flow->resources[use];
		filling->left[resource] -= rate * flow->weights[use];
		filling->weight[resource] -= flow->weights[use];
	}
}

static bool uses(const struct tc_flow *flow, uint32_t resource)
{
	for (uint32_t use = 0; use < flow->resource_count; use++)
		if (flow->resources[use] == resource && flow->weights[use] > 0)
			return true;
	return false;
}

/** The resource that fills first, and the level at which it does. */
static uint32_t fullest(const struct filling *filling, uint32_t resource_count, uint64_t *level)
{
	uint32_t first = TC_MAX_RESOURCES;
	*level = UINT64_MAX;
	for (uint32_t resource = 0; resource < resource_count; resource++) {
		uint64_t weight = filling->weight[resource];
		if (weight == 0)
			continue;
		uint64_t share = filling->left[resource];
		if (weight > 1)
			share /= weight;
		if (share < *level || first == TC_MAX_RESOURCES) {
			*level = share;
			first = resource;
		}
	}
	return first;
}

/** Freeze the open flows whose cap is at most `level`; false when there is none. */
static bool freeze_capped(struct filling *filling, const struct tc_flow *flows, uint64_t level,
                          uint64_t *rates)
{
	bool any = false;
	for (uint64_t rest = filling->open; rest != 0; rest &= rest - 1) {
		uint32_t index = (uint32_t)__builtin_ctzll(rest);
		uint64_t cap = flows[index].cap;
		if (cap == 0 || cap > level)
			continue;
		freeze(filling, &flows[index], index, cap, rates);
		any = true;
	}
	return any;
}

void tc_share_rates(const uint64_t *capacity, uint32_t resource_count, const struct tc_flow *flows,
                    uint32_t flow_count, uint64_t *rates)
{
	struct filling filling;
	for (uint32_t resource = 0; resource < resource_count; resource++) {
		filling.left[resource] = capacity[resource];
		filling.weight[resource] = 0;
	}
	filling.open = flow_count >= 64 ? UINT64_MAX : (UINT64_C(1) << flow_count) - 1;
	for (uint32_t index = 0; index < flow_count; index++)
		for (uint32_t use = 0; use < flows[index].resource_count; use++)
			filling.weight[flows[index].resources[use]] += flows[index].weights[use];

	while (filling.open != 0) {
		uint64_t level;
		uint32_t resource = fullest(&filling, resource_count, &level);
		if (freeze_capped(&filling, flows, level, rates))
			continue;
		for (uint64_t rest = filling.open; rest != 0; rest &= rest - 1) {
			uint32_t index = (uint32_t)__builtin_ctzll(rest);
			if (resource == TC_MAX_RESOURCES) {
				rates[index] = UINT64_MAX; /* nothing limits it */
				filling.open &= ~(UINT64_C(1) << index);
			} else if (uses(&flows[index], resource)) {
				freeze(&filling, &flows[index], index, level, rates);
			}
		}
	}
}
