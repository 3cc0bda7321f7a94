/** Short ways to derive steps and to compare requests, for cmocka tests. */
#ifndef TENCACHE_TEST_STEPS_CHECKS_H
#define TENCACHE_TEST_STEPS_CHECKS_H

#include "tencache/steps.h"
#include "trace_builder.h"

/** Last-use frees; the test fails where deriving does. */
struct tc_steps *test_derive(const struct tc_trace *trace, enum tc_granularity granularity,
                             enum tc_request_mode mode);
struct tc_trace *test_read_trace(const char *path);
/** `expected` as of TEST_IDS(). */
void assert_ids_equal(struct tc_ids ids, const uint32_t *expected);
void assert_request_equal(const struct tc_steps *steps, uint32_t index, uint32_t module,
                          enum tc_pass pass, uint32_t opens, uint32_t closes, const uint32_t *rows);

#endif
