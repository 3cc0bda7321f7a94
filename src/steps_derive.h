/**
 * @file steps_derive.h
 * Inside the derivation of steps: what its parts share.
 *
 *   steps.c           entry points, lists and uses of each step
 *   steps_cut.c       where steps begin, by granularity
 *   steps_requests.c  when requests open and close
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

#endif
