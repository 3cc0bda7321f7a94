/**
 * @file machine_fields.h
 * The table of everything a machine description may say. Reader, overrides, listing and the format
 * page (sim/machines/README.md) all follow it; a new value is one line there and one line in
 * machine_derive.c.
 */
#ifndef TENCACHE_MACHINE_FIELDS_H
#define TENCACHE_MACHINE_FIELDS_H

#include <jansson.h>

#include "tencache/machine.h"
#include "tencache/units.h"

enum tci_field_id {
	TCI_GPU_CAPACITY,
	TCI_GPU_FRAMEWORK,
	TCI_GPU_MEMORY_RATE,
	/* One for each operation class, in the order of enum tc_op_class. */
	TCI_MEMORY_EFFICIENCY,
	/* One for each data type that GPUs multiply, see tci_flops_dtypes. */
	TCI_FLOPS = TCI_MEMORY_EFFICIENCY + TC_OP_CLASS_COUNT,
	TCI_FLOPS_EFFICIENCY = TCI_FLOPS + 5,
	TCI_LAUNCH = TCI_FLOPS_EFFICIENCY + TC_OP_CLASS_COUNT,
	TCI_HOOK,
	TCI_GPU_ALLOC,
	TCI_HOST_CAPACITY,
	TCI_HOST_FRAMEWORK,
	TCI_DRAM,
	TCI_CORES,
	TCI_ADAM,
	TCI_STREAM,
	TCI_PIN,
	TCI_PINNED_ROUNDING,
	TCI_HANDOVER,
	TCI_HANDOVER_LAST = TCI_HANDOVER + TC_HANDOVER_COUNT - 1,
	TCI_H2D_RATE,
	TCI_H2D_LATENCY,
	TCI_D2H_RATE,
	TCI_D2H_LATENCY,
	TCI_DUPLEX,
	TCI_PAGEABLE,
	TCI_DRAM_WEIGHT,
	TCI_CHUNK,
	TCI_DRIVES,
	TCI_STRIPED,
	TCI_GPU_DIRECT,
	TCI_DRIVE_CAPACITY,
	TCI_READ_RATE,
	TCI_READ_LATENCY,
	TCI_WRITE_RATE,
	TCI_WRITE_LATENCY,
	TCI_MIXED,
	TCI_SUSTAINED,
	TCI_ENDURANCE,
	TCI_QUEUE_DEPTH,
	TCI_LANES_H2D,
	TCI_LANES_D2H,
	TCI_LANES_READ,
	TCI_LANES_WRITE,
	TCI_LANES_CPU,
	TCI_PRICE,
	TCI_FIELD_COUNT
};

extern const enum tc_dtype tci_flops_dtypes[5];

enum tci_unit {
	TCI_BYTES,
	TCI_RATE,
	TCI_COUNT,
	TCI_PPM,
	TCI_NS,
	TCI_MICRO_USD,
	TCI_FLAG,
	TCI_ROUNDING
};

struct tci_field {
	const char *path; /**< keys joined by dots */
	enum tci_unit unit;
	bool required;      /**< in a machine that has the tier */
	uint64_t smallest;  /**< a smaller value is refused */
	uint64_t fallback;  /**< where the key is absent */
	const char *option; /**< name of the override, or NULL: only by path */
	const char *help;
};

extern const struct tci_field tci_fields[TCI_FIELD_COUNT];
const char *tci_unit_name(enum tci_unit unit);

/** What machine->storage points to. */
struct tci_machine_storage {
	json_t *root;
	char *file_name;
	uint64_t values[TCI_FIELD_COUNT];
	bool present[TCI_FIELD_COUNT];
	struct tc_machine_value listing[TCI_FIELD_COUNT];
	size_t listing_count;
};

/** Check and read every key of `root` into storage; the messages name the file and the key. */
enum tc_status tci_machine_read_values(const json_t *root, const char *file_name,
                                       struct tci_machine_storage *storage, struct tc_error *error);
/** The JSON value at a field's path, or NULL. */
json_t *tci_machine_lookup(const json_t *root, const char *path);
/** Fill everything in `machine` but storage from its storage. */
enum tc_status tci_machine_derive(struct tc_machine *machine, struct tc_error *error);
/** "low", "medium", "high" to the enum; false for any other word. */
bool tci_confidence_parse(const char *word, enum tc_confidence *confidence);

struct tci_curve_point {
	uint64_t bytes, bytes_per_s;
};
/** Latency and rate that stand for measured points (how: machine_curve.c); false: impossible. */
bool tci_curve_fit(const struct tci_curve_point *points, size_t count, uint64_t *latency_ns,
                   uint64_t *bytes_per_s);

#endif
