/** splitmix64: a small generator with a documented sequence, so that failures can be repeated. */
#ifndef TENCACHE_TEST_RANDOM_H
#define TENCACHE_TEST_RANDOM_H

#include <stdint.h>

/** Advance the state and return 64 random bits. */
uint64_t test_random(uint64_t *state);
/** Uniform enough for tests: 0 ... bound - 1, bound > 0. */
uint64_t test_random_below(uint64_t *state, uint64_t bound);

#endif
