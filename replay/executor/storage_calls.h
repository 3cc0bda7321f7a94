/**
 * @file storage_calls.h
 * The few calls through which the storage backends reach the operating system, as a table, so that
 * tests can put faults between: no space, I/O errors, short transfers, forbidden rings.
 *
 * All return a negative errno on failure, as liburing does; errno itself is not used.
 */
#ifndef TENCACHE_STORAGE_CALLS_H
#define TENCACHE_STORAGE_CALLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct io_uring;

struct tci_storage_calls {
	void *self; /**< first argument of every call */
	/** openat(); flags get O_CLOEXEC. @return a descriptor */
	int (*open_at)(void *self, int directory, const char *name, int flags, unsigned mode);
	/** Give a file that was opened without a name (O_TMPFILE) one that nobody has. */
	int (*link_at)(void *self, int file, int directory, const char *name);
	/** Reserve the space of a file (fallocate). */
	int (*allocate)(void *self, int file, uint64_t bytes);
	/** pread(), pwrite(). @return bytes transferred, maybe fewer than asked */
	int64_t (*read)(void *self, int file, void *memory, uint64_t bytes, uint64_t offset);
	int64_t (*write)(void *self, int file, const void *memory, uint64_t bytes, uint64_t offset);
	/**
	 * Alignment that direct I/O needs for memory, offsets and lengths. -EOPNOTSUPP: the file
	 * system keeps files in memory or has no direct I/O. `*alignment` 0: the kernel does not
	 * say.
	 */
	int (*direct_alignment)(void *self, int file, uint32_t *alignment);
	/** Turn O_DIRECT on or off for an open file. */
	int (*set_direct)(void *self, int file, bool direct);
	/** Bytes that an ordinary user may still write on the file system. */
	int (*free_bytes)(void *self, int file, uint64_t *bytes);
	int (*remove_at)(void *self, int directory, const char *name);

	int (*ring_create)(void *self, struct io_uring *ring, unsigned entries, unsigned flags);
	int (*ring_register_files)(void *self, struct io_uring *ring, const int *files,
	                           unsigned count);
	/** Make an empty table of registered memory; put a range into its place `index`. */
	int (*ring_memory_table)(void *self, struct io_uring *ring, unsigned places);
	int (*ring_register_memory)(void *self, struct io_uring *ring, unsigned index,
	                            const struct iovec *range);
	/** Submit what is prepared and wait for at least one completion. */
	int (*ring_submit_and_wait)(void *self, struct io_uring *ring);
	/** Wait for a completion and submit nothing. */
	int (*ring_wait)(void *self, struct io_uring *ring);
	/** Sees the result of each completion and returns it. */
	int (*ring_result)(void *self, bool write, int result);
};

/** The operating system itself. */
extern const struct tci_storage_calls tci_system_calls;

#endif
