/*
 * Compute commands: ops run in order inside the command, each against the map.
 *
 * One op: workspace is taken; what it both reads and writes is read; all its writes happen; then
 * its other reads are checked, so that an output laid over an input is seen; then its workspace
 * must still be untouched. Requests that no op of the command touches must be there at its end.
 * A free needs no proof of its own: whoever writes there next is checked.
 */
#include "audit_state.h"

#include <string.h>

#include "tencache/units.h"

bool tci_audit_version_lags(const struct tc_audit *audit, uint32_t tensor, uint64_t version)
{
	uint64_t latest = tci_audit_latest(audit, tensor);
	uint64_t lag =
	    (uint64_t)audit->info->staleness * audit->writes[audit->tensors[tensor].root];
	return version < latest && latest - version <= lag;
}

bool tci_audit_bind_all(struct tc_audit *audit)
{
	const struct tc_command *command = audit->command;
	if (audit->stamp == UINT32_MAX) {
		size_t count = audit->info->tensor_count;
		for (size_t t = 0; t < count; t++)
			audit->tensors[t].bound.stamp = 0;
		memset(audit->alias, 0, count * sizeof *audit->alias);
		audit->stamp = 0;
	}
	audit->stamp++;
	if (!tc_grow_array(&audit->bind_touched, &audit->bind_capacity,
	                   (size_t)command->bind_count + 1, sizeof *audit->bind_touched))
		return false;
	memset(audit->bind_touched, 0, command->bind_count * sizeof *audit->bind_touched);
	for (uint32_t b = 0; b < command->bind_count; b++) {
		uint32_t tensor = command->binds[b].tensor;
		if (tensor == TC_NONE)
			continue;
		struct tci_bound *bound = &audit->tensors[tensor].bound;
		if (bound->stamp == audit->stamp)
			tci_audit_report(audit,
			                 "found two binds of tensor %u '%s', expected one place",
			                 tensor, audit->info->tensors[tensor].name);
		*bound = (struct tci_bound){audit->stamp, b};
		uint32_t root = audit->tensors[tensor].root;
		if (root != tensor)
			audit->alias[root] = (struct tci_bound){audit->stamp, b};
	}
	return true;
}

const struct tc_bind *tci_audit_bound_or_derived(const struct tc_audit *audit, uint32_t tensor)
{
	const struct tc_bind *bind = tci_audit_bound(audit, tensor);
	const struct tci_bound *alias = &audit->alias[tensor];
	if (bind != NULL || alias->stamp != audit->stamp)
		return bind;
	audit->bind_touched[alias->bind] = true;
	return &audit->command->binds[alias->bind];
}

/* ---------------------------------------------------------------- one op */

static void report_unbound(struct tc_audit *audit, uint32_t op, uint32_t tensor)
{
	tci_audit_report(audit, "op %u '%s' touches tensor %u '%s': found no bind, expected one",
	                 op, audit->info->trace->ops[op].name, tensor,
	                 audit->info->tensors[tensor].name);
}

/** The whole bind, or a sub-range of it. */
static struct tci_range part_of(const struct tc_bind *bind, uint64_t version,
                                const struct tc_range *part)
{
	struct tci_range range = tci_bind_range(bind, version);
	if (part != NULL) {
		range.offset += part->offset;
		range.tensor_offset = part->offset;
		range.bytes = part->bytes;
	}
	return range;
}

/**
 * What a partial write leaves alone belongs to the new version too, and so comes from this command:
 * a copy of it that is not ordered would carry the old version.
 */
static void keep_rest(struct tc_audit *audit, const struct tc_bind *bind, uint64_t from,
                      uint64_t to)
{
	struct tci_map *map = &audit->map;
	uint64_t end = bind->offset + bind->bytes;
	uint32_t id = tci_map_range(map, bind->pool, bind->offset, end);
	if (id == TC_NONE) {
		audit->out_of_memory = true;
		return;
	}
	for (; id != TC_NONE && map->segments[id].start < end; id = map->segments[id].next) {
		const struct tci_segment *segment = &map->segments[id];
		if (segment->tensor != bind->tensor || segment->version != from)
			continue;
		struct tci_range range = {
		    bind->pool, segment->start,        segment->end - segment->start, bind->tensor,
		    to,         segment->tensor_offset};
		tci_audit_write(audit, &range, false);
	}
}

static void write_tensor(struct tc_audit *audit, uint32_t op_index, const struct tc_bind *bind)
{
	const struct tc_op *op = &audit->info->trace->ops[op_index];
	uint64_t version = audit->tensors[bind->tensor].latest++;
	bool whole = (audit->ops[op_index].duty & TCI_OP_SUBRANGES) == 0;
	if (whole || op->write_ranges == NULL) {
		struct tci_range range = tci_bind_range(bind, version + 1);
		tci_audit_write(audit, &range, false);
		return;
	}
	keep_rest(audit, bind, version, version + 1);
	for (uint32_t w = 0; w < op->writes.count; w++)
		if (op->writes.items[w] == bind->tensor) {
			struct tci_range range = part_of(bind, version + 1, &op->write_ranges[w]);
			tci_audit_write(audit, &range, false);
		}
}

static void read_tensor(struct tc_audit *audit, uint32_t op_index, const struct tc_bind *bind,
                        uint64_t version)
{
	const struct tc_op *op = &audit->info->trace->ops[op_index];
	bool whole = (audit->ops[op_index].duty & TCI_OP_SUBRANGES) == 0;
	if (whole || op->read_ranges == NULL) {
		struct tci_range range = tci_bind_range(bind, version);
		tci_audit_read(audit, &range);
		return;
	}
	for (uint32_t r = 0; r < op->reads.count; r++)
		if (op->reads.items[r] == bind->tensor) {
			struct tci_range range = part_of(bind, version, &op->read_ranges[r]);
			tci_audit_read(audit, &range);
		}
}

/** The version that this command reads of a bound tensor: the latest one, unless the policy
 * declared to read older ones. */
static uint64_t version_read(const struct tc_audit *audit, const struct tc_bind *bind)
{
	uint64_t latest = tci_audit_latest(audit, bind->tensor);
	if (audit->info->staleness > 0 && bind->access == TC_READ && bind->version < latest &&
	    tci_audit_version_allowed(audit, bind->tensor, bind->version))
		return bind->version;
	return latest;
}

/** Fresh bytes mean nothing until they are written. */
static void allocate_tensor(struct tc_audit *audit, const struct tc_bind *bind)
{
	struct tci_range range = tci_bind_range(bind, TCI_NO_CONTENT);
	tci_audit_write(audit, &range, false);
}

void tci_audit_note_masters(struct tc_audit *audit, uint32_t op)
{
	const struct tci_op_touch *touch = audit->touches + audit->ops[op].first_touch;
	const struct tci_op_touch *end = audit->touches + audit->ops[op + 1].first_touch;
	for (; touch < end; touch++) {
		if (touch->kind != TCI_TOUCH_WRITE || touch->tensor_kind != TC_PARAM)
			continue;
		uint32_t master = audit->tensors[touch->tensor].master;
		if (master != TC_NONE)
			audit->converted[touch->tensor] = audit->tensors[master].latest;
	}
}

static void run_touches(struct tc_audit *audit, uint32_t op)
{
	const struct tci_op_touch *touch = audit->touches + audit->ops[op].first_touch;
	const struct tci_op_touch *end = audit->touches + audit->ops[op + 1].first_touch;
	for (; touch < end; touch++) {
		if (audit->info->reordered)
			tci_audit_turn(audit, op, touch->tensor, touch->kind != TCI_TOUCH_READ);
		const struct tc_bind *bind = tci_audit_bound(audit, touch->tensor);
		if (bind == NULL)
			report_unbound(audit, op, touch->tensor);
		else if (touch->kind == TCI_TOUCH_READ)
			read_tensor(audit, op, bind, version_read(audit, bind));
		else if (touch->kind == TCI_TOUCH_WRITE)
			write_tensor(audit, op, bind);
		else
			allocate_tensor(audit, bind);
		if (touch->kind == TCI_TOUCH_WRITE && bind == NULL)
			audit->tensors[touch->tensor].latest++;
	}
	if ((audit->ops[op].duty & TCI_OP_PARAMS) != 0)
		tci_audit_note_masters(audit, op);
}

/**
 * Where an op's workspace lies: one bind without tensor for the whole command, or one for each op
 * that needs workspace, in order.
 */
static const struct tc_bind *workspace_bind(const struct tc_command *command, uint32_t ordinal)
{
	const struct tc_bind *only = NULL;
	uint32_t seen = 0;
	for (uint32_t b = 0; b < command->bind_count; b++) {
		if (command->binds[b].tensor != TC_NONE)
			continue;
		if (seen == ordinal)
			return &command->binds[b];
		only = &command->binds[b];
		seen++;
	}
	return seen == 1 ? only : NULL;
}

static void run_op_with_workspace(struct tc_audit *audit, uint32_t op, uint32_t ordinal)
{
	uint64_t bytes = audit->info->trace->ops[op].workspace;
	const struct tc_bind *bind = workspace_bind(audit->command, ordinal);
	if (bind == NULL || bind->bytes < bytes) {
		tci_audit_report(audit,
		                 "op %u '%s': found %llu bytes bound as workspace, expected %llu",
		                 op, audit->info->trace->ops[op].name,
		                 bind == NULL ? 0ull : (unsigned long long)bind->bytes,
		                 (unsigned long long)bytes);
		run_touches(audit, op);
		return;
	}
	struct tci_range range = tci_bind_range(bind, op);
	range.bytes = bytes;
	tci_audit_write(audit, &range, false);
	run_touches(audit, op);
	tci_audit_read(audit, &range);
}

/* ---------------------------------------------------------------- the command */

/** The versions that the plan names are those on entry, whatever the access. */
static void check_entry_versions(struct tc_audit *audit)
{
	const struct tc_command *command = audit->command;
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		if (bind->tensor == TC_NONE ||
		    tci_audit_version_allowed(audit, bind->tensor, bind->version))
			continue;
		tci_audit_report(audit, "bind of tensor %u '%s': found version %llu, expected %llu",
		                 bind->tensor, audit->info->tensors[bind->tensor].name,
		                 (unsigned long long)bind->version,
		                 (unsigned long long)tci_audit_latest(audit, bind->tensor));
	}
}

void tci_audit_compute(struct tc_audit *audit)
{
	const struct tc_command *command = audit->command;
	check_entry_versions(audit);
	uint32_t workspaces = 0;
	for (uint32_t op = command->first_op; op <= command->last_op && op != TC_NONE; op++) {
		tci_audit_execute(audit, op);
		if ((audit->ops[op].duty & TCI_OP_WORKSPACE) != 0)
			run_op_with_workspace(audit, op, workspaces++);
		else
			run_touches(audit, op);
	}
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		if (audit->bind_touched[b] || bind->tensor == TC_NONE || bind->access == TC_WRITE)
			continue;
		struct tci_range range = tci_bind_range(bind, version_read(audit, bind));
		tci_audit_read(audit, &range);
	}
}
