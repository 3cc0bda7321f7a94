/*
 * A circular doubly linked list over ids, in one flat array of link pairs. The entry after the last
 * id is the list's head: its `newer` is the oldest id, its `older` the most recent one.
 */
#include "order.h"

#include <stdlib.h>

#include "tencache/units.h"

struct links {
	uint32_t older;
	uint32_t newer; /* ABSENT: not in the list */
};

#define ABSENT UINT32_MAX

struct tci_recency {
	uint32_t capacity;
	struct links *links; /* capacity + 1 */
};

enum tc_status tci_recency_create(uint32_t capacity, struct tci_recency **recency,
                                  struct tc_error *error)
{
	if (capacity == ABSENT)
		return tc_error_set(error, TC_TOO_LARGE,
		                    "a recency list of %lu ids; expected at most %lu",
		                    (unsigned long)capacity, (unsigned long)ABSENT - 1);
	struct tci_recency *created = calloc(1, sizeof *created);
	struct links *links = tc_alloc_array((size_t)capacity + 1, sizeof *links);
	if (created == NULL || links == NULL) {
		free(created);
		free(links);
		return tc_error_no_memory(error, "a recency list",
		                          ((uint64_t)capacity + 1) * sizeof *links);
	}
	for (uint32_t id = 0; id < capacity; id++)
		links[id] = (struct links){ABSENT, ABSENT};
	links[capacity] = (struct links){capacity, capacity};
	created->capacity = capacity;
	created->links = links;
	*recency = created;
	return TC_OK;
}

void tci_recency_free(struct tci_recency *recency)
{
	if (recency == NULL)
		return;
	free(recency->links);
	free(recency);
}

static void unlink_id(struct links *links, uint32_t id)
{
	links[links[id].older].newer = links[id].newer;
	links[links[id].newer].older = links[id].older;
}

void tci_recency_touch(struct tci_recency *recency, uint32_t id)
{
	struct links *links = recency->links;
	uint32_t head = recency->capacity;
	if (links[id].newer != ABSENT)
		unlink_id(links, id);
	uint32_t newest = links[head].older;
	links[id] = (struct links){.older = newest, .newer = head};
	links[newest].newer = id;
	links[head].older = id;
}

void tci_recency_remove(struct tci_recency *recency, uint32_t id)
{
	struct links *links = recency->links;
	if (links[id].newer == ABSENT)
		return;
	unlink_id(links, id);
	links[id] = (struct links){ABSENT, ABSENT};
}

bool tci_recency_contains(const struct tci_recency *recency, uint32_t id)
{
	return recency->links[id].newer != ABSENT;
}

static uint32_t id_or_none(const struct tci_recency *recency, uint32_t id)
{
	return id < recency->capacity ? id : UINT32_MAX;
}

uint32_t tci_recency_oldest(const struct tci_recency *recency)
{
	return id_or_none(recency, recency->links[recency->capacity].newer);
}

uint32_t tci_recency_newer(const struct tci_recency *recency, uint32_t id)
{
	return id_or_none(recency, recency->links[id].newer);
}
