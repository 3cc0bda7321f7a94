/* Words of the trace format. Each table serves both directions; the first word of a value is its
 * name. */
#include "trace_words.h"

#include <string.h>

#define WORDS(table)                                                                               \
	{                                                                                          \
		table, sizeof(table) / sizeof *(table)                                             \
	}

static const struct tci_word tensor_kinds[] = {
    {"param", TC_PARAM},
    {"grad", TC_GRAD},
    {"optimizer_state", TC_OPTIMIZER_STATE},
    {"activation", TC_ACTIVATION},
    {"input", TC_INPUT},
    {"buffer", TC_BUFFER},
    {"temp", TC_TEMP},
};
static const struct tci_word roles[] = {
    {"master", TC_ROLE_MASTER}, {"exp_avg", TC_ROLE_EXP_AVG}, {"exp_avg_sq", TC_ROLE_EXP_AVG_SQ},
    {"other", TC_ROLE_OTHER},   {"none", TC_ROLE_NONE},
};
static const struct tci_word phases[] = {
    {"f", TC_FORWARD},   {"b", TC_BACKWARD}, {"o", TC_OPTIMIZER},
    {"z", TC_ZERO_GRAD}, {"x", TC_OTHER},
};
static const struct tci_word op_classes[] = {
    {"gemm", TC_GEMM},     {"attn", TC_ATTENTION},     {"elt", TC_ELEMENTWISE},
    {"red", TC_REDUCTION}, {"gather", TC_GATHER},      {"opt", TC_OPTIMIZER_OP},
    {"copy", TC_COPY},     {"comm", TC_COMMUNICATION},
};
static const struct tci_word event_kinds[] = {
    {"start", TC_EVENT_START},
    {"micro_batch", TC_EVENT_MICRO_BATCH},
    {"forward_pre", TC_EVENT_FORWARD_PRE},
    {"forward_post", TC_EVENT_FORWARD_POST},
    {"backward_start", TC_EVENT_BACKWARD_START},
    {"backward", TC_EVENT_BACKWARD},
    {"gradient", TC_EVENT_GRADIENT},
    {"norm", TC_EVENT_NORM},
    {"optimizer", TC_EVENT_OPTIMIZER},
    {"end", TC_EVENT_END},
};
static const struct tci_word bind_kinds[] = {
    {"param", TC_BIND_PARAM},   {"buffer", TC_BIND_BUFFER}, {"state", TC_BIND_STATE},
    {"master", TC_BIND_MASTER}, {"grad", TC_BIND_GRAD},     {"saved", TC_BIND_SAVED},
    {"input", TC_BIND_INPUT},
};

const struct tci_words tci_tensor_kinds = WORDS(tensor_kinds), tci_roles = WORDS(roles),
                       tci_phases = WORDS(phases), tci_op_classes = WORDS(op_classes),
                       tci_event_kinds = WORDS(event_kinds), tci_bind_kinds = WORDS(bind_kinds);

bool tci_word_find(const struct tci_words *words, const char *text, unsigned *value)
{
	for (size_t i = 0; i < words->count; i++) {
		if (strcmp(words->items[i].text, text) == 0) {
			*value = words->items[i].value;
			return true;
		}
	}
	return false;
}

static const char *name_of(const struct tci_words *words, unsigned value)
{
	for (size_t i = 0; i < words->count; i++) {
		if (words->items[i].value == value)
			return words->items[i].text;
	}
	return "unknown";
}

/* ---------------------------------------------------------------- data types */

struct dtype_word {
	const char *text;
	enum tc_dtype dtype;
	uint64_t bytes;
};

static const struct dtype_word dtypes[] = {
    {"float32", TC_FLOAT32, 4},
    {"float16", TC_FLOAT16, 2},
    {"bfloat16", TC_BFLOAT16, 2},
    {"float64", TC_FLOAT64, 8},
    {"float8", TC_FLOAT8, 1},
    {"float8_e4m3fn", TC_FLOAT8, 1},
    {"float8_e5m2", TC_FLOAT8, 1},
    {"float8_e4m3fnuz", TC_FLOAT8, 1},
    {"float8_e5m2fnuz", TC_FLOAT8, 1},
    {"float8_e8m0fnu", TC_FLOAT8, 1},
    {"int64", TC_INT64, 8},
    {"int32", TC_INT32, 4},
    {"int16", TC_INT16, 2},
    {"int8", TC_INT8, 1},
    {"uint8", TC_UINT8, 1},
    {"bool", TC_BOOL, 1},
    {"uint16", TC_DTYPE_UNKNOWN, 2},
    {"uint32", TC_DTYPE_UNKNOWN, 4},
    {"uint64", TC_DTYPE_UNKNOWN, 8},
    {"complex32", TC_DTYPE_UNKNOWN, 4},
    {"complex64", TC_DTYPE_UNKNOWN, 8},
    {"complex128", TC_DTYPE_UNKNOWN, 16},
};
#define DTYPE_COUNT (sizeof dtypes / sizeof *dtypes)

bool tci_dtype_find(const char *text, enum tc_dtype *dtype, uint64_t *element_bytes)
{
	for (size_t i = 0; i < DTYPE_COUNT; i++) {
		if (strcmp(dtypes[i].text, text) == 0) {
			*dtype = dtypes[i].dtype;
			*element_bytes = dtypes[i].bytes;
			return true;
		}
	}
	return false;
}

uint64_t tc_dtype_bytes(enum tc_dtype dtype)
{
	for (size_t i = 0; i < DTYPE_COUNT && dtype != TC_DTYPE_UNKNOWN; i++) {
		if (dtypes[i].dtype == dtype)
			return dtypes[i].bytes;
	}
	return 0;
}

const char *tc_dtype_name(enum tc_dtype dtype)
{
	for (size_t i = 0; i < DTYPE_COUNT && dtype != TC_DTYPE_UNKNOWN; i++) {
		if (dtypes[i].dtype == dtype)
			return dtypes[i].text;
	}
	return "unknown";
}

/* ---------------------------------------------------------------- names */

const char *tc_tensor_kind_name(enum tc_tensor_kind kind)
{
	return name_of(&tci_tensor_kinds, kind);
}

const char *tc_role_name(enum tc_role role)
{
	return name_of(&tci_roles, role);
}

const char *tc_phase_name(enum tc_phase phase)
{
	static const char *const names[] = {"forward", "backward", "optimizer", "zero_grad",
	                                    "other"};
	return (unsigned)phase < TC_PHASE_COUNT ? names[phase] : "unknown";
}

const char *tc_op_class_name(enum tc_op_class op_class)
{
	return name_of(&tci_op_classes, op_class);
}

const char *tc_event_kind_name(enum tc_event_kind kind)
{
	return name_of(&tci_event_kinds, kind);
}

const char *tc_bind_kind_name(enum tc_bind_kind kind)
{
	static const char none[] = "none";
	return kind == TC_BIND_NONE ? none : name_of(&tci_bind_kinds, kind);
}
