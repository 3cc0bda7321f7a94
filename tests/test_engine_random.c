/*
 * Random schedules: the engine against a naive simulator written apart from it.
 *
 * The naive one knows the whole schedule, keeps every time in flat arrays, looks at every command
 * at every instant until nothing moves, asks for new rates at every instant, and finds stalls by
 * searching the whole history. It shares the rate solver (which has its own tests) and the words of
 * the rules with the engine, nothing else. Half of the schedules use sizes and times on a grid, so
 * that many things happen at the same instant.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core.h"
#include "program.h"
#include "random.h"

#define MOST 160
#define UNKNOWN UINT64_MAX

/* ---------------------------------------------------------------- the naive simulator */

struct naive {
	const struct program *program;
	const struct tc_machine *machine;
	uint64_t issue[MOST], start[MOST], end[MOST], ask[MOST];
	uint64_t flow_at[MOST]; /**< when the latency is over */
	tci_work left[MOST];
	bool flowing[MOST];
	uint64_t stall[MOST][TC_STALL_CAUSE_COUNT];
	size_t count, reached; /**< commands that the host has dealt with */
	uint64_t host, now;
};

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

static uint64_t fixed_ps(const struct naive *n, size_t i)
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
	for (int r = 0; r < R_COUNT; r++) {
		capacity[r] = tc_rate_units(rate[r]);
		if (!table[at(n, i)->queue][r] || rate[r] == 0)
			continue;
		flow.resources[flow.resource_count] = (uint8_t)r;
		flow.weights[flow.resource_count++] = 1;
	}
	bool link = at(n, i)->queue == TC_QUEUE_H2D || at(n, i)->queue == TC_QUEUE_D2H;
	if (link && at(n, i)->pageable) {
		uint64_t own = capacity[at(n, i)->queue == TC_QUEUE_H2D ? R_H2D : R_D2H];
		flow.cap = (uint64_t)((tci_work)own * m->pageable_ppm / 1000000);
	}
	if (at(n, i)->queue == TC_QUEUE_CPU) {
		uint64_t bytes_per_s = m->cpu_cores * m->cpu_stream_bytes_per_s_per_core;
		if (at(n, i)->kind == TC_UPDATE)
			bytes_per_s =
			    (uint64_t)((tci_work)m->cpu_cores * m->adam_parameters_per_s_per_core *
			               at(n, i)->traffic_bytes / at(n, i)->elements);
		flow.cap = tc_rate_units(bytes_per_s);
	}
	return flow;
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
			uint64_t end = n->end[n->program->deps[i][d].id];
			if (end > n->start[i])
				n->start[i] = end;
		}
		n->end[i] = n->host = n->start[i] + at(n, i)->duration_ps;
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
		n->flow_at[i] = n->now + fixed_ps(n, i);
		return true;
	}
	if (n->end[i] != UNKNOWN || n->flow_at[i] > n->now)
		return false;
	if (!n->flowing[i] && flow_bytes(n, i) > 0) {
		n->flowing[i] = true;
		n->left[i] = (tci_work)flow_bytes(n, i) << TC_WORK_BITS;
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
	struct tc_flow flows[MOST];
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
		tci_work moved = (tci_work)rates[f] * (next - n->now);
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

/** What ended when `i` started, MOST if that was its issue, and how. */
static size_t binding(const struct naive *n, size_t i, int *how)
{
	size_t best = MOST;
	*how = TCI_BOUND_ISSUE;
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
		*how = TCI_BOUND_LANE;
	}
	return best;
}

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
	return fixed_ps(n, i) + (uint64_t)((((tci_work)bytes << TC_WORK_BITS) + rate - 1) / rate);
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
	if (n->start[i] == wanted(n, i) || how == TCI_BOUND_LANE)
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
		int how = TCI_BOUND_ISSUE;
		if (!by_host)
			y = binding(n, x, &how);
		if (by_host || how == TCI_BOUND_ISSUE) {
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
		} else if (how == TCI_BOUND_LANE) {
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

static struct naive *run_naive(const struct program *program, const struct tc_machine *machine)
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

/* ---------------------------------------------------------------- random schedules */

static uint64_t below(uint64_t *random, uint64_t bound)
{
	return test_random_below(random, bound);
}

static struct tc_machine random_machine(uint64_t *random, bool grid)
{
	struct tc_machine machine = {
	    .h2d = {.bytes_per_s = 15625000000},
	    .d2h = {.bytes_per_s = 15625000000},
	    .pageable_ppm = 250000,
	    .dram_bytes_per_s = 31250000000,
	    .nvme_read = {.bytes_per_s = 3906250000},
	    .nvme_write = {.bytes_per_s = 1953125000},
	    .nvme_drives = 1,
	    .nvme_striped = true,
	    .cpu_cores = 4,
	    .adam_parameters_per_s_per_core = 200000000,
	    .cpu_stream_bytes_per_s_per_core = below(random, 2) ? 0 : 3906250000,
	};
	machine.duplex_bytes_per_s = below(random, 2) ? 0 : 23437500000;
	machine.nvme_mixed_bytes_per_s = below(random, 2) ? 0 : 3906250000;
	if (grid) {
		machine.launch_ps = below(random, 2) * 16 * TC_PS_PER_US;
	} else {
		machine.h2d.bytes_per_s += below(random, 1000000000);
		machine.dram_bytes_per_s = 5000000000 + below(random, 30000000000);
		machine.pageable_ppm = 1 + below(random, 1000000);
		machine.h2d.latency_ps = below(random, 20) * TC_PS_PER_US;
		machine.nvme_read.latency_ps = below(random, 100 * TC_PS_PER_US);
		machine.launch_ps = below(random, 20 * TC_PS_PER_US);
		machine.hook_ps = below(random, 5 * TC_PS_PER_US);
	}
	for (int q = 0; q < TC_QUEUE_COUNT; q++)
		machine.lanes[q] = q == TC_QUEUE_GPU_NVME ? 0 : 1 + (uint32_t)below(random, 2);
	machine.lanes[TC_QUEUE_HOST] = 1;
	return machine;
}

static void random_command(struct program *program, uint64_t *random,
                           const struct tc_machine *machine, bool grid)
{
	static const enum tc_queue queues[] = {
	    TC_QUEUE_COMPUTE, TC_QUEUE_COMPUTE,   TC_QUEUE_COMPUTE,    TC_QUEUE_H2D, TC_QUEUE_H2D,
	    TC_QUEUE_D2H,     TC_QUEUE_NVME_READ, TC_QUEUE_NVME_WRITE, TC_QUEUE_CPU, TC_QUEUE_HOST};
	enum tc_queue queue = queues[below(random, sizeof queues / sizeof *queues)];
	uint64_t size = grid ? below(random, 4) * 250000 : below(random, 3000000);
	uint64_t time =
	    grid ? below(random, 4) * 16 * TC_PS_PER_US : below(random, 200 * TC_PS_PER_US);
	uint64_t id;
	switch (queue) {
	case TC_QUEUE_COMPUTE:
		id = program_compute(program, time);
		break;
	case TC_QUEUE_HOST:
		id = program_add(program, queue, TC_WAIT);
		program_at(program, id)->duration_ps = below(random, 3) == 0 ? time / 8 : 0;
		break;
	case TC_QUEUE_CPU:
		id = below(random, 2) ? program_update(program, 1 + size / 28)
		                      : program_add(program, queue, TC_CONVERT);
		if (program_at(program, id)->kind == TC_CONVERT)
			program_at(program, id)->traffic_bytes = size;
		else if (below(random, 8) == 0) /* a fused update of another width */
			program_at(program, id)->traffic_bytes =
			    (20 + below(random, 20)) * program_at(program, id)->elements;
		break;
	default:
		id = program_copy(program, queue, size);
	}
	struct tc_command *command = program_at(program, id);
	command->lane = (uint32_t)below(random, machine->lanes[queue]);
	command->pageable = below(random, 4) == 0;
	command->launches = (uint32_t)below(random, 2);
	command->hooks = (uint32_t)below(random, 2);
	for (uint64_t d = below(random, 4); d > 0 && id > 0; d--) {
		uint64_t reach = below(random, 4) == 0 ? id : (id < 12 ? id : 12);
		program_depend(program, id, id - 1 - below(random, reach),
		               (enum tc_reason)below(random, TC_REASON_COUNT));
	}
	for (uint64_t s = below(random, 3); s > 0 && id > 0 && queue != TC_QUEUE_HOST; s--)
		program_serve(program, id,
		              below(random, 4) == 0 ? TC_NO_COMMAND : below(random, id));
}

static void compare(const struct program *program, const struct naive *n, const struct timed *timed)
{
	uint64_t busy = 0, idle = 0, last_end = 0;
	for (size_t i = 0; i < program->count; i++) {
		const struct tc_timing *timing = &timed[i].timing;
		assert_int_equal(timing->issue_ps, n->issue[i]);
		assert_int_equal(timing->ask_ps, n->ask[i]);
		assert_int_equal(timing->start_ps, n->start[i]);
		assert_int_equal(timing->end_ps, n->end[i]);
		for (uint32_t s = 0; s < at(n, i)->served_count; s++) {
			uint64_t by = program->served[i][s].served_by;
			bool ready = by == TC_NO_COMMAND || n->end[by] <= n->ask[i];
			assert_int_equal(timed[i].ready[s], ready);
		}
		bool lane_0 = at(n, i)->queue == TC_QUEUE_COMPUTE && at(n, i)->lane == 0;
		for (int c = 0; c < TC_STALL_CAUSE_COUNT; c++) {
			assert_int_equal(timing->stall_ps[c], n->stall[i][c]);
			idle += timing->stall_ps[c];
		}
		if (lane_0) {
			busy += timing->end_ps - timing->start_ps;
			last_end = timing->end_ps;
			assert_int_equal(busy + idle, last_end);
		}
	}
	assert_int_equal(busy + idle, last_end);
}

static void test_against_naive(void **state)
{
	(void)state;
	uint64_t causes[TC_STALL_CAUSE_COUNT] = {0};
	for (uint64_t seed = 0; seed < 6000; seed++) {
		uint64_t random = seed;
		bool grid = seed % 2 == 0;
		struct tc_machine machine = random_machine(&random, grid);
		struct program program;
		program_init(&program);
		size_t count = 1 + below(&random, seed % 10 == 0 ? MOST : 40);
		while (program.count < count)
			random_command(&program, &random, &machine, grid);
		struct naive *n = run_naive(&program, &machine);
		struct timed *timed, *unmemoised;
		struct tc_error error = {0};
		assert_int_equal(program_try(&program, &machine, true, &timed, &error), TC_OK);
		compare(&program, n, timed);
		assert_int_equal(program_try(&program, &machine, false, &unmemoised, &error),
		                 TC_OK);
		compare(&program, n, unmemoised);
		for (size_t i = 0; i < count; i++)
			for (int c = 0; c < TC_STALL_CAUSE_COUNT; c++)
				causes[c] += n->stall[i][c] > 0;
		free(unmemoised);
		free(timed);
		free(n);
		program_free(&program);
	}
	/* The generator reaches every cause that a simulation has. */
	for (int c = 0; c < TC_STALL_CAUSE_COUNT; c++)
		assert_true(c == TC_STALL_FAULT ? causes[c] == 0 : causes[c] > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_against_naive),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
