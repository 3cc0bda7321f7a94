/**
 * @file print.h
 * Results as a table for people, as JSON and as CSV. Keys: src/REPORT.md. All write to `out` and
 * nothing else; messages are the caller's.
 */
#ifndef TENCACHE_SIM_PRINT_H
#define TENCACHE_SIM_PRINT_H

#include <jansson.h>
#include <stdio.h>

#include "tencache/report.h"

/** What a run is about; everything is borrowed. */
struct tci_document {
	const struct tc_trace *trace;
	const struct tc_machine *machine;
	const struct tc_steps *steps; /**< for request mode and granularity */
	uint32_t iterations;
	/** In the order of output; `choice` set, infeasible ones included. */
	const struct tc_result *results;
	size_t result_count;
};

/** One JSON document, indented, keys in a fixed order, newline at the end. */
/**
 * A JSON value, which stays the caller's, and a line break; NULL says that there was no memory for
 * it. Whether the stream took it is the caller's to ask.
 */
enum tc_status tci_print_json_value(FILE *out, const json_t *value, size_t indent,
                                    struct tc_error *error);
enum tc_status tci_print_json(FILE *out, const struct tci_document *document,
                              struct tc_error *error);
/**
 * CSV with a header line and one line a policy: the JSON keys, joined by dots. Columns do not
 * depend on the results; a policy that is infeasible has empty cells after `message`.
 */
enum tc_status tci_print_csv(FILE *out, const struct tci_document *document,
                             struct tc_error *error);
/** The header line of tci_print_csv() is left out when `header` is false (for sweeps). Extra
 * columns go in front: `names` and `values` are parallel, `count` of them. */
enum tc_status tci_print_csv_rows(FILE *out, const struct tci_document *document, bool header,
                                  const char *const *names, const char *const *values, size_t count,
                                  struct tc_error *error);
/** Two tables (time, data), then for each policy what limits it and the cheapest fix. */
enum tc_status tci_print_table(FILE *out, const struct tci_document *document,
                               struct tc_error *error);

/** For each feasible policy its stalls, phases, memory by kind and the modules that waited longest. */
enum tc_status tci_print_details(FILE *out, const struct tci_document *document,
                                 struct tc_error *error);

/** The object of one result (new reference, NULL when out of memory). */
json_t *tci_result_json(const struct tci_document *document, const struct tc_result *result);

#define TCI_ADVICE_BYTES 1024
/**
 * One line on a feasible result: what limits it and the cheapest fix, from its stall causes and how
 * busy each queue is. `text` has TCI_ADVICE_BYTES.
 */
void tci_advise(const struct tci_document *document, const struct tc_result *result, char *text);

#endif
