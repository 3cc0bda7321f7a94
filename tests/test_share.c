/*
 * Max-min fair sharing.
 *
 * Golden vector: nine flows with the finish times that SimGrid (model CM02, all corrections off)
 * and an independent solver agree on to 1e-9 s; here to 1 ns. Then the integer solver against exact
 * fractions, found by growing all flows together by increments, and against the conditions that
 * characterise a max-min fair division, on random graphs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core.h"
#include "random.h"

/* ---------------------------------------------------------------- golden vector */

enum { H2D0, D2H0, H2D1, D2H1, SWITCH, DRAM, NVME_READ, NVME_WRITE, GOLDEN_RESOURCES };
#define GOLDEN_FLOWS 9
#define GB UINT64_C(1000000000)

struct golden {
	int route[3];
	int hops;
	uint64_t start_ms, gigabytes;
	uint64_t finish_ns, finish_capped_ns; /**< the latter with flow 7 held to 10 GB/s */
};

static const struct golden golden[GOLDEN_FLOWS] = {
    {{DRAM, SWITCH, H2D0}, 3, 0, 10, 562500000, 537037037},
    {{DRAM, SWITCH, H2D1}, 3, 0, 10, 562500000, 537037037},
    {{DRAM, SWITCH, D2H0}, 3, 50, 4, 313547297, 308870968},
    {{NVME_READ, DRAM}, 2, 50, 3, 875000000, 875000000},
    {{NVME_WRITE, DRAM}, 2, 100, 2, 500000000, 500000000},
    {{SWITCH, D2H0, H2D1}, 3, 100, 6, 512141927, 486935484},
    {{NVME_READ, SWITCH, H2D0}, 3, 150, 1, 503571429, 503571429},
    {{DRAM, SWITCH, D2H1}, 3, 200, 5, 538216146, 700000000},
    {{NVME_READ, DRAM}, 2, 300, 2, 907142857, 907142857},
};

/** A small event loop: between events every active flow moves at its rate. */
static void run_golden(bool capped, uint64_t *finish_ps)
{
	static const uint64_t gb_per_s[GOLDEN_RESOURCES] = {50, 50, 50, 50, 64, 80, 7, 5};
	uint64_t capacity[GOLDEN_RESOURCES];
	for (int r = 0; r < GOLDEN_RESOURCES; r++)
		capacity[r] = tc_rate_units(gb_per_s[r] * GB);
	tci_work left[GOLDEN_FLOWS];
	bool done[GOLDEN_FLOWS] = {false};
	for (int f = 0; f < GOLDEN_FLOWS; f++)
		left[f] = (tci_work)(golden[f].gigabytes * GB) << TC_WORK_BITS;
	uint64_t now = 0;
	for (int finished = 0; finished < GOLDEN_FLOWS;) {
		struct tc_flow flows[GOLDEN_FLOWS];
		int who[GOLDEN_FLOWS];
		uint32_t count = 0;
		uint64_t next = UINT64_MAX;
		for (int f = 0; f < GOLDEN_FLOWS; f++) {
			uint64_t start = golden[f].start_ms * 1000 * TC_PS_PER_US;
			if (start > now)
				next = start < next ? start : next;
			if (start > now || done[f])
				continue;
			struct tc_flow *flow = &flows[count];
			*flow = (struct tc_flow){.resource_count = (uint32_t)golden[f].hops};
			for (int h = 0; h < golden[f].hops; h++) {
				flow->resources[h] = (uint8_t)golden[f].route[h];
				flow->weights[h] = 1;
			}
			flow->cap = capped && f == 7 ? tc_rate_units(10 * GB) : 0;
			who[count++] = f;
		}
		uint64_t rates[GOLDEN_FLOWS];
		tc_share_rates(capacity, GOLDEN_RESOURCES, flows, count, rates);
		for (uint32_t i = 0; i < count; i++) {
			uint64_t end = now + tci_flow_time(left[who[i]], rates[i]);
			next = end < next ? end : next;
		}
		for (uint32_t i = 0; i < count; i++) {
			tci_work moved = (tci_work)rates[i] * (next - now);
			if (moved >= left[who[i]]) {
				done[who[i]] = true;
				finish_ps[who[i]] = next;
				finished++;
			} else {
				left[who[i]] -= moved;
			}
		}
		now = next;
	}
}

static void test_golden_vector(void **state)
{
	(void)state;
	for (int capped = 0; capped < 2; capped++) {
		uint64_t finish_ps[GOLDEN_FLOWS];
		run_golden(capped, finish_ps);
		for (int f = 0; f < GOLDEN_FLOWS; f++) {
			uint64_t expected =
			    (capped ? golden[f].finish_capped_ns : golden[f].finish_ns) * 1000;
			uint64_t difference = finish_ps[f] > expected ? finish_ps[f] - expected
			                                              : expected - finish_ps[f];
			assert_true(difference <= 1000);
		}
	}
}

/* ---------------------------------------------------------------- by hand */

static void test_units(void **state)
{
	(void)state;
	/* 1 TB/s is one byte per ps: 2^40 units; 1 byte/s is 2^40 / 10^12 = 1.0995 units. */
	assert_int_equal(tc_rate_units(1000000000000), UINT64_C(1) << 40);
	assert_int_equal(tc_rate_units(1), 1);
	assert_int_equal(tc_rate_units(0), 0);
	assert_int_equal(tc_rate_units(UINT64_MAX), UINT64_MAX);
	assert_int_equal(tci_flow_time(10, 3), 4);
	assert_int_equal(tci_flow_time(9, 3), 3);
	assert_int_equal(tci_flow_time(0, 0), 0);
	assert_int_equal(tci_flow_time(1, 0), TCI_NEVER);
	/* 2^64 - 1 and 2^64 + 1 at rate 2 round up to 2^63 and 2^63 + 1. */
	assert_int_equal(tci_flow_time(UINT64_MAX, 2), UINT64_C(1) << 63);
	assert_int_equal(tci_flow_time((tci_work)UINT64_MAX + 2, 2), (UINT64_C(1) << 63) + 1);
	assert_int_equal(tci_flow_time((tci_work)1 << 100, 1), TCI_NEVER);
}

static void test_by_hand(void **state)
{
	(void)state;
	/* Weights 1 and 3 on a resource of 101: 101 / 4 = 25 each (rounded down), 25 and 75 used.
	 */
	uint64_t capacity[2] = {101, 60};
	uint64_t rates[3];
	struct tc_flow flows[3] = {{.resource_count = 1, .resources = {0}, .weights = {1}},
	                           {.resource_count = 1, .resources = {0}, .weights = {3}},
	                           {.resource_count = 1, .resources = {1}, .weights = {1}}};
	tc_share_rates(capacity, 2, flows, 3, rates);
	assert_int_equal(rates[0], 25);
	assert_int_equal(rates[1], 25);
	assert_int_equal(rates[2], 60);
	/* A cap of 5 on the heavy flow freezes first: 101 - 15 = 86 are left for the other. */
	flows[1].cap = 5;
	tc_share_rates(capacity, 2, flows, 3, rates);
	assert_int_equal(rates[0], 86);
	assert_int_equal(rates[1], 5);
	/* A flow that uses nothing is limited by its cap alone, or by nothing. */
	flows[2].resource_count = 0;
	flows[2].cap = 7;
	tc_share_rates(capacity, 2, flows, 3, rates);
	assert_int_equal(rates[2], 7);
	flows[2].cap = 0;
	tc_share_rates(capacity, 2, flows, 3, rates);
	assert_int_equal(rates[2], UINT64_MAX);
	tc_share_rates(capacity, 2, flows, 0, rates);
}

/* ---------------------------------------------------------------- exact fractions */

__extension__ typedef __int128 wide;

/** A fraction in lowest terms, denominator positive. */
struct fraction {
	wide above, below;
};

static struct fraction reduce(wide above, wide below)
{
	wide a = above < 0 ? -above : above, b = below;
	while (b != 0) {
		wide rest = a % b;
		a = b;
		b = rest;
	}
	return a == 0 ? (struct fraction){0, 1} : (struct fraction){above / a, below / a};
}

static struct fraction minus(struct fraction a, struct fraction b)
{
	return reduce(a.above * b.below - b.above * a.below, a.below * b.below);
}

static struct fraction plus(struct fraction a, struct fraction b)
{
	return reduce(a.above * b.below + b.above * a.below, a.below * b.below);
}

static struct fraction times(struct fraction a, uint64_t factor)
{
	return reduce(a.above * (wide)factor, a.below);
}

static struct fraction over(struct fraction a, uint64_t divisor)
{
	return reduce(a.above, a.below * (wide)divisor);
}

static bool less(struct fraction a, struct fraction b)
{
	return a.above * b.below < b.above * a.below;
}

struct graph {
	uint64_t capacity[TC_MAX_RESOURCES];
	struct tc_flow flows[TC_MAX_FLOWS];
	uint32_t resources, flow_count;
};

static uint64_t weight_on(const struct tc_flow *flow, uint32_t resource)
{
	uint64_t weight = 0;
	for (uint32_t use = 0; use < flow->resource_count; use++)
		if (flow->resources[use] == resource)
			weight += flow->weights[use];
	return weight;
}

static uint64_t open_weight(const struct graph *graph, const bool *open, uint32_t resource)
{
	uint64_t weight = 0;
	for (uint32_t f = 0; f < graph->flow_count; f++)
		if (open[f])
			weight += weight_on(&graph->flows[f], resource);
	return weight;
}

/** Grow all open flows by the largest increment that fits everything; close what then is full. */
static void solve_exactly(const struct graph *graph, struct fraction *rates)
{
	struct fraction slack[TC_MAX_RESOURCES], level = {0, 1};
	bool open[TC_MAX_FLOWS];
	for (uint32_t r = 0; r < graph->resources; r++)
		slack[r] = (struct fraction){(wide)graph->capacity[r], 1};
	for (uint32_t f = 0; f < graph->flow_count; f++)
		open[f] = true;
	for (uint32_t closed = 0; closed < graph->flow_count;) {
		struct fraction step = {(wide)1 << 62, 1};
		for (uint32_t r = 0; r < graph->resources; r++) {
			uint64_t weight = open_weight(graph, open, r);
			if (weight > 0 && less(over(slack[r], weight), step))
				step = over(slack[r], weight);
		}
		for (uint32_t f = 0; f < graph->flow_count; f++) {
			struct fraction cap = {(wide)graph->flows[f].cap, 1};
			if (open[f] && graph->flows[f].cap > 0 && less(minus(cap, level), step))
				step = minus(cap, level);
		}
		level = plus(level, step);
		for (uint32_t r = 0; r < graph->resources; r++)
			slack[r] = minus(slack[r], times(step, open_weight(graph, open, r)));
		for (uint32_t f = 0; f < graph->flow_count; f++) {
			const struct tc_flow *flow = &graph->flows[f];
			bool full = flow->cap > 0 && level.above == (wide)flow->cap * level.below;
			for (uint32_t r = 0; r < graph->resources; r++)
				full |= weight_on(flow, r) > 0 && slack[r].above == 0;
			if (!open[f] || !full)
				continue;
			open[f] = false;
			rates[f] = level;
			closed++;
		}
	}
}

static void random_graph(struct graph *graph, uint64_t *state, uint32_t resources, uint32_t flows,
                         uint64_t capacity, uint64_t weight)
{
	graph->resources = 1 + (uint32_t)test_random_below(state, resources);
	graph->flow_count = 1 + (uint32_t)test_random_below(state, flows);
	for (uint32_t r = 0; r < graph->resources; r++)
		graph->capacity[r] = test_random_below(state, capacity);
	for (uint32_t f = 0; f < graph->flow_count; f++) {
		struct tc_flow *flow = &graph->flows[f];
		*flow = (struct tc_flow){0};
		uint32_t first = (uint32_t)test_random_below(state, graph->resources);
		for (uint32_t r = 0; r < graph->resources; r++) {
			if (r != first && test_random_below(state, 3) != 0)
				continue;
			flow->resources[flow->resource_count] = (uint8_t)r;
			flow->weights[flow->resource_count++] =
			    1 + (uint32_t)test_random_below(state, weight);
		}
		if (test_random_below(state, 4) == 0)
			flow->cap = 1 + test_random_below(state, capacity / 4);
	}
}

/*
 * Rounding: a level is rounded down by less than one unit, and what that leaves goes to later
 * levels, amplified by weights: with weights up to 3 and 8 flows it stays far below 256 units of
 * capacities around 2^43.
 */
static void test_against_fractions(void **state)
{
	(void)state;
	enum { GRAPHS = 20000, TOLERANCE = 256 };
	uint64_t random = 20;
	for (int i = 0; i < GRAPHS; i++) {
		struct graph graph;
		random_graph(&graph, &random, 5, 8, UINT64_C(1) << (10 + i % 34), 3);
		uint64_t rates[TC_MAX_FLOWS];
		struct fraction exact[TC_MAX_FLOWS];
		tc_share_rates(graph.capacity, graph.resources, graph.flows, graph.flow_count,
		               rates);
		solve_exactly(&graph, exact);
		for (uint32_t f = 0; f < graph.flow_count; f++) {
			struct fraction difference =
			    minus(exact[f], (struct fraction){(wide)rates[f], 1});
			assert_true(less(difference, (struct fraction){TOLERANCE, 1}));
			assert_true(less((struct fraction){-TOLERANCE, 1}, difference));
		}
	}
}

/** Max-min fair: no resource is over-used, and every flow is at its cap or at the top of a full
 * resource (full: less is left than the weights on it). */
static void check_fair(const struct graph *graph, const uint64_t *rates)
{
	tci_work left[TC_MAX_RESOURCES], weight[TC_MAX_RESOURCES];
	uint64_t top[TC_MAX_RESOURCES];
	for (uint32_t r = 0; r < graph->resources; r++) {
		left[r] = graph->capacity[r];
		weight[r] = 0;
		top[r] = 0;
		for (uint32_t f = 0; f < graph->flow_count; f++) {
			uint64_t own = weight_on(&graph->flows[f], r);
			tci_work used = (tci_work)rates[f] * own;
			assert_true(used <= left[r]);
			left[r] -= used;
			weight[r] += own;
			if (own > 0 && rates[f] > top[r])
				top[r] = rates[f];
		}
	}
	for (uint32_t f = 0; f < graph->flow_count; f++) {
		const struct tc_flow *flow = &graph->flows[f];
		bool stopped = flow->cap > 0 && rates[f] == flow->cap;
		assert_true(flow->cap == 0 || rates[f] <= flow->cap);
		for (uint32_t r = 0; r < graph->resources; r++)
			stopped |=
			    weight_on(flow, r) > 0 && left[r] < weight[r] && rates[f] == top[r];
		assert_true(stopped);
	}
}

static void test_fairness(void **state)
{
	(void)state;
	uint64_t random = 21;
	for (int i = 0; i < 20000; i++) {
		struct graph graph;
		random_graph(&graph, &random, TC_MAX_RESOURCES, TC_MAX_FLOWS,
		             UINT64_MAX >> (i % 50), i % 2 ? 4 : UINT32_MAX);
		uint64_t rates[TC_MAX_FLOWS];
		tc_share_rates(graph.capacity, graph.resources, graph.flows, graph.flow_count,
		               rates);
		check_fair(&graph, rates);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_units),    cmocka_unit_test(test_golden_vector),
	    cmocka_unit_test(test_by_hand),  cmocka_unit_test(test_against_fractions),
	    cmocka_unit_test(test_fairness),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
