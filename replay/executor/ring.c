/**
 * The io_uring engine: one ring for each direction, used by that lane's thread alone, as
 * SINGLE_ISSUER demands. A task is cut into pieces; as many as the depth are in flight, and each
 * completion is judged and makes room for the next piece. The completion queue holds twice the
 * depth, so it cannot overflow.
 *
 * If the ring itself fails, what the kernel still holds is waited for before the task ends, since
 * its memory belongs to somebody else afterwards; the ring is not used again.
 */
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "storage.h"
#include "tencache/units.h"

/** The kernel takes at most 1 GiB in one entry of the table. */
#define RANGE_BYTES (1ull << 30)
#define MOST_RANGES 1024u
/** Submissions in a row that the kernel refused for now, a millisecond apart at most. */
#define MOST_REFUSALS 64u

struct ring {
	struct io_uring ring;
	struct tci_piece *pieces; /**< one for each transfer in flight */
	uint32_t *idle;           /**< stack of pieces not in flight */
	uint32_t idle_count;
	uint32_t in_flight; /**< prepared, not completed */
	bool fixed_files;
	bool has_table;
	struct iovec *ranges; /**< registered; MOST_RANGES */
	uint32_t range_count;
	int broken; /**< a negative errno: the ring failed */
};

/* ---------------------------------------------------------------- opening */

/** What to say of a ring that cannot be had. */
static enum tc_status refused(int failure, struct tc_error *error)
{
	char setting[16] = "";
	FILE *file = failure == -EPERM ? fopen("/proc/sys/kernel/io_uring_disabled", "re") : NULL;
	if (file != NULL && fgets(setting, sizeof setting, file) == NULL)
		setting[0] = '\0';
	if (file != NULL)
		(void)fclose(file);
	setting[strcspn(setting, "\n")] = '\0';
	if (failure == -EPERM)
		return tc_error_set(error, TC_IO,
		                    "io_uring is forbidden here (sysctl kernel.io_uring_disabled "
		                    "is %s: 0 allows it; or a container forbids it); use storage "
		                    "`sync`",
		                    setting[0] == '\0' ? "unknown" : setting);
	if (failure == -ENOSYS)
		return tc_error_set(error, TC_IO,
		                    "io_uring is not in this kernel, or a container hides it; use "
		                    "storage `sync`");
	return tc_error_set(error, TC_IO, "cannot set up io_uring: %s; use storage `sync`",
	                    strerror(-failure));
}

/** The flags from the best to none: a kernel that does not know one says EINVAL. */
static enum tc_status create_ring(struct tci_lane *lane, struct ring *ring, struct tc_error *error)
{
	static const struct {
		unsigned flags;
		const char *name;
	} steps[] = {
	    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN,
	     "SINGLE_ISSUER|DEFER_TASKRUN|COOP_TASKRUN"},
	    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN, "SINGLE_ISSUER|COOP_TASKRUN"},
	    {IORING_SETUP_COOP_TASKRUN, "COOP_TASKRUN"},
	    {0, "no flags"},
	};
	const struct tci_storage_calls *calls = lane->stripes->calls;
	int result = -EINVAL;
	for (unsigned i = 0; i < sizeof steps / sizeof *steps && result == -EINVAL; i++) {
		result = calls->ring_create(calls->self, &ring->ring, lane->settings.depth,
		                            steps[i].flags);
		if (result == 0)
			(void)snprintf(lane->obtained, sizeof lane->obtained, "%s", steps[i].name);
	}
	return result == 0 ? TC_OK : refused(result, error);
}

static void register_files(struct tci_lane *lane, struct ring *ring)
{
	const struct tci_stripes *stripes = lane->stripes;
	const struct tci_storage_calls *calls = stripes->calls;
	int *files = tc_alloc_array(stripes->count, sizeof *files);
	int result = -ENOMEM;
	for (uint32_t i = 0; files != NULL && i < stripes->count; i++)
		files[i] = stripes->stripes[i].file;
	if (files != NULL)
		result =
		    calls->ring_register_files(calls->self, &ring->ring, files, stripes->count);
	free(files);
	ring->fixed_files = result == 0;
	tci_append(lane->obtained, sizeof lane->obtained, ", files %s",
	           result == 0 ? "registered" : "not registered");
}

static enum tc_status ring_open(struct tci_lane *lane, struct tc_error *error)
{
	uint32_t depth = lane->settings.depth;
	struct ring *ring = calloc(1, sizeof *ring);
	enum tc_status status = TC_OK;
	if (ring != NULL) {
		ring->pieces = tc_alloc_array(depth, sizeof *ring->pieces);
		ring->idle = tc_alloc_array(depth, sizeof *ring->idle);
		ring->ranges = tc_alloc_array(MOST_RANGES, sizeof *ring->ranges);
	}
	if (ring == NULL || ring->pieces == NULL || ring->idle == NULL || ring->ranges == NULL)
		status = tc_error_no_memory(error, "an io_uring", depth * sizeof *ring->pieces);
	else
		status = create_ring(lane, ring, error);
	if (status != TC_OK) {
		if (ring != NULL) {
			free(ring->pieces);
			free(ring->idle);
			free(ring->ranges);
		}
		free(ring);
		return status;
	}
	for (uint32_t i = 0; i < depth; i++)
		ring->idle[i] = i;
	ring->idle_count = depth;
	register_files(lane, ring);
	lane->own = ring;
	return TC_OK;
}

static void ring_close(struct tci_lane *lane)
{
	struct ring *ring = lane->own;
	io_uring_queue_exit(&ring->ring);
	free(ring->pieces);
	free(ring->idle);
	free(ring->ranges);
	free(ring);
	lane->own = NULL;
}

/* ---------------------------------------------------------------- registered memory */

static void ring_add_memory(struct tci_lane *lane, const struct iovec *memory)
{
	struct ring *ring = lane->own;
	const struct tci_storage_calls *calls = lane->stripes->calls;
	int result = 0;
	if (!ring->has_table) {
		result = calls->ring_memory_table(calls->self, &ring->ring, MOST_RANGES);
		ring->has_table = result == 0;
	}
	for (uint64_t at = 0; at < memory->iov_len && result == 0; at += RANGE_BYTES) {
		struct iovec range = {.iov_base = (char *)memory->iov_base + at,
		                      .iov_len = memory->iov_len - at};
		if (range.iov_len > RANGE_BYTES)
			range.iov_len = RANGE_BYTES;
		if (ring->range_count == MOST_RANGES)
			result = -EMFILE;
		else
			result = calls->ring_register_memory(calls->self, &ring->ring,
			                                     ring->range_count, &range);
		if (result == 0) {
			ring->ranges[ring->range_count++] = range;
			atomic_fetch_add(&lane->memory_bytes, range.iov_len);
		}
	}
	if (result != 0)
		atomic_store(&lane->memory_refused, result);
}

/** The registered range that holds all of a piece, or -1. */
static int range_of(const struct ring *ring, const struct tci_piece *piece)
{
	uintptr_t start = (uintptr_t)piece->memory;
	for (uint32_t i = 0; i < ring->range_count; i++) {
		uintptr_t base = (uintptr_t)ring->ranges[i].iov_base;
		if (start >= base && start - base <= ring->ranges[i].iov_len &&
		    piece->bytes <= ring->ranges[i].iov_len - (start - base))
			return (int)i;
	}
	return -1;
}

/* ---------------------------------------------------------------- running a task */

static void prepare(struct tci_lane *lane, struct ring *ring, uint32_t slot)
{
	const struct tci_piece *piece = &ring->pieces[slot];
	/* There are as many entries as slots, and each slot is prepared once per submission. */
	struct io_uring_sqe *entry = io_uring_get_sqe(&ring->ring);
	int range = range_of(ring, piece);
	int file =
	    ring->fixed_files ? (int)piece->stripe : lane->stripes->stripes[piece->stripe].file;
	unsigned bytes = (unsigned)piece->bytes;
	if (range >= 0 && lane->write)
		io_uring_prep_write_fixed(entry, file, piece->memory, bytes, piece->offset, range);
	else if (range >= 0)
		io_uring_prep_read_fixed(entry, file, piece->memory, bytes, piece->offset, range);
	else if (lane->write)
		io_uring_prep_write(entry, file, piece->memory, bytes, piece->offset);
	else
		io_uring_prep_read(entry, file, piece->memory, bytes, piece->offset);
	if (ring->fixed_files)
		entry->flags |= IOSQE_FIXED_FILE;
	entry->user_data = slot;
	ring->in_flight++;
}

/** Judge all completions that are there; a piece that goes on is prepared again. */
static enum tc_status reap(struct tci_lane *lane, struct ring *ring, enum tc_status status,
                           struct tc_error *error)
{
	const struct tci_stripes *stripes = lane->stripes;
	struct io_uring_cqe *completion;
	unsigned head, count = 0;
	io_uring_for_each_cqe(&ring->ring, head, completion)
	{
		uint32_t slot = (uint32_t)completion->user_data;
		struct tci_piece *piece = &ring->pieces[slot];
		int failure, result = stripes->calls->ring_result(stripes->calls->self, lane->write,
		                                                  completion->res);
		enum tci_progress progress = tci_piece_progress(piece, result, stripes->alignment,
		                                                stripes->counters, &failure);
		count++;
		ring->in_flight--;
		if (progress == TCI_FAILED)
			status = tci_piece_error(stripes, lane->write, piece, failure, error);
		if (progress == TCI_AGAIN && status == TC_OK)
			prepare(lane, ring, slot);
		else
			ring->idle[ring->idle_count++] = slot;
	}
	io_uring_cq_advance(&ring->ring, count);
	return status;
}

/** Submit and wait; what is refused for now is tried again. @return 0 or a negative errno */
static int submit(struct tci_lane *lane, struct ring *ring)
{
	const struct tci_storage_calls *calls = lane->stripes->calls;
	for (unsigned refusals = 0;; refusals++) {
		int result = calls->ring_submit_and_wait(calls->self, &ring->ring);
		if (result >= 0)
			return 0;
		bool passes = result == -EINTR || result == -EAGAIN || result == -EBUSY;
		if (!passes || refusals == MOST_REFUSALS)
			return result;
		atomic_fetch_add(&lane->stripes->counters->retries, 1);
		if (io_uring_cq_ready(&ring->ring) > 0)
			return 0; /* reaping may make room */
		(void)nanosleep(&(struct timespec){.tv_nsec = 100000l * (refusals > 8)}, NULL);
	}
}

/** The ring failed: wait for what the kernel holds, so that its memory is nobody's any more. */
static void drain(struct tci_lane *lane, struct ring *ring)
{
	const struct tci_storage_calls *calls = lane->stripes->calls;
	uint32_t held = ring->in_flight - io_uring_sq_ready(&ring->ring);
	for (unsigned failures = 0; held > 0 && failures <= MOST_REFUSALS;) {
		struct io_uring_cqe *completion;
		if (io_uring_peek_cqe(&ring->ring, &completion) == 0) {
			io_uring_cqe_seen(&ring->ring, completion);
			held--;
		} else if (calls->ring_wait(calls->self, &ring->ring) != 0) {
			failures++;
		}
	}
}

static enum tc_status ring_run(struct tci_lane *lane, struct tc_storage_task *task,
                               struct tc_error *error)
{
	struct ring *ring = lane->own;
	enum tc_status status = TC_OK;
	if (ring->broken != 0)
		return tc_error_set(error, TC_IO, "io_uring failed before: %s",
		                    strerror(-ring->broken));
	for (;;) {
		while (status == TC_OK && ring->idle_count > 0 &&
		       tci_stripes_cut(lane->stripes, lane->settings.block_bytes, task,
		                       &ring->pieces[ring->idle[ring->idle_count - 1]]))
			prepare(lane, ring, ring->idle[--ring->idle_count]);
		if (ring->in_flight == 0)
			return status;
		int result = submit(lane, ring);
		if (result != 0) {
			ring->broken = result;
			drain(lane, ring);
			return tc_error_set(error, TC_IO, "io_uring refuses to go on: %s",
			                    strerror(-result));
		}
		status = reap(lane, ring, status, error);
	}
}

const struct tci_storage_engine tci_engine_io_uring = {
    .name = "io_uring",
    .open = ring_open,
    .run = ring_run,
    .add_memory = ring_add_memory,
    .close = ring_close,
};
