/*
 * Buffers of fixed sizes. Each class keeps its free buffers in a ring of indices: given back at the
 * back, reused from the back (last in, first out) or from the front (first in, first out). At the
 * start the lowest offset comes first in both.
 */
#include "pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "tencache/units.h"

struct buffer_class {
	uint64_t bytes;        /* size that asks for this class */
	uint64_t buffer_bytes; /* size of each buffer */
	uint64_t offset;       /* of its first buffer */
	uint32_t count;
	uint32_t first_buffer; /* its part of the arrays `ring`, `releases`, `taken` */
	uint32_t front;        /* position in the ring of the oldest free buffer */
	uint32_t available;
	uint32_t low_water;
};

struct tci_buffers {
	struct buffer_class *classes; /* in order of offset */
	uint32_t *by_bytes;           /* class indices in order of `bytes` */
	uint32_t class_count;
	bool fifo;
	uint32_t *ring;
	uint32_t *releases; /* `width` entries of each buffer's release vector */
	uint32_t width;
	bool *taken;
	uint64_t total_bytes;
	uint64_t free_bytes;
};

/* Insertion sort: there are as many classes as different tensor sizes, a handful. */
static void sort_classes(struct tci_buffers *buffers)
{
	for (uint32_t index = 0; index < buffers->class_count; index++) {
		uint64_t bytes = buffers->classes[index].bytes;
		uint32_t at = index;
		while (at > 0 && buffers->classes[buffers->by_bytes[at - 1]].bytes > bytes) {
			buffers->by_bytes[at] = buffers->by_bytes[at - 1];
			at--;
		}
		buffers->by_bytes[at] = index;
	}
}

static enum tc_status lay_out(struct tci_buffers *buffers, const struct tci_buffer_class *classes,
                              uint32_t *buffer_count, struct tc_error *error)
{
	uint64_t offset = 0;
	uint64_t total = 0;
	for (uint32_t index = 0; index < buffers->class_count; index++) {
		const struct tci_buffer_class *wanted = &classes[index];
		uint64_t bytes;
		if (wanted->bytes == 0 || wanted->buffer_bytes < wanted->bytes)
			return tc_error_set(error, TC_ARGUMENT,
			                    "buffer class %u: buffers of %llu bytes for tensors of "
			                    "%llu bytes; expected a size above 0 that fits",
			                    index, (unsigned long long)wanted->buffer_bytes,
			                    (unsigned long long)wanted->bytes);
		if (!tc_mul_u64(wanted->buffer_bytes, wanted->count, &bytes) ||
		    !tc_add_u64(total, wanted->count, &total) || total >= UINT32_MAX)
			return tc_error_set(error, TC_TOO_LARGE,
			                    "buffer class %u: %llu buffers of %llu bytes are more "
			                    "than can be counted; ask for fewer",
			                    index, (unsigned long long)wanted->count,
			                    (unsigned long long)wanted->buffer_bytes);
		buffers->classes[index] = (struct buffer_class){
		    .bytes = wanted->bytes,
		    .buffer_bytes = wanted->buffer_bytes,
		    .offset = offset,
		    .count = (uint32_t)wanted->count,
		    .first_buffer = (uint32_t)(total - wanted->count),
		    .available = (uint32_t)wanted->count,
		    .low_water = (uint32_t)wanted->count,
		};
		if (!tc_add_u64(offset, bytes, &offset))
			return tc_error_set(
			    error, TC_TOO_LARGE,
			    "the buffers of a pool are more than 2^64 bytes in all; "
			    "ask for fewer");
	}
	buffers->total_bytes = offset;
	buffers->free_bytes = offset;
	*buffer_count = (uint32_t)total;
	return TC_OK;
}

static enum tc_status check_distinct(const struct tci_buffers *buffers, struct tc_error *error)
{
	for (uint32_t index = 1; index < buffers->class_count; index++) {
		uint64_t bytes = buffers->classes[buffers->by_bytes[index]].bytes;
		if (bytes == buffers->classes[buffers->by_bytes[index - 1]].bytes)
			return tc_error_set(
			    error, TC_ARGUMENT,
			    "two buffer classes for tensors of %llu bytes; expected "
			    "each size once",
			    (unsigned long long)bytes);
	}
	return TC_OK;
}

static void fill_rings(struct tci_buffers *buffers)
{
	for (uint32_t index = 0; index < buffers->class_count; index++) {
		const struct buffer_class *class = &buffers->classes[index];
		for (uint32_t buffer = 0; buffer < class->count; buffer++)
			buffers->ring[class->first_buffer + buffer] =
			    buffers->fifo ? buffer : class->count - 1 - buffer;
	}
}

static enum tc_status set_up(struct tci_buffers *buffers, const struct tci_buffer_class *classes,
                             struct tc_error *error)
{
	uint32_t count = 0;
	buffers->classes = tc_alloc_array(buffers->class_count, sizeof *buffers->classes);
	buffers->by_bytes = tc_alloc_array(buffers->class_count, sizeof *buffers->by_bytes);
	if (buffers->classes == NULL || buffers->by_bytes == NULL)
		return tc_error_no_memory(error, "the classes of a pool",
		                          buffers->class_count *
		                              (uint64_t)sizeof *buffers->classes);
	TC_TRY(lay_out(buffers, classes, &count, error));
	sort_classes(buffers);
	TC_TRY(check_distinct(buffers, error));
	/* One more than needed: an array of nothing may be NULL. */
	buffers->ring = tc_alloc_array((size_t)count + 1, sizeof *buffers->ring);
	buffers->releases =
	    tc_alloc_array((size_t)count + 1, buffers->width * sizeof *buffers->releases);
	buffers->taken = tc_alloc_array((size_t)count + 1, sizeof *buffers->taken);
	if (buffers->ring == NULL || buffers->releases == NULL || buffers->taken == NULL)
		return tc_error_no_memory(
		    error, "the buffers of a pool",
		    count * (uint64_t)(buffers->width * sizeof *buffers->releases));
	fill_rings(buffers);
	return TC_OK;
}

enum tc_status tci_buffers_create(const struct tci_buffer_class *classes, size_t class_count,
                                  bool fifo, uint32_t lanes, struct tci_buffers **buffers,
                                  struct tc_error *error)
{
	if (class_count == 0 || class_count >= UINT32_MAX)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "a pool of fixed buffers with %llu classes; expected at least 1",
		    (unsigned long long)class_count);
	struct tci_buffers *created = calloc(1, sizeof *created);
	if (created == NULL)
		return tc_error_no_memory(error, "a pool of fixed buffers", sizeof *created);
	created->class_count = (uint32_t)class_count;
	created->width = tci_release_width(lanes);
	created->fifo = fifo;
	enum tc_status status = set_up(created, classes, error);
	if (status != TC_OK) {
		tci_buffers_free(created);
		return status;
	}
	*buffers = created;
	return TC_OK;
}

void tci_buffers_free(struct tci_buffers *buffers)
{
	if (buffers == NULL)
		return;
	free(buffers->classes);
	free(buffers->by_bytes);
	free(buffers->ring);
	free(buffers->releases);
	free(buffers->taken);
	free(buffers);
}

/* The class that serves `bytes`, or NULL. */
static struct buffer_class *class_for(const struct tci_buffers *buffers, uint64_t bytes)
{
	if (buffers->class_count == 1)
		return bytes <= buffers->classes[0].bytes ? &buffers->classes[0] : NULL;
	uint32_t low = 0;
	uint32_t high = buffers->class_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		struct buffer_class *class = &buffers->classes[buffers->by_bytes[middle]];
		if (class->bytes == bytes)
			return class;
		if (class->bytes < bytes)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

/* The class whose buffers hold `offset`, or NULL. */
static struct buffer_class *class_at(const struct tci_buffers *buffers, uint64_t offset)
{
	uint32_t low = 0;
	uint32_t high = buffers->class_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		struct buffer_class *class = &buffers->classes[middle];
		if (offset < class->offset)
			high = middle;
		else if (offset - class->offset >= class->buffer_bytes * class->count)
			low = middle + 1;
		else
			return class;
	}
	return NULL;
}

/* Position in a class's part of the ring, `steps` after `front`. */
static uint32_t ring_position(const struct buffer_class *class, uint32_t steps)
{
	uint64_t position = (uint64_t) class->front + steps;
	return class->first_buffer +
	       (uint32_t)(position < class->count ? position : position - class->count);
}

bool tci_buffers_take(struct tci_buffers *buffers, uint64_t bytes, uint64_t *offset,
                      struct tci_release *release)
{
	struct buffer_class *class = class_for(buffers, bytes);
	if (class == NULL || class->available == 0)
		return false;
	uint32_t buffer;
	if (buffers->fifo) {
		buffer = buffers->ring[ring_position(class, 0)];
		class->front = class->front + 1 < class->count ? class->front + 1 : 0;
	} else {
		buffer = buffers->ring[ring_position(class, class->available - 1)];
	}
	class->available--;
	if (class->available < class->low_water)
		class->low_water = class->available;
	uint32_t index = class->first_buffer + buffer;
	buffers->taken[index] = true;
	buffers->free_bytes -= class->buffer_bytes;
	*offset = class->offset + class->buffer_bytes * buffer;
	tci_release_copy(release->last, buffers->releases + (size_t)index * buffers->width,
	                 buffers->width);
	return true;
}

void tci_buffers_put(struct tci_buffers *buffers, uint64_t offset,
                     const struct tci_release *release)
{
	struct buffer_class *class = class_at(buffers, offset);
	assert(class != NULL);
	if (class == NULL)
		return;
	uint32_t buffer = (uint32_t)((offset - class->offset) / class->buffer_bytes);
	uint32_t index = class->first_buffer + buffer;
	bool whole = (offset - class->offset) % class->buffer_bytes == 0;
	assert(whole && buffers->taken[index]);
	if (!whole || !buffers->taken[index])
		return;
	buffers->taken[index] = false;
	tci_release_copy(buffers->releases + (size_t)index * buffers->width, release->last,
	                 buffers->width);
	buffers->ring[ring_position(class, class->available)] = buffer;
	class->available++;
	buffers->free_bytes += class->buffer_bytes;
}

uint64_t tci_buffers_available(const struct tci_buffers *buffers, uint64_t bytes)
{
	const struct buffer_class *class = class_for(buffers, bytes);
	return class != NULL ? class->available : 0;
}

uint64_t tci_buffers_low_water(const struct tci_buffers *buffers, uint64_t bytes)
{
	const struct buffer_class *class = class_for(buffers, bytes);
	return class != NULL ? class->low_water : 0;
}

uint64_t tci_buffers_total_bytes(const struct tci_buffers *buffers)
{
	return buffers->total_bytes;
}

uint64_t tci_buffers_free_bytes(const struct tci_buffers *buffers)
{
	return buffers->free_bytes;
}
