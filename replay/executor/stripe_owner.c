/**
 * Whose stripe file is it? The first block says so in text. A file is removed only when all of this
 * holds: its name has our form, it is a regular file, its first block has our magic, the process in
 * it is dead (no such process, or one that started at another time: the number was given away
 * again), and nobody holds the lock that a living owner holds for as long as it has the file open.
 * The lock also protects owners whom we cannot see because they run in another container.
 *
 * The kernel takes a ring apart some time after its process died, and the ring holds the file, and
 * the file the lock. So for a dead process the lock is waited for a little.
 */
#include "stripe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "TENCACHE STRIPE 1\n"
#define MAGIC_BYTES (sizeof MAGIC - 1)
/** Fields of /proc/PID/stat between the command's closing parenthesis and the start time. */
#define FIELDS_BEFORE_START 20
/** How long to wait for locks of dead processes, in one directory: 1 s. */
#define MOST_PAUSES 100u
#define PAUSE_NS 10000000l

/** Start time of a process in clock ticks since boot; 0 when unknown. */
static uint64_t start_of(long process)
{
	char path[64], text[1024];
	(void)snprintf(path, sizeof path, "/proc/%ld/stat", process);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return 0;
	size_t bytes = fread(text, 1, sizeof text - 1, file);
	(void)fclose(file);
	text[bytes] = '\0';
	/* The command may hold blanks and parentheses: fields are counted from the last one. */
	const char *at = strrchr(text, ')');
	for (unsigned i = 0; at != NULL && i < FIELDS_BEFORE_START; i++)
		at = strchr(at + 1, ' ');
	return at == NULL ? 0 : strtoull(at + 1, NULL, 10);
}

static bool is_dead(long process, uint64_t start)
{
	if (process <= 0)
		return false; /* no number that a header of ours can hold */
	if (kill((pid_t)process, 0) != 0 && errno == ESRCH)
		return true;
	uint64_t found = start_of(process);
	return found != 0 && start != 0 && found != start;
}

void tci_stripe_header(char *block, const struct tc_storage_options *options, uint32_t stripe)
{
	memset(block, 0, TCI_BLOCK_BYTES);
	(void)snprintf(block, TCI_BLOCK_BYTES,
	               MAGIC "process %ld\nstart %" PRIu64 "\nstripe %u of %zu\npool bytes %" PRIu64
	                     "\nname %s\n",
	               (long)getpid(), start_of((long)getpid()), stripe, options->directory_count,
	               options->bytes, options->name == NULL ? "" : options->name);
}

static bool has_our_form(const char *name)
{
	size_t length = strlen(name), suffix = sizeof TCI_STRIPE_SUFFIX - 1;
	return strncmp(name, TCI_STRIPE_PREFIX, sizeof TCI_STRIPE_PREFIX - 1) == 0 &&
	       length > suffix && strcmp(name + length - suffix, TCI_STRIPE_SUFFIX) == 0;
}

/** Take the lock, waiting for it while `*pauses` last. */
static bool take_lock(int file, unsigned *pauses)
{
	while (flock(file, LOCK_EX | LOCK_NB) != 0) {
		if (errno != EWOULDBLOCK || *pauses == 0)
			return false;
		(*pauses)--;
		(void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
	}
	return true;
}

/** Read the first block of an open file: ours, and its process dead? */
static bool was_left_behind(int file, unsigned *pauses)
{
	char block[TCI_BLOCK_BYTES + 1] = {0};
	struct stat status;
	long process;
	uint64_t start;
	if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
	    pread(file, block, TCI_BLOCK_BYTES, 0) < (ssize_t)MAGIC_BYTES ||
	    memcmp(block, MAGIC, MAGIC_BYTES) != 0 ||
	    sscanf(block + MAGIC_BYTES, "process %ld\nstart %" SCNu64, &process, &start) != 2)
		return false;
	return is_dead(process, start) && take_lock(file, pauses);
}

uint32_t tci_stripe_clean(const struct tci_storage_calls *calls, int directory)
{
	uint32_t removed = 0;
	unsigned pauses = MOST_PAUSES;
	int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	if (list == NULL && copy >= 0)
		(void)close(copy);
	const struct dirent *entry;
	while (list != NULL && (entry = readdir(list)) != NULL) {
		if (!has_our_form(entry->d_name))
			continue;
		/* Not blocking: a pipe of that name must not stop us. */
		int file = openat(directory, entry->d_name,
		                  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (file < 0)
			continue;
		/* The lock is held while the name goes, so of two cleaners one removes it. */
		if (was_left_behind(file, &pauses) &&
		    calls->remove_at(calls->self, directory, entry->d_name) == 0)
			removed++;
		(void)close(file);
	}
	if (list != NULL)
		(void)closedir(list);
	return removed;
}
