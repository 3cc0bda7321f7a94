/**
 * @file common.h
 * What several policies share: parameters, barriers, and homes in host memory or on NVMe.
 */
#ifndef TENCACHE_SRC_POLICY_COMMON_H
#define TENCACHE_SRC_POLICY_COMMON_H

#include "tencache/planner.h"

/** Rows of a policy's parameter table. */
#define TCI_PARAMETER_OPTIMIZER                                                                   \
	{.name = "optimizer", .type = TC_PARAMETER_WORD, .default_text = "cpu",                   \
	 .choices = "gpu|cpu", .unit = "",                                                        \
	 .help = "where the optimizer runs: its state moves to the GPU, or it is updated in host " \
	         "memory",                                                                        \
	 .source = "src/PLANNING.md"}
#define TCI_PARAMETER_BARRIER(default_value)                                                      \
	{.name = "barrier", .type = TC_PARAMETER_COUNT, .default_text = default_value,            \
	 .unit = "", .choices = "auto",                                                           \
	 .help = "1: no update before every gradient has arrived (global norm, overflow check); " \
	         "auto: where the trace has clipping or computes in fp16",                        \
	 .source = "src/PLANNING.md"}

/** Is the parameter `name` set to the word `word`? */
bool tci_value_is(const struct tc_planner *planner, const char *name, const char *word);
/** Parameter `barrier`, `auto` resolved by the trace: clipping or an fp16 compute type. */
bool tci_value_barrier(const struct tc_planner *planner);
/**
 * TC_INFEASIBLE where the trace needs a gradient after `system` has dropped it, or does not say
 * whose it is: systems with a gradient path of their own keep no `.grad` once it is copied out. Call
 * in begin().
 */
enum tc_status tci_gradients_can_leave(const struct tc_planner *planner, const char *system,
                                       struct tc_error *error);
/** Whether backward comes again after this boundary: there are more micro-batches. */
bool tci_more_backward(const struct tc_planner *planner);
/** Give a tensor its home and its initial content in `pool`. */
enum tc_status tci_place_at_home(struct tc_planner *planner, uint32_t tensor, uint32_t pool,
                          enum tc_tier home, struct tc_error *error);

#endif
