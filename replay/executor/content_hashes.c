/**
 * Hashes of computed content: per tensor the hashes of its newest versions, one xxHash64 for each
 * 64 KiB block. The two newest are kept, because a lane may still be copying the version before
 * while an update elsewhere ends; memory is thus bounded by the size of the tensors.
 *
 * Hashing happens outside the lock. A set of hashes is counted by its users, so one that is
 * replaced while a reader still compares lives until that reader is done.
 */
#include "tencache/replay.h"

#include "tencache/units.h"

#include <pthread.h>
#include <stdlib.h>
#include <xxhash.h>

#define HASH_BLOCK_BYTES 65536ull
#define VERSIONS_KEPT 2
/** With TC_VERIFY_SAMPLE one block in this many is hashed, another set for each version. */
#define SAMPLE_EVERY 8ull

/** The hashes of one version of a tensor. */
struct tc_content_note {
	uint64_t version, bytes;
	uint32_t users;
	bool whole; /**< every block has its hash, else those that is_sampled() names */
	uint64_t blocks[];
};

/** A tensor of the table; `used` tells an empty place. */
struct hashed_tensor {
	uint32_t tensor;
	bool used;
	uint64_t first_version;                          /**< before it, content is synthetic */
	struct tc_content_note *versions[VERSIONS_KEPT]; /**< newest first */
};

/** Open addressing with linear probing, at most half full. */
struct hash_table {
	pthread_mutex_t mutex;
	struct hashed_tensor *places;
	size_t capacity; /**< a power of two, or 0 */
	size_t used;
};

/* The table lies behind a pointer so that checking, which locks it, can take a const object. */
struct tc_content_hashes {
	struct hash_table *table;
};

enum tc_status tc_content_hashes_create(struct tc_content_hashes **hashes, struct tc_error *error)
{
	struct tc_content_hashes *made = calloc(1, sizeof *made);
	struct hash_table *table = calloc(1, sizeof *table);
	if (made == NULL || table == NULL || pthread_mutex_init(&table->mutex, NULL) != 0) {
		free(made);
		free(table);
		return tc_error_no_memory(error, "content hashes", sizeof *made + sizeof *table);
	}
	made->table = table;
	*hashes = made;
	return TC_OK;
}

/** Under the lock. */
static void release(struct tc_content_note *set)
{
	if (set != NULL && --set->users == 0)
		free(set);
}

void tc_content_hashes_free(struct tc_content_hashes *hashes)
{
	if (hashes == NULL)
		return;
	struct hash_table *table = hashes->table;
	for (size_t i = 0; i < table->capacity; i++)
		for (unsigned k = 0; k < VERSIONS_KEPT; k++)
			release(table->places[i].versions[k]);
	free(table->places);
	pthread_mutex_destroy(&table->mutex);
	free(table);
	free(hashes);
}

/** The place of a tensor, or the empty one where it belongs. The table is never full. */
static struct hashed_tensor *place_of(struct hashed_tensor *places, size_t capacity,
                                      uint32_t tensor)
{
	size_t at = (size_t)(tensor * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (capacity - 1);
	while (places[at].used && places[at].tensor != tensor)
		at = (at + 1) & (capacity - 1);
	return &places[at];
}

static bool grow(struct hash_table *table)
{
	size_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;
	struct hashed_tensor *places = tc_alloc_array(capacity, sizeof *places);
	if (places == NULL)
		return false;
	for (size_t i = 0; i < table->capacity; i++)
		if (table->places[i].used)
			*place_of(places, capacity, table->places[i].tensor) = table->places[i];
	free(table->places);
	table->places = places;
	table->capacity = capacity;
	return true;
}

/** Under the lock: put `set` among the versions of its tensor, the oldest one drops out. */
static bool keep(struct hash_table *table, uint32_t tensor, struct tc_content_note *set)
{
	if (2 * (table->used + 1) > table->capacity && !grow(table))
		return false;
	struct hashed_tensor *place = place_of(table->places, table->capacity, tensor);
	if (!place->used) {
		*place = (struct hashed_tensor){
		    .tensor = tensor, .used = true, .first_version = set->version};
		table->used++;
	}
	if (set->version < place->first_version)
		place->first_version = set->version;
	for (unsigned k = 0; k < VERSIONS_KEPT && set != NULL; k++) {
		struct tc_content_note *there = place->versions[k];
		if (there != NULL && there->version > set->version)
			continue;
		place->versions[k] = set;
		set = there;
		if (set != NULL && set->version == place->versions[k]->version)
			break; /* the same version again: replaced */
	}
	release(set);
	return true;
}

static uint64_t block_count(uint64_t bytes)
{
	return bytes / HASH_BLOCK_BYTES + (bytes % HASH_BLOCK_BYTES != 0);
}

static uint64_t hash_block(const void *memory, uint64_t total, uint64_t block)
{
	uint64_t start = block * HASH_BLOCK_BYTES;
	uint64_t bytes = total - start < HASH_BLOCK_BYTES ? total - start : HASH_BLOCK_BYTES;
	return XXH64((const char *)memory + start, (size_t)bytes, block);
}

static bool is_sampled(const struct tc_content_note *note, uint64_t block)
{
	return block == 0 || block + 1 == block_count(note->bytes) ||
	       (block + note->version) % SAMPLE_EVERY == 0;
}

enum tc_status tc_content_note_begin(uint64_t version, uint64_t bytes, enum tc_verify how,
                                     struct tc_content_note **note, struct tc_error *error)
{
	uint64_t count = block_count(bytes), size;
	struct tc_content_note *made = NULL;
	if (tc_mul_u64(count, sizeof made->blocks[0], &size) &&
	    tc_add_u64(size, sizeof *made, &size) && size <= SIZE_MAX)
		made = malloc((size_t)size);
	*note = made;
	if (made == NULL)
		return tc_error_no_memory(error, "hashes of computed content",
		                          count * sizeof made->blocks[0]);
	made->version = version;
	made->bytes = bytes;
	made->users = 1;
	made->whole = how == TC_VERIFY_FULL;
	return TC_OK;
}

void tc_content_note_hash(struct tc_content_note *note, const void *memory, uint64_t offset,
                          uint64_t bytes)
{
	uint64_t last = block_count(offset + bytes);
	for (uint64_t k = offset / HASH_BLOCK_BYTES; k < last; k++)
		if (note->whole || is_sampled(note, k))
			note->blocks[k] = hash_block(memory, note->bytes, k);
}

enum tc_status tc_content_note_keep(struct tc_content_hashes *hashes, uint32_t tensor,
                                    struct tc_content_note *note, struct tc_error *error)
{
	pthread_mutex_lock(&hashes->table->mutex);
	bool kept = keep(hashes->table, tensor, note);
	pthread_mutex_unlock(&hashes->table->mutex);
	if (kept)
		return TC_OK;
	free(note);
	return tc_error_no_memory(error, "the table of content hashes",
	                          2 * hashes->table->capacity * sizeof(struct hashed_tensor));
}

enum tc_status tc_content_remember(struct tc_content_hashes *hashes, uint32_t tensor,
                                   uint64_t version, const void *memory, uint64_t bytes,
                                   struct tc_error *error)
{
	struct tc_content_note *note;
	TC_TRY(tc_content_note_begin(version, bytes, TC_VERIFY_FULL, &note, error));
	tc_content_note_hash(note, memory, 0, bytes);
	return tc_content_note_keep(hashes, tensor, note, error);
}

/**
 * Under the lock: the hashes of a version, which the caller must release(). NULL when there are
 * none; `*known` then says whether there should be.
 */
static struct tc_content_note *find(struct hash_table *table, uint32_t tensor, uint64_t version,
                                    bool *known)
{
	*known = false;
	if (table->capacity == 0)
		return NULL;
	struct hashed_tensor *place = place_of(table->places, table->capacity, tensor);
	if (!place->used || version < place->first_version)
		return NULL;
	*known = true;
	for (unsigned k = 0; k < VERSIONS_KEPT; k++) {
		struct tc_content_note *set = place->versions[k];
		if (set != NULL && set->version == version) {
			set->users++;
			return set;
		}
	}
	return NULL;
}

/** Offset of the first block whose hash is wrong, or UINT64_MAX. */
static uint64_t compare(const struct tc_content_note *set, const char *memory, uint64_t offset,
                        uint64_t bytes, enum tc_verify how)
{
	uint64_t end = offset + bytes, last = block_count(set->bytes);
	if (end > set->bytes)
		return set->bytes > offset ? set->bytes : offset;
	for (uint64_t k = block_count(offset); k < last; k++) {
		uint64_t start = k * HASH_BLOCK_BYTES, stop = start + HASH_BLOCK_BYTES;
		if (stop > set->bytes)
			stop = set->bytes;
		if (stop > end)
			break;
		bool edge = set->whole && (start == offset || stop == end);
		bool wanted = how == TC_VERIFY_FULL ? set->whole : edge || is_sampled(set, k);
		if (!wanted)
			continue;
		if (XXH64(memory + (start - offset), (size_t)(stop - start), k) != set->blocks[k])
			return start;
	}
	return UINT64_MAX;
}

uint64_t tc_content_check_hashes(const struct tc_content_hashes *hashes, uint32_t tensor,
                                 uint64_t version, const void *memory, uint64_t offset,
                                 uint64_t bytes, enum tc_verify how, bool *known)
{
	struct hash_table *table = hashes->table;
	pthread_mutex_lock(&table->mutex);
	struct tc_content_note *set = find(table, tensor, version, known);
	pthread_mutex_unlock(&table->mutex);
	if (how == TC_VERIFY_OFF && set == NULL)
		return UINT64_MAX;
	if (set == NULL)
		return *known ? offset : UINT64_MAX;
	uint64_t wrong = UINT64_MAX;
	if (how != TC_VERIFY_OFF)
		wrong = compare(set, memory, offset, bytes, how);
	pthread_mutex_lock(&table->mutex);
	release(set);
	pthread_mutex_unlock(&table->mutex);
	return wrong;
}
