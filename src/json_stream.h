/**
 * @file json_stream.h
 * Cuts JSON into records without building a tree of the whole. Two layouts, told apart by content:
 * lines (a header object, then one object after the other) and document (one object: header
 * members, then arrays of records under names that the user of the stream knows).
 */
#ifndef TENCACHE_SRC_JSON_STREAM_H
#define TENCACHE_SRC_JSON_STREAM_H

#include "json_record.h"
#include "source.h"

/** Longer records and deeper nesting are refused, so that memory and stack stay bounded. */
#define TCI_LARGEST_RECORD_BYTES (4u * 1024u * 1024u)
#define TCI_DEEPEST_RECORD TCI_JSON_DEEPEST

enum tci_record_kind {
	TCI_RECORD_HEADER,  /**< always the first */
	TCI_RECORD_LINE,    /**< lines layout: any record but the header */
	TCI_RECORD_ELEMENT, /**< document layout: element of `array` */
	TCI_RECORD_EXTRA,   /**< document layout: member `key` after the arrays have begun */
	TCI_RECORD_END      /**< the input ended where it may */
};

struct tci_record {
	enum tci_record_kind kind;
	unsigned array; /**< index into the names */
	char *
	    text; /**< one JSON value, not checked yet; may be changed; valid until the next call */
	size_t bytes;
	const char *key; /**< EXTRA: with quotes, `key_bytes` long */
	size_t key_bytes;
	uint64_t line; /**< of its first byte, from 1 */
};

struct tci_json_stream {
	struct tci_source *source;
	const char *const *names;
	unsigned name_count;
	unsigned state;
	unsigned array, next_array;
	uint64_t line;
	size_t pending;         /* bytes of the record handed out last */
	uint64_t pending_lines; /* line feeds in them: its user may change the text */
	char *header;           /* owned */
	bool document;
};

/** Borrows everything. `names` are the arrays of the document layout, in their order. */
void tci_json_stream_begin(struct tci_json_stream *stream, struct tci_source *source,
                           const char *const *names, unsigned name_count);
/** The next record. Errors name file and line. */
enum tc_status tci_json_stream_next(struct tci_json_stream *stream, struct tci_record *record,
                                    struct tc_error *error);
void tci_json_stream_end(struct tci_json_stream *stream);

#endif
