#include "pages.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES ((uintptr_t)2 << 20)

static void *map(size_t bytes, int flags)
{
	void *memory =
	    mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

/** Map with room to spare and cut off what lies before and behind the aligned part. */
static char *map_aligned(size_t bytes)
{
	char *all = map(bytes + HUGE_BYTES, 0);
	if (all == NULL)
		return NULL;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t kept = (bytes + page - 1) / page * page;
	size_t before = (size_t)(-(uintptr_t)all % HUGE_BYTES);
	if (before > 0)
		(void)munmap(all, before);
	(void)munmap(all + before + kept, HUGE_BYTES + bytes - before - kept);
	return all + before;
}

/** Fault all pages in. False, with errno set, when memory is short. */
static bool populate(char *memory, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
	if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
		return true;
	if (errno != EINVAL)
		return false;
#endif
	/* Before Linux 5.14: by hand. */
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	for (size_t at = 0; at < bytes; at += page)
		*(volatile char *)(memory + at) = 0;
	return true;
}

void *tci_pages_map(uint64_t bytes, bool huge)
{
	if (bytes == 0 || bytes > SIZE_MAX - 2 * HUGE_BYTES) {
		errno = ENOMEM;
		return NULL;
	}
	if (!huge || bytes < HUGE_BYTES)
		return map((size_t)bytes, MAP_POPULATE);
	char *memory = map_aligned((size_t)bytes);
	if (memory == NULL)
		return NULL;
	(void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE); /* small pages serve as well */
	if (populate(memory, (size_t)bytes))
		return memory;
	int failure = errno;
	(void)munmap(memory, (size_t)bytes);
	errno = failure;
	return NULL;
}
