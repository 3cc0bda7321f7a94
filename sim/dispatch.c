#include "dispatch.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "tencache/units.h"
#include "verbs.h"

static void tci_print_help(const struct tci_program *program)
{
	printf("%s %s: %s\n\nUsage: %s [VERB] [OPTIONS]\n\nVerbs:\n", program->name,
	       program->version, program->headline, program->name);
	for (size_t i = 0; i < program->verb_count; i++)
		printf("  %-10s %s%s\n", program->verbs[i].name, program->verbs[i].help,
		       i == 0 ? " (the default verb)" : "");
	printf("\n%s", program->examples);
}

static int tci_unknown_verb(const struct tci_program *program, const char *name)
{
	const char *names[TCI_MAX_VERBS];
	for (size_t i = 0; i < program->verb_count; i++)
		names[i] = program->verbs[i].name;
	const char *nearest = tc_nearest_name(name, names, program->verb_count);
	fprintf(stderr, "%s: unknown verb \"%s\"", program->name, name);
	if (nearest != NULL)
		fprintf(stderr, "; did you mean \"%s\"?", nearest);
	fprintf(stderr, "\nTry '%s --help'.\n", program->name);
	return TCI_EXIT_USAGE;
}

static int tci_dispatch(const struct tci_program *program, int argc, char **argv)
{
	if (argc < 2) {
		tci_print_help(program);
		return TCI_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		tci_print_help(program);
		return TCI_EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("%s %s\n", program->name, program->version);
		return TCI_EXIT_OK;
	}
	if (argv[1][0] == '-')
		return program->verbs[0].run(argc, argv);
	for (size_t i = 0; i < program->verb_count; i++)
		if (strcmp(argv[1], program->verbs[i].name) == 0)
			return program->verbs[i].run(argc - 1, argv + 1);
	return tci_unknown_verb(program, argv[1]);
}

void tci_keep_memory(void)
{
#ifdef __GLIBC__
	(void)mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the largest value that glibc takes */
	(void)mallopt(M_TRIM_THRESHOLD, 512 << 20);
#endif
}

int tci_program_main(const struct tci_program *program, int argc, char **argv)
{
	tci_keep_memory();
	int code = tci_dispatch(program, argc, argv);
	bool written = fflush(stdout) == 0 && ferror(stdout) == 0;
	if (written || code == TCI_EXIT_FAILED || code == TCI_EXIT_USAGE)
		return code;
	fprintf(stderr, "%s: cannot write to standard output; is the disk full?\n", program->name);
	return TCI_EXIT_USAGE;
}
