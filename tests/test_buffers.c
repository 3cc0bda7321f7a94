/*
 * Buffers of fixed sizes against a naive model: per class a plain list of free offsets, from whose
 * end (last in, first out) or beginning (first in, first out) buffers are taken.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pool.h"
#include "random.h"

#define LANES 4
#define MAX_CLASSES 6
#define MAX_BUFFERS 12

struct model_class {
	struct tci_buffer_class size;
	uint64_t offset;
	uint64_t free_offsets[MAX_BUFFERS];
	uint64_t held_offsets[MAX_BUFFERS];
	uint32_t free_count, held_count;
	uint64_t low_water;
	struct tci_release releases[MAX_BUFFERS];
};

struct model {
	struct model_class classes[MAX_CLASSES];
	size_t class_count;
	uint64_t total_bytes;
	bool fifo;
};

static void random_model(struct model *model, uint64_t *random)
{
	memset(model, 0, sizeof *model);
	model->class_count = 1 + test_random_below(random, MAX_CLASSES);
	model->fifo = test_random_below(random, 2) == 0;
	for (size_t index = 0; index < model->class_count; index++) {
		struct model_class *class = &model->classes[index];
		/* Distinct sizes in no particular order: 5 is invertible modulo 7. */
		class->size.bytes = 100 + (index * 5 + 3) % 7;
		class->size.buffer_bytes = 128 * (1 + test_random_below(random, 3));
		class->size.count = test_random_below(random, MAX_BUFFERS + 1);
		class->offset = model->total_bytes;
		for (uint32_t buffer = 0; buffer < class->size.count; buffer++) {
			uint64_t place = model->fifo ? buffer : class->size.count - 1 - buffer;
			class->free_offsets[buffer] =
			    class->offset + place * class->size.buffer_bytes;
		}
		class->free_count = (uint32_t) class->size.count;
		class->low_water = class->size.count;
		model->total_bytes += class->size.count * class->size.buffer_bytes;
	}
}

static struct tci_release *model_release(struct model_class *class, uint64_t offset)
{
	return &class->releases[(offset - class->offset) / class->size.buffer_bytes];
}

static void try_take(struct tci_buffers *buffers, const struct model *model,
                     struct model_class *class, uint64_t *random)
{
	uint64_t wanted = class->size.bytes;
	if (model->class_count == 1)
		wanted -= test_random_below(random, wanted); /* one class serves all below it */
	uint64_t offset;
	struct tci_release release;
	bool taken = tci_buffers_take(buffers, wanted, &offset, &release);
	assert_int_equal(taken, class->free_count > 0);
	if (!taken)
		return;
	uint64_t expected =
	    model->fifo ? class->free_offsets[0] : class->free_offsets[class->free_count - 1];
	if (model->fifo)
		memmove(class->free_offsets, class->free_offsets + 1,
		        (class->free_count - 1) * sizeof *class->free_offsets);
	class->free_count--;
	assert_int_equal(offset, expected);
	assert_memory_equal(&release, model_release(class, offset), sizeof release);
	class->held_offsets[class->held_count++] = offset;
	if (class->free_count < class->low_water)
		class->low_water = class->free_count;
}

static void give_back(struct tci_buffers *buffers, struct model_class *class, uint64_t *random)
{
	if (class->held_count == 0)
		return;
	uint32_t index = (uint32_t)test_random_below(random, class->held_count);
	uint64_t offset = class->held_offsets[index];
	class->held_offsets[index] = class->held_offsets[--class->held_count];
	struct tci_release release = {{0}};
	for (uint32_t lane = 0; lane < LANES; lane++)
		release.last[lane] = (uint32_t)test_random_below(random, 1000);
	tci_buffers_put(buffers, offset, &release);
	class->free_offsets[class->free_count++] = offset;
	*model_release(class, offset) = release;
}

static void check_counts(const struct tci_buffers *buffers, const struct model *model)
{
	uint64_t free_bytes = 0;
	for (size_t index = 0; index < model->class_count; index++) {
		const struct model_class *class = &model->classes[index];
		free_bytes += class->free_count * class->size.buffer_bytes;
		assert_int_equal(tci_buffers_available(buffers, class->size.bytes),
		                 class->free_count);
		assert_int_equal(tci_buffers_low_water(buffers, class->size.bytes),
		                 class->low_water);
	}
	assert_int_equal(tci_buffers_free_bytes(buffers), free_bytes);
	assert_int_equal(tci_buffers_total_bytes(buffers), model->total_bytes);
}

static void test_random_sequences(void **state)
{
	(void)state;
	uint64_t random = 7;
	for (uint32_t round = 0; round < 2000; round++) {
		static struct model model;
		random_model(&model, &random);
		struct tci_buffer_class sizes[MAX_CLASSES];
		for (size_t index = 0; index < model.class_count; index++)
			sizes[index] = model.classes[index].size;
		struct tci_buffers *buffers;
		struct tc_error error = {0};
		assert_int_equal(tci_buffers_create(sizes, model.class_count, model.fifo, LANES,
		                                    &buffers, &error),
		                 TC_OK);
		for (uint32_t step = 0; step < 100; step++) {
			struct model_class *class =
			    &model.classes[test_random_below(&random, model.class_count)];
			if (test_random_below(&random, 5) < 3)
				try_take(buffers, &model, class, &random);
			else
				give_back(buffers, class, &random);
			check_counts(buffers, &model);
		}
		tci_buffers_free(buffers);
	}
}

static void test_unknown_sizes(void **state)
{
	(void)state;
	const struct tci_buffer_class sizes[] = {{100, 512, 2}, {1000, 1024, 1}};
	struct tci_buffers *buffers;
	uint64_t offset;
	struct tci_release release;
	assert_int_equal(tci_buffers_create(sizes, 2, false, LANES, &buffers, NULL), TC_OK);
	assert_false(tci_buffers_take(buffers, 99, &offset, &release));
	assert_false(tci_buffers_take(buffers, 512, &offset, &release));
	assert_int_equal(tci_buffers_available(buffers, 512), 0);
	assert_true(tci_buffers_take(buffers, 1000, &offset, &release));
	assert_int_equal(offset, 1024);
	tci_buffers_free(buffers);

	assert_int_equal(tci_buffers_create(sizes + 1, 1, false, LANES, &buffers, NULL), TC_OK);
	assert_false(tci_buffers_take(buffers, 1001, &offset, &release));
	assert_true(tci_buffers_take(buffers, 1, &offset, &release));
	tci_buffers_free(buffers);
	tci_buffers_free(NULL);
}

static void expect_refused(const struct tci_buffer_class *sizes, size_t count,
                           enum tc_status status, const char *text)
{
	struct tci_buffers *buffers;
	struct tc_error error = {0};
	assert_int_equal(tci_buffers_create(sizes, count, false, LANES, &buffers, &error), status);
	assert_int_equal(error.status, status);
	assert_non_null(strstr(error.text, text));
}

static void test_bad_classes_are_refused(void **state)
{
	(void)state;
	const struct tci_buffer_class twice[] = {{100, 512, 2}, {50, 512, 1}, {100, 512, 1}};
	expect_refused(twice, 3, TC_ARGUMENT, "tensors of 100 bytes");
	expect_refused(twice, 0, TC_ARGUMENT, "0 classes");
	const struct tci_buffer_class small[] = {{100, 99, 2}};
	expect_refused(small, 1, TC_ARGUMENT, "99 bytes");
	const struct tci_buffer_class none[] = {{0, 512, 2}};
	expect_refused(none, 1, TC_ARGUMENT, "above 0");
	const struct tci_buffer_class many[] = {{1, 1, 1ull << 32}};
	expect_refused(many, 1, TC_TOO_LARGE, "4294967296 buffers");
	const struct tci_buffer_class wide[] = {{1ull << 62, 1ull << 62, 4}};
	expect_refused(wide, 1, TC_TOO_LARGE, "buffer class 0");
	const struct tci_buffer_class sum[] = {{1ull << 62, 1ull << 62, 3}, {1, 1ull << 62, 1}};
	expect_refused(sum, 2, TC_TOO_LARGE, "2^64");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_random_sequences),
	    cmocka_unit_test(test_unknown_sizes),
	    cmocka_unit_test(test_bad_classes_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
