/** Inside of the oracle's plans: slots that know their users, and commands that wait for them. */
#ifndef TENCACHE_TEST_ORACLE_MAKER_H
#define TENCACHE_TEST_ORACLE_MAKER_H

#include "oracle_model.h"

#define WORDS ((ORACLE_MAX_COMMANDS + 63) / 64)
#define MAX_SLOTS 64
#define GPU_SLOTS 4

struct bits {
	uint64_t word[WORDS];
};

struct slot {
	struct tc_place place;
	uint64_t bytes;
	struct bits writers, readers;
};

struct resident {
	uint32_t tensor; /**< or TC_NONE */
	bool dirty, pinned;
};

enum { POOL_PARAMS, POOL_UNMANAGED, POOL_HOME, POOL_STAGING, POOL_NVME, POOL_COUNT };

struct layer_plan {
	uint32_t master, gradient32; /**< tensors of the plan */
	uint32_t home[2], at;        /**< slots of the parameter's homes, and the latest one */
	uint32_t buffer_home, master_home, moment_home, gradient_slot, gradient_cpu;
	uint32_t activation, gradient;
};

struct maker {
	const struct oracle_model *model;
	uint64_t random;
	struct tc_sink sink;
	struct tc_pool_info pools[POOL_COUNT];
	struct tc_plan_tensor tensors[96];
	uint32_t tensor_count;
	struct tc_plan_info info;
	struct tc_initial_copy copies[16];
	uint32_t copy_count;

	struct slot slots[MAX_SLOTS];
	uint32_t slot_count;
	uint32_t gpu_slots[GPU_SLOTS], gpu_slot_count;
	struct resident resident[GPU_SLOTS];
	uint32_t input, counter, statistic, upstream[2], workspace, staging32[2], state_slots[2];
	struct layer_plan layers[ORACLE_LAYERS + 1];
	uint64_t version[96];

	struct bits ancestors[ORACLE_MAX_COMMANDS];
	struct bits lane[TC_MAX_LANES], host, pending;
	uint64_t count;
	uint32_t iteration, step;
};

/** Random, below `bound`. */
uint64_t maker_chance(struct maker *maker, uint64_t bound);
uint32_t maker_add_slot(struct maker *maker, uint32_t pool, uint64_t bytes);
/** A derived tensor of twice the bytes. */
uint32_t maker_add_derived(struct maker *maker, uint32_t from, enum tc_tensor_kind kind,
                           enum tc_role role);
/** Content before the first command. */
void maker_start_at(struct maker *maker, uint32_t tensor, uint32_t slot);

struct use {
	uint32_t slot;
	bool write;
};

void maker_bits_set(struct bits *bits, uint64_t i);
struct tc_command maker_blank(enum tc_command_kind kind, enum tc_queue queue);
/** Emit a command that comes after those in `data` (reason data) and `slots` (reason slot). */
uint64_t maker_emit_after(struct maker *maker, struct tc_command *command, const struct bits *data,
                          const struct bits *slots);
/** Emit a command that uses slots; later users will come after it. */
uint64_t maker_emit(struct maker *maker, struct tc_command *command, const struct use *uses,
                    size_t use_count);
uint32_t maker_any_lane(struct maker *maker, enum tc_queue queue);
/** One move, or two chunks that write their parts of the slot independently. */
uint64_t maker_move(struct maker *maker, enum tc_command_kind kind, enum tc_queue queue,
                    uint32_t tensor, uint32_t from, uint32_t to);
struct tc_bind maker_bind_at(const struct maker *maker, uint32_t tensor, uint32_t slot,
                             enum tc_access access);

#endif
