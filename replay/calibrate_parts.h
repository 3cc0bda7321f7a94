/**
 * @file calibrate_parts.h
 * Inside of calibration: samples, progress, and one part per thing that is measured.
 */
#ifndef TENCACHE_REPLAY_CALIBRATE_PARTS_H
#define TENCACHE_REPLAY_CALIBRATE_PARTS_H

#include <jansson.h>
#include <time.h>

#include "tencache/machine.h"
#include "tencache/replay.h"
#include "tencache/units.h"

/* ---------------------------------------------------------------- options */

struct tci_calibrate_options {
	const char *device;  /**< default host */
	const char *storage; /**< default auto */
	const char *output, *base;
	const char **directories; /**< owned; the strings are argv's */
	size_t directory_count, directory_capacity;
	bool quick, quiet, help;
};

/** Unknown options suggest the nearest. Free with tci_calibrate_options_clear(), in any case. */
enum tc_status tci_calibrate_options_parse(int argc, char **argv,
                                           struct tci_calibrate_options *options,
                                           struct tc_error *error);
void tci_calibrate_options_clear(struct tci_calibrate_options *options);
void tci_calibrate_help(void);

/* ---------------------------------------------------------------- samples (calibrate_sample.c) */

#define TCI_MOST_SAMPLES 9u
#define TCI_MOST_POINTS 24u

struct tci_samples {
	uint64_t values[TCI_MOST_SAMPLES];
	uint32_t count;
};

/** Median of repeated samples. */
struct tci_measured {
	uint64_t value;
	uint32_t samples;    /**< 0: not measured */
	uint32_t spread_ppm; /**< middle half of the samples (third minus first quartile), of the
	                          median */
};

struct tci_measured tci_samples_median(const struct tci_samples *samples);
/** bytes (or anything else) a second; 1 at least, so that a rate is never zero. */
uint64_t tci_rate(uint64_t bytes, uint64_t ps);

struct tci_curve_points {
	uint64_t bytes[TCI_MOST_POINTS];
	struct tci_measured rates[TCI_MOST_POINTS];
	size_t count;
};

/* ---------------------------------------------------------------- progress and time */

/** The parts that are shown with their share of the time. */
enum tci_stage {
	TCI_STAGE_COPY_UP,
	TCI_STAGE_COPY_DOWN,
	TCI_STAGE_COPY_BOTH,
	TCI_STAGE_CPU,
	TCI_STAGE_DEPTHS,
	TCI_STAGE_DRIVE_READ,
	TCI_STAGE_DRIVE_WRITE,
	TCI_STAGE_COUNT
};

struct tci_clockwork {
	struct timespec base;
	bool shown;  /**< stderr is a terminal, and not --quiet */
	bool quick;  /**< a hundredth of the time */
	bool drives; /**< the drive's stages take place */
	enum tci_stage stage;
	uint64_t stage_start_ps, stage_budget_ps;
	size_t point, points; /**< of the stage: done, in all */
	uint64_t point_start_ps;
};

void tci_clockwork_start(struct tci_clockwork *clockwork);
/** Time since the start; for backends, too: `clockwork` is a struct tci_clockwork. */
uint64_t tci_clockwork_ps(void *clockwork);
void tci_stage_begin(struct tci_clockwork *clockwork, enum tci_stage stage, size_t points);
/** The next point of the stage; `what` for the line on the terminal ("4.00 MiB"). */
void tci_point_begin(struct tci_clockwork *clockwork, const char *what);
/** Whether to take another sample: too few so far, or time is left for this point. */
bool tci_point_wants(const struct tci_clockwork *clockwork, uint32_t samples);
/** Whether a further point of the stage that takes about `ps` has its time. */
bool tci_stage_allows(const struct tci_clockwork *clockwork, uint64_t ps);
void tci_clockwork_done(struct tci_clockwork *clockwork);

/* ---------------------------------------------------------------- everything */

#define TCI_MOST_DEPTHS 6u

struct tci_depth_rates {
	uint32_t depth;
	struct tci_measured read, write, mixed;
};

struct tci_calibration {
	const struct tci_calibrate_options *options;
	const struct tc_device_backend *device;
	const struct tc_storage_backend *storage;
	struct tci_clockwork clockwork;
	uint64_t largest_bytes; /**< of a copy, of a transfer */
	uint32_t cores;

	struct tci_curve_points up, down, both; /**< host to GPU, GPU to host, their sum at once */
	struct tci_measured pageable;           /**< rate of copies from unpinned memory */
	struct tci_measured issue_ps;           /**< of the issuing thread, for each command */
	/** From the end of a command until one on another queue that waited has begun. */
	struct tci_measured handover_ps[TC_HANDOVER_COUNT];
	struct tci_measured round_trip_ps;      /**< of the smallest copy on an idle lane */
	struct tci_measured pin;                /**< bytes a second */
	struct tci_measured adam, stream, dram; /**< all cores together; a second */

	struct tci_curve_points read, write;
	struct tci_depth_rates depths[TCI_MOST_DEPTHS];
	size_t depth_count;
	uint32_t drives;
	uint64_t drive_capacity_bytes; /**< free bytes of the smallest, where the base has none */
	uint64_t drive_file_bytes;     /**< of the file that is read and written */
	struct tc_storage_facts facts;
};

/** TC_INTERNAL with a text that says so once SIGINT or SIGTERM has arrived (they are blocked). */
enum tc_status tci_check_interrupt(struct tc_error *error);

enum tc_status tci_measure_copies(struct tci_calibration *calibration, struct tc_error *error);
enum tc_status tci_measure_command(struct tci_calibration *calibration, struct tc_error *error);
enum tc_status tci_measure_cpu(struct tci_calibration *calibration, struct tc_error *error);
/** Before anything is measured: can they be, and in how large a file? */
enum tc_status tci_look_at_drives(struct tci_calibration *calibration, struct tc_error *error);
enum tc_status tci_measure_drives(struct tci_calibration *calibration, struct tc_error *error);
/** The description as JSON text, checked by reading it back; free() it. `machine` receives it. */
enum tc_status tci_describe(const struct tci_calibration *calibration,
                            const struct tc_machine *base, char **text, struct tc_machine **machine,
                            struct tc_error *error);

/* ---------------------------------------------------------------- probes (calibrate_probe.c) */

/** How long compute commands of a probe are held. */
#define TCI_PROBE_HOLD_PS (50 * TC_PS_PER_US)

/** A small schedule for the executor, and how to read a figure out of its times. */
struct tci_probe {
	const enum tc_queue *queues; /**< in turn: h2d, d2h, compute, cpu or nvme_read */
	size_t queue_count;
	uint32_t commands;
	bool is_chain; /**< each command waits for the one before */
	uint64_t (*read)(const struct tc_timing *timings, uint32_t count);
};

/** Run it several times. @param measured the median of the figures */
enum tc_status tci_probe(const struct tci_calibration *calibration, const struct tci_probe *probe,
                         struct tci_measured *measured, struct tc_error *error);

/* ---------------------------------------------------------------- bursts (calibrate_burst.c) */

/** Waits for tasks of either backend and notes when the first began and the last ended. */
struct tci_burst;
enum tc_status tci_burst_create(struct tci_burst **burst, struct tc_error *error);
void tci_burst_free(struct tci_burst *burst);
/** `tasks` are about to be submitted. */
void tci_burst_begin(struct tci_burst *burst, size_t tasks);
/** done() of device and storage tasks whose done_self is the burst. */
void tci_burst_device_done(void *self, const struct tc_device_task *task, uint64_t start_ps,
                           uint64_t end_ps, enum tc_status status, const char *message);
void tci_burst_storage_done(void *self, const struct tc_storage_task *task, uint64_t start_ps,
                            uint64_t end_ps, enum tc_status status, const char *message);
/** A task that could not be submitted is counted as done. */
void tci_burst_skip(struct tci_burst *burst, size_t tasks);
/** Wait for all; the first failure is returned. `ps`: from the first start to the last end. */
enum tc_status tci_burst_wait(struct tci_burst *burst, uint64_t *ps, struct tc_error *error);

#endif
