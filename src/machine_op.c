/**
 * @file machine_op.c
 * Time of an operation on the GPU: measured, else a roofline of FLOP time and memory traffic.
 */
#include "tencache/machine.h"
#include "tencache/units.h"

static bool all_float32(const struct tc_trace *trace, struct tc_ids ids)
{
	for (uint32_t i = 0; i < ids.count; ++i)
		if (trace->tensors[ids.items[i]].dtype != TC_FLOAT32)
			return false;
	return true;
}

static enum tc_dtype op_dtype(const struct tc_trace *trace, const struct tc_op *op)
{
	bool touches = op->reads.count + op->writes.count > 0;
	if ((touches && all_float32(trace, op->reads) && all_float32(trace, op->writes)) ||
	    trace->compute_dtype == TC_DTYPE_UNKNOWN)
		return TC_FLOAT32;
	return trace->compute_dtype;
}

enum tc_status tc_machine_op_ps(const struct tc_machine *machine, const struct tc_trace *trace,
                                uint32_t op_id, uint64_t *ps, struct tc_error *error)
{
	const struct tc_op *op = &trace->ops[op_id];
	if (op->timed) {
		*ps = op->measured_ps;
		return TC_OK;
	}
	uint64_t flops_ps = 0, bytes_ps = 0;
	if (op->flops > 0) {
		enum tc_dtype dtype = op_dtype(trace, op);
		uint64_t rate = machine->flops_per_s[dtype][op->op_class];
		if (rate == 0)
			return tc_error_set(
			    error, TC_ARGUMENT,
			    "machine %s has no rate for %s (op %u, %s); add "
			    "gpu.flops_per_s.%s to it, or capture the trace in a data "
			    "type that it has",
			    machine->name, tc_dtype_name(dtype), op_id, op->name,
			    tc_dtype_name(dtype));
		if (!tc_mul_div_ceil(op->flops, TC_PS_PER_S, rate, &flops_ps))
			return tc_error_set(error, TC_TOO_LARGE,
			                    "op %u (%s): its time does not fit", op_id, op->name);
	}
	if (!tc_mul_div_ceil(tc_op_traffic_bytes(trace, op), TC_PS_PER_S,
	                     machine->memory_bytes_per_s[op->op_class], &bytes_ps))
		return tc_error_set(error, TC_TOO_LARGE, "op %u (%s): its time does not fit", op_id,
		                    op->name);
	*ps = flops_ps > bytes_ps ? flops_ps : bytes_ps;
	return TC_OK;
}
