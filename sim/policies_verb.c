/**
 * @file policies_verb.c
 * Lists policies, or every parameter of one.
 */
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "print.h"
#include "tencache/policy.h"
#include "text_table.h"
#include "option_words.h"
#include "verbs.h"

static const char help[] =
    "Usage: tencache-sim policies [--json] [NAME ...]\n"
    "\n"
    "Without names: the policies. With names: every parameter of each with its default, unit and\n"
    "where the default comes from. Use them as --policy NAME:parameter=value:parameter=value.\n"
    "\n"
    "  --json   as JSON\n"
    "  --help   this text\n"
    "\n"
    "Examples:\n"
    "  tencache-sim policies\n"
    "  tencache-sim policies 10cache\n";

static json_t *policy_json(const struct tc_policy *policy)
{
	json_t *parameters = json_array();
	for (size_t i = 0; i < policy->parameter_count; ++i) {
		const struct tc_policy_parameter *p = &policy->parameters[i];
		(void)json_array_append_new(
		    parameters, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "name", p->name,
		                          "default", p->default_text, "unit", p->unit, "choices",
		                          p->choices != NULL ? p->choices : "", "help", p->help,
		                          "source", p->source));
	}
	return json_pack("{s:s, s:s, s:s, s:i, s:o}", "name", policy->name, "summary",
	                 policy->summary, "source", policy->source, "staleness",
	                 (int)policy->staleness, "parameters", parameters);
}

static enum tc_status list_policies(struct tc_error *error)
{
	size_t count;
	const struct tc_policy *const *policies = tc_policies(&count);
	struct tci_table table = {.alignment = "lrl"};
	tci_table_cell(&table, "policy");
	tci_table_cell(&table, "parameters");
	tci_table_cell(&table, "what it does");
	for (size_t i = 0; i < count; ++i) {
		tci_table_cell(&table, "%s", policies[i]->name);
		tci_table_cell(&table, "%zu", policies[i]->parameter_count);
		tci_table_cell(&table, "%s", policies[i]->summary);
	}
	return tci_table_print(&table, stdout, error);
}

static void show_policy(const struct tc_policy *policy)
{
	(void)printf("%s: %s\nsource: %s\n", policy->name, policy->summary, policy->source);
	if (policy->staleness > 0)
		(void)printf(
		    "changes training semantics: updates may read versions %u iterations old\n",
		    policy->staleness);
	for (size_t i = 0; i < policy->parameter_count; ++i) {
		const struct tc_policy_parameter *p = &policy->parameters[i];
		const char *unit = p->type == TC_PARAMETER_WORD ? p->choices : p->unit;
		(void)printf("\n  %s=%s%s%s%s\n      %s\n      default from: %s\n", p->name,
		             p->default_text, *unit != '\0' ? "   (" : "", unit,
		             *unit != '\0' ? ")" : "", p->help, p->source);
	}
}

/** The named policies, or all, as one array. */
static enum tc_status print_json(char **names, int count, struct tc_error *error)
{
	json_t *array = json_array();
	enum tc_status status = TC_OK;
	size_t all;
	const struct tc_policy *const *policies = tc_policies(&all);
	for (size_t i = 0; count == 0 && i < all; ++i)
		(void)json_array_append_new(array, policy_json(policies[i]));
	for (int i = 0; i < count && status == TC_OK; ++i) {
		const struct tc_policy *policy = NULL;
		status = tc_policy_find(names[i], &policy, error);
		if (status == TC_OK)
			(void)json_array_append_new(array, policy_json(policy));
	}
	if (status == TC_OK)
		status = tci_print_json_value(stdout, array, 2, error);
	json_decref(array);
	return status;
}

static enum tc_status print_text(char **names, int count, struct tc_error *error)
{
	if (count == 0)
		return list_policies(error);
	for (int i = 0; i < count; ++i) {
		const struct tc_policy *policy = NULL;
		TC_TRY(tc_policy_find(names[i], &policy, error));
		if (i > 0)
			(void)putchar('\n');
		show_policy(policy);
	}
	return TC_OK;
}

int tci_sim_policies(int argc, char **argv)
{
	bool as_json = false;
	int code;
	if (!tci_list_options(argc, argv, help, &as_json, &code))
		return code;
	struct tc_error error = {0};
	enum tc_status status = as_json ? print_json(argv + optind, argc - optind, &error)
	                                : print_text(argv + optind, argc - optind, &error);
	return status == TC_OK ? TCI_EXIT_OK : tci_fail(&error);
}
