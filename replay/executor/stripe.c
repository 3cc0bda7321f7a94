/**
 * Filling and removing stripe files. Space is reserved first and then written once: reads of
 * reserved but unwritten space never reach the drive, and first writes to it are slower than later
 * ones. What is written is the synthetic content of no tensor, so that a read of a place that
 * nobody wrote never looks right.
 */
#include "stripe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tencache/units.h"

/** What transfers need before it is known what direct I/O needs. */
#define SECTOR_BYTES 512u

/** Bytes of content in stripe `index` of `count`: whole stripes in turn, then the rest. */
static uint64_t bytes_of_stripe(uint64_t pool_bytes, uint32_t index, uint32_t count)
{
	uint64_t round = TCI_STRIPE_BYTES * count, rest = pool_bytes % round;
	uint64_t bytes = pool_bytes / round * TCI_STRIPE_BYTES, before = TCI_STRIPE_BYTES * index;
	if (rest <= before)
		return bytes;
	return bytes + (rest - before < TCI_STRIPE_BYTES ? rest - before : TCI_STRIPE_BYTES);
}

static enum tc_status open_directory(const struct tci_storage_calls *calls,
                                     struct tci_stripe *stripe, struct tc_error *error)
{
	int file =
	    calls->open_at(calls->self, AT_FDCWD, stripe->directory, O_RDONLY | O_DIRECTORY, 0);
	if (file < 0)
		return tc_error_set(error, TC_IO,
		                    "cannot open the directory %s for files of an NVMe pool: %s; "
		                    "create it on the drive that is to be used",
		                    stripe->directory, strerror(-file));
	stripe->directory_file = file;
	return TC_OK;
}

static enum tc_status no_space(const struct tci_stripe *stripe, uint64_t needed, uint64_t free,
                               struct tc_error *error)
{
	char need[TC_UNIT_TEXT_BYTES], left[TC_UNIT_TEXT_BYTES];
	return tc_error_set(error, TC_IO,
	                    "no space in %s: the pool's file needs %llu bytes (%s), %llu bytes "
	                    "(%s) are free; free space, name more directories, or scale down",
	                    stripe->directory, (unsigned long long)needed,
	                    tc_format_bytes(needed, need), (unsigned long long)free,
	                    tc_format_bytes(free, left));
}

/** Reserve the space; file systems that cannot are served by the writing that follows. */
static enum tc_status reserve(const struct tci_storage_calls *calls,
                              const struct tci_stripe *stripe, struct tc_error *error)
{
	uint64_t needed = TCI_STRIPE_HEADER_BYTES + stripe->bytes, free = 0;
	bool known = calls->free_bytes(calls->self, stripe->file, &free) == 0;
	if (known && free < needed)
		return no_space(stripe, needed, free, error);
	int result = calls->allocate(calls->self, stripe->file, needed);
	if (result == -ENOSPC || result == -EDQUOT) {
		(void)calls->free_bytes(calls->self, stripe->file, &free);
		return no_space(stripe, needed, free, error);
	}
	if (result != 0 && result != -EOPNOTSUPP && result != -ENOSYS)
		return tc_error_set(error, TC_IO, "cannot reserve %llu bytes for %s in %s: %s",
		                    (unsigned long long)needed, stripe->name, stripe->directory,
		                    strerror(-result));
	return TC_OK;
}

static bool is_cancelled(const struct tc_storage_options *options)
{
	return options->cancelled != NULL && options->cancelled(options->cancelled_self);
}

/** Write header and content once, through one stripe of memory. */
static enum tc_status write_once(const struct tc_storage_options *options,
                                 const struct tci_stripes *stripes, uint32_t index, char *memory,
                                 struct tc_error *error)
{
	const struct tci_stripe *stripe = &stripes->stripes[index];
	uint64_t end = TCI_STRIPE_HEADER_BYTES + stripe->bytes;
	for (uint64_t at = 0; at < end; at += TCI_STRIPE_BYTES) {
		struct tci_piece piece = {.memory = memory, .offset = at, .stripe = index};
		int failure;
		piece.bytes = end - at < TCI_STRIPE_BYTES ? end - at : TCI_STRIPE_BYTES;
		tc_content_fill(memory, TC_NONE, index, at, piece.bytes);
		if (at == 0)
			tci_stripe_header(memory, options, index);
		if (is_cancelled(options))
			return tc_error_set(error, TC_IO, "stopped on request while %s was written",
			                    stripe->name);
		if (tci_piece_transfer(stripes, true, &piece, &failure) != TCI_DONE)
			return tci_piece_error(stripes, true, &piece, failure, error);
	}
	return TC_OK;
}

/** Turn O_DIRECT on for one file. @return it worked; else the note says why not */
static bool make_direct(struct tci_stripes *stripes, uint32_t index)
{
	const struct tci_storage_calls *calls = stripes->calls;
	int file = stripes->stripes[index].file;
	uint32_t alignment = 0;
	int result = calls->direct_alignment(calls->self, file, &alignment);
	if (result == 0 && alignment > TCI_BLOCK_BYTES) {
		(void)snprintf(stripes->direct_note, sizeof stripes->direct_note,
		               "buffered: direct I/O would need blocks of %u bytes", alignment);
		return false;
	}
	if (result == 0)
		result = calls->set_direct(calls->self, file, true);
	if (result != 0) {
		(void)snprintf(stripes->direct_note, sizeof stripes->direct_note,
		               "buffered, so times are those of memory: O_DIRECT refused (%s)",
		               strerror(-result));
		return false;
	}
	if (alignment > stripes->alignment)
		stripes->alignment = alignment;
	return true;
}

/** All files or none: times of a pool whose stripes differ would mean nothing. */
static void choose_direct(const struct tc_storage_options *options, struct tci_stripes *stripes)
{
	stripes->direct = options->direct;
	if (!options->direct)
		(void)snprintf(stripes->direct_note, sizeof stripes->direct_note,
		               "buffered as asked, so times include the page cache");
	for (uint32_t i = 0; i < stripes->count && stripes->direct; i++)
		stripes->direct = make_direct(stripes, i);
	for (uint32_t i = 0; i < stripes->count && !stripes->direct; i++)
		(void)stripes->calls->set_direct(stripes->calls->self, stripes->stripes[i].file,
		                                 false);
	if (stripes->direct)
		(void)snprintf(stripes->direct_note, sizeof stripes->direct_note,
		               "O_DIRECT, alignment %u", stripes->alignment);
}

static enum tc_status open_all(const struct tc_storage_options *options,
                               struct tci_stripes *stripes, char *memory, struct tc_error *error)
{
	for (uint32_t i = 0; i < stripes->count; i++) {
		struct tci_stripe *stripe = &stripes->stripes[i];
		stripe->directory = strdup(options->directories[i]);
		if (stripe->directory == NULL)
			return tc_error_no_memory(error, "the name of a directory",
			                          strlen(options->directories[i]));
		TC_TRY(open_directory(stripes->calls, stripe, error));
		stripes->removed += tci_stripe_clean(stripes->calls, stripe->directory_file);
	}
	for (uint32_t i = 0; i < stripes->count; i++) {
		struct tci_stripe *stripe = &stripes->stripes[i];
		stripe->bytes = bytes_of_stripe(options->bytes, i, stripes->count);
		TC_TRY(tci_stripe_create(options, stripes, i, memory, error));
		TC_TRY(reserve(stripes->calls, stripe, error));
	}
	choose_direct(options, stripes);
	for (uint32_t i = 0; i < stripes->count; i++)
		TC_TRY(write_once(options, stripes, i, memory, error));
	return TC_OK;
}

enum tc_status tci_stripes_open(const struct tc_storage_options *options,
                                const struct tci_storage_calls *calls,
                                struct tci_storage_counters *counters, struct tci_stripes *stripes,
                                struct tc_error *error)
{
	void *memory = NULL;
	stripes->calls = calls;
	stripes->counters = counters;
	stripes->bytes = options->bytes;
	stripes->alignment = SECTOR_BYTES;
	stripes->stripes = tc_alloc_array(options->directory_count, sizeof *stripes->stripes);
	if (stripes->stripes == NULL)
		return tc_error_no_memory(error, "the files of an NVMe pool",
		                          options->directory_count * sizeof *stripes->stripes);
	stripes->count = (uint32_t)options->directory_count;
	for (uint32_t i = 0; i < stripes->count; i++)
		stripes->stripes[i].directory_file = stripes->stripes[i].file = -1;
	if (posix_memalign(&memory, TCI_BLOCK_BYTES, TCI_STRIPE_BYTES) != 0)
		return tc_error_no_memory(error, "writing the files of an NVMe pool",
		                          TCI_STRIPE_BYTES);
	enum tc_status status = open_all(options, stripes, memory, error);
	free(memory);
	if (status != TC_OK)
		tci_stripes_close(stripes);
	return status;
}

void tci_stripes_close(struct tci_stripes *stripes)
{
	for (uint32_t i = 0; i < stripes->count; i++) {
		struct tci_stripe *stripe = &stripes->stripes[i];
		struct stat status;
		if (stripe->file >= 0 &&
		    fstatat(stripe->directory_file, stripe->name, &status, AT_SYMLINK_NOFOLLOW) ==
		        0 &&
		    status.st_dev == stripe->device && status.st_ino == stripe->node)
			(void)stripes->calls->remove_at(stripes->calls->self,
			                                stripe->directory_file, stripe->name);
		if (stripe->file >= 0)
			(void)close(stripe->file);
		if (stripe->directory_file >= 0)
			(void)close(stripe->directory_file);
		free(stripe->directory);
	}
	free(stripes->stripes);
	stripes->stripes = NULL;
	stripes->count = 0;
}
