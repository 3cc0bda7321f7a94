/**
 * How stripe files come to be: without a name until they say whose they are, so that a process that
 * is killed at any moment leaves nothing or what the next start removes; with the name first where
 * the file system wants it so. Faults are put in by tests/support/io_shim.c.
 */
#define _GNU_SOURCE /* O_TMPFILE */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "io_shim.h"
#include "storage.h"
#include "storage_case.h"

#define POOL_BYTES (2ull << 20)

/* facts() and destroy() are the same for all backends. */
static const struct tc_storage_backend *const backend = &tc_storage_sync;

static void *create(struct storage_case *test, const struct tci_storage_calls *calls)
{
	void *self = NULL;
	if (tci_storage_create(TCI_STORAGE_AUTO, calls, &test->options, storage_case_clock, test,
	                       &self, &test->error) != TC_OK)
		fail_msg("%s", test->error.text);
	return self;
}

static void round_trip(void *self, uint32_t tensor)
{
	void *memory = storage_case_memory(POOL_BYTES);
	tc_content_fill(memory, tensor, 1, 0, POOL_BYTES);
	assert_int_equal(storage_case_run(backend, self, true, memory, 0, POOL_BYTES, NULL), TC_OK);
	memset(memory, 0, POOL_BYTES);
	assert_int_equal(storage_case_run(backend, self, false, memory, 0, POOL_BYTES, NULL),
	                 TC_OK);
	assert_int_equal(tc_content_check(memory, tensor, 1, 0, POOL_BYTES, TC_VERIFY_FULL),
	                 UINT64_MAX);
	free(memory);
}

/* A file without a name can be made in the folder. */
static bool has_nameless(const char *folder)
{
	int file = open(folder, O_TMPFILE | O_RDWR, 0600);
	if (file < 0)
		return false;
	(void)close(file);
	return true;
}

/* A child that is killed before the nth write to a new file. */
static void start_and_kill(struct storage_case *test, uint64_t nth)
{
	int result;
	struct io_shim shim;
	io_shim_init(&shim);
	shim.fault = IO_FAULT_KILL;
	shim.in_creation = true;
	shim.every = nth;
	(void)fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		void *self;
		(void)tci_storage_create(TCI_STORAGE_AUTO, &shim.calls, &test->options,
		                         storage_case_clock, test, &self, &test->error);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &result, 0), child);
	assert_true(WIFSIGNALED(result));
}

/* The first write to a file is its header, and the file has no name before: so whenever its process
 * is killed, there is none or one that says whose it is, which the next start removes. Pool of one
 * stripe file with 1 MiB of header and 2 MiB of content in blocks of 1 MiB: writes are the header,
 * then three of 1 MiB. */
static void killed_in_creation_test(void **state)
{
	(void)state;
	struct storage_case test;
	struct tc_storage_facts facts;
	storage_case_open(&test, 1, POOL_BYTES);
	if (!has_nameless(test.folders[0])) {
		storage_case_close(&test);
		print_message("skipped: no files without a name in this file system\n");
		skip();
	}
	start_and_kill(&test, 1);
	assert_int_equal(storage_case_files(&test, 0), 0);
	for (uint64_t nth = 2; nth <= 4; nth++) {
		start_and_kill(&test, nth);
		assert_int_equal(storage_case_files(&test, 0), 1);
		void *self = create(&test, &tci_system_calls);
		backend->facts(self, &facts);
		assert_non_null(strstr(facts.detail, "1 stale files removed"));
		round_trip(self, 1);
		backend->destroy(self);
		assert_int_equal(storage_case_files(&test, 0), 0);
	}
	storage_case_close(&test);
}

/* Where files cannot be made without a name, or get none later, the name comes first; pools of
 * equal name have different ones either way, and nothing is left. */
static void named_at_once_test(void **state)
{
	(void)state;
	static const int refused[][2] = {{-EOPNOTSUPP, 0}, {-EISDIR, 0}, {0, -ENOENT}, {0, -EPERM}};
	for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
		struct storage_case test;
		struct io_shim shim;
		void *first, *second;
		storage_case_open(&test, 2, POOL_BYTES);
		io_shim_init(&shim);
		shim.nameless_error = refused[k][0];
		shim.link_error = refused[k][1];
		assert_int_equal(tci_storage_create(TCI_STORAGE_AUTO, &shim.calls, &test.options,
		                                    storage_case_clock, &test, &first, &test.error),
		                 TC_OK);
		second = create(&test, &tci_system_calls);
		assert_int_equal(storage_case_files(&test, 0), 2);
		assert_int_equal(storage_case_files(&test, 1), 2);
		round_trip(first, 1);
		round_trip(second, 2);
		backend->destroy(first);
		backend->destroy(second);
		storage_case_close(&test);
	}
}

/* Short writes of header and content: goes on behind what was written. Writes are the header, then
 * three blocks of 1 MiB; every second one is short, and the odd count makes the header one. */
static void short_writes_test(void **state)
{
	(void)state;
	struct storage_case test;
	struct io_shim shim;
	char block[4096] = "", path[400];
	size_t count;
	storage_case_open(&test, 1, POOL_BYTES);
	io_shim_init(&shim);
	shim.fault = IO_FAULT_SHORT;
	shim.short_bytes = 1000;
	shim.in_creation = true;
	shim.every = 2;
	shim.transfers = 1;
	void *self = create(&test, &shim.calls);
	assert_true(shim.spoiled > 2);
	shim.fault = IO_FAULT_NONE;
	round_trip(self, 1);
	char **names = test_list_folder(test.folders[0], &count);
	assert_int_equal(count, 1);
	(void)snprintf(path, sizeof path, "%s/%s", test.folders[0], names[0]);
	test_free_names(names, count);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fread(block, 1, sizeof block - 1, file), sizeof block - 1);
	assert_int_equal(fclose(file), 0);
	assert_memory_equal(block, "TENCACHE STRIPE 1\n", 18);
	assert_non_null(strstr(block, "stripe 0 of 1\npool bytes 2097152\n"));
	backend->destroy(self);
	storage_case_close(&test);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(killed_in_creation_test),
	    cmocka_unit_test(named_at_once_test),
	    cmocka_unit_test(short_writes_test),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
