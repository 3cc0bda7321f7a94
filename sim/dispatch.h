/**
 * @file dispatch.h
 * A program of verbs: which one is meant, --help, --version, unknown names. Shared by tencache-sim
 * and tencache-replay.
 */
#ifndef TENCACHE_SIM_DISPATCH_H
#define TENCACHE_SIM_DISPATCH_H

#include <stddef.h>

struct tci_verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
};

struct tci_program {
	const char *name, *version;
	const char *headline; /**< what it does, after "NAME VERSION: " */
	const char *examples; /**< lines of examples and exit codes, for the end of --help */
	const struct tci_verb *verbs; /**< the first is the default */
	size_t verb_count;            /**< at most TCI_MAX_VERBS */
};

#define TCI_MAX_VERBS 16

/**
 * Run the verb that argv names. Output that could not be written makes the run fail, whatever wrote
 * it. @return the exit code
 */
int tci_program_main(const struct tci_program *program, int argc, char **argv);

/** Ask the C library to keep memory that was freed instead of giving it back: a run over several
 * policies would fault the same pages in again for each. */
void tci_keep_memory(void);

#endif
