/**
 * @file stripe.h
 * The files of a pool on NVMe: one in each directory, which take turns every 1 MiB. Their names and
 * first blocks say whose they are: replay/STORAGE.md.
 */
#ifndef TENCACHE_STRIPE_H
#define TENCACHE_STRIPE_H

#include <stdatomic.h>
#include <sys/types.h>

#include "storage_calls.h"
#include "tencache/replay.h"

#define TCI_STRIPE_BYTES (1ull << 20)
/** The content of a stripe file starts here, so that it is aligned as well as the file is. */
#define TCI_STRIPE_HEADER_BYTES TCI_STRIPE_BYTES
#define TCI_BLOCK_BYTES 4096ull
#define TCI_STRIPE_PREFIX "tencache-"
#define TCI_STRIPE_SUFFIX ".stripe"
#define TCI_STRIPE_NAME_BYTES 256

struct tci_stripe {
	char *directory;    /**< as given, for messages; owned */
	int directory_file; /**< open directory; -1: none */
	int file;           /**< -1: none */
	char name[TCI_STRIPE_NAME_BYTES];
	uint64_t bytes; /**< of content */
	dev_t device;   /**< with `node`: which file it is, whatever happens to the name */
	ino_t node;
};

/** Transfers go on after these, and say how often; any thread. */
struct tci_storage_counters {
	_Atomic uint64_t retries, short_transfers;
};

struct tci_stripes {
	const struct tci_storage_calls *calls;
	struct tci_stripe *stripes;
	uint32_t count;
	uint64_t bytes;        /**< of the pool */
	bool direct;           /**< O_DIRECT was obtained for all files */
	char direct_note[112]; /**< or why not, with the alignment */
	uint32_t alignment;    /**< of memory, offset and length; a power of two <= 4,096 */
	uint32_t removed;      /**< stale files of dead processes, removed at the start */
	struct tci_storage_counters *counters;
};

/**
 * Remove what dead processes left, create the files, reserve their space and write all of it once.
 * On failure nothing is left behind; call tci_stripes_close() in any case.
 * @param stripes receives the files; set to zero before
 */
enum tc_status tci_stripes_open(const struct tc_storage_options *options,
                                const struct tci_storage_calls *calls,
                                struct tci_storage_counters *counters, struct tci_stripes *stripes,
                                struct tc_error *error);
/** Close and remove the files, unless a name now belongs to another file. */
void tci_stripes_close(struct tci_stripes *stripes);

/** A part of a task that lies in one file and is transferred by one call. */
struct tci_piece {
	char *memory;
	uint64_t offset; /**< in the file */
	uint64_t bytes;  /**< what is still to transfer */
	uint32_t stripe;
	uint32_t retries; /**< without progress so far */
};

/**
 * Cut the next piece of at most `block_bytes` off a task; task->remaining counts down.
 * False: nothing is left.
 */
bool tci_stripes_cut(const struct tci_stripes *stripes, uint64_t block_bytes,
                     struct tc_storage_task *task, struct tci_piece *piece);

enum tci_progress { TCI_DONE, TCI_AGAIN, TCI_FAILED };
/**
 * Judge what a transfer of the rest of a piece returned: bytes, or a negative errno. TCI_AGAIN:
 * transfer the rest. A few retries in a row pause. `*failure` is set to a negative errno on
 * TCI_FAILED; 0 stands for the end of the file.
 */
enum tci_progress tci_piece_progress(struct tci_piece *piece, int64_t result, uint32_t alignment,
                                     struct tci_storage_counters *counters, int *failure);
/** Transfer a whole piece by pread() or pwrite(). @return TCI_DONE or TCI_FAILED */
enum tci_progress tci_piece_transfer(const struct tci_stripes *stripes, bool write,
                                     struct tci_piece *piece, int *failure);
/** Say what failed where: file, offset, cause, free space if that is the cause. @return TC_IO */
enum tc_status tci_piece_error(const struct tci_stripes *stripes, bool write,
                               const struct tci_piece *piece, int failure, struct tc_error *error);

/* ---------------------------------------------------------------- whose files these are */

/**
 * Create the file of a stripe in its open directory, under a name that nobody has, locked and with
 * its first block written. @param memory 4,096 bytes, aligned likewise
 */
enum tc_status tci_stripe_create(const struct tc_storage_options *options,
                                 struct tci_stripes *stripes, uint32_t index, char *memory,
                                 struct tc_error *error);
/** Write the first block of a stripe file: magic, process, stripe, pool. `block`: 4,096 bytes. */
void tci_stripe_header(char *block, const struct tc_storage_options *options, uint32_t stripe);
/**
 * Remove the stripe files in an open directory whose first block has our magic and whose process is
 * dead; leave everything else alone. @return how many were removed
 */
uint32_t tci_stripe_clean(const struct tci_storage_calls *calls, int directory);

#endif
