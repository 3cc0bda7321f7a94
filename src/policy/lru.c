/* lru: fetch on demand, evict the least recently used tensor. */
#include "demand.h"
#include "order.h"
#include "policies.h"

struct tci_lru {
	struct tci_recency *recency;
	uint32_t cache;
};

static enum tc_status tci_lru_begin(void *self, struct tc_planner *planner, struct tc_error *error)
{
	struct tci_lru *lru = self;
	TC_TRY(tci_recency_create(tc_plan_trace(planner)->tensor_count, &lru->recency, error));
	return tci_demand_begin(planner, &lru->cache, error);
}

static void tci_lru_visit(void *self, struct tc_planner *planner, uint32_t tensor)
{
	struct tci_lru *lru = self;
	(void)planner;
	tci_recency_touch(lru->recency, tensor);
}

static enum tc_status tci_lru_after_step(void *self, struct tc_planner *planner, uint32_t step,
                                         struct tc_ids closing, struct tc_error *error)
{
	(void)closing;
	(void)error;
	tci_demand_visit(planner, step, tci_lru_visit, self);
	return TC_OK;
}

static enum tc_status tci_lru_make_room(void *self, struct tc_planner *planner, uint32_t pool,
                                        uint64_t bytes, uint32_t for_tensor, bool *made,
                                        struct tc_error *error)
{
	struct tci_lru *lru = self;
	(void)bytes;
	(void)for_tensor;
	*made = false;
	if (pool != lru->cache)
		return TC_OK;
	uint32_t t = tci_recency_oldest(lru->recency);
	while (t != UINT32_MAX && !*made) {
		uint32_t newer = tci_recency_newer(lru->recency, t);
		if (!tc_plan_has(planner, t, TC_GPU)) {
			tci_recency_remove(lru->recency, t); /* left on its own: a gradient */
		} else if (!tc_plan_is_pinned(planner, t)) {
			TC_TRY(tc_plan_evict(planner, t, TC_WHY_VICTIM, made, error));
			if (!*made)
				return TC_OK; /* host memory is full */
			tci_recency_remove(lru->recency, t);
		}
		t = newer;
	}
	return TC_OK;
}

static void tci_lru_end(void *self)
{
	tci_recency_free(((struct tci_lru *)self)->recency);
}

static const struct tc_policy_parameter tci_lru_parameters[] = {TCI_DEMAND_PARAMETERS};

const struct tc_policy tci_policy_lru = {
    .name = "lru",
    .summary = "fetch on demand, evict the least recently used tensor",
    .source = "textbook baseline",
    .parameters = tci_lru_parameters,
    .parameter_count = sizeof tci_lru_parameters / sizeof *tci_lru_parameters,
    .period = 1,
    .state_bytes = sizeof(struct tci_lru),
    .begin = tci_lru_begin,
    .after_step = tci_lru_after_step,
    .make_room = tci_lru_make_room,
    .end = tci_lru_end,
};
