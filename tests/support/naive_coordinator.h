/**
 * A naive model of DeepSpeed's parameter coordinator (ZeRO stage 3, one GPU), written from the
 * description of its behaviour with plain lists and full scans, apart from the policy.
 *
 * A stream is text: `l3` read of parameter 3 from the drive, `d3` demand fetch, `p3` prefetch, `w`
 * a wait of the issuing thread, `x3` dropped from the GPU, `y3` dropped from its staging buffer,
 * `c` compute of one step.
 */
#ifndef TENCACHE_TEST_NAIVE_COORDINATOR_H
#define TENCACHE_TEST_NAIVE_COORDINATOR_H

#include "tencache/steps.h"

#define COORDINATOR_TEXT_BYTES 65536

struct coordinator_text {
	char items[COORDINATOR_TEXT_BYTES];
	size_t length;
};

/** Append one word; `parameter` TC_NONE: just the letter. */
void coordinator_say(struct coordinator_text *text, char what, uint32_t parameter);

/** Elements; `buffers`: staging buffers. */
struct naive_settings {
	bool nvme;
	uint64_t prefetch, live, reuse, persistence, buffers;
};

struct naive_coordinator;
/** Borrows trace and steps. */
struct naive_coordinator *naive_coordinator_new(const struct tc_trace *trace,
                                                const struct tc_steps *steps,
                                                const struct naive_settings *settings);
/** The stream of one iteration up to its last compute step; valid until the next call. */
const char *naive_coordinator_run(struct naive_coordinator *naive, bool recorded);
void naive_coordinator_free(struct naive_coordinator *naive);

#endif
