/**
 * Storage backends over a faulty system: errors, short and refused transfers, missing space,
 * missing O_DIRECT, rings that are forbidden or old. Every fault ends in right data or in a clear
 * error, with no file left and no hang. Faults are put in by tests/support/io_shim.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "io_shim.h"
#include "storage.h"
#include "storage_case.h"

#define MIB (1ull << 20)
#define POOL_BYTES (3 * MIB)

/* The choices under test; io_uring only where it can be had. */
static const enum tci_storage_choice both[] = {TCI_STORAGE_SYNC, TCI_STORAGE_IO_URING};
static unsigned choice_count = 1;

/* submit(), facts() and destroy() are the same for all backends. */
static const struct tc_storage_backend *const backend = &tc_storage_sync;

struct faulty {
	struct storage_case test;
	struct io_shim shim;
	void *self;
	unsigned char *memory; /**< POOL_BYTES */
};

static void prepare(struct faulty *faulty)
{
	storage_case_open(&faulty->test, 2, POOL_BYTES);
	faulty->test.options.block_bytes = 65536;
	io_shim_init(&faulty->shim);
	faulty->self = NULL;
	faulty->memory = storage_case_memory(POOL_BYTES);
}

static enum tc_status create(struct faulty *faulty, enum tci_storage_choice choice)
{
	enum tc_status status = tci_storage_create(
	    choice, &faulty->shim.calls, &faulty->test.options, storage_case_clock, &faulty->test,
	    &faulty->self, &faulty->test.error);
	faulty->shim.armed = status == TC_OK;
	assert_true((status == TC_OK) == (faulty->self != NULL));
	assert_true((status == TC_OK) == (faulty->test.error.text[0] == '\0'));
	return status;
}

/* Whatever happened: no file is left. */
static void finish(struct faulty *faulty)
{
	backend->destroy(faulty->self);
	free(faulty->memory);
	storage_case_close(&faulty->test);
}

static enum tc_status transfer(struct faulty *faulty, bool write, char *message)
{
	return storage_case_run(backend, faulty->self, write, faulty->memory, 0, POOL_BYTES,
	                        message);
}

/* Write and read back the pool: all must be right. */
static void round_trip(struct faulty *faulty)
{
	char message[STORAGE_CASE_TEXT_BYTES];
	tc_content_fill(faulty->memory, 1, 1, 0, POOL_BYTES);
	if (transfer(faulty, true, message) != TC_OK)
		fail_msg("%s", message);
	memset(faulty->memory, 0, POOL_BYTES);
	if (transfer(faulty, false, message) != TC_OK)
		fail_msg("%s", message);
	assert_true(tc_content_check(faulty->memory, 1, 1, 0, POOL_BYTES, TC_VERIFY_FULL) ==
	            UINT64_MAX);
}

/* Transfers that move only a part go on behind it, aligned: 700 bytes count as 512, and 100 as
 * nothing, which is tried again. */
static void short_transfers_test(void **state)
{
	(void)state;
	static const uint64_t parts[] = {4096, 512, 700, 100, 65535};
	for (unsigned c = 0; c < choice_count; c++)
		for (unsigned p = 0; p < sizeof parts / sizeof *parts; p++) {
			struct faulty faulty;
			struct tc_storage_facts facts;
			prepare(&faulty);
			faulty.shim.fault = IO_FAULT_SHORT;
			faulty.shim.short_bytes = parts[p];
			faulty.shim.every = 2;
			assert_int_equal(create(&faulty, both[c]), TC_OK);
			round_trip(&faulty);
			backend->facts(faulty.self, &facts);
			assert_true(faulty.shim.spoiled >= 48); /* of 48 pieces each way */
			/* A part as long as what was asked for is not short. */
			assert_in_range(facts.short_transfers, 1, faulty.shim.spoiled);
			assert_true(facts.retries == (parts[p] == 100 ? faulty.shim.spoiled : 0));
			finish(&faulty);
		}
}

static void passing_errors_test(void **state)
{
	(void)state;
	static const int errors[] = {-EAGAIN, -EINTR};
	for (unsigned c = 0; c < choice_count; c++)
		for (unsigned e = 0; e < 2; e++) {
			struct faulty faulty;
			struct tc_storage_facts facts;
			prepare(&faulty);
			faulty.shim.fault = IO_FAULT_ERROR;
			faulty.shim.error = errors[e];
			faulty.shim.every = 3;
			faulty.shim.in_creation = true; /* also while the files are written */
			assert_int_equal(create(&faulty, both[c]), TC_OK);
			round_trip(&faulty);
			backend->facts(faulty.self, &facts);
			assert_true(faulty.shim.spoiled > 30);
			assert_true(facts.retries == faulty.shim.spoiled);
			assert_true(facts.short_transfers == 0);
			finish(&faulty);
		}
}

/* An error that does not pass ends the task, names file, place and cause, and spoils no later task.
 */
static void lasting_errors_test(void **state)
{
	(void)state;
	static const struct {
		enum io_fault fault;
		int error;
		bool write;
		const char *words[3];
	} cases[] = {
	    {IO_FAULT_ERROR,
	     -EIO,
	     false,
	     {"cannot read 65536 bytes at offset ", "storage-", "Input/output error"}},
	    {IO_FAULT_ERROR,
	     -EIO,
	     true,
	     {"cannot write 65536 bytes at offset ", "storage-", "Input/output error"}},
	    {IO_FAULT_ERROR, -EAGAIN, true, {"cannot write", "still after 64 retries", "storage-"}},
	    {IO_FAULT_ERROR,
	     -ENOSPC,
	     true,
	     {"No space left on device", "the file needs 3145728 bytes in all", "12345 bytes"}},
	    {IO_FAULT_END, 0, false, {"cannot read", "the file ends there", "storage-"}},
	    {IO_FAULT_SHORT,
	     0,
	     false,
	     {"cannot read", "Input/output error", "still after 64 retries"}},
	};
	for (unsigned c = 0; c < choice_count; c++)
		for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
			struct faulty faulty;
			char message[STORAGE_CASE_TEXT_BYTES];
			prepare(&faulty);
			faulty.shim.fault = cases[k].fault;
			faulty.shim.error = cases[k].error;
			faulty.shim.short_bytes = 100; /* less than can be kept */
			faulty.shim.spoil_reads = !cases[k].write;
			faulty.shim.spoil_writes = cases[k].write;
			assert_int_equal(create(&faulty, both[c]), TC_OK);
			faulty.shim.free_bytes = 12345;
			tc_content_fill(faulty.memory, 1, 1, 0, POOL_BYTES);
			assert_int_equal(transfer(&faulty, cases[k].write, message), TC_IO);
			for (unsigned w = 0; w < 3; w++)
				if (strstr(message, cases[k].words[w]) == NULL)
					fail_msg("no \"%s\" in: %s", cases[k].words[w], message);
			faulty.shim.armed = false; /* the drive recovers */
			round_trip(&faulty);
			finish(&faulty);
		}
}

/* One bad piece among many in flight: the error is reported once, after all came back. */
static void error_in_the_middle_test(void **state)
{
	(void)state;
	for (unsigned c = 0; c < choice_count; c++)
		for (uint64_t nth = 1; nth <= 48; nth += 11) {
			struct faulty faulty;
			prepare(&faulty);
			faulty.shim.fault = IO_FAULT_ERROR;
			faulty.shim.error = -EIO;
			faulty.shim.every = nth;
			faulty.shim.most = 1;
			assert_int_equal(create(&faulty, both[c]), TC_OK);
			assert_int_equal(transfer(&faulty, false, NULL), TC_IO);
			assert_true(faulty.shim.spoiled == 1);
			round_trip(&faulty);
			finish(&faulty);
		}
}

/* A file that somebody cut: the kernel itself gives a short read and then the end of the file. */
static void cut_file_test(void **state)
{
	(void)state;
	for (unsigned c = 0; c < choice_count; c++) {
		struct faulty faulty;
		size_t count;
		char path[300], message[STORAGE_CASE_TEXT_BYTES];
		prepare(&faulty);
		assert_int_equal(create(&faulty, both[c]), TC_OK);
		char **names = test_list_folder(faulty.test.folders[1], &count);
		assert_int_equal(count, 1);
		(void)snprintf(path, sizeof path, "%s/%s", faulty.test.folders[1], names[0]);
		test_free_names(names, count);
		assert_int_equal(truncate(path, MIB + 65536 + 8192), 0);
		assert_int_equal(transfer(&faulty, false, message), TC_IO);
		assert_non_null(strstr(message, "the file ends there; somebody cut it"));
		assert_non_null(strstr(message, path));
		finish(&faulty);
	}
}

/* No space: known beforehand, found when reserving, or only when writing. Stripe 0 of 3 MiB over
 * two folders holds 2 MiB and its header 1 MiB. */
static void no_space_test(void **state)
{
	(void)state;
	for (unsigned k = 0; k < 4; k++) {
		struct faulty faulty;
		prepare(&faulty);
		faulty.shim.free_bytes = k == 0 ? 3 * MIB - 1 : 3 * MIB;
		faulty.shim.allocate_error = k == 1 ? -ENOSPC : k == 2 ? -EDQUOT : 0;
		if (k == 3) {
			faulty.shim.fault = IO_FAULT_ERROR;
			faulty.shim.error = -ENOSPC;
			faulty.shim.in_creation = true;
			faulty.shim.every = 3;
		}
		assert_int_equal(create(&faulty, TCI_STORAGE_AUTO), TC_IO);
		const char *text = faulty.test.error.text;
		assert_non_null(strstr(text, faulty.test.folders[0]));
		assert_non_null(strstr(text, "3145728 bytes"));
		assert_non_null(strstr(text, k == 0 ? "3145727 bytes (3.00 MiB) are free"
		                                    : "3145728 bytes (3.00 MiB) are free"));
		finish(&faulty);
	}
}

/* A file system without fallocate() is served by writing. */
static void no_reservation_test(void **state)
{
	(void)state;
	struct faulty faulty;
	prepare(&faulty);
	faulty.shim.allocate_error = -EOPNOTSUPP;
	assert_int_equal(create(&faulty, TCI_STORAGE_AUTO), TC_OK);
	round_trip(&faulty);
	finish(&faulty);
	prepare(&faulty);
	faulty.shim.allocate_error = -EIO;
	assert_int_equal(create(&faulty, TCI_STORAGE_AUTO), TC_IO);
	assert_non_null(strstr(faulty.test.error.text, "cannot reserve 3145728 bytes"));
	finish(&faulty);
}

static void io_error_in_creation_test(void **state)
{
	(void)state;
	for (uint64_t nth = 1; nth <= 7; nth++) {
		struct faulty faulty;
		prepare(&faulty);
		faulty.shim.fault = IO_FAULT_ERROR;
		faulty.shim.error = -EIO;
		faulty.shim.in_creation = true;
		faulty.shim.every = nth;
		assert_int_equal(create(&faulty, TCI_STORAGE_AUTO), TC_IO);
		assert_non_null(strstr(faulty.test.error.text, "Input/output error"));
		finish(&faulty);
	}
}

/* O_DIRECT refused, or with blocks that ours are too small for: buffered, and facts say so. */
static void no_direct_test(void **state)
{
	(void)state;
	for (unsigned c = 0; c < choice_count; c++)
		for (unsigned k = 0; k < 3; k++) {
			static const char *const words[] = {
			    ("buffered, so times are those of memory: O_DIRECT refused (Invalid "
			     "argument)"),
			    "buffered: direct I/O would need blocks of 16384 bytes",
			    "buffered as asked"};
			struct faulty faulty;
			struct tc_storage_facts facts;
			prepare(&faulty);
			/* So that there is something to refuse even where the folder is in memory.
			 */
			faulty.shim.alignment = k == 1 ? 16384 : 512;
			faulty.shim.direct_error = k == 0 ? -EINVAL : 0;
			faulty.test.options.direct = k != 2;
			assert_int_equal(create(&faulty, both[c]), TC_OK);
			round_trip(&faulty);
			backend->facts(faulty.self, &facts);
			if (strstr(facts.detail, words[k]) == NULL)
				fail_msg("%s", facts.detail);
			finish(&faulty);
		}
}

/* ---------------------------------------------------------------- the ring */

static void forbidden_ring_test(void **state)
{
	(void)state;
	static const struct {
		int error;
		const char *words;
	} cases[] = {{-EPERM, "kernel.io_uring_disabled"},
	             {-ENOSYS, "io_uring is not in this kernel"},
	             {-ENOMEM, "cannot set up io_uring: Cannot allocate memory"},
	             {-EINVAL, "cannot set up io_uring: Invalid argument"}};
	for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
		struct faulty faulty;
		struct tc_storage_facts facts;
		prepare(&faulty);
		faulty.shim.ring_error = cases[k].error;
		assert_int_equal(create(&faulty, TCI_STORAGE_IO_URING), TC_IO);
		assert_non_null(strstr(faulty.test.error.text, cases[k].words));
		assert_non_null(strstr(faulty.test.error.text, "use storage `sync`"));
		finish(&faulty);

		prepare(&faulty);
		faulty.shim.ring_error = cases[k].error;
		assert_int_equal(create(&faulty, TCI_STORAGE_AUTO), TC_OK);
		round_trip(&faulty);
		backend->facts(faulty.self, &facts);
		assert_string_equal(facts.backend, "sync");
		assert_non_null(strstr(facts.detail, cases[k].words));
		finish(&faulty);
	}
}

/* Kernels before 6.1, 6.0 and 5.19 do not know these flags: they are dropped in turn. */
static void old_kernels_test(void **state)
{
	(void)state;
	static const struct {
		unsigned unknown, obtained;
		const char *name;
	} cases[] = {
	    {IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN,
	     "SINGLE_ISSUER|COOP_TASKRUN, "},
	    {IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER, IORING_SETUP_COOP_TASKRUN,
	     "; COOP_TASKRUN, "},
	    {IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN, 0,
	     "; no flags, "},
	};
	if (choice_count < 2)
		skip();
	for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
		struct faulty faulty;
		struct tc_storage_facts facts;
		prepare(&faulty);
		faulty.shim.unknown_flags = cases[k].unknown;
		assert_int_equal(create(&faulty, TCI_STORAGE_IO_URING), TC_OK);
		assert_int_equal(faulty.shim.ring_flags, cases[k].obtained);
		round_trip(&faulty);
		backend->facts(faulty.self, &facts);
		assert_non_null(strstr(facts.detail, cases[k].name));
		finish(&faulty);
	}
}

/* Without registered files or memory everything works, and facts say so. */
static void nothing_registered_test(void **state)
{
	(void)state;
	if (choice_count < 2)
		skip();
	for (unsigned k = 0; k < 3; k++) {
		struct faulty faulty;
		struct tc_storage_facts facts;
		prepare(&faulty);
		faulty.shim.ring_files_error = k == 0 ? -ENOMEM : 0;
		faulty.shim.ring_table_error = k == 1 ? -EINVAL : 0;
		faulty.shim.ring_memory_error = k == 2 ? -EFAULT : 0;
		assert_int_equal(create(&faulty, TCI_STORAGE_IO_URING), TC_OK);
		backend->register_memory(faulty.self, faulty.memory, POOL_BYTES);
		round_trip(&faulty);
		backend->facts(faulty.self, &facts);
		assert_non_null(
		    strstr(facts.detail, k == 0 ? ", files not registered" : ", files registered"));
		assert_non_null(strstr(facts.detail, k == 0   ? "3.00 MiB of memory registered"
		                                     : k == 1 ? "0 B of memory registered, not "
		                                                "all: Invalid argument"
		                                              : "0 B of memory registered, not "
		                                                "all: Bad address"));
		finish(&faulty);
	}
}

static void refused_submissions_test(void **state)
{
	(void)state;
	static const int errors[] = {-EAGAIN, -EINTR, -EBUSY};
	if (choice_count < 2)
		skip();
	for (unsigned e = 0; e < 3; e++) {
		struct faulty faulty;
		struct tc_storage_facts facts;
		prepare(&faulty);
		faulty.shim.submit_error = errors[e];
		faulty.shim.submit_every = 2;
		assert_int_equal(create(&faulty, TCI_STORAGE_IO_URING), TC_OK);
		round_trip(&faulty);
		backend->facts(faulty.self, &facts);
		assert_true(faulty.shim.refused > 2 && facts.retries == faulty.shim.refused);
		finish(&faulty);
	}
}

/* The ring fails for good, with nothing or with much in flight: the task ends with an error after
 * the kernel gave back all memory, later tasks of the direction fail at once, the other one works.
 */
static void broken_ring_test(void **state)
{
	(void)state;
	if (choice_count < 2)
		skip();
	for (uint64_t nth = 1; nth <= 4; nth++) {
		struct faulty faulty;
		char message[STORAGE_CASE_TEXT_BYTES];
		prepare(&faulty);
		faulty.shim.submit_error = -EBADF;
		faulty.shim.submit_every = nth;
		faulty.shim.submit_most = 1;
		assert_int_equal(create(&faulty, TCI_STORAGE_IO_URING), TC_OK);
		tc_content_fill(faulty.memory, 1, 1, 0, POOL_BYTES);
		assert_int_equal(transfer(&faulty, false, message), TC_IO);
		assert_non_null(strstr(message, "io_uring refuses to go on: Bad file descriptor"));
		assert_int_equal(transfer(&faulty, false, message), TC_IO);
		assert_non_null(strstr(message, "io_uring failed before: Bad file descriptor"));
		assert_int_equal(transfer(&faulty, true, NULL), TC_OK);
		finish(&faulty);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(short_transfers_test),
	    cmocka_unit_test(passing_errors_test),
	    cmocka_unit_test(lasting_errors_test),
	    cmocka_unit_test(error_in_the_middle_test),
	    cmocka_unit_test(cut_file_test),
	    cmocka_unit_test(no_space_test),
	    cmocka_unit_test(no_reservation_test),
	    cmocka_unit_test(io_error_in_creation_test),
	    cmocka_unit_test(no_direct_test),
	    cmocka_unit_test(forbidden_ring_test),
	    cmocka_unit_test(old_kernels_test),
	    cmocka_unit_test(nothing_registered_test),
	    cmocka_unit_test(refused_submissions_test),
	    cmocka_unit_test(broken_ring_test),
	};
	struct storage_case test;
	void *self = NULL;
	storage_case_open(&test, 1, 4096);
	if (tc_storage_io_uring.create(&test.options, storage_case_clock, &test, &self,
	                               &test.error) == TC_OK)
		choice_count = 2;
	else
		print_message("skipped for io_uring: %s\n", test.error.text);
	tc_storage_io_uring.destroy(self);
	storage_case_close(&test);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
