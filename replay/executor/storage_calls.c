#include "storage_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* The kernel moves at most this much in one call (MAX_RW_COUNT). */
#define MOST_BYTES 0x7FFFF000ull

static int result_of(int value)
{
	return value < 0 ? -errno : value;
}

static int system_open_at(void *self, int directory, const char *name, int flags, unsigned mode)
{
	(void)self;
	return result_of(openat(directory, name, flags | O_CLOEXEC, mode));
}

static int system_link_at(void *self, int file, int directory, const char *name)
{
	(void)self;
	char path[32];
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	return result_of(linkat(AT_FDCWD, path, directory, name, AT_SYMLINK_FOLLOW));
}

static int system_allocate(void *self, int file, uint64_t bytes)
{
	(void)self;
	return result_of(fallocate(file, 0, 0, (off_t)bytes));
}

static int64_t system_read(void *self, int file, void *memory, uint64_t bytes, uint64_t offset)
{
	(void)self;
	ssize_t got = pread(file, memory, bytes < MOST_BYTES ? bytes : MOST_BYTES, (off_t)offset);
	return got < 0 ? -errno : got;
}

static int64_t system_write(void *self, int file, const void *memory, uint64_t bytes,
                            uint64_t offset)
{
	(void)self;
	ssize_t put = pwrite(file, memory, bytes < MOST_BYTES ? bytes : MOST_BYTES, (off_t)offset);
	return put < 0 ? -errno : put;
}

static int system_direct_alignment(void *self, int file, uint32_t *alignment)
{
	(void)self;
	struct statfs system;
	*alignment = 0;
	if (fstatfs(file, &system) != 0)
		return -errno;
	/* From Linux 6.6 on tmpfs takes the flag and ignores it. */
	if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)
		return -EOPNOTSUPP;
#ifdef STATX_DIOALIGN
	struct statx status;
	if (statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) != 0)
		return errno == ENOSYS ? 0 : -errno;
	if ((status.stx_mask & STATX_DIOALIGN) != 0) {
		uint32_t memory = status.stx_dio_mem_align, offset = status.stx_dio_offset_align;
		*alignment = memory > offset ? memory : offset;
		return offset == 0 ? -EOPNOTSUPP : 0;
	}
#endif
	return 0;
}

static int system_set_direct(void *self, int file, bool direct)
{
	(void)self;
	int flags = fcntl(file, F_GETFL);
	if (flags == -1)
		return -errno;
	return result_of(fcntl(file, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT));
}

static int system_free_bytes(void *self, int file, uint64_t *bytes)
{
	(void)self;
	struct statvfs system;
	if (fstatvfs(file, &system) != 0)
		return -errno;
	*bytes = (uint64_t)system.f_bavail * system.f_frsize;
	return 0;
}

static int system_remove_at(void *self, int directory, const char *name)
{
	(void)self;
	return result_of(unlinkat(directory, name, 0));
}

static int system_ring_create(void *self, struct io_uring *ring, unsigned entries, unsigned flags)
{
	(void)self;
	return io_uring_queue_init(entries, ring, flags);
}

static int system_ring_register_files(void *self, struct io_uring *ring, const int *files,
                                      unsigned count)
{
	(void)self;
	return io_uring_register_files(ring, files, count);
}

static int system_ring_memory_table(void *self, struct io_uring *ring, unsigned places)
{
	(void)self;
	return io_uring_register_buffers_sparse(ring, places);
}

static int system_ring_register_memory(void *self, struct io_uring *ring, unsigned index,
                                       const struct iovec *range)
{
	(void)self;
	__u64 tag = 0;
	int result = io_uring_register_buffers_update_tag(ring, index, range, &tag, 1);
	return result < 0 ? result : 0;
}

static int system_ring_submit_and_wait(void *self, struct io_uring *ring)
{
	(void)self;
	return io_uring_submit_and_wait(ring, 1);
}

static int system_ring_wait(void *self, struct io_uring *ring)
{
	(void)self;
	struct io_uring_cqe *completion;
	return io_uring_wait_cqe(ring, &completion);
}

static int system_ring_result(void *self, bool write, int result)
{
	(void)self;
	(void)write;
	return result;
}

const struct tci_storage_calls tci_system_calls = {
    .open_at = system_open_at,
    .link_at = system_link_at,
    .allocate = system_allocate,
    .read = system_read,
    .write = system_write,
    .direct_alignment = system_direct_alignment,
    .set_direct = system_set_direct,
    .free_bytes = system_free_bytes,
    .remove_at = system_remove_at,
    .ring_create = system_ring_create,
    .ring_register_files = system_ring_register_files,
    .ring_memory_table = system_ring_memory_table,
    .ring_register_memory = system_ring_register_memory,
    .ring_submit_and_wait = system_ring_submit_and_wait,
    .ring_wait = system_ring_wait,
    .ring_result = system_ring_result,
};
