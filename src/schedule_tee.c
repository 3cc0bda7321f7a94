/*
 * One plan, several consumers: a sink that passes everything on, in order.
 */
#include "tencache/schedule.h"

static enum tc_status tee_begin(void *self, const struct tc_plan_info *info, struct tc_error *error)
{
	const struct tc_tee *tee = self;
	for (size_t s = 0; s < tee->count; s++)
		if (tee->sinks[s].begin != NULL)
			TC_TRY(tee->sinks[s].begin(tee->sinks[s].self, info, error));
	return TC_OK;
}

static enum tc_status tee_command(void *self, const struct tc_command *command,
                                  struct tc_error *error)
{
	const struct tc_tee *tee = self;
	for (size_t s = 0; s < tee->count; s++)
		if (tee->sinks[s].command != NULL)
			TC_TRY(tee->sinks[s].command(tee->sinks[s].self, command, error));
	return TC_OK;
}

static enum tc_status tee_end(void *self, const struct tc_plan_end *end, struct tc_error *error)
{
	const struct tc_tee *tee = self;
	for (size_t s = 0; s < tee->count; s++)
		if (tee->sinks[s].end != NULL)
			TC_TRY(tee->sinks[s].end(tee->sinks[s].self, end, error));
	return TC_OK;
}

struct tc_sink tc_tee_sink(struct tc_tee *tee)
{
	return (struct tc_sink){tee, tee_begin, tee_command, tee_end};
}
