/*
 * What the auditor derives from a plan's header and its trace before the first command: touches of
 * every op in compact form, duties, whose versions a derived tensor carries, initial content.
 */
#include <stdlib.h>
#include <string.h>

#include "audit_state.h"
#include "tencache/units.h"

#define FLAG_READ 1
#define FLAG_WRITE 2
#define FLAG_WHOLE 4

static struct tci_op_touch touch_of(const struct tc_audit *audit, uint32_t tensor,
                                    enum tci_touch_kind kind)
{
	return (struct tci_op_touch){.tensor = tensor,
	                             .kind = (uint8_t)kind,
	                             .tensor_kind =
	                                 (uint8_t)audit->info->trace->tensors[tensor].kind};
}

/** Emit the touches of one op and leave `flags` (by tensor) zero again. */
static uint32_t add_touches(struct tc_audit *audit, const struct tc_op *op, uint8_t *flags,
                            uint32_t end)
{
	struct tci_op_touch *touches = audit->touches;
	const uint32_t *reads = op->reads.items, *writes = op->writes.items;
	for (uint32_t r = 0; r < op->reads.count; r++)
		flags[reads[r]] |= FLAG_READ;
	for (uint32_t w = 0; w < op->writes.count; w++)
		flags[writes[w]] |= op->write_ranges == NULL ? FLAG_WRITE | FLAG_WHOLE : FLAG_WRITE;
	for (uint32_t a = 0; a < op->allocates.count; a++)
		if ((flags[op->allocates.items[a]] & FLAG_WHOLE) == 0)
			touches[end++] =
			    touch_of(audit, op->allocates.items[a], TCI_TOUCH_ALLOCATE);
	for (uint32_t r = 0; r < op->reads.count; r++)
		if ((flags[reads[r]] & FLAG_READ) != 0 && (flags[reads[r]] & FLAG_WRITE) != 0) {
			touches[end++] = touch_of(audit, reads[r], TCI_TOUCH_READ);
			flags[reads[r]] &= (uint8_t)~FLAG_READ;
		}
	for (uint32_t w = 0; w < op->writes.count; w++)
		if ((flags[writes[w]] & FLAG_WRITE) != 0) {
			touches[end++] = touch_of(audit, writes[w], TCI_TOUCH_WRITE);
			flags[writes[w]] = 0;
			audit->writes[writes[w]]++;
		}
	for (uint32_t r = 0; r < op->reads.count; r++)
		if ((flags[reads[r]] & FLAG_READ) != 0) {
			touches[end++] = touch_of(audit, reads[r], TCI_TOUCH_READ);
			flags[reads[r]] = 0;
		}
	return end;
}

static bool is_persistent_state(const struct tc_tensor *tensor)
{
	return tensor->kind == TC_PARAM || tensor->kind == TC_OPTIMIZER_STATE;
}

/** Which ops cannot be left out. A gradient scaled in the optimizer phase can: the CPU's update
 * does that work itself. */
static uint32_t op_duty(const struct tc_trace *trace, const struct tc_op *op)
{
	uint32_t duty = 0;
	if (op->phase == TC_FORWARD || op->phase == TC_BACKWARD)
		duty = TCI_OP_IN_ORDER;
	for (uint32_t w = 0; w < op->writes.count; w++) {
		const struct tc_tensor *tensor = &trace->tensors[op->writes.items[w]];
		bool needed = is_persistent_state(tensor) ||
		              (tensor->persistent && op->phase != TC_OPTIMIZER);
		if (needed && (duty & TCI_OP_IN_ORDER) == 0)
			duty |= TCI_OP_NEEDED;
		if (tensor->kind == TC_PARAM)
			duty |= TCI_OP_PARAMS;
	}
	if (op->read_ranges != NULL || op->write_ranges != NULL)
		duty |= TCI_OP_SUBRANGES;
	if (op->workspace > 0)
		duty |= TCI_OP_WORKSPACE;
	return duty;
}

static enum tc_status begin_ops(struct tc_audit *audit, struct tc_error *error)
{
	const struct tc_trace *trace = audit->info->trace;
	uint64_t references = 0;
	for (uint32_t o = 0; o < trace->op_count; o++)
		references += (uint64_t)trace->ops[o].reads.count + trace->ops[o].writes.count +
		              trace->ops[o].allocates.count;
	if (references >= TC_NONE)
		return tc_error_set(error, TC_TOO_LARGE, "the trace has too many references");
	audit->touches = tc_alloc_array((size_t)references + 1, sizeof *audit->touches);
	audit->ops = tc_alloc_array((size_t)trace->op_count + 1, sizeof *audit->ops);
	if (audit->touches == NULL || audit->ops == NULL)
		return tc_error_no_memory(error, "the auditor's table of ops",
		                          references * sizeof *audit->touches);
	uint8_t *flags = tc_alloc_array((size_t)trace->tensor_count + 1, 1);
	if (flags == NULL)
		return tc_error_no_memory(error, "the auditor's table of ops", trace->tensor_count);
	uint32_t end = 0;
	for (uint32_t o = 0; o < trace->op_count; o++) {
		audit->ops[o].first_touch = end;
		audit->ops[o].duty = op_duty(trace, &trace->ops[o]);
		audit->needed_total += (audit->ops[o].duty & TCI_OP_NEEDED) != 0;
		audit->ordered_total += (audit->ops[o].duty & TCI_OP_IN_ORDER) != 0;
		end = add_touches(audit, &trace->ops[o], flags, end);
	}
	free(flags);
	audit->ops[trace->op_count].first_touch = end;
	uint32_t next = trace->op_count;
	for (uint32_t o = trace->op_count; o-- > 0;) {
		audit->ops[o].next_in_order = next;
		if (audit->ops[o].duty & TCI_OP_IN_ORDER)
			next = o;
	}
	audit->in_order = trace->op_count;
	return TC_OK;
}

static enum tc_status begin_tensors(struct tc_audit *audit, struct tc_error *error)
{
	const struct tc_plan_info *info = audit->info;
	size_t count = (size_t)info->tensor_count + 1;
	audit->tensors = tc_alloc_array(count, sizeof *audit->tensors);
	audit->converted = tc_alloc_array(count, sizeof *audit->converted);
	audit->writes = tc_alloc_array(count, sizeof *audit->writes);
	audit->alias = tc_alloc_array(count, sizeof *audit->alias);
	if (audit->tensors == NULL || audit->converted == NULL || audit->writes == NULL ||
	    audit->alias == NULL)
		return tc_error_no_memory(error, "the auditor's table of tensors", count * 48);
	for (uint32_t t = 0; t < info->tensor_count; t++) {
		uint32_t from = info->tensors[t].derived_from;
		audit->tensors[t].root = from == TC_NONE ? t : audit->tensors[from].root;
		audit->tensors[t].master = TC_NONE;
		audit->tensors[t].bytes = info->tensors[t].bytes;
	}
	for (uint32_t t = 0; t < info->trace->tensor_count; t++) {
		const struct tc_tensor *tensor = &info->trace->tensors[t];
		if (tensor->role == TC_ROLE_MASTER && tensor->of != TC_NONE)
			audit->tensors[tensor->of].master = t;
	}
	return TC_OK;
}

/** Initial content. Two tensors in the same bytes are found here. */
static void place(struct tc_audit *audit, uint32_t tensor, struct tc_place at)
{
	const struct tci_range range = {at.pool, at.offset, audit->info->tensors[tensor].bytes,
	                                tensor,  0,         0};
	struct tci_map *map = &audit->map;
	uint64_t end = range.offset + range.bytes;
	uint32_t first = tci_map_range(map, range.pool, range.offset, end);
	if (first == TC_NONE) {
		audit->out_of_memory = true;
		return;
	}
	for (uint32_t s = first; s != TC_NONE && map->segments[s].start < end;
	     s = map->segments[s].next)
		if (map->segments[s].tensor != TC_NONE) {
			tci_audit_report(audit,
			                 "tensor %u '%s' begins in pool '%s' [%llu, %llu): found "
			                 "tensor %u there, expected free bytes",
			                 tensor, audit->info->tensors[tensor].name,
			                 audit->info->pools[at.pool].name,
			                 (unsigned long long)at.offset, (unsigned long long)end,
			                 map->segments[s].tensor);
			break;
		}
	tci_map_join(map, first, end);
	map->segments[first].tensor = tensor;
	map->segments[first].version = 0;
	map->segments[first].tensor_offset = 0;
}

static void check_capacity(struct tc_audit *audit)
{
	const struct tc_plan_info *info = audit->info;
	if (info->machine == NULL || info->unlimited_memory)
		return;
	for (unsigned tier = 0; tier < TC_TIER_COUNT; tier++) {
		uint64_t total = info->fixed_bytes[tier];
		bool fits = true;
		for (uint32_t p = 0; p < info->pool_count; p++)
			if ((unsigned)info->pools[p].tier == tier)
				fits = fits && tc_add_u64(total, info->pools[p].bytes, &total);
		if (!fits || total > info->machine->capacity_bytes[tier])
			tci_audit_report(
			    audit,
			    "tier %s: found pools and fixed reservations of %llu bytes together, "
			    "expected at most the capacity of %llu bytes",
			    tc_tier_name((enum tc_tier)tier), (unsigned long long)total,
			    (unsigned long long)info->machine->capacity_bytes[tier]);
	}
}

enum tc_status tci_audit_begin_tables(struct tc_audit *audit, struct tc_error *error)
{
	const struct tc_plan_info *info = audit->info;
	audit->lane_total = tc_lane_total(info->lanes);
	for (unsigned queue = 0; queue < TC_QUEUE_COUNT; queue++)
		audit->first_lane[queue] = tc_lane_index(info->lanes, (enum tc_queue)queue, 0);
	if (!tci_clocks_start(&audit->clocks, audit->lane_total))
		return tc_error_no_memory(error, "the auditor's clocks", 0);
	TC_TRY(begin_tensors(audit, error));
	TC_TRY(begin_ops(audit, error));
	TC_TRY(tci_audit_begin_turns(audit, error));
	if (!tci_map_start(&audit->map, info->pools, info->pool_count, audit->lane_total))
		return tc_error_no_memory(error, "the auditor's map of pools", 0);
	check_capacity(audit);
	for (uint32_t t = 0; t < info->tensor_count; t++)
		if (info->tensors[t].placed)
			place(audit, t, info->tensors[t].start);
	for (uint32_t c = 0; c < info->copy_count; c++)
		place(audit, info->copies[c].tensor, info->copies[c].place);
	return audit->out_of_memory
	           ? tc_error_no_memory(error, "the auditor's map of initial content", 0)
	           : TC_OK;
}

void tci_audit_clear_tables(struct tc_audit *audit)
{
	tci_clocks_clear(&audit->clocks);
	tci_map_clear(&audit->map);
	free(audit->tensors);
	free(audit->converted);
	free(audit->writes);
	free(audit->alias);
	free(audit->bind_touched);
	free(audit->touches);
	free(audit->ops);
	free(audit->turns);
	free(audit->unpack_first);
	free(audit->unpack_tensors);
}
