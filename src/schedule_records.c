/*
 * Records of a schedule file. Keys at their default are left out, so that a file stays readable.
 */
#include "schedule_records.h"

char tci_access_letter(enum tc_access access)
{
	return access == TC_READ ? 'r' : access == TC_WRITE ? 'w' : 'u';
}

static void place(struct tci_text *text, struct tc_place value)
{
	tci_text_comma(text);
	tci_text_raw(text, "[");
	tci_text_number(text, value.pool);
	tci_text_raw(text, ",");
	tci_text_number(text, value.offset);
	tci_text_raw(text, "]");
}

/** TC_NO_COMMAND is -1. */
static void command_id(struct tci_text *text, uint64_t id)
{
	if (id == TC_NO_COMMAND)
		tci_text_raw(text, "-1");
	else
		tci_text_number(text, id);
}

/** TC_NONE is -1. */
static void small_id(struct tci_text *text, uint32_t id)
{
	if (id == TC_NONE)
		tci_text_raw(text, "-1");
	else
		tci_text_number(text, id);
}

static void flag(struct tci_text *text, const char *key, bool value)
{
	if (value) {
		tci_text_key(text, key);
		tci_text_raw(text, "true");
	}
}

static void key_number_unless(struct tci_text *text, const char *key, uint64_t value,
                              uint64_t unless)
{
	if (value != unless)
		tci_text_key_number(text, key, value);
}

/* ---------------------------------------------------------------- header and tensors */

static void header_pools(struct tci_text *text, const struct tc_plan_info *info)
{
	tci_text_key(text, "pools");
	tci_text_raw(text, "[");
	for (uint32_t p = 0; p < info->pool_count; p++) {
		const struct tc_pool_info *pool = &info->pools[p];
		tci_text_comma(text);
		tci_text_raw(text, "{");
		tci_text_key_word(text, "tier", tc_tier_name(pool->tier));
		tci_text_key_string(text, "name", pool->name);
		tci_text_key_word(text, "kind", tc_pool_kind_name(pool->kind));
		tci_text_key(text, "pinned");
		tci_text_raw(text, pool->pinned ? "true" : "false");
		tci_text_key_number(text, "bytes", pool->bytes);
		tci_text_raw(text, "}");
	}
	tci_text_raw(text, "]");
}

void tci_record_header(struct tci_text *text, const struct tc_plan_info *info)
{
	tci_text_begin(text);
	tci_text_raw(text, "{");
	tci_text_key_string(text, "format", TCI_SCHEDULE_FORMAT);
	tci_text_key_string(text, "version", TCI_SCHEDULE_VERSION);
	tci_text_key_string(text, "trace", info->trace_name);
	tci_text_key_string(text, "trace_sha256", info->trace_sha256);
	tci_text_key_string(text, "events_sha256", info->events_sha256);
	tci_text_key_string(text, "machine_sha256", info->machine_sha256);
	tci_text_key_string(text, "policy", info->policy);
	tci_text_key_number(text, "staleness", info->staleness);
	tci_text_key(text, "drives");
	tci_text_raw(text, info->drives ? "true" : "false");
	flag(text, "unlimited_memory", info->unlimited_memory);
	flag(text, "reordered", info->reordered);
	tci_text_key_number(text, "scale", info->scale);
	tci_text_key_number(text, "iterations", info->iterations);
	tci_text_key_number(text, "tensors", info->tensor_count);
	tci_text_key(text, "lanes");
	tci_text_raw(text, "{");
	for (unsigned queue = 0; queue < TC_QUEUE_COUNT; queue++)
		tci_text_key_number(text, tc_queue_name((enum tc_queue)queue), info->lanes[queue]);
	tci_text_raw(text, "}");
	tci_text_key(text, "fixed_bytes");
	tci_text_raw(text, "{");
	for (unsigned tier = 0; tier < TC_TIER_COUNT; tier++)
		tci_text_key_number(text, tc_tier_name((enum tc_tier)tier),
		                    info->fixed_bytes[tier]);
	tci_text_raw(text, "}");
	header_pools(text, info);
	tci_text_raw(text, "}\n");
}

/** How a running program finds the tensor; from the trace. */
static void tensor_bind(struct tci_text *text, const struct tc_tensor *tensor)
{
	if (tensor->bind == TC_BIND_NONE)
		return;
	tci_text_key(text, "bind");
	tci_text_raw(text, "{");
	tci_text_key_word(text, "kind", tc_bind_kind_name(tensor->bind));
	if (tensor->bind_names != NULL) {
		tci_text_key(text, "names");
		tci_text_raw(text, "[");
		for (uint32_t n = 0; n < tensor->bind_name_count; n++) {
			tci_text_comma(text);
			tci_text_string(text, tensor->bind_names[n]);
		}
		tci_text_raw(text, "]");
	}
	if (tensor->bind == TC_BIND_SAVED) {
		key_number_unless(text, "m", tensor->bind_module, TC_NONE);
		tci_text_key_number(text, "ord", tensor->bind_ordinal);
	}
	tci_text_raw(text, "}");
	if (tensor->of != TC_NONE)
		tci_text_key_number(text, "of", tensor->of);
	tci_text_key(text, "bound_at");
	tci_text_signed(text, tensor->bound_at);
}

void tci_record_tensor(struct tci_text *text, const struct tc_plan_info *info, uint32_t id)
{
	const struct tc_plan_tensor *tensor = &info->tensors[id];
	tci_text_begin(text);
	tci_text_raw(text, "{");
	tci_text_key_number(text, "t", id);
	tci_text_key_string(text, "name", tensor->name);
	tci_text_key_word(text, "kind", tc_tensor_kind_name(tensor->kind));
	if (tensor->role != TC_ROLE_NONE)
		tci_text_key_word(text, "role", tc_role_name(tensor->role));
	tci_text_key_number(text, "bytes", tensor->bytes);
	key_number_unless(text, "derived_from", tensor->derived_from, TC_NONE);
	if (info->trace != NULL && id < info->trace->tensor_count)
		tensor_bind(text, &info->trace->tensors[id]);
	tci_text_key_word(text, "home", tc_tier_name(tensor->home));
	if (tensor->placed) {
		tci_text_key(text, "start");
		place(text, tensor->start);
	}
	bool open = false;
	for (uint32_t c = 0; c < info->copy_count; c++) {
		if (info->copies[c].tensor != id)
			continue;
		if (!open) {
			tci_text_key(text, "copies");
			tci_text_raw(text, "[");
			open = true;
		}
		place(text, info->copies[c].place);
	}
	tci_text_raw(text, open ? "]}\n" : "}\n");
}

/* ---------------------------------------------------------------- commands */

static void command_deps(struct tci_text *text, const struct tc_command *command)
{
	tci_text_key(text, "deps");
	tci_text_raw(text, "[");
	for (uint32_t d = 0; d < command->dep_count; d++) {
		tci_text_comma(text);
		tci_text_raw(text, "[");
		tci_text_number(text, command->deps[d].id);
		tci_text_raw(text, ",\"");
		tci_text_raw(text, tc_reason_name(command->deps[d].reason));
		tci_text_raw(text, "\"]");
	}
	tci_text_raw(text, "]");
}

/** `bind` as the format fixes it; what it has no room for stands in lists beside it. */
static void command_binds(struct tci_text *text, const struct tc_command *command)
{
	if (command->bind_count == 0)
		return;
	tci_text_key(text, "bind");
	tci_text_raw(text, "[");
	for (uint32_t b = 0; b < command->bind_count; b++) {
		tci_text_comma(text);
		tci_text_raw(text, "[");
		small_id(text, command->binds[b].tensor);
		tci_text_raw(text, ",");
		tci_text_number(text, command->binds[b].pool);
		tci_text_raw(text, ",");
		tci_text_number(text, command->binds[b].offset);
		tci_text_raw(text, "]");
	}
	tci_text_raw(text, "]");
	tci_text_key(text, "bind_bytes");
	tci_text_raw(text, "[");
	for (uint32_t b = 0; b < command->bind_count; b++) {
		tci_text_comma(text);
		tci_text_number(text, command->binds[b].bytes);
	}
	tci_text_raw(text, "]");
	tci_text_key(text, "bind_version");
	tci_text_raw(text, "[");
	for (uint32_t b = 0; b < command->bind_count; b++) {
		tci_text_comma(text);
		tci_text_number(text, command->binds[b].version);
	}
	tci_text_raw(text, "]");
	tci_text_key(text, "bind_access");
	tci_text_raw(text, "\"");
	for (uint32_t b = 0; b < command->bind_count; b++) {
		char letter[2] = {tci_access_letter(command->binds[b].access), '\0'};
		tci_text_raw(text, letter);
	}
	tci_text_raw(text, "\"");
}

static void command_ops(struct tci_text *text, const struct tc_plan_info *info,
                        const struct tc_command *command, const uint64_t *op_ps)
{
	bool has_ops = command->first_op != TC_NONE && command->last_op != TC_NONE;
	if (has_ops) {
		tci_text_key(text, "ops");
		tci_text_raw(text, "[");
		tci_text_number(text, command->first_op);
		tci_text_raw(text, ",");
		tci_text_number(text, command->last_op);
		tci_text_raw(text, "]");
	}
	if (command->kind != TC_COMPUTE) {
		key_number_unless(text, "duration_ps", command->duration_ps, 0);
		return;
	}
	uint64_t sum = 0;
	bool known = has_ops && op_ps != NULL && command->last_op < info->trace->op_count;
	for (uint32_t o = command->first_op; known && o <= command->last_op; o++)
		sum += op_ps[o];
	tci_text_key(text, "op_ps");
	tci_text_raw(text, "[");
	if (known && sum == command->duration_ps) {
		for (uint32_t o = command->first_op; o <= command->last_op; o++) {
			tci_text_comma(text);
			tci_text_number(text, op_ps[o]);
		}
	} else {
		tci_text_number(text, command->duration_ps);
	}
	tci_text_raw(text, "]");
}

static void command_served(struct tci_text *text, const struct tc_command *command)
{
	static const char *const outcomes[] = {"resident", "covered", "demand_miss"};
	if (command->served_count == 0)
		return;
	tci_text_key(text, "served");
	tci_text_raw(text, "[");
	for (uint32_t s = 0; s < command->served_count; s++) {
		const struct tc_served *served = &command->served[s];
		tci_text_comma(text);
		tci_text_raw(text, "[");
		tci_text_number(text, served->tensor);
		tci_text_raw(text, ",\"");
		tci_text_raw(text, outcomes[served->outcome]);
		tci_text_raw(text, served->is_request ? "\",\"request\"," : "\",\"read\",");
		tci_text_raw(text, served->always_resident ? "true," : "false,");
		command_id(text, served->served_by);
		tci_text_raw(text, "]");
	}
	tci_text_raw(text, "]");
}

static void command_memory(struct tci_text *text, const struct tc_command *command)
{
	if (command->memory_count == 0)
		return;
	tci_text_key(text, "memory");
	tci_text_raw(text, "[");
	for (uint32_t m = 0; m < command->memory_count; m++) {
		const struct tc_memory_change *change = &command->memory[m];
		tci_text_comma(text);
		tci_text_raw(text, "[");
		tci_text_signed(text, change->bytes);
		tci_text_raw(text, ",\"");
		tci_text_raw(text, tc_tier_name(change->tier));
		tci_text_raw(text, "\",\"");
		tci_text_raw(text, tc_tensor_kind_name(change->kind));
		tci_text_raw(text, "\",");
		command_id(text, change->after);
		tci_text_raw(text, "]");
	}
	tci_text_raw(text, "]");
}

static void command_move(struct tci_text *text, const struct tc_command *command)
{
	if (command->src.pool != TC_NO_POOL) {
		tci_text_key(text, "src");
		place(text, command->src);
	}
	if (command->dst.pool != TC_NO_POOL) {
		tci_text_key(text, "dst");
		place(text, command->dst);
	}
	key_number_unless(text, "bytes", command->bytes, 0);
	key_number_unless(text, "tensor", command->tensor, TC_NONE);
	if (command->tensor != TC_NONE || command->version != 0)
		tci_text_key_number(text, "version", command->version);
	key_number_unless(text, "offset", command->tensor_offset, 0);
	flag(text, "pageable", command->pageable);
	if (!command->first_chunk || !command->last_chunk)
		tci_text_key_word(text, "chunk",
		                  command->first_chunk  ? "first"
		                  : command->last_chunk ? "last"
		                                        : "middle");
}

void tci_record_command(struct tci_text *text, const struct tc_plan_info *info,
                        const struct tc_command *command, const uint64_t *op_ps)
{
	tci_text_begin(text);
	tci_text_raw(text, "{");
	tci_text_key_number(text, "id", command->id);
	tci_text_key_number(text, "rank", command->rank);
	tci_text_key_word(text, "queue", tc_queue_name(command->queue));
	tci_text_key_number(text, "lane", command->lane);
	tci_text_key_word(text, "kind", tc_command_kind_name(command->kind));
	tci_text_key(text, "it");
	small_id(text, command->iteration);
	tci_text_key_number(text, "step", command->step);
	tci_text_key_word(text, "phase", tc_phase_name(command->phase));
	command_deps(text, command);
	command_move(text, command);
	if (command->why != TC_WHY_NONE)
		tci_text_key_word(text, "why", tc_why_name(command->why));
	command_ops(text, info, command, op_ps);
	command_binds(text, command);
	key_number_unless(text, "traffic", command->traffic_bytes, 0);
	key_number_unless(text, "elements", command->elements, 0);
	key_number_unless(text, "launches", command->launches, 0);
	key_number_unless(text, "hooks", command->hooks, 0);
	command_served(text, command);
	command_memory(text, command);
	tci_text_raw(text, "}\n");
}

void tci_record_end(struct tci_text *text, const struct tc_plan_end *end)
{
	tci_text_begin(text);
	tci_text_raw(text, "{\"end\":true");
	tci_text_key_number(text, "commands", end->command_count);
	tci_text_key(text, "places");
	tci_text_raw(text, "[");
	for (uint32_t p = 0; p < end->place_count; p++) {
		const struct tc_final_place *final = &end->places[p];
		tci_text_comma(text);
		tci_text_raw(text, "[");
		tci_text_number(text, final->tensor);
		tci_text_raw(text, ",");
		tci_text_number(text, final->version);
		tci_text_raw(text, ",");
		tci_text_number(text, final->place.pool);
		tci_text_raw(text, ",");
		tci_text_number(text, final->place.offset);
		tci_text_raw(text, "]");
	}
	tci_text_raw(text, "]}\n");
}
