#define _GNU_SOURCE /* O_TMPFILE */
#include "io_shim.h"

#include <fcntl.h>
#include <signal.h>
#include <stddef.h>

static int shim_open_at(void *self, int directory, const char *name, int flags, unsigned mode)
{
	const struct io_shim *shim = self;
	if ((flags & O_TMPFILE) == O_TMPFILE && shim->nameless_error != 0)
		return shim->nameless_error;
	return tci_system_calls.open_at(NULL, directory, name, flags, mode);
}

static int shim_link_at(void *self, int file, int directory, const char *name)
{
	const struct io_shim *shim = self;
	return shim->link_error != 0 ? shim->link_error
	                             : tci_system_calls.link_at(NULL, file, directory, name);
}

static int shim_allocate(void *self, int file, uint64_t bytes)
{
	const struct io_shim *shim = self;
	return shim->allocate_error != 0 ? shim->allocate_error
	                                 : tci_system_calls.allocate(NULL, file, bytes);
}

/** Count a transfer: is this one to be spoiled? */
static bool is_spoiled(struct io_shim *shim, bool write)
{
	if (shim->fault == IO_FAULT_NONE || !(write ? shim->spoil_writes : shim->spoil_reads) ||
	    (!shim->armed && !shim->in_creation))
		return false;
	if (++shim->transfers % shim->every != 0)
		return false;
	if (++shim->spoiled > shim->most && shim->most != 0) {
		shim->spoiled--;
		return false;
	}
	return true;
}

/** Bytes that a transfer of `bytes` that is to be spoiled claims to have moved. */
static uint64_t spoiled_bytes(const struct io_shim *shim, uint64_t bytes)
{
	if (shim->fault != IO_FAULT_SHORT)
		return 0;
	return bytes < shim->short_bytes ? bytes : shim->short_bytes;
}

/** What direct I/O can really move of them. */
static uint64_t movable(uint64_t claimed)
{
	return claimed / 512 * 512;
}

static int64_t shim_read(void *self, int file, void *memory, uint64_t bytes, uint64_t offset)
{
	struct io_shim *shim = self;
	if (!is_spoiled(shim, false))
		return tci_system_calls.read(NULL, file, memory, bytes, offset);
	if (shim->fault == IO_FAULT_ERROR)
		return shim->error;
	uint64_t claimed = spoiled_bytes(shim, bytes), part = movable(claimed);
	int64_t moved = part == 0 ? 0 : tci_system_calls.read(NULL, file, memory, part, offset);
	return moved == (int64_t)part ? (int64_t)claimed : moved;
}

static int64_t shim_write(void *self, int file, const void *memory, uint64_t bytes, uint64_t offset)
{
	struct io_shim *shim = self;
	if (!is_spoiled(shim, true))
		return tci_system_calls.write(NULL, file, memory, bytes, offset);
	if (shim->fault == IO_FAULT_KILL)
		(void)raise(SIGKILL);
	if (shim->fault == IO_FAULT_ERROR)
		return shim->error;
	uint64_t claimed = spoiled_bytes(shim, bytes), part = movable(claimed);
	int64_t moved = part == 0 ? 0 : tci_system_calls.write(NULL, file, memory, part, offset);
	return moved == (int64_t)part ? (int64_t)claimed : moved;
}

static int shim_direct_alignment(void *self, int file, uint32_t *alignment)
{
	const struct io_shim *shim = self;
	if (shim->alignment == 0)
		return tci_system_calls.direct_alignment(NULL, file, alignment);
	*alignment = shim->alignment;
	return 0;
}

static int shim_set_direct(void *self, int file, bool direct)
{
	const struct io_shim *shim = self;
	return direct && shim->direct_error != 0 ? shim->direct_error
	                                         : tci_system_calls.set_direct(NULL, file, direct);
}

static int shim_free_bytes(void *self, int file, uint64_t *bytes)
{
	const struct io_shim *shim = self;
	if (shim->free_bytes == UINT64_MAX)
		return tci_system_calls.free_bytes(NULL, file, bytes);
	*bytes = shim->free_bytes;
	return 0;
}

static int shim_remove_at(void *self, int directory, const char *name)
{
	const struct io_shim *shim = self;
	return shim->remove_error != 0 ? shim->remove_error
	                               : tci_system_calls.remove_at(NULL, directory, name);
}

static int shim_ring_create(void *self, struct io_uring *ring, unsigned entries, unsigned flags)
{
	struct io_shim *shim = self;
	if (shim->ring_error != 0)
		return shim->ring_error;
	if ((flags & shim->unknown_flags) != 0)
		return -22; /* EINVAL */
	shim->ring_flags = flags;
	return tci_system_calls.ring_create(NULL, ring, entries, flags);
}

static int shim_ring_register_files(void *self, struct io_uring *ring, const int *files,
                                    unsigned count)
{
	const struct io_shim *shim = self;
	return shim->ring_files_error != 0
	           ? shim->ring_files_error
	           : tci_system_calls.ring_register_files(NULL, ring, files, count);
}

static int shim_ring_memory_table(void *self, struct io_uring *ring, unsigned places)
{
	const struct io_shim *shim = self;
	return shim->ring_table_error != 0 ? shim->ring_table_error
	                                   : tci_system_calls.ring_memory_table(NULL, ring, places);
}

static int shim_ring_register_memory(void *self, struct io_uring *ring, unsigned index,
                                     const struct iovec *range)
{
	const struct io_shim *shim = self;
	return shim->ring_memory_error != 0
	           ? shim->ring_memory_error
	           : tci_system_calls.ring_register_memory(NULL, ring, index, range);
}

static int shim_ring_submit_and_wait(void *self, struct io_uring *ring)
{
	struct io_shim *shim = self;
	uint64_t count = ++shim->submissions;
	if (shim->submit_every != 0 && count % shim->submit_every == 0 &&
	    (shim->submit_most == 0 || shim->refused < shim->submit_most)) {
		shim->refused++;
		return shim->submit_error;
	}
	return tci_system_calls.ring_submit_and_wait(NULL, ring);
}

static int shim_ring_wait(void *self, struct io_uring *ring)
{
	(void)self;
	return tci_system_calls.ring_wait(NULL, ring);
}

/* The kernel has moved all by now; less is claimed, and the backend has to ask again. */
static int shim_ring_result(void *self, bool write, int result)
{
	struct io_shim *shim = self;
	if (result < 0 || !is_spoiled(shim, write))
		return result;
	return shim->fault == IO_FAULT_ERROR ? shim->error
	                                     : (int)spoiled_bytes(shim, (uint64_t)result);
}

void io_shim_init(struct io_shim *shim)
{
	*shim = (struct io_shim){
	    .calls =
	        {
	            .self = shim,
	            .open_at = shim_open_at,
	            .link_at = shim_link_at,
	            .allocate = shim_allocate,
	            .read = shim_read,
	            .write = shim_write,
	            .direct_alignment = shim_direct_alignment,
	            .set_direct = shim_set_direct,
	            .free_bytes = shim_free_bytes,
	            .remove_at = shim_remove_at,
	            .ring_create = shim_ring_create,
	            .ring_register_files = shim_ring_register_files,
	            .ring_memory_table = shim_ring_memory_table,
	            .ring_register_memory = shim_ring_register_memory,
	            .ring_submit_and_wait = shim_ring_submit_and_wait,
	            .ring_wait = shim_ring_wait,
	            .ring_result = shim_ring_result,
	        },
	    .spoil_reads = true,
	    .spoil_writes = true,
	    .every = 1,
	    .free_bytes = UINT64_MAX,
	};
}
