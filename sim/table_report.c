/**
 * @file table_report.c
 * A report for people: time first, because hit rates hardly separate policies; each of the three
 * hit rates by its name and with its denominator; then what limits each policy.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "print.h"
#include "tencache/units.h"
#include "text_table.h"

static double seconds(uint64_t ps)
{
	return (double)ps / 1e12;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole == 0 ? 0.0 : 100.0 * (double)part / (double)whole;
}

static enum tc_stall_cause main_cause(const struct tc_result *result)
{
	enum tc_stall_cause worst = TC_STALL_ISSUED_LATE;
	for (size_t cause = 1; cause < TC_STALL_CAUSE_COUNT; ++cause)
		if (result->stalls_ps[cause] > result->stalls_ps[worst])
			worst = (enum tc_stall_cause)cause;
	return worst;
}

static void print_head(FILE *out, const struct tci_document *document)
{
	const struct tc_trace *trace = document->trace;
	const struct tc_machine *machine = document->machine;
	char gpu[TC_UNIT_TEXT_BYTES], cpu[TC_UNIT_TEXT_BYTES];
	(void)fprintf(out, "trace    %s", trace->name);
	if (trace->batch > 0 && trace->sequence > 0)
		(void)fprintf(out, ", %" PRIu64 " x %" PRIu64 " tokens", trace->batch,
		              trace->sequence);
	(void)fprintf(out, ", %" PRIu32 " ops in %" PRIu32 " steps, requests: %s\n",
	              trace->op_count, document->steps->step_count,
	              tc_request_mode_name(document->steps->request_mode));
	(void)fprintf(out, "machine  %s: %s\n", machine->name, machine->summary);
	(void)fprintf(out, "         GPU %s, host %s\n\n",
	              tc_format_bytes_both(machine->capacity_bytes[TC_GPU], gpu),
	              tc_format_bytes_both(machine->capacity_bytes[TC_CPU], cpu));
}

/** Milliseconds for a large model; microseconds where all iterations are shorter than 0.1 s. */
static int time_digits(const struct tci_document *document)
{
	uint64_t longest = 0;
	for (size_t i = 0; i < document->result_count; ++i)
		if (document->results[i].iteration_ps > longest)
			longest = document->results[i].iteration_ps;
	return longest < UINT64_C(100000000000) ? 6 : 3;
}

static void time_row(struct tci_table *table, const struct tc_result *result, int digits)
{
	enum tc_stall_cause cause = main_cause(result);
	double time = seconds(result->iteration_ps);
	tci_table_cell(table, "%s", result->policy);
	tci_table_cell(table, "%.*f", digits, time);
	tci_table_cell(table, "%.*f", digits, seconds(result->compute_ps));
	tci_table_cell(table, "%.*f", digits, seconds(result->stall_ps));
	if (result->stall_ps > 0)
		tci_table_cell(table, "%.0f %% %s",
		               percent(result->stalls_ps[cause], result->stall_ps),
		               tc_stall_cause_name(cause));
	else
		tci_table_cell(table, "-");
	tci_table_cell(table, "%.*f", digits, seconds(result->cold_iteration_ps));
	if (result->tokens > 0 && time > 0)
		tci_table_cell(table, "%.0f", (double)result->tokens / time);
	else
		tci_table_cell(table, "-");
	tci_table_cell(table, "%.1f", time > 0 ? (double)result->flops / time / 1e12 : 0.0);
	if (result->price_per_million_tokens_micro_usd > 0)
		tci_table_cell(table, "%.2f",
		               (double)result->price_per_million_tokens_micro_usd / 1e6);
	else
		tci_table_cell(table, "-");
}

static enum tc_status print_times(FILE *out, const struct tci_document *document,
                                  struct tc_error *error)
{
	static const char *const heads[] = {"policy",   "iteration s",     "compute s",
	                                    "stall s",  "stall mostly by", "cold s",
	                                    "tokens/s", "TFLOP/s",         "USD/Mtoken"};
	struct tci_table table = {.alignment = "lrrrlrrrr"};
	for (size_t i = 0; i < sizeof heads / sizeof *heads; ++i)
		tci_table_cell(&table, "%s", heads[i]);
	for (size_t i = 0; i < document->result_count; ++i) {
		const struct tc_result *result = &document->results[i];
		if (result->status == TC_OK) {
			time_row(&table, result, time_digits(document));
			continue;
		}
		tci_table_cell(&table, "%s", result->policy);
		tci_table_cell(&table, "infeasible");
		for (size_t k = 2; k < sizeof heads / sizeof *heads; ++k)
			tci_table_cell(&table, "%s", "");
	}
	return tci_table_print(&table, out, error);
}

static void hit_cell(struct tci_table *table, uint64_t part, uint64_t whole)
{
	if (whole > 0)
		tci_table_cell(table, "%.1f", percent(part, whole));
	else
		tci_table_cell(table, "-");
}

static void data_row(struct tci_table *table, const struct tc_result *result)
{
	static const enum tc_queue queues[] = {TC_QUEUE_H2D, TC_QUEUE_D2H, TC_QUEUE_NVME_READ,
	                                       TC_QUEUE_NVME_WRITE};
	const struct tc_hits *forward = &result->phases[TC_FORWARD].hits;
	const struct tc_hits *backward = &result->phases[TC_BACKWARD].hits;
	uint64_t requests = forward->requests + backward->requests;
	tci_table_cell(table, "%s", result->policy);
	tci_table_cell(table, "%" PRIu64, requests);
	hit_cell(table, forward->resident + backward->resident, requests);
	hit_cell(table, forward->covered + backward->covered, requests);
	hit_cell(table, forward->ready + backward->ready, requests);
	for (size_t i = 0; i < sizeof queues / sizeof *queues; ++i)
		tci_table_cell(table, "%.2f", (double)result->transfers[queues[i]].bytes / 1e9);
	for (size_t tier = 0; tier < TC_TIER_COUNT; ++tier)
		tci_table_cell(table, "%.2f",
		               (double)result->memory[tier].peak_bytes / (double)(1ull << 30));
}

static enum tc_status print_data(FILE *out, const struct tci_document *document,
                                 struct tc_error *error)
{
	static const char *const heads[] = {"policy",     "requests",     "resident %", "covered %",
	                                    "ready %",    "h2d GB",       "d2h GB",     "read GB",
	                                    "written GB", "GPU peak GiB", "host GiB",   "NVMe GiB"};
	struct tci_table table = {.alignment = "lrrrrrrrrrrr"};
	size_t feasible = 0;
	for (size_t i = 0; i < document->result_count; ++i)
		feasible += document->results[i].status == TC_OK;
	if (feasible == 0)
		return TC_OK;
	for (size_t i = 0; i < sizeof heads / sizeof *heads; ++i)
		tci_table_cell(&table, "%s", heads[i]);
	for (size_t i = 0; i < document->result_count; ++i)
		if (document->results[i].status == TC_OK)
			data_row(&table, &document->results[i]);
	(void)fputs(
	    "\nof the requests in forward and backward, by count: resident = there since an "
	    "earlier request,\ncovered = resident or already being fetched, ready = arrived "
	    "when asked for\n\n",
	    out);
	return tci_table_print(&table, out, error);
}

static void print_warnings(FILE *out, const struct tci_document *document,
                           const struct tc_result *result)
{
	if (!result->steady)
		(void)fprintf(
		    out,
		    "  not steady: iterations took %.6f ... %.6f s; more --iterations may "
		    "settle it\n",
		    seconds(result->iteration_min_ps), seconds(result->iteration_max_ps));
	if (result->changes_semantics)
		(void)fputs("  changes training semantics: updates read older versions by design\n",
		            out);
	if (result->reordered)
		(void)fputs(
		    "  steps run in an order of the policy's, and the next iteration does not "
		    "wait for the optimizer\n",
		    out);
	uint64_t written = result->transfers[TC_QUEUE_NVME_WRITE].bytes;
	if (written > 0) {
		(void)fprintf(out, "  writes %.2f GB to the drives in each step",
		              (double)written / 1e9);
		if (result->endurance_iterations > 0)
			(void)fprintf(out, ": rated endurance is reached after %" PRIu64 " steps",
			              result->endurance_iterations);
		(void)fputc('\n', out);
		char rate[TC_UNIT_TEXT_BYTES];
		uint64_t sustained = document->machine->nvme_sustained_write_bytes_per_s;
		if (sustained > 0 && sustained < document->machine->nvme_write.bytes_per_s)
			(void)fprintf(
			    out,
			    "  the drives write only %s once their cache is full: not simulated, "
			    "try --nvme-write with it\n",
			    tc_format_rate(sustained, rate));
	}
	if (result->pinned_rounded_bytes > result->pinned_bytes) {
		char asked[TC_UNIT_TEXT_BYTES], taken[TC_UNIT_TEXT_BYTES];
		uint64_t left = result->memory[TC_CPU].capacity_bytes;
		left -= result->memory[TC_CPU].fixed_bytes < left
		            ? result->memory[TC_CPU].fixed_bytes
		            : left;
		(void)fprintf(out, "  pins %s of host memory, %s as PyTorch rounds it%s\n",
		              tc_format_bytes(result->pinned_bytes, asked),
		              tc_format_bytes(result->pinned_rounded_bytes, taken),
		              result->pinned_rounded_bytes > left
		                  ? ": more than the host has, so allocate it exactly"
		                  : "");
	}
	if (*result->notes.text != '\0')
		(void)fprintf(out, "  %s\n", result->notes.text);
}

enum tc_status tci_print_table(FILE *out, const struct tci_document *document,
                               struct tc_error *error)
{
	print_head(out, document);
	TC_TRY(print_times(out, document, error));
	TC_TRY(print_data(out, document, error));
	(void)fputc('\n', out);
	for (size_t i = 0; i < document->result_count; ++i) {
		const struct tc_result *result = &document->results[i];
		char advice[TCI_ADVICE_BYTES];
		if (result->status != TC_OK) {
			(void)fprintf(out, "%s: infeasible: %s\n", result->policy, result->message);
			continue;
		}
		tci_advise(document, result, advice);
		(void)fprintf(out, "%s: limited by %s\n", result->policy, advice);
		print_warnings(out, document, result);
	}
	return ferror(out) ? tc_error_set(error, TC_IO, "cannot write the report") : TC_OK;
}
