/**
 * @file source.h
 * The bytes of a file or of memory, gzipped or plain (told apart by content), through a window
 * that grows only as far as its user looks ahead. Hashes what it hands out.
 */
#ifndef TENCACHE_SRC_SOURCE_H
#define TENCACHE_SRC_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hash.h"

/** More than this after decompression is refused: ten times the largest trace of a training step; a
 * small gzip file can claim any size. */
#define TCI_LARGEST_SOURCE_BYTES (256u * 1024u * 1024u)

/** `window[begin ... end-1]` are the bytes not consumed yet. Read; change only by the calls. */
struct tci_source {
	char *window;
	size_t begin, end;
	bool at_end; /**< nothing follows window[end-1] */
	const char *name;
	struct tci_source_state *state;
};

/** Borrows `name` (a path) for messages. Directories and unreadable files are refused: TC_IO. */
enum tc_status tci_source_open(struct tci_source *source, const char *path, struct tc_error *error);
/** Borrows `data` and `name`. */
enum tc_status tci_source_of_memory(struct tci_source *source, const char *data, size_t bytes,
                                    const char *name, struct tc_error *error);
/** Add at least one byte to the window, or set `at_end`. May move the window. */
enum tc_status tci_source_more(struct tci_source *source, struct tc_error *error);
/** Consume `bytes` of the window. */
void tci_source_skip(struct tci_source *source, size_t bytes);
/** SHA-256 of everything (decompressed); only once `at_end` is set. */
enum tc_status tci_source_hash(struct tci_source *source, char text[TCI_SHA256_TEXT_BYTES],
                               struct tc_error *error);
/** Free what the source owns; a source set to zero is left alone. */
void tci_source_close(struct tci_source *source);

#endif
