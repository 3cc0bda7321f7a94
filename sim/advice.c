/**
 * @file advice.c
 * What limits a run and what would help most cheaply. Read off the stall causes (exact shares of
 * the iteration) and the busy shares of queues; no model beyond that, so the line says where time
 * goes, not how much a change would save.
 *
 * The rule of thumb for links: streaming a parameter of w bytes over a link of B bytes/s takes w /
 * B, its forward pass 2 operations per token, so copies hide behind forward from w F / (2 B) tokens
 * per micro-batch on (backward: half of that).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "print.h"
#include "tencache/units.h"

/** Per mille of the iteration. */
static uint64_t share(const struct tc_result *result, uint64_t ps)
{
	uint64_t value = 0;
	if (result->iteration_ps == 0 || !tc_mul_div_floor(ps, 1000, result->iteration_ps, &value))
		return 0;
	return value;
}

static enum tc_queue busier(const struct tc_result *result, const enum tc_queue *queues,
                            size_t count)
{
	enum tc_queue best = queues[0];
	for (size_t i = 1; i < count; ++i)
		if (result->transfers[queues[i]].busy_ps > result->transfers[best].busy_ps)
			best = queues[i];
	return best;
}

/** "h2d is busy 45 % of the time" */
static void say_busy(const struct tc_result *result, enum tc_queue queue, char *text, size_t bytes)
{
	uint64_t busy = share(result, result->transfers[queue].busy_ps);
	(void)snprintf(text, bytes, "%s is busy %" PRIu64 ".%" PRIu64 " %% of the time",
	               tc_queue_name(queue), busy / 10, busy % 10);
}

static void fix_link(const struct tci_document *document, char *fix, size_t bytes)
{
	const struct tc_trace *trace = document->trace;
	const struct tc_machine *machine = document->machine;
	enum tc_dtype dtype = trace->compute_dtype;
	uint64_t width = tc_dtype_bytes(trace->param_dtype), needed = 0;
	uint64_t have = trace->batch * trace->sequence;
	if (width == 0 || !tc_mul_div_ceil(machine->flops_per_s[dtype][TC_GEMM], width,
	                                   2 * machine->h2d.bytes_per_s, &needed))
		needed = 0;
	if (needed > 0 && have > 0 && have < needed)
		(void)snprintf(
		    fix, bytes,
		    "a larger micro-batch: copies of weights hide behind forward from about "
		    "%" PRIu64 " tokens on, this trace has %" PRIu64,
		    needed, have);
	else
		(void)snprintf(
		    fix, bytes,
		    "more GPU memory for parameters (--gpu-memory), so that less is copied; "
		    "then a faster link");
}

static void fix_optimizer(const struct tci_document *document, char *fix, size_t bytes)
{
	const struct tc_machine *machine = document->machine;
	uint64_t cores = 0, memory = machine->dram_bytes_per_s / 28;
	if (!tc_mul_u64(machine->cpu_cores, machine->adam_parameters_per_s_per_core, &cores))
		cores = UINT64_MAX;
	if (cores < memory)
		(void)snprintf(fix, bytes,
		               "more CPU cores (%" PRIu64
		               " update %.2f G parameters/s, host memory "
		               "would allow %.2f), or more tokens per optimizer step",
		               machine->cpu_cores, (double)cores / 1e9, (double)memory / 1e9);
	else
		(void)snprintf(
		    fix, bytes,
		    "more tokens per optimizer step (larger batch, gradient accumulation); "
		    "more cores do not help, host memory limits updates to %.2f G "
		    "parameters/s (cores: %.2f)",
		    (double)memory / 1e9, (double)cores / 1e9);
}

/** What moves a policy's data from the drives to host memory, where that has room. */
static const char *host_memory_parameter(const struct tc_result *result)
{
	static const struct {
		const char *policy, *parameter;
	} known[] = {{"10cache", " (and a larger f-fp32)"},
	             {"lru", " (and state=cpu)"},
	             {"belady", " (and state=cpu)"},
	             {"zero-infinity", " (and device=cpu)"}};
	const char *policy = result->choice == NULL ? "" : result->choice->policy->name;
	for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
		if (strcmp(policy, known[i].policy) == 0)
			return known[i].parameter;
	return "";
}

static void fix_nvme(const struct tci_document *document, const struct tc_result *result, char *fix,
                     size_t bytes)
{
	const struct tc_memory_report *cpu = &result->memory[TC_CPU];
	uint64_t on_drive = result->memory[TC_NVME].peak_bytes;
	uint64_t room =
	    cpu->capacity_bytes > cpu->peak_bytes ? cpu->capacity_bytes - cpu->peak_bytes : 0;
	char drive[TC_UNIT_TEXT_BYTES], missing[TC_UNIT_TEXT_BYTES];
	tc_format_bytes(on_drive, drive);
	if (on_drive > 0 && on_drive <= room)
		(void)snprintf(fix, bytes,
		               "keep in host memory what is on the drives: %s would fit%s", drive,
		               host_memory_parameter(result));
	else
		(void)snprintf(
		    fix, bytes,
		    "a faster drive or one more of %" PRIu32
		    " in the stripe; with about %s more host memory nothing need be on drives%s",
		    document->machine->nvme_drives,
		    tc_format_bytes(on_drive > room ? on_drive - room : 0, missing),
		    host_memory_parameter(result));
}

/** Most of the idle time lies in the optimizer phase. */
static bool in_optimizer(const struct tc_result *result)
{
	return result->phases[TC_OPTIMIZER].stall_ps > result->stall_ps / 2;
}

/** Late copies: of the optimizer's state, or of what forward and backward need. */
static void fix_late(const struct tc_result *result, char *fix, size_t bytes)
{
	uint64_t read = share(result, result->transfers[TC_QUEUE_NVME_READ].busy_ps);
	uint64_t write = share(result, result->transfers[TC_QUEUE_NVME_WRITE].busy_ps);
	char drives[160] = "";
	/* Moves that take turns with the rest are waited for in full: their speed counts, too. */
	if (read + write >= 250)
		(void)snprintf(drives, sizeof drives,
		               "; faster drives shorten it as well (reading %" PRIu64 ".%" PRIu64
		               " %%, writing %" PRIu64 ".%" PRIu64 " %% of the time)",
		               read / 10, read % 10, write / 10, write % 10);
	if (in_optimizer(result))
		(void)snprintf(
		    fix, bytes,
		    "overlap in the optimizer phase, where moving and updating take turns: a "
		    "policy that pipelines them, or more tokens per optimizer step%s",
		    drives);
	else
		(void)snprintf(
		    fix, bytes,
		    "a policy that fetches ahead, or a longer prefetch distance, which takes "
		    "GPU memory");
}

static const char *cause_text(enum tc_stall_cause cause)
{
	static const char *const texts[TC_STALL_CAUSE_COUNT] = {
	    [TC_STALL_ISSUED_LATE] = "work that is issued too late to hide",
	    [TC_STALL_LINK_BUSY] = "the link between host and GPU",
	    [TC_STALL_NVME] = "the drives",
	    [TC_STALL_NO_BUFFER] = "memory that is given back too late",
	    [TC_STALL_OPTIMIZER] = "the optimizer on the CPU",
	    [TC_STALL_HOST_CALL] = "the thread that issues the work",
	    [TC_STALL_FAULT] = "faults",
	};
	return texts[cause];
}

static void fix_for(const struct tci_document *document, const struct tc_result *result,
                    enum tc_stall_cause cause, char *fix, size_t bytes)
{
	switch (cause) {
	case TC_STALL_LINK_BUSY:
		fix_link(document, fix, bytes);
		break;
	case TC_STALL_NVME:
		fix_nvme(document, result, fix, bytes);
		break;
	case TC_STALL_OPTIMIZER:
		fix_optimizer(document, fix, bytes);
		break;
	case TC_STALL_ISSUED_LATE:
		fix_late(result, fix, bytes);
		break;
	case TC_STALL_NO_BUFFER:
		(void)snprintf(fix, bytes, "more GPU memory (--gpu-memory) or larger buffers");
		break;
	case TC_STALL_HOST_CALL:
		(void)snprintf(
		    fix, bytes,
		    "fewer and larger operations: a larger micro-batch, fused kernels, CUDA "
		    "graphs");
		break;
	default:
		(void)snprintf(fix, bytes, "see the messages of the run");
	}
}

static enum tc_queue queue_of(const struct tc_result *result, enum tc_stall_cause cause)
{
	static const enum tc_queue links[] = {TC_QUEUE_H2D, TC_QUEUE_D2H};
	static const enum tc_queue drives[] = {TC_QUEUE_NVME_READ, TC_QUEUE_NVME_WRITE,
	                                       TC_QUEUE_GPU_NVME};
	static const enum tc_queue all[] = {TC_QUEUE_H2D,        TC_QUEUE_D2H, TC_QUEUE_NVME_READ,
	                                    TC_QUEUE_NVME_WRITE, TC_QUEUE_CPU, TC_QUEUE_GPU_NVME};
	if (cause == TC_STALL_OPTIMIZER)
		return TC_QUEUE_CPU;
	if (cause == TC_STALL_LINK_BUSY)
		return busier(result, links, 2);
	if (cause == TC_STALL_NVME)
		return busier(result, drives, 3);
	return busier(result, all, 6);
}

void tci_advise(const struct tci_document *document, const struct tc_result *result, char *text)
{
	char busy[96], fix[512];
	enum tc_stall_cause worst = TC_STALL_ISSUED_LATE;
	for (size_t cause = 1; cause < TC_STALL_CAUSE_COUNT; ++cause)
		if (result->stalls_ps[cause] > result->stalls_ps[worst])
			worst = (enum tc_stall_cause)cause;
	uint64_t compute = share(result, result->compute_ps);
	uint64_t stall = share(result, result->stalls_ps[worst]);
	/* Below one per cent in all there is nothing to gain from moving data better. */
	if (share(result, result->stall_ps) < 10) {
		enum tc_queue next = queue_of(result, TC_STALL_HOST_CALL);
		if (result->transfers[next].busy_ps > 0)
			say_busy(result, next, busy, sizeof busy);
		else
			(void)snprintf(busy, sizeof busy, "no data moves");
		(void)snprintf(
		    text, TCI_ADVICE_BYTES,
		    "GPU compute, %" PRIu64 ".%" PRIu64
		    " %% of the iteration; next: %s. Cheapest fix: none needed for memory",
		    compute / 10, compute % 10, busy);
		return;
	}
	say_busy(result, queue_of(result, worst), busy, sizeof busy);
	fix_for(document, result, worst, fix, sizeof fix);
	(void)snprintf(text, TCI_ADVICE_BYTES,
	               "%s, %" PRIu64 ".%" PRIu64 " %% of the iteration (%s). Cheapest fix: %s",
	               cause_text(worst), stall / 10, stall % 10, busy, fix);
}
