/* tencache-sim: which verb is meant. Each verb has a file of its own. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tencache/units.h"
#include "verbs.h"

#ifndef TENCACHE_VERSION
#define TENCACHE_VERSION "unknown"
#endif

static const struct tci_verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} verbs[] = {
    {"run", tci_sim_run, "simulate policies on a trace (the default verb)"},
    {"policies", tci_sim_policies, "list policies and their parameters"},
    {"machines", tci_sim_machines, "list machine presets and their values"},
    {"inspect", tci_sim_inspect, "what is in a trace: sizes, what must fit, reuse"},
};
enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

static void tci_print_help(void)
{
	printf("tencache-sim %s: how fast a training step goes when its tensors are offloaded\n\n"
	       "Usage: tencache-sim [VERB] [OPTIONS]\n\nVerbs:\n",
	       TENCACHE_VERSION);
	for (int i = 0; i < VERB_COUNT; i++)
		printf("  %-10s %s\n", verbs[i].name, verbs[i].help);
	printf(
	    "\nExamples:\n"
	    "  tencache-sim --trace traces/opt13b.json\n"
	    "  tencache-sim --trace traces/opt13b.json --policy 10cache,lru --gpu-memory 24GiB\n"
	    "  tencache-sim policies 10cache\n"
	    "\n`tencache-sim VERB --help` explains a verb. Exit codes: 0 ok, 1 failed, 2 usage or\n"
	    "bad input, 3 everything asked for is infeasible.\n");
}

static int tci_unknown_verb(const char *name)
{
	const char *names[VERB_COUNT];
	for (int i = 0; i < VERB_COUNT; i++)
		names[i] = verbs[i].name;
	const char *nearest = tc_nearest_name(name, names, VERB_COUNT);
	fprintf(stderr, "tencache-sim: unknown verb \"%s\"", name);
	if (nearest != NULL)
		fprintf(stderr, "; did you mean \"%s\"?", nearest);
	fprintf(stderr, "\nTry 'tencache-sim --help'.\n");
	return TCI_EXIT_USAGE;
}

static int tci_dispatch(int argc, char **argv)
{
	if (argc < 2) {
		tci_print_help();
		return TCI_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		tci_print_help();
		return TCI_EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("tencache-sim %s\n", TENCACHE_VERSION);
		return TCI_EXIT_OK;
	}
	if (argv[1][0] == '-')
		return tci_sim_run(argc, argv);
	for (int i = 0; i < VERB_COUNT; i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].run(argc - 1, argv + 1);
	return tci_unknown_verb(argv[1]);
}

int main(int argc, char **argv)
{
	int code = tci_dispatch(argc, argv);
	/* What could not be written must not look complete, whatever wrote it. */
	bool written = fflush(stdout) == 0 && ferror(stdout) == 0;
	if (written || code == TCI_EXIT_FAILED || code == TCI_EXIT_USAGE)
		return code;
	fprintf(stderr, "tencache-sim: cannot write to standard output; is the disk full?\n");
	return TCI_EXIT_USAGE;
}
