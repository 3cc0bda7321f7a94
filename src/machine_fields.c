/**
 * @file machine_fields.c
 * The table of machine values and its words.
 */
#include "machine_fields.h"

#include <string.h>

const enum tc_dtype tci_flops_dtypes[5] = {TC_FLOAT32, TC_FLOAT16, TC_BFLOAT16, TC_FLOAT64,
                                           TC_FLOAT8};

#define REQUIRED true
#define OPTIONAL false

const struct tci_field tci_fields[TCI_FIELD_COUNT] = {
#define FIELD(id, path, unit, required, smallest, fallback, option, help)                          \
	[id] = {path, unit, required, smallest, fallback, option, help},
#define PATH_ONLY(id, path, unit, required, smallest, fallback, help)                              \
	[id] = {path, unit, required, smallest, fallback, NULL, help},
#include "machine_table.h"
#undef FIELD
#undef PATH_ONLY
};

#define TCI_BYTES_TEXT "bytes"
#define TCI_RATE_TEXT "bytes/s"
#define TCI_COUNT_TEXT "N"
#define TCI_PPM_TEXT "factor"
#define TCI_NS_TEXT "ns"
#define TCI_MICRO_USD_TEXT "USD/h"
#define TCI_FLAG_TEXT "yes|no"
#define TCI_ROUNDING_TEXT "exact|pow2"

static const struct tc_machine_override_name options[] = {
#define FIELD(id, path, unit, required, smallest, fallback, option, help)                          \
	{option, unit##_TEXT, help, path},
#define PATH_ONLY(id, path, unit, required, smallest, fallback, help)
#include "machine_table.h"
#undef FIELD
#undef PATH_ONLY
};

const struct tc_machine_override_name *tc_machine_override_names(size_t *count)
{
	*count = sizeof options / sizeof *options;
	return options;
}

const char *tci_unit_name(enum tci_unit unit)
{
	static const char *const names[] = {"bytes", "bytes/s", "",           "ppm",
	                                    "ns",    "USD/h",   "true|false", "exact|pow2"};
	return names[unit];
}

bool tci_confidence_parse(const char *word, enum tc_confidence *confidence)
{
	for (int i = TC_CONFIDENCE_LOW; i <= TC_CONFIDENCE_HIGH; ++i) {
		if (strcmp(word, tc_confidence_name((enum tc_confidence)i)) == 0) {
			*confidence = (enum tc_confidence)i;
			return true;
		}
	}
	return false;
}
