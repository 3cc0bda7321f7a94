/**
 * Synthetic content: word w of version v of tensor t is mix(seed(t, v) + w * GOLDEN), in arithmetic
 * modulo 2^64. mix() is a bijection and GOLDEN is odd, so within one tensor and version no two
 * words are equal, and for two versions of one tensor (seed() is a bijection of the version) the
 * words at one place always differ: data that is stale or lies a word too far is never mistaken for
 * the right one. mix() uses only additions, shifts and exclusive or, which every vector unit has
 * for 64-bit lanes; a multiplication would not vectorise on a baseline x86-64.
 */
#include "tencache/replay.h"

#include <string.h>

#define GOLDEN 0x9E3779B97F4A7C15ull /* 2^64 / golden ratio, odd: Weyl sequence of full period */
#define WORD_BYTES 8ull
#define BATCH_WORDS 64
#define BATCH_BYTES (BATCH_WORDS * WORD_BYTES)
#define SAMPLE_BLOCK_BYTES 4096ull
#define SAMPLE_BYTES 64ull
/** Samples lie in different pages, where the processor fetches nothing ahead by itself. */
#define SAMPLES_AHEAD_BYTES (8 * SAMPLE_BLOCK_BYTES)

/** Finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that spreads every bit. */
static uint64_t spread(uint64_t value)
{
	value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ull;
	value = (value ^ (value >> 27)) * 0x94D049BB133111EBull;
	return value ^ (value >> 31);
}

static uint64_t seed_of(uint32_t tensor, uint64_t version)
{
	return spread(spread(tensor + GOLDEN) + version);
}

static uint64_t mix(uint64_t value)
{
	value ^= value >> 32;
	value += value << 21;
	return value ^ (value >> 29);
}

/** The words of one batch, the first from `start` = seed + word * GOLDEN. */
static void batch_words(uint64_t start, uint64_t words[BATCH_WORDS])
{
	/* Two loops: counting stays scalar, mixing becomes vectors. */
	for (unsigned i = 0; i < BATCH_WORDS; i++, start += GOLDEN)
		words[i] = start;
	for (unsigned i = 0; i < BATCH_WORDS; i++)
		words[i] = mix(words[i]);
}

static void fill_range(unsigned char *memory, uint64_t seed, uint64_t offset, uint64_t bytes)
{
	uint64_t start = seed + offset / WORD_BYTES * GOLDEN;
	while (bytes >= BATCH_BYTES) {
		uint64_t words[BATCH_WORDS];
		batch_words(start, words);
		memcpy(memory, words, BATCH_BYTES);
		memory += BATCH_BYTES;
		bytes -= BATCH_BYTES;
		start += BATCH_WORDS * GOLDEN;
	}
	while (bytes > 0) {
		uint64_t word = mix(start);
		size_t part = bytes < WORD_BYTES ? (size_t)bytes : (size_t)WORD_BYTES;
		memcpy(memory, &word, part);
		memory += part;
		bytes -= part;
		start += GOLDEN;
	}
}

/** First differing byte of at most one batch, counted from `memory`. */
static uint64_t first_difference(const unsigned char *memory, const void *words, uint64_t bytes)
{
	const unsigned char *wanted = words;
	uint64_t i = 0;
	while (i < bytes && memory[i] == wanted[i])
		i++;
	return i;
}

static uint64_t check_range(const unsigned char *memory, uint64_t seed, uint64_t offset,
                            uint64_t bytes)
{
	uint64_t start = seed + offset / WORD_BYTES * GOLDEN;
	while (bytes >= BATCH_BYTES) {
		uint64_t words[BATCH_WORDS], found[BATCH_WORDS], difference = 0;
		batch_words(start, words);
		memcpy(found, memory, BATCH_BYTES);
		for (unsigned i = 0; i < BATCH_WORDS; i++)
			difference |= words[i] ^ found[i];
		if (difference != 0)
			return offset + first_difference(memory, words, BATCH_BYTES);
		memory += BATCH_BYTES;
		offset += BATCH_BYTES;
		bytes -= BATCH_BYTES;
		start += BATCH_WORDS * GOLDEN;
	}
	for (; bytes >= WORD_BYTES; start += GOLDEN) {
		uint64_t word = mix(start), found;
		memcpy(&found, memory, sizeof found);
		if (found != word)
			return offset + first_difference(memory, &word, WORD_BYTES);
		memory += WORD_BYTES;
		offset += WORD_BYTES;
		bytes -= WORD_BYTES;
	}
	uint64_t word = mix(start);
	if (bytes > 0 && memcmp(memory, &word, (size_t)bytes) != 0)
		return offset + first_difference(memory, &word, bytes);
	return UINT64_MAX;
}

/**
 * The next stamped range at or after `*offset`: the first or last 64 bytes of a 4 KiB block of the
 * tensor, cut to the range that ends at `end`. Blocks are counted from the tensor's start, so that
 * whoever writes and whoever checks may cut the tensor differently. False when none is left.
 */
static bool next_sample(uint64_t *offset, uint64_t end, uint64_t *bytes)
{
	uint64_t inside = *offset % SAMPLE_BLOCK_BYTES;
	uint64_t stop = SAMPLE_BLOCK_BYTES;
	if (inside < SAMPLE_BYTES)
		stop = SAMPLE_BYTES;
	else if (inside < SAMPLE_BLOCK_BYTES - SAMPLE_BYTES) {
		uint64_t skip = SAMPLE_BLOCK_BYTES - SAMPLE_BYTES - inside;
		if (skip >= end - *offset)
			return false;
		*offset += skip;
		inside += skip;
	}
	if (*offset >= end)
		return false;
	*bytes = stop - inside < end - *offset ? stop - inside : end - *offset;
	return true;
}

void tc_content_fill(void *memory, uint32_t tensor, uint64_t version, uint64_t offset,
                     uint64_t bytes)
{
	fill_range(memory, seed_of(tensor, version), offset, bytes);
}

void tc_content_stamp(void *memory, uint32_t tensor, uint64_t version, uint64_t offset,
                      uint64_t bytes)
{
	uint64_t seed = seed_of(tensor, version), end = offset + bytes, part;
	unsigned char *base = memory;
	for (uint64_t at = offset; next_sample(&at, end, &part); at += part) {
		if (end - at > SAMPLES_AHEAD_BYTES)
			__builtin_prefetch(base + (at - offset) + SAMPLES_AHEAD_BYTES, 1);
		fill_range(base + (at - offset), seed, at, part);
	}
}

uint64_t tc_content_check(const void *memory, uint32_t tensor, uint64_t version, uint64_t offset,
                          uint64_t bytes, enum tc_verify how)
{
	uint64_t seed = seed_of(tensor, version), end = offset + bytes, part;
	const unsigned char *base = memory;
	if (how == TC_VERIFY_OFF)
		return UINT64_MAX;
	if (how == TC_VERIFY_FULL)
		return check_range(base, seed, offset, bytes);
	for (uint64_t at = offset; next_sample(&at, end, &part); at += part) {
		if (end - at > SAMPLES_AHEAD_BYTES)
			__builtin_prefetch(base + (at - offset) + SAMPLES_AHEAD_BYTES, 0);
		uint64_t wrong = check_range(base + (at - offset), seed, at, part);
		if (wrong != UINT64_MAX)
			return wrong;
	}
	return UINT64_MAX;
}
