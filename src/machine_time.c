/**
 * @file machine_time.c
 * How long one thing takes when it has the machine to itself. Times are rounded up, as finish times
 * are in the engine.
 */
#include "tencache/machine.h"
#include "tencache/units.h"

/** Memory traffic of one Adam update: FP32 gradient, master, exp_avg, exp_avg_sq read and the
 * last three written. */
#define ADAM_BYTES_PER_PARAMETER 28

/** Lower `*rate` to a limit where there is one. */
static void limit(uint64_t *rate, uint64_t bound)
{
	if (bound > 0 && bound < *rate)
		*rate = bound;
}

uint64_t tc_machine_transfer_ps(const struct tc_machine *machine, enum tc_queue queue,
                                uint64_t bytes, bool pageable)
{
	uint64_t rate = UINT64_MAX, latency = 0, ps;
	switch (queue) {
	case TC_QUEUE_H2D:
	case TC_QUEUE_D2H: {
		const struct tc_link *link = queue == TC_QUEUE_H2D ? &machine->h2d : &machine->d2h;
		rate = link->bytes_per_s;
		latency = link->latency_ps;
		if (pageable)
			(void)tc_mul_div_floor(rate, machine->pageable_ppm, 1000000, &rate);
		limit(&rate, machine->duplex_bytes_per_s);
		limit(&rate, machine->dram_bytes_per_s / tc_machine_dram_weight(machine));
		break;
	}
	case TC_QUEUE_NVME_READ:
	case TC_QUEUE_NVME_WRITE: {
		const struct tc_link *link =
		    queue == TC_QUEUE_NVME_READ ? &machine->nvme_read : &machine->nvme_write;
		rate = link->bytes_per_s;
		latency = link->latency_ps;
		limit(&rate, machine->nvme_mixed_bytes_per_s);
		limit(&rate, machine->dram_bytes_per_s);
		break;
	}
	case TC_QUEUE_GPU_NVME:
		/* Past host memory: the slower of drive and link. */
		rate = machine->nvme_read.bytes_per_s;
		latency = machine->nvme_read.latency_ps;
		limit(&rate, machine->h2d.bytes_per_s);
		break;
	default:
		return 0;
	}
	if (rate == 0 || !tc_mul_div_ceil(bytes, TC_PS_PER_S, rate, &ps) ||
	    !tc_add_u64(ps, latency, &ps))
		return UINT64_MAX;
	return ps;
}

uint64_t tc_machine_cpu_ps(const struct tc_machine *machine, uint64_t elements,
                           uint64_t traffic_bytes)
{
	uint64_t memory_ps, core_ps, rate;
	if (elements > 0 && traffic_bytes == 0 &&
	    !tc_mul_u64(elements, ADAM_BYTES_PER_PARAMETER, &traffic_bytes))
		return UINT64_MAX;
	uint64_t per_core = elements > 0 ? machine->adam_parameters_per_s_per_core
	                                 : machine->cpu_stream_bytes_per_s_per_core;
	uint64_t work = elements > 0 ? elements : traffic_bytes;
	if (!tc_mul_u64(machine->cpu_cores, per_core, &rate))
		rate = UINT64_MAX;
	if (!tc_mul_div_ceil(work, TC_PS_PER_S, rate, &core_ps) ||
	    !tc_mul_div_ceil(traffic_bytes, TC_PS_PER_S, machine->dram_bytes_per_s, &memory_ps))
		return UINT64_MAX;
	return core_ps > memory_ps ? core_ps : memory_ps;
}
