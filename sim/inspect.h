/**
 * @file inspect.h
 * Prints what is in a trace. JSON keys: those of struct tc_inspection.
 */
#ifndef TENCACHE_SIM_INSPECT_H
#define TENCACHE_SIM_INSPECT_H

#include <stdio.h>

#include "tencache/inspect.h"

/** Tables for people. @param all every size; else the few of each kind that hold most bytes */
enum tc_status tci_print_inspection(FILE *out, const struct tc_inspection *inspection, bool all,
                                    struct tc_error *error);
/** One JSON document, `format` "tencache-inspection". */
enum tc_status tci_print_inspection_json(FILE *out, const struct tc_inspection *inspection,
                                         struct tc_error *error);

#endif
