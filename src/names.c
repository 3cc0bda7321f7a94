/**
 * @file names.c
 * "Did you mean": the nearest name by edit distance (insert, delete, replace, swap of neighbours),
 * letters compared without case.
 */
#include <ctype.h>
#include <string.h>

#include "tencache/units.h"

/** Longer names are never misspelt ones of ours. */
#define LONGEST_NAME 63
/** So many letters or more say which name was begun. */
#define SHORTEST_BEGINNING 3u

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/** Optimal string alignment distance with three rows; both texts at most LONGEST_NAME long. */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
	size_t rows[3][LONGEST_NAME + 1];
	for (size_t j = 0; j <= b_length; ++j)
		rows[0][j] = j;
	for (size_t i = 1; i <= a_length; ++i) {
		size_t *now = rows[i % 3], *before = rows[(i + 2) % 3],
		       *earlier = rows[(i + 1) % 3];
		now[0] = i;
		for (size_t j = 1; j <= b_length; ++j) {
			int from = tolower((unsigned char)a[i - 1]),
			    to = tolower((unsigned char)b[j - 1]);
			now[j] = smaller(before[j - 1] + (from != to),
			                 smaller(before[j], now[j - 1]) + 1);
			if (i > 1 && j > 1 && from == tolower((unsigned char)b[j - 2]) &&
			    to == tolower((unsigned char)a[i - 2]))
				now[j] = smaller(now[j], earlier[j - 2] + 1);
		}
	}
	return rows[a_length % 3][b_length];
}

const char *tc_nearest_name(const char *name, const char *const *names, size_t count)
{
	size_t length = strlen(name);
	if (length == 0 || length > LONGEST_NAME)
		return NULL;
	size_t limit = length / 3 < 2 ? 2 : length / 3;
	/* Something of the name must remain: "x" suggests nothing. */
	limit = smaller(limit, length - 1);
	const char *best = NULL;
	size_t best_distance = limit + 1;
	/* A name that somebody began to write is nearer than one that looks alike. */
	for (size_t i = 0; i < count && length >= SHORTEST_BEGINNING; ++i)
		if (strncmp(names[i], name, length) == 0)
			return names[i];
	for (size_t i = 0; i < count; ++i) {
		size_t other = strlen(names[i]);
		if (other > LONGEST_NAME)
			continue;
		size_t distance = edit_distance(name, length, names[i], other);
		if (distance < best_distance) {
			best = names[i];
			best_distance = distance;
		}
	}
	return best;
}
