/* What the verbs say about words and options that they do not know. */
#include "option_words.h"
#include "verbs.h"

#include <stdio.h>
#include <string.h>

#include "tencache/machine.h"
#include "tencache/units.h"

enum tc_status tci_choose(const char *option, const char *value, const char *const *words,
                          size_t count, int *chosen, struct tc_error *error)
{
	char list[128] = "";
	for (size_t i = 0; i < count; i++) {
		if (strcmp(value, words[i]) == 0) {
			*chosen = (int)i;
			return TC_OK;
		}
		(void)snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
		               i == 0 ? "" : ", ", words[i]);
	}
	const char *nearest = tc_nearest_name(value, words, count);
	return tc_error_set(error, TC_ARGUMENT, "--%s %s: expected one of %s%s%s%s", option, value,
	                    list, nearest == NULL ? "" : "; did you mean \"",
	                    nearest == NULL ? "" : nearest, nearest == NULL ? "" : "\"?");
}

enum tc_status tci_set_count(const char *option, const char *value, uint64_t most, uint64_t *number,
                             struct tc_error *error)
{
	TC_TRY(tc_parse_count(value, option, number, error));
	if (*number > 0 && *number <= most)
		return TC_OK;
	return tc_error_set(error, TC_ARGUMENT, "%s %s: expected 1 to %llu", option, value,
	                    (unsigned long long)most);
}

enum tc_status tci_set_small(const char *option, const char *value, uint32_t most, uint32_t *number,
                             struct tc_error *error)
{
	uint64_t wide;
	TC_TRY(tci_set_count(option, value, most, &wide, error));
	*number = (uint32_t)wide;
	return TC_OK;
}

const char *tci_option_at(char *const *argv, int at)
{
	while (argv[at][0] != '-' || argv[at][1] == '\0')
		at++;
	return argv[at];
}

enum tc_status tci_bad_option(const char *text, const struct option *list, bool missing,
                              struct tc_error *error)
{
	const char *names[256];
	size_t count = 0;
	if (missing)
		return tc_error_set(error, TC_ARGUMENT, "option %s needs a value; see --help",
		                    text);
	for (; list[count].name != NULL && count < sizeof names / sizeof *names; count++)
		names[count] = list[count].name;
	char name[64];
	const char *start = text;
	while (*start == '-')
		start++;
	(void)snprintf(name, sizeof name, "%.*s", (int)strcspn(start, "="), start);
	const char *nearest = tc_nearest_name(name, names, count);
	return tc_error_set(error, TC_ARGUMENT, "unknown option \"%s\"%s%s%s; see --help", text,
	                    nearest == NULL ? "" : "; did you mean \"--",
	                    nearest == NULL ? "" : nearest, nearest == NULL ? "" : "\"?");
}

bool tci_list_options(int argc, char **argv, const char *help, bool *as_json, int *code)
{
	static const struct option options[] = {
	    {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	struct tc_error error = {0};
	opterr = 0;
	optind = 1;
	for (;;) {
		int current = optind;
		int option = getopt_long(argc, argv, "h", options, NULL);
		if (option == -1)
			return true;
		if (option == 'j') {
			*as_json = true;
			continue;
		}
		if (option == 'h')
			(void)fputs(help, stdout);
		else
			(void)tci_bad_option(tci_option_at(argv, current), options, false, &error);
		*code = option == 'h' ? TCI_EXIT_OK : tci_fail(&error);
		return false;
	}
}

void tci_print_options(const struct tci_option *options, int count)
{
	for (int i = 0; i < count; i++) {
		char left[64];
		(void)snprintf(left, sizeof left, "--%s %s", options[i].name,
		               options[i].argument == NULL ? "" : options[i].argument);
		printf("  %-32s %s\n", left, options[i].help);
	}
}

void tci_print_overrides(void)
{
	size_t count;
	const struct tc_machine_override_name *overrides = tc_machine_override_names(&count);
	for (size_t i = 0; i < count; i++) {
		char left[64];
		(void)snprintf(left, sizeof left, "--%s %s", overrides[i].name, overrides[i].unit);
		printf("  %-32s %s\n", left, overrides[i].help);
	}
}
