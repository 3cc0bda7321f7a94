/** @file program.h
 * A small schedule built by hand, run through the engine, and what came out of it. */
#ifndef TENCACHE_TEST_PROGRAM_H
#define TENCACHE_TEST_PROGRAM_H

#include "tencache/engine.h"

#define PROGRAM_DEPS 12

struct program {
	struct tc_command *commands;
	struct tc_dependency (*deps)[PROGRAM_DEPS];
	struct tc_served (*served)[PROGRAM_DEPS];
	size_t count, capacity;
};

void program_init(struct program *program);
void program_free(struct program *program);

/** Append a command; its lists start empty. @return its id */
uint64_t program_add(struct program *program, enum tc_queue queue, enum tc_command_kind kind);
uint64_t program_compute(struct program *program, uint64_t duration_ps);
/** A copy on h2d, d2h, nvme_read or nvme_write. */
uint64_t program_copy(struct program *program, enum tc_queue queue, uint64_t bytes);
/** A CPU update of `parameters` with 28 bytes of traffic each. */
uint64_t program_update(struct program *program, uint64_t parameters);
uint64_t program_wait(struct program *program, uint64_t on);
/** `id` waits for `on`. */
void program_depend(struct program *program, uint64_t id, uint64_t on, enum tc_reason reason);
void program_serve(struct program *program, uint64_t id, uint64_t served_by);
/** The command, for fields that the calls above do not set. Valid until the next one is added. */
struct tc_command *program_at(struct program *program, uint64_t id);

struct timed {
	struct tc_timing timing;
	bool ready[PROGRAM_DEPS];
	uint64_t order; /**< place in the order of reports */
};

/** Timings by id; checks that reports came once each, by end time, ties by id. */
struct timed *program_run(const struct program *program, const struct tc_machine *machine);
/** As above; the engine's status, and where it is TC_OK the timings. */
enum tc_status program_try(const struct program *program, const struct tc_machine *machine,
                           bool use_memo, struct timed **timed, struct tc_error *error);
/** Push commands first ... count-1 into a sink. */
enum tc_status program_play(const struct program *program, const struct tc_sink *sink,
                            struct tc_error *error);

#endif
