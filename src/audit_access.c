/*
 * Reads and writes of the command at hand against the map: the heart of the proof.
 *
 * A read needs the wanted content over its whole range, by a writer that comes before. A write
 * needs the former writer and all readers before it. "x before y" is one comparison: y's clock at
 * x's lane is at least x.
 */
#include <stdio.h>

#include "audit_state.h"

static const char *tensor_name(const struct tc_audit *audit, uint32_t tensor)
{
	if (tensor == TC_NONE)
		return "no tensor";
	const char *name = audit->info->tensors[tensor].name;
	return name != NULL ? name : "";
}

/** "tensor 12 'fc1.weight' in pool 'gpu' [512, 640)" and the verdict. */
static void report_access(struct tc_audit *audit, const struct tci_range *range, const char *verb,
                          const char *verdict)
{
	tci_audit_report(audit,
	                 "%s tensor %d '%s' version %llu, bytes from %llu, in pool '%s' "
	                 "[%llu, %llu): %s",
	                 verb, range->tensor == TC_NONE ? -1 : (int)range->tensor,
	                 tensor_name(audit, range->tensor), (unsigned long long)range->version,
	                 (unsigned long long)range->tensor_offset,
	                 audit->info->pools[range->pool].name, (unsigned long long)range->offset,
	                 (unsigned long long)(range->offset + range->bytes), verdict);
}

static bool has_content(const struct tci_segment *segment, const struct tci_range *range)
{
	return segment->tensor == range->tensor && segment->version == range->version &&
	       segment->tensor_offset - range->tensor_offset == segment->start - range->offset;
}

static void report_content(struct tc_audit *audit, const struct tci_range *range,
                           const struct tci_segment *segment)
{
	char verdict[256];
	if (segment->version == TCI_NO_CONTENT)
		(void)snprintf(verdict, sizeof verdict,
		               "found no content at %llu, expected this tensor",
		               (unsigned long long)segment->start);
	else
		(void)snprintf(
		    verdict, sizeof verdict,
		    "found tensor %d '%.60s' version %llu, bytes from %llu, at %llu, "
		    "expected the content named",
		    segment->tensor == TC_NONE ? -1 : (int)segment->tensor,
		    tensor_name(audit, segment->tensor), (unsigned long long)segment->version,
		    (unsigned long long)segment->tensor_offset, (unsigned long long)segment->start);
	report_access(audit, range, "reads", verdict);
}

static void report_order(struct tc_audit *audit, const struct tci_range *range, const char *verb,
                         const char *other, uint64_t id)
{
	char verdict[160];
	(void)snprintf(verdict, sizeof verdict,
	               "found no order after %s command %llu, expected a dependency or wait that "
	               "leads to it",
	               other, (unsigned long long)id);
	report_access(audit, range, verb, verdict);
}

static bool before(const struct tc_audit *audit, uint32_t lane, uint64_t mark)
{
	return audit->clocks.now[lane] >= mark;
}

void tci_audit_read(struct tc_audit *audit, const struct tci_range *range)
{
	struct tci_map *map = &audit->map;
	uint64_t end = range->offset + range->bytes;
	uint32_t id = tci_map_range(map, range->pool, range->offset, end);
	if (id == TC_NONE) {
		audit->out_of_memory = true;
		return;
	}
	bool reported = false;
	for (;;) {
		struct tci_segment *segment = &map->segments[id];
		if (!reported && !has_content(segment, range)) {
			report_content(audit, range, segment);
			reported = true;
		} else if (!reported && !before(audit, segment->writer_lane, segment->writer)) {
			report_order(audit, range, "reads", "its writer,", segment->writer - 1);
			reported = true;
		}
		tci_map_readers(map, id)[audit->lane] = audit->mark;
		segment->reader_lanes |= (uint16_t)(1u << audit->lane);
		if (segment->end >= end)
			return;
		id = segment->next;
	}
}

/** The lane of a reader that may still be reading, or TC_NONE. */
static uint32_t unordered_reader(const struct tc_audit *audit, uint32_t id)
{
	const uint64_t *readers = tci_map_readers(&audit->map, id);
	for (uint32_t left = audit->map.segments[id].reader_lanes; left != 0; left &= left - 1) {
		uint32_t lane = (uint32_t)__builtin_ctz(left);
		if (!before(audit, lane, readers[lane]))
			return lane;
	}
	return TC_NONE;
}

/** Did the command at hand read or write this segment before? */
static bool touched_by_itself(const struct tc_audit *audit, uint32_t id)
{
	const struct tci_segment *segment = &audit->map.segments[id];
	return segment->writer == audit->mark ||
	       ((segment->reader_lanes >> audit->lane & 1) != 0 &&
	        tci_map_readers(&audit->map, id)[audit->lane] == audit->mark);
}

static bool check_overwritten(struct tc_audit *audit, const struct tci_range *range, uint32_t id,
                              bool exclusive)
{
	const struct tci_segment *segment = &audit->map.segments[id];
	if (!before(audit, segment->writer_lane, segment->writer)) {
		report_order(audit, range, "writes", "the former writer,", segment->writer - 1);
		return false;
	}
	uint32_t reader = unordered_reader(audit, id);
	if (reader != TC_NONE) {
		report_order(audit, range, "writes", "a reader,",
		             tci_map_readers(&audit->map, id)[reader] - 1);
		return false;
	}
	if (exclusive && touched_by_itself(audit, id)) {
		report_access(audit, range, "writes",
		              "found bytes that the same command reads or writes elsewhere, "
		              "expected separate ranges");
		return false;
	}
	return true;
}

void tci_audit_write(struct tc_audit *audit, const struct tci_range *range, bool exclusive)
{
	struct tci_map *map = &audit->map;
	uint64_t end = range->offset + range->bytes;
	uint32_t first = tci_map_range(map, range->pool, range->offset, end);
	if (first == TC_NONE) {
		audit->out_of_memory = true;
		return;
	}
	for (uint32_t id = first;; id = map->segments[id].next) {
		if (!check_overwritten(audit, range, id, exclusive))
			break;
		if (map->segments[id].end >= end)
			break;
	}
	if (map->segments[first].end < end)
		tci_map_join(map, first, end);
	struct tci_segment *segment = &map->segments[first];
	segment->tensor = range->tensor;
	segment->version = range->version;
	segment->tensor_offset = range->tensor_offset;
	segment->writer = audit->mark;
	segment->writer_lane = (uint8_t)audit->lane;
	segment->reader_lanes = 0;
}
