#include "naive_engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tencache/units.h"

#define MOST NAIVE_MOST
#define UNKNOWN UINT64_MAX

/* How a command was bound, beyond enum tc_reason. */
enum { BOUND_LANE = TC_REASON_COUNT, BOUND_ISSUE };

static const struct tc_command *at(const struct naive *n, size_t i)
{
	return &n->program->commands[i];
}

static bool is_host(const struct naive *n, size_t i)
{
	return at(n, i)->queue == TC_QUEUE_HOST;
}

static bool ended(const struct naive *n, size_t i)
{
	return n->end[i] <= n->now;
}

static size_t lane_predecessor(const struct naive *n, size_t i)
{
	for (size_t j = i; j-- > 0;)
		if (at(n, j)->queue == at(n, i)->queue && at(n, j)->lane == at(n, i)->lane)
			return j;
	return MOST;
}

static bool deps_ended(const struct naive *n, size_t i)
{
	for (uint32_t d = 0; d < at(n, i)->dep_count; d++)
		if (!ended(n, n->program->deps[i][d].id))
			return false;
	return true;
}

static uint64_t flow_bytes(const struct naive *n, size_t i)
{
	switch (at(n, i)->queue) {
	case TC_QUEUE_COMPUTE:
	case TC_QUEUE_HOST:
		return 0;
	case TC_QUEUE_CPU:
		return at(n, i)->traffic_bytes;
	default:
		return at(n, i)->bytes;
	}
}

static uint64_t latency_ps(const struct naive *n, size_t i)
{
	switch (at(n, i)->queue) {
	case TC_QUEUE_COMPUTE:
		return at(n, i)->duration_ps;
	case TC_QUEUE_H2D:
		return n->machine->h2d.latency_ps;
	case TC_QUEUE_D2H:
		return n->machine->d2h.latency_ps;
	case TC_QUEUE_NVME_READ:
		return n->machine->nvme_read.latency_ps;
	case TC_QUEUE_NVME_WRITE:
		return n->machine->nvme_write.latency_ps;
	default:
		return 0;
	}
}

static uint64_t fixed_ps(const struct naive *n, size_t i)
{
	return latency_ps(n, i) + n->handover[i];
}

/** The resources of a queue in a table: a row per queue, a column per resource. */
enum { R_H2D, R_D2H, R_DUPLEX, R_DRAM, R_READ, R_WRITE, R_MIXED, R_COUNT };
static const uint8_t table[TC_QUEUE_COUNT][R_COUNT] = {
    [TC_QUEUE_H2D] = {1, 0, 1, 1, 0, 0, 0},       [TC_QUEUE_D2H] = {0, 1, 1, 1, 0, 0, 0},
    [TC_QUEUE_NVME_READ] = {0, 0, 0, 1, 1, 0, 1}, [TC_QUEUE_NVME_WRITE] = {0, 0, 0, 1, 0, 1, 1},
    [TC_QUEUE_CPU] = {0, 0, 0, 1, 0, 0, 0},
};

static struct tc_flow flow_of(const struct naive *n, size_t i, uint64_t *capacity)
{
	const struct tc_machine *m = n->machine;
	uint64_t rate[R_COUNT] = {m->h2d.bytes_per_s,       m->d2h.bytes_per_s,
	                          m->duplex_bytes_per_s,    m->dram_bytes_per_s,
	                          m->nvme_read.bytes_per_s, m->nvme_write.bytes_per_s,
	                          m->nvme_mixed_bytes_per_s};
	struct tc_flow flow = {0};
	bool link = at(n, i)->queue == TC_QUEUE_H2D || at(n, i)->queue == TC_QUEUE_D2H;
	for (int r = 0; r < R_COUNT; r++) {
		capacity[r] = tc_rate_units(rate[r]);
		if (!table[at(n, i)->queue][r] || rate[r] == 0)
			continue;
		flow.resources[flow.resource_count] = (uint8_t)r;
		flow.weights[flow.resource_count++] =
		    link && r == R_DRAM && m->copy_dram_weight > 1 ? m->copy_dram_weight : 1;
	}
	if (link && at(n, i)->pageable) {
		uint64_t own = capacity[at(n, i)->queue == TC_QUEUE_H2D ? R_H2D : R_D2H];
		flow.cap = (uint64_t)((naive_work)own * m->pageable_ppm / 1000000);
	}
	if (at(n, i)->queue == TC_QUEUE_CPU) {
		uint64_t bytes_per_s = m->cpu_cores * m->cpu_stream_bytes_per_s_per_core;
		if (at(n, i)->kind == TC_UPDATE)
			bytes_per_s = (uint64_t)((naive_work)m->cpu_cores *
			                         m->adam_parameters_per_s_per_core *
			                         at(n, i)->traffic_bytes / at(n, i)->elements);
		flow.cap = tc_rate_units(bytes_per_s);
	}
	return flow;
}

/** What ended when `i` started, MOST if that was its issue, and how. */
static size_t binding(const struct naive *n, size_t i, int *how)
{
	size_t best = MOST;
	*how = BOUND_ISSUE;
	for (uint32_t d = 0; d < at(n, i)->dep_count; d++) {
		size_t id = n->program->deps[i][d].id;
		int reason = (int)n->program->deps[i][d].reason;
		if (is_host(n, id) || n->end[id] != n->start[i])
			continue;
		if (id < best || (id == best && reason < *how)) {
			best = id;
			*how = reason;
		}
	}
	size_t before = lane_predecessor(n, i);
	if (before != MOST && n->end[before] == n->start[i] && before < best) {
		best = before;
		*how = BOUND_LANE;
	}
	return best;
}

static uint64_t handover_between(const struct naive *n, enum tc_queue from, enum tc_queue to)
{
	const uint64_t *ps = n->machine->handover_ps;
	if (from == to)
		return 0;
	if (from == TC_QUEUE_COMPUTE)
		return ps[TC_HANDOVER_COMPUTE];
	for (int side = 0; side < 2; side++) {
		enum tc_queue queue = side == 0 ? from : to;
		if (queue == TC_QUEUE_NVME_READ || queue == TC_QUEUE_NVME_WRITE)
			return ps[TC_HANDOVER_DRIVE];
	}
	return ps[TC_HANDOVER_OTHER];
}

static uint64_t handover_of(const struct naive *n, size_t i)
{
	int how;
	size_t by = binding(n, i, &how), before = lane_predecessor(n, i);
	bool at_once = n->start[i] == n->issue[i];
	if (how == BOUND_LANE || (at_once && before != MOST && n->end[before] == n->start[i]))
		return 0;
	return handover_between(n, at_once ? TC_QUEUE_HOST : at(n, by)->queue, at(n, i)->queue);
}

/** The host thread deals with its next command; false when it cannot yet. */
static bool host_moves(struct naive *n)
{
	size_t i = n->reached;
	if (i == n->count)
		return false;
	if (n->issue[i] == UNKNOWN)
		n->issue[i] = n->host + at(n, i)->hooks * n->machine->hook_ps +
		              at(n, i)->launches * n->machine->launch_ps;
	if (n->issue[i] > n->now)
		return false;
	n->host = n->issue[i];
	if (is_host(n, i)) {
		if (!deps_ended(n, i))
			return false;
		n->ask[i] = n->issue[i];
		n->start[i] = n->issue[i];
		for (uint32_t d = 0; d < at(n, i)->dep_count; d++) {
			size_t id = n->program->deps[i][d].id;
			uint64_t end = n->end[id];
			uint64_t over = handover_between(n, at(n, id)->queue, TC_QUEUE_HOST);
			if (end > n->start[i])
				n->start[i] = end;
			if (end > n->issue[i] && over > n->handover[i])
				n->handover[i] = over;
		}
		n->end[i] = n->host = n->start[i] + at(n, i)->duration_ps + n->handover[i];
	}
	n->reached++;
	return true;
}

static bool command_moves(struct naive *n, size_t i)
{
	if (n->start[i] == UNKNOWN) {
		size_t before = lane_predecessor(n, i);
		if ((before != MOST && !ended(n, before)) || !deps_ended(n, i))
			return false;
		n->start[i] = n->now;
		n->ask[i] = n->issue[i];
		if (before != MOST && n->end[before] > n->ask[i])
			n->ask[i] = n->end[before];
		n->handover[i] = handover_of(n, i);
		n->flow_at[i] = n->now + fixed_ps(n, i);
		return true;
	}
	if (n->end[i] != UNKNOWN || n->flow_at[i] > n->now)
		return false;
	if (!n->flowing[i] && flow_bytes(n, i) > 0) {
		n->flowing[i] = true;
		n->left[i] = (naive_work)flow_bytes(n, i) << TC_WORK_BITS;
		return true;
	}
	if (n->flowing[i] && n->left[i] > 0)
		return false;
	n->flowing[i] = false;
	n->end[i] = n->now;
	return true;
}

/** Let time pass until something changes; false when nothing ever will. */
static bool pass_time(struct naive *n)
{
	struct tc_flow flows[MOST] = {{0}};
	size_t who[MOST];
	uint64_t capacity[R_COUNT] = {0}, rates[MOST], next = UNKNOWN;
	uint32_t count = 0;
	if (n->reached < n->count && n->issue[n->reached] > n->now)
		next = n->issue[n->reached];
	for (size_t i = 0; i < n->reached; i++) {
		if (n->end[i] != UNKNOWN && n->end[i] > n->now && n->end[i] < next)
			next = n->end[i]; /* of a host command */
		if (n->start[i] == UNKNOWN || n->end[i] != UNKNOWN || is_host(n, i))
			continue;
		if (n->flowing[i]) {
			flows[count] = flow_of(n, i, capacity);
			who[count++] = i;
		} else if (n->flow_at[i] < next) {
			next = n->flow_at[i];
		}
	}
	tc_share_rates(capacity, R_COUNT, flows, count, rates);
	for (uint32_t f = 0; f < count; f++) {
		uint64_t end = n->now + (uint64_t)((n->left[who[f]] + rates[f] - 1) / rates[f]);
		next = end < next ? end : next;
	}
	if (next == UNKNOWN)
		return false;
	for (uint32_t f = 0; f < count; f++) {
		naive_work moved = (naive_work)rates[f] * (next - n->now);
		n->left[who[f]] -= moved < n->left[who[f]] ? moved : n->left[who[f]];
	}
	n->now = next;
	return true;
}

static void simulate(struct naive *n)
{
	do {
		bool moved = true;
		while (moved) {
			moved = false;
			while (host_moves(n))
				moved = true;
			for (size_t i = 0; i < n->reached; i++)
				if (!is_host(n, i) && command_moves(n, i))
					moved = true;
		}
	} while (pass_time(n));
}

/* ---------------------------------------------------------------- naive stall causes */

/** Latest host command before `i` that blocked, or MOST. */
static size_t last_block(const struct naive *n, size_t i)
{
	for (size_t j = i; j-- > 0;)
		if (is_host(n, j) && n->start[j] > n->issue[j])
			return j;
	return MOST;
}

static uint64_t wanted(const struct naive *n, size_t i)
{
	uint64_t time = n->issue[i];
	for (uint32_t d = 0; d < at(n, i)->dep_count; d++) {
		const struct tc_dependency *dep = &n->program->deps[i][d];
		bool counts = dep->reason == TC_REASON_ORDER || dep->reason == TC_REASON_ANCHOR;
		if (counts && !is_host(n, dep->id) && n->end[dep->id] > time)
			time = n->end[dep->id];
	}
	return time;
}

static uint64_t alone(const struct naive *n, size_t i)
{
	uint64_t capacity[R_COUNT], rate, bytes = flow_bytes(n, i);
	if (bytes == 0)
		return fixed_ps(n, i);
	struct tc_flow flow = flow_of(n, i, capacity);
	tc_share_rates(capacity, R_COUNT, &flow, 1, &rate);
	return fixed_ps(n, i) + (uint64_t)((((naive_work)bytes << TC_WORK_BITS) + rate - 1) / rate);
}

static bool drive(const struct naive *n, size_t i)
{
	return at(n, i)->queue == TC_QUEUE_NVME_READ || at(n, i)->queue == TC_QUEUE_NVME_WRITE;
}

static enum tc_stall_cause cause_of(const struct naive *n, size_t i, uint64_t asked,
                                    enum tc_stall_cause passed)
{
	int how;
	size_t by = binding(n, i, &how);
	if (wanted(n, i) + alone(n, i) > asked)
		return TC_STALL_ISSUED_LATE;
	if (drive(n, i))
		return TC_STALL_NVME;
	if (at(n, i)->queue == TC_QUEUE_CPU)
		return TC_STALL_OPTIMIZER;
	if (n->start[i] == wanted(n, i) || how == BOUND_LANE)
		return TC_STALL_LINK_BUSY;
	if (how == TC_REASON_SLOT)
		return TC_STALL_NO_BUFFER;
	if (how == TC_REASON_BARRIER)
		return TC_STALL_OPTIMIZER;
	if (drive(n, by))
		return TC_STALL_NVME;
	return at(n, by)->queue == TC_QUEUE_CPU ? TC_STALL_OPTIMIZER : passed;
}

static void attribute(struct naive *n, size_t i, uint64_t low, uint64_t high, bool by_host)
{
	uint64_t asked = low;
	enum tc_stall_cause passed = TC_STALL_LINK_BUSY;
	size_t x = i; /* what we walk back from: its start, or with by_host its issue */
	while (high > low) {
		size_t y;
		int how = BOUND_ISSUE;
		if (!by_host)
			y = binding(n, x, &how);
		if (by_host || how == BOUND_ISSUE) {
			size_t block = last_block(n, x);
			uint64_t from = block == MOST ? 0 : n->start[block];
			from = from > low ? from : low;
			n->stall[i][TC_STALL_HOST_CALL] += high - from;
			high = from;
			if (high == low)
				break;
			y = MOST;
			for (uint32_t d = 0; d < at(n, block)->dep_count; d++) {
				size_t id = n->program->deps[block][d].id;
				if (!is_host(n, id) && n->end[id] == n->start[block] && id < y)
					y = id;
			}
			asked = n->issue[block] > low ? n->issue[block] : low;
			passed = TC_STALL_LINK_BUSY;
			by_host = false;
		} else if (how == TC_REASON_SLOT) {
			passed = TC_STALL_NO_BUFFER;
		} else if (how == TC_REASON_BARRIER) {
			passed = TC_STALL_OPTIMIZER;
		} else if (how == BOUND_LANE) {
			passed = TC_STALL_LINK_BUSY;
		}
		assert_true(y < MOST);
		uint64_t from = n->start[y] > low ? n->start[y] : low;
		n->stall[i][cause_of(n, y, asked, passed)] += high - from;
		high = from;
		x = y;
	}
}

static void attribute_all(struct naive *n)
{
	for (size_t i = 0; i < n->count; i++) {
		if (at(n, i)->queue != TC_QUEUE_COMPUTE || at(n, i)->lane != 0)
			continue;
		size_t before = lane_predecessor(n, i);
		uint64_t previous = before == MOST ? 0 : n->end[before];
		if (n->start[i] > n->ask[i])
			attribute(n, i, n->ask[i], n->start[i], false);
		if (n->issue[i] > previous)
			attribute(n, i, previous, n->issue[i], true);
	}
}

struct naive *naive_run(const struct program *program, const struct tc_machine *machine)
{
	struct naive *n = calloc(1, sizeof *n);
	assert_non_null(n);
	n->program = program;
	n->machine = machine;
	n->count = program->count;
	for (size_t i = 0; i < n->count; i++)
		n->issue[i] = n->start[i] = n->end[i] = UNKNOWN;
	simulate(n);
	for (size_t i = 0; i < n->count; i++)
		assert_true(n->end[i] != UNKNOWN);
	attribute_all(n);
	return n;
}
