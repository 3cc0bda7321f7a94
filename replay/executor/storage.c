/**
 * Storage backends: stripe files and two lanes, one for each direction, whose engine is io_uring or
 * plain calls. Faults, files and facts: replay/STORAGE.md.
 */
#include "storage.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tencache/units.h"

#define MOST_DIRECTORIES 64u
#define READ_LANE 0
#define WRITE_LANE 1

struct storage {
	struct tci_stripes stripes;
	struct tci_storage_counters counters;
	struct tci_lane lanes[2];
	char fallback[TCI_STORAGE_TEXT_BYTES]; /**< why io_uring was not taken; "" where it was */
};

static enum tc_status check_options(const struct tc_storage_options *options,
                                    struct tc_error *error)
{
	if (options->directory_count == 0 || options->directory_count > MOST_DIRECTORIES)
		return tc_error_set(error, TC_ARGUMENT,
		                    "an NVMe pool needs 1 to %u directories, found %zu",
		                    MOST_DIRECTORIES, options->directory_count);
	if (options->bytes == 0 || options->bytes % TCI_BLOCK_BYTES != 0 ||
	    options->bytes > (uint64_t)INT64_MAX / 2)
		return tc_error_set(error, TC_ARGUMENT,
		                    "an NVMe pool of %llu bytes: it must be a positive multiple of "
		                    "4096",
		                    (unsigned long long)options->bytes);
	if (options->depth > TCI_MOST_DEPTH)
		return tc_error_set(error, TC_ARGUMENT,
		                    "depth %u: at most %u transfers can be in flight",
		                    options->depth, TCI_MOST_DEPTH);
	if (options->block_bytes % TCI_BLOCK_BYTES != 0 ||
	    options->block_bytes > TCI_MOST_BLOCK_BYTES)
		return tc_error_set(error, TC_ARGUMENT,
		                    "blocks of %llu bytes: they must be multiples of 4096 up to "
		                    "1 GiB",
		                    (unsigned long long)options->block_bytes);
	return TC_OK;
}

static void storage_destroy(void *self)
{
	struct storage *storage = self;
	if (storage == NULL)
		return;
	tci_lane_stop(&storage->lanes[READ_LANE]);
	tci_lane_stop(&storage->lanes[WRITE_LANE]);
	tci_stripes_close(&storage->stripes);
	free(storage);
}

static enum tc_status start_lanes(struct storage *storage, const struct tci_storage_engine *engine,
                                  struct tc_error *error)
{
	storage->lanes[READ_LANE].engine = engine;
	storage->lanes[WRITE_LANE].engine = engine;
	enum tc_status status = tci_lane_start(&storage->lanes[READ_LANE], error);
	if (status == TC_OK)
		status = tci_lane_start(&storage->lanes[WRITE_LANE], error);
	if (status != TC_OK)
		tci_lane_stop(&storage->lanes[READ_LANE]);
	return status;
}

static enum tc_status start(struct storage *storage, enum tci_storage_choice choice,
                            struct tc_error *error)
{
	if (choice == TCI_STORAGE_SYNC)
		return start_lanes(storage, &tci_engine_sync, error);
	if (choice == TCI_STORAGE_IO_URING)
		return start_lanes(storage, &tci_engine_io_uring, error);
	struct tc_error why = {.status = TC_OK};
	if (start_lanes(storage, &tci_engine_io_uring, &why) == TC_OK)
		return TC_OK;
	char *remedy = strstr(why.text, "; use storage");
	if (remedy != NULL)
		*remedy = '\0';
	tci_append(storage->fallback, sizeof storage->fallback, "; %s", why.text);
	return start_lanes(storage, &tci_engine_sync, error);
}

enum tc_status tci_storage_create(enum tci_storage_choice choice,
                                  const struct tci_storage_calls *calls,
                                  const struct tc_storage_options *options,
                                  uint64_t (*clock_ps)(void *clock), void *clock, void **self,
                                  struct tc_error *error)
{
	TC_TRY(check_options(options, error));
	struct storage *storage = calloc(1, sizeof *storage);
	if (storage == NULL)
		return tc_error_no_memory(error, "storage", sizeof *storage);
	for (unsigned i = 0; i < 2; i++) {
		struct tci_lane *lane = &storage->lanes[i];
		lane->stripes = &storage->stripes;
		lane->settings.depth = options->depth != 0 ? options->depth : TCI_DEFAULT_DEPTH;
		lane->settings.block_bytes =
		    options->block_bytes != 0 ? options->block_bytes : TCI_DEFAULT_BLOCK_BYTES;
		lane->clock_ps = clock_ps;
		lane->clock = clock;
		lane->write = i == WRITE_LANE;
	}
	enum tc_status status =
	    tci_stripes_open(options, calls, &storage->counters, &storage->stripes, error);
	if (status == TC_OK)
		status = start(storage, choice, error);
	if (status != TC_OK) {
		storage_destroy(storage);
		return status;
	}
	*self = storage;
	return TC_OK;
}

static enum tc_status storage_submit(void *self, struct tc_storage_task *task,
                                     struct tc_error *error)
{
	struct storage *storage = self;
	uint64_t end;
	if (task->bytes == 0 || task->bytes % TCI_BLOCK_BYTES != 0 ||
	    task->offset % TCI_BLOCK_BYTES != 0 || (uintptr_t)task->memory % TCI_BLOCK_BYTES != 0 ||
	    (uintptr_t)task->tail % TCI_BLOCK_BYTES != 0 || task->tail_bytes % TCI_BLOCK_BYTES != 0)
		return tc_error_set(error, TC_INTERNAL,
		                    "an NVMe transfer of %llu bytes at %llu from %p, the last %llu "
		                    "from %p: all must be multiples of 4096",
		                    (unsigned long long)task->bytes,
		                    (unsigned long long)task->offset, task->memory,
		                    (unsigned long long)task->tail_bytes, task->tail);
	if (task->tail_bytes > task->bytes)
		return tc_error_set(
		    error, TC_INTERNAL, "an NVMe transfer of %llu bytes with a tail of %llu",
		    (unsigned long long)task->bytes, (unsigned long long)task->tail_bytes);
	if (!tc_add_u64(task->offset, task->bytes, &end) || end > storage->stripes.bytes)
		return tc_error_set(error, TC_INTERNAL,
		                    "an NVMe transfer of %llu bytes at %llu ends outside its pool "
		                    "of %llu bytes",
		                    (unsigned long long)task->bytes,
		                    (unsigned long long)task->offset,
		                    (unsigned long long)storage->stripes.bytes);
	tci_lane_submit(&storage->lanes[task->write ? WRITE_LANE : READ_LANE], task);
	return TC_OK;
}

static void storage_register_memory(void *self, void *memory, uint64_t bytes)
{
	struct storage *storage = self;
	struct iovec range = {.iov_base = memory, .iov_len = (size_t)bytes};
	for (unsigned i = 0; i < 2; i++)
		if (storage->lanes[i].engine->add_memory != NULL)
			tci_lane_add_memory(&storage->lanes[i], &range);
}

void tci_append(char *text, size_t bytes, const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(text + length, bytes - length, format, arguments);
	va_end(arguments);
}

static void append_memory(struct storage *storage, char *text, size_t bytes)
{
	char size[TC_UNIT_TEXT_BYTES];
	struct tci_lane *read = &storage->lanes[READ_LANE], *write = &storage->lanes[WRITE_LANE];
	struct rlimit limit = {0};
	uint64_t registered = atomic_load(&read->memory_bytes) + atomic_load(&write->memory_bytes);
	int refused = atomic_load(&read->memory_refused);
	if (refused == 0)
		refused = atomic_load(&write->memory_refused);
	if (read->engine->add_memory == NULL)
		return;
	tci_append(text, bytes, ", %s of memory registered", tc_format_bytes(registered / 2, size));
	if (refused == -ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
	    limit.rlim_cur != RLIM_INFINITY)
		tci_append(text, bytes, ", not all: ulimit -l allows %s",
		           tc_format_bytes(limit.rlim_cur, size));
	else if (refused != 0)
		tci_append(text, bytes, ", not all: %s", strerror(-refused));
}

static void storage_facts(void *self, struct tc_storage_facts *facts)
{
	struct storage *storage = self;
	const struct tci_lane *lane = &storage->lanes[READ_LANE];
	const struct tci_stripes *stripes = &storage->stripes;
	const size_t size = sizeof facts->detail;
	char block[TC_UNIT_TEXT_BYTES];
	*facts = (struct tc_storage_facts){
	    .retries = atomic_load(&storage->counters.retries),
	    .short_transfers = atomic_load(&storage->counters.short_transfers),
	};
	tci_append(facts->backend, sizeof facts->backend, "%s", lane->engine->name);
	tci_append(facts->detail, size, "%s; %u x %s", stripes->direct_note, lane->settings.depth,
	           tc_format_bytes(lane->settings.block_bytes, block));
	if (stripes->count > 1)
		tci_append(facts->detail, size, " over %u stripes", stripes->count);
	if (stripes->removed > 0)
		tci_append(facts->detail, size, "; %u stale files removed", stripes->removed);
	tci_append(facts->detail, size, "%s; %s", storage->fallback, lane->obtained);
	append_memory(storage, facts->detail, size);
}

static enum tc_status create_io_uring(const struct tc_storage_options *options,
                                      uint64_t (*clock_ps)(void *clock), void *clock, void **self,
                                      struct tc_error *error)
{
	return tci_storage_create(TCI_STORAGE_IO_URING, &tci_system_calls, options, clock_ps, clock,
	                          self, error);
}

static enum tc_status create_sync(const struct tc_storage_options *options,
                                  uint64_t (*clock_ps)(void *clock), void *clock, void **self,
                                  struct tc_error *error)
{
	return tci_storage_create(TCI_STORAGE_SYNC, &tci_system_calls, options, clock_ps, clock,
	                          self, error);
}

static enum tc_status create_auto(const struct tc_storage_options *options,
                                  uint64_t (*clock_ps)(void *clock), void *clock, void **self,
                                  struct tc_error *error)
{
	return tci_storage_create(TCI_STORAGE_AUTO, &tci_system_calls, options, clock_ps, clock,
	                          self, error);
}

const struct tc_storage_backend tc_storage_io_uring = {
    .name = "io_uring",
    .summary = "io_uring: a ring each way, O_DIRECT, registered files and memory",
    .create = create_io_uring,
    .register_memory = storage_register_memory,
    .submit = storage_submit,
    .facts = storage_facts,
    .destroy = storage_destroy,
};

const struct tc_storage_backend tc_storage_sync = {
    .name = "sync",
    .summary = "threads with pread and pwrite, where io_uring is not to be had",
    .create = create_sync,
    .register_memory = storage_register_memory,
    .submit = storage_submit,
    .facts = storage_facts,
    .destroy = storage_destroy,
};

static const struct tc_storage_backend storage_auto = {
    .name = "auto",
    .summary = "io_uring where it works, else sync; the report says which and why",
    .create = create_auto,
    .register_memory = storage_register_memory,
    .submit = storage_submit,
    .facts = storage_facts,
    .destroy = storage_destroy,
};

enum tc_status tc_storage_find(const char *name, const struct tc_storage_backend **backend,
                               struct tc_error *error)
{
	static const struct tc_storage_backend *const backends[] = {
	    &storage_auto, &tc_storage_io_uring, &tc_storage_sync};
	static const char *const names[] = {"auto", "io_uring", "sync"};
	for (unsigned i = 0; i < sizeof backends / sizeof *backends; i++)
		if (strcmp(names[i], name) == 0) {
			*backend = backends[i];
			return TC_OK;
		}
	const char *nearest = tc_nearest_name(name, names, sizeof names / sizeof *names);
	return tc_error_set(error, TC_ARGUMENT,
	                    "there is no storage backend `%s`%s%s%s; there are auto, io_uring and "
	                    "sync",
	                    name, nearest == NULL ? "" : "; did you mean `",
	                    nearest == NULL ? "" : nearest, nearest == NULL ? "" : "`?");
}
