/**
 * Faults under the storage backends: a table of calls that passes everything on to the operating
 * system except what it was told to spoil. One shim serves one backend; its numbers may be read
 * after the backend was destroyed, or while nothing runs.
 */
#ifndef TENCACHE_TEST_IO_SHIM_H
#define TENCACHE_TEST_IO_SHIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "storage_calls.h"

enum io_fault {
	IO_FAULT_NONE,
	IO_FAULT_ERROR, /**< the transfer returns `error` */
	IO_FAULT_SHORT, /**< it moves less than asked: `short_bytes` */
	IO_FAULT_END,   /**< it returns 0, as at the end of a file */
	IO_FAULT_KILL   /**< a write: the process is killed before it (SIGKILL) */
};

struct io_shim {
	struct tci_storage_calls calls; /**< give this to tci_storage_create() */

	/* Transfers of tasks (not those that write a new file unless `in_creation`). */
	enum io_fault fault;
	int error;            /**< a negative errno */
	uint64_t short_bytes; /**< what a short transfer moves at most */
	bool spoil_reads, spoil_writes, in_creation;
	uint64_t every; /**< each n-th transfer is spoiled; 1: all */
	uint64_t most;  /**< how many at most; 0: no limit */
	_Atomic bool
	    armed; /**< set when files are made; before, only `in_creation` faults strike */
	_Atomic uint64_t transfers, spoiled;

	/* A negative errno each, 0: the operating system decides. */
	int nameless_error, link_error, allocate_error, direct_error, remove_error;
	int ring_error, ring_files_error, ring_table_error, ring_memory_error;
	uint32_t alignment;     /**< said to be needed for direct I/O; 0: ask */
	uint64_t free_bytes;    /**< said to be free; UINT64_MAX: ask */
	unsigned unknown_flags; /**< ring flags that the kernel claims not to know */
	unsigned ring_flags;    /**< of the last ring that was made */
	int submit_error;       /**< of ring submissions */
	uint64_t submit_every;  /**< each n-th submission is refused; 0: none */
	uint64_t submit_most;   /**< how many at most; 0: no limit */
	_Atomic uint64_t submissions, refused;
};

/** A shim that spoils nothing yet. */
void io_shim_init(struct io_shim *shim);

#endif
