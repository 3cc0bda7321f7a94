/*
 * The end of a schedule: every persistent tensor must have its latest version somewhere, and the
 * places that the end record names must hold it.
 */
#include <stdlib.h>

#include "audit_state.h"
#include "tencache/units.h"

/** A piece of a tensor's latest version. */
struct piece {
	uint32_t tensor;
	uint64_t offset, end;
};

static int compare_pieces(const void *left, const void *right)
{
	const struct piece *a = left, *b = right;
	if (a->tensor != b->tensor)
		return a->tensor < b->tensor ? -1 : 1;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	return 0;
}

/** Tensors of the trace that outlive the iteration, and state that the policy keeps for one. */
static bool is_kept(const struct tc_audit *audit, uint32_t tensor)
{
	const struct tc_plan_info *info = audit->info;
	if (tensor < info->trace->tensor_count)
		return info->trace->tensors[tensor].persistent;
	return info->tensors[tensor].kind == TC_OPTIMIZER_STATE;
}

static size_t collect(const struct tc_audit *audit, struct piece *pieces)
{
	size_t count = 0;
	for (uint32_t s = 0; s < audit->map.count; s++) {
		const struct tci_segment *segment = &audit->map.segments[s];
		if (segment->pool == TC_NO_POOL || segment->tensor == TC_NONE ||
		    segment->version != tci_audit_latest(audit, segment->tensor))
			continue;
		pieces[count++] =
		    (struct piece){segment->tensor, segment->tensor_offset,
		                   segment->tensor_offset + (segment->end - segment->start)};
	}
	qsort(pieces, count, sizeof *pieces, compare_pieces);
	return count;
}

static void check_kept(struct tc_audit *audit, const struct piece *pieces, size_t count)
{
	size_t next = 0;
	for (uint32_t t = 0; t < audit->info->tensor_count; t++) {
		uint64_t covered = 0;
		for (; next < count && pieces[next].tensor == t; next++)
			if (pieces[next].offset <= covered && pieces[next].end > covered)
				covered = pieces[next].end;
		if (is_kept(audit, t) && covered < audit->info->tensors[t].bytes)
			tci_audit_report(
			    audit,
			    "lost tensor %u '%s': found the first %llu bytes of its "
			    "latest version %llu at the end, expected all %llu in some "
			    "tier",
			    t, audit->info->tensors[t].name, (unsigned long long)covered,
			    (unsigned long long)tci_audit_latest(audit, t),
			    (unsigned long long)audit->info->tensors[t].bytes);
	}
}

static void check_place(struct tc_audit *audit, const struct tc_final_place *place)
{
	const struct tc_plan_info *info = audit->info;
	uint64_t latest = tci_audit_latest(audit, place->tensor);
	if (place->version != latest)
		tci_audit_report(audit,
		                 "end record, tensor %u '%s': found version %llu, expected %llu",
		                 place->tensor, info->tensors[place->tensor].name,
		                 (unsigned long long)place->version, (unsigned long long)latest);
	struct tci_map *map = &audit->map;
	uint64_t end = place->place.offset + info->tensors[place->tensor].bytes;
	uint32_t id = tci_map_find(map, place->place.pool, place->place.offset);
	for (; id != TC_NONE && map->segments[id].start < end; id = map->segments[id].next) {
		const struct tci_segment *segment = &map->segments[id];
		if (segment->tensor == place->tensor && segment->version == latest &&
		    segment->start - segment->tensor_offset == place->place.offset)
			continue;
		tci_audit_report(audit,
		                 "end record, tensor %u '%s': found other content at byte %llu of "
		                 "pool '%s', expected its version %llu",
		                 place->tensor, info->tensors[place->tensor].name,
		                 (unsigned long long)segment->start,
		                 info->pools[place->place.pool].name, (unsigned long long)latest);
		return;
	}
}

enum tc_status tci_audit_final(struct tc_audit *audit, const struct tc_plan_end *end,
                               struct tc_error *error)
{
	struct piece *pieces = tc_alloc_array((size_t)audit->map.count + 1, sizeof *pieces);
	if (pieces == NULL)
		return tc_error_no_memory(error, "the auditor's last look",
		                          audit->map.count * sizeof *pieces);
	check_kept(audit, pieces, collect(audit, pieces));
	free(pieces);
	for (uint32_t p = 0; p < end->place_count; p++)
		check_place(audit, &end->places[p]);
	return TC_OK;
}
