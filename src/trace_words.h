/**
 * @file trace_words.h
 * The words of the trace format, from text to enum. The other way: tc_*_name() in trace.h.
 */
#ifndef TENCACHE_SRC_TRACE_WORDS_H
#define TENCACHE_SRC_TRACE_WORDS_H

#include "tencache/trace.h"

/** A word of the format and what it means. */
struct tci_word {
	const char *text;
	unsigned value;
};

/** A closed list of words. */
struct tci_words {
	const struct tci_word *items;
	size_t count;
};

extern const struct tci_words tci_tensor_kinds, tci_roles, tci_phases, tci_op_classes,
    tci_event_kinds, tci_bind_kinds;

/** The value of `text`, or false. */
bool tci_word_find(const struct tci_words *words, const char *text, unsigned *value);

/**
 * A data type as PyTorch spells it, without "torch.". Types that move like any other but that no
 * rate is known for (complex, unsigned above 8 bits) give TC_DTYPE_UNKNOWN with their size.
 */
bool tci_dtype_find(const char *text, enum tc_dtype *dtype, uint64_t *element_bytes);

#endif
