/*
 * Release vectors: see pool.h.
 */
#include "pool.h"

void tci_release_merge(struct tci_release *target, const struct tci_release *source, uint32_t lanes)
{
	for (uint32_t lane = 0; lane < lanes && lane < TC_MAX_LANES; lane++) {
		if (target->last[lane] < source->last[lane])
			target->last[lane] = source->last[lane];
	}
}
