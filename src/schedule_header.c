/*
 * Header and tensor table of a schedule file.
 */
#include <stdio.h>
#include <string.h>

#include "schedule_reader.h"
#include "schedule_records.h"
#include "tencache/units.h"

static const char *keep(struct tci_schedule_reader *reader, struct tci_fields *fields,
                        const char *key, bool required)
{
	const char *text = tci_fields_string(fields, key, required);
	const char *kept = tci_blocks_string(reader->blocks, text);
	if (kept != NULL)
		return kept;
	(void)tc_error_no_memory(fields->error, "a name in a schedule file", strlen(text));
	fields->wrong = true;
	return "";
}

static void check_format(struct tci_fields *fields)
{
	const char *format = tci_fields_string(fields, "format", true);
	const char *version = tci_fields_string(fields, "version", true);
	if (strcmp(format, TCI_SCHEDULE_FORMAT) != 0)
		tci_fields_refuse(fields, "format", json_object_get(fields->object, "format"),
		                  "\"" TCI_SCHEDULE_FORMAT "\"");
	if (strncmp(version, "1.", 2) != 0)
		tci_fields_refuse(fields, "version", json_object_get(fields->object, "version"),
		                  "1.x, which this program reads");
}

static enum tc_status read_pools(struct tci_schedule_reader *reader, struct tci_fields *fields)
{
	const json_t *list = tci_fields_array(fields, "pools", true);
	size_t count = json_array_size(list);
	struct tc_pool_info *pools = tci_blocks_take(reader->blocks, count, sizeof *pools);
	if (pools == NULL)
		return tc_error_no_memory(fields->error, "the pools of a schedule", count);
	for (size_t p = 0; p < count && !fields->wrong; p++) {
		struct tci_fields pool = *fields;
		pool.object = json_array_get(list, p);
		if (!json_is_object(pool.object)) {
			tci_fields_refuse(fields, "pools", pool.object, "an object for each pool");
			break;
		}
		pools[p].tier = (enum tc_tier)tci_fields_word(&pool, "tier", tci_word_tier,
		                                              TC_TIER_COUNT, TC_TIER_COUNT);
		pools[p].name = keep(reader, &pool, "name", true);
		pools[p].kind = (enum tc_pool_kind)tci_fields_word(
		    &pool, "kind", tci_word_pool_kind, TC_POOL_RING + 1, TC_POOL_RING + 1);
		pools[p].pinned = tci_fields_flag(&pool, "pinned", true);
		pools[p].bytes =
		    tci_fields_number(&pool, "bytes", TC_MAX_JSON_INTEGER, TCI_FIELD_REQUIRED);
		fields->wrong = pool.wrong;
	}
	reader->info.pools = pools;
	reader->info.pool_count = (uint32_t)count;
	return TC_OK;
}

/** An object with a number for each name. */
static void read_numbers(struct tci_fields *fields, const char *key,
                         const char *(*name_of)(unsigned), unsigned count, uint64_t largest,
                         uint64_t *numbers)
{
	struct tci_fields inner = *fields;
	inner.object = json_object_get(fields->object, key);
	if (!json_is_object(inner.object)) {
		tci_fields_refuse(fields, key, inner.object, "an object");
		return;
	}
	for (unsigned i = 0; i < count; i++)
		numbers[i] = tci_fields_number(&inner, name_of(i), largest, 0);
	fields->wrong |= inner.wrong;
}

enum tc_status tci_schedule_read_header(struct tci_schedule_reader *reader,
                                        struct tci_fields *fields)
{
	struct tc_plan_info *info = &reader->info;
	check_format(fields);
	if (fields->wrong)
		return tci_fields_status(fields);
	info->trace_name = keep(reader, fields, "trace", false);
	info->trace_sha256 = keep(reader, fields, "trace_sha256", true);
	info->events_sha256 = keep(reader, fields, "events_sha256", true);
	info->machine_sha256 = keep(reader, fields, "machine_sha256", true);
	info->policy = keep(reader, fields, "policy", true);
	info->staleness = (uint32_t)tci_fields_number(fields, "staleness", UINT32_MAX, 0);
	info->drives = tci_fields_flag(fields, "drives", true);
	info->unlimited_memory = tci_fields_flag(fields, "unlimited_memory", false);
	info->reordered = tci_fields_flag(fields, "reordered", false);
	info->scale = tci_fields_number(fields, "scale", TC_MAX_JSON_INTEGER, 1);
	info->iterations = (uint32_t)tci_fields_number(fields, "iterations", TC_ITERATION_INIT - 1,
	                                               TCI_FIELD_REQUIRED);
	reader->tensors_claimed =
	    tci_fields_number(fields, "tensors", TC_NONE - 1, TCI_FIELD_REQUIRED);
	uint64_t lanes[TC_QUEUE_COUNT] = {0};
	read_numbers(fields, "lanes", tci_word_queue, TC_QUEUE_COUNT, TC_MAX_LANES, lanes);
	for (unsigned queue = 0; queue < TC_QUEUE_COUNT; queue++)
		info->lanes[queue] = (uint32_t)lanes[queue];
	read_numbers(fields, "fixed_bytes", tci_word_tier, TC_TIER_COUNT, TC_MAX_JSON_INTEGER,
	             info->fixed_bytes);
	TC_TRY(read_pools(reader, fields));
	return tci_fields_status(fields);
}

static enum tc_status add_copies(struct tci_schedule_reader *reader, struct tci_fields *fields,
                                 uint32_t tensor)
{
	const json_t *list = tci_fields_array(fields, "copies", false);
	for (size_t c = 0; c < json_array_size(list); c++) {
		size_t count = reader->info.copy_count;
		if (count + 1 >= TC_NONE || !tc_grow_array(&reader->copies, &reader->copy_capacity,
		                                           count + 1, sizeof *reader->copies))
			return tc_error_no_memory(fields->error, "initial copies", count);
		reader->copies[count] = (struct tc_initial_copy){
		    tensor, tci_element_place(fields, "copies", json_array_get(list, c))};
		reader->info.copy_count++;
	}
	return TC_OK;
}

enum tc_status tci_schedule_read_tensor(struct tci_schedule_reader *reader,
                                        struct tci_fields *fields)
{
	uint32_t id = reader->info.tensor_count;
	char expected[64];
	(void)snprintf(expected, sizeof expected, "%u (ids are dense)", id);
	if (tci_fields_number(fields, "t", TC_NONE - 1, TCI_FIELD_REQUIRED) != id)
		tci_fields_refuse(fields, "t", json_object_get(fields->object, "t"), expected);
	if (fields->wrong)
		return tci_fields_status(fields);
	if (!tc_grow_array(&reader->tensors, &reader->tensor_capacity, (size_t)id + 1,
	                   sizeof *reader->tensors))
		return tc_error_no_memory(fields->error, "the tensors of a schedule", id);
	reader->tensors[id] = (struct tc_plan_tensor){
	    .name = keep(reader, fields, "name", false),
	    .kind = (enum tc_tensor_kind)tci_fields_word(
	        fields, "kind", tci_word_tensor_kind, TC_TENSOR_KIND_COUNT, TC_TENSOR_KIND_COUNT),
	    .role = (enum tc_role)tci_fields_word(fields, "role", tci_word_role, TC_ROLE_OTHER + 1,
	                                          TC_ROLE_NONE),
	    .bytes = tci_fields_number(fields, "bytes", TC_MAX_JSON_INTEGER, TCI_FIELD_REQUIRED),
	    .derived_from = tci_fields_id(fields, "derived_from"),
	    .home = (enum tc_tier)tci_fields_word(fields, "home", tci_word_tier, TC_TIER_COUNT,
	                                          TC_TIER_COUNT),
	    .placed = tci_fields_has(fields, "start"),
	};
	if (reader->tensors[id].placed)
		reader->tensors[id].start = tci_fields_place(fields, "start");
	TC_TRY(add_copies(reader, fields, id));
	reader->info.tensor_count++;
	return tci_fields_status(fields);
}
