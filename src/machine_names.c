/**
 * @file machine_names.c
 * Fixed words of machine.h.
 */
#include "tencache/machine.h"

const char *tc_confidence_name(enum tc_confidence confidence)
{
	static const char *const names[] = {"low", "medium", "high"};
	return names[confidence];
}

const char *tc_tier_name(enum tc_tier tier)
{
	static const char *const names[TC_TIER_COUNT] = {"gpu", "cpu", "nvme"};
	return (unsigned)tier < TC_TIER_COUNT ? names[tier] : "none";
}

const char *tc_queue_name(enum tc_queue queue)
{
	static const char *const names[TC_QUEUE_COUNT] = {
	    "compute", "h2d", "d2h", "nvme_read", "nvme_write", "gpu_nvme", "cpu", "host"};
	return (unsigned)queue < TC_QUEUE_COUNT ? names[queue] : "none";
}
