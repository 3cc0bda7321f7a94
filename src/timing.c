/** @file timing.c
 * The words of a timing, and one run for several consumers. */
#include "tencache/timing.h"

const char *tc_stall_cause_name(enum tc_stall_cause cause)
{
	static const char *const names[TC_STALL_CAUSE_COUNT] = {[TC_STALL_ISSUED_LATE] =
	                                                            "issued_late",
	                                                        [TC_STALL_LINK_BUSY] = "link_busy",
	                                                        [TC_STALL_NVME] = "nvme",
	                                                        [TC_STALL_NO_BUFFER] = "no_buffer",
	                                                        [TC_STALL_OPTIMIZER] = "optimizer",
	                                                        [TC_STALL_HOST_CALL] = "host_call",
	                                                        [TC_STALL_FAULT] = "fault"};
	return (unsigned)cause < TC_STALL_CAUSE_COUNT ? names[cause] : "unknown";
}

static enum tc_status tee_finished(void *self, const struct tc_command *command,
                                   const struct tc_timing *timing, struct tc_error *error)
{
	const struct tc_timing_tee *tee = self;
	for (size_t s = 0; s < tee->count; s++)
		if (tee->sinks[s].finished != NULL)
			TC_TRY(tee->sinks[s].finished(tee->sinks[s].self, command, timing, error));
	return TC_OK;
}

struct tc_timing_sink tc_timing_tee_sink(struct tc_timing_tee *tee)
{
	return (struct tc_timing_sink){tee, tee_finished};
}
