/**
 * Speed of a storage backend and of the host device: sequential reads and writes of a whole pool as
 * one command, copies in chunks on two lanes against two threads that call memcpy().
 *
 *     bench_storage [DIRECTORY [BYTES [BLOCK [DEPTH [BACKEND]]]]]    medians of nine runs
 *     bench_storage --serve DIRECTORY BYTES BLOCK DEPTH BACKEND     one measurement for each line
 *
 * With --serve, lines of standard input are `read`, `write`, `copy` or `memcpy`, and each is
 * answered by GB/s (10^9 bytes) and CPU seconds per GB; scripts/fio-compare interleaves them with
 * fio. Files are made and written before, as in a replay.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "bench.h"
#include "tencache/replay.h"
#include "tencache/units.h"

#define LANES 2

struct bench {
	const struct tc_storage_backend *backend;
	const char *directory;
	struct tc_storage_options options;
	void *storage, *device;
	void *memory;                  /**< of transfers */
	void *from[LANES], *to[LANES]; /**< of copies; half the bytes each */
	struct tc_device_task *tasks;  /**< chunks of all lanes */
	uint64_t chunks;               /**< of one lane */
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	uint64_t pending;
	bool failed;
};

struct figure {
	double gb_per_s, cpu_s_per_gb;
};

static double seconds_of(clockid_t clock)
{
	struct timespec now;
	if (clock_gettime(clock, &now) != 0)
		abort();
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t clock_ps(void *clock)
{
	(void)clock;
	struct timespec now;
	if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
		abort();
	return (uint64_t)now.tv_sec * TC_PS_PER_S + (uint64_t)now.tv_nsec * TC_PS_PER_NS;
}

static void one_ended(struct bench *bench, enum tc_status status, const char *message)
{
	pthread_mutex_lock(&bench->mutex);
	if (status != TC_OK) {
		(void)fprintf(stderr, "bench_storage: %s\n", message);
		bench->failed = true;
	}
	if (--bench->pending == 0)
		pthread_cond_signal(&bench->changed);
	pthread_mutex_unlock(&bench->mutex);
}

static void transfer_done(void *self, const struct tc_storage_task *task, uint64_t start_ps,
                          uint64_t end_ps, enum tc_status status, const char *message)
{
	(void)task;
	(void)start_ps;
	(void)end_ps;
	one_ended(self, status, message);
}

static void copy_done(void *self, const struct tc_device_task *task, uint64_t start_ps,
                      uint64_t end_ps, enum tc_status status, const char *message)
{
	(void)task;
	(void)start_ps;
	(void)end_ps;
	one_ended(self, status, message);
}

static void wait_for_all(struct bench *bench)
{
	pthread_mutex_lock(&bench->mutex);
	while (bench->pending > 0)
		pthread_cond_wait(&bench->changed, &bench->mutex);
	pthread_mutex_unlock(&bench->mutex);
}

static void transfer(struct bench *bench, bool write)
{
	struct tc_error error = {.status = TC_OK};
	struct tc_storage_task task = {.write = write,
	                               .memory = bench->memory,
	                               .bytes = bench->options.bytes,
	                               .done = transfer_done,
	                               .done_self = bench};
	bench->pending = 1;
	if (bench->backend->submit(bench->storage, &task, &error) != TC_OK)
		one_ended(bench, error.status, error.text);
	wait_for_all(bench);
}

static void copy(struct bench *bench)
{
	bench->pending = LANES * bench->chunks;
	for (uint64_t i = 0; i < LANES * bench->chunks; i++) {
		struct tc_error error = {.status = TC_OK};
		uint32_t lane = (uint32_t)(i % LANES);
		uint64_t at = i / LANES * bench->options.block_bytes;
		bench->tasks[i] = (struct tc_device_task){.lane = lane,
		                                          .target = (char *)bench->to[lane] + at,
		                                          .source = (char *)bench->from[lane] + at,
		                                          .bytes = bench->options.block_bytes,
		                                          .done = copy_done,
		                                          .done_self = bench};
		if (tc_device_host.submit(bench->device, &bench->tasks[i], &error) != TC_OK)
			one_ended(bench, error.status, error.text);
	}
	wait_for_all(bench);
}

struct plain_copy {
	const struct bench *bench;
	unsigned lane;
};

static void *plain_copies(void *self)
{
	const struct plain_copy *mine = self;
	uint64_t block = mine->bench->options.block_bytes;
	for (uint64_t i = 0; i < mine->bench->chunks; i++)
		memcpy((char *)mine->bench->to[mine->lane] + i * block,
		       (char *)mine->bench->from[mine->lane] + i * block, (size_t)block);
	return NULL;
}

static void plain_threads(struct bench *bench)
{
	pthread_t threads[LANES];
	struct plain_copy work[LANES];
	for (unsigned i = 0; i < LANES; i++) {
		work[i] = (struct plain_copy){bench, i};
		if (pthread_create(&threads[i], NULL, plain_copies, &work[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < LANES; i++)
		pthread_join(threads[i], NULL);
}

static bool measure(struct bench *bench, const char *what, struct figure *figure)
{
	double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID), start = seconds_of(CLOCK_MONOTONIC);
	double bytes = (double)bench->options.bytes;
	if (strcmp(what, "read") == 0)
		transfer(bench, false);
	else if (strcmp(what, "write") == 0)
		transfer(bench, true);
	else if (strcmp(what, "copy") == 0 || strcmp(what, "memcpy") == 0) {
		bytes = (double)(LANES * bench->chunks * bench->options.block_bytes);
		if (what[0] == 'c')
			copy(bench);
		else
			plain_threads(bench);
	} else {
		(void)fprintf(stderr, "bench_storage: no measurement is called \"%s\"\n", what);
		return false;
	}
	figure->gb_per_s = bytes / (seconds_of(CLOCK_MONOTONIC) - start) / 1e9;
	figure->cpu_s_per_gb = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu) / bytes * 1e9;
	return !bench->failed;
}

static enum tc_status open_copies(struct bench *bench, struct tc_error *error)
{
	uint64_t half = bench->chunks * bench->options.block_bytes;
	for (unsigned i = 0; i < LANES; i++) {
		TC_TRY(tc_device_host.allocate(bench->device, i == 0 ? TC_CPU : TC_GPU, true, half,
		                               &bench->from[i], error));
		TC_TRY(tc_device_host.allocate(bench->device, i == 0 ? TC_GPU : TC_CPU, true, half,
		                               &bench->to[i], error));
	}
	return TC_OK;
}

static enum tc_status open_all(struct bench *bench, const char *backend, struct tc_error *error)
{
	TC_TRY(tc_storage_find(backend, &bench->backend, error));
	TC_TRY(tc_device_host.create(LANES, clock_ps, NULL, &bench->device, error));
	TC_TRY(tc_device_host.allocate(bench->device, TC_CPU, true, bench->options.bytes,
	                               &bench->memory, error));
	tc_content_fill(bench->memory, 1, 1, 0, bench->options.bytes);
	TC_TRY(bench->backend->create(&bench->options, clock_ps, NULL, &bench->storage, error));
	bench->backend->register_memory(bench->storage, bench->memory, bench->options.bytes);
	bench->chunks = bench->options.bytes / LANES / bench->options.block_bytes;
	bench->tasks = tc_alloc_array(LANES * bench->chunks, sizeof *bench->tasks);
	if (bench->tasks == NULL)
		return tc_error_no_memory(error, "copies", LANES * bench->chunks);
	return open_copies(bench, error);
}

static void close_all(struct bench *bench)
{
	uint64_t half = bench->chunks * bench->options.block_bytes;
	if (bench->backend != NULL)
		bench->backend->destroy(bench->storage);
	if (bench->memory != NULL)
		tc_device_host.release(bench->device, bench->memory, bench->options.bytes);
	for (unsigned i = 0; i < LANES; i++) {
		if (bench->from[i] != NULL)
			tc_device_host.release(bench->device, bench->from[i], half);
		if (bench->to[i] != NULL)
			tc_device_host.release(bench->device, bench->to[i], half);
	}
	tc_device_host.destroy(bench->device);
	free(bench->tasks);
}

static bool serve(struct bench *bench)
{
	char line[32];
	while (fgets(line, sizeof line, stdin) != NULL) {
		struct figure figure;
		line[strcspn(line, "\n")] = '\0';
		if (!measure(bench, line, &figure))
			return false;
		(void)printf("%.6f %.6f\n", figure.gb_per_s, figure.cpu_s_per_gb);
		(void)fflush(stdout);
	}
	return true;
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;
	return (a > b) - (a < b);
}

static bool print_medians(struct bench *bench)
{
	static const char *const all[] = {"write", "read", "memcpy", "copy"};
	for (unsigned k = 0; k < sizeof all / sizeof *all; k++) {
		double rates[BENCH_RUNS], costs[BENCH_RUNS];
		for (unsigned run = 0; run < BENCH_RUNS; run++) {
			struct figure figure;
			if (!measure(bench, all[k], &figure))
				return false;
			rates[run] = figure.gb_per_s;
			costs[run] = figure.cpu_s_per_gb;
		}
		qsort(rates, BENCH_RUNS, sizeof *rates, compare);
		qsort(costs, BENCH_RUNS, sizeof *costs, compare);
		(void)printf("%-7s %6.2f GB/s (%.2f ... %.2f), %.3f CPU s per GB\n", all[k],
		             rates[BENCH_RUNS / 2], rates[0], rates[BENCH_RUNS - 1],
		             costs[BENCH_RUNS / 2]);
	}
	return true;
}

/** Argument `index`, or what it is by default. */
static const char *argument(int count, char **arguments, int index, const char *otherwise)
{
	return index < count ? arguments[index] : otherwise;
}

int main(int count, char **arguments)
{
	struct bench bench = {.options = {.directory_count = 1, .name = "bench", .direct = true}};
	struct tc_error error = {.status = TC_OK};
	struct tc_storage_facts facts;
	uint64_t depth = 0;
	int first = count > 1 && strcmp(arguments[1], "--serve") == 0 ? 2 : 1;
	bool good = false;
	bench.directory = argument(count, arguments, first, ".");
	bench.options.directories = &bench.directory;
	const char *bytes = argument(count, arguments, first + 1, "256MiB");
	const char *block = argument(count, arguments, first + 2, "1MiB");
	if (pthread_mutex_init(&bench.mutex, NULL) != 0 ||
	    pthread_cond_init(&bench.changed, NULL) != 0)
		return 1;
	if (tc_parse_bytes(bytes, "BYTES", &bench.options.bytes, &error) == TC_OK &&
	    tc_parse_bytes(block, "BLOCK", &bench.options.block_bytes, &error) == TC_OK &&
	    tc_parse_count(argument(count, arguments, first + 3, "8"), "DEPTH", &depth, &error) ==
	        TC_OK) {
		bench.options.depth = depth > UINT32_MAX ? UINT32_MAX : (uint32_t)depth;
		(void)open_all(&bench, argument(count, arguments, first + 4, "auto"), &error);
	}
	if (error.status == TC_OK) {
		bench.backend->facts(bench.storage, &facts);
		(void)fprintf(stderr, "%s: %s\n", facts.backend, facts.detail);
		good = first == 2 ? serve(&bench) : print_medians(&bench);
	} else {
		(void)fprintf(stderr, "bench_storage: %s\n", error.text);
	}
	close_all(&bench);
	pthread_cond_destroy(&bench.changed);
	pthread_mutex_destroy(&bench.mutex);
	return good ? 0 : 1;
}
