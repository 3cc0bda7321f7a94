/**
 * @file steps_derive.h
 * Inside the derivation of steps: what its parts share.
 *
 *   steps.c           entry points, lists and uses of each step
 *   steps_cut.c       where steps begin, by granularity
 *   steps_requests.c  when requests open and close
 *   steps_reorder.c   the same steps in another order
 */
#ifndef TENCACHE_SRC_STEPS_DERIVE_H
#define TENCACHE_SRC_STEPS_DERIVE_H

#include "blocks.h"
#include "tencache/steps.h"

/** More entries than this in the lists of requested tensors are refused: only a trace made to
 * exhaust memory (huge modules open over very many steps) has them. */
#define TCI_LARGEST_REQUESTED (1ull << 26)

struct tci_derive {
	const struct tc_trace *trace;
	struct tc_steps *steps;
	struct tci_blocks *blocks;
	uint32_t *step_of_op;
	struct tc_error *error;
};

/** Zeroed memory that lives as long as the steps; NULL (and the error set) when there is none. */
void *tci_derive_take(struct tci_derive *derive, size_t count, size_t element_bytes);

/** Fill steps, step_count and step_of_op: op ranges, events, phase, module. */
enum tc_status tci_cut_steps(struct tci_derive *derive);

/** Fill requests, rows and their counts. */
enum tc_status tci_find_requests(struct tci_derive *derive);

/** From requests and rows: what opens, closes and is asked for at each step, and all uses. */
enum tc_status tci_fill_opened(struct tci_derive *derive);

/**
 * The steps in another order: `order[p]` is the recorded step at position p, a permutation. What
 * lies at the boundary before a step moves with it; a request closes after the last of its steps.
 * @param reordered borrows the lists of `steps`; free with tc_steps_free()
 */
enum tc_status tci_steps_reorder(const struct tc_steps *steps, const uint32_t *order,
                                 struct tc_steps **reordered, struct tc_error *error);

#endif
