/**
 * @file demand.h
 * What lru and belady share: one arena on the GPU, homes in host memory (optimizer state on NVMe
 * if asked), fetch on demand. They differ in the victim only.
 */
#ifndef TENCACHE_SRC_POLICY_DEMAND_H
#define TENCACHE_SRC_POLICY_DEMAND_H

#include "common.h"

#define TCI_DEMAND_PARAMETERS                                                                     \
	TCI_PARAMETER_OPTIMIZER,                                                                  \
	    {.name = "activations", .type = TC_PARAMETER_COUNT, .default_text = "0", .unit = "",  \
	     .choices = NULL, .help = "1: activations are managed too, not kept on the GPU",      \
	     .source = "src/PLANNING.md"},                                                        \
	    {.name = "state", .type = TC_PARAMETER_WORD, .default_text = "cpu",                   \
	     .choices = "cpu|nvme", .unit = "", .help = "home of the optimizer state",            \
	     .source = "src/PLANNING.md"},                                                        \
	    TCI_PARAMETER_BARRIER("auto")

/** Pools, managed kinds, homes and initial places; infeasible when a step's need cannot fit. */
enum tc_status tci_demand_begin(struct tc_planner *planner, uint32_t *cache_pool,
                                struct tc_error *error);
/**
 * Call `visit` for each managed tensor that a compute step used, in the order of recency: requests,
 * then unpacked ones, then reads, then written tensors, in op order. Steps of an optimizer on the
 * CPU use nothing.
 */
void tci_demand_visit(struct tc_planner *planner, uint32_t step,
                      void (*visit)(void *self, struct tc_planner *planner, uint32_t tensor),
                      void *self);

#endif
