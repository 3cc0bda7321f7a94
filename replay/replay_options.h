/**
 * @file replay_options.h
 * Command line of `tencache-replay run`.
 */
#ifndef TENCACHE_REPLAY_OPTIONS_H
#define TENCACHE_REPLAY_OPTIONS_H

#include "common_options.h"
#include "tencache/replay.h"

#define TCI_MOST_DIRECTORIES 64u

struct tci_replay_options {
	struct tci_common_options common;
	const char *schedule_path, *write_path, *policy, *storage, *device;
	const char *directories[TCI_MOST_DIRECTORIES];
	size_t directory_count;
	uint64_t scale, dilate, check_ppm, depth, block_bytes;
	uint32_t threads;
	enum tc_verify verify;
	enum tc_compute_mode compute;
	bool throttle, check, buffered;
};

/** As tci_run_options_parse(); free with tci_replay_options_clear() in any case. */
enum tc_status tci_replay_options_parse(int argc, char **argv, struct tci_replay_options *options,
                                        struct tc_error *error);
void tci_replay_options_clear(struct tci_replay_options *options);
void tci_replay_run_help(void);

#endif
