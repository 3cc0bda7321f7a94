/* tencache-replay: which verb is meant. Each verb has a file of its own. */
#include <stdio.h>
#include <string.h>

#include "calibrate.h"
#include "tencache/units.h"
#include "verbs.h"
#include "verbs_replay.h"

#ifndef TENCACHE_VERSION
#define TENCACHE_VERSION "unknown"
#endif

static const struct tci_verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} verbs[] = {
    {"run", tci_replay_run, "replay one policy's schedule with real copies (the default verb)"},
    {"calibrate", tci_replay_calibrate, "measure this computer and write a machine description"},
};
enum { VERB_COUNT = sizeof verbs / sizeof *verbs };

static void tci_print_help(void)
{
	printf("tencache-replay %s: runs an offloading schedule for real and compares with the "
	       "prediction\n\nUsage: tencache-replay [VERB] [OPTIONS]\n\nVerbs:\n",
	       TENCACHE_VERSION);
	for (int i = 0; i < VERB_COUNT; i++)
		printf("  %-10s %s\n", verbs[i].name, verbs[i].help);
	printf(
	    "\nExamples:\n"
	    "  tencache-replay --trace traces/opt13b.json --policy 10cache --device host \\\n"
	    "      --nvme-dir ./nvme --scale 256\n"
	    "  tencache-replay --schedule plan.json --nvme-dir ./nvme\n"
	    "\n`tencache-replay VERB --help` explains a verb. Exit codes: 0 ok, 1 failed, 2 usage\n"
	    "or bad input, 3 the policy does not fit, 4 --check found too large a difference.\n");
}

static int tci_unknown_verb(const char *name)
{
	const char *names[VERB_COUNT];
	for (int i = 0; i < VERB_COUNT; i++)
		names[i] = verbs[i].name;
	const char *nearest = tc_nearest_name(name, names, VERB_COUNT);
	fprintf(stderr, "tencache-replay: unknown verb \"%s\"", name);
	if (nearest != NULL)
		fprintf(stderr, "; did you mean \"%s\"?", nearest);
	fprintf(stderr, "\nTry 'tencache-replay --help'.\n");
	return TCI_EXIT_USAGE;
}

int main(int argc, char **argv)
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
		printf("tencache-replay %s\n", TENCACHE_VERSION);
		return TCI_EXIT_OK;
	}
	if (argv[1][0] == '-')
		return tci_replay_run(argc, argv);
	for (int i = 0; i < VERB_COUNT; i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return verbs[i].run(argc - 1, argv + 1);
	return tci_unknown_verb(argv[1]);
}
