/**
 * Whose files are these? Stripe files carry their owner; they go when it ends; what dead processes
 * left goes at the next start; nothing else is ever touched. With real processes that are really
 * killed, and a real small file system in memory where that may be mounted.
 */
#define _GNU_SOURCE /* unshare, mount, flock */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "storage.h"
#include "storage_case.h"

#define MIB (1ull << 20)
#define POOL_BYTES (2 * MIB)
#define SKIPPED 77

static const struct tc_storage_backend *the_auto;

static void *create(struct storage_case *test)
{
	void *self = NULL;
	if (the_auto->create(&test->options, storage_case_clock, test, &self, &test->error) !=
	    TC_OK)
		fail_msg("%s", test->error.text);
	return self;
}

/* In a child process nothing may be asserted: 0 is good. */
static int child_round_trip(void *self, uint32_t tensor)
{
	void *memory = NULL;
	if (posix_memalign(&memory, 4096, POOL_BYTES) != 0)
		return 1;
	tc_content_fill(memory, tensor, 1, 0, POOL_BYTES);
	int result = storage_case_run(the_auto, self, true, memory, 0, POOL_BYTES, NULL) != TC_OK;
	memset(memory, 0, POOL_BYTES);
	result |= storage_case_run(the_auto, self, false, memory, 0, POOL_BYTES, NULL) != TC_OK;
	result |= tc_content_check(memory, tensor, 1, 0, POOL_BYTES, TC_VERIFY_FULL) != UINT64_MAX;
	free(memory);
	return result;
}

/* A child that makes a pool, says so through the pipe, and then sleeps until it is killed. */
static pid_t start_owner(struct storage_case *test)
{
	int ends[2];
	char byte = 0;
	assert_int_equal(pipe(ends), 0);
	(void)fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		void *self = NULL;
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(ends[0]);
		if (the_auto->create(&test->options, storage_case_clock, test, &self,
		                     &test->error) == TC_OK &&
		    write(ends[1], "x", 1) == 1)
			for (;;)
				(void)pause();
		_exit(1);
	}
	(void)close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	(void)close(ends[0]);
	return child;
}

static void kill_owner(pid_t child)
{
	int result;
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, &result, 0), child);
	assert_true(WIFSIGNALED(result));
}

/* kill -9 leaves files; the next start removes them and only them. */
static void killed_owner_test(void **state)
{
	(void)state;
	struct storage_case test;
	struct tc_storage_facts facts;
	storage_case_open(&test, 2, POOL_BYTES);
	pid_t killed = start_owner(&test), alive = start_owner(&test);
	kill_owner(killed);
	assert_int_equal(storage_case_files(&test, 0), 2);
	assert_int_equal(storage_case_files(&test, 1), 2);
	void *self = create(&test);
	the_auto->facts(self, &facts);
	assert_non_null(strstr(facts.detail, "2 stale files removed"));
	assert_int_equal(storage_case_files(&test, 0), 2); /* the living one's and ours */
	assert_int_equal(child_round_trip(self, 1), 0);
	the_auto->destroy(self);
	assert_int_equal(storage_case_files(&test, 0), 1);
	kill_owner(alive);
	the_auto->destroy(create(&test));
	storage_case_close(&test);
}

static void write_file(const char *folder, const char *name, const void *content, size_t bytes)
{
	char path[400];
	(void)snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(content, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

/* A process number that is free now: of a child that has ended and was waited for. */
static pid_t dead_process(void)
{
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	return child;
}

static void write_header(char block[4096], long process, const char *start)
{
	memset(block, 0, 4096);
	(void)snprintf(block, 4096, "TENCACHE STRIPE 1\nprocess %ld\nstart %s\nstripe 0 of 1\n",
	               process, start);
}

/* Files in the folder before a start: which go, which stay. */
static void foreign_files_test(void **state)
{
	(void)state;
	struct storage_case test;
	char block[4096], path[400];
	storage_case_open(&test, 1, POOL_BYTES);
	const char *folder = test.folders[0];
	long dead = (long)dead_process();
	/* Two that are ours and dead: a process that is gone; a number that was given away again,
	 * for no process of today started at tick 1. */
	write_header(block, dead, "12345");
	write_file(folder, "tencache-stale-1-0-0of1.stripe", block, sizeof block);
	write_header(block, (long)getpid(), "1");
	write_file(folder, "tencache-reused-1-0-0of1.stripe", block, sizeof block);
	/* All others stay. */
	write_header(block, dead, "12345");
	write_file(folder, "somebody-elses-name.stripe", block, sizeof block);
	write_file(folder, "tencache-other-ending-1.dat", block, sizeof block);
	write_file(folder, "tencache-locked-1-0-0of1.stripe", block, sizeof block);
	write_header(block, (long)getppid(), "0"); /* alive, start unknown */
	write_file(folder, "tencache-alive-1-0-0of1.stripe", block, sizeof block);
	write_header(block, 0, "0");
	write_file(folder, "tencache-zero-1-0-0of1.stripe", block, sizeof block);
	write_file(folder, "tencache-empty-1-0-0of1.stripe", block, 0);
	write_file(folder, "tencache-short-1-0-0of1.stripe", "TENCACHE", 8);
	memset(block, 'x', sizeof block);
	write_file(folder, "tencache-foreign-1-0-0of1.stripe", block, sizeof block);
	write_header(block, dead, "12345");
	write_file(".", "storage-target", block, sizeof block);
	(void)snprintf(path, sizeof path, "%s/tencache-link-1-0-0of1.stripe", folder);
	assert_int_equal(symlink("../storage-target", path), 0);
	(void)snprintf(path, sizeof path, "%s/tencache-pipe-1-0-0of1.stripe", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	(void)snprintf(path, sizeof path, "%s/tencache-folder-1-0-0of1.stripe", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	/* Held by a living owner whom we cannot see, as in another container. */
	(void)snprintf(path, sizeof path, "%s/tencache-locked-1-0-0of1.stripe", folder);
	int held = open(path, O_RDWR);
	assert_true(held >= 0 && flock(held, LOCK_EX) == 0);

	the_auto->destroy(create(&test));

	static const char *const kept[] = {
	    "somebody-elses-name.stripe",       "tencache-alive-1-0-0of1.stripe",
	    "tencache-empty-1-0-0of1.stripe",   "tencache-folder-1-0-0of1.stripe",
	    "tencache-foreign-1-0-0of1.stripe", "tencache-link-1-0-0of1.stripe",
	    "tencache-locked-1-0-0of1.stripe",  "tencache-other-ending-1.dat",
	    "tencache-pipe-1-0-0of1.stripe",    "tencache-short-1-0-0of1.stripe",
	    "tencache-zero-1-0-0of1.stripe"};
	size_t count;
	char **names = test_list_folder(folder, &count);
	assert_int_equal(count, sizeof kept / sizeof *kept);
	for (size_t i = 0; i < count; i++) {
		assert_string_equal(names[i], kept[i]);
		(void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		assert_int_equal(remove(path), 0);
	}
	test_free_names(names, count);
	assert_int_equal(access("storage-target", R_OK), 0);
	assert_int_equal(unlink("storage-target"), 0);
	(void)close(held);
	storage_case_close(&test);
}

/* Names say pool and process, and nothing in a pool's name leads out of the folder. Equal names get
 * another number. */
static void names_test(void **state)
{
	(void)state;
	struct storage_case test;
	char wanted[200];
	size_t count;
	storage_case_open(&test, 1, 4096);
	test.options.name = "../10cache:slack=15/nvme pool\xC3\xA4";
	void *first = create(&test), *second = create(&test);
	char **names = test_list_folder(test.folders[0], &count);
	assert_int_equal(count, 2);
	for (unsigned serial = 0; serial < 2; serial++) {
		(void)snprintf(wanted, sizeof wanted,
		               "tencache-_._10cache_slack=15_nvme_pool__-%ld-%u-0of1.stripe",
		               (long)getpid(), serial);
		assert_string_equal(names[serial], wanted);
	}
	test_free_names(names, count);
	the_auto->destroy(first);
	assert_int_equal(storage_case_files(&test, 0), 1);
	the_auto->destroy(second);
	test.options.name = NULL;
	the_auto->destroy(create(&test));
	storage_case_close(&test);
}

/* Two processes make, use and remove pools in one folder at once. */
static void two_processes_test(void **state)
{
	(void)state;
	struct storage_case test;
	pid_t children[2];
	storage_case_open(&test, 1, POOL_BYTES);
	(void)fflush(NULL);
	for (uint32_t i = 0; i < 2; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] != 0)
			continue;
		int result = 0;
		for (unsigned round = 0; round < 10 && result == 0; round++) {
			void *self = NULL;
			if (the_auto->create(&test.options, storage_case_clock, &test, &self,
			                     &test.error) != TC_OK)
				_exit(2);
			result = child_round_trip(self, 10 * round + i);
			the_auto->destroy(self);
		}
		_exit(result);
	}
	for (unsigned i = 0; i < 2; i++) {
		int result;
		assert_int_equal(waitpid(children[i], &result, 0), children[i]);
		assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
	}
	storage_case_close(&test);
}

/* The folder goes while the pool is in use: open files stay good, and the end is quiet. */
static void removed_folder_test(void **state)
{
	(void)state;
	struct storage_case test;
	storage_case_open(&test, 1, POOL_BYTES);
	void *self = create(&test);
	size_t count;
	char path[400], **names = test_list_folder(test.folders[0], &count);
	assert_int_equal(count, 1);
	(void)snprintf(path, sizeof path, "%s/%s", test.folders[0], names[0]);
	test_free_names(names, count);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(test.folders[0]), 0);
	assert_int_equal(child_round_trip(self, 3), 0);
	/* Another file of that name, in a new folder, is not ours to remove. */
	assert_int_equal(mkdir(test.folders[0], 0700), 0);
	write_file(test.folders[0], strrchr(path, '/') + 1, "mine", 4);
	the_auto->destroy(self);
	assert_int_equal(unlink(path), 0);
	storage_case_close(&test);
}

/* As above, but another file took the name in the same folder. */
static void replaced_file_test(void **state)
{
	(void)state;
	struct storage_case test;
	storage_case_open(&test, 1, POOL_BYTES);
	void *self = create(&test);
	size_t count;
	char path[400], **names = test_list_folder(test.folders[0], &count);
	(void)snprintf(path, sizeof path, "%s/%s", test.folders[0], names[0]);
	assert_int_equal(unlink(path), 0);
	write_file(test.folders[0], names[0], "mine", 4);
	test_free_names(names, count);
	the_auto->destroy(self);
	assert_int_equal(unlink(path), 0);
	storage_case_close(&test);
}

static void missing_folder_test(void **state)
{
	(void)state;
	struct storage_case test;
	void *self = NULL;
	storage_case_open(&test, 2, POOL_BYTES);
	test.directories[1] = "no-such-folder";
	assert_int_equal(
	    the_auto->create(&test.options, storage_case_clock, &test, &self, &test.error), TC_IO);
	assert_non_null(strstr(test.error.text, "no-such-folder"));
	assert_non_null(strstr(test.error.text, "No such file or directory"));
	write_file(".", "storage-file", "x", 1);
	test.error = (struct tc_error){.status = TC_OK};
	test.directories[1] = "storage-file";
	assert_int_equal(
	    the_auto->create(&test.options, storage_case_clock, &test, &self, &test.error), TC_IO);
	assert_non_null(strstr(test.error.text, "Not a directory"));
	assert_int_equal(unlink("storage-file"), 0);
	storage_case_close(&test);
}

static bool stop_at_third(void *self)
{
	unsigned *asked = self;
	return ++*asked == 3;
}

static void cancelled_test(void **state)
{
	(void)state;
	struct storage_case test;
	unsigned asked = 0;
	void *self = NULL;
	storage_case_open(&test, 1, 8 * MIB);
	test.options.cancelled = stop_at_third;
	test.options.cancelled_self = &asked;
	assert_int_equal(
	    the_auto->create(&test.options, storage_case_clock, &test, &self, &test.error), TC_IO);
	assert_int_equal(asked, 3);
	assert_non_null(strstr(test.error.text, "stopped on request"));
	storage_case_close(&test);
}

static bool write_setting(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	if (file < 0)
		return false;
	bool written = write(file, text, strlen(text)) == (ssize_t)strlen(text);
	return close(file) == 0 && written;
}

/* In a child: a file system of 4 MiB in memory that only this process sees, as root or as the root
 * of a user name space. */
static bool mount_small(const char *folder)
{
	char user[32], group[32];
	(void)snprintf(user, sizeof user, "0 %ld 1", (long)getuid());
	(void)snprintf(group, sizeof group, "0 %ld 1", (long)getgid());
	if (unshare(CLONE_NEWNS) != 0 && (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
	                                  !write_setting("/proc/self/uid_map", user) ||
	                                  !write_setting("/proc/self/setgroups", "deny") ||
	                                  !write_setting("/proc/self/gid_map", group)))
		return false;
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", folder, "tmpfs", 0, "size=4m") == 0;
}

/* In a child: 0 good, SKIPPED where nothing may be mounted. 4 MiB in all, of which the
 * header takes one page, are not enough for a pool of 8 MiB, but for one of 2 MiB and its header.
 */
static int in_small_memory_file_system(struct storage_case *test)
{
	struct tc_storage_facts facts;
	void *self = NULL;
	if (!mount_small(test->folders[0]))
		return SKIPPED;
	test->options.bytes = 8 * MIB;
	enum tc_status status =
	    the_auto->create(&test->options, storage_case_clock, test, &self, &test->error);
	if (status != TC_IO || strstr(test->error.text, "needs 9437184 bytes (9.00 MiB), 4190208 "
	                                                "bytes (4.00 MiB) are free") == NULL) {
		(void)fprintf(stderr, "%s\n", test->error.text);
		return 1;
	}
	test->options.bytes = POOL_BYTES;
	test->error = (struct tc_error){.status = TC_OK};
	if (the_auto->create(&test->options, storage_case_clock, test, &self, &test->error) !=
	    TC_OK)
		return 2;
	the_auto->facts(self, &facts);
	if (strstr(facts.detail, "buffered, so times are those of memory: O_DIRECT refused") ==
	    NULL)
		return 3;
	if (child_round_trip(self, 5) != 0)
		return 4;
	the_auto->destroy(self);
	return storage_case_files(test, 0) == 0 ? 0 : 5;
}

static void small_memory_file_system_test(void **state)
{
	(void)state;
	struct storage_case test;
	int result;
	storage_case_open(&test, 1, POOL_BYTES);
	(void)fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0)
		_exit(in_small_memory_file_system(&test));
	assert_int_equal(waitpid(child, &result, 0), child);
	storage_case_close(&test);
	assert_true(WIFEXITED(result));
	if (WEXITSTATUS(result) == SKIPPED) {
		print_message("skipped: no file system may be mounted here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(result), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(killed_owner_test),
	    cmocka_unit_test(foreign_files_test),
	    cmocka_unit_test(names_test),
	    cmocka_unit_test(two_processes_test),
	    cmocka_unit_test(removed_folder_test),
	    cmocka_unit_test(replaced_file_test),
	    cmocka_unit_test(missing_folder_test),
	    cmocka_unit_test(cancelled_test),
	    cmocka_unit_test(small_memory_file_system_test),
	};
	if (tc_storage_find("auto", &the_auto, NULL) != TC_OK)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
