/*
 * Moving copies between tiers, and forgetting them. A move goes to the pool's tier from the
 * nearest copy of the latest version. One hop is one command; NVMe to GPU and back go in chunks
 * through a slot in host memory, chunk k of the second hop waiting for chunk k of the first only.
 */
#include "plan.h"

struct tci_hop {
	enum tc_queue queue;
	enum tc_command_kind kind;
};

static struct tci_hop tci_hop_between(const struct tc_planner *planner, uint32_t tensor,
                                      enum tc_tier from, enum tc_tier to)
{
	bool gradient = planner->tensors[tensor].kind == TC_GRAD;
	if (to == TC_GPU) {
		/* A parameter whose GPU copy is stale is not fetched but refreshed. */
		uint32_t slot = planner->tensors[tensor].slots[TC_GPU];
		bool refresh =
		    slot != TCI_NO_SLOT && planner->slots[slot].version != TCI_NO_CONTENT;
		enum tc_command_kind kind = gradient ? TC_GRADIENT
		                            : refresh && planner->tensors[tensor].kind == TC_PARAM
		                                ? TC_PUBLISH
		                                : TC_FETCH;
		return (struct tci_hop){from == TC_NVME ? TC_QUEUE_GPU_NVME : TC_QUEUE_H2D, kind};
	}
	if (from == TC_GPU)
		return (struct tci_hop){to == TC_NVME ? TC_QUEUE_GPU_NVME : TC_QUEUE_D2H,
		                        gradient && to == TC_CPU ? TC_GRADIENT : TC_EVICT};
	return from == TC_NVME ? (struct tci_hop){TC_QUEUE_NVME_READ, TC_LOAD}
	                       : (struct tci_hop){TC_QUEUE_NVME_WRITE, TC_SPILL};
}

/** Nearest tier with a copy of the latest version, other than `to`; TC_TIER_COUNT: none. */
static enum tc_tier tci_source_tier(const struct tc_planner *planner, uint32_t tensor,
                                    enum tc_tier to)
{
	static const enum tc_tier nearest[TCI_TIERS][TCI_TIERS - 1] = {
	    [TC_GPU] = {TC_CPU, TC_NVME},
	    [TC_CPU] = {TC_GPU, TC_NVME},
	    [TC_NVME] = {TC_CPU, TC_GPU}};
	for (int i = 0; i < TCI_TIERS - 1; i++)
		if (tci_latest_slot(planner, tensor, nearest[to][i]) != TCI_NO_SLOT)
			return nearest[to][i];
	return TC_TIER_COUNT;
}

static struct tc_command tci_move_command(struct tc_planner *planner, struct tci_hop hop,
                                          enum tc_why why, uint32_t tensor, uint32_t source,
                                          uint32_t target)
{
	const struct tci_slot *from = &planner->slots[source], *to = &planner->slots[target];
	struct tc_command command = tci_command(hop.kind, hop.queue, why);
	command.tensor = tensor;
	command.version = from->version;
	command.bytes = planner->tensors[tensor].bytes;
	command.src = (struct tc_place){from->pool, from->offset};
	command.dst = (struct tc_place){to->pool, to->offset};
	const struct tc_pool_info *a = &planner->pools[from->pool].info;
	const struct tc_pool_info *b = &planner->pools[to->pool].info;
	command.pageable =
	    (hop.queue == TC_QUEUE_H2D && !a->pinned) || (hop.queue == TC_QUEUE_D2H && !b->pinned);
	/* Tensors go round the drives where each drive has a lane of its own; copies take the lanes
	 * of the link in turn. */
	uint32_t lanes = planner->machine->lanes[hop.queue];
	if (hop.queue == TC_QUEUE_NVME_READ || hop.queue == TC_QUEUE_NVME_WRITE)
		command.lane = tensor % lanes;
	else
		command.lane = planner->next_lane[hop.queue]++ % lanes;
	return command;
}

/** CUDA blocks the issuing thread in copies from or to memory that is not pinned. */
static enum tc_status tci_after_copy(struct tc_planner *planner, const struct tc_command *command,
                                     struct tc_error *error)
{
	return command->pageable ? tc_plan_wait(planner, &command->id, 1, error) : TC_OK;
}

static enum tc_status tci_move_once(struct tc_planner *planner, struct tci_hop hop, uint32_t tensor,
                                    uint32_t source, uint32_t target,
                                    const struct tc_move_options *options, uint64_t *id,
                                    struct tc_error *error)
{
	struct tc_command command =
	    tci_move_command(planner, hop, options->why, tensor, source, target);
	if (options->lane > 0)
		command.lane = (options->lane - 1) % planner->machine->lanes[hop.queue];
	struct tci_use uses[] = {TCI_USE(source, TC_READ), TCI_USE(target, TC_WRITE)};
	struct tc_dependency extra = {options->after, options->after_reason};
	TC_TRY(tci_emit(planner, &command, uses, 2, &extra, 1, id, error));
	planner->slots[target].version = command.version;
	return tci_after_copy(planner, &command, error);
}

struct tci_two_hops {
	struct tci_hop first, second;
	uint32_t source, middle, target; /**< slots */
	bool middle_taken;               /**< for this move: given back after it */
};

/** One chunk of both hops. */
static enum tc_status tci_move_chunk(struct tc_planner *planner, const struct tci_two_hops *hops,
                                     uint32_t tensor, uint64_t offset, uint64_t bytes, bool last,
                                     const struct tc_move_options *options, uint64_t *id,
                                     struct tc_error *error)
{
	struct tc_command one = tci_move_command(planner, hops->first, options->why, tensor,
	                                         hops->source, hops->middle);
	struct tc_command two = tci_move_command(planner, hops->second, options->why, tensor,
	                                         hops->source, hops->target);
	two.src = one.dst;
	two.pageable = false;
	one.tensor_offset = two.tensor_offset = offset;
	one.bytes = two.bytes = bytes;
	one.src.offset += offset;
	one.dst.offset += offset;
	two.src.offset += offset;
	two.dst.offset += offset;
	one.first_chunk = two.first_chunk = offset == 0;
	one.last_chunk = two.last_chunk = last;
	struct tci_use from[] = {TCI_USE(hops->source, TC_READ), TCI_USE(hops->middle, TC_WRITE)};
	struct tci_use to[] = {TCI_USE(hops->target, TC_WRITE)};
	struct tc_dependency extra = {options->after, options->after_reason}, data;
	/* Later chunks follow the first on their lane, and with it all that the slots wait for. */
	size_t uses = offset == 0 ? 1 : 0;
	TC_TRY(tci_emit(planner, &one, from, 2 * uses, &extra, uses, NULL, error));
	data = (struct tc_dependency){one.id, TC_REASON_DATA};
	TC_TRY(tci_emit(planner, &two, to, uses, &data, 1, id, error));
	tci_slot_touch(planner, hops->source, one.id, false);
	tci_slot_touch(planner, hops->middle, one.id, true);
	tci_slot_touch(planner, hops->middle, two.id, false);
	tci_slot_touch(planner, hops->target, two.id, true);
	return TC_OK;
}

static enum tc_status tci_move_two_hops(struct tc_planner *planner, uint32_t tensor,
                                        enum tc_tier to, const struct tci_two_hops *plan,
                                        const struct tc_move_options *options, uint64_t *id,
                                        struct tc_error *error)
{
	struct tci_two_hops hops = *plan;
	bool up = to == TC_GPU;
	hops.first = up ? (struct tci_hop){TC_QUEUE_NVME_READ, TC_LOAD}
	                : (struct tci_hop){TC_QUEUE_D2H, TC_EVICT};
	hops.second = up ? (struct tci_hop){TC_QUEUE_H2D, TC_FETCH}
	                 : (struct tci_hop){TC_QUEUE_NVME_WRITE, TC_SPILL};
	uint64_t total = planner->tensors[tensor].bytes, chunk = planner->machine->chunk_bytes;
	uint64_t version = planner->slots[hops.source].version;
	planner->slots[hops.middle].version = version;
	for (uint64_t offset = 0; offset < total; offset += chunk) {
		uint64_t bytes = total - offset < chunk ? total - offset : chunk;
		TC_TRY(tci_move_chunk(planner, &hops, tensor, offset, bytes,
		                      offset + bytes == total, options, id, error));
		if (total - offset <= chunk)
			break;
	}
	planner->slots[hops.target].version = version;
	return hops.middle_taken ? tci_slot_put(planner, tensor, TC_CPU, error) : TC_OK;
}

/** Slot for the target copy: a stale copy is overwritten, else memory is taken. */
static enum tc_status tci_target_slot(struct tc_planner *planner, uint32_t tensor, uint32_t pool,
                                      uint32_t *slot, struct tc_error *error)
{
	enum tc_tier tier = planner->pools[pool].info.tier;
	*slot = planner->tensors[tensor].slots[tier];
	if (*slot != TCI_NO_SLOT)
		return TC_OK;
	return tci_slot_take_or_make_room(planner, pool, tensor, slot, error);
}

static enum tc_status tci_no_source(struct tc_planner *planner, uint32_t tensor, uint32_t pool,
                                    struct tc_error *error)
{
	return tc_error_set(
	    error, TC_ARGUMENT,
	    "policy %s moves tensor \"%s\" to pool \"%s\", but no copy of its latest "
	    "version %llu exists elsewhere",
	    planner->choice->text, planner->table[tensor].name, planner->pools[pool].info.name,
	    (unsigned long long)tci_latest(planner, tensor));
}

enum tc_status tc_plan_move(struct tc_planner *planner, uint32_t tensor, uint32_t pool,
                            uint32_t staging, struct tc_move_options options, bool *moved,
                            uint64_t *command, struct tc_error *error)
{
	enum tc_tier to = planner->pools[pool].info.tier;
	uint32_t there = tci_latest_slot(planner, tensor, to);
	uint64_t id = TC_NO_COMMAND;
	*moved = true;
	if (command != NULL)
		*command = there == TCI_NO_SLOT ? id : tci_slot_writer(&planner->slots[there]);
	enum tc_tier from = tci_source_tier(planner, tensor, to);
	if (there != TCI_NO_SLOT)
		return options.keep_source || from == TC_TIER_COUNT
		           ? TC_OK
		           : tci_slot_put(planner, tensor, from, error);
	if (from == TC_TIER_COUNT)
		return tci_no_source(planner, tensor, pool, error);
	struct tci_hop hop = tci_hop_between(planner, tensor, from, to);
	bool two_hops = hop.queue == TC_QUEUE_GPU_NVME && !planner->machine->gpu_direct;
	uint32_t middle = planner->tensors[tensor].slots[TC_CPU], target;
	bool middle_taken = two_hops && middle == TCI_NO_SLOT;
	if (middle_taken) {
		if (staging == TC_NO_POOL)
			return tc_error_set(
			    error, TC_INTERNAL,
			    "tensor \"%s\" goes between GPU and NVMe without staging",
			    planner->table[tensor].name);
		TC_TRY(tci_slot_take_or_make_room(planner, staging, tensor, &middle, error));
		if (middle == TCI_NO_SLOT) {
			*moved = false;
			return TC_OK;
		}
	}
	TC_TRY(tci_target_slot(planner, tensor, pool, &target, error));
	if (target == TCI_NO_SLOT) {
		*moved = false;
		return middle_taken ? tci_slot_put(planner, tensor, TC_CPU, error) : TC_OK;
	}
	uint32_t source = planner->tensors[tensor].slots[from];
	struct tci_two_hops hops = {
	    .source = source, .middle = middle, .target = target, .middle_taken = middle_taken};
	if (two_hops)
		TC_TRY(tci_move_two_hops(planner, tensor, to, &hops, &options, &id, error));
	else
		TC_TRY(tci_move_once(planner, hop, tensor, source, target, &options, &id, error));
	if ((hop.kind == TC_FETCH || hop.kind == TC_LOAD) && options.why != TC_WHY_DEMAND)
		planner->tensors[tensor].fetched_since_request = true;
	if (command != NULL)
		*command = id;
	return options.keep_source ? TC_OK : tci_slot_put(planner, tensor, from, error);
}

enum tc_status tc_plan_drop(struct tc_planner *planner, uint32_t tensor, enum tc_tier tier,
                            struct tc_error *error)
{
	uint32_t index = planner->tensors[tensor].slots[tier];
	if (index == TCI_NO_SLOT)
		return TC_OK;
	if (tci_latest_slot(planner, tensor, tier) != TCI_NO_SLOT &&
	    tci_source_tier(planner, tensor, tier) == TC_TIER_COUNT)
		return tc_error_set(
		    error, TC_INTERNAL,
		    "policy %s drops the last copy of tensor \"%s\" (version %llu, in "
		    "%s); evict or spill it first",
		    planner->choice->text, planner->table[tensor].name,
		    (unsigned long long)tci_latest(planner, tensor), tc_tier_name(tier));
	struct tc_command command = tci_command(TC_DROP, TC_QUEUE_HOST, TC_WHY_NONE);
	command.tensor = tensor;
	command.version = planner->slots[index].version;
	command.src = (struct tc_place){planner->slots[index].pool, planner->slots[index].offset};
	TC_TRY(tci_slot_put(planner, tensor, tier, error));
	return tci_emit(planner, &command, NULL, 0, NULL, 0, NULL, error);
}

enum tc_status tc_plan_discard(struct tc_planner *planner, uint32_t tensor, struct tc_error *error)
{
	for (int tier = 0; tier < TCI_TIERS; tier++)
		if (planner->tensors[tensor].slots[tier] != TCI_NO_SLOT)
			TC_TRY(tci_slot_put(planner, tensor, (enum tc_tier)tier, error));
	return TC_OK;
}

enum tc_status tc_plan_evict(struct tc_planner *planner, uint32_t tensor, enum tc_why why,
                             bool *done, struct tc_error *error)
{
	*done = true;
	if (tci_latest_slot(planner, tensor, TC_GPU) == TCI_NO_SLOT ||
	    tci_source_tier(planner, tensor, TC_GPU) != TC_TIER_COUNT)
		return tc_plan_drop(planner, tensor, TC_GPU, error);
	struct tc_move_options options = TC_MOVE(why);
	options.keep_source = false;
	TC_TRY(tc_plan_move(planner, tensor, planner->default_pool[TC_CPU], TC_NO_POOL, options,
	                    done, NULL, error));
	planner->host_full = planner->host_full || !*done;
	return TC_OK;
}

enum tc_status tc_plan_wait(struct tc_planner *planner, const uint64_t *ids, size_t count,
                            struct tc_error *error)
{
	struct tc_dependency extra[TC_MAX_LANES];
	struct tc_command command = tci_command(TC_WAIT, TC_QUEUE_HOST, TC_WHY_NONE);
	struct tci_release latest = {{0}};
	size_t kept = 0;
	/* Lanes run in order: of each, only the latest command needs waiting for. */
	for (size_t i = 0; i < count; i++)
		tci_note_lane(planner, &latest, ids[i]);
	for (uint32_t lane = 0; lane < planner->lane_count; lane++)
		if (latest.last[lane] > planner->host_clock.last[lane])
			extra[kept++] =
			    (struct tc_dependency){latest.last[lane] - 1, TC_REASON_ORDER};
	if (kept == 0)
		return TC_OK; /* the host has waited for all of it before */
	return tci_emit(planner, &command, NULL, 0, extra, kept, NULL, error);
}
