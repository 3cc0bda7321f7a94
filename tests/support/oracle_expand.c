/*
 * First half of the oracle: commands become byte ranges. Walks a schedule in id order, keeps the
 * versions that the trace's ops produce, and notes what is wrong whatever the order of execution.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "oracle_expand.h"

static void fault(struct expansion *expansion, const char *format, ...)
{
	if (expansion->faults++ > 0)
		return;
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(expansion->why, sizeof expansion->why, format, arguments);
	va_end(arguments);
}

/* ---------------------------------------------------------------- versions */

/** A derived tensor counts as the tensor at the end of its chain. */
static uint32_t origin(const struct expansion *expansion, uint32_t tensor)
{
	while (expansion->info->tensors[tensor].derived_from != TC_NONE)
		tensor = expansion->info->tensors[tensor].derived_from;
	return tensor;
}

uint64_t expansion_version(const struct expansion *expansion, uint32_t tensor)
{
	return expansion->written[origin(expansion, tensor)];
}

static bool is_state(enum tc_tensor_kind kind)
{
	return kind == TC_PARAM || kind == TC_OPTIMIZER_STATE;
}

static uint32_t master_of(const struct expansion *expansion, uint32_t param)
{
	const struct tc_trace *trace = expansion->info->trace;
	for (uint32_t t = 0; t < trace->tensor_count; t++)
		if (trace->tensors[t].role == TC_ROLE_MASTER && trace->tensors[t].of == param)
			return t;
	return TC_NONE;
}

/** After a whole op: what it wrote of a parameter is what its master converts to. */
static void note_masters(struct expansion *expansion, const struct tc_op *op)
{
	for (uint32_t w = 0; w < op->writes.count; w++) {
		uint32_t master = master_of(expansion, op->writes.items[w]);
		if (master != TC_NONE)
			expansion->master_then[op->writes.items[w]] = expansion->written[master];
	}
}

/* ---------------------------------------------------------------- actions */

static struct action *add(struct expansion *expansion, enum action_kind kind, struct tc_place at,
                          uint64_t bytes, uint32_t tensor, uint64_t version, uint64_t offset)
{
	if (expansion->action_count == expansion->action_capacity) {
		expansion->action_capacity = 2 * expansion->action_capacity + 1024;
		expansion->actions = realloc(expansion->actions, expansion->action_capacity *
		                                                     sizeof *expansion->actions);
		if (expansion->actions == NULL)
			abort();
	}
	struct action *action = &expansion->actions[expansion->action_count++];
	*action = (struct action){kind, at, bytes, tensor, version, offset, 0};
	return action;
}

static void add_bind(struct expansion *expansion, enum action_kind kind, const struct tc_bind *bind,
                     uint64_t version)
{
	(void)add(expansion, kind, (struct tc_place){bind->pool, bind->offset}, bind->bytes,
	          bind->tensor, version, 0);
}

static const struct tc_bind *find(const struct tc_command *command, uint32_t tensor)
{
	for (uint32_t b = 0; b < command->bind_count; b++)
		if (command->binds[b].tensor == tensor)
			return &command->binds[b];
	return NULL;
}

static bool meet(const struct tc_bind *a, const struct tc_bind *b)
{
	return a->pool == b->pool && a->offset < b->offset + b->bytes &&
	       b->offset < a->offset + a->bytes;
}

/** In anything but compute, what is written must not meet what else the command touches. */
static void check_separate(struct expansion *expansion, const struct tc_command *command)
{
	for (uint32_t i = 0; i < command->bind_count; i++)
		for (uint32_t j = 0; j < i; j++)
			if ((command->binds[i].access != TC_READ ||
			     command->binds[j].access != TC_READ) &&
			    meet(&command->binds[i], &command->binds[j]))
				fault(expansion, "command %d: binds %u and %u overlap",
				      (int)command->id, j, i);
}

static void check_doubles(struct expansion *expansion, const struct tc_command *command)
{
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		if (bind->tensor == TC_NONE)
			continue;
		if (find(command, bind->tensor) != bind)
			fault(expansion, "command %d binds tensor %u twice", (int)command->id,
			      bind->tensor);
	}
}

/** Versions that the plan names: on entry, except what an update or convert only writes. */
static void check_versions(struct expansion *expansion, const struct tc_command *command)
{
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		if (bind->tensor != TC_NONE &&
		    (command->kind == TC_COMPUTE || bind->access != TC_WRITE) &&
		    bind->version != expansion_version(expansion, bind->tensor))
			fault(expansion, "command %d: bind %u names the wrong version",
			      (int)command->id, b);
	}
}

/* ---------------------------------------------------------------- ops */

static void executed(struct expansion *expansion, uint32_t op)
{
	if (expansion->times[op]++ > 0)
		fault(expansion, "op %u runs twice", op);
	enum tc_phase phase = expansion->info->trace->ops[op].phase;
	if (phase != TC_FORWARD && phase != TC_BACKWARD)
		return;
	for (uint32_t earlier = 0; earlier < op; earlier++) {
		enum tc_phase other = expansion->info->trace->ops[earlier].phase;
		if ((other == TC_FORWARD || other == TC_BACKWARD) && expansion->times[earlier] == 0)
			fault(expansion, "op %u runs before op %u", op, earlier);
	}
}

static void end_iteration(struct expansion *expansion)
{
	const struct tc_trace *trace = expansion->info->trace;
	for (uint32_t o = 0; expansion->iterations > 0 && o < trace->op_count; o++) {
		bool needed = trace->ops[o].phase != TC_OPTIMIZER;
		for (uint32_t w = 0; w < trace->ops[o].writes.count; w++)
			needed |= is_state(trace->tensors[trace->ops[o].writes.items[w]].kind);
		if (needed && expansion->times[o] == 0)
			fault(expansion, "op %u is left out", o);
		expansion->times[o] = 0;
	}
}

static bool listed(struct tc_ids ids, uint32_t tensor)
{
	for (uint32_t i = 0; i < ids.count; i++)
		if (ids.items[i] == tensor)
			return true;
	return false;
}

static void op_read(struct expansion *expansion, const struct tc_command *command,
                    const struct tc_op *op, uint32_t r, uint64_t version)
{
	uint32_t tensor = op->reads.items[r];
	const struct tc_bind *bind = find(command, tensor);
	if (bind == NULL) {
		fault(expansion, "command %d reads tensor %u unbound", (int)command->id, tensor);
		return;
	}
	uint64_t from = op->read_ranges != NULL ? op->read_ranges[r].offset : 0;
	uint64_t bytes = op->read_ranges != NULL ? op->read_ranges[r].bytes : bind->bytes;
	(void)add(expansion, ACTION_READ, (struct tc_place){bind->pool, bind->offset + from}, bytes,
	          tensor, version, from);
}

static void op_write(struct expansion *expansion, const struct tc_command *command,
                     const struct tc_op *op, uint32_t w)
{
	uint32_t tensor = op->writes.items[w];
	const struct tc_bind *bind = find(command, tensor);
	uint64_t before = expansion->written[tensor];
	expansion->written[tensor]++;
	if (bind == NULL) {
		fault(expansion, "command %d writes tensor %u unbound", (int)command->id, tensor);
		return;
	}
	if (op->write_ranges == NULL) {
		add_bind(expansion, ACTION_WRITE, bind, before + 1);
		return;
	}
	add_bind(expansion, ACTION_RENEW, bind, before + 1);
	expansion->actions[expansion->action_count - 1].from_version = before;
	uint64_t from = op->write_ranges[w].offset;
	(void)add(expansion, ACTION_WRITE, (struct tc_place){bind->pool, bind->offset + from},
	          op->write_ranges[w].bytes, tensor, before + 1, from);
}

/** The n-th workspace bind, or the only one. */
static const struct tc_bind *workspace(const struct tc_command *command, uint32_t n)
{
	const struct tc_bind *found = NULL;
	uint32_t count = 0;
	for (uint32_t b = 0; b < command->bind_count; b++)
		if (command->binds[b].tensor == TC_NONE && (count++ == n || count == 1))
			found = &command->binds[b];
	return count > n || count == 1 ? found : NULL;
}

static void run_op(struct expansion *expansion, const struct tc_command *command, uint32_t o,
                   uint32_t *workspaces)
{
	const struct tc_op *op = &expansion->info->trace->ops[o];
	const struct tc_bind *scratch = NULL;
	executed(expansion, o);
	if (op->workspace > 0) {
		scratch = workspace(command, (*workspaces)++);
		if (scratch == NULL || scratch->bytes < op->workspace)
			fault(expansion, "op %u lacks workspace", o);
		else
			(void)add(expansion, ACTION_WRITE,
			          (struct tc_place){scratch->pool, scratch->offset}, op->workspace,
			          TC_NONE, o, 0);
	}
	for (uint32_t a = 0; a < op->allocates.count; a++)
		if (find(command, op->allocates.items[a]) != NULL)
			add_bind(expansion, ACTION_WRITE, find(command, op->allocates.items[a]),
			         NO_CONTENT);
	uint64_t entry[64];
	for (uint32_t r = 0; r < op->reads.count; r++) {
		entry[r] = expansion->written[op->reads.items[r]];
		if (listed(op->writes, op->reads.items[r]))
			op_read(expansion, command, op, r, entry[r]);
	}
	for (uint32_t w = 0; w < op->writes.count; w++)
		op_write(expansion, command, op, w);
	for (uint32_t r = 0; r < op->reads.count; r++)
		if (!listed(op->writes, op->reads.items[r]))
			op_read(expansion, command, op, r, entry[r]);
	note_masters(expansion, op);
	if (scratch != NULL)
		(void)add(expansion, ACTION_READ, (struct tc_place){scratch->pool, scratch->offset},
		          op->workspace, TC_NONE, o, 0);
}

static bool op_touches(const struct tc_op *op, uint32_t tensor)
{
	return listed(op->reads, tensor) || listed(op->writes, tensor) ||
	       listed(op->allocates, tensor);
}

static void compute(struct expansion *expansion, const struct tc_command *command)
{
	uint32_t workspaces = 0;
	for (uint32_t o = command->first_op; o <= command->last_op; o++)
		run_op(expansion, command, o, &workspaces);
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *bind = &command->binds[b];
		bool touched = bind->tensor == TC_NONE || bind->access == TC_WRITE;
		for (uint32_t o = command->first_op; o <= command->last_op && !touched; o++)
			touched = op_touches(&expansion->info->trace->ops[o], bind->tensor);
		if (!touched)
			add_bind(expansion, ACTION_READ, bind,
			         expansion_version(expansion, bind->tensor));
	}
}

/* ---------------------------------------------------------------- work on the CPU */

static void read_binds(struct expansion *expansion, const struct tc_command *command)
{
	for (uint32_t b = 0; b < command->bind_count; b++)
		if (command->binds[b].access != TC_WRITE)
			add_bind(expansion, ACTION_READ, &command->binds[b],
			         expansion_version(expansion, command->binds[b].tensor));
}

static void write_bind(struct expansion *expansion, const struct tc_command *command,
                       const struct tc_bind *bind)
{
	uint64_t version = expansion_version(expansion, bind->tensor);
	if (bind->access == TC_WRITE && bind->version != version)
		fault(expansion, "command %d writes the wrong version", (int)command->id);
	add_bind(expansion, ACTION_WRITE, bind, version);
}

/** Is the tensor itself, one derived from it, or its master bound with this access? */
static bool stands_in(const struct expansion *expansion, const struct tc_command *command,
                      uint32_t tensor, bool writing)
{
	for (uint32_t b = 0; b < command->bind_count; b++) {
		uint32_t bound = command->binds[b].tensor;
		bool family =
		    origin(expansion, bound) == tensor || bound == master_of(expansion, tensor);
		if (family && (!writing || command->binds[b].access != TC_READ))
			return true;
	}
	return false;
}

static void update(struct expansion *expansion, const struct tc_command *command)
{
	const struct tc_trace *trace = expansion->info->trace;
	check_separate(expansion, command);
	read_binds(expansion, command);
	for (uint32_t o = command->first_op; o <= command->last_op; o++) {
		const struct tc_op *op = &trace->ops[o];
		executed(expansion, o);
		for (uint32_t r = 0; r < op->reads.count; r++) {
			enum tc_tensor_kind kind = trace->tensors[op->reads.items[r]].kind;
			if ((is_state(kind) || kind == TC_GRAD) &&
			    !stands_in(expansion, command, op->reads.items[r], false))
				fault(expansion, "update %d lacks tensor %u", (int)command->id,
				      op->reads.items[r]);
		}
		for (uint32_t w = 0; w < op->writes.count; w++) {
			uint32_t tensor = op->writes.items[w];
			if (!is_state(trace->tensors[tensor].kind))
				continue;
			if (!stands_in(expansion, command, tensor, true))
				fault(expansion, "update %d cannot write tensor %u",
				      (int)command->id, tensor);
			expansion->written[tensor]++;
		}
		note_masters(expansion, op);
	}
	for (uint32_t b = 0; b < command->bind_count; b++)
		if (command->binds[b].access != TC_READ)
			write_bind(expansion, command, &command->binds[b]);
}

static void convert(struct expansion *expansion, const struct tc_command *command)
{
	check_separate(expansion, command);
	read_binds(expansion, command);
	for (uint32_t b = 0; b < command->bind_count; b++) {
		const struct tc_bind *target = &command->binds[b];
		if (target->access == TC_READ)
			continue;
		uint32_t to = origin(expansion, target->tensor);
		bool justified = false;
		for (uint32_t s = 0; s < command->bind_count; s++) {
			if (command->binds[s].access == TC_WRITE)
				continue;
			uint32_t from = origin(expansion, command->binds[s].tensor);
			justified |=
			    from == to || (from == master_of(expansion, to) &&
			                   expansion->written[from] == expansion->master_then[to]);
		}
		if (!justified)
			fault(expansion, "convert %d has no source for its target",
			      (int)command->id);
		write_bind(expansion, command, target);
	}
}

static void move(struct expansion *expansion, const struct tc_command *command)
{
	if (command->version != expansion_version(expansion, command->tensor))
		fault(expansion, "command %d moves an old version", (int)command->id);
	if (command->src.pool == command->dst.pool &&
	    command->src.offset < command->dst.offset + command->bytes &&
	    command->dst.offset < command->src.offset + command->bytes)
		fault(expansion, "command %d copies onto itself", (int)command->id);
	(void)add(expansion, ACTION_READ, command->src, command->bytes, command->tensor,
	          command->version, command->tensor_offset);
	(void)add(expansion, ACTION_COPY, command->dst, command->bytes, command->tensor,
	          command->version, command->tensor_offset);
}

/* ---------------------------------------------------------------- all */

static void expand_command(struct expansion *expansion, const struct tc_command *command)
{
	if (command->iteration + 1 == expansion->iterations + 1 &&
	    command->iteration != TC_ITERATION_INIT) {
		end_iteration(expansion);
		expansion->iterations++;
	} else if (command->iteration + 1 != expansion->iterations) {
		fault(expansion, "command %d: iterations out of order", (int)command->id);
	}
	if (command->kind == TC_COMPUTE || command->kind == TC_UPDATE ||
	    command->kind == TC_CONVERT) {
		check_doubles(expansion, command);
		check_versions(expansion, command);
	}
	if (command->kind == TC_COMPUTE)
		compute(expansion, command);
	else if (command->kind == TC_UPDATE)
		update(expansion, command);
	else if (command->kind == TC_CONVERT)
		convert(expansion, command);
	else if (command->kind == TC_DROP && command->src.pool != TC_NO_POOL)
		(void)add(expansion, ACTION_FORGET, command->src,
		          expansion->info->tensors[command->tensor].bytes, command->tensor, 0, 0);
	else if (command->kind <= TC_GRADIENT)
		move(expansion, command);
}

static void check_capacity(struct expansion *expansion)
{
	const struct tc_plan_info *info = expansion->info;
	for (unsigned tier = 0; !info->unlimited_memory && tier < TC_TIER_COUNT; tier++) {
		uint64_t sum = info->fixed_bytes[tier];
		for (uint32_t p = 0; p < info->pool_count; p++)
			sum += (unsigned)info->pools[p].tier == tier ? info->pools[p].bytes : 0;
		if (sum > info->machine->capacity_bytes[tier])
			fault(expansion, "tier %u is overcommitted", tier);
	}
}

struct expansion *expansion_new(const struct tc_schedule *schedule)
{
	struct expansion *expansion = calloc(1, sizeof *expansion);
	if (expansion == NULL || schedule->info.tensor_count > EXPANSION_TENSORS ||
	    schedule->command_count > ORACLE_MAX_COMMANDS)
		abort();
	expansion->info = &schedule->info;
	check_capacity(expansion);
	for (uint64_t c = 0; c < schedule->command_count; c++) {
		expansion->first[c] = expansion->action_count;
		expand_command(expansion, &schedule->commands[c]);
	}
	expansion->first[schedule->command_count] = expansion->action_count;
	end_iteration(expansion);
	if (expansion->iterations != schedule->info.iterations)
		fault(expansion, "iterations are missing");
	for (uint32_t p = 0; p < schedule->end.place_count; p++)
		if (schedule->end.places[p].version !=
		    expansion_version(expansion, schedule->end.places[p].tensor))
			fault(expansion, "end record: wrong version");
	return expansion;
}

void expansion_free(struct expansion *expansion)
{
	if (expansion != NULL)
		free(expansion->actions);
	free(expansion);
}
