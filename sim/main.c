/**
 * @file main.c
 * tencache-sim: the first word that is no option names the verb.
 */
#include <stdio.h>
#include <string.h>

#include "tencache/units.h"
#include "verbs.h"

struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
};

static const struct verb verbs[] = {
    {"machines", tci_sim_machines, "list machine presets and their values"},
    {"policies", tci_sim_policies, "list policies and their parameters"},
};
#define VERB_COUNT (sizeof verbs / sizeof *verbs)

static void print_help(FILE *out)
{
	(void)fputs("Usage: tencache-sim VERB [OPTIONS]\n\nVerbs:\n", out);
	for (size_t i = 0; i < VERB_COUNT; ++i)
		(void)fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
	(void)fputs("\n`tencache-sim VERB --help` explains one. --version prints the version.\n",
	            out);
}

int main(int argc, char **argv)
{
	const char *names[VERB_COUNT];
	if (argc < 2) {
		print_help(stderr);
		return TCI_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_help(stdout);
		return TCI_EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		(void)puts("tencache-sim " TENCACHE_VERSION);
		return TCI_EXIT_OK;
	}
	for (size_t i = 0; i < VERB_COUNT; ++i) {
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].run(argc - 1, argv + 1);
		names[i] = verbs[i].name;
	}
	const char *nearest = tc_nearest_name(argv[1], names, VERB_COUNT);
	(void)fprintf(stderr, "tencache-sim: unknown verb \"%s\"%s%s%s\n", argv[1],
	              nearest != NULL ? "; did you mean \"" : "", nearest != NULL ? nearest : "",
	              nearest != NULL ? "\"?" : "; see --help");
	return TCI_EXIT_USAGE;
}
