/*
 * Arrays aligned to cache lines: see lines.h. realloc() would not keep the alignment.
 */
#include "lines.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool tci_grow_lines(void *array_pointer, size_t *capacity, size_t needed, size_t element_bytes)
{
	if (needed <= *capacity)
		return true;
	if (element_bytes == 0 || element_bytes % TCI_LINE_BYTES != 0 ||
	    needed > SIZE_MAX / element_bytes)
		return false;
	size_t larger = *capacity < 8 ? 8 : *capacity;
	while (larger < needed)
		larger = larger > SIZE_MAX / 2 ? needed : larger * 2;
	if (larger > SIZE_MAX / element_bytes)
		larger = needed;
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
