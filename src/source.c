/* Plain bytes or gzip members, in chunks, into one window. */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "tencache/units.h"

#define CHUNK_BYTES 65536u

struct tci_source_state {
	int file; /* -1: memory */
	const unsigned char *memory;
	size_t memory_bytes;
	size_t capacity; /* of the window */
	uint64_t total;  /* bytes handed out */
	bool gzip, inflating, raw_end;
	z_stream stream;
	unsigned char raw[CHUNK_BYTES]; /* compressed, or the first bytes */
	size_t raw_begin, raw_count;
	struct tci_sha256 hash;
};

/* ---------------------------------------------------------------- raw bytes */

/** Read up to `bytes` bytes; zero at the end. */
static enum tc_status read_raw(struct tci_source *source, void *target, size_t bytes, size_t *count,
                               struct tc_error *error)
{
	struct tci_source_state *state = source->state;
	if (state->file < 0) {
		*count = bytes < state->memory_bytes ? bytes : state->memory_bytes;
		if (*count > 0)
			memcpy(target, state->memory, *count);
		state->memory += *count;
		state->memory_bytes -= *count;
		return TC_OK;
	}
	ssize_t got;
	do {
		got = read(state->file, target, bytes);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return tc_error_set(error, TC_IO, "%s: cannot read: %s", source->name,
		                    strerror(errno));
	*count = (size_t)got;
	return TC_OK;
}

/** Fill the raw buffer when it is empty. */
static enum tc_status refill_raw(struct tci_source *source, struct tc_error *error)
{
	struct tci_source_state *state = source->state;
	if (state->raw_count > 0 || state->raw_end)
		return TC_OK;
	state->raw_begin = 0;
	TC_TRY(read_raw(source, state->raw, sizeof state->raw, &state->raw_count, error));
	state->raw_end = state->raw_count == 0;
	return TC_OK;
}

/* ---------------------------------------------------------------- opening */

static enum tc_status refuse_content(const struct tci_source *source, struct tc_error *error)
{
	const struct tci_source_state *state = source->state;
	const unsigned char *raw = state->raw;
	if (state->raw_count >= 4 && memcmp(raw, "\x28\xb5\x2f\xfd", 4) == 0)
		return tc_error_set(error, TC_FORMAT,
		                    "%s: this is zstd; expected JSON or gzip: unpack it first with "
		                    "'zstd -d'",
		                    source->name);
	return TC_OK;
}

static enum tc_status make_room(struct tci_source *source, struct tc_error *error);

static enum tc_status look_at_start(struct tci_source *source, struct tc_error *error)
{
	struct tci_source_state *state = source->state;
	while (state->raw_count < 4 && !state->raw_end) {
		size_t got;
		TC_TRY(read_raw(source, state->raw + state->raw_count,
		                sizeof state->raw - state->raw_count, &got, error));
		state->raw_count += got;
		state->raw_end = got == 0;
	}
	/* The end is seen again, and cheaply, when the buffer is empty. */
	state->raw_end = false;
	TC_TRY(refuse_content(source, error));
	state->gzip = state->raw_count >= 2 && state->raw[0] == 0x1f && state->raw[1] == 0x8b;
	/* There is a window from the start, so that its addresses may be computed. */
	TC_TRY(make_room(source, error));
	return tci_sha256_begin(&state->hash, error);
}

static enum tc_status create(struct tci_source *source, const char *name, struct tc_error *error)
{
	*source = (struct tci_source){.name = name};
	source->state = calloc(1, sizeof *source->state);
	if (source->state == NULL)
		return tc_error_no_memory(error, "reading a file", sizeof *source->state);
	source->state->file = -1;
	return TC_OK;
}

enum tc_status tci_source_open(struct tci_source *source, const char *path, struct tc_error *error)
{
	TC_TRY(create(source, path, error));
	source->state->file = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	if (source->state->file < 0 || fstat(source->state->file, &status) != 0)
		return tc_error_set(error, TC_IO, "%s: cannot open: %s", path, strerror(errno));
	if (S_ISDIR(status.st_mode))
		return tc_error_set(error, TC_IO, "%s: is a directory; expected a file", path);
	return look_at_start(source, error);
}

enum tc_status tci_source_of_memory(struct tci_source *source, const char *data, size_t bytes,
                                    const char *name, struct tc_error *error)
{
	TC_TRY(create(source, name, error));
	source->state->memory = (const unsigned char *)data;
	source->state->memory_bytes = bytes;
	return look_at_start(source, error);
}

/* ---------------------------------------------------------------- gzip */

static enum tc_status refuse_gzip(const struct tci_source *source, const char *why,
                                  struct tc_error *error)
{
	return tc_error_set(error, TC_FORMAT,
	                    "%s: corrupt gzip after %llu decompressed bytes: %s; fetch or make the "
	                    "file again",
	                    source->name, (unsigned long long)source->state->total, why);
}

/** A member ended: another one may follow, nothing else. */
static enum tc_status next_member(struct tci_source *source, struct tc_error *error)
{
	struct tci_source_state *state = source->state;
	state->inflating = false;
	inflateEnd(&state->stream);
	TC_TRY(refill_raw(source, error));
	if (state->raw_count > 0 && state->raw[state->raw_begin] != 0x1f)
		return refuse_gzip(source, "other bytes follow its end", error);
	return TC_OK;
}

static enum tc_status begin_member(struct tci_source *source, struct tc_error *error)
{
	struct tci_source_state *state = source->state;
	memset(&state->stream, 0, sizeof state->stream);
	/* 15 + 16: the largest window, gzip framing only. */
	if (inflateInit2(&state->stream, 15 + 16) != Z_OK)
		return tc_error_no_memory(error, "decompression", 65536);
	state->inflating = true;
	return TC_OK;
}

/** Inflate until there is at least one byte or the file ends. */
static enum tc_status inflate_some(struct tci_source *source, char *target, size_t bytes,
                                   size_t *count, struct tc_error *error)
{
	struct tci_source_state *state = source->state;
	*count = 0;
	while (*count == 0) {
		TC_TRY(refill_raw(source, error));
		if (state->raw_count == 0)
			return state->inflating ? refuse_gzip(source, "it ends early", error)
			                        : TC_OK;
		if (!state->inflating)
			TC_TRY(begin_member(source, error));
		state->stream.next_in = state->raw + state->raw_begin;
		state->stream.avail_in = (uInt)state->raw_count;
		state->stream.next_out = (Bytef *)target;
		state->stream.avail_out = (uInt)bytes;
		int result = inflate(&state->stream, Z_NO_FLUSH);
		state->raw_begin += state->raw_count - state->stream.avail_in;
		state->raw_count = state->stream.avail_in;
		*count = bytes - state->stream.avail_out;
		if (result == Z_STREAM_END)
			TC_TRY(next_member(source, error));
		else if (result == Z_MEM_ERROR)
			return tc_error_no_memory(error, "decompression", 65536);
		else if (result != Z_OK && result != Z_BUF_ERROR)
			return refuse_gzip(
			    source, state->stream.msg != NULL ? state->stream.msg : "bad data",
			    error);
	}
	return TC_OK;
}

/* ---------------------------------------------------------------- window */

static enum tc_status make_room(struct tci_source *source, struct tc_error *error)
{
	struct tci_source_state *state = source->state;
	if (state->capacity - source->end >= CHUNK_BYTES)
		return TC_OK;
	if (source->begin > 0) {
		memmove(source->window, source->window + source->begin,
		        source->end - source->begin);
		source->end -= source->begin;
		source->begin = 0;
	}
	if (state->capacity - source->end >= CHUNK_BYTES)
		return TC_OK;
	/* Four chunks at first: what is moved is little against what is read. */
	size_t capacity = state->capacity == 0 ? 4u * CHUNK_BYTES : 2 * state->capacity;
	char *window = realloc(source->window, capacity);
	if (window == NULL)
		return tc_error_no_memory(error, "a record", capacity);
	source->window = window;
	state->capacity = capacity;
	return TC_OK;
}

static enum tc_status read_some(struct tci_source *source, size_t *count, struct tc_error *error)
{
	struct tci_source_state *state = source->state;
	char *target = source->window + source->end;
	if (state->gzip)
		return inflate_some(source, target, CHUNK_BYTES, count, error);
	if (state->raw_count == 0)
		return read_raw(source, target, CHUNK_BYTES, count, error);
	/* The first bytes were read to see what the file is. */
	memcpy(target, state->raw + state->raw_begin, state->raw_count);
	*count = state->raw_count;
	state->raw_count = 0;
	return TC_OK;
}

enum tc_status tci_source_more(struct tci_source *source, struct tc_error *error)
{
	if (source->at_end)
		return TC_OK;
	TC_TRY(make_room(source, error));
	size_t count = 0;
	TC_TRY(read_some(source, &count, error));
	if (count == 0) {
		source->at_end = true;
		return TC_OK;
	}
	TC_TRY(tci_sha256_add(&source->state->hash, source->window + source->end, count, error));
	source->end += count;
	source->state->total += count;
	if (source->state->total > TCI_LARGEST_SOURCE_BYTES)
		return tc_error_set(error, TC_TOO_LARGE,
		                    "%s: more than %u bytes after decompression; expected at most "
		                    "that: coalesce ops or trace fewer micro-batches",
		                    source->name, TCI_LARGEST_SOURCE_BYTES);
	return TC_OK;
}

void tci_source_skip(struct tci_source *source, size_t bytes)
{
	source->begin += bytes;
}

enum tc_status tci_source_hash(struct tci_source *source, char text[TCI_SHA256_TEXT_BYTES],
                               struct tc_error *error)
{
	return tci_sha256_end(&source->state->hash, text, error);
}

void tci_source_close(struct tci_source *source)
{
	if (source->state == NULL)
		return;
	if (source->state->file >= 0)
		close(source->state->file);
	if (source->state->inflating)
		inflateEnd(&source->state->stream);
	tci_sha256_drop(&source->state->hash);
	free(source->state);
	free(source->window);
	*source = (struct tci_source){0};
}
