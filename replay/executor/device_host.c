/** @file device_host.c
 * The device `host`: "GPU memory" is an ordinary arena, copies are memcpy by worker threads,
 * compute keeps its lane until a deadline. With it every schedule runs, and is checked, on any
 * computer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lanes.h"
#include "pages.h"
#include "tencache/units.h"

static enum tc_status create(uint32_t lanes, uint64_t (*clock_ps)(void *clock), void *clock,
                             void **self, struct tc_error *error)
{
	struct tci_lanes *set;
	*self = NULL;
	TC_TRY(tci_lanes_create(lanes, lanes, clock_ps, clock, &set, error));
	*self = set;
	return TC_OK;
}

static void destroy(void *self)
{
	tci_lanes_destroy(self);
}

/**
 * Fresh pages that are already there, so that no run is slowed by page faults. Nothing is pinned:
 * ordinary memory is what this device copies fastest. But pinned memory is what drives read and
 * write, and they do so faster in huge pages.
 */
static enum tc_status allocate(void *self, enum tc_tier tier, bool pinned, uint64_t bytes,
                               void **memory, struct tc_error *error)
{
	(void)self;
	*memory = NULL;
	void *pages = tci_pages_map(bytes, pinned);
	if (pages == NULL)
		return tc_error_set(error, TC_NO_MEMORY,
		                    "cannot allocate %llu bytes for tier %s: %s; a larger --scale "
		                    "needs less",
		                    (unsigned long long)bytes, tc_tier_name(tier), strerror(errno));
	*memory = pages;
	return TC_OK;
}

static void release(void *self, void *memory, uint64_t bytes)
{
	(void)self;
	if (memory != NULL)
		(void)munmap(memory, (size_t)bytes);
}

static enum tc_status submit(void *self, struct tc_device_task *task, struct tc_error *error)
{
	(void)error;
	tci_lanes_submit(self, task);
	return TC_OK;
}

static void *host_view(void *self, void *memory)
{
	(void)self;
	return memory;
}

const struct tc_device_backend tc_device_host = {
    .name = "host",
    .summary = "worker threads and memcpy in ordinary memory",
    .create = create,
    .destroy = destroy,
    .allocate = allocate,
    .release = release,
    .submit = submit,
    .host_view = host_view,
};
