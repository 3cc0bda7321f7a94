/**
 * @file machines_verb.c
 * Lists machine presets, or everything that one description says.
 */
#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "print.h"
#include "tencache/machine.h"
#include "tencache/units.h"
#include "text_table.h"
#include "option_words.h"
#include "verbs.h"

static const char help[] =
    "Usage: tencache-sim machines [--json] [NAME|FILE.json ...]\n"
    "\n"
    "Without names: the machine presets. With names: every value of each, its source and how\n"
    "much it can be trusted.\n"
    "\n"
    "  --json   as JSON; with one name the description itself, to start your own from\n"
    "  --help   this text\n"
    "\n"
    "Examples:\n"
    "  tencache-sim machines\n"
    "  tencache-sim machines h100\n"
    "  tencache-sim machines --json rtx4090 > my-box.json\n";

static void list_row(struct tci_table *table, const struct tc_machine *m)
{
	tci_table_cell(table, "%s", m->name);
	tci_table_cell(table, "%.1f", (double)m->capacity_bytes[TC_GPU] / 1e9);
	tci_table_cell(table, "%.0f", (double)m->capacity_bytes[TC_CPU] / 1e9);
	tci_table_cell(table, "%.1f / %.1f", (double)m->h2d.bytes_per_s / 1e9,
	               (double)m->d2h.bytes_per_s / 1e9);
	tci_table_cell(table, "%.1f / %.1f", (double)m->nvme_read.bytes_per_s / 1e9,
	               (double)m->nvme_write.bytes_per_s / 1e9);
	tci_table_cell(table, "%s", tc_confidence_name(m->confidence));
	tci_table_cell(table, "%s", m->summary);
}

static json_t *list_json(const struct tc_machine *m)
{
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:s}", "name", m->name, "summary",
	                 m->summary, "confidence", tc_confidence_name(m->confidence), "gpu_bytes",
	                 (json_int_t)m->capacity_bytes[TC_GPU], "cpu_bytes",
	                 (json_int_t)m->capacity_bytes[TC_CPU], "nvme_bytes",
	                 (json_int_t)m->capacity_bytes[TC_NVME], "sha256", m->sha256);
}

static enum tc_status add_presets(char **names, size_t count, struct tci_table *table,
                                  json_t *array, struct tc_error *error)
{
	for (size_t i = 0; i < count; ++i) {
		struct tc_machine *machine = NULL;
		TC_TRY(tc_machine_load(names[i], NULL, &machine, error));
		list_row(table, machine);
		(void)json_array_append_new(array, list_json(machine));
		tc_machine_free(machine);
	}
	return TC_OK;
}

static enum tc_status list_presets(bool as_json, struct tc_error *error)
{
	static const char *const heads[] = {"machine",        "GPU GB",       "host GB",
	                                    "h2d / d2h GB/s", "read / write", "confidence",
	                                    "what it is"};
	char **names;
	size_t count;
	TC_TRY(tc_machine_names(NULL, &names, &count, error));
	struct tci_table table = {.alignment = "lrrrrll"};
	json_t *array = json_array();
	for (size_t i = 0; i < sizeof heads / sizeof *heads; ++i)
		tci_table_cell(&table, "%s", heads[i]);
	enum tc_status status = add_presets(names, count, &table, array, error);
	tc_machine_names_free(names, count);
	if (status == TC_OK && as_json)
		status = tci_print_json_value(stdout, array, 2, error);
	json_decref(array);
	if (status == TC_OK && !as_json)
		return tci_table_print(&table, stdout, error);
	tci_table_clear(&table);
	return status;
}

static enum tc_status show_values(const struct tc_machine *machine, struct tc_error *error)
{
	size_t count;
	const struct tc_machine_value *values = tc_machine_values(machine, &count);
	struct tci_table table = {.alignment = "llll"};
	(void)printf("%s: %s\nsource: %s (%s), lowest confidence: %s\nfile: %s\nsha256: %s\n\n",
	             machine->name, machine->summary, machine->source, machine->date,
	             tc_confidence_name(machine->confidence), machine->file_name, machine->sha256);
	tci_table_cell(&table, "value");
	tci_table_cell(&table, "is");
	tci_table_cell(&table, "confidence");
	tci_table_cell(&table, "source");
	for (size_t i = 0; i < count; ++i) {
		tci_table_cell(&table, "%s", values[i].path);
		tci_table_cell(&table, "%s", values[i].text);
		tci_table_cell(&table, "%s",
		               values[i].is_default ? ""
		                                    : tc_confidence_name(values[i].confidence));
		tci_table_cell(&table, "%s",
		               values[i].is_default ? "(not given)" : values[i].source);
	}
	return tci_table_print(&table, stdout, error);
}

static enum tc_status show_machine(const char *name, bool as_json, struct tc_error *error)
{
	struct tc_machine *machine = NULL;
	TC_TRY(tc_machine_load(name, NULL, &machine, error));
	enum tc_status status = TC_OK;
	if (as_json) {
		char *text = tc_machine_json(machine);
		if (text == NULL)
			status = tc_error_no_memory(error, "the output", 0);
		else
			(void)puts(text);
		free(text);
	} else {
		status = show_values(machine, error);
	}
	tc_machine_free(machine);
	return status;
}

int tci_sim_machines(int argc, char **argv)
{
	bool as_json = false;
	int code;
	if (!tci_list_options(argc, argv, help, &as_json, &code))
		return code;
	struct tc_error error = {0};
	enum tc_status status = TC_OK;
	if (optind == argc)
		status = list_presets(as_json, &error);
	for (int i = optind; i < argc && status == TC_OK; ++i) {
		if (i > optind && !as_json)
			(void)putchar('\n');
		status = show_machine(argv[i], as_json, &error);
	}
	return status == TC_OK ? TCI_EXIT_OK : tci_fail(&error);
}
