/**
 * @file replay_options.h
 * Command line of `tencache-replay run`.
 */
#ifndef TENCACHE_REPLAY_OPTIONS_H
#define TENCACHE_REPLAY_OPTIONS_H

#include "run_options.h"
#include "tencache/replay.h"

#define TCI_MOST_DIRECTORIES 64u

struct tci_replay_options {
	const char *trace_path, *schedule_path, *write_path, *machine_name, *policy;
	const char *timeline_path, *storage, *device;
	bool machine_given;
	struct tc_machine_setting *overrides; /**< owned; the strings are argv's */
	size_t override_count, override_capacity;
	const char *directories[TCI_MOST_DIRECTORIES];
	size_t directory_count;
	enum tc_granularity granularity;
	enum tc_request_mode request_mode;
	enum tc_frees frees;
	uint64_t alignment, scale, dilate, check_ppm, depth, block_bytes;
	uint32_t iterations, threads;
	enum tc_verify verify;
	enum tc_compute_mode compute;
	bool throttle, check, json, quiet, help, buffered;
};

/** As tci_run_options_parse(); free with tci_replay_options_clear() in any case. */
enum tc_status tci_replay_options_parse(int argc, char **argv, struct tci_replay_options *options,
                                        struct tc_error *error);
void tci_replay_options_clear(struct tci_replay_options *options);
void tci_replay_run_help(void);

#endif
