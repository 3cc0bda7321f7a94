#include "random.h"

uint64_t test_random(uint64_t *state)
{
	*state += 0x9E3779B97F4A7C15u;
	uint64_t z = *state;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

uint64_t test_random_below(uint64_t *state, uint64_t bound)
{
	return test_random(state) % bound;
}
