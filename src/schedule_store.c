/*
 * A schedule in memory: a sink that keeps everything, and playing it into another sink.
 *
 * Lists and strings live in large blocks that are freed together; commands in one array.
 */
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "schedule_copy.h"
#include "tencache/units.h"

enum stage { STAGE_NEW, STAGE_BEGUN, STAGE_ENDED };

struct store {
	struct tci_blocks *blocks;
	size_t command_capacity;
	enum stage stage;
};

static enum tc_status copy_list(struct store *store, const void *items, uint64_t count,
                                size_t element_bytes, const char *what, const void **copy,
                                struct tc_error *error)
{
	*copy = NULL;
	if (count == 0)
		return TC_OK;
	void *memory = tci_blocks_take(store->blocks, (size_t)count, element_bytes);
	if (memory == NULL)
		return tc_error_no_memory(error, what, count);
	*copy = memcpy(memory, items, (size_t)count * element_bytes);
	return TC_OK;
}

static enum tc_status copy_text(struct store *store, const char *text, const char **copy,
                                struct tc_error *error)
{
	*copy = NULL;
	if (text == NULL)
		return TC_OK;
	*copy = tci_blocks_string(store->blocks, text);
	return *copy == NULL ? tc_error_no_memory(error, "a name in a schedule", strlen(text))
	                     : TC_OK;
}

static enum tc_status copy_pools(struct store *store, struct tc_plan_info *info,
                                 struct tc_error *error)
{
	const void *copy;
	TC_TRY(copy_list(store, info->pools, info->pool_count, sizeof *info->pools,
	                 "the pools of a schedule", &copy, error));
	struct tc_pool_info *pools = (struct tc_pool_info *)(uintptr_t)copy;
	info->pools = pools;
	for (uint32_t p = 0; p < info->pool_count; p++)
		TC_TRY(copy_text(store, pools[p].name, &pools[p].name, error));
	return TC_OK;
}

static enum tc_status copy_tensors(struct store *store, struct tc_plan_info *info,
                                   struct tc_error *error)
{
	const void *copy;
	TC_TRY(copy_list(store, info->tensors, info->tensor_count, sizeof *info->tensors,
	                 "the tensors of a schedule", &copy, error));
	struct tc_plan_tensor *tensors = (struct tc_plan_tensor *)(uintptr_t)copy;
	info->tensors = tensors;
	for (uint32_t t = 0; t < info->tensor_count; t++)
		TC_TRY(copy_text(store, tensors[t].name, &tensors[t].name, error));
	TC_TRY(copy_list(store, info->copies, info->copy_count, sizeof *info->copies,
	                 "the initial copies of a schedule", &copy, error));
	info->copies = copy;
	return TC_OK;
}

static enum tc_status store_begin(void *self, const struct tc_plan_info *info,
                                  struct tc_error *error)
{
	struct tc_schedule *schedule = self;
	struct store *store = schedule->storage;
	if (store->stage != STAGE_NEW)
		return tc_error_set(error, TC_ARGUMENT,
		                    "a stored schedule takes one plan only; create another one");
	store->stage = STAGE_BEGUN;
	schedule->info = *info;
	struct tc_plan_info *copy = &schedule->info;
	TC_TRY(copy_text(store, info->policy, &copy->policy, error));
	TC_TRY(copy_text(store, info->trace_name, &copy->trace_name, error));
	TC_TRY(copy_text(store, info->trace_sha256, &copy->trace_sha256, error));
	TC_TRY(copy_text(store, info->events_sha256, &copy->events_sha256, error));
	TC_TRY(copy_text(store, info->machine_sha256, &copy->machine_sha256, error));
	TC_TRY(copy_pools(store, copy, error));
	return copy_tensors(store, copy, error);
}

static enum tc_status store_command(void *self, const struct tc_command *command,
                                    struct tc_error *error)
{
	struct tc_schedule *schedule = self;
	struct store *store = schedule->storage;
	if (store->stage != STAGE_BEGUN)
		return tc_error_set(error, TC_INTERNAL,
		                    "command %llu came before the schedule began or after it ended",
		                    (unsigned long long)command->id);
	size_t needed = (size_t)schedule->command_count + 1;
	if (!tc_grow_array(&schedule->commands, &store->command_capacity, needed,
	                   sizeof *schedule->commands))
		return tc_error_no_memory(error, "the commands of a schedule",
		                          needed * sizeof *schedule->commands);
	uint64_t bytes;
	if (!tci_command_list_bytes(command, &bytes))
		return tc_error_set(error, TC_TOO_LARGE,
		                    "command %llu: its lists do not fit in memory",
		                    (unsigned long long)command->id);
	void *block = tci_blocks_take(store->blocks, (size_t)bytes, 1);
	if (block == NULL)
		return tc_error_no_memory(error, "the lists of a command", bytes);
	tci_command_copy_into(&schedule->commands[schedule->command_count++], command, block);
	return TC_OK;
}

static enum tc_status store_end(void *self, const struct tc_plan_end *end, struct tc_error *error)
{
	struct tc_schedule *schedule = self;
	struct store *store = schedule->storage;
	const void *places;
	TC_TRY(copy_list(store, end->places, end->place_count, sizeof *end->places,
	                 "the final places of a schedule", &places, error));
	schedule->end = *end;
	schedule->end.places = places;
	store->stage = STAGE_ENDED;
	return TC_OK;
}

enum tc_status tc_schedule_create(struct tc_schedule **schedule, struct tc_error *error)
{
	*schedule = NULL;
	struct tc_schedule *created = calloc(1, sizeof *created);
	struct store *store = calloc(1, sizeof *store);
	if (created == NULL || store == NULL || (store->blocks = tci_blocks_create()) == NULL) {
		free(created);
		free(store);
		return tc_error_no_memory(error, "a schedule", sizeof *created + sizeof *store);
	}
	created->storage = store;
	*schedule = created;
	return TC_OK;
}

struct tc_sink tc_schedule_sink(struct tc_schedule *schedule)
{
	return (struct tc_sink){schedule, store_begin, store_command, store_end};
}

void tc_schedule_free(struct tc_schedule *schedule)
{
	if (schedule == NULL)
		return;
	struct store *store = schedule->storage;
	tci_blocks_free(store->blocks);
	free(store);
	free(schedule->commands);
	free(schedule);
}

enum tc_status tc_schedule_play(const struct tc_schedule *schedule, const struct tc_sink *sink,
                                struct tc_error *error)
{
	if (sink->begin != NULL)
		TC_TRY(sink->begin(sink->self, &schedule->info, error));
	for (uint64_t c = 0; sink->command != NULL && c < schedule->command_count; c++)
		TC_TRY(sink->command(sink->self, &schedule->commands[c], error));
	if (sink->end != NULL)
		TC_TRY(sink->end(sink->self, &schedule->end, error));
	return TC_OK;
}
