/**
 * Storage backends that work: what was written is read, lies where the striping rule says, lanes
 * are FIFOs and run at once. Expected bytes are the synthetic content, expected places are computed
 * byte by byte from the rule in replay/STORAGE.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"
#include "random.h"
#include "storage_case.h"

#define MIB (1ull << 20)

/* Backends under test; io_uring only where it can be had. */
static const struct tc_storage_backend *backends[2];
static unsigned backend_count;

static void *create(const struct tc_storage_backend *backend, struct storage_case *test)
{
	void *self = NULL;
	if (backend->create(&test->options, storage_case_clock, test, &self, &test->error) != TC_OK)
		fail_msg("%s", test->error.text);
	return self;
}

/* A task whose last `tail` bytes are in memory of their own, which for writes get their content
 * only when the task is prepared. */
struct split_task {
	struct storage_case_task task;
	unsigned char *content; /* of the tail, written */
};

static void prepare_tail(void *self, const struct tc_storage_task *task)
{
	struct split_task *split = self;
	if (task->write)
		memcpy(task->tail, split->content, (size_t)task->tail_bytes);
}

static enum tc_status run_split(const struct tc_storage_backend *backend, void *self, bool write,
                                unsigned char *memory, uint64_t offset, uint64_t bytes,
                                uint64_t tail)
{
	struct split_task split = {.content = storage_case_memory(tail + 4096)};
	unsigned char *apart = storage_case_memory(tail + 4096);
	memcpy(split.content, memory + bytes - tail, tail);
	memset(memory + bytes - tail, 0x5A, tail); /* must be neither written nor read */
	storage_case_task_init(&split.task, write, memory, offset, bytes);
	split.task.task.tail = apart;
	split.task.task.tail_bytes = tail;
	split.task.task.prepare = prepare_tail;
	storage_case_submit(backend, self, &split.task);
	enum tc_status status = storage_case_wait(&split.task);
	for (uint64_t i = 0; i < tail; i++)
		assert_int_equal(memory[bytes - tail + i], 0x5A);
	memcpy(memory + bytes - tail, apart, tail);
	free(apart);
	free(split.content);
	return status;
}

/* Random writes and reads over a pool whose last stripe is ragged, against a model in memory. */
static void random_tasks(const struct tc_storage_backend *backend, size_t directories,
                         uint64_t block_bytes, uint32_t depth, bool direct)
{
	const uint64_t bytes = 5 * MIB + 3 * 4096;
	struct storage_case test;
	storage_case_open(&test, directories, bytes);
	test.options.block_bytes = block_bytes;
	test.options.depth = depth;
	test.options.direct = direct;
	void *self = create(backend, &test);
	unsigned char *model = storage_case_memory(bytes), *memory = storage_case_memory(bytes);
	backend->register_memory(self, memory, bytes / 2 / 4096 * 4096); /* the rest is not */
	uint64_t seed = directories * 31 + depth;
	tc_content_fill(memory, 0, 0, 0, bytes);
	memcpy(model, memory, bytes);
	assert_int_equal(storage_case_run(backend, self, true, memory, 0, bytes, NULL), TC_OK);
	for (uint64_t round = 1; round < 40; round++) {
		uint64_t offset = 4096 * test_random_below(&seed, bytes / 4096);
		uint64_t part = 4096 * (1 + test_random_below(&seed, (bytes - offset) / 4096));
		uint64_t tail = 4096 * test_random_below(&seed, part / 4096 + 1);
		if (round % 2 == 0) {
			tc_content_fill(memory + offset, (uint32_t)round, 1, 0, part);
			memcpy(model + offset, memory + offset, part);
		} else {
			memset(memory + offset, 0, part);
		}
		assert_int_equal(
		    run_split(backend, self, round % 2 == 0, memory + offset, offset, part, tail),
		    TC_OK);
		assert_memory_equal(memory + offset, model + offset, part);
	}
	free(model);
	free(memory);
	backend->destroy(self);
	storage_case_close(&test);
}

static void random_tasks_test(void **state)
{
	(void)state;
	for (unsigned i = 0; i < backend_count; i++)
		for (size_t directories = 1; directories <= 3; directories++) {
			random_tasks(backends[i], directories, 0, 0, true);
			random_tasks(backends[i], directories, 12288, 3, true);
			random_tasks(backends[i], directories, 2 * MIB, 1, false);
		}
}

/* Byte x of the pool lies in stripe (x div 1 MiB) mod n, there 1 MiB (the header) + (x div n MiB)
 * MiB + x mod 1 MiB from the start. */
static void striping_test(void **state)
{
	(void)state;
	const uint64_t bytes = 7 * MIB + 8192;
	for (unsigned b = 0; b < backend_count; b++) {
		struct storage_case test;
		storage_case_open(&test, 3, bytes);
		void *self = create(backends[b], &test);
		unsigned char *memory = storage_case_memory(bytes);
		char *files[3];
		size_t sizes[3];
		tc_content_fill(memory, 9, 9, 0, bytes);
		assert_int_equal(storage_case_run(backends[b], self, true, memory, 0, bytes, NULL),
		                 TC_OK);
		for (unsigned i = 0; i < 3; i++) {
			size_t count;
			char path[300], **names = test_list_folder(test.folders[i], &count);
			assert_int_equal(count, 1);
			(void)snprintf(path, sizeof path, "%s/%s", test.folders[i], names[0]);
			test_free_names(names, count);
			files[i] = test_read_file(path, &sizes[i]);
			assert_non_null(files[i]);
		}
		/* Units 0 ... 7, the last of 8 KiB: stripe 0 has 0, 3, 6, stripe 1 has 1, 4 and the
		 * short 7, stripe 2 has 2 and 5; and a header each. */
		assert_int_equal(sizes[0], 4 * MIB);
		assert_int_equal(sizes[1], 3 * MIB + 8192);
		assert_int_equal(sizes[2], 3 * MIB);
		for (uint64_t x = 0; x < bytes; x++) {
			uint64_t unit = x / MIB;
			uint64_t place = MIB + unit / 3 * MIB + x % MIB;
			if ((unsigned char)files[unit % 3][place] != memory[x])
				fail_msg("byte %llu", (unsigned long long)x);
		}
		for (unsigned i = 0; i < 3; i++)
			free(files[i]);
		free(memory);
		backends[b]->destroy(self);
		storage_case_close(&test);
	}
}

/* One direction is a FIFO: task k + 1 starts after task k ended; nothing is reported twice. Reads
 * and writes are two FIFOs. */
static void fifo_test(void **state)
{
	(void)state;
	enum { TASKS = 60 };
	for (unsigned b = 0; b < backend_count; b++) {
		struct storage_case test;
		storage_case_open(&test, 2, TASKS * 65536);
		test.options.block_bytes = 8192;
		void *self = create(backends[b], &test);
		char *memory = storage_case_memory(TASKS * 65536);
		struct storage_case_task *tasks = calloc(2 * TASKS, sizeof *tasks);
		assert_non_null(tasks);
		for (unsigned i = 0; i < TASKS; i++) {
			uint64_t at = i * 65536ull;
			tc_content_fill(memory + at, i, 0, 0, 65536);
			storage_case_task_init(&tasks[i], true, memory + at, at,
			                       i % 3 == 0 ? 4096 : 65536);
			storage_case_submit(backends[b], self, &tasks[i]);
		}
		for (unsigned i = 0; i < TASKS; i++) {
			assert_int_equal(storage_case_wait(&tasks[i]), TC_OK);
			struct storage_case_task *read = &tasks[TASKS + i];
			uint64_t at = i * 65536ull;
			memset(memory + at, 0, 65536);
			storage_case_task_init(read, false, memory + at, at, tasks[i].task.bytes);
			storage_case_submit(backends[b], self, read);
		}
		for (unsigned i = 0; i < TASKS; i++) {
			struct storage_case_task *read = &tasks[TASKS + i];
			assert_int_equal(storage_case_wait(read), TC_OK);
			assert_true(tc_content_check(read->task.memory, i, 0, 0, read->task.bytes,
			                             TC_VERIFY_FULL) == UINT64_MAX);
		}
		backends[b]->destroy(self);
		for (unsigned i = 0; i < 2 * TASKS; i++) {
			assert_int_equal(tasks[i].calls, 1);
			assert_true(tasks[i].start_ps < tasks[i].end_ps);
			if (i % TASKS != 0)
				assert_true(tasks[i - 1].end_ps < tasks[i].start_ps);
		}
		free(tasks);
		free(memory);
		storage_case_close(&test);
	}
}

/* destroy() runs what was submitted and reports it. */
static void destroy_waits_test(void **state)
{
	(void)state;
	for (unsigned b = 0; b < backend_count; b++) {
		struct storage_case test;
		struct storage_case_task tasks[8];
		storage_case_open(&test, 1, 8 * MIB);
		void *self = create(backends[b], &test);
		char *memory = storage_case_memory(8 * MIB);
		tc_content_fill(memory, 1, 0, 0, 8 * MIB);
		for (unsigned i = 0; i < 8; i++) {
			storage_case_task_init(&tasks[i], i % 2 == 0, memory + i * MIB, i * MIB,
			                       MIB);
			storage_case_submit(backends[b], self, &tasks[i]);
		}
		backends[b]->destroy(self);
		for (unsigned i = 0; i < 8; i++) {
			assert_int_equal(tasks[i].calls, 1);
			assert_int_equal(storage_case_wait(&tasks[i]), TC_OK);
		}
		free(memory);
		storage_case_close(&test);
		backends[b]->destroy(NULL);
	}
}

/* A file that nobody wrote holds no tensor's content, and it is written: blocks are there. */
static void fresh_files_are_written_test(void **state)
{
	(void)state;
	struct storage_case test;
	storage_case_open(&test, 1, MIB);
	void *self = create(&tc_storage_sync, &test);
	unsigned char *memory = storage_case_memory(MIB);
	memset(memory, 0, MIB);
	assert_int_equal(storage_case_run(&tc_storage_sync, self, false, memory, 0, MIB, NULL),
	                 TC_OK);
	unsigned zeros = 0;
	for (uint64_t i = 0; i < MIB; i++)
		zeros += memory[i] == 0;
	/* 2^20 random bytes: 4,096 zeros expected, standard deviation 64. */
	assert_in_range(zeros, 4096 - 400, 4096 + 400);
	free(memory);
	tc_storage_sync.destroy(self);
	storage_case_close(&test);
}

static void facts_test(void **state)
{
	(void)state;
	for (unsigned b = 0; b < backend_count; b++) {
		struct storage_case test;
		struct tc_storage_facts facts;
		storage_case_open(&test, 2, 4 * MIB);
		test.options.block_bytes = 65536;
		test.options.depth = 4;
		void *self = create(backends[b], &test);
		char *memory = storage_case_memory(4 * MIB);
		backends[b]->register_memory(self, memory, 4 * MIB);
		assert_int_equal(
		    storage_case_run(backends[b], self, true, memory, 0, 4 * MIB, NULL), TC_OK);
		backends[b]->facts(self, &facts);
		assert_string_equal(facts.backend, backends[b]->name);
		assert_non_null(strstr(facts.detail, "4 x 64.00 KiB over 2 stripes"));
		assert_true(facts.retries == 0 && facts.short_transfers == 0);
		if (b == 1)
			assert_non_null(strstr(facts.detail, "4.00 MiB of memory registered"));
		free(memory);
		backends[b]->destroy(self);
		storage_case_close(&test);
	}
}

static void wrong_options_test(void **state)
{
	(void)state;
	struct storage_case test;
	storage_case_open(&test, 1, MIB);
	const struct tc_storage_options good = test.options;
	struct tc_storage_options bad[6] = {good, good, good, good, good, good};
	bad[0].directory_count = 0;
	bad[1].bytes = 0;
	bad[2].bytes = 4097;
	bad[3].bytes = UINT64_MAX / 4096 * 4096;
	bad[4].depth = 100000;
	bad[5].block_bytes = 5000;
	for (unsigned i = 0; i < 6; i++) {
		struct tc_error error = {.status = TC_OK};
		void *self = NULL;
		assert_int_equal(
		    tc_storage_sync.create(&bad[i], storage_case_clock, &test, &self, &error),
		    TC_ARGUMENT);
		assert_null(self);
		assert_true(error.text[0] != '\0');
	}
	storage_case_close(&test);
}

static void wrong_tasks_test(void **state)
{
	(void)state;
	struct storage_case test;
	storage_case_open(&test, 1, MIB);
	void *self = create(&tc_storage_sync, &test);
	char *memory = storage_case_memory(MIB);
	const struct {
		uint64_t shift, offset, bytes, tail_shift, tail_bytes;
	} bad[] = {{1, 0, 4096, 0, 0},    {0, 1, 4096, 0, 0},   {0, 0, 100, 0, 0},
	           {0, 0, 0, 0, 0},       {0, 4096, MIB, 0, 0}, {0, UINT64_MAX - 4095, 4096, 0, 0},
	           {0, 0, 8192, 1, 4096}, {0, 0, 8192, 0, 100}, {0, 0, 8192, 0, 12288}};
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct tc_error error = {.status = TC_OK};
		struct tc_storage_task task = {.memory = memory + bad[i].shift,
		                               .offset = bad[i].offset,
		                               .bytes = bad[i].bytes,
		                               .tail = memory + bad[i].tail_shift,
		                               .tail_bytes = bad[i].tail_bytes};
		assert_int_equal(tc_storage_sync.submit(self, &task, &error), TC_INTERNAL);
	}
	free(memory);
	tc_storage_sync.destroy(self);
	storage_case_close(&test);
}

static void names_test(void **state)
{
	(void)state;
	const struct tc_storage_backend *backend = NULL;
	struct tc_error error = {.status = TC_OK};
	assert_int_equal(tc_storage_find("sync", &backend, &error), TC_OK);
	assert_ptr_equal(backend, &tc_storage_sync);
	assert_int_equal(tc_storage_find("io_uring", &backend, &error), TC_OK);
	assert_ptr_equal(backend, &tc_storage_io_uring);
	assert_int_equal(tc_storage_find("auto", &backend, &error), TC_OK);
	assert_int_equal(tc_storage_find("io_ring", &backend, &error), TC_ARGUMENT);
	assert_non_null(strstr(error.text, "did you mean `io_uring`"));
}

/* A child process with the limit of an ordinary user and without root's exemption: registering
 * 64 MiB fails, the run does not, and facts name the limit. */
static void memlock_limit_test(void **state)
{
	(void)state;
	if (backend_count < 2)
		skip();
	struct storage_case test;
	storage_case_open(&test, 1, 4 * MIB);
	(void)fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
		struct tc_storage_facts facts;
		void *self = NULL;
		char *memory = storage_case_memory(64 * MIB);
		if (chmod(test.folders[0], 0777) != 0 || setrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
		    (geteuid() == 0 && setuid(65534) != 0))
			_exit(77);
		if (tc_storage_io_uring.create(&test.options, storage_case_clock, &test, &self,
		                               &test.error) != TC_OK)
			_exit(77);
		tc_storage_io_uring.register_memory(self, memory, 64 * MIB);
		enum tc_status status =
		    storage_case_run(&tc_storage_io_uring, self, true, memory, 0, 4 * MIB, NULL);
		tc_storage_io_uring.facts(self, &facts);
		tc_storage_io_uring.destroy(self);
		bool named = strstr(facts.detail, "ulimit -l allows 1.00 MiB") != NULL;
		if (!named)
			(void)fprintf(stderr, "%s\n", facts.detail);
		free(memory);
		_exit(status == TC_OK && named ? 0 : 1);
	}
	int result;
	assert_int_equal(waitpid(child, &result, 0), child);
	storage_case_close(&test);
	assert_true(WIFEXITED(result));
	if (WEXITSTATUS(result) == 77) {
		print_message("skipped: cannot become an ordinary user here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(result), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(random_tasks_test),
	    cmocka_unit_test(striping_test),
	    cmocka_unit_test(fifo_test),
	    cmocka_unit_test(destroy_waits_test),
	    cmocka_unit_test(fresh_files_are_written_test),
	    cmocka_unit_test(facts_test),
	    cmocka_unit_test(wrong_options_test),
	    cmocka_unit_test(wrong_tasks_test),
	    cmocka_unit_test(names_test),
	    cmocka_unit_test(memlock_limit_test),
	};
	struct storage_case test;
	void *self = NULL;
	backends[backend_count++] = &tc_storage_sync;
	storage_case_open(&test, 1, 4096);
	if (tc_storage_io_uring.create(&test.options, storage_case_clock, &test, &self,
	                               &test.error) == TC_OK)
		backends[backend_count++] = &tc_storage_io_uring;
	else
		print_message("skipped for io_uring: %s\n", test.error.text);
	tc_storage_io_uring.destroy(self);
	storage_case_close(&test);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
