/*
 * What a policy that refines by simulation learns of a schedule: its period, whether it is steady,
 * and how busy each queue was. Cheaper than a report: three numbers an iteration are kept.
 */
#include <stdlib.h>

#include "tencache/engine.h"
#include "tencache/simulate.h"
#include "tencache/units.h"

/** Periods that differ by less than one part in this many count as equal. */
#define TCI_STEADY 1000000u

struct tci_observer {
	uint64_t *starts; /**< of each iteration's first compute command; UINT64_MAX: none yet */
	uint64_t *busy;   /**< per iteration and queue, by the iteration that issued the command */
	uint32_t iterations;
	uint64_t end;
};

static enum tc_status tci_observe(void *self, const struct tc_command *command,
                                  const struct tc_timing *timing, struct tc_error *error)
{
	struct tci_observer *observer = self;
	(void)error;
	if (timing->end_ps > observer->end)
		observer->end = timing->end_ps;
	if (command->iteration >= observer->iterations)
		return TC_OK; /* setting up */
	uint64_t *start = &observer->starts[command->iteration];
	if (command->kind == TC_COMPUTE && timing->start_ps < *start)
		*start = timing->start_ps;
	observer->busy[(size_t)command->iteration * TC_QUEUE_COUNT + command->queue] +=
	    timing->end_ps - timing->start_ps;
	return TC_OK;
}

static uint64_t tci_period(const struct tci_observer *observer, uint32_t iteration)
{
	uint64_t start = observer->starts[iteration];
	uint64_t end =
	    iteration + 1 < observer->iterations ? observer->starts[iteration + 1] : observer->end;
	return start == UINT64_MAX || end == UINT64_MAX ? 0 : end - start;
}

static void tci_conclude(const struct tci_observer *observer, struct tc_evaluation *evaluation)
{
	/* The last iteration only gives the end of the one before it, unless it is alone. */
	uint32_t last = observer->iterations > 1 ? observer->iterations - 2 : 0;
	*evaluation = (struct tc_evaluation){.period_ps = tci_period(observer, last)};
	for (size_t queue = 0; queue < TC_QUEUE_COUNT; queue++)
		evaluation->busy_ps[queue] = observer->busy[(size_t)last * TC_QUEUE_COUNT + queue];
	if (last == 0)
		return;
	uint64_t before = tci_period(observer, last - 1), period = evaluation->period_ps;
	uint64_t difference = period > before ? period - before : before - period;
	evaluation->steady = difference <= period / TCI_STEADY;
}

static enum tc_status tci_observe_schedule(const struct tc_machine *machine,
                                           const struct tc_schedule *schedule,
                                           struct tci_observer *observer, struct tc_error *error)
{
	struct tc_timing_sink timing = {.self = observer, .finished = tci_observe};
	struct tc_engine *engine = NULL;
	TC_TRY(tc_engine_create(machine, &timing, &engine, error));
	struct tc_sink sink = tc_engine_sink(engine);
	enum tc_status status = tc_schedule_play(schedule, &sink, error);
	tc_engine_free(engine);
	return status;
}

enum tc_status tc_evaluate(const struct tc_machine *machine, const struct tc_schedule *schedule,
                           struct tc_evaluation *evaluation, struct tc_error *error)
{
	struct tci_observer observer = {0};
	/* A plan that is still going on has fewer iterations than it will have. */
	for (uint64_t i = 0; i < schedule->command_count; i++) {
		uint32_t iteration = schedule->commands[i].iteration;
		if (iteration != TC_ITERATION_INIT && iteration >= observer.iterations)
			observer.iterations = iteration + 1;
	}
	observer.starts = tc_alloc_array((size_t)observer.iterations + 1, sizeof(uint64_t));
	observer.busy =
	    tc_alloc_array(((size_t)observer.iterations + 1) * TC_QUEUE_COUNT, sizeof(uint64_t));
	enum tc_status status = TC_OK;
	if (observer.starts == NULL || observer.busy == NULL || observer.iterations == 0)
		status = observer.iterations == 0
		             ? tc_error_set(error, TC_ARGUMENT, "a schedule without an iteration")
		             : tc_error_no_memory(error, "evaluation", observer.iterations);
	for (uint32_t i = 0; i < observer.iterations && status == TC_OK; i++)
		observer.starts[i] = UINT64_MAX;
	if (status == TC_OK)
		status = tci_observe_schedule(machine, schedule, &observer, error);
	if (status == TC_OK)
		tci_conclude(&observer, evaluation);
	free(observer.starts);
	free(observer.busy);
	return status;
}
