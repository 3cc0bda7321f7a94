/**
 * From a task to transfers of one file each, and what to do with the result of a transfer.
 *
 * Unit u of the pool (1 MiB) lies in stripe u mod n, as its unit u / n. With one directory the file
 * is the pool and pieces may be longer than a unit.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "stripe.h"
#include "tencache/units.h"

/** Retries in a row without a byte of progress before a transfer counts as failed. */
#define MOST_RETRIES 64u
/** The first ones come at once, later ones after a pause. */
#define QUICK_RETRIES 8u
#define PAUSE_NS 1000000l

bool tci_stripes_cut(const struct tci_stripes *stripes, uint64_t block_bytes,
                     struct tc_storage_task *task, struct tci_piece *piece)
{
	if (task->remaining == 0)
		return false;
	uint64_t done = task->bytes - task->remaining, offset = task->offset + done;
	uint64_t bytes = task->remaining < block_bytes ? task->remaining : block_bytes;
	uint64_t unit = offset / TCI_STRIPE_BYTES, inside = offset % TCI_STRIPE_BYTES;
	uint64_t body = task->bytes - task->tail_bytes;
	if (done < body && bytes > body - done)
		bytes = body - done;
	*piece = (struct tci_piece){.memory = done < body ? (char *)task->memory + done
	                                                  : (char *)task->tail + (done - body)};
	if (stripes->count == 1) {
		piece->offset = TCI_STRIPE_HEADER_BYTES + offset;
	} else {
		piece->stripe = (uint32_t)(unit % stripes->count);
		piece->offset =
		    TCI_STRIPE_HEADER_BYTES + unit / stripes->count * TCI_STRIPE_BYTES + inside;
		if (bytes > TCI_STRIPE_BYTES - inside)
			bytes = TCI_STRIPE_BYTES - inside;
	}
	piece->bytes = bytes;
	task->remaining -= bytes;
	return true;
}

static enum tci_progress retry(struct tci_piece *piece, int failure_then,
                               struct tci_storage_counters *counters, int *failure)
{
	if (++piece->retries > MOST_RETRIES) {
		*failure = failure_then;
		return TCI_FAILED;
	}
	atomic_fetch_add_explicit(&counters->retries, 1, memory_order_relaxed);
	if (piece->retries > QUICK_RETRIES)
		(void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
	return TCI_AGAIN;
}

enum tci_progress tci_piece_progress(struct tci_piece *piece, int64_t result, uint32_t alignment,
                                     struct tci_storage_counters *counters, int *failure)
{
	*failure = 0;
	if (result == -EAGAIN || result == -EINTR)
		return retry(piece, (int)result, counters, failure);
	if (result <= 0 || (uint64_t)result > piece->bytes) {
		*failure = result < 0 ? (int)result : 0;
		return TCI_FAILED;
	}
	if ((uint64_t)result == piece->bytes) {
		piece->bytes = 0;
		return TCI_DONE;
	}
	atomic_fetch_add_explicit(&counters->short_transfers, 1, memory_order_relaxed);
	/* The rest must start aligned, so what was transferred beyond is transferred again. */
	uint64_t kept = (uint64_t)result / alignment * alignment;
	if (kept == 0)
		return retry(piece, -EIO, counters, failure);
	piece->memory += kept;
	piece->offset += kept;
	piece->bytes -= kept;
	piece->retries = 0;
	return TCI_AGAIN;
}

enum tci_progress tci_piece_transfer(const struct tci_stripes *stripes, bool write,
                                     struct tci_piece *piece, int *failure)
{
	const struct tci_storage_calls *calls = stripes->calls;
	int file = stripes->stripes[piece->stripe].file;
	enum tci_progress progress;
	do {
		int64_t result = write ? calls->write(calls->self, file, piece->memory,
		                                      piece->bytes, piece->offset)
		                       : calls->read(calls->self, file, piece->memory, piece->bytes,
		                                     piece->offset);
		progress = tci_piece_progress(piece, result, stripes->alignment, stripes->counters,
		                              failure);
	} while (progress == TCI_AGAIN);
	return progress;
}

enum tc_status tci_piece_error(const struct tci_stripes *stripes, bool write,
                               const struct tci_piece *piece, int failure, struct tc_error *error)
{
	const struct tci_stripe *stripe = &stripes->stripes[piece->stripe];
	char space[160] = "", number[TC_UNIT_TEXT_BYTES];
	uint64_t free = 0;
	if ((failure == -ENOSPC || failure == -EDQUOT) &&
	    stripes->calls->free_bytes(stripes->calls->self, stripe->file, &free) == 0)
		(void)snprintf(space, sizeof space,
		               "; the file needs %llu bytes in all, %llu bytes (%s) are free",
		               (unsigned long long)(TCI_STRIPE_HEADER_BYTES + stripe->bytes),
		               (unsigned long long)free, tc_format_bytes(free, number));
	return tc_error_set(error, TC_IO, "cannot %s %llu bytes at offset %llu of %s/%s: %s%s%s",
	                    write ? "write" : "read", (unsigned long long)piece->bytes,
	                    (unsigned long long)piece->offset, stripe->directory, stripe->name,
	                    failure == 0 ? "the file ends there; somebody cut it"
	                                 : strerror(-failure),
	                    piece->retries > MOST_RETRIES ? ", still after 64 retries" : "", space);
}
