/**
 * @file option_words.h
 * What the verbs say about words and options that they do not know.
 */
#ifndef TENCACHE_SIM_OPTION_WORDS_H
#define TENCACHE_SIM_OPTION_WORDS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tencache/error.h"

/** An option of a verb, for its --help and for getopt_long(). */
struct tci_option {
	const char *name;
	const char *argument; /**< NULL: takes none */
	const char *help;
	int value;
};
/** A line for each option. */
void tci_print_options(const struct tci_option *options, int count);
/** A line for each machine value that an option overrides. */
void tci_print_overrides(void);

/**
 * Options of a verb that lists things: --json and --help (printed here). Names follow at optind.
 * @return false when the verb is done with exit code `*code`
 */
bool tci_list_options(int argc, char **argv, const char *help, bool *as_json, int *code);

/** Find `value` among `words`; else TC_ARGUMENT with the list and the nearest one. */
enum tc_status tci_choose(const char *option, const char *value, const char *const *words,
                          size_t count, int *chosen, struct tc_error *error);
/** A whole number from 1 to `most`. @param option with its dashes, for messages */
enum tc_status tci_set_count(const char *option, const char *value, uint64_t most, uint64_t *number,
                             struct tc_error *error);
enum tc_status tci_set_small(const char *option, const char *value, uint32_t most, uint32_t *number,
                             struct tc_error *error);
/** The option at which getopt_long() stopped that started to look at argv[at]: what is no option is
 * passed over, as it does. */
const char *tci_option_at(char *const *argv, int at);
/** TC_ARGUMENT for the option at which getopt_long() stopped. @param missing it is known, but its
 * value is not there */
enum tc_status tci_bad_option(const char *text, const struct option *list, bool missing,
                              struct tc_error *error);

#endif
