/*
 * Sound schedules for the oracle. Slots are fixed; each knows who wrote and read it last. A command
 * gets a dependency only where no other path leads to it already (all ancestors are kept as bits),
 * so that leaving one out usually matters.
 */
#include <stdlib.h>
#include <string.h>

#include "oracle_model.h"
#include "random.h"

#define WORDS ((ORACLE_MAX_COMMANDS + 63) / 64)
#define MAX_SLOTS 64
#define GPU_SLOTS 4

struct bits {
	uint64_t word[WORDS];
};

static void bits_set(struct bits *bits, uint64_t i)
{
	bits->word[i / 64] |= (uint64_t)1 << (i % 64);
}

static bool bits_has(const struct bits *bits, uint64_t i)
{
	return (bits->word[i / 64] >> (i % 64) & 1) != 0;
}

static void bits_join(struct bits *bits, const struct bits *other)
{
	for (unsigned w = 0; w < WORDS; w++)
		bits->word[w] |= other->word[w];
}

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
	uint32_t input, upstream[2], workspace, staging32[2], state_slots[2];
	struct layer_plan layers[ORACLE_LAYERS + 1];
	uint64_t version[96];

	struct bits ancestors[ORACLE_MAX_COMMANDS];
	struct bits lane[TC_MAX_LANES], host, pending;
	uint64_t count;
	uint32_t iteration, step;
};

static uint64_t chance(struct maker *maker, uint64_t bound)
{
	return test_random_below(&maker->random, bound);
}

static uint32_t add_slot(struct maker *maker, uint32_t pool, uint64_t bytes)
{
	struct slot *slot = &maker->slots[maker->slot_count];
	slot->place = (struct tc_place){pool, maker->pools[pool].bytes};
	slot->bytes = bytes;
	maker->pools[pool].bytes += bytes;
	return maker->slot_count++;
}

static uint32_t add_derived(struct maker *maker, uint32_t from, enum tc_tensor_kind kind,
                            enum tc_role role)
{
	maker->tensors[maker->tensor_count] =
	    (struct tc_plan_tensor){.name = "derived",
	                            .kind = kind,
	                            .role = role,
	                            .bytes = 2 * maker->tensors[from].bytes,
	                            .derived_from = from,
	                            .home = TC_CPU};
	return maker->tensor_count++;
}

static void start_at(struct maker *maker, uint32_t tensor, uint32_t slot)
{
	maker->tensors[tensor].placed = true;
	maker->tensors[tensor].start = maker->slots[slot].place;
}

/* ---------------------------------------------------------------- emitting */

struct use {
	uint32_t slot;
	bool write;
};

static struct tc_command blank(enum tc_command_kind kind, enum tc_queue queue)
{
	return (struct tc_command){.kind = kind,
	                           .queue = queue,
	                           .tensor = TC_NONE,
	                           .src = {TC_NO_POOL, 0},
	                           .dst = {TC_NO_POOL, 0},
	                           .first_op = TC_NONE,
	                           .last_op = TC_NONE,
	                           .first_chunk = true,
	                           .last_chunk = true};
}

static bool has_work(enum tc_command_kind kind)
{
	return kind == TC_COMPUTE || kind == TC_UPDATE || kind == TC_CONVERT;
}

/** Name from `wanted`, latest first, what `known` lacks. */
static uint32_t choose(struct maker *maker, const struct bits *wanted, struct bits *known,
                       enum tc_reason reason, struct tc_dependency *deps, uint32_t count)
{
	for (uint64_t id = maker->count; id-- > 0;)
		if (bits_has(wanted, id) && !bits_has(known, id)) {
			deps[count++] = (struct tc_dependency){id, reason};
			bits_join(known, &maker->ancestors[id]);
			bits_set(known, id);
		}
	return count;
}

/** Fields that nothing here depends on, so that copies and files can be compared in full. */
static void decorate(struct maker *maker, struct tc_command *command, struct tc_served *served,
                     struct tc_memory_change *memory)
{
	command->phase = (enum tc_phase)chance(maker, TC_PHASE_COUNT);
	command->launches = (uint32_t)chance(maker, 3);
	command->hooks = (uint32_t)chance(maker, 3);
	command->pageable = command->kind <= TC_GRADIENT && chance(maker, 4) == 0;
	command->traffic_bytes = chance(maker, 2) * chance(maker, 1u << 20);
	if (command->queue == TC_QUEUE_HOST)
		command->duration_ps = chance(maker, 1000);
	command->memory = memory;
	command->memory_count = (uint32_t)chance(maker, 3);
	for (uint32_t m = 0; m < command->memory_count; m++)
		memory[m] = (struct tc_memory_change){
		    (int64_t)chance(maker, 4096) - 2048,
		    chance(maker, 2) == 0 ? TC_NO_COMMAND : chance(maker, maker->count + 1),
		    (enum tc_tier)chance(maker, TC_TIER_COUNT),
		    (enum tc_tensor_kind)chance(maker, TC_TENSOR_KIND_COUNT)};
	command->served = served;
	command->served_count = has_work(command->kind) ? (uint32_t)chance(maker, 3) : 0;
	for (uint32_t s = 0; s < command->served_count; s++)
		served[s] = (struct tc_served){
		    (uint32_t)chance(maker, maker->tensor_count), (enum tc_outcome)chance(maker, 3),
		    chance(maker, 2) == 0, chance(maker, 2) == 0,
		    chance(maker, 2) == 0 ? TC_NO_COMMAND : chance(maker, maker->count + 1)};
}

static uint64_t emit_after(struct maker *maker, struct tc_command *command, const struct bits *data,
                           const struct bits *slots)
{
	struct tc_dependency deps[ORACLE_MAX_COMMANDS];
	uint32_t lane = tc_lane_index(maker->info.lanes, command->queue, command->lane);
	struct bits known = maker->host;
	bits_join(&known, &maker->lane[lane]);
	uint32_t count = choose(maker, data, &known, TC_REASON_DATA, deps, 0);
	count = choose(maker, slots, &known, TC_REASON_SLOT, deps, count);
	struct tc_served served[2];
	struct tc_memory_change memory[2];
	decorate(maker, command, served, memory);
	command->id = maker->count;
	command->iteration = maker->iteration;
	command->step = maker->step;
	command->deps = deps;
	command->dep_count = count;
	struct tc_error error = {0};
	if (maker->count >= ORACLE_MAX_COMMANDS ||
	    maker->sink.command(maker->sink.self, command, &error) != TC_OK)
		abort();
	maker->ancestors[maker->count] = known;
	bits_set(&known, maker->count);
	maker->lane[lane] = known;
	if (command->queue == TC_QUEUE_HOST)
		bits_join(&maker->host, &known);
	return maker->count++;
}

/** Emit a command that uses slots; later users will come after it. */
static uint64_t emit(struct maker *maker, struct tc_command *command, const struct use *uses,
                     size_t use_count)
{
	struct bits data = {0}, slots = {0};
	for (size_t u = 0; u < use_count; u++) {
		const struct slot *slot = &maker->slots[uses[u].slot];
		bits_join(uses[u].write ? &slots : &data, &slot->writers);
		if (uses[u].write)
			bits_join(&slots, &slot->readers);
	}
	uint64_t id = emit_after(maker, command, &data, &slots);
	for (size_t u = 0; u < use_count; u++) {
		struct slot *slot = &maker->slots[uses[u].slot];
		if (uses[u].write) {
			memset(&slot->writers, 0, sizeof slot->writers);
			memset(&slot->readers, 0, sizeof slot->readers);
			bits_set(&slot->writers, id);
		} else {
			bits_set(&slot->readers, id);
		}
	}
	return id;
}

static uint32_t any_lane(struct maker *maker, enum tc_queue queue)
{
	return (uint32_t)chance(maker, maker->info.lanes[queue]);
}

/** One move, or two chunks that write their parts of the slot independently. */
static uint64_t move(struct maker *maker, enum tc_command_kind kind, enum tc_queue queue,
                     uint32_t tensor, uint32_t from, uint32_t to)
{
	uint64_t size = maker->tensors[tensor].bytes, half = size / 32 * 16;
	bool chunks = half > 0 && chance(maker, 3) == 0;
	struct slot *source = &maker->slots[from], *target = &maker->slots[to];
	struct bits users = target->writers, written = {0};
	bits_join(&users, &target->readers);
	uint64_t last = TC_NO_COMMAND;
	for (unsigned c = 0; c < (chunks ? 2u : 1u); c++) {
		struct tc_command command = blank(kind, queue);
		command.lane = any_lane(maker, queue);
		command.tensor = tensor;
		command.version = maker->version[tensor];
		command.tensor_offset = c * half;
		command.bytes = !chunks ? size : c == 0 ? half : size - half;
		command.first_chunk = c == 0;
		command.last_chunk = !chunks || c == 1;
		command.src = source->place;
		command.src.offset += command.tensor_offset;
		command.dst = target->place;
		command.dst.offset += command.tensor_offset;
		command.why = TC_WHY_PREFETCH;
		last = emit_after(maker, &command, &source->writers, &users);
		bits_set(&source->readers, last);
		bits_set(&written, last);
	}
	target->writers = written;
	memset(&target->readers, 0, sizeof target->readers);
	return last;
}

static struct tc_bind bind_at(const struct maker *maker, uint32_t tensor, uint32_t slot,
                              enum tc_access access)
{
	return (struct tc_bind){tensor,
	                        maker->slots[slot].place.pool,
	                        maker->slots[slot].place.offset,
	                        maker->tensors[tensor].bytes,
	                        maker->version[tensor],
	                        access};
}

/* ---------------------------------------------------------------- residency on the GPU */

static uint32_t find_resident(const struct maker *maker, uint32_t tensor)
{
	for (uint32_t s = 0; s < maker->gpu_slot_count; s++)
		if (maker->resident[s].tensor == tensor)
			return s;
	return TC_NONE;
}

static uint32_t layer_of(const struct maker *maker, uint32_t tensor)
{
	for (uint32_t l = 0; l < maker->model->layer_count; l++)
		if (maker->model->layers[l].param == tensor ||
		    maker->model->layers[l].buffer == tensor)
			return l;
	abort();
}

static uint32_t home_slot(const struct maker *maker, uint32_t tensor)
{
	const struct layer_plan *layer = &maker->layers[layer_of(maker, tensor)];
	return maker->tensors[tensor].kind == TC_PARAM ? layer->home[layer->at]
	                                               : layer->buffer_home;
}

/** Give up what slot `s` holds: a dirty copy goes home first, a clean one is forgotten. */
static void vacate(struct maker *maker, uint32_t s)
{
	struct resident *resident = &maker->resident[s];
	if (resident->tensor == TC_NONE)
		return;
	if (resident->dirty) {
		(void)move(maker, TC_EVICT, TC_QUEUE_D2H, resident->tensor, maker->gpu_slots[s],
		           home_slot(maker, resident->tensor));
	} else if (chance(maker, 2) == 0) {
		struct tc_command drop = blank(TC_DROP, TC_QUEUE_HOST);
		drop.tensor = resident->tensor;
		drop.src = maker->slots[maker->gpu_slots[s]].place;
		(void)emit(maker, &drop, NULL, 0);
	}
	*resident = (struct resident){.tensor = TC_NONE};
}

static uint32_t fetch(struct maker *maker, uint32_t tensor)
{
	uint32_t s = find_resident(maker, tensor);
	if (s != TC_NONE)
		return s;
	do
		s = (uint32_t)chance(maker, maker->gpu_slot_count);
	while (maker->resident[s].pinned);
	vacate(maker, s);
	(void)move(maker, TC_FETCH, TC_QUEUE_H2D, tensor, home_slot(maker, tensor),
	           maker->gpu_slots[s]);
	maker->resident[s] = (struct resident){.tensor = tensor};
	return s;
}

/* ---------------------------------------------------------------- steps */

/** Binds and uses of a compute command under construction. */
struct work {
	struct tc_bind binds[16];
	struct use uses[16];
	uint32_t count;
};

static void work_add(struct maker *maker, struct work *work, uint32_t tensor, uint32_t slot,
                     enum tc_access access)
{
	work->binds[work->count] = bind_at(maker, tensor, slot, access);
	work->uses[work->count++] = (struct use){slot, access != TC_READ};
}

static void compute(struct maker *maker, struct work *work, uint32_t first, uint32_t last)
{
	struct tc_command command = blank(TC_COMPUTE, TC_QUEUE_COMPUTE);
	command.first_op = first;
	command.last_op = last;
	command.duration_ps = 1000 * (uint64_t)(last - first + 1);
	command.binds = work->binds;
	command.bind_count = work->count;
	(void)emit(maker, &command, work->uses, work->count);
	const struct tc_trace *trace = &maker->model->trace;
	for (uint32_t o = first; o <= last; o++)
		for (uint32_t w = 0; w < trace->ops[o].writes.count; w++)
			maker->version[trace->ops[o].writes.items[w]]++;
	for (uint32_t s = 0; s < maker->gpu_slot_count; s++)
		maker->resident[s].pinned = false;
	maker->step++;
}

static void need_param(struct maker *maker, struct work *work, uint32_t l)
{
	uint32_t s = fetch(maker, maker->model->layers[l].param);
	maker->resident[s].pinned = true;
	work_add(maker, work, maker->model->layers[l].param, maker->gpu_slots[s], TC_READ);
}

/** Sometimes: fetch a neighbour early, or ask for one that no op reads. */
static void extras(struct maker *maker, struct work *work, uint32_t l)
{
	uint32_t other = (uint32_t)chance(maker, maker->model->layer_count);
	uint32_t param = maker->model->layers[other].param;
	if (other == l)
		return;
	if (chance(maker, 3) == 0)
		(void)fetch(maker, param);
	uint32_t s = find_resident(maker, param);
	if (s != TC_NONE && chance(maker, 2) == 0)
		work_add(maker, work, param, maker->gpu_slots[s], TC_READ);
}

static void forward(struct maker *maker, uint32_t l)
{
	const struct oracle_layer *layer = &maker->model->layers[l];
	const struct layer_plan *plan = &maker->layers[l];
	struct work work = {.count = 0};
	need_param(maker, &work, l);
	if (layer->buffer != TC_NONE) {
		uint32_t s = fetch(maker, layer->buffer);
		maker->resident[s].pinned = maker->resident[s].dirty = true;
		work_add(maker, &work, layer->buffer, maker->gpu_slots[s], TC_READ_WRITE);
	}
	if (l == 0)
		work_add(maker, &work, maker->model->input, maker->input, TC_READ);
	else
		work_add(maker, &work, layer[-1].activation, plan[-1].activation, TC_READ);
	work_add(maker, &work, layer->activation, plan->activation, TC_WRITE);
	if (maker->model->trace.ops[l].workspace > 0) {
		work_add(maker, &work, layer->activation, maker->workspace, TC_WRITE);
		work.binds[work.count - 1].tensor = TC_NONE;
		work.binds[work.count - 1].bytes = maker->slots[maker->workspace].bytes;
	}
	extras(maker, &work, l);
	compute(maker, &work, l, l);
}

static void backward(struct maker *maker, uint32_t l)
{
	const struct oracle_layer *layer = &maker->model->layers[l];
	struct layer_plan *plan = &maker->layers[l];
	uint32_t layers = maker->model->layer_count;
	struct work work = {.count = 0};
	need_param(maker, &work, l);
	if (l + 1 == layers)
		work_add(maker, &work, layer->activation, plan->activation, TC_READ);
	else
		work_add(maker, &work, layer[1].upstream, maker->upstream[(l + 1) % 2], TC_READ);
	if (l == 0)
		work_add(maker, &work, maker->model->input, maker->input, TC_READ);
	else
		work_add(maker, &work, layer[-1].activation, plan[-1].activation, TC_READ);
	work_add(maker, &work, layer->gradient, plan->gradient, TC_WRITE);
	work_add(maker, &work, layer->upstream, maker->upstream[l % 2], TC_WRITE);
	extras(maker, &work, l);
	uint32_t first = layers + 2 * (layers - 1 - l);
	compute(maker, &work, first, first + 1);

	/* The gradient's path: FP32 in staging, then down. */
	maker->version[plan->gradient32] = maker->version[layer->gradient];
	uint32_t staging = maker->staging32[l % 2];
	struct tc_bind binds[] = {bind_at(maker, layer->gradient, plan->gradient, TC_READ),
	                          bind_at(maker, plan->gradient32, staging, TC_WRITE)};
	struct use uses[] = {{plan->gradient, false}, {staging, true}};
	struct tc_command convert = blank(TC_CONVERT, TC_QUEUE_COMPUTE);
	convert.tensor = plan->gradient32;
	convert.version = maker->version[plan->gradient32];
	convert.binds = binds;
	convert.bind_count = 2;
	convert.traffic_bytes = 96;
	convert.why = TC_WHY_BUCKET;
	(void)emit(maker, &convert, uses, 2);
	(void)move(maker, TC_GRADIENT, TC_QUEUE_D2H, plan->gradient32, staging, plan->gradient_cpu);
}

static void optimize(struct maker *maker, uint32_t l)
{
	const struct oracle_layer *layer = &maker->model->layers[l];
	struct layer_plan *plan = &maker->layers[l];
	uint32_t state = maker->state_slots[l % 2];
	bits_set(&maker->pending,
	         move(maker, TC_LOAD, TC_QUEUE_NVME_READ, layer->moment, plan->moment_home, state));

	struct tc_bind binds[] = {bind_at(maker, plan->gradient32, plan->gradient_cpu, TC_READ),
	                          bind_at(maker, plan->master, plan->master_home, TC_READ_WRITE),
	                          bind_at(maker, layer->moment, state, TC_READ_WRITE)};
	struct use uses[] = {{plan->gradient_cpu, false}, {plan->master_home, true}, {state, true}};
	struct tc_command update = blank(TC_UPDATE, TC_QUEUE_CPU);
	update.lane = any_lane(maker, TC_QUEUE_CPU);
	update.first_op = update.last_op = maker->model->first_update + l;
	update.elements = 8;
	update.binds = binds;
	update.bind_count = 3;
	(void)emit(maker, &update, uses, 3);
	maker->version[layer->moment]++;
	maker->version[layer->param]++;
	maker->version[plan->master]++;
	bits_set(&maker->pending, move(maker, TC_SPILL, TC_QUEUE_NVME_WRITE, layer->moment, state,
	                               plan->moment_home));

	plan->at = 1 - plan->at;
	uint32_t home = plan->home[plan->at];
	struct tc_bind pair[] = {bind_at(maker, plan->master, plan->master_home, TC_READ),
	                         bind_at(maker, layer->param, home, TC_WRITE)};
	struct use pair_uses[] = {{plan->master_home, false}, {home, true}};
	struct tc_command convert = blank(TC_CONVERT, TC_QUEUE_CPU);
	convert.lane = any_lane(maker, TC_QUEUE_CPU);
	convert.tensor = layer->param;
	convert.version = maker->version[layer->param];
	convert.binds = pair;
	convert.bind_count = 2;
	bits_set(&maker->pending, emit(maker, &convert, pair_uses, 2));
	uint32_t s = find_resident(maker, layer->param);
	if (s == TC_NONE)
		return;
	if (chance(maker, 2) == 0)
		(void)move(maker, TC_PUBLISH, TC_QUEUE_H2D, layer->param, home,
		           maker->gpu_slots[s]);
	else
		maker->resident[s] = (struct resident){.tensor = TC_NONE};
}

static void host_wait(struct maker *maker)
{
	static const struct bits none;
	struct tc_command wait = blank(TC_WAIT, TC_QUEUE_HOST);
	(void)emit_after(maker, &wait, &maker->pending, &none);
	memset(&maker->pending, 0, sizeof maker->pending);
}

/* ---------------------------------------------------------------- the whole */

static void lay_out(struct maker *maker)
{
	const struct oracle_model *model = maker->model;
	static const struct tc_pool_info pools[POOL_COUNT] = {
	    {"params", TC_GPU, TC_POOL_ARENA, false, 0},
	    {"unmanaged", TC_GPU, TC_POOL_FIXED, false, 0},
	    {"home", TC_CPU, TC_POOL_CLASSES, true, 0},
	    {"staging", TC_CPU, TC_POOL_RING, true, 0},
	    {"state", TC_NVME, TC_POOL_FIXED, false, 0}};
	memcpy(maker->pools, pools, sizeof pools);
	for (uint32_t t = 0; t < model->trace.tensor_count; t++)
		maker->tensors[t] = (struct tc_plan_tensor){.name = model->tensors[t].name,
		                                            .kind = model->tensors[t].kind,
		                                            .role = model->tensors[t].role,
		                                            .bytes = model->tensors[t].bytes,
		                                            .derived_from = TC_NONE,
		                                            .home = TC_CPU};
	maker->tensor_count = model->trace.tensor_count;
	maker->gpu_slot_count = 3 + (uint32_t)chance(maker, GPU_SLOTS - 2);
	for (uint32_t s = 0; s < maker->gpu_slot_count; s++) {
		maker->gpu_slots[s] = add_slot(maker, POOL_PARAMS, 64);
		maker->resident[s].tensor = TC_NONE;
	}
	maker->input = add_slot(maker, POOL_UNMANAGED, 48);
	maker->workspace = add_slot(maker, POOL_UNMANAGED, 32);
	for (unsigned i = 0; i < 2; i++) {
		maker->upstream[i] = add_slot(maker, POOL_UNMANAGED, 48);
		maker->staging32[i] = add_slot(maker, POOL_UNMANAGED, 128);
		maker->state_slots[i] = add_slot(maker, POOL_STAGING, 128);
	}
	start_at(maker, model->input, maker->input);
}

static void lay_out_layer(struct maker *maker, uint32_t l)
{
	const struct oracle_layer *layer = &maker->model->layers[l];
	struct layer_plan *plan = &maker->layers[l];
	plan->master = layer->master != TC_NONE
	                   ? layer->master
	                   : add_derived(maker, layer->param, TC_OPTIMIZER_STATE, TC_ROLE_MASTER);
	plan->gradient32 = add_derived(maker, layer->gradient, TC_GRAD, TC_ROLE_NONE);
	plan->home[0] = add_slot(maker, POOL_HOME, 64);
	plan->home[1] = add_slot(maker, POOL_HOME, 64);
	plan->master_home = add_slot(maker, POOL_HOME, 128);
	plan->gradient_cpu = add_slot(maker, POOL_STAGING, 128);
	plan->moment_home = add_slot(maker, POOL_NVME, 128);
	plan->activation = add_slot(maker, POOL_UNMANAGED, 48);
	plan->gradient = add_slot(maker, POOL_UNMANAGED, 64);
	start_at(maker, layer->param, plan->home[0]);
	start_at(maker, plan->master, plan->master_home);
	start_at(maker, layer->moment, plan->moment_home);
	if (layer->buffer != TC_NONE) {
		plan->buffer_home = add_slot(maker, POOL_HOME, 32);
		start_at(maker, layer->buffer, plan->buffer_home);
	}
	if (l < 2 && chance(maker, 2) == 0) {
		maker->copies[maker->copy_count++] =
		    (struct tc_initial_copy){layer->param, maker->slots[maker->gpu_slots[l]].place};
		maker->resident[l].tensor = layer->param;
	}
}

static void run(struct maker *maker, uint32_t iterations)
{
	uint32_t layers = maker->model->layer_count;
	for (maker->iteration = 0; maker->iteration < iterations; maker->iteration++) {
		maker->step = 0;
		for (uint32_t l = 0; l < layers; l++)
			forward(maker, l);
		for (uint32_t l = layers; l-- > 0;)
			backward(maker, l);
		for (uint32_t l = 0; l < layers; l++)
			optimize(maker, l);
		if (chance(maker, 3) > 0)
			host_wait(maker);
	}
}

static void finish(struct maker *maker)
{
	struct tc_final_place places[32];
	uint32_t count = 0;
	const struct oracle_model *model = maker->model;
	places[count++] =
	    (struct tc_final_place){model->input, 0, maker->slots[maker->input].place};
	for (uint32_t l = 0; l < model->layer_count; l++) {
		const struct layer_plan *plan = &maker->layers[l];
		uint32_t buffer = model->layers[l].buffer;
		uint32_t kept[] = {model->layers[l].param, plan->master, model->layers[l].moment};
		uint32_t at[] = {plan->home[plan->at], plan->master_home, plan->moment_home};
		for (unsigned i = 0; i < 3; i++)
			places[count++] = (struct tc_final_place){kept[i], maker->version[kept[i]],
			                                          maker->slots[at[i]].place};
		if (buffer == TC_NONE)
			continue;
		uint32_t s = find_resident(maker, buffer);
		uint32_t slot = s == TC_NONE ? plan->buffer_home : maker->gpu_slots[s];
		places[count++] = (struct tc_final_place){buffer, maker->version[buffer],
		                                          maker->slots[slot].place};
	}
	struct tc_plan_end end = {maker->count, places, count};
	struct tc_error error = {0};
	if (maker->sink.end(maker->sink.self, &end, &error) != TC_OK)
		abort();
}

struct tc_schedule *oracle_plan(const struct oracle_model *model, uint64_t seed,
                                uint32_t iterations, struct tc_machine *machine)
{
	struct maker *maker = calloc(1, sizeof *maker);
	struct tc_schedule *schedule;
	struct tc_error error = {0};
	if (maker == NULL || tc_schedule_create(&schedule, &error) != TC_OK)
		abort();
	maker->model = model;
	maker->random = seed;
	maker->sink = tc_schedule_sink(schedule);
	lay_out(maker);
	for (uint32_t l = 0; l < model->layer_count; l++)
		lay_out_layer(maker, l);
	memset(machine, 0, sizeof *machine);
	machine->name = "oracle";
	memset(machine->sha256, 'c', 64);
	for (uint32_t p = 0; p < POOL_COUNT; p++)
		machine->capacity_bytes[maker->pools[p].tier] += maker->pools[p].bytes;
	machine->capacity_bytes[TC_GPU] += 7; /* what the framework takes */
	maker->info = (struct tc_plan_info){.trace = &model->trace,
	                                    .machine = machine,
	                                    .policy = "oracle:seed=1",
	                                    .trace_name = model->trace.name,
	                                    .trace_sha256 = model->trace.sha256,
	                                    .events_sha256 = model->trace.events_sha256,
	                                    .machine_sha256 = machine->sha256,
	                                    .scale = 1,
	                                    .iterations = iterations,
	                                    .lanes = {1, 2, 2, 1, 1, 0, 2, 1},
	                                    .pools = maker->pools,
	                                    .pool_count = POOL_COUNT,
	                                    .tensors = maker->tensors,
	                                    .tensor_count = maker->tensor_count,
	                                    .copies = maker->copies,
	                                    .copy_count = maker->copy_count,
	                                    .fixed_bytes = {7, 0, 0}};
	if (maker->sink.begin(maker->sink.self, &maker->info, &error) != TC_OK)
		abort();
	run(maker, iterations);
	finish(maker);
	free(maker);
	return schedule;
}
