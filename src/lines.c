/*
 * Arrays aligned to cache lines: see lines.h. realloc() would not keep the alignment.
 */
#include "lines.h"

#include "tencache/units.h"

#include <stdlib.h>
#include <string.h>

bool tci_grow_lines(void *array_pointer, size_t *capacity, size_t needed, size_t element_bytes)
{
	if (needed <= *capacity)
		return true;
	size_t larger = tc_grown_capacity(*capacity, needed, element_bytes);
	if (larger == 0 || element_bytes % TCI_LINE_BYTES != 0)
		return false;
	/* The caller's variable is a pointer to some type: copied, not read through void **. */
	void *old, *grown = aligned_alloc(TCI_LINE_BYTES, larger * element_bytes);
	if (grown == NULL)
		return false;
	memcpy(&old, array_pointer, sizeof old);
	if (*capacity > 0)
		memcpy(grown, old, *capacity * element_bytes);
	free(old);
	memcpy(array_pointer, &grown, sizeof grown);
	*capacity = larger;
	return true;
}
