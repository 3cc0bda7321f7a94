/*
 * Commands and the end record of a schedule file.
 */
#include <string.h>

#include "schedule_reader.h"
#include "schedule_records.h"
#include "tencache/units.h"

static const uint64_t no_command = TC_NO_COMMAND, no_tensor = TC_NONE;

/** Room for a list of the record; NULL and an error when there is none. */
static bool room(struct tci_fields *fields, void *array, size_t *capacity, size_t count,
                 size_t element_bytes)
{
	if (tc_grow_array(array, capacity, count + 1, element_bytes))
		return true;
	(void)tc_error_no_memory(fields->error, "the lists of a command", count);
	fields->wrong = true;
	return false;
}

static void read_deps(struct tci_schedule_reader *reader, struct tci_fields *fields,
                      struct tc_command *command)
{
	const json_t *list = tci_fields_array(fields, "deps", true);
	size_t count = json_array_size(list);
	if (!room(fields, &reader->deps, &reader->dep_capacity, count, sizeof *reader->deps))
		return;
	for (size_t d = 0; d < count && !fields->wrong; d++) {
		const json_t *pair =
		    tci_element_list(fields, "deps", list, d, 2, "[command, reason]");
		reader->deps[d] = (struct tc_dependency){
		    tci_element_number(fields, "deps", json_array_get(pair, 0), TC_MAX_JSON_INTEGER,
		                       NULL),
		    (enum tc_reason)tci_element_word(fields, "deps", json_array_get(pair, 1),
		                                     tci_word_reason, TC_REASON_COUNT)};
	}
	command->deps = reader->deps;
	command->dep_count = (uint32_t)count;
}

static enum tc_access read_access(struct tci_fields *fields, char letter)
{
	for (unsigned access = TC_READ; access <= TC_READ_WRITE; access++)
		if (tci_access_letter((enum tc_access)access) == letter)
			return (enum tc_access)access;
	tci_fields_refuse(fields, "bind_access", json_object_get(fields->object, "bind_access"),
	                  "letters r, w and u");
	return TC_READ;
}

/** A list beside `bind`, or NULL where it is left out; its length must be the same. */
static const json_t *beside(struct tci_fields *fields, const char *key, size_t count)
{
	const json_t *list = tci_fields_array(fields, key, false);
	if (list != NULL && json_array_size(list) != count)
		tci_fields_refuse(fields, key, list, "as many elements as \"bind\" has");
	return list;
}

static void read_binds(struct tci_schedule_reader *reader, struct tci_fields *fields,
                       struct tc_command *command)
{
	const json_t *list = tci_fields_array(fields, "bind", false);
	size_t count = json_array_size(list);
	const json_t *bytes = beside(fields, "bind_bytes", count);
	const json_t *versions = beside(fields, "bind_version", count);
	const char *access = tci_fields_string(fields, "bind_access", count > 0);
	if (strlen(access) != count)
		tci_fields_refuse(fields, "bind_access",
		                  json_object_get(fields->object, "bind_access"),
		                  "one letter for each bind");
	if (count > 0 && (bytes == NULL || versions == NULL))
		tci_fields_refuse(fields, "bind_bytes", bytes,
		                  "\"bind_bytes\" and \"bind_version\" beside \"bind\"");
	if (!room(fields, &reader->binds, &reader->bind_capacity, count, sizeof *reader->binds))
		return;
	for (size_t b = 0; b < count && !fields->wrong; b++) {
		const json_t *bind =
		    tci_element_list(fields, "bind", list, b, 3, "[tensor, pool, offset]");
		reader->binds[b] = (struct tc_bind){
		    .tensor = (uint32_t)tci_element_number(fields, "bind", json_array_get(bind, 0),
		                                           TC_NONE - 1, &no_tensor),
		    .pool = (uint32_t)tci_element_number(fields, "bind", json_array_get(bind, 1),
		                                         TC_NO_POOL - 1, NULL),
		    .offset = tci_element_number(fields, "bind", json_array_get(bind, 2),
		                                 TC_MAX_JSON_INTEGER, NULL),
		    .bytes = tci_element_number(fields, "bind_bytes", json_array_get(bytes, b),
		                                TC_MAX_JSON_INTEGER, NULL),
		    .version =
		        tci_element_number(fields, "bind_version", json_array_get(versions, b),
		                           TC_MAX_JSON_INTEGER, NULL),
		    .access = read_access(fields, access[b])};
	}
	command->binds = reader->binds;
	command->bind_count = (uint32_t)count;
}

static const char *request_word(unsigned value)
{
	return value == 0 ? "read" : "request";
}

static void read_served(struct tci_schedule_reader *reader, struct tci_fields *fields,
                        struct tc_command *command)
{
	const json_t *list = tci_fields_array(fields, "served", false);
	size_t count = json_array_size(list);
	if (!room(fields, &reader->served, &reader->served_capacity, count, sizeof *reader->served))
		return;
	for (size_t s = 0; s < count && !fields->wrong; s++) {
		const json_t *item =
		    tci_element_list(fields, "served", list, s, 5,
		                     "[tensor, outcome, request or read, always, command]");
		const json_t *always = json_array_get(item, 3);
		if (!json_is_boolean(always))
			tci_fields_refuse(fields, "served", always, "true or false");
		reader->served[s] = (struct tc_served){
		    .tensor = (uint32_t)tci_element_number(
		        fields, "served", json_array_get(item, 0), TC_NONE - 1, NULL),
		    .outcome = (enum tc_outcome)tci_element_word(
		        fields, "served", json_array_get(item, 1), tci_word_outcome, 3),
		    .is_request = tci_element_word(fields, "served", json_array_get(item, 2),
		                                   request_word, 2) == 1,
		    .always_resident = json_is_true(always),
		    .served_by = tci_element_number(fields, "served", json_array_get(item, 4),
		                                    TC_MAX_JSON_INTEGER, &no_command)};
	}
	command->served = reader->served;
	command->served_count = (uint32_t)count;
}

static int64_t signed_bytes(struct tci_fields *fields, const json_t *value)
{
	json_int_t bytes = json_integer_value(value);
	if (json_is_integer(value) && bytes >= -(json_int_t)TC_MAX_JSON_INTEGER &&
	    bytes <= (json_int_t)TC_MAX_JSON_INTEGER)
		return bytes;
	tci_fields_refuse(fields, "memory", value, "a number of bytes");
	return 0;
}

static void read_memory(struct tci_schedule_reader *reader, struct tci_fields *fields,
                        struct tc_command *command)
{
	const json_t *list = tci_fields_array(fields, "memory", false);
	size_t count = json_array_size(list);
	if (!room(fields, &reader->memory, &reader->memory_capacity, count, sizeof *reader->memory))
		return;
	for (size_t m = 0; m < count && !fields->wrong; m++) {
		const json_t *item =
		    tci_element_list(fields, "memory", list, m, 4, "[bytes, tier, kind, command]");
		reader->memory[m] = (struct tc_memory_change){
		    .bytes = signed_bytes(fields, json_array_get(item, 0)),
		    .tier = (enum tc_tier)tci_element_word(
		        fields, "memory", json_array_get(item, 1), tci_word_tier, TC_TIER_COUNT),
		    .kind = (enum tc_tensor_kind)tci_element_word(
		        fields, "memory", json_array_get(item, 2), tci_word_tensor_kind,
		        TC_TENSOR_KIND_COUNT),
		    .after = tci_element_number(fields, "memory", json_array_get(item, 3),
		                                TC_MAX_JSON_INTEGER, &no_command)};
	}
	command->memory = reader->memory;
	command->memory_count = (uint32_t)count;
}

static void read_ops(struct tci_fields *fields, struct tc_command *command)
{
	const json_t *ops = tci_fields_array(fields, "ops", false);
	command->first_op = command->last_op = TC_NONE;
	if (ops != NULL && json_array_size(ops) != 2)
		tci_fields_refuse(fields, "ops", ops, "[first, last]");
	if (ops != NULL && !fields->wrong) {
		command->first_op = (uint32_t)tci_element_number(
		    fields, "ops", json_array_get(ops, 0), TC_NONE - 1, NULL);
		command->last_op = (uint32_t)tci_element_number(
		    fields, "ops", json_array_get(ops, 1), TC_NONE - 1, NULL);
	}
	if (command->kind != TC_COMPUTE) {
		command->duration_ps =
		    tci_fields_number(fields, "duration_ps", TC_MAX_JSON_INTEGER, 0);
		return;
	}
	const json_t *times = tci_fields_array(fields, "op_ps", true);
	size_t count = json_array_size(times);
	if (!fields->wrong && count != 1 &&
	    count != (uint64_t)command->last_op - command->first_op + 1)
		tci_fields_refuse(fields, "op_ps", times, "one time for each op, or their sum");
	for (size_t o = 0; o < count && !fields->wrong; o++)
		if (!tc_add_u64(command->duration_ps,
		                tci_element_number(fields, "op_ps", json_array_get(times, o),
		                                   TC_MAX_JSON_INTEGER, NULL),
		                &command->duration_ps))
			tci_fields_refuse(fields, "op_ps", times, "a sum below 2^64");
}

static const char *chunk_word(unsigned value)
{
	static const char *const names[] = {"first", "middle", "last", "whole"};
	return names[value < 4 ? value : 3];
}

static void read_move(struct tci_fields *fields, struct tc_command *command)
{
	command->src = tci_fields_place(fields, "src");
	command->dst = tci_fields_place(fields, "dst");
	command->bytes = tci_fields_number(fields, "bytes", TC_MAX_JSON_INTEGER, 0);
	command->tensor = tci_fields_id(fields, "tensor");
	command->version = tci_fields_number(fields, "version", TC_MAX_JSON_INTEGER, 0);
	command->tensor_offset = tci_fields_number(fields, "offset", TC_MAX_JSON_INTEGER, 0);
	command->pageable = tci_fields_flag(fields, "pageable", false);
	unsigned chunk = tci_fields_word(fields, "chunk", chunk_word, 4, 3);
	command->first_chunk = chunk == 0 || chunk == 3;
	command->last_chunk = chunk == 2 || chunk == 3;
}

enum tc_status tci_schedule_read_command(struct tci_schedule_reader *reader,
                                         struct tci_fields *fields, struct tc_command *command)
{
	static const uint64_t init = TC_ITERATION_INIT;
	*command = (struct tc_command){0};
	command->id = tci_fields_number(fields, "id", TC_MAX_JSON_INTEGER, TCI_FIELD_REQUIRED);
	command->rank = (uint32_t)tci_fields_number(fields, "rank", UINT32_MAX, 0);
	command->queue = (enum tc_queue)tci_fields_word(fields, "queue", tci_word_queue,
	                                                TC_QUEUE_COUNT, TC_QUEUE_COUNT);
	command->lane = (uint32_t)tci_fields_number(fields, "lane", TC_MAX_LANES, 0);
	command->kind = (enum tc_command_kind)tci_fields_word(
	    fields, "kind", tci_word_command_kind, TC_COMMAND_KIND_COUNT, TC_COMMAND_KIND_COUNT);
	command->iteration = (uint32_t)tci_element_number(
	    fields, "it", json_object_get(fields->object, "it"), TC_ITERATION_INIT - 1, &init);
	command->step =
	    (uint32_t)tci_fields_number(fields, "step", TC_NONE - 1, TCI_FIELD_REQUIRED);
	command->phase = (enum tc_phase)tci_fields_word(fields, "phase", tci_word_phase,
	                                                TC_PHASE_COUNT, TC_OTHER);
	command->why =
	    (enum tc_why)tci_fields_word(fields, "why", tci_word_why, TC_WHY_COUNT, TC_WHY_NONE);
	command->traffic_bytes = tci_fields_number(fields, "traffic", TC_MAX_JSON_INTEGER, 0);
	command->elements = tci_fields_number(fields, "elements", TC_MAX_JSON_INTEGER, 0);
	command->launches = (uint32_t)tci_fields_number(fields, "launches", UINT32_MAX, 0);
	command->hooks = (uint32_t)tci_fields_number(fields, "hooks", UINT32_MAX, 0);
	read_move(fields, command);
	read_ops(fields, command);
	read_deps(reader, fields, command);
	read_binds(reader, fields, command);
	read_served(reader, fields, command);
	read_memory(reader, fields, command);
	return tci_fields_status(fields);
}

enum tc_status tci_schedule_read_end(struct tci_schedule_reader *reader, struct tci_fields *fields,
                                     struct tc_plan_end *end)
{
	end->command_count =
	    tci_fields_number(fields, "commands", TC_MAX_JSON_INTEGER, TCI_FIELD_REQUIRED);
	const json_t *list = tci_fields_array(fields, "places", true);
	size_t count = json_array_size(list);
	if (!room(fields, &reader->places, &reader->place_capacity, count, sizeof *reader->places))
		return tci_fields_status(fields);
	for (size_t p = 0; p < count && !fields->wrong; p++) {
		const json_t *item = tci_element_list(fields, "places", list, p, 4,
		                                      "[tensor, version, pool, offset]");
		uint64_t numbers[4];
		for (size_t i = 0; i < 4; i++)
			numbers[i] = tci_element_number(
			    fields, "places", json_array_get(item, i),
			    i % 2 == 0 ? TC_NONE - 1 : TC_MAX_JSON_INTEGER, NULL);
		reader->places[p] = (struct tc_final_place){
		    (uint32_t)numbers[0], numbers[1], {(uint32_t)numbers[2], numbers[3]}};
	}
	end->places = reader->places;
	end->place_count = (uint32_t)count;
	return tci_fields_status(fields);
}
