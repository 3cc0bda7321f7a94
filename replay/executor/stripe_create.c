/**
 * A stripe file gets its name when its first block says whose it is: made without one (O_TMPFILE),
 * locked, written, linked. So a process that is killed in between leaves nothing, and nobody sees a
 * file of ours that does not say so. Where a file system has no files without a name, or they
 * cannot get one later, the name comes first.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stripe.h"

#define NAME_TRIES 1000u
#define LONGEST_POOL_NAME 150

/** The pool's name with everything that could mean something in a path replaced. */
static void safe_name(const char *name, char safe[LONGEST_POOL_NAME + 1])
{
	size_t length = 0;
	for (; name != NULL && name[length] != '\0' && length < LONGEST_POOL_NAME; length++) {
		char c = name[length];
		bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
		             (c >= 'A' && c <= 'Z') || (c == '.' && length > 0) || c == '_' ||
		             c == '=' || c == '-';
		safe[length] = plain ? c : '_';
	}
	safe[length] = '\0';
}

/** The serial number counts pools of equal name. */
static void set_name(const struct tc_storage_options *options, uint32_t index, unsigned serial,
                     struct tci_stripe *stripe)
{
	char safe[LONGEST_POOL_NAME + 1];
	safe_name(options->name, safe);
	(void)snprintf(stripe->name, sizeof stripe->name,
	               TCI_STRIPE_PREFIX "%s-%ld-%u-%uof%zu" TCI_STRIPE_SUFFIX, safe,
	               (long)getpid(), serial, index, options->directory_count);
}

/** Which file has our name, so that no other is removed instead. */
static enum tc_status remember_file(struct tci_stripe *stripe, struct tc_error *error)
{
	struct stat status;
	if (fstat(stripe->file, &status) != 0)
		return tc_error_set(error, TC_IO, "cannot look at %s in %s: %s", stripe->name,
		                    stripe->directory, strerror(errno));
	stripe->device = status.st_dev;
	stripe->node = status.st_ino;
	return TC_OK;
}

/** Lock the file and write its first block. */
static enum tc_status claim(const struct tc_storage_options *options, struct tci_stripes *stripes,
                            uint32_t index, char *memory, struct tc_error *error)
{
	struct tci_piece piece = {.memory = memory, .bytes = TCI_BLOCK_BYTES, .stripe = index};
	int failure;
	/* The lock shows others that the owner lives. Where locks do not exist the process number
	 * must do. */
	(void)flock(stripes->stripes[index].file, LOCK_EX | LOCK_NB);
	tci_stripe_header(memory, options, index);
	if (tci_piece_transfer(stripes, true, &piece, &failure) != TCI_DONE)
		return tci_piece_error(stripes, true, &piece, failure, error);
	return TC_OK;
}

/** `*made` false: not possible here. */
static enum tc_status create_nameless(const struct tc_storage_options *options,
                                      struct tci_stripes *stripes, uint32_t index, char *memory,
                                      bool *made, struct tc_error *error)
{
	const struct tci_storage_calls *calls = stripes->calls;
	struct tci_stripe *stripe = &stripes->stripes[index];
	int file =
	    calls->open_at(calls->self, stripe->directory_file, ".", O_RDWR | O_TMPFILE, 0600);
	*made = false;
	if (file < 0)
		return TC_OK;
	stripe->file = file;
	set_name(options, index, 0, stripe); /* for messages */
	TC_TRY(claim(options, stripes, index, memory, error));
	int result = -EEXIST;
	for (unsigned serial = 0; result == -EEXIST && serial < NAME_TRIES; serial++) {
		set_name(options, index, serial, stripe);
		result = calls->link_at(calls->self, file, stripe->directory_file, stripe->name);
	}
	*made = result == 0;
	if (*made)
		return remember_file(stripe, error);
	stripe->file = -1;
	(void)close(file);
	return TC_OK;
}

static enum tc_status create_named(const struct tc_storage_options *options,
                                   struct tci_stripes *stripes, uint32_t index, char *memory,
                                   struct tc_error *error)
{
	const struct tci_storage_calls *calls = stripes->calls;
	struct tci_stripe *stripe = &stripes->stripes[index];
	int file = -EEXIST;
	for (unsigned serial = 0; file == -EEXIST && serial < NAME_TRIES; serial++) {
		set_name(options, index, serial, stripe);
		file = calls->open_at(calls->self, stripe->directory_file, stripe->name,
		                      O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	}
	if (file < 0)
		return tc_error_set(error, TC_IO,
		                    "cannot create %s in %s: %s; the directory must exist and be "
		                    "writable",
		                    stripe->name, stripe->directory, strerror(-file));
	stripe->file = file;
	TC_TRY(remember_file(stripe, error));
	return claim(options, stripes, index, memory, error);
}

enum tc_status tci_stripe_create(const struct tc_storage_options *options,
                                 struct tci_stripes *stripes, uint32_t index, char *memory,
                                 struct tc_error *error)
{
	bool made;
	TC_TRY(create_nameless(options, stripes, index, memory, &made, error));
	return made ? TC_OK : create_named(options, stripes, index, memory, error);
}
