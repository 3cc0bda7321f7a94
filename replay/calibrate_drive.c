/**
 * @file calibrate_drive.c
 * Drives through the storage backend: rates by depth, reading and writing at once, and size to rate
 * each way at the depth that the replayer uses. As with copies, a burst is a queue full of
 * transfers of one size that walk through the file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "calibrate_parts.h"

#define MIB (UINT64_C(1) << 20)
#define SMALLEST_BYTES 4096u
#define SMALLEST_FILE_BYTES (16 * MIB)
#define DEPTH_FILE_BYTES (256 * MIB)
#define DEPTH_TASK_BYTES (16 * MIB)
#define DEPTH_TASKS 4u
#define MOST_TASKS 256u
#define BURST_BYTES (64 * MIB)
#define QUICK_BYTES (4 * MIB) /**< largest transfer and burst of --quick */
/** What the backends take when nobody says otherwise. */
#define DEFAULT_DEPTH 8u

struct drive {
	struct tci_calibration *calibration;
	const struct tc_storage_backend *backend;
	void *self;
	struct tci_burst *burst;
	void *device;          /**< whose pinned memory drives read and write, in replays as here */
	unsigned char *memory; /**< reads go to its front, writes come from behind */
	uint64_t memory_bytes, half_bytes;
	uint64_t file_bytes;
	uint64_t next[2]; /**< where the next read and the next write go */
	struct tc_storage_task tasks[2][MOST_TASKS];
	struct tc_command command;
};

enum { READS = 1, WRITES = 2, BOTH = 3 };

/* ---------------------------------------------------------------- set up */

static enum tc_status open_storage(struct drive *drive, uint64_t bytes, uint32_t depth,
                                   struct tc_error *error)
{
	const struct tci_calibrate_options *asked = drive->calibration->options;
	struct tc_storage_options options = {.directories = asked->directories,
	                                     .directory_count = asked->directory_count,
	                                     .bytes = bytes,
	                                     .name = "calibrate",
	                                     .depth = depth,
	                                     .direct = true};
	drive->file_bytes = bytes;
	drive->next[0] = 0;
	drive->next[1] = 0;
	TC_TRY(drive->backend->create(&options, tci_clockwork_ps, &drive->calibration->clockwork,
	                              &drive->self, error));
	drive->backend->register_memory(drive->self, drive->memory, drive->memory_bytes);
	return TC_OK;
}

static void close_storage(struct drive *drive)
{
	if (drive->self != NULL)
		drive->backend->destroy(drive->self);
	drive->self = NULL;
}

static enum tc_status open_drive(struct drive *drive, struct tci_calibration *calibration,
                                 uint64_t largest, struct tc_error *error)
{
	drive->calibration = calibration;
	drive->backend = calibration->storage;
	drive->command = (struct tc_command){.kind = TC_LOAD, .queue = TC_QUEUE_NVME_READ};
	drive->half_bytes = largest > DEPTH_TASK_BYTES ? largest : DEPTH_TASK_BYTES;
	drive->memory_bytes = drive->half_bytes + DEPTH_TASK_BYTES;
	TC_TRY(tci_burst_create(&drive->burst, error));
	TC_TRY(calibration->device->create(1, tci_clockwork_ps, &calibration->clockwork,
	                                   &drive->device, error));
	void *memory;
	TC_TRY(calibration->device->allocate(drive->device, TC_CPU, true, drive->memory_bytes,
	                                     &memory, error));
	drive->memory = memory;
	/* Nothing that a drive could compress. */
	tc_content_fill(memory, 1, 1, 0, drive->memory_bytes);
	return TC_OK;
}

static void close_drive(struct drive *drive)
{
	close_storage(drive);
	if (drive->device != NULL) {
		drive->calibration->device->release(drive->device, drive->memory,
		                                    drive->memory_bytes);
		drive->calibration->device->destroy(drive->device);
	}
	tci_burst_free(drive->burst);
	free(drive);
}

/* ---------------------------------------------------------------- bursts */

/** Task `index` of a direction. While both run, each keeps to its half of the file. */
static void prepare_task(struct drive *drive, bool write, bool both, size_t index, uint64_t bytes)
{
	uint64_t from = both && write ? drive->file_bytes / 2 : 0;
	uint64_t to = both && !write ? drive->file_bytes / 2 : drive->file_bytes;
	uint64_t *next = &drive->next[write];
	if (*next < from || *next + bytes > to)
		*next = from;
	drive->tasks[write][index] = (struct tc_storage_task){
	    .command = &drive->command,
	    .write = write,
	    .memory = drive->memory + (both && write ? drive->half_bytes : 0),
	    .offset = *next,
	    .bytes = bytes,
	    .done = tci_burst_storage_done,
	    .done_self = drive->burst};
	*next += bytes;
}

static enum tc_status run_burst(struct drive *drive, unsigned mask, uint64_t bytes, size_t tasks,
                                uint64_t *ps, struct tc_error *error)
{
	size_t all = mask == BOTH ? 2 * tasks : tasks, submitted = 0;
	for (size_t i = 0; i < tasks; ++i) {
		if ((mask & READS) != 0)
			prepare_task(drive, false, mask == BOTH, i, bytes);
		if ((mask & WRITES) != 0)
			prepare_task(drive, true, mask == BOTH, i, bytes);
	}
	tci_burst_begin(drive->burst, all);
	enum tc_status status = TC_OK;
	for (size_t i = 0; i < tasks && status == TC_OK; ++i) {
		for (int write = 0; write < 2 && status == TC_OK; ++write) {
			if ((mask & (write != 0 ? WRITES : READS)) == 0)
				continue;
			status =
			    drive->backend->submit(drive->self, &drive->tasks[write][i], error);
			submitted += status == TC_OK;
		}
	}
	tci_burst_skip(drive->burst, all - submitted);
	enum tc_status waited = tci_burst_wait(drive->burst, ps, error);
	return status != TC_OK ? status : waited;
}

static enum tc_status measure_burst(struct drive *drive, unsigned mask, uint64_t bytes,
                                    size_t tasks, const char *what, struct tci_measured *rate,
                                    struct tc_error *error)
{
	struct tci_clockwork *clockwork = &drive->calibration->clockwork;
	struct tci_samples samples = {0};
	uint64_t moved = bytes * tasks * (mask == BOTH ? 2 : 1);
	tci_point_begin(clockwork, what);
	while (tci_point_wants(clockwork, samples.count)) {
		uint64_t ps;
		TC_TRY(tci_check_interrupt(error));
		TC_TRY(run_burst(drive, mask, bytes, tasks, &ps, error));
		samples.values[samples.count++] = tci_rate(moved, ps);
	}
	*rate = tci_samples_median(&samples);
	return TC_OK;
}

/* ---------------------------------------------------------------- depths */

static enum tc_status measure_depth(struct drive *drive, uint32_t depth,
                                    struct tci_depth_rates *rates, struct tc_error *error)
{
	bool quick = drive->calibration->options->quick;
	uint64_t bytes = quick ? DEPTH_TASK_BYTES / 16 : DEPTH_TASK_BYTES;
	uint64_t file = quick ? SMALLEST_FILE_BYTES : DEPTH_FILE_BYTES;
	file = file < drive->half_bytes ? file : drive->half_bytes;
	/* At once, reads and writes have half of it each. */
	bytes = bytes < file / 2 ? bytes : file / 2;
	rates->depth = depth;
	enum tc_status status = open_storage(drive, file, depth, error);
	if (status == TC_OK)
		status =
		    measure_burst(drive, READS, bytes, DEPTH_TASKS, "read", &rates->read, error);
	if (status == TC_OK)
		status =
		    measure_burst(drive, WRITES, bytes, DEPTH_TASKS, "write", &rates->write, error);
	if (status == TC_OK)
		status = measure_burst(drive, BOTH, bytes, DEPTH_TASKS, "read and write",
		                       &rates->mixed, error);
	close_storage(drive);
	return status;
}

/** The depth in use first: the others only where there is time for them. */
static enum tc_status measure_depths(struct drive *drive, struct tc_error *error)
{
	static const uint32_t depths[] = {DEFAULT_DEPTH, 1, 32, 4, 16, 2};
	struct tci_calibration *calibration = drive->calibration;
	struct tci_clockwork *clockwork = &calibration->clockwork;
	size_t count = calibration->options->quick ? 2 : sizeof depths / sizeof *depths;
	tci_stage_begin(clockwork, TCI_STAGE_DEPTHS, 3 * count);
	for (size_t i = 0; i < count; ++i) {
		uint64_t start = tci_clockwork_ps(clockwork);
		TC_TRY(measure_depth(drive, depths[i], &calibration->depths[i], error));
		calibration->depth_count = i + 1;
		if (!tci_stage_allows(clockwork, tci_clockwork_ps(clockwork) - start))
			break;
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- curves */

static enum tc_status measure_curve(struct drive *drive, enum tci_stage stage,
                                    struct tci_curve_points *curve, uint64_t largest,
                                    struct tc_error *error)
{
	struct tci_clockwork *clockwork = &drive->calibration->clockwork;
	bool quick = drive->calibration->options->quick;
	uint64_t burst = quick ? QUICK_BYTES : BURST_BYTES;
	size_t points = 0;
	largest = quick && largest > QUICK_BYTES ? QUICK_BYTES : largest;
	for (uint64_t bytes = SMALLEST_BYTES; bytes <= largest; bytes *= 4)
		++points;
	tci_stage_begin(clockwork, stage, points);
	for (uint64_t bytes = SMALLEST_BYTES; bytes <= largest && curve->count < TCI_MOST_POINTS;
	     bytes *= 4) {
		char size[TC_UNIT_TEXT_BYTES];
		uint64_t tasks = burst / bytes;
		tasks = tasks > MOST_TASKS ? MOST_TASKS : tasks > 0 ? tasks : 1;
		TC_TRY(measure_burst(drive, stage == TCI_STAGE_DRIVE_READ ? READS : WRITES, bytes,
		                     (size_t)tasks, tc_format_bytes(bytes, size),
		                     &curve->rates[curve->count], error));
		uint64_t rate = curve->rates[curve->count].value;
		curve->bytes[curve->count++] = bytes;
		/* Three samples of the next size must fit. */
		uint64_t next = UINT64_MAX;
		(void)tc_mul_div_ceil(3 * 4 * bytes, TC_PS_PER_S, rate, &next);
		if (!tci_stage_allows(clockwork, next))
			break;
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- directories */

/** Drives are told apart by device: two folders of one drive are one. */
static enum tc_status look_at_directories(struct tci_calibration *calibration, uint64_t *free_bytes,
                                          struct tc_error *error)
{
	const struct tci_calibrate_options *options = calibration->options;
	struct stat facts, other;
	*free_bytes = UINT64_MAX;
	for (size_t i = 0; i < options->directory_count; ++i) {
		const char *path = options->directories[i];
		struct statvfs room;
		if (stat(path, &facts) != 0 || statvfs(path, &room) != 0)
			return tc_error_set(error, TC_IO, "--nvme-dir %s: %s", path,
			                    strerror(errno));
		uint64_t bytes;
		if (!tc_mul_u64(room.f_bavail, room.f_frsize, &bytes))
			bytes = UINT64_MAX;
		*free_bytes = bytes < *free_bytes ? bytes : *free_bytes;
		bool seen = false;
		for (size_t j = 0; j < i && !seen; ++j)
			seen = stat(options->directories[j], &other) == 0 &&
			       other.st_dev == facts.st_dev;
		calibration->drives += !seen;
	}
	return TC_OK;
}

/** As large as the largest copy, but at most a quarter of what is free. */
static enum tc_status choose_file(const struct tci_calibration *calibration, uint64_t free_bytes,
                                  uint64_t *bytes, struct tc_error *error)
{
	char room[TC_UNIT_TEXT_BYTES], need[TC_UNIT_TEXT_BYTES];
	uint64_t wanted = calibration->largest_bytes;
	wanted = wanted < SMALLEST_FILE_BYTES ? SMALLEST_FILE_BYTES : wanted;
	wanted = wanted > free_bytes / 4 ? free_bytes / 4 : wanted;
	*bytes = wanted / MIB * MIB;
	if (*bytes >= SMALLEST_FILE_BYTES)
		return TC_OK;
	return tc_error_set(error, TC_IO,
	                    "%s: %s are free, but measuring takes at least %s, four times its "
	                    "smallest file; free some or name another --nvme-dir",
	                    calibration->options->directories[0], tc_format_bytes(free_bytes, room),
	                    tc_format_bytes(4 * SMALLEST_FILE_BYTES, need));
}

static enum tc_status measure(struct drive *drive, uint64_t bytes, struct tc_error *error)
{
	struct tci_calibration *calibration = drive->calibration;
	TC_TRY(measure_depths(drive, error));
	TC_TRY(tci_check_interrupt(error));
	TC_TRY(open_storage(drive, bytes, DEFAULT_DEPTH, error));
	TC_TRY(measure_curve(drive, TCI_STAGE_DRIVE_READ, &calibration->read, bytes, error));
	TC_TRY(measure_curve(drive, TCI_STAGE_DRIVE_WRITE, &calibration->write, bytes, error));
	drive->backend->facts(drive->self, &calibration->facts);
	return TC_OK;
}

enum tc_status tci_look_at_drives(struct tci_calibration *calibration, struct tc_error *error)
{
	TC_TRY(look_at_directories(calibration, &calibration->drive_capacity_bytes, error));
	return choose_file(calibration, calibration->drive_capacity_bytes,
	                   &calibration->drive_file_bytes, error);
}

enum tc_status tci_measure_drives(struct tci_calibration *calibration, struct tc_error *error)
{
	uint64_t bytes = calibration->drive_file_bytes;
	struct drive *drive = calloc(1, sizeof *drive);
	if (drive == NULL)
		return tc_error_no_memory(error, "a drive's tasks", sizeof *drive);
	enum tc_status status = open_drive(drive, calibration, bytes, error);
	if (status == TC_OK)
		status = measure(drive, bytes, error);
	close_drive(drive);
	return status;
}
