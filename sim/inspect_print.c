/* An inspection as tables: kinds and their sizes, phases, what must fit, requests, reuse. */
#include <inttypes.h>

#include "inspect.h"
#include "tencache/units.h"
#include "text_table.h"

/** Sizes of one kind that are shown unless all are asked for. */
#define SHOWN_SIZES 6

static void cell_bytes(struct tci_table *table, uint64_t bytes)
{
	char text[TC_UNIT_TEXT_BYTES];
	tci_table_cell(table, "%s", tc_format_bytes(bytes, text));
}

static void print_head(FILE *out, const struct tc_inspection *inspection)
{
	const struct tc_steps *steps = inspection->steps;
	const struct tc_trace *trace = steps->trace;
	(void)fprintf(out, "%s: %u tensors, %u ops", trace->name, trace->tensor_count,
	              trace->op_count);
	(void)fprintf(out, " in %u steps (by %s), %u modules, %u events", steps->step_count,
	              tc_granularity_name(steps->granularity), trace->module_count,
	              trace->event_count);
	if (trace->batch > 0 && trace->sequence > 0)
		(void)fprintf(out, "; batch %" PRIu64 " x %" PRIu64, trace->batch, trace->sequence);
	(void)fprintf(out, "\ncompute in %s, optimizer %s, checkpoints: %s; sha256 %s\n\n",
	              tc_dtype_name(trace->compute_dtype),
	              trace->optimizer_name[0] == '\0' ? "unknown" : trace->optimizer_name,
	              trace->checkpoint_mode, trace->sha256);
}

static enum tc_status print_kinds(FILE *out, const struct tc_inspection *inspection,
                                  struct tc_error *error)
{
	struct tci_table table = {.alignment = "lrrrrr"};
	static const char *const heads[] = {"kind",       "tensors", "bytes",
	                                    "persistent", "sizes",   "largest"};
	for (size_t i = 0; i < 6; i++)
		tci_table_cell(&table, "%s", heads[i]);
	for (unsigned kind = 0; kind < TC_TENSOR_KIND_COUNT; kind++) {
		const struct tc_kind_total *total = &inspection->kinds[kind];
		if (total->count == 0)
			continue;
		tci_table_cell(&table, "%s", tc_tensor_kind_name((enum tc_tensor_kind)kind));
		tci_table_cell(&table, "%" PRIu64, total->count);
		cell_bytes(&table, total->bytes);
		cell_bytes(&table, total->persistent_bytes);
		tci_table_cell(&table, "%u", total->size_count);
		cell_bytes(&table, inspection->sizes[total->first_size].bytes);
	}
	return tci_table_print(&table, out, error);
}

/** Is a size among the few of its kind that hold most bytes? Ties: the larger size. */
static bool is_shown(const struct tc_inspection *inspection, uint32_t index)
{
	const struct tc_size_count *size = &inspection->sizes[index];
	const struct tc_kind_total *kind = &inspection->kinds[size->kind];
	uint32_t better = 0;
	for (uint32_t i = kind->first_size; i < kind->first_size + kind->size_count; i++) {
		uint64_t mine = size->bytes * size->count,
		         other = inspection->sizes[i].bytes * inspection->sizes[i].count;
		better += other > mine || (other == mine && i < index);
	}
	return better < SHOWN_SIZES;
}

static enum tc_status print_sizes(FILE *out, const struct tc_inspection *inspection, bool all,
                                  struct tc_error *error)
{
	struct tci_table table = {.alignment = "lrrr"};
	static const char *const heads[] = {"kind", "size", "tensors", "bytes"};
	uint32_t hidden = 0;
	for (size_t i = 0; i < 4; i++)
		tci_table_cell(&table, "%s", heads[i]);
	for (uint32_t i = 0; i < inspection->size_count; i++) {
		const struct tc_size_count *size = &inspection->sizes[i];
		if (!all && !is_shown(inspection, i)) {
			hidden++;
			continue;
		}
		tci_table_cell(&table, "%s", tc_tensor_kind_name(size->kind));
		tci_table_cell(&table, "%" PRIu64, size->bytes);
		tci_table_cell(&table, "%" PRIu64, size->count);
		cell_bytes(&table, size->bytes * size->count);
	}
	TC_TRY(tci_table_print(&table, out, error));
	if (hidden > 0)
		(void)fprintf(out, "(%u more sizes: --all)\n", hidden);
	return TC_OK;
}

static void phase_row(struct tci_table *table, const char *name, const struct tc_phase_total *total)
{
	char text[TC_UNIT_TEXT_BYTES];
	tci_table_cell(table, "%s", name);
	tci_table_cell(table, "%" PRIu64, total->ops);
	tci_table_cell(table, "%" PRIu64, total->steps);
	tci_table_cell(table, "%.3f", (double)total->flops / 1e12);
	cell_bytes(table, total->traffic_bytes);
	tci_table_cell(table, "%s",
	               total->timed_ops == 0 ? "-" : tc_format_ps(total->measured_ps, text));
}

static enum tc_status print_phases(FILE *out, const struct tc_inspection *inspection,
                                   struct tc_error *error)
{
	struct tci_table table = {.alignment = "lrrrrr"};
	static const char *const heads[] = {"phase",          "ops",     "steps", "TFLOP",
	                                    "memory traffic", "measured"};
	for (size_t i = 0; i < 6; i++)
		tci_table_cell(&table, "%s", heads[i]);
	for (unsigned phase = 0; phase < TC_PHASE_COUNT; phase++) {
		if (inspection->phases[phase].ops > 0)
			phase_row(&table, tc_phase_name((enum tc_phase)phase),
			          &inspection->phases[phase]);
	}
	phase_row(&table, "all", &inspection->all);
	return tci_table_print(&table, out, error);
}

static void footprint_row(struct tci_table *table, const struct tc_inspection *inspection,
                          const char *name, const struct tc_footprint *footprint)
{
	char text[160];
	tci_table_cell(table, "%s", name);
	cell_bytes(table, footprint->bytes);
	cell_bytes(table, footprint->kind_bytes[TC_PARAM]);
	cell_bytes(table, footprint->kind_bytes[TC_OPTIMIZER_STATE]);
	cell_bytes(table, footprint->kind_bytes[TC_GRAD]);
	cell_bytes(table, footprint->kind_bytes[TC_ACTIVATION] + footprint->kind_bytes[TC_TEMP] +
	                      footprint->workspace_bytes);
	tci_table_cell(table, "op %u, %s", footprint->op,
	               tc_step_describe(inspection->steps, footprint->step, text, sizeof text));
}

static enum tc_status print_footprints(FILE *out, const struct tc_inspection *inspection,
                                       struct tc_error *error)
{
	struct tci_table table = {.alignment = "lrrrrrl"};
	static const char *const heads[] = {"what must fit",   "bytes",     "params",
	                                    "optimizer state", "gradients", "activations, temps",
	                                    "first reached at"};
	for (size_t i = 0; i < 7; i++)
		tci_table_cell(&table, "%s", heads[i]);
	footprint_row(&table, inspection, "all at once, freed after the last use",
	              &inspection->last_use_peak);
	footprint_row(&table, inspection, "all at once, freed as PyTorch does",
	              &inspection->eager_peak);
	footprint_row(&table, inspection, "largest step", &inspection->largest_step);
	footprint_row(&table, inspection, "largest op", &inspection->largest_op);
	TC_TRY(tci_table_print(&table, out, error));
	char text[TC_UNIT_TEXT_BYTES];
	(void)fprintf(out, "persistent (alive between iterations): %s\n",
	              tc_format_bytes(inspection->persistent_bytes, text));
	return TC_OK;
}

static enum tc_status print_requests(FILE *out, const struct tc_inspection *inspection,
                                     struct tc_error *error)
{
	struct tci_table table = {.alignment = "lrrr"};
	tci_table_cell(&table, "requests (%s)",
	               tc_request_mode_name(inspection->steps->request_mode));
	tci_table_cell(&table, "by modules");
	tci_table_cell(&table, "tensors");
	tci_table_cell(&table, "bytes");
	for (unsigned pass = 0; pass < TC_PASS_COUNT; pass++) {
		const struct tc_pass_total *total = &inspection->passes[pass];
		if (total->requests == 0)
			continue;
		tci_table_cell(&table, "%s", tc_pass_name((enum tc_pass)pass));
		tci_table_cell(&table, "%" PRIu64, total->requests);
		tci_table_cell(&table, "%" PRIu64, total->rows);
		cell_bytes(&table, total->bytes);
	}
	return tci_table_print(&table, out, error);
}

static enum tc_status print_reuse(FILE *out, const struct tc_inspection *inspection,
                                  struct tc_error *error)
{
	struct tci_table table = {.alignment = "lrrrrrrr"};
	tci_table_cell(&table, "reuse of parameters (%" PRIu64 ")", inspection->reuse_steps.count);
	for (size_t i = 0; i < TC_QUANTILE_COUNT; i++)
		tci_table_cell(&table, "%u%%", tc_quantile_percent[i]);
	tci_table_cell(&table, "distance in steps");
	for (size_t i = 0; i < TC_QUANTILE_COUNT; i++)
		tci_table_cell(&table, "%" PRIu64, inspection->reuse_steps.values[i]);
	tci_table_cell(&table, "other parameters between");
	for (size_t i = 0; i < TC_QUANTILE_COUNT; i++)
		cell_bytes(&table, inspection->reuse_bytes.values[i]);
	return tci_table_print(&table, out, error);
}

enum tc_status tci_print_inspection(FILE *out, const struct tc_inspection *inspection, bool all,
                                    struct tc_error *error)
{
	print_head(out, inspection);
	TC_TRY(print_kinds(out, inspection, error));
	(void)fputc('\n', out);
	TC_TRY(print_footprints(out, inspection, error));
	(void)fputc('\n', out);
	TC_TRY(print_phases(out, inspection, error));
	(void)fputc('\n', out);
	if (inspection->steps->request_count > 0) {
		TC_TRY(print_requests(out, inspection, error));
		(void)fputc('\n', out);
	}
	if (inspection->reuse_steps.count > 0) {
		TC_TRY(print_reuse(out, inspection, error));
		(void)fputc('\n', out);
	}
	return print_sizes(out, inspection, all, error);
}
