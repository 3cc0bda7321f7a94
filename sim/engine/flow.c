/** @file flow.c
 * What a command does once it has started: a fixed time, or a latency and then a flow over shared
 * resources. At most one command of a lane is active, so the rates of all flows depend only on
 * which lanes are active and with which shape (route and cap); they are kept in a direct-mapped
 * table by that key.
 */
#include <stdlib.h>
#include <string.h>

#include "core.h"

/* DRAM traffic of an optimizer step, bytes per parameter: gradient, master, exp_avg, exp_avg_sq
 * read, the last three written, 4 bytes each. */
#define UPDATE_BYTES_PER_PARAMETER 28u

/* Variants of a route. Copies: as they are. The direct path: by direction. */
enum { PINNED = 0, PAGEABLE = 1 };
enum { FROM_DRIVE = 0, TO_DRIVE = 1 };

#define ABSENT UINT32_MAX

/** Resource numbers; ABSENT where the machine has no such common limit. */
struct numbers {
	uint32_t h2d, d2h, duplex, dram;
	uint32_t read[TC_MAX_LANES], write[TC_MAX_LANES], mixed[TC_MAX_LANES]; /**< per drive */
	uint32_t drives;
};

static uint32_t add_resource(struct tci_flows *flows, uint64_t bytes_per_s)
{
	uint32_t number = flows->resource_count++;
	if (number < TC_MAX_RESOURCES)
		flows->capacity[number] = tc_rate_units(bytes_per_s);
	return number;
}

static uint32_t add_if_limited(struct tci_flows *flows, uint64_t bytes_per_s)
{
	return bytes_per_s == 0 ? ABSENT : add_resource(flows, bytes_per_s);
}

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static enum tc_status number_resources(struct tc_engine *engine, struct numbers *numbers,
                                       struct tc_error *error)
{
	const struct tc_machine *machine = engine->machine;
	struct tci_flows *flows = &engine->flows;
	numbers->h2d = add_resource(flows, machine->h2d.bytes_per_s);
	numbers->d2h = add_resource(flows, machine->d2h.bytes_per_s);
	numbers->duplex = add_if_limited(flows, machine->duplex_bytes_per_s);
	numbers->dram = add_resource(flows, machine->dram_bytes_per_s);
	/* Striped drives act as one. Else a drive per lane; those without a lane are never used. */
	uint32_t lanes = larger(
	    engine->lanes_of[TC_QUEUE_NVME_READ],
	    larger(engine->lanes_of[TC_QUEUE_NVME_WRITE], engine->lanes_of[TC_QUEUE_GPU_NVME]));
	numbers->drives = 1;
	if (!machine->nvme_striped && machine->nvme_drives > 1 && lanes > 1)
		numbers->drives = machine->nvme_drives < lanes ? machine->nvme_drives : lanes;
	for (uint32_t drive = 0; drive < numbers->drives; drive++) {
		numbers->read[drive] = add_resource(flows, machine->nvme_read.bytes_per_s);
		numbers->write[drive] = add_resource(flows, machine->nvme_write.bytes_per_s);
		numbers->mixed[drive] = add_if_limited(flows, machine->nvme_mixed_bytes_per_s);
	}
	if (flows->resource_count > TC_MAX_RESOURCES)
		return tc_error_set(error, TC_ARGUMENT,
		                    "%u drives need %u shared resources, at most %d are possible: "
		                    "describe them as striped",
		                    (unsigned)numbers->drives, (unsigned)flows->resource_count,
		                    TC_MAX_RESOURCES);
	return TC_OK;
}

static void use_often(struct tc_flow *route, uint32_t resource, uint32_t weight)
{
	if (resource == ABSENT)
		return;
	route->resources[route->resource_count] = (uint8_t)resource;
	route->weights[route->resource_count] = weight;
	route->resource_count++;
}

static void use(struct tc_flow *route, uint32_t resource)
{
	use_often(route, resource, 1);
}

/** What a flow of the route gets with the machine to itself. */
static uint64_t rate_alone(const struct tci_flows *flows, const struct tc_flow *route)
{
	uint64_t rate = UINT64_MAX;
	for (uint32_t i = 0; i < route->resource_count; i++) {
		uint64_t share = flows->capacity[route->resources[i]] / route->weights[i];
		rate = share < rate ? share : rate;
	}
	return rate;
}

static void set_routes(struct tc_engine *engine, const struct numbers *numbers, uint32_t lane,
                       enum tc_queue queue, uint32_t drive)
{
	struct tci_flows *flows = &engine->flows;
	uint32_t copies = tc_machine_dram_weight(engine->machine);
	for (int variant = 0; variant < TCI_VARIANTS; variant++) {
		struct tc_flow *route = &flows->routes[lane][variant];
		bool from_drive = queue == TC_QUEUE_NVME_READ ||
		                  (queue == TC_QUEUE_GPU_NVME && variant == FROM_DRIVE);
		bool to_drive = queue == TC_QUEUE_NVME_WRITE ||
		                (queue == TC_QUEUE_GPU_NVME && variant == TO_DRIVE);
		bool up = queue == TC_QUEUE_H2D || (queue == TC_QUEUE_GPU_NVME && from_drive);
		bool down = queue == TC_QUEUE_D2H || (queue == TC_QUEUE_GPU_NVME && to_drive);
		if (from_drive || to_drive) {
			use(route, from_drive ? numbers->read[drive] : numbers->write[drive]);
			use(route, numbers->mixed[drive]);
		}
		if (up || down) {
			use(route, up ? numbers->h2d : numbers->d2h);
			use(route, numbers->duplex);
		}
		if (queue != TC_QUEUE_GPU_NVME)
			use_often(route, numbers->dram, up || down ? copies : 1);
		flows->route_rate[lane][variant] = rate_alone(flows, route);
	}
}

/** A rate times parts per million, rounded down. */
static uint64_t scale_ppm(uint64_t rate, uint64_t ppm)
{
	uint64_t scaled = 0;
	if (!tc_mul_div_floor(rate, ppm, 1000000, &scaled))
		return UINT64_MAX;
	/* 0 would say that there is no link. */
	return scaled == 0 && rate > 0 ? 1 : scaled;
}

static uint64_t product_or_max(uint64_t a, uint64_t b)
{
	uint64_t product = 0;
	return tc_mul_u64(a, b, &product) ? product : UINT64_MAX;
}

static uint64_t update_cap(uint64_t parameters_per_s, uint64_t traffic_bytes, uint64_t elements)
{
	uint64_t bytes_per_s = 0;
	if (parameters_per_s == 0 || elements == 0 ||
	    !tc_mul_div_floor(parameters_per_s, traffic_bytes, elements, &bytes_per_s))
		return 0;
	uint64_t cap = tc_rate_units(bytes_per_s);
	return cap == 0 ? 1 : cap; /* 0 would mean: no cap */
}

enum tc_status tci_flows_init(struct tc_engine *engine, struct tc_error *error)
{
	const struct tc_machine *machine = engine->machine;
	struct tci_flows *flows = &engine->flows;
	size_t entries = (size_t)1 << TCI_MEMO_BITS;
	flows->memo = tc_alloc_array(entries, sizeof *flows->memo);
	if (flows->memo == NULL)
		return tc_error_no_memory(error, "rates by active lanes",
		                          entries * sizeof *flows->memo);
	struct numbers numbers;
	TC_TRY(number_resources(engine, &numbers, error));
	for (uint32_t lane = 0; lane < engine->lane_count; lane++) {
		enum tc_queue queue = engine->lanes[lane].queue;
		uint32_t drive = (lane - engine->first_lane[queue]) % numbers.drives;
		if (queue != TC_QUEUE_COMPUTE)
			set_routes(engine, &numbers, lane, queue, drive);
	}
	flows->pageable_cap[0] =
	    scale_ppm(tc_rate_units(machine->h2d.bytes_per_s), machine->pageable_ppm);
	flows->pageable_cap[1] =
	    scale_ppm(tc_rate_units(machine->d2h.bytes_per_s), machine->pageable_ppm);
	flows->adam_per_s =
	    product_or_max(machine->cpu_cores, machine->adam_parameters_per_s_per_core);
	flows->adam_cap = update_cap(flows->adam_per_s, UPDATE_BYTES_PER_PARAMETER, 1);
	uint64_t stream =
	    product_or_max(machine->cpu_cores, machine->cpu_stream_bytes_per_s_per_core);
	flows->stream_cap = tc_rate_units(stream);
	return TC_OK;
}

void tci_flows_clear(struct tci_flows *flows)
{
	free(flows->memo);
	flows->memo = NULL;
}

void tci_engine_use_memo(struct tc_engine *engine, bool use_memo)
{
	engine->flows.use_memo = use_memo;
}

uint64_t tci_engine_solves(const struct tc_engine *engine)
{
	return engine->flows.solves;
}

/* ---------------------------------------------------------------- what a command needs */

/** The number of the node's shape on its lane, or TCI_SHAPE_OTHER when the table is full. */
static uint8_t find_shape(struct tci_flows *flows, const struct tci_node *node)
{
	struct tci_shape *shapes = flows->shapes[node->lane];
	uint32_t count = flows->shape_count[node->lane];
	for (uint32_t shape = 0; shape < count; shape++)
		if (shapes[shape].cap == node->cap && shapes[shape].variant == node->variant)
			return (uint8_t)shape;
	if (count == TCI_SHAPES)
		return TCI_SHAPE_OTHER;
	shapes[count] = (struct tci_shape){node->cap, node->variant};
	flows->shape_count[node->lane]++;
	return (uint8_t)count;
}

static enum tc_status set_compute_time(const struct tc_machine *machine, struct tci_node *node,
                                       struct tc_error *error)
{
	const struct tc_command *command = &node->command;
	if (command->kind != TC_CONVERT) {
		node->fixed_ps = command->duration_ps;
		return TC_OK;
	}
	/* Repacking and bucket copies keep the bits; other conversions are elementwise kernels. */
	bool copies = command->why == TC_WHY_REPACK || command->why == TC_WHY_BUCKET;
	uint64_t rate = machine->memory_bytes_per_s[copies ? TC_COPY : TC_ELEMENTWISE];
	if (rate == 0)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "command %llu converts on the GPU, and the machine's memory rate "
		    "for %s is 0: describe it",
		    (unsigned long long)command->id, copies ? "copy" : "elementwise");
	if (!tc_mul_div_ceil(command->traffic_bytes, TC_PS_PER_S, rate, &node->fixed_ps))
		return tc_error_set(
		    error, TC_TOO_LARGE,
		    "command %llu moves %llu bytes in GPU memory: longer than 2^64 ps",
		    (unsigned long long)command->id, (unsigned long long)command->traffic_bytes);
	return TC_OK;
}

static void set_cpu_flow(const struct tci_flows *flows, struct tci_node *node)
{
	const struct tc_command *command = &node->command;
	node->flow_bytes = command->traffic_bytes;
	if (command->kind != TC_UPDATE) {
		node->cap = flows->stream_cap;
		return;
	}
	uint64_t usual = product_or_max(command->elements, UPDATE_BYTES_PER_PARAMETER);
	if (command->traffic_bytes == 0)
		node->flow_bytes = usual;
	if (node->flow_bytes == usual)
		node->cap = flows->adam_cap;
	else
		node->cap = update_cap(flows->adam_per_s, node->flow_bytes, command->elements);
}

static void set_transfer(const struct tc_engine *engine, struct tci_node *node)
{
	const struct tc_machine *machine = engine->machine;
	const struct tc_command *command = &node->command;
	node->flow_bytes = command->bytes;
	switch (command->queue) {
	case TC_QUEUE_H2D:
		node->fixed_ps = machine->h2d.latency_ps;
		break;
	case TC_QUEUE_D2H:
		node->fixed_ps = machine->d2h.latency_ps;
		break;
	case TC_QUEUE_NVME_READ:
		node->fixed_ps = machine->nvme_read.latency_ps;
		break;
	case TC_QUEUE_NVME_WRITE:
		node->fixed_ps = machine->nvme_write.latency_ps;
		break;
	default: /* the direct path has the drive's latency */
		node->variant = command->kind == TC_EVICT || command->kind == TC_SPILL ||
		                        command->kind == TC_GRADIENT
		                    ? TO_DRIVE
		                    : FROM_DRIVE;
		node->fixed_ps = node->variant == TO_DRIVE ? machine->nvme_write.latency_ps
		                                           : machine->nvme_read.latency_ps;
	}
	bool link = command->queue == TC_QUEUE_H2D || command->queue == TC_QUEUE_D2H;
	if (command->pageable && link) {
		node->variant = PAGEABLE;
		node->cap = engine->flows.pageable_cap[command->queue == TC_QUEUE_D2H];
	}
}

enum tc_status tci_flow_prepare(struct tc_engine *engine, struct tci_node *node,
                                struct tc_error *error)
{
	struct tci_flows *flows = &engine->flows;
	const struct tc_command *command = &node->command;
	node->fixed_ps = node->flow_bytes = node->cap = 0;
	node->variant = node->shape = 0;
	if (command->queue == TC_QUEUE_COMPUTE)
		return set_compute_time(engine->machine, node, error);
	if (command->queue == TC_QUEUE_GPU_NVME && !engine->machine->gpu_direct)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "command %llu is on queue gpu_nvme, and the machine has no direct "
		    "path between drive and GPU (gpu_direct)",
		    (unsigned long long)command->id);
	if (command->queue == TC_QUEUE_CPU)
		set_cpu_flow(flows, node);
	else
		set_transfer(engine, node);
	bool link = command->queue == TC_QUEUE_H2D || command->queue == TC_QUEUE_D2H;
	bool no_rate = flows->route_rate[node->lane][node->variant] == 0 ||
	               (link && node->variant == PAGEABLE && node->cap == 0);
	if (node->flow_bytes > 0 && no_rate)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "command %llu moves bytes on queue %s, where the machine's rate is "
		    "0: describe link, drive and DRAM",
		    (unsigned long long)command->id, tc_queue_name(command->queue));
	node->shape = find_shape(flows, node);
	return TC_OK;
}

/* ---------------------------------------------------------------- rates */

uint64_t tci_flow_alone_ps(const struct tc_engine *engine, const struct tci_node *node)
{
	if (node->flow_bytes == 0)
		return node->fixed_ps;
	uint64_t rate = engine->flows.route_rate[node->lane][node->variant];
	if (node->cap != 0 && node->cap < rate)
		rate = node->cap;
	uint64_t time = tci_flow_time((tci_work)node->flow_bytes << TC_WORK_BITS, rate);
	uint64_t sum = 0;
	return tc_add_u64(time, node->fixed_ps, &sum) ? sum : TCI_NEVER;
}

static void solve(struct tc_engine *engine, uint64_t *rates)
{
	struct tc_flow flows[TC_MAX_LANES];
	uint64_t solved[TC_MAX_LANES];
	uint32_t count = 0;
	for (uint32_t rest = engine->flowing; rest != 0; rest &= rest - 1) {
		uint32_t lane = (uint32_t)__builtin_ctz(rest);
		const struct tci_node *node = engine->lanes[lane].head;
		flows[count] = engine->flows.routes[lane][node->variant];
		flows[count].cap = node->cap;
		count++;
	}
	tc_share_rates(engine->flows.capacity, engine->flows.resource_count, flows, count, solved);
	count = 0;
	for (uint32_t rest = engine->flowing; rest != 0; rest &= rest - 1)
		rates[__builtin_ctz(rest)] = solved[count++];
	engine->flows.solves++;
}

static const uint64_t *find_rates(struct tc_engine *engine, uint64_t *own)
{
	if (!engine->flows.use_memo || engine->other_shapes != 0) {
		solve(engine, own);
		return own;
	}
	uint64_t key = engine->flow_key;
	uint64_t slot = key * UINT64_C(0x9E3779B97F4A7C15) >> (64 - TCI_MEMO_BITS);
	struct tci_memo *memo = &engine->flows.memo[slot];
	if (memo->key != key) {
		solve(engine, memo->rates);
		memo->key = key;
	}
	return memo->rates;
}

void tci_flow_solve(struct tc_engine *engine)
{
	uint64_t own[TC_MAX_LANES];
	engine->rates_stale = false;
	if (engine->flowing == 0)
		return;
	const uint64_t *rates = find_rates(engine, own);
	uint64_t now = engine->now_ps;
	for (uint32_t rest = engine->flowing; rest != 0; rest &= rest - 1) {
		uint32_t index = (uint32_t)__builtin_ctz(rest);
		struct tci_lane *lane = &engine->lanes[index];
		/* A flow whose rate stays ends when it would have ended. */
		if (lane->rate == rates[index] && lane->rate != 0)
			continue;
		lane->work -= (tci_work)lane->rate * (now - lane->rate_ps);
		lane->rate = rates[index];
		lane->rate_ps = now;
		uint64_t time = tci_flow_time(lane->work, lane->rate);
		engine->due_ps[index] = time < TCI_NEVER - now ? now + time : TCI_NEVER;
	}
}
