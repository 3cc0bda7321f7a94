/**
 * @file small_plan.h
 * Small traces by hand and a machine whose GPU holds little more than what a test wants it to.
 */
#ifndef TENCACHE_TEST_SMALL_PLAN_H
#define TENCACHE_TEST_SMALL_PLAN_H

#include "plan_check.h"
#include "plan_graph.h"
#include "trace_builder.h"

/** Every tensor of these traces is one slot of the default alignment, or a multiple of it. */
#define SLOT UINT64_C(512)
/** GPU memory that is never short. */
#define PLENTY (UINT64_C(1) << 20)
#define ANY UINT32_MAX
#define FIND(kind_, tensor_, iteration_)                                                           \
	((struct plan_query){.kind = (kind_), .tensor = (tensor_), .iteration = (iteration_)})

struct small {
	struct tc_trace *trace;
	struct tc_machine *machine;
};

/** Lifetimes are filled in unless they are there; the builder is freed. `gpu_bytes` come on top of
 * the framework's. */
struct small small_of(struct test_builder *builder, uint64_t gpu_bytes);
void small_free(struct small *small);
/** Two iterations. */
struct plan_case small_case(const struct small *small, const char *policy);
/** Plan, check and keep; free with plan_kept_free(). */
struct plan_kept small_kept(const struct small *small, const char *policy);

uint32_t small_pool(const struct tc_schedule *schedule, const char *name);
/** The tensor of this kind that is derived from `source`; fails the test if there is none. */
uint32_t small_derived(const struct tc_schedule *schedule, uint32_t source,
                       enum tc_tensor_kind kind);
/** What a command says about a tensor, or NULL. */
const struct tc_bind *small_bind(const struct tc_command *command, uint32_t tensor);

/** One op of a module between its two forward events. */
void small_forward(struct test_builder *builder, uint32_t module, const uint32_t *reads,
                   const uint32_t *writes);
/** Module a writes its parameter 0 (as running statistics are), module b only reads its own, 1. */
struct test_builder *small_two_modules(void);

#endif
