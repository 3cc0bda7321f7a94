/**
 * @file audit.h
 * The auditor proves a schedule safe, independently of the planner: whatever legal order its
 * commands run in, every read finds the wanted version, nothing overlaps, and every persistent
 * tensor ends with its latest version somewhere. Method: src/AUDIT.md.
 */
#ifndef TENCACHE_AUDIT_H
#define TENCACHE_AUDIT_H

#include "tencache/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tc_audit;

struct tc_audit_report {
	uint64_t commands;
	uint64_t findings;    /**< 0: safe */
	uint64_t peak_clocks; /**< clocks kept at once: memory is flat */
	char first[TC_ERROR_TEXT_BYTES]; /**< first findings, one a line, at most 20 */
};

/**
 * A sink that audits. With `stop` true the first finding ends the plan with TC_UNSAFE, else all are
 * counted and tc_audit_result() tells. Needs plan info with a trace (TC_ARGUMENT). Capacities are
 * checked where the plan info has a machine and is not `unlimited_memory`. The plan info, its trace and
 * machine must live until end(). One auditor takes one plan.
 */
enum tc_status tc_audit_create(bool stop, struct tc_audit **audit, struct tc_error *error);
struct tc_sink tc_audit_sink(struct tc_audit *audit);
const struct tc_audit_report *tc_audit_result(const struct tc_audit *audit);
void tc_audit_free(struct tc_audit *audit);

#ifdef __cplusplus
}
#endif
#endif
