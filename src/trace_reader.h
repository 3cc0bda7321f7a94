/**
 * @file trace_reader.h
 * Inside the trace reader: what its parts share. One record is parsed, checked, taken over into
 * the trace and freed before the next one.
 *
 *   trace.c          entry points, the loop over records, memory
 *   trace_fields.c   findings, and typed access to the members of a record
 *   trace_header.c   header
 *   trace_records.c  tensors, modules, events, unpacks
 *   trace_ops.c      ops and lifetimes
 *   trace_gradients.c whether gradient events come when gradients are complete
 *   trace_check.c    what only the whole trace can tell: references, counts, hashes
 */
#ifndef TENCACHE_SRC_TRACE_READER_H
#define TENCACHE_SRC_TRACE_READER_H

#include "blocks.h"
#include "hash.h"
#include "json_record.h"
#include "tencache/trace.h"
#include "trace_words.h"

#define TCI_SHOWN_FINDINGS 20
#define TCI_LARGEST_TENSOR_BYTES (1ull << 50)
/** Sums of bytes, FLOPs and time over the trace stay below this, so that nobody overflows. */
#define TCI_LARGEST_SUM (1ull << 60)
#define TCI_LARGEST_COUNT (1ull << 32)
/** Longest measured time of an op: eleven days, 10^12 us. */
#define TCI_LARGEST_PS 1000000000000000000ull

enum tci_section { TCI_TENSORS, TCI_MODULES, TCI_EVENTS, TCI_UNPACKS, TCI_OPS, TCI_SECTION_COUNT };

/** Of a parameter: the last event of its gradient, and the first op that wrote that behind it. */
struct tci_gradient {
	uint32_t event;                            /* TC_NONE: none yet */
	uint32_t late_op, late_tensor, late_event; /* late_op TC_NONE: none */
	uint64_t late_line;
};

/** What is known of a tensor's life while the ops pass. Ops by index; TC_NONE: not yet. */
struct tci_life {
	uint32_t allocated, freed, freed_eager;
	uint32_t mark;      /* of the last list that held it */
	uint64_t range_end; /* in that list: end of its last sub-range */
	bool written, used;
	struct tci_gradient gradient;
};

/** What the current findings are about; the text is made only when there is one. */
struct tci_subject {
	const char *word; /* "tensor", "op"; NULL: the file as a whole */
	uint64_t id;
	const char *name; /* or NULL */
	uint64_t line;    /* 0: unknown */
};

struct tci_reader {
	struct tc_trace *trace;
	struct tci_blocks *blocks;
	const char *file;
	struct tci_subject subject;

	uint64_t finding_count;
	char findings[TC_ERROR_TEXT_BYTES];
	size_t findings_bytes;
	enum tc_status fatal; /* out of memory: reading stops */

	size_t capacity[TCI_SECTION_COUNT];
	struct tci_life *lives;
	size_t life_capacity;
	uint32_t next_mark;
	size_t warning_capacity;

	/* From the header. */
	uint64_t header_line;
	uint64_t counts[TCI_SECTION_COUNT]; /* UINT64_MAX: not given */
	const char *claimed_events_hash;    /* or NULL */
	bool events_broken; /* a finding concerns an event: their hash says nothing */
	bool subranges;     /* header requires "subrange" */

	/* While events pass. */
	struct tci_sha256 events_hash;
	bool *module_open; /* forward_pre seen, per module */
	bool backward_started, ended;
	uint32_t micro_batch;

	/* While ops pass. */
	uint32_t last_event;
	uint32_t passed_events; /* that come before the current op */
	uint32_t backward_pass; /* the last "backward_start" of them; 0: none */
	uint32_t first_backward_event;
	enum tc_phase last_phase;
	uint32_t last_micro_batch;
	uint64_t sum_flops, sum_bytes, sum_ps, sum_workspace;
	bool warned_order, warned_stream, warned_device, overflowed;
};

extern const char *const tci_section_names[TCI_SECTION_COUNT];

/* ---------------------------------------------------------------- findings */

/** A finding about the current subject: what was found and what was expected. */
void tci_finding(struct tci_reader *reader, const char *format, ...) TC_PRINTF(2, 3);
void tci_warning(struct tci_reader *reader, const char *format, ...) TC_PRINTF(2, 3);
/** Remember that memory ran out. @return NULL */
void *tci_out_of_memory(struct tci_reader *reader);
/** Begin a subject; its line stays that of the record. */
void tci_about(struct tci_reader *reader, const char *word, uint64_t id, const char *name);

/* ---------------------------------------------------------------- members */

enum tci_need { TCI_OPTIONAL, TCI_REQUIRED };

/* Each returns true and sets the result when the member is there and right; a wrong or missing
 * one is a finding. */
bool tci_get(struct tci_reader *reader, const struct tci_json *object, const char *key,
             enum tci_need need, enum tci_json_type type, const struct tci_json **value);
bool tci_get_integer(struct tci_reader *reader, const struct tci_json *object, const char *key,
                     enum tci_need need, uint64_t smallest, uint64_t largest, uint64_t *value);
/** An id below `count`; `what` names the things counted. */
bool tci_get_id(struct tci_reader *reader, const struct tci_json *object, const char *key,
                enum tci_need need, uint32_t count, const char *what, uint32_t *value);
/** A string, kept in the blocks of the trace. */
bool tci_get_string(struct tci_reader *reader, const struct tci_json *object, const char *key,
                    enum tci_need need, const char **value);
bool tci_get_word(struct tci_reader *reader, const struct tci_json *object, const char *key,
                  enum tci_need need, const struct tci_words *words, unsigned *value);
bool tci_get_dtype(struct tci_reader *reader, const struct tci_json *object, const char *key,
                   enum tc_dtype *dtype, uint64_t *element_bytes);
/** true, false, 1 or 0. */
bool tci_get_flag(struct tci_reader *reader, const struct tci_json *object, const char *key,
                  bool *value);
/** An array of ids below `count`; a repeated one is a finding. Empty when absent. */
void tci_get_ids(struct tci_reader *reader, const struct tci_json *object, const char *key,
                 enum tci_need need, uint32_t count, const char *what, struct tc_ids *ids);
/** The ids of an array value; false when out of memory. */
bool tci_read_ids(struct tci_reader *reader, const struct tci_json *list, const char *key,
                  uint32_t count, const char *what, struct tc_ids *ids);
/** "12", "\"text\"", "an array": what was found, for messages. */
const char *tci_found(const struct tci_json *value, char buffer[64]);

/** Room for one more record of a section; NULL when out of memory. */
void *tci_add_record(struct tci_reader *reader, enum tci_section section);

/* ---------------------------------------------------------------- records */

void tci_read_header(struct tci_reader *reader, const struct tci_json *object);
void tci_read_tensor(struct tci_reader *reader, const struct tci_json *object);
void tci_read_module(struct tci_reader *reader, const struct tci_json *object);
void tci_read_event(struct tci_reader *reader, const struct tci_json *object);
void tci_read_unpack(struct tci_reader *reader, const struct tci_json *object);
void tci_read_op(struct tci_reader *reader, const struct tci_json *object);

/** An op was read: its writes of gradients against the events so far. */
void tci_gradients_op(struct tci_reader *reader, uint32_t index);
/** All ops were read. */
void tci_gradients_end(struct tci_reader *reader);

/** Once all records of the sections before ops are there. */
void tci_begin_ops(struct tci_reader *reader);
/** Once all records are there. */
void tci_check_trace(struct tci_reader *reader);

#endif
