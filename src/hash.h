/**
 * @file hash.h
 * SHA-256 through libcrypto, as lower-case hexadecimal text.
 */
#ifndef TENCACHE_SRC_HASH_H
#define TENCACHE_SRC_HASH_H

#include <stddef.h>

#include "tencache/error.h"

#define TCI_SHA256_TEXT_BYTES 65

/** A running hash. Set to zero before tci_sha256_begin(); owned by the caller. */
struct tci_sha256 {
	void *context;
};

enum tc_status tci_sha256_begin(struct tci_sha256 *hash, struct tc_error *error);
enum tc_status tci_sha256_add(struct tci_sha256 *hash, const void *data, size_t bytes,
                              struct tc_error *error);
/** Write the digest as text and free the hash. */
enum tc_status tci_sha256_end(struct tci_sha256 *hash, char text[TCI_SHA256_TEXT_BYTES],
                              struct tc_error *error);
/** Free an unfinished hash; one that was ended or never begun is left alone. */
void tci_sha256_drop(struct tci_sha256 *hash);

/** All at once. */
enum tc_status tci_sha256_of(const void *data, size_t bytes, char text[TCI_SHA256_TEXT_BYTES],
                             struct tc_error *error);

#endif
