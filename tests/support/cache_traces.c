#include "cache_traces.h"

#include <stdlib.h>

#include "order.h"
#include "random.h"

#define T1_IDS 1000u
#define T1_REQUESTS 100000u
#define T2_LAYERS 48u
#define T2_ITERATIONS 20u
#define T2_REQUESTS 8620u

static void *allocate(size_t count, size_t element_bytes)
{
	void *memory = calloc(count, element_bytes);
	if (memory == NULL)
		abort();
	return memory;
}

struct test_requests test_requests_t1(void)
{
	struct test_requests requests = {
	    .items = allocate(T1_REQUESTS, sizeof *requests.items),
	    .count = T1_REQUESTS,
	    .id_count = T1_IDS,
	};
	uint64_t state = 1;
	uint64_t sizes[T1_IDS];
	for (uint32_t id = 0; id < T1_IDS; id++)
		sizes[id] = 1 + test_random(&state) % 1000;
	for (uint32_t index = 0; index < T1_REQUESTS; index++) {
		uint64_t random = test_random(&state);
		uint32_t first = (uint32_t)(random % T1_IDS);
		uint32_t second = (uint32_t)((random >> 32) % T1_IDS);
		uint32_t id = first < second ? first : second;
		requests.items[index] = (struct test_request){.id = id, .bytes = sizes[id]};
	}
	test_requests_link(&requests);
	return requests;
}

enum { WEIGHT, ACTIVATION, GRADIENT, STATE };

static void ask(struct test_requests *requests, uint32_t layer, uint32_t what)
{
	uint64_t weight = 100 + 37 * (layer % 7u);
	const uint64_t sizes[] = {weight, 50 + 11 * (layer % 5u), weight, 2 * weight};
	requests->items[requests->count++] =
	    (struct test_request){.id = 4 * layer + what, .bytes = sizes[what]};
}

struct test_requests test_requests_t2(void)
{
	struct test_requests requests = {
	    .items = allocate(T2_REQUESTS, sizeof *requests.items),
	    .id_count = 4 * T2_LAYERS,
	};
	for (uint32_t iteration = 0; iteration < T2_ITERATIONS; iteration++) {
		for (uint32_t layer = 0; layer < T2_LAYERS; layer++) {
			ask(&requests, layer, WEIGHT);
			if (layer > 0)
				ask(&requests, layer - 1, ACTIVATION);
			ask(&requests, layer, ACTIVATION);
		}
		for (uint32_t layer = T2_LAYERS; layer-- > 0;) {
			ask(&requests, layer, ACTIVATION);
			ask(&requests, layer, WEIGHT);
			ask(&requests, layer, GRADIENT);
		}
		for (uint32_t layer = 0; layer < T2_LAYERS; layer++) {
			ask(&requests, layer, GRADIENT);
			ask(&requests, layer, STATE);
			ask(&requests, layer, WEIGHT);
		}
	}
	test_requests_link(&requests);
	return requests;
}

void test_requests_link(struct test_requests *requests)
{
	uint64_t *next = allocate(requests->id_count, sizeof *next);
	for (uint32_t id = 0; id < requests->id_count; id++)
		next[id] = UINT64_MAX;
	for (size_t index = requests->count; index-- > 0;) {
		struct test_request *request = &requests->items[index];
		request->next = next[request->id];
		next[request->id] = index;
	}
	free(next);
}

void test_requests_free(struct test_requests *requests)
{
	free(requests->items);
	*requests = (struct test_requests){0};
}

struct test_cache_result test_cache_lru(const struct test_requests *requests, uint64_t capacity)
{
	struct test_cache_result result = {0};
	struct tci_recency *recency;
	uint64_t *bytes_of = allocate(requests->id_count, sizeof *bytes_of);
	if (tci_recency_create(requests->id_count, &recency, NULL) != TC_OK)
		abort();
	for (size_t index = 0; index < requests->count; index++) {
		const struct test_request *request = &requests->items[index];
		if (tci_recency_contains(recency, request->id)) {
			result.hits++;
			tci_recency_touch(recency, request->id);
			continue;
		}
		result.missed_bytes += request->bytes;
		if (request->bytes > capacity)
			continue;
		while (result.occupied + request->bytes > capacity) {
			uint32_t victim = tci_recency_oldest(recency);
			tci_recency_remove(recency, victim);
			result.occupied -= bytes_of[victim];
			result.objects--;
			result.evictions++;
		}
		tci_recency_touch(recency, request->id);
		bytes_of[request->id] = request->bytes;
		result.occupied += request->bytes;
		result.objects++;
	}
	tci_recency_free(recency);
	free(bytes_of);
	return result;
}

struct test_cache_result test_cache_belady(const struct test_requests *requests, uint64_t capacity)
{
	struct test_cache_result result = {0};
	struct tci_next_use *heap;
	uint64_t *bytes_of = allocate(requests->id_count, sizeof *bytes_of);
	if (tci_next_use_create(requests->id_count, &heap, NULL) != TC_OK)
		abort();
	for (size_t index = 0; index < requests->count; index++) {
		const struct test_request *request = &requests->items[index];
		if (tci_next_use_contains(heap, request->id)) {
			result.hits++;
			tci_next_use_set(heap, request->id, request->next, request->bytes);
			continue;
		}
		result.missed_bytes += request->bytes;
		if (request->bytes > capacity)
			continue;
		while (result.occupied + request->bytes > capacity) {
			uint32_t victim = tci_next_use_farthest(heap);
			tci_next_use_remove(heap, victim);
			result.occupied -= bytes_of[victim];
			result.evictions++;
		}
		tci_next_use_set(heap, request->id, request->next, request->bytes);
		bytes_of[request->id] = request->bytes;
		result.occupied += request->bytes;
	}
	result.objects = tci_next_use_count(heap);
	tci_next_use_free(heap);
	free(bytes_of);
	return result;
}
