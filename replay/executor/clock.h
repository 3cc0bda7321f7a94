/**
 * @file clock.h
 * The replay clock: picoseconds since it was started, from the monotonic clock.
 */
#ifndef TENCACHE_REPLAY_CLOCK_H
#define TENCACHE_REPLAY_CLOCK_H

#include <stdint.h>
#include <time.h>

struct tci_clock {
	struct timespec base;
};

void tci_clock_start(struct tci_clock *clock);
/** Now; `clock` is a struct tci_clock. Never 0. */
uint64_t tci_clock_ps(void *clock);
/** The monotonic time of a moment of the replay clock, for waits with a deadline. */
struct timespec tci_clock_at(const struct tci_clock *clock, uint64_t ps);
/** A duration later than now on the monotonic clock. */
struct timespec tci_clock_after(uint64_t ps);
/** CPU time of the process so far. */
uint64_t tci_clock_cpu_ps(void);

#endif
