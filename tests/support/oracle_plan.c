/*
 * Sound schedules for the oracle: what is fetched, evicted, computed, updated and published, and
 * where it lies. Who waits for whom is decided in oracle_maker.c.
 */
#include <stdlib.h>
#include <string.h>

#include "oracle_maker.h"

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
		(void)maker_move(maker, TC_EVICT, TC_QUEUE_D2H, resident->tensor,
		                 maker->gpu_slots[s], home_slot(maker, resident->tensor));
	} else if (maker_chance(maker, 2) == 0) {
		struct tc_command drop = maker_blank(TC_DROP, TC_QUEUE_HOST);
		drop.tensor = resident->tensor;
		drop.src = maker->slots[maker->gpu_slots[s]].place;
		(void)maker_emit(maker, &drop, NULL, 0);
	}
	*resident = (struct resident){.tensor = TC_NONE};
}

static uint32_t fetch(struct maker *maker, uint32_t tensor)
{
	uint32_t s = find_resident(maker, tensor);
	if (s != TC_NONE)
		return s;
	do
		s = (uint32_t)maker_chance(maker, maker->gpu_slot_count);
	while (maker->resident[s].pinned);
	vacate(maker, s);
	(void)maker_move(maker, TC_FETCH, TC_QUEUE_H2D, tensor, home_slot(maker, tensor),
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
	work->binds[work->count] = maker_bind_at(maker, tensor, slot, access);
	work->uses[work->count++] = (struct use){slot, access != TC_READ};
}

static void compute(struct maker *maker, struct work *work, uint32_t first, uint32_t last)
{
	struct tc_command command = maker_blank(TC_COMPUTE, TC_QUEUE_COMPUTE);
	command.first_op = first;
	command.last_op = last;
	command.duration_ps = 1000 * (uint64_t)(last - first + 1);
	command.binds = work->binds;
	command.bind_count = work->count;
	(void)maker_emit(maker, &command, work->uses, work->count);
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
	uint32_t other = (uint32_t)maker_chance(maker, maker->model->layer_count);
	uint32_t param = maker->model->layers[other].param;
	if (other == l)
		return;
	if (maker_chance(maker, 3) == 0)
		(void)fetch(maker, param);
	uint32_t s = find_resident(maker, param);
	if (s != TC_NONE && maker_chance(maker, 2) == 0)
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
	work_add(maker, &work, layer->statistic, maker->statistic, TC_WRITE);
	extras(maker, &work, l);
	uint32_t first = layers + 3 * (layers - 1 - l);
	compute(maker, &work, first, first + 2);

	/* The gradient's path: FP32 in staging, then down. */
	maker->version[plan->gradient32] = maker->version[layer->gradient];
	uint32_t staging = maker->staging32[l % 2];
	struct tc_bind binds[] = {maker_bind_at(maker, layer->gradient, plan->gradient, TC_READ),
	                          maker_bind_at(maker, plan->gradient32, staging, TC_WRITE)};
	struct use uses[] = {{plan->gradient, false}, {staging, true}};
	struct tc_command convert = maker_blank(TC_CONVERT, TC_QUEUE_COMPUTE);
	convert.tensor = plan->gradient32;
	convert.version = maker->version[plan->gradient32];
	convert.binds = binds;
	convert.bind_count = 2;
	convert.traffic_bytes = 96;
	convert.why = TC_WHY_BUCKET;
	(void)maker_emit(maker, &convert, uses, 2);
	(void)maker_move(maker, TC_GRADIENT, TC_QUEUE_D2H, plan->gradient32, staging,
	                 plan->gradient_cpu);
}

static void optimize(struct maker *maker, uint32_t l)
{
	const struct oracle_layer *layer = &maker->model->layers[l];
	struct layer_plan *plan = &maker->layers[l];
	uint32_t state = maker->state_slots[l % 2];
	maker_bits_set(&maker->pending, maker_move(maker, TC_LOAD, TC_QUEUE_NVME_READ,
	                                           layer->moment, plan->moment_home, state));

	struct tc_bind binds[] = {
	    maker_bind_at(maker, plan->gradient32, plan->gradient_cpu, TC_READ),
	    maker_bind_at(maker, plan->master, plan->master_home, TC_READ_WRITE),
	    maker_bind_at(maker, layer->moment, state, TC_READ_WRITE)};
	struct use uses[] = {{plan->gradient_cpu, false}, {plan->master_home, true}, {state, true}};
	struct tc_command update = maker_blank(TC_UPDATE, TC_QUEUE_CPU);
	update.lane = maker_any_lane(maker, TC_QUEUE_CPU);
	update.first_op = update.last_op = maker->model->first_update + l;
	update.elements = 8;
	update.binds = binds;
	update.bind_count = 3;
	(void)maker_emit(maker, &update, uses, 3);
	maker->version[layer->moment]++;
	maker->version[layer->param]++;
	maker->version[plan->master]++;
	maker_bits_set(&maker->pending, maker_move(maker, TC_SPILL, TC_QUEUE_NVME_WRITE,
	                                           layer->moment, state, plan->moment_home));

	plan->at = 1 - plan->at;
	uint32_t home = plan->home[plan->at];
	struct tc_bind pair[] = {maker_bind_at(maker, plan->master, plan->master_home, TC_READ),
	                         maker_bind_at(maker, layer->param, home, TC_WRITE)};
	struct use pair_uses[] = {{plan->master_home, false}, {home, true}};
	struct tc_command convert = maker_blank(TC_CONVERT, TC_QUEUE_CPU);
	convert.lane = maker_any_lane(maker, TC_QUEUE_CPU);
	convert.tensor = layer->param;
	convert.version = maker->version[layer->param];
	convert.binds = pair;
	convert.bind_count = 2;
	maker_bits_set(&maker->pending, maker_emit(maker, &convert, pair_uses, 2));
	uint32_t s = find_resident(maker, layer->param);
	if (s == TC_NONE)
		return;
	if (maker_chance(maker, 2) == 0)
		(void)maker_move(maker, TC_PUBLISH, TC_QUEUE_H2D, layer->param, home,
		                 maker->gpu_slots[s]);
	else
		maker->resident[s] = (struct resident){.tensor = TC_NONE};
}

static void count_step(struct maker *maker)
{
	uint32_t counter = maker->model->counter;
	struct tc_bind bind = maker_bind_at(maker, counter, maker->counter, TC_READ_WRITE);
	struct use use = {maker->counter, true};
	struct tc_command update = maker_blank(TC_UPDATE, TC_QUEUE_CPU);
	update.first_op = update.last_op = maker->model->trace.op_count - 1;
	update.elements = 1;
	update.binds = &bind;
	update.bind_count = 1;
	maker_bits_set(&maker->pending, maker_emit(maker, &update, &use, 1));
	maker->version[counter]++;
}

static void host_wait(struct maker *maker)
{
	static const struct bits none;
	struct tc_command wait = maker_blank(TC_WAIT, TC_QUEUE_HOST);
	(void)maker_emit_after(maker, &wait, &maker->pending, &none);
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
	maker->gpu_slot_count = 3 + (uint32_t)maker_chance(maker, GPU_SLOTS - 2);
	for (uint32_t s = 0; s < maker->gpu_slot_count; s++) {
		maker->gpu_slots[s] = maker_add_slot(maker, POOL_PARAMS, 64);
		maker->resident[s].tensor = TC_NONE;
	}
	maker->input = maker_add_slot(maker, POOL_UNMANAGED, 48);
	maker->workspace = maker_add_slot(maker, POOL_UNMANAGED, 32);
	for (unsigned i = 0; i < 2; i++) {
		maker->upstream[i] = maker_add_slot(maker, POOL_UNMANAGED, 48);
		maker->staging32[i] = maker_add_slot(maker, POOL_UNMANAGED, 128);
		maker->state_slots[i] = maker_add_slot(maker, POOL_STAGING, 128);
	}
	maker->statistic = maker_add_slot(maker, POOL_UNMANAGED, 16);
	maker->counter = maker_add_slot(maker, POOL_HOME, 16);
	maker_start_at(maker, model->input, maker->input);
	maker_start_at(maker, model->counter, maker->counter);
}

static void lay_out_layer(struct maker *maker, uint32_t l)
{
	const struct oracle_layer *layer = &maker->model->layers[l];
	struct layer_plan *plan = &maker->layers[l];
	plan->master =
	    layer->master != TC_NONE
	        ? layer->master
	        : maker_add_derived(maker, layer->param, TC_OPTIMIZER_STATE, TC_ROLE_MASTER);
	plan->gradient32 = maker_add_derived(maker, layer->gradient, TC_GRAD, TC_ROLE_NONE);
	plan->home[0] = maker_add_slot(maker, POOL_HOME, 64);
	plan->home[1] = maker_add_slot(maker, POOL_HOME, 64);
	plan->master_home = maker_add_slot(maker, POOL_HOME, 128);
	plan->gradient_cpu = maker_add_slot(maker, POOL_STAGING, 128);
	plan->moment_home = maker_add_slot(maker, POOL_NVME, 128);
	plan->activation = maker_add_slot(maker, POOL_UNMANAGED, 48);
	plan->gradient = maker_add_slot(maker, POOL_UNMANAGED, 64);
	maker_start_at(maker, layer->param, plan->home[0]);
	maker_start_at(maker, plan->master, plan->master_home);
	maker_start_at(maker, layer->moment, plan->moment_home);
	if (layer->buffer != TC_NONE) {
		plan->buffer_home = maker_add_slot(maker, POOL_HOME, 32);
		maker_start_at(maker, layer->buffer, plan->buffer_home);
	}
	if (l < 2 && maker_chance(maker, 2) == 0) {
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
		count_step(maker);
		if (maker_chance(maker, 3) > 0)
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
	places[count++] = (struct tc_final_place){model->counter, maker->version[model->counter],
	                                          maker->slots[maker->counter].place};
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
