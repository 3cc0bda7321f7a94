/**
 * @file details_report.c
 * What --verbose adds to the tables: for each policy all stall causes, the phases, memory by tier
 * and kind, and the modules that waited longest.
 */
#include <inttypes.h>
#include <stdio.h>

#include "print.h"
#include "tencache/units.h"
#include "text_table.h"

#define GIB ((double)(UINT64_C(1) << 30))
enum { MODULES_SHOWN = 5 };

static double seconds(uint64_t ps)
{
	return (double)ps / 1e12;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole == 0 ? 0.0 : 100.0 * (double)part / (double)whole;
}

static void heads(struct tci_table *table, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; ++i)
		tci_table_cell(table, "%s", names[i]);
}

static enum tc_status print_stalls(FILE *out, const struct tc_result *result,
                                   struct tc_error *error)
{
	static const char *const names[] = {"  stall", "s", "% of all"};
	struct tci_table table = {.alignment = "lrr"};
	heads(&table, names, sizeof names / sizeof *names);
	for (size_t cause = 0; cause < TC_STALL_CAUSE_COUNT; ++cause) {
		tci_table_cell(&table, "  %s", tc_stall_cause_name((enum tc_stall_cause)cause));
		tci_table_cell(&table, "%.6f", seconds(result->stalls_ps[cause]));
		tci_table_cell(&table, "%.1f", percent(result->stalls_ps[cause], result->stall_ps));
	}
	return tci_table_print(&table, out, error);
}

static enum tc_status print_phases(FILE *out, const struct tc_result *result,
                                   struct tc_error *error)
{
	static const char *const names[] = {"  phase",    "s",         "compute s", "stall s",
	                                    "requests",   "resident",  "covered",   "ready",
	                                    "fetched GB", "evicted GB"};
	struct tci_table table = {.alignment = "lrrrrrrrrr"};
	heads(&table, names, sizeof names / sizeof *names);
	for (size_t p = 0; p < TC_PHASE_COUNT; ++p) {
		const struct tc_phase_report *phase = &result->phases[p];
		if (phase->time_ps == 0 && phase->hits.requests == 0 && phase->fetches == 0)
			continue;
		const uint64_t counts[] = {phase->hits.requests, phase->hits.resident,
		                           phase->hits.covered, phase->hits.ready};
		tci_table_cell(&table, "  %s", tc_phase_name((enum tc_phase)p));
		tci_table_cell(&table, "%.6f", seconds(phase->time_ps));
		tci_table_cell(&table, "%.6f", seconds(phase->compute_ps));
		tci_table_cell(&table, "%.6f", seconds(phase->stall_ps));
		for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i)
			tci_table_cell(&table, "%" PRIu64, counts[i]);
		tci_table_cell(&table, "%.3f", (double)phase->fetch_bytes / 1e9);
		tci_table_cell(&table, "%.3f", (double)phase->eviction_bytes / 1e9);
	}
	return tci_table_print(&table, out, error);
}

static enum tc_status print_memory(FILE *out, const struct tc_result *result,
                                   struct tc_error *error)
{
	static const char *const names[] = {"  GiB", "capacity", "fixed", "peak", "mean"};
	struct tci_table table = {.alignment = "lrrrrrrrrrrr"};
	heads(&table, names, sizeof names / sizeof *names);
	for (size_t kind = 0; kind < TC_TENSOR_KIND_COUNT; ++kind)
		tci_table_cell(&table, "%s", tc_tensor_kind_name((enum tc_tensor_kind)kind));
	for (size_t t = 0; t < TC_TIER_COUNT; ++t) {
		const struct tc_memory_report *memory = &result->memory[t];
		const uint64_t sizes[] = {memory->capacity_bytes, memory->fixed_bytes,
		                          memory->peak_bytes, memory->mean_bytes};
		tci_table_cell(&table, "  %s", tc_tier_name((enum tc_tier)t));
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i)
			tci_table_cell(&table, "%.3f", (double)sizes[i] / GIB);
		for (size_t kind = 0; kind < TC_TENSOR_KIND_COUNT; ++kind)
			tci_table_cell(&table, "%.3f", (double)memory->kind_peak_bytes[kind] / GIB);
	}
	return tci_table_print(&table, out, error);
}

static enum tc_status print_modules(FILE *out, const struct tci_document *document,
                                    const struct tc_result *result, struct tc_error *error)
{
	struct tci_table table = {.alignment = "lr"};
	tci_table_cell(&table, "  longest waits before");
	tci_table_cell(&table, "s");
	for (uint32_t i = 0; i < result->module_stall_count && i < MODULES_SHOWN; ++i) {
		const struct tc_module_stall *stall = &result->module_stalls[i];
		if (stall->stall_ps == 0)
			break;
		const char *path = stall->module == TC_NONE
		                       ? "(no module)"
		                       : document->trace->modules[stall->module].path;
		tci_table_cell(&table, "  %s", *path != '\0' ? path : "(root)");
		tci_table_cell(&table, "%.6f", seconds(stall->stall_ps));
	}
	return tci_table_print(&table, out, error);
}

enum tc_status tci_print_details(FILE *out, const struct tci_document *document,
                                 struct tc_error *error)
{
	for (size_t i = 0; i < document->result_count; ++i) {
		const struct tc_result *result = &document->results[i];
		if (result->status != TC_OK)
			continue;
		(void)fprintf(out, "\n%s\n\n", result->policy);
		TC_TRY(print_stalls(out, result, error));
		(void)fputc('\n', out);
		TC_TRY(print_phases(out, result, error));
		(void)fputc('\n', out);
		TC_TRY(print_memory(out, result, error));
		(void)fputc('\n', out);
		TC_TRY(print_modules(out, document, result, error));
	}
	return ferror(out) ? tc_error_set(error, TC_IO, "cannot write the report") : TC_OK;
}
