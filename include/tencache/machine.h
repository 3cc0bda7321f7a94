/**
 * @file machine.h
 * A description of tiers, links, drives and compute: a preset, a file, or measured by calibration.
 * Format: sim/machines/README.md. All values are integers; nothing downstream uses floating point.
 */
#ifndef TENCACHE_MACHINE_H
#define TENCACHE_MACHINE_H

#include "tencache/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tc_tier { TC_GPU, TC_CPU, TC_NVME, TC_TIER_COUNT };

enum tc_queue {
	TC_QUEUE_COMPUTE,
	TC_QUEUE_H2D,
	TC_QUEUE_D2H,
	TC_QUEUE_NVME_READ,
	TC_QUEUE_NVME_WRITE,
	TC_QUEUE_GPU_NVME,
	TC_QUEUE_CPU,
	TC_QUEUE_HOST,
	TC_QUEUE_COUNT
};

enum tc_confidence { TC_CONFIDENCE_LOW, TC_CONFIDENCE_MEDIUM, TC_CONFIDENCE_HIGH };
enum tc_pinned_rounding { TC_PINNED_EXACT, TC_PINNED_POW2 };

/** One direction of a link or drive: latency first (no bandwidth), then a flow. */
struct tc_link {
	uint64_t bytes_per_s;
	uint64_t latency_ps;
};

/** The preset that is used when none is named: one A100-40, 512 GB of host memory, two drives. */
#define TC_DEFAULT_MACHINE "a100-40"

/** Upper bound for the lanes of all queues together. */
#define TC_MAX_LANES 16

/** Hand-overs between queues: those from compute, else those from or to a drive, and all others. */
enum tc_handover { TC_HANDOVER_COMPUTE, TC_HANDOVER_DRIVE, TC_HANDOVER_OTHER, TC_HANDOVER_COUNT };

struct tc_machine {
	const char *name;
	const char *file_name;
	const char *summary;           /**< one line for lists */
	const char *source, *date;     /**< of the description as a whole */
	enum tc_confidence confidence; /**< the lowest among its values */
	char sha256[65];               /**< of the compact, key-sorted JSON after overrides */

	uint64_t capacity_bytes[TC_TIER_COUNT];  /**< usable bytes; 0: the machine lacks the tier */
	uint64_t framework_bytes[TC_TIER_COUNT]; /**< what the framework itself takes */

	struct tc_link h2d, d2h;     /**< pinned memory */
	uint64_t duplex_bytes_per_s; /**< sum of both directions; 0: no common limit */
	/** Times that a byte copied over the link is read or written in host memory; 0: once. */
	uint32_t copy_dram_weight;
	uint64_t pageable_ppm; /**< rate from or to unpinned memory, parts per million of pinned */
	uint64_t
	    dram_bytes_per_s; /**< host memory bandwidth, shared by copies, drives and CPU work */

	struct tc_link nvme_read, nvme_write; /**< summed over the drives when striped */
	uint64_t nvme_mixed_bytes_per_s;      /**< reads + writes together; 0: no common limit */
	uint64_t nvme_sustained_write_bytes_per_s; /**< after the write cache; 0: unknown */
	uint64_t nvme_endurance_bytes;             /**< rated bytes written (TBW); 0: unknown */
	uint32_t nvme_drives;
	uint32_t nvme_queue_depth;
	bool nvme_striped;
	bool gpu_direct; /**< a direct path between drive and GPU exists (queue gpu_nvme) */

	uint64_t cpu_cores;
	uint64_t adam_parameters_per_s_per_core;
	/** min(cores x rate, what convert and the inf/nan scan stream at): bytes/s per core. */
	uint64_t cpu_stream_bytes_per_s_per_core;

	/** peak x efficiency, rounded down at load; operations per second. */
	uint64_t flops_per_s[TC_DTYPE_COUNT][TC_OP_CLASS_COUNT];
	/** memory bandwidth x efficiency per op class, bytes per second. */
	uint64_t memory_bytes_per_s[TC_OP_CLASS_COUNT];
	uint64_t launch_ps; /**< host cost of issuing one command */
	uint64_t hook_ps;   /**< host cost of one event */
	/** From the end of a command until one on another queue that waited for it has begun. */
	uint64_t handover_ps[TC_HANDOVER_COUNT];

	uint64_t gpu_alloc_ps_per_call; /**< fresh device allocation (systems without pools) */
	uint64_t pin_bytes_per_s;       /**< speed of pinning host memory */
	enum tc_pinned_rounding pinned_rounding;
	uint64_t chunk_bytes;              /**< two-hop moves are split into chunks of this size */
	uint64_t price_per_hour_micro_usd; /**< 0: unknown */

	uint32_t lanes[TC_QUEUE_COUNT];

	void *storage; /**< private: the JSON and the strings */
};

/**
 * Load a machine: the path of a JSON file, or the name of a preset looked up in `preset_directory`
 * (NULL: the directories in TENCACHE_MACHINES, the build tree, the installed share directory).
 * An unknown name suggests the nearest preset. Free with tc_machine_free().
 */
enum tc_status tc_machine_load(const char *name_or_path, const char *preset_directory,
                               struct tc_machine **machine, struct tc_error *error);
/** Parse from memory; `name` stands for the file in messages. */
enum tc_status tc_machine_parse(const char *json, size_t bytes, const char *name,
                                struct tc_machine **machine, struct tc_error *error);
void tc_machine_free(struct tc_machine *machine);

/**
 * Override one value by its option name without dashes (`gpu-memory`, `cpu-memory`, `nvme-read`,
 * `h2d`, `cores`, ...), e.g. "gpu-memory", "24GiB". Recomputes the hash and what is derived.
 * tc_machine_override_names() lists what exists, for --help and "did you mean". A name with dots is
 * the path of any value, e.g. "gpu.flops_per_s.float16". Drive values are those of one drive. On
 * failure the machine is unchanged.
 */
enum tc_status tc_machine_override(struct tc_machine *machine, const char *name, const char *value,
                                   struct tc_error *error);
/** A value to override, as tc_machine_override() has it. */
struct tc_machine_setting {
	const char *name, *value;
};
/** Override several values at once: what is checked is the machine that they make together, so that
 * their order does not matter unless a value is named twice. */
enum tc_status tc_machine_override_all(struct tc_machine *machine,
                                       const struct tc_machine_setting *settings, size_t count,
                                       struct tc_error *error);
struct tc_machine_override_name {
	const char *name, *unit, *help, *path;
};
const struct tc_machine_override_name *tc_machine_override_names(size_t *count);

/** One value of a description, as `tencache-sim machines NAME` lists it. */
struct tc_machine_value {
	const char *path; /**< keys joined by dots, e.g. "link.h2d.bytes_per_s" */
	const char *unit; /**< "bytes", "bytes/s", "ns", "ppm", "USD/h" or "" */
	const char *help;
	const char *source; /**< where the value is from; "" for a default of the format */
	enum tc_confidence confidence;
	bool is_default; /**< the description does not say */
	uint64_t number; /**< flags 0 and 1, price in millionths of a dollar */
	char text[96];   /**< the value for people, sizes both ways */
};

/** All values in the order of the format page; owned by the machine. */
const struct tc_machine_value *tc_machine_values(const struct tc_machine *machine, size_t *count);
/** The description after overrides as indented JSON; free() it. NULL when out of memory. */
char *tc_machine_json(const struct tc_machine *machine);

/** Names of all presets found, sorted; free with tc_machine_names_free(). */
enum tc_status tc_machine_names(const char *preset_directory, char ***names, size_t *count,
                                struct tc_error *error);
void tc_machine_names_free(char **names, size_t count);

/** Time of an op on the GPU (rules: `us`, else the larger of FLOP time and traffic time), ps. */
enum tc_status tc_machine_op_ps(const struct tc_machine *machine, const struct tc_trace *trace,
                                uint32_t op, uint64_t *ps, struct tc_error *error);

/** The hand-over between two different queues; TC_QUEUE_HOST stands for the issuing thread. */
static inline uint64_t tc_machine_handover_ps(const struct tc_machine *machine, enum tc_queue from,
                                              enum tc_queue to)
{
	bool drive = from == TC_QUEUE_NVME_READ || from == TC_QUEUE_NVME_WRITE ||
	             to == TC_QUEUE_NVME_READ || to == TC_QUEUE_NVME_WRITE;
	return machine->handover_ps[from == TC_QUEUE_COMPUTE ? TC_HANDOVER_COMPUTE
	                            : drive                  ? TC_HANDOVER_DRIVE
	                                                     : TC_HANDOVER_OTHER];
}

/** A machine may weigh a copy at most this often on host memory. */
#define TC_MOST_DRAM_WEIGHT 16
static inline uint32_t tc_machine_dram_weight(const struct tc_machine *machine)
{
	return machine->copy_dram_weight > 1 ? machine->copy_dram_weight : 1;
}

/** Time of a copy that has the machine to itself: latency + bytes / slowest resource, ps. */
uint64_t tc_machine_transfer_ps(const struct tc_machine *machine, enum tc_queue queue,
                                uint64_t bytes, bool pageable);

/** Time of CPU work that has the machine to itself, ps. @param elements parameters of an update
 * (0 for a convert) @param traffic_bytes DRAM bytes moved */
uint64_t tc_machine_cpu_ps(const struct tc_machine *machine, uint64_t elements,
                           uint64_t traffic_bytes);

const char *tc_confidence_name(enum tc_confidence confidence);
const char *tc_tier_name(enum tc_tier tier);
const char *tc_queue_name(enum tc_queue queue);

#ifdef __cplusplus
}
#endif
#endif
