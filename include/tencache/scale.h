/**
 * @file scale.h
 * A model, a machine and a policy made smaller by a factor, before planning, so that a replay of a
 * large model fits a small computer: what is moved and what there is room for shrink alike.
 */
#ifndef TENCACHE_SCALE_H
#define TENCACHE_SCALE_H

#include "tencache/policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Largest factor. */
#define TC_MAX_SCALE 1048576u

/**
 * Divide the bytes of a trace that was just read. A tensor of e elements of a known data type gets
 * ceil(e / scale) of them, rounded up to a multiple of 16, so that a parameter, its master and its
 * moments keep equal numbers; a tensor of an unknown type that many bytes. So every tensor has at
 * least 16 bytes. Sub-ranges, workspace, FLOPs and traffic of ops are divided too.
 *
 * @param divide_times measured op times as well: where the machine's rates stay as they are
 * @return TC_ARGUMENT for 0, more than TC_MAX_SCALE, or a trace that was scaled already
 */
enum tc_status tc_trace_scale(struct tc_trace *trace, uint64_t scale, bool divide_times,
                              struct tc_error *error);

/**
 * Divide capacities, framework bytes, endurance and chunk size (at least 4 KiB, in whole 4 KiB).
 * @param divide_rates also everything counted per second, so that times stay
 */
enum tc_status tc_machine_scale(struct tc_machine *machine, uint64_t scale, bool divide_rates,
                                struct tc_error *error);

/**
 * Divide the policy's parameters that count bytes or elements (defaults too, `auto` and text stay),
 * at least 1. Exact sizes of parameters become what tc_trace_scale() makes of these parameters, so
 * that they name the same ones. The policy's text keeps the values as given.
 *
 * @param trace as it was read: scale it afterwards
 * @return TC_ARGUMENT where the trace has no parameter of a size, or parameters of one size get
 * several; the choice is of no use then
 */
enum tc_status tc_policy_scale(struct tc_policy_choice *choice, const struct tc_trace *trace,
                               uint64_t scale, struct tc_error *error);

#ifdef __cplusplus
}
#endif
#endif
