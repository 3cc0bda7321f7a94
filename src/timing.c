/** @file timing.c
 * The words of a timing. */
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
