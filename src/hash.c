/* SHA-256: a thin layer over libcrypto's EVP, so that nobody else needs its headers. */
#include "hash.h"

#include <openssl/evp.h>

static enum tc_status refuse(struct tci_sha256 *hash, struct tc_error *error)
{
	tci_sha256_drop(hash);
	return tc_error_set(error, TC_INTERNAL,
	                    "libcrypto cannot compute SHA-256; check the OpenSSL installation");
}

enum tc_status tci_sha256_begin(struct tci_sha256 *hash, struct tc_error *error)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	if (context == NULL)
		return tc_error_no_memory(error, "a hash", 64);
	hash->context = context;
	if (EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1)
		return refuse(hash, error);
	return TC_OK;
}

enum tc_status tci_sha256_add(struct tci_sha256 *hash, const void *data, size_t bytes,
                              struct tc_error *error)
{
	if (EVP_DigestUpdate(hash->context, data, bytes) != 1)
		return refuse(hash, error);
	return TC_OK;
}

enum tc_status tci_sha256_end(struct tci_sha256 *hash, char text[TCI_SHA256_TEXT_BYTES],
                              struct tc_error *error)
{
	static const char digits[] = "0123456789abcdef";
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned length = 0;
	if (EVP_DigestFinal_ex(hash->context, digest, &length) != 1 || length != 32)
		return refuse(hash, error);
	tci_sha256_drop(hash);
	for (unsigned i = 0; i < length; i++) {
		text[2 * i] = digits[digest[i] >> 4];
		text[2 * i + 1] = digits[digest[i] & 15];
	}
	text[2 * length] = '\0';
	return TC_OK;
}

void tci_sha256_drop(struct tci_sha256 *hash)
{
	EVP_MD_CTX_free(hash->context);
	hash->context = NULL;
}

enum tc_status tci_sha256_of(const void *data, size_t bytes, char text[TCI_SHA256_TEXT_BYTES],
                             struct tc_error *error)
{
	struct tci_sha256 hash = {0};
	TC_TRY(tci_sha256_begin(&hash, error));
	TC_TRY(tci_sha256_add(&hash, data, bytes, error));
	return tci_sha256_end(&hash, text, error);
}
