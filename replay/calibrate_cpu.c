/**
 * @file calibrate_cpu.c
 * What the cores do together: AdamW as the replayer runs it, a conversion from float32 to bfloat16,
 * and the triad a = b + s x c, whose bandwidth is what is called the memory's (McCalpin, STREAM: 24
 * bytes an element). Each works on more than the caches hold, in memory of the kind that the
 * optimizer works on in replays: small pages would halve its rate.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate_parts.h"

/** Elements that are mapped to gradients and updated at a time. */
#define PIECE 2048u
#define ADAM_ELEMENTS (UINT64_C(16) << 20)
#define TRIAD_ELEMENTS (UINT64_C(8) << 20)
#define CONVERT_ELEMENTS (UINT64_C(32) << 20)
#define QUICK_DIVISOR 16u
#define TRIAD_BYTES 24u
#define CONVERT_BYTES 6u

/** Work on arrays of `elements`; those that the part does not use are NULL. */
struct cpu_work {
	void (*part)(const struct cpu_work *work, uint64_t first, uint64_t last);
	float *master, *gradient, *exp_avg, *exp_avg_sq; /**< Adam */
	double *a, *b, *c;                               /**< triad */
	uint16_t *half;                                  /**< conversion of `master` */
	uint64_t elements;
};

struct cpu_thread {
	pthread_t thread;
	struct cpu_crew *crew;
	uint32_t number;
	uint64_t start_ps, end_ps;
};

/** One thread for each core, the caller included. */
struct cpu_crew {
	struct cpu_thread *threads;
	uint32_t count;
	struct tci_clockwork *clockwork;
	const struct tci_calibration *calibration;
	void *device; /**< gives the memory */
	const struct cpu_work *work;
};

/* ---------------------------------------------------------------- the work */

static void adam_part(const struct cpu_work *work, uint64_t first, uint64_t last)
{
	const struct tc_adam adam = {.learning_rate = 1e-4f,
	                             .beta1 = 0.9f,
	                             .beta2 = 0.999f,
	                             .epsilon = 1e-8f,
	                             .weight_decay = 0.01f,
	                             .step = 3};
	float gradient[PIECE];
	for (uint64_t e = first; e < last; e += PIECE) {
		uint64_t count = last - e < PIECE ? last - e : PIECE;
		tc_adam_gradient(work->gradient + e, gradient, count);
		tc_adam_update(&adam, work->master + e, gradient, work->exp_avg + e,
		               work->exp_avg_sq + e, count);
	}
}

static void triad_part(const struct cpu_work *work, uint64_t first, uint64_t last)
{
	double *restrict a = work->a;
	const double *restrict b = work->b, *restrict c = work->c;
	for (uint64_t e = first; e < last; ++e)
		a[e] = b[e] + 3.0 * c[e];
}

/** Round to nearest, ties to even, as PyTorch does; the content has no NaN. */
static void convert_part(const struct cpu_work *work, uint64_t first, uint64_t last)
{
	for (uint64_t e = first; e < last; ++e) {
		uint32_t bits;
		memcpy(&bits, work->master + e, sizeof bits);
		work->half[e] = (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
	}
}

static void touch_part(const struct cpu_work *work, uint64_t first, uint64_t last)
{
	for (uint64_t e = first; e < last; ++e) {
		if (work->a != NULL) {
			work->a[e] = 0.0;
			work->b[e] = 1.0;
			work->c[e] = 2.0;
		} else {
			work->master[e] = 0.5f;
			if (work->half != NULL) {
				work->half[e] = 0;
			} else {
				work->gradient[e] = 0.25f;
				work->exp_avg[e] = 0.0f;
				work->exp_avg_sq[e] = 0.0f;
			}
		}
	}
}

/* ---------------------------------------------------------------- the crew */

/** The share of one thread, in whole pieces. */
static void *do_share(void *self)
{
	struct cpu_thread *thread = self;
	const struct cpu_crew *crew = thread->crew;
	const struct cpu_work *work = crew->work;
	uint64_t share = work->elements / crew->count / PIECE * PIECE;
	uint64_t first = share * thread->number;
	thread->start_ps = tci_clockwork_ps(crew->clockwork);
	work->part(work, first, thread->number + 1 == crew->count ? work->elements : first + share);
	thread->end_ps = tci_clockwork_ps(crew->clockwork);
	return NULL;
}

/** Everybody works once. @param ps from the first start to the last end */
static enum tc_status run_crew(struct cpu_crew *crew, const struct cpu_work *work, uint64_t *ps,
                               struct tc_error *error)
{
	uint32_t started = 0, last = crew->count - 1;
	uint64_t start = UINT64_MAX, end = 0;
	crew->work = work;
	for (; started < last; ++started)
		if (pthread_create(&crew->threads[started].thread, NULL, do_share,
		                   &crew->threads[started]) != 0)
			break;
	if (started == last)
		(void)do_share(&crew->threads[last]);
	for (uint32_t i = 0; i < started; ++i)
		(void)pthread_join(crew->threads[i].thread, NULL);
	if (started < last)
		return tc_error_set(error, TC_NO_MEMORY,
		                    "cannot start %u threads, one for each core; is there a limit "
		                    "(ulimit -u)?",
		                    last);
	for (uint32_t i = 0; i < crew->count; ++i) {
		start = crew->threads[i].start_ps < start ? crew->threads[i].start_ps : start;
		end = crew->threads[i].end_ps > end ? crew->threads[i].end_ps : end;
	}
	*ps = end > start ? end - start : 1;
	return TC_OK;
}

static enum tc_status open_crew(struct cpu_crew *crew, struct tci_calibration *calibration,
                                struct tc_error *error)
{
	*crew = (struct cpu_crew){
	    .threads = tc_alloc_array(calibration->cores, sizeof *crew->threads),
	    .count = calibration->cores,
	    .clockwork = &calibration->clockwork,
	    .calibration = calibration,
	};
	if (crew->threads == NULL)
		return tc_error_no_memory(error, "threads", calibration->cores);
	for (uint32_t i = 0; i < crew->count; ++i)
		crew->threads[i] = (struct cpu_thread){.crew = crew, .number = i};
	return TC_OK;
}

/* ---------------------------------------------------------------- measuring */

/** @param each what one element counts for: 1 parameter, 24 bytes */
static enum tc_status measure_work(struct cpu_crew *crew, struct cpu_work *work,
                                   void (*part)(const struct cpu_work *work, uint64_t first,
                                                uint64_t last),
                                   uint64_t each, const char *what, struct tci_measured *measured,
                                   struct tc_error *error)
{
	struct tci_samples samples = {0};
	uint64_t ps;
	tci_point_begin(crew->clockwork, what);
	work->part = touch_part;
	TC_TRY(run_crew(crew, work, &ps, error));
	work->part = part;
	TC_TRY(run_crew(crew, work, &ps, error)); /* not counted */
	while (tci_point_wants(crew->clockwork, samples.count)) {
		TC_TRY(tci_check_interrupt(error));
		TC_TRY(run_crew(crew, work, &ps, error));
		samples.values[samples.count++] = tci_rate(work->elements * each, ps);
	}
	*measured = tci_samples_median(&samples);
	return TC_OK;
}

/** Arrays one behind the other in memory that the optimizer of a replay works on, too: pinned. */
static enum tc_status allocate(struct cpu_crew *crew, uint64_t bytes, unsigned char **memory,
                               struct tc_error *error)
{
	void *pages;
	TC_TRY(
	    crew->calibration->device->allocate(crew->device, TC_CPU, true, bytes, &pages, error));
	*memory = pages;
	return TC_OK;
}

static void release(struct cpu_crew *crew, unsigned char *memory, uint64_t bytes)
{
	crew->calibration->device->release(crew->device, memory, bytes);
}

static enum tc_status measure_adam(struct cpu_crew *crew, uint64_t elements,
                                   struct tci_measured *measured, struct tc_error *error)
{
	uint64_t array = elements * sizeof(float);
	unsigned char *memory;
	TC_TRY(allocate(crew, 4 * array, &memory, error));
	struct cpu_work work = {.elements = elements,
	                        .master = (float *)(void *)memory,
	                        .gradient = (float *)(void *)(memory + array),
	                        .exp_avg = (float *)(void *)(memory + 2 * array),
	                        .exp_avg_sq = (float *)(void *)(memory + 3 * array)};
	enum tc_status status = measure_work(crew, &work, adam_part, 1, "AdamW", measured, error);
	release(crew, memory, 4 * array);
	return status;
}

static enum tc_status measure_triad(struct cpu_crew *crew, uint64_t elements,
                                    struct tci_measured *measured, struct tc_error *error)
{
	uint64_t array = elements * sizeof(double);
	unsigned char *memory;
	TC_TRY(allocate(crew, 3 * array, &memory, error));
	struct cpu_work work = {.elements = elements,
	                        .a = (double *)(void *)memory,
	                        .b = (double *)(void *)(memory + array),
	                        .c = (double *)(void *)(memory + 2 * array)};
	enum tc_status status =
	    measure_work(crew, &work, triad_part, TRIAD_BYTES, "memory bandwidth", measured, error);
	release(crew, memory, 3 * array);
	return status;
}

static enum tc_status measure_conversion(struct cpu_crew *crew, uint64_t elements,
                                         struct tci_measured *measured, struct tc_error *error)
{
	uint64_t source = elements * sizeof(float), bytes = source + elements * sizeof(uint16_t);
	unsigned char *memory;
	TC_TRY(allocate(crew, bytes, &memory, error));
	struct cpu_work work = {.elements = elements,
	                        .master = (float *)(void *)memory,
	                        .half = (uint16_t *)(void *)(memory + source)};
	enum tc_status status =
	    measure_work(crew, &work, convert_part, CONVERT_BYTES, "conversion", measured, error);
	release(crew, memory, bytes);
	return status;
}

enum tc_status tci_measure_cpu(struct tci_calibration *calibration, struct tc_error *error)
{
	uint64_t divisor = calibration->options->quick ? QUICK_DIVISOR : 1;
	struct cpu_crew crew;
	TC_TRY(open_crew(&crew, calibration, error));
	tci_stage_begin(&calibration->clockwork, TCI_STAGE_CPU, 3);
	enum tc_status status = calibration->device->create(
	    1, tci_clockwork_ps, &calibration->clockwork, &crew.device, error);
	if (status == TC_OK)
		status = measure_triad(&crew, TRIAD_ELEMENTS / divisor, &calibration->dram, error);
	if (status == TC_OK)
		status = measure_adam(&crew, ADAM_ELEMENTS / divisor, &calibration->adam, error);
	if (status == TC_OK)
		status = measure_conversion(&crew, CONVERT_ELEMENTS / divisor, &calibration->stream,
		                            error);
	if (crew.device != NULL)
		calibration->device->destroy(crew.device);
	free(crew.threads);
	return status;
}
