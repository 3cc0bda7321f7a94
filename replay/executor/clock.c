/** @file clock.c
 * Monotonic time in picoseconds; 2^64 ps are 213 days.
 */
#include "clock.h"

#define NS_PER_S 1000000000
#define PS_PER_NS 1000u

static uint64_t nanoseconds(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * NS_PER_S + (uint64_t)time->tv_nsec;
}

static struct timespec from_nanoseconds(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S),
	                         .tv_nsec = (long)(ns % NS_PER_S)};
}

void tci_clock_start(struct tci_clock *clock)
{
	(void)clock_gettime(CLOCK_MONOTONIC, &clock->base);
}

uint64_t tci_clock_ps(void *clock)
{
	const struct tci_clock *self = clock;
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (nanoseconds(&now) - nanoseconds(&self->base) + 1) * PS_PER_NS;
}

struct timespec tci_clock_at(const struct tci_clock *clock, uint64_t ps)
{
	return from_nanoseconds(nanoseconds(&clock->base) + ps / PS_PER_NS);
}

struct timespec tci_clock_after(uint64_t ps)
{
	struct timespec now;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return from_nanoseconds(nanoseconds(&now) + ps / PS_PER_NS);
}

uint64_t tci_clock_cpu_ps(void)
{
	struct timespec used;
	(void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return nanoseconds(&used) * PS_PER_NS;
}
