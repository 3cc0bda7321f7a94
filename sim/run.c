/* tencache-sim run: simulate policies on one trace and one machine, and print what decides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "print.h"
#include "run_options.h"
#include "tencache/simulate.h"
#include "tencache/units.h"
#include "verbs.h"

/** What one run works with; filled step by step, freed as a whole. */
struct tci_run {
	struct tci_run_options options;
	struct tc_trace *trace;
	struct tc_steps *steps;
	struct tc_machine *machine;
	struct tc_timeline *timeline; /**< of the only policy; NULL: none asked for */
	struct tc_result *results;
	size_t result_count;
	bool failed; /**< a policy failed by itself; the others were run */
};

/** Sizes are echoed both ways: 7 % between GB and GiB decides what fits. */
static void tci_echo_override(const struct tc_machine_setting *override)
{
	uint64_t bytes;
	char both[TC_UNIT_TEXT_BYTES];
	if (strchr(override->name, '.') != NULL)
		return; /* by its path, which says the unit */
	if (strstr(override->name, "memory") == NULL && strstr(override->name, "capacity") == NULL)
		return;
	if (tc_parse_bytes(override->value, override->name, &bytes, NULL) == TC_OK)
		fprintf(stderr, "tencache-sim: --%s %s = %s\n", override->name, override->value,
		        tc_format_bytes_both(bytes, both));
}

static enum tc_status tci_run_load(struct tci_run *run, struct tc_error *error)
{
	const struct tci_run_options *options = &run->options;
	TC_TRY(tc_machine_load(options->common.machine_name, NULL, &run->machine, error));
	TC_TRY(tc_machine_override_all(run->machine, options->common.overrides,
	                               options->common.override_count, error));
	for (size_t i = 0; i < options->common.override_count && !options->common.quiet; i++)
		tci_echo_override(&options->common.overrides[i]);
	TC_TRY(tc_trace_read(options->common.trace_path, &run->trace, error));
	return tc_steps_derive(run->trace, options->common.granularity,
	                       options->common.request_mode, options->common.frees, &run->steps,
	                       error);
}

static void tci_run_warn(const struct tci_run *run)
{
	if (run->options.common.quiet)
		return;
	for (uint32_t i = 0; i < run->trace->warning_count; i++)
		fprintf(stderr, "tencache-sim: warning: %s\n", run->trace->warnings[i]);
	if (run->trace->warnings_suppressed > 0)
		fprintf(stderr, "tencache-sim: %llu more warnings about the trace\n",
		        (unsigned long long)run->trace->warnings_suppressed);
	if (run->machine->confidence == TC_CONFIDENCE_LOW)
		fprintf(
		    stderr,
		    "tencache-sim: machine %s holds values of low confidence; see 'tencache-sim "
		    "machines %s'\n",
		    run->machine->name, run->options.common.machine_name);
}

/** A line on a terminal that the next one overwrites. */
static void tci_progress(const struct tci_run *run, size_t index)
{
	if (run->options.common.quiet || isatty(STDERR_FILENO) == 0)
		return;
	if (index < run->options.policies.count)
		fprintf(stderr, "\r\033[K[%zu/%zu] %s", index + 1, run->options.policies.count,
		        run->options.policies.choices[index]->text);
	else
		fprintf(stderr, "\r\033[K");
	(void)fflush(stderr);
}

/** One policy that is broken (an unsafe plan, a promise not kept) does not take the others along.
 */
static enum tc_status tci_run_policy(struct tci_run *run, const struct tc_simulation *simulation,
                                     struct tc_error *error)
{
	struct tc_error failure = {0};
	struct tc_result *result = &run->results[run->result_count];
	enum tc_status status = tc_simulate(simulation, result, &failure);
	if (status == TC_OK) {
		run->result_count++;
		return TC_OK;
	}
	if (status != TC_UNSAFE && status != TC_INTERNAL)
		return tc_error_set(error, status, "%s", failure.text);
	fprintf(stderr, "tencache-sim: %s failed: %s\n", simulation->policy->text, failure.text);
	run->failed = true;
	return TC_OK;
}

static enum tc_status tci_run_policies(struct tci_run *run, struct tc_error *error)
{
	const struct tci_run_options *options = &run->options;
	run->results = tc_alloc_array(options->policies.count, sizeof *run->results);
	if (run->results == NULL)
		return tc_error_no_memory(error, "results", options->policies.count);
	if (options->common.timeline_path != NULL)
		TC_TRY(tc_timeline_create(options->common.timeline_path, &run->timeline, error));
	for (size_t i = 0; i < options->policies.count; i++) {
		struct tc_simulation simulation = {.trace = run->trace,
		                                   .steps = run->steps,
		                                   .machine = run->machine,
		                                   .policy = options->policies.choices[i],
		                                   .iterations = options->common.iterations,
		                                   .alignment = options->common.alignment,
		                                   .audit = options->audit,
		                                   .schedule_path = options->schedule_path,
		                                   .timeline = run->timeline};
		tci_progress(run, i);
		TC_TRY(tci_run_policy(run, &simulation, error));
	}
	/* A plan that cannot fit has nothing to show, and leaves no file. */
	if (run->timeline != NULL && run->result_count > 0 && run->results[0].status == TC_OK)
		return tc_timeline_finish(run->timeline, error);
	return TC_OK;
}

static enum tc_status tci_run_print(const struct tci_run *run, struct tc_error *error)
{
	struct tci_document document = {.trace = run->trace,
	                                .machine = run->machine,
	                                .steps = run->steps,
	                                .iterations = run->options.common.iterations,
	                                .results = run->results,
	                                .result_count = run->result_count};
	if (run->options.common.json)
		TC_TRY(tci_print_json(stdout, &document, error));
	else if (run->options.csv)
		TC_TRY(tci_print_csv(stdout, &document, error));
	else
		TC_TRY(tci_print_table(stdout, &document, error));
	if (run->options.verbose && !run->options.common.json && !run->options.csv)
		TC_TRY(tci_print_details(stdout, &document, error));
	if (fflush(stdout) != 0 || ferror(stdout) != 0)
		return tc_error_set(error, TC_IO, "cannot write the report to standard output");
	return TC_OK;
}

static bool tci_run_nothing_fits(const struct tci_run *run)
{
	for (size_t i = 0; i < run->result_count; i++)
		if (run->results[i].status == TC_OK)
			return false;
	return true;
}

/** An unsafe plan is an error, so whatever was planned has passed. */
static void tci_run_say_audited(const struct tci_run *run)
{
	size_t safe = 0;
	for (size_t i = 0; i < run->result_count; i++)
		safe += run->results[i].status == TC_OK;
	if (run->options.audit && !run->options.common.quiet && safe > 0)
		fprintf(stderr, "tencache-sim: %zu %s audited, nothing unsafe found\n", safe,
		        safe == 1 ? "plan" : "plans");
}

static enum tc_status tci_run_all(struct tci_run *run, struct tc_error *error)
{
	TC_TRY(tci_run_load(run, error));
	tci_run_warn(run);
	enum tc_status status = tci_run_policies(run, error);
	tci_progress(run, run->options.policies.count);
	TC_TRY(status);
	if (run->result_count == 0)
		return TC_OK;
	tci_run_say_audited(run);
	return tci_run_print(run, error);
}

int tci_sim_run(int argc, char **argv)
{
	struct tci_run run = {0};
	struct tc_error error = {0};
	int code = TCI_EXIT_OK;
	enum tc_status status = tci_run_options_parse(argc, argv, &run.options, &error);
	if (status == TC_OK && run.options.common.help)
		tci_run_help();
	else if (status == TC_OK)
		status = tci_run_all(&run, &error);
	if (status != TC_OK)
		code = tci_fail(&error);
	else if (run.failed)
		code = TCI_EXIT_FAILED;
	else if (!run.options.common.help && tci_run_nothing_fits(&run))
		code = TCI_EXIT_INFEASIBLE;
	for (size_t i = 0; i < run.result_count; i++)
		tc_result_clear(&run.results[i]);
	free(run.results);
	tc_timeline_free(run.timeline);
	tc_steps_free(run.steps);
	tc_trace_free(run.trace);
	tc_machine_free(run.machine);
	tci_run_options_clear(&run.options);
	return code;
}
