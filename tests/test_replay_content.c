/**
 * Synthetic content against the formula of replay/executor/content.c computed naively, and against
 * what follows from it: words are a bijection of the place and of the version. Hashes against
 * xxHash64 itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "tencache/replay.h"

#define KIB 1024ull

/* The documented formula, word by word, with the multiplications written out. */
static uint64_t naive_spread(uint64_t value)
{
	value ^= value >> 30;
	value *= 0xBF58476D1CE4E5B9ull;
	value ^= value >> 27;
	value *= 0x94D049BB133111EBull;
	return value ^ (value >> 31);
}

static uint64_t naive_word(uint32_t tensor, uint64_t version, uint64_t word)
{
	const uint64_t golden = 0x9E3779B97F4A7C15ull;
	uint64_t seed = naive_spread(naive_spread((uint64_t)tensor + golden) + version);
	uint64_t value = seed + word * golden;
	value ^= value >> 32;
	value *= (1ull << 21) + 1;
	return value ^ (value >> 29);
}

static unsigned char *filled(uint32_t tensor, uint64_t version, uint64_t offset, uint64_t bytes)
{
	unsigned char *memory = malloc(bytes);
	assert_non_null(memory);
	tc_content_fill(memory, tensor, version, offset, bytes);
	return memory;
}

static void formula_test(void **state)
{
	(void)state;
	static const uint64_t offsets[] = {0, 8, 4096, 6ull << 30, UINT64_MAX - 16383};
	static const uint64_t sizes[] = {8, 16, 504, 512, 520, 4096, 10000};
	for (unsigned i = 0; i < sizeof offsets / sizeof *offsets; i++)
		for (unsigned k = 0; k < sizeof sizes / sizeof *sizes; k++) {
			unsigned char *memory = filled(7 + k, i, offsets[i], sizes[k]);
			for (uint64_t w = 0; w < sizes[k] / 8; w++) {
				uint64_t wanted = naive_word(7 + k, i, offsets[i] / 8 + w), found;
				memcpy(&found, memory + 8 * w, 8);
				assert_true(found == wanted);
			}
			free(memory);
		}
}

/* Cutting a tensor anywhere on a word boundary, and its ragged end, changes no byte. */
static void any_cut_gives_the_same_bytes_test(void **state)
{
	(void)state;
	const uint64_t bytes = 3 * 4096 + 1237;
	uint64_t seed = 11;
	unsigned char *whole = filled(3, 9, 0, bytes), *pieces = malloc(bytes + 1);
	assert_non_null(pieces);
	for (unsigned round = 0; round < 200; round++) {
		memset(pieces, 0xA5, bytes + 1);
		for (uint64_t at = 0; at < bytes;) {
			uint64_t part = 8 * (1 + test_random_below(&seed, 200));
			if (part > bytes - at)
				part = bytes - at;
			tc_content_fill(pieces + at, 3, 9, at, part);
			assert_true(tc_content_check(pieces + at, 3, 9, at, part, TC_VERIFY_FULL) ==
			            UINT64_MAX);
			at += part;
		}
		assert_memory_equal(whole, pieces, bytes);
		assert_int_equal(pieces[bytes], 0xA5); /* nothing beyond the end */
	}
	free(whole);
	free(pieces);
}

/* Every single wrong byte is found, at its place, wherever it is. */
static void every_wrong_byte_is_found_test(void **state)
{
	(void)state;
	const uint64_t offset = 8192, bytes = 2 * 512 + 77;
	unsigned char *memory = filled(1, 2, offset, bytes);
	for (uint64_t i = 0; i < bytes; i++) {
		memory[i] ^= 0x10;
		assert_true(tc_content_check(memory, 1, 2, offset, bytes, TC_VERIFY_FULL) ==
		            offset + i);
		assert_true(tc_content_check(memory, 1, 2, offset, bytes, TC_VERIFY_OFF) ==
		            UINT64_MAX);
		memory[i] ^= 0x10;
	}
	free(memory);
}

/* A bijection of version and of place: every word of a stale version, or one that lies a few words
 * too far, is wrong, so the first byte of the difference lies in the first word. */
static void stale_and_shifted_words_all_differ_test(void **state)
{
	(void)state;
	const uint64_t bytes = 64 * KIB;
	unsigned char *memory = filled(5, 40, 0, bytes);
	for (uint64_t at = 0; at < bytes; at += 8) {
		for (uint64_t version = 36; version < 45; version++)
			if (version != 40)
				assert_true(tc_content_check(memory + at, 5, version, at, 8,
				                             TC_VERIFY_FULL) < at + 8);
		assert_true(tc_content_check(memory + at, 5, 40, at + 8, 8, TC_VERIFY_FULL) <
		            at + 16);
		assert_true(tc_content_check(memory + at, 6, 40, at, 8, TC_VERIFY_FULL) < at + 8);
	}
	free(memory);
}

/* Half of the bits are ones and every bit position varies: 64 KiB hold 8,192 words, so 4,096 ones
 * are expected at each position, with a standard deviation of sqrt(8192) / 2 = 45; 6 of them. */
static void bits_are_balanced_test(void **state)
{
	(void)state;
	unsigned char *memory = filled(123, 0, 0, 64 * KIB);
	unsigned ones[64] = {0};
	for (unsigned w = 0; w < 8192; w++) {
		uint64_t word;
		memcpy(&word, memory + 8ull * w, 8);
		for (unsigned bit = 0; bit < 64; bit++)
			ones[bit] += (unsigned)(word >> bit) & 1u;
	}
	for (unsigned bit = 0; bit < 64; bit++)
		assert_in_range(ones[bit], 4096 - 272, 4096 + 272);
	free(memory);
}

static bool is_stamped(uint64_t offset)
{
	return offset % 4096 < 64 || offset % 4096 >= 4096 - 64;
}

/* Stamps are the first and last 64 bytes of each 4 KiB of the tensor and nothing else, whatever the
 * range; the sampling check looks at exactly these. */
static void stamps_test(void **state)
{
	(void)state;
	uint64_t seed = 5;
	for (unsigned round = 0; round < 100; round++) {
		uint64_t offset = 8 * test_random_below(&seed, 1200);
		uint64_t bytes = 1 + test_random_below(&seed, 3 * 4096);
		unsigned char *wanted = filled(2, 3, offset, bytes), *memory = malloc(bytes);
		assert_non_null(memory);
		for (uint64_t i = 0; i < bytes; i++)
			memory[i] = (unsigned char)~wanted[i];
		tc_content_stamp(memory, 2, 3, offset, bytes);
		for (uint64_t i = 0; i < bytes; i++)
			assert_true((memory[i] == wanted[i]) == is_stamped(offset + i));
		assert_true(tc_content_check(memory, 2, 3, offset, bytes, TC_VERIFY_SAMPLE) ==
		            UINT64_MAX);
		uint64_t hit = test_random_below(&seed, bytes);
		memory[hit] = (unsigned char)~memory[hit];
		assert_true(tc_content_check(memory, 2, 3, offset, bytes, TC_VERIFY_SAMPLE) ==
		            (is_stamped(offset + hit) ? offset + hit : UINT64_MAX));
		free(wanted);
		free(memory);
	}
}

/* ---------------------------------------------------------------- hashes */

static struct tc_content_hashes *new_hashes(void)
{
	struct tc_content_hashes *hashes;
	assert_int_equal(tc_content_hashes_create(&hashes, NULL), TC_OK);
	return hashes;
}

static uint64_t check(const struct tc_content_hashes *hashes, uint32_t tensor, uint64_t version,
                      const unsigned char *memory, uint64_t offset, uint64_t bytes, bool *known)
{
	return tc_content_check_hashes(hashes, tensor, version, memory + offset, offset, bytes,
	                               TC_VERIFY_FULL, known);
}

/* A wrong byte makes the hash of its 64 KiB block wrong, and of no other. */
static void wrong_block_test(void **state)
{
	(void)state;
	const uint64_t block = 64 * KIB, bytes = 5 * block + 100;
	struct tc_content_hashes *hashes = new_hashes();
	unsigned char *memory = filled(8, 1, 0, bytes);
	bool known;
	assert_int_equal(tc_content_remember(hashes, 8, 1, memory, bytes, NULL), TC_OK);
	assert_true(check(hashes, 8, 1, memory, 0, bytes, &known) == UINT64_MAX && known);
	for (uint64_t k = 0; k < 6; k++) {
		unsigned char *wrong = &memory[k * block + 99];
		*wrong ^= 1;
		assert_true(check(hashes, 8, 1, memory, 0, bytes, &known) == k * block && known);
		/* Of a range, its whole blocks: from block 2 on only blocks 2 to 5 are seen. */
		assert_true(check(hashes, 8, 1, memory, 2 * block, bytes - 2 * block, &known) ==
		            (k >= 2 ? k * block : UINT64_MAX));
		assert_true(check(hashes, 8, 1, memory, 0, 2 * block, &known) ==
		            (k < 2 ? k * block : UINT64_MAX));
		/* Without its last byte block 5 cannot be hashed. */
		assert_true(check(hashes, 8, 1, memory, 0, bytes - 1, &known) ==
		            (k < 5 ? k * block : UINT64_MAX));
		*wrong ^= 1;
	}
	/* More than was remembered is wrong from there on. */
	assert_true(check(hashes, 8, 1, memory, 0, bytes + 4, &known) == bytes && known);
	free(memory);
	tc_content_hashes_free(hashes);
}

static void take_note(struct tc_content_hashes *hashes, uint64_t version, enum tc_verify how,
                      const void *memory, uint64_t bytes)
{
	struct tc_content_note *note;
	assert_int_equal(tc_content_note_begin(version, bytes, how, &note, NULL), TC_OK);
	for (uint64_t at = 0; at < bytes; at += 256 * KIB) /* in any order: from behind */
		tc_content_note_hash(note, memory, bytes - 256 * KIB - at, 256 * KIB);
	assert_int_equal(tc_content_note_keep(hashes, 8, note, NULL), TC_OK);
}

/* Sampling looks at the ends always, and at every block within eight versions, whether all blocks
 * were hashed or only those. */
static void sampling_covers_all_blocks(enum tc_verify noted)
{
	const uint64_t block = 64 * KIB, blocks = 32, bytes = blocks * block;
	struct tc_content_hashes *hashes = new_hashes();
	unsigned char *memory = filled(8, 1, 0, bytes);
	unsigned seen[32] = {0};
	for (uint64_t version = 0; version < 8; version++) {
		take_note(hashes, version, noted, memory, bytes);
		for (uint64_t k = 0; k < blocks; k++) {
			bool known;
			memory[k * block + 7] ^= 1;
			seen[k] += tc_content_check_hashes(hashes, 8, version, memory, 0, bytes,
			                                   TC_VERIFY_SAMPLE, &known) == k * block;
			assert_true(known);
			memory[k * block + 7] ^= 1;
		}
	}
	assert_int_equal(seen[0], 8);
	assert_int_equal(seen[31], 8);
	for (unsigned k = 1; k < 31; k++)
		assert_int_equal(seen[k], 1);
	/* Of blocks 2 and 3, neither is an eighth of version 7: seen at the edge, or not noted. */
	bool known;
	memory[2 * block] ^= 1;
	assert_true(tc_content_check_hashes(hashes, 8, 7, memory + 2 * block, 2 * block, 2 * block,
	                                    TC_VERIFY_SAMPLE, &known) ==
	            (noted == TC_VERIFY_FULL ? 2 * block : UINT64_MAX));
	assert_true(known);
	free(memory);
	tc_content_hashes_free(hashes);
}

static void sampling_covers_all_blocks_test(void **state)
{
	(void)state;
	sampling_covers_all_blocks(TC_VERIFY_FULL);
	sampling_covers_all_blocks(TC_VERIFY_SAMPLE);
}

/* Versions: synthetic before the first that was computed; the two newest are known; all others are
 * wrong whatever the bytes, because nobody can have computed them by then. */
static void versions_test(void **state)
{
	(void)state;
	struct tc_content_hashes *hashes = new_hashes();
	unsigned char *memory[6];
	bool known;
	for (uint64_t v = 0; v < 6; v++)
		memory[v] = filled(4, v, 0, 1000);
	assert_true(check(hashes, 4, 2, memory[2], 0, 1000, &known) == UINT64_MAX && !known);
	for (uint64_t v = 2; v < 5; v++)
		assert_int_equal(tc_content_remember(hashes, 4, v, memory[v], 1000, NULL), TC_OK);
	static const bool is_known[6] = {false, false, true, true, true, true};
	static const bool is_right[6] = {true, true, false, true, true, false};
	for (uint64_t v = 0; v < 6; v++) {
		uint64_t wrong = check(hashes, 4, v, memory[v], 0, 1000, &known);
		assert_true(known == is_known[v] && (wrong == UINT64_MAX) == is_right[v]);
	}
	assert_true(check(hashes, 4, 4, memory[3], 0, 1000, &known) == 0 && known);
	assert_true(check(hashes, 5, 4, memory[4], 0, 1000, &known) == UINT64_MAX && !known);
	/* A version computed again replaces the one before. */
	assert_int_equal(tc_content_remember(hashes, 4, 4, memory[5], 1000, NULL), TC_OK);
	assert_true(check(hashes, 4, 4, memory[5], 0, 1000, &known) == UINT64_MAX);
	assert_true(check(hashes, 4, 3, memory[3], 0, 1000, &known) == UINT64_MAX);
	assert_true(check(hashes, 4, 4, memory[4], 0, 1000, &known) == 0);
	/* An older one that comes late does not push a newer one out. */
	assert_int_equal(tc_content_remember(hashes, 4, 1, memory[1], 1000, NULL), TC_OK);
	assert_true(check(hashes, 4, 3, memory[3], 0, 1000, &known) == UINT64_MAX && known);
	for (uint64_t v = 0; v < 6; v++)
		free(memory[v]);
	tc_content_hashes_free(hashes);
	tc_content_hashes_free(NULL);
}

/* Many tensors, with ids far apart. */
static void many_tensors_test(void **state)
{
	(void)state;
	struct tc_content_hashes *hashes = new_hashes();
	for (uint32_t i = 0; i < 5000; i++) {
		uint32_t tensor = i * 858993u;
		assert_int_equal(tc_content_remember(hashes, tensor, i, &i, sizeof i, NULL), TC_OK);
	}
	for (uint32_t i = 0; i < 5000; i++) {
		bool known;
		uint32_t other = i + 1;
		assert_true(tc_content_check_hashes(hashes, i * 858993u, i, &i, 0, sizeof i,
		                                    TC_VERIFY_FULL, &known) == UINT64_MAX);
		assert_true(known);
		assert_true(tc_content_check_hashes(hashes, i * 858993u, i, &other, 0, sizeof i,
		                                    TC_VERIFY_FULL, &known) == 0);
	}
	tc_content_hashes_free(hashes);
}

#define SHARED_BYTES (200 * KIB)
#define SHARED_VERSIONS 60

struct shared_work {
	struct tc_content_hashes *hashes;
	uint32_t tensor;
	unsigned failures;
};

static void *remember_and_check(void *self)
{
	struct shared_work *work = self;
	unsigned char *memory = malloc(SHARED_BYTES);
	for (uint64_t version = 0; memory != NULL && version < SHARED_VERSIONS; version++) {
		bool known;
		tc_content_fill(memory, work->tensor, version, 0, SHARED_BYTES);
		work->failures += tc_content_remember(work->hashes, work->tensor, version, memory,
		                                      SHARED_BYTES, NULL) != TC_OK;
		work->failures +=
		    tc_content_check_hashes(work->hashes, work->tensor, version, memory, 0,
		                            SHARED_BYTES, TC_VERIFY_FULL, &known) != UINT64_MAX;
		/* Another thread's tensor: right, unknown, or gone meanwhile, but never read after
		 * it was freed. */
		(void)tc_content_check_hashes(work->hashes, work->tensor ^ 1u, version, memory, 0,
		                              SHARED_BYTES, TC_VERIFY_FULL, &known);
	}
	work->failures += memory == NULL;
	free(memory);
	return NULL;
}

static void threads_share_hashes_test(void **state)
{
	(void)state;
	struct tc_content_hashes *hashes = new_hashes();
	struct shared_work work[4];
	pthread_t threads[4];
	for (uint32_t i = 0; i < 4; i++) {
		work[i] = (struct shared_work){.hashes = hashes, .tensor = i};
		assert_int_equal(pthread_create(&threads[i], NULL, remember_and_check, &work[i]),
		                 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(work[i].failures, 0);
	}
	tc_content_hashes_free(hashes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(formula_test),
	    cmocka_unit_test(any_cut_gives_the_same_bytes_test),
	    cmocka_unit_test(every_wrong_byte_is_found_test),
	    cmocka_unit_test(stale_and_shifted_words_all_differ_test),
	    cmocka_unit_test(bits_are_balanced_test),
	    cmocka_unit_test(stamps_test),
	    cmocka_unit_test(wrong_block_test),
	    cmocka_unit_test(sampling_covers_all_blocks_test),
	    cmocka_unit_test(versions_test),
	    cmocka_unit_test(many_tensors_test),
	    cmocka_unit_test(threads_share_hashes_test),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
