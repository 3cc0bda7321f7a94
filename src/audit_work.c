/*
 * Moves, updates, converts and drops: commands whose ranges all count as touched by the whole
 * command, so that none of them may overlap.
 */
#include "audit_state.h"

void tci_audit_move(struct tc_audit *audit)
{
	const struct tc_command *command = audit->command;
	uint32_t tensor = command->tensor;
	if (!tci_audit_version_allowed(audit, tensor, command->version))
		tci_audit_report(
		    audit, "moves tensor %u '%s': found version %llu, expected the latest, %llu",
		    tensor, audit->info->tensors[tensor].name, (unsigned long long)command->version,
		    (unsigned long long)tci_audit_latest(audit, tensor));
	struct tci_range range = {command->src.pool, command->src.offset,   command->bytes, tensor,
	                          command->version,  command->tensor_offset};
	tci_audit_read(audit, &range);
	range.pool = command->dst.pool;
	range.offset = command->dst.offset;
	tci_audit_write(audit, &range, true);
}

/** The content of a dropped copy counts no more; who used it still does. */
void tci_audit_drop(struct tc_audit *audit)
{
	const struct tc_command *command = audit->command;
	const struct tc_plan_info *info = audit->info;
	if (command->tensor == TC_NONE || command->src.pool == TC_NO_POOL)
		return;
	uint64_t bytes = command->bytes > 0 ? command->bytes : info->tensors[command->tensor].bytes;
	if (command->src.pool >= info->pool_count ||
	    command->src.offset >= info->pools[command->src.pool].bytes ||
	    bytes > info->pools[command->src.pool].bytes - command->src.offset) {
		tci_audit_report(audit, "drops tensor %u: found a place outside its pool",
		                 command->tensor);
		return;
	}
	struct tci_map *map = &audit->map;
	uint64_t end = command->src.offset + bytes;
	uint32_t id = tci_map_range(map, command->src.pool, command->src.offset, end);
	if (id == TC_NONE) {
		audit->out_of_memory = true;
		return;
	}
	for (; id != TC_NONE && map->segments[id].start < end; id = map->segments[id].next)
		if (map->segments[id].tensor == command->tensor)
			map->segments[id].version = TCI_NO_CONTENT;
}

/** Read what the command's binds say it reads, at the latest versions. */
static void read_binds(struct tc_audit *audit)
{
	const struct tc_command *command = audit->command;
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		if (bind->tensor == TC_NONE || bind->access == TC_WRITE)
			continue;
		uint64_t latest = tci_audit_latest(audit, bind->tensor);
		uint64_t version = latest;
		if (tci_audit_version_allowed(audit, bind->tensor, bind->version))
			version = bind->version;
		else
			tci_audit_report(
			    audit,
			    "reads tensor %u '%s': found version %llu, expected the latest, %llu",
			    bind->tensor, audit->info->tensors[bind->tensor].name,
			    (unsigned long long)bind->version, (unsigned long long)latest);
		struct tci_range range = tci_bind_range(bind, version);
		tci_audit_read(audit, &range);
	}
}

/** In place only where the bind itself says so; else the range must be the command's own. */
static void write_bind(struct tc_audit *audit, const struct tc_bind *bind, uint64_t version)
{
	if (bind->access == TC_WRITE && bind->version != version)
		tci_audit_report(audit, "writes tensor %u '%s': found version %llu, expected %llu",
		                 bind->tensor, audit->info->tensors[bind->tensor].name,
		                 (unsigned long long)bind->version, (unsigned long long)version);
	struct tci_range range = tci_bind_range(bind, version);
	tci_audit_write(audit, &range, bind->access == TC_WRITE);
}

/* ---------------------------------------------------------------- update */

static bool counts_in_update(enum tc_tensor_kind kind)
{
	return kind == TC_PARAM || kind == TC_OPTIMIZER_STATE;
}

/** Its master stands in for a parameter that is not bound itself. */
static const struct tc_bind *update_bind(struct tc_audit *audit, uint32_t tensor)
{
	const struct tc_bind *bind = tci_audit_bound_or_derived(audit, tensor);
	if (bind == NULL && audit->tensors[tensor].master != TC_NONE)
		bind = tci_audit_bound(audit, audit->tensors[tensor].master);
	return bind;
}

static void update_touch(struct tc_audit *audit, uint32_t op, const struct tci_op_touch *touch)
{
	const struct tc_trace *trace = audit->info->trace;
	enum tc_tensor_kind kind = (enum tc_tensor_kind)touch->tensor_kind;
	bool writes = touch->kind == TCI_TOUCH_WRITE && counts_in_update(kind);
	bool reads = touch->kind == TCI_TOUCH_READ && (counts_in_update(kind) || kind == TC_GRAD);
	if (!writes && !reads)
		return; /* temporaries live inside the command */
	const struct tc_bind *bind = update_bind(audit, touch->tensor);
	if (audit->info->reordered)
		tci_audit_turn(audit, op, touch->tensor, writes);
	if (writes)
		audit->tensors[touch->tensor].latest++;
	bool allowed = bind != NULL && (writes ? bind->access != TC_READ : true);
	if (!allowed)
		tci_audit_report(
		    audit,
		    "op %u '%s' %s tensor %u '%s': found %s, expected a bind of it, of a "
		    "tensor derived from it or of its master",
		    op, trace->ops[op].name, writes ? "writes" : "reads", touch->tensor,
		    audit->info->tensors[touch->tensor].name,
		    bind == NULL ? "no bind" : "a bind for reading only");
}

void tci_audit_update(struct tc_audit *audit)
{
	const struct tc_command *command = audit->command;
	read_binds(audit);
	for (uint32_t op = command->first_op; op <= command->last_op && op != TC_NONE; op++) {
		tci_audit_execute(audit, op);
		for (uint32_t t = audit->ops[op].first_touch; t < audit->ops[op + 1].first_touch;
		     t++)
			update_touch(audit, op, &audit->touches[t]);
		tci_audit_note_masters(audit, op);
	}
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		if (bind->tensor == TC_NONE || bind->access == TC_READ)
			continue;
		write_bind(audit, bind, tci_audit_latest(audit, bind->tensor));
	}
}

/* ---------------------------------------------------------------- convert */

/** Does content of `source` turn into the latest version of `target`? */
static bool converts_to(const struct tc_audit *audit, const struct tc_bind *source, uint32_t target)
{
	uint32_t from = audit->tensors[source->tensor].root, to = audit->tensors[target].root;
	if (from == to)
		return true;
	return audit->tensors[to].master == from &&
	       audit->tensors[from].latest == audit->converted[to];
}

void tci_audit_convert(struct tc_audit *audit)
{
	const struct tc_command *command = audit->command;
	read_binds(audit);
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *target = &command->binds[b];
		if (target->tensor == TC_NONE || target->access == TC_READ)
			continue;
		const struct tc_bind *source = NULL;
		for (uint32_t s = 0; s < command->bind_count && source == NULL; s++)
			if (command->binds[s].tensor != TC_NONE &&
			    command->binds[s].access != TC_WRITE &&
			    converts_to(audit, &command->binds[s], target->tensor))
				source = &command->binds[s];
		if (source == NULL)
			tci_audit_report(
			    audit,
			    "converts to tensor %u '%s': found no source that becomes "
			    "its version %llu, expected it, what it derives from, or "
			    "its master at the latest version",
			    target->tensor, audit->info->tensors[target->tensor].name,
			    (unsigned long long)tci_audit_latest(audit, target->tensor));
		bool lagging = source != NULL && audit->tensors[source->tensor].root ==
		                                     audit->tensors[target->tensor].root;
		uint64_t version = tci_audit_latest(audit, target->tensor);
		if (lagging && tci_audit_version_allowed(audit, source->tensor, source->version))
			version = source->version;
		write_bind(audit, target, version);
	}
}
