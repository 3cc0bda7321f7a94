/**
 * @file calibrate.c
 * The verb: measure, describe, write. The file is opened and the drives are looked at first, so
 * that a wrong name costs no three minutes; the file has its name only when everything is in it.
 *
 * SIGINT and SIGTERM are blocked and looked for between samples: backends are taken down in order,
 * their files go, and then the signal does what it does.
 */
#include "calibrate.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calibrate_parts.h"
#include "folders.h"
#include "partial_file.h"
#include "verbs.h"

/** Copies of up to this size; less where memory is short: five such arenas are in use. */
#define LARGEST_BYTES (UINT64_C(1) << 30)
#define QUICK_LARGEST_BYTES (UINT64_C(2) << 20)
#define ARENAS 5u

/** What a run owns. */
struct run {
	struct tci_calibrate_options options;
	struct tci_calibration calibration;
	struct tci_partial_file file;
	struct tc_machine *base, *machine;
	char *text;
};

/** The largest power of two of which five fit into half of the memory that is free. */
static uint64_t largest_bytes(bool quick)
{
	uint64_t largest = quick ? QUICK_LARGEST_BYTES : LARGEST_BYTES, free_bytes = 0;
	long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	if (pages > 0 && page > 0)
		(void)tc_mul_u64((uint64_t)pages, (uint64_t)page, &free_bytes);
	while (free_bytes > 0 && largest > QUICK_LARGEST_BYTES && largest > free_bytes / 2 / ARENAS)
		largest /= 2;
	return largest;
}

static enum tc_status prepare(struct run *run, struct tc_error *error)
{
	struct tci_calibration *calibration = &run->calibration;
	const struct tci_calibrate_options *options = &run->options;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	calibration->options = options;
	calibration->cores = cores > 0 ? (uint32_t)cores : 1;
	calibration->largest_bytes = largest_bytes(options->quick);
	calibration->clockwork.quick = options->quick;
	calibration->clockwork.drives = options->directory_count > 0;
	calibration->clockwork.shown = !options->quiet && isatty(STDERR_FILENO) == 1;
	TC_TRY(tc_device_find(options->device, &calibration->device, error));
	TC_TRY(tc_storage_find(options->storage, &calibration->storage, error));
	TC_TRY(tc_machine_load(options->base, NULL, &run->base, error));
	TC_TRY(tci_folders_make(options->directories, options->directory_count, error));
	if (options->directory_count > 0)
		TC_TRY(tci_look_at_drives(calibration, error));
	return tci_partial_open(&run->file, options->output, "a machine description", error);
}

static enum tc_status measure(struct run *run, struct tc_error *error)
{
	struct tci_calibration *calibration = &run->calibration;
	tci_clockwork_start(&calibration->clockwork);
	enum tc_status status = tci_measure_copies(calibration, error);
	if (status == TC_OK)
		status = tci_measure_command(calibration, error);
	if (status == TC_OK)
		status = tci_measure_cpu(calibration, error);
	if (status == TC_OK && run->options.directory_count > 0)
		status = tci_measure_drives(calibration, error);
	tci_clockwork_done(&calibration->clockwork);
	if (status == TC_OK)
		status = tci_check_interrupt(error);
	return status;
}

static void print_link(const char *name, struct tc_link link)
{
	char rate[TC_UNIT_TEXT_BYTES], latency[TC_UNIT_TEXT_BYTES];
	printf("%-22s %s after %s\n", name, tc_format_rate(link.bytes_per_s, rate),
	       tc_format_ps(link.latency_ps, latency));
}

static void print_handovers(const uint64_t handover_ps[TC_HANDOVER_COUNT])
{
	char compute[TC_UNIT_TEXT_BYTES], drive[TC_UNIT_TEXT_BYTES], other[TC_UNIT_TEXT_BYTES];
	printf("%-22s %s from compute, %s from or to a drive, %s else\n", "hand-over",
	       tc_format_ps(handover_ps[TC_HANDOVER_COMPUTE], compute),
	       tc_format_ps(handover_ps[TC_HANDOVER_DRIVE], drive),
	       tc_format_ps(handover_ps[TC_HANDOVER_OTHER], other));
}

/** What the simulator will make of the file. */
static void print_summary(const struct run *run)
{
	const struct tc_machine *machine = run->machine;
	const struct tci_calibration *calibration = &run->calibration;
	char rate[TC_UNIT_TEXT_BYTES], time[TC_UNIT_TEXT_BYTES];
	print_link("host to GPU", machine->h2d);
	print_link("GPU to host", machine->d2h);
	printf("%-22s %s\n", "both at once", tc_format_rate(machine->duplex_bytes_per_s, rate));
	printf("%-22s %s\n", "command", tc_format_ps(machine->launch_ps, time));
	print_handovers(machine->handover_ps);
	printf("%-22s %s\n", "host memory", tc_format_rate(machine->dram_bytes_per_s, rate));
	printf("%-22s %.1f M parameters/s on %u cores\n", "AdamW",
	       (double)calibration->adam.value / 1e6, calibration->cores);
	if (calibration->drives > 0) {
		print_link("drive read", machine->nvme_read);
		print_link("drive write", machine->nvme_write);
		printf("%-22s %s\n", "both at once",
		       tc_format_rate(machine->nvme_mixed_bytes_per_s, rate));
		printf("%-22s %s: %s\n", "storage", calibration->facts.backend,
		       calibration->facts.detail);
	}
	printf("%-22s %s\n", "assumed",
	       calibration->drives > 0 ? "GPU, capacities, efficiencies"
	                               : "GPU, capacities, efficiencies, drives (no --nvme-dir)");
	printf("%-22s %s\n", "written to", run->options.output);
}

/** Values that nobody should rely on, by name. */
static void warn(const struct tc_machine *machine)
{
	size_t count, measured = 0, low = 0;
	const struct tc_machine_value *values = tc_machine_values(machine, &count);
	for (size_t i = 0; i < count; ++i) {
		if (strncmp(values[i].source, TCI_MEASURED, strlen(TCI_MEASURED)) != 0)
			continue;
		measured++;
		if (values[i].confidence != TC_CONFIDENCE_LOW)
			continue;
		fprintf(stderr, "%s%s", low == 0 ? "tencache-replay: of low confidence: " : ", ",
		        values[i].path);
		low++;
	}
	if (low > 0)
		fprintf(stderr,
		        ": %zu of %zu measured values spread by more than 30 %%, as on a computer "
		        "that does something else meanwhile; measure again when it is quiet\n",
		        low, measured);
}

static enum tc_status calibrate(struct run *run, struct tc_error *error)
{
	TC_TRY(prepare(run, error));
	TC_TRY(measure(run, error));
	TC_TRY(tci_describe(&run->calibration, run->base, &run->text, &run->machine, error));
	TC_TRY(tci_partial_write(&run->file, run->text, strlen(run->text), error));
	TC_TRY(tci_partial_write(&run->file, "\n", 1, error));
	TC_TRY(tci_partial_commit(&run->file, error));
	print_summary(run);
	(void)fflush(stdout);
	if (!run->options.quiet)
		warn(run->machine);
	return TC_OK;
}

static void clear(struct run *run)
{
	tci_partial_close(&run->file);
	tc_machine_free(run->base);
	tc_machine_free(run->machine);
	free(run->text);
	tci_calibrate_options_clear(&run->options);
}

int tci_replay_calibrate(int argc, char **argv)
{
	struct run run = {0};
	struct tc_error error = {0};
	sigset_t stops, before;
	(void)sigemptyset(&stops);
	(void)sigaddset(&stops, SIGINT);
	(void)sigaddset(&stops, SIGTERM);
	/* Before any thread starts: they all inherit it. */
	(void)pthread_sigmask(SIG_BLOCK, &stops, &before);
	enum tc_status status = tci_calibrate_options_parse(argc, argv, &run.options, &error);
	if (status == TC_OK && run.options.help)
		tci_calibrate_help();
	else if (status == TC_OK)
		status = calibrate(&run, &error);
	clear(&run);
	if (status != TC_OK)
		(void)fprintf(stderr, "tencache-replay: %s\n", error.text);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return tci_exit_code(status);
}
