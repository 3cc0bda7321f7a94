/*
 * Recency list and next-use heap against naive references on random sequences, and against results
 * of other programs: hits and missed bytes of LRU and Belady on the sequences T1 and T2 by
 * libCacheSim and by a naive simulator that was written apart from this project.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "cache_traces.h"
#include "order.h"
#include "random.h"

#define IDS 24

/* ---------------------------------------------------------------- naive references */

struct naive_list {
	uint32_t ids[IDS]; /* oldest first */
	uint32_t count;
};

static uint32_t list_find(const struct naive_list *list, uint32_t id)
{
	uint32_t at = 0;
	while (at < list->count && list->ids[at] != id)
		at++;
	return at;
}

static void list_remove(struct naive_list *list, uint32_t id)
{
	uint32_t at = list_find(list, id);
	if (at == list->count)
		return;
	list->count--;
	memmove(list->ids + at, list->ids + at + 1, (list->count - at) * sizeof *list->ids);
}

static void test_recency_against_naive(void **state)
{
	(void)state;
	uint64_t random = 11;
	for (uint32_t round = 0; round < 3000; round++) {
		struct naive_list list = {.count = 0};
		struct tci_recency *recency;
		uint32_t ids = 1 + (uint32_t)test_random_below(&random, IDS);
		assert_int_equal(tci_recency_create(ids, &recency, NULL), TC_OK);
		for (uint32_t step = 0; step < 60; step++) {
			uint32_t id = (uint32_t)test_random_below(&random, ids);
			list_remove(&list, id);
			if (test_random_below(&random, 3) > 0) {
				list.ids[list.count++] = id;
				tci_recency_touch(recency, id);
			} else {
				tci_recency_remove(recency, id);
			}
			uint32_t at = tci_recency_oldest(recency);
			for (uint32_t index = 0; index < list.count; index++) {
				assert_int_equal(at, list.ids[index]);
				at = tci_recency_newer(recency, at);
			}
			assert_int_equal(at, UINT32_MAX);
			for (uint32_t other = 0; other < ids; other++)
				assert_int_equal(tci_recency_contains(recency, other),
				                 list_find(&list, other) < list.count);
		}
		tci_recency_free(recency);
	}
	tci_recency_free(NULL);
}

struct naive_use {
	bool present;
	uint64_t next_use, bytes;
};

/* The farthest by a full scan, written from the definition: a later id wins only if it is strictly
 * farther, or as far and strictly larger. */
static uint32_t naive_farthest(const struct naive_use *uses, uint32_t ids)
{
	uint32_t best = UINT32_MAX;
	for (uint32_t id = 0; id < ids; id++) {
		if (!uses[id].present)
			continue;
		if (best == UINT32_MAX || uses[id].next_use > uses[best].next_use ||
		    (uses[id].next_use == uses[best].next_use && uses[id].bytes > uses[best].bytes))
			best = id;
	}
	return best;
}

static void check_heap(const struct tci_next_use *heap, const struct naive_use *uses, uint32_t ids)
{
	size_t count = 0;
	for (uint32_t id = 0; id < ids; id++) {
		count += uses[id].present;
		assert_int_equal(tci_next_use_contains(heap, id), uses[id].present);
		if (uses[id].present)
			assert_int_equal(tci_next_use_key(heap, id), uses[id].next_use);
	}
	assert_int_equal(tci_next_use_count(heap), count);
	assert_int_equal(tci_next_use_farthest(heap), naive_farthest(uses, ids));
}

static void test_next_use_against_naive(void **state)
{
	(void)state;
	uint64_t random = 13;
	for (uint32_t round = 0; round < 3000; round++) {
		struct naive_use uses[IDS] = {{0}};
		struct tci_next_use *heap;
		uint32_t ids = 1 + (uint32_t)test_random_below(&random, IDS);
		assert_int_equal(tci_next_use_create(ids, &heap, NULL), TC_OK);
		for (uint32_t step = 0; step < 60; step++) {
			uint32_t id = (uint32_t)test_random_below(&random, ids);
			if (test_random_below(&random, 3) > 0) {
				/* Few different values, so that ties of both kinds are common. */
				uint64_t next = test_random_below(&random, 6);
				uint64_t bytes = 1 + test_random_below(&random, 3);
				next = next == 5 ? UINT64_MAX : next;
				uses[id] = (struct naive_use){true, next, bytes};
				tci_next_use_set(heap, id, next, bytes);
			} else {
				uses[id].present = false;
				tci_next_use_remove(heap, id);
			}
			check_heap(heap, uses, ids);
		}
		/* Draining gives the whole order. */
		while (tci_next_use_count(heap) > 0) {
			uint32_t top = tci_next_use_farthest(heap);
			assert_int_equal(top, naive_farthest(uses, ids));
			uses[top].present = false;
			tci_next_use_remove(heap, top);
		}
		assert_int_equal(tci_next_use_farthest(heap), UINT32_MAX);
		tci_next_use_free(heap);
	}
	tci_next_use_free(NULL);
}

/* ---------------------------------------------------------------- T1 and T2 */

static void check_md5(const struct test_requests *requests, const char *expected)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	assert_non_null(context);
	assert_int_equal(EVP_DigestInit_ex(context, EVP_md5(), NULL), 1);
	for (size_t index = 0; index < requests->count; index++) {
		char row[64];
		int length =
		    snprintf(row, sizeof row, "%zu,%u,%llu\n", index, requests->items[index].id,
		             (unsigned long long)requests->items[index].bytes);
		assert_int_equal(EVP_DigestUpdate(context, row, (size_t)length), 1);
	}
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned length = 0;
	assert_int_equal(EVP_DigestFinal_ex(context, digest, &length), 1);
	EVP_MD_CTX_free(context);
	char text[2 * EVP_MAX_MD_SIZE + 1] = "";
	for (unsigned index = 0; index < length; index++)
		(void)snprintf(text + 2 * index, 3, "%02x", digest[index]);
	assert_string_equal(text, expected);
}

struct expected {
	uint64_t capacity;
	uint64_t lru_hits, lru_missed;
	uint64_t belady_hits, belady_missed;
};

static void check_results(const struct test_requests *requests, const struct expected *rows,
                          size_t count)
{
	for (size_t index = 0; index < count; index++) {
		const struct expected *row = &rows[index];
		struct test_cache_result lru = test_cache_lru(requests, row->capacity);
		assert_int_equal(lru.hits, row->lru_hits);
		assert_int_equal(lru.missed_bytes, row->lru_missed);
		struct test_cache_result belady = test_cache_belady(requests, row->capacity);
		assert_int_equal(belady.hits, row->belady_hits);
		assert_int_equal(belady.missed_bytes, row->belady_missed);
	}
}

static void check_sums(const struct test_requests *requests, uint32_t ids, uint64_t working_set,
                       uint64_t requested)
{
	uint64_t *bytes_of = calloc(requests->id_count, sizeof *bytes_of);
	assert_non_null(bytes_of);
	uint64_t sum = 0;
	for (size_t index = 0; index < requests->count; index++) {
		bytes_of[requests->items[index].id] = requests->items[index].bytes;
		sum += requests->items[index].bytes;
	}
	uint64_t distinct_bytes = 0;
	uint32_t distinct = 0;
	for (uint32_t id = 0; id < requests->id_count; id++) {
		distinct += bytes_of[id] > 0;
		distinct_bytes += bytes_of[id];
	}
	free(bytes_of);
	assert_int_equal(distinct, ids);
	assert_int_equal(distinct_bytes, working_set);
	assert_int_equal(sum, requested);
}

static void test_t1(void **state)
{
	(void)state;
	static const struct expected rows[] = {
	    {23915, 6325, 45798108, 31114, 33747004},   {47831, 12687, 42672669, 43900, 27390477},
	    {119578, 31758, 33286669, 66230, 16417347}, {239157, 61557, 18683702, 85629, 6939295},
	    {358736, 86697, 6401249, 95594, 2086729},
	};
	struct test_requests requests = test_requests_t1();
	check_md5(&requests, "7bd8f945aeda9b025a9338f8791d431a");
	check_sums(&requests, 995, 478315, 48918986);
	check_results(&requests, rows, sizeof rows / sizeof *rows);
	struct test_cache_result end = test_cache_lru(&requests, 47831);
	assert_int_equal(end.evictions, 87217);
	assert_int_equal(end.objects, 96);
	assert_int_equal(end.occupied, 47725);
	assert_int_equal(test_cache_lru(&requests, 239157).evictions, 37962);
	test_requests_free(&requests);
}

static void test_t2(void **state)
{
	(void)state;
	static const struct expected rows[] = {
	    {2174, 1240, 1494740, 1612, 1424922}, {4349, 1500, 1450820, 2341, 1295601},
	    {10872, 2320, 1313940, 4393, 919841}, {21745, 4192, 983771, 6775, 493107},
	    {32618, 5516, 713118, 7862, 256548},
	};
	struct test_requests requests = test_requests_t2();
	assert_int_equal(requests.count, 8620);
	check_md5(&requests, "decc46f93141ad185d350b6b2a1ae059");
	check_sums(&requests, 192, 43491, 1606320);
	check_results(&requests, rows, sizeof rows / sizeof *rows);
	assert_int_equal(test_cache_lru(&requests, 4349).evictions, 7104);
	struct test_cache_result end = test_cache_lru(&requests, 21745);
	assert_int_equal(end.evictions, 4352);
	assert_int_equal(end.objects, 76);
	assert_int_equal(end.occupied, 21533);
	test_requests_free(&requests);
}

/* libCacheSim drops requests of size 0 before counting: two of the eight rows are not here. */
static void test_edge_rows(void **state)
{
	(void)state;
	struct test_request items[] = {{.id = 1, .bytes = 100},  {.id = 1, .bytes = 900},
	                               {.id = 2, .bytes = 150},  {.id = 1, .bytes = 900},
	                               {.id = 4, .bytes = 5000}, {.id = 4, .bytes = 5000}};
	struct test_requests requests = {.items = items, .count = 6, .id_count = 5};
	test_requests_link(&requests);
	struct test_cache_result lru = test_cache_lru(&requests, 1000);
	assert_int_equal(lru.hits, 2);
	assert_int_equal(lru.missed_bytes, 10250);
	assert_int_equal(lru.objects, 2);
	assert_int_equal(lru.occupied, 250);
	struct test_cache_result belady = test_cache_belady(&requests, 1000);
	assert_int_equal(belady.hits, 2);
	assert_int_equal(belady.missed_bytes, 10250);
	assert_int_equal(belady.objects, 2);
}

/* An exact fit is allowed; one byte more evicts. */
static void test_exact_fit(void **state)
{
	(void)state;
	struct test_request items[] = {{.id = 0, .bytes = 400}, {.id = 1, .bytes = 600},
	                               {.id = 0, .bytes = 400}, {.id = 2, .bytes = 1},
	                               {.id = 0, .bytes = 400}, {.id = 1, .bytes = 600}};
	struct test_requests requests = {.items = items, .count = 6, .id_count = 3};
	test_requests_link(&requests);
	struct test_cache_result lru = test_cache_lru(&requests, 1000);
	/* 0 miss, 1 miss (full), 0 hit, 2 evicts 1, 0 hit, 1 evicts 2 (older than 0): 401 + 600. */
	assert_int_equal(lru.hits, 2);
	assert_int_equal(lru.missed_bytes, 1601);
	assert_int_equal(lru.evictions, 2);
	assert_int_equal(lru.occupied, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_recency_against_naive),
	    cmocka_unit_test(test_next_use_against_naive),
	    cmocka_unit_test(test_t1),
	    cmocka_unit_test(test_t2),
	    cmocka_unit_test(test_edge_rows),
	    cmocka_unit_test(test_exact_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
