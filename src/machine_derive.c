/**
 * @file machine_derive.c
 * From checked values to what the rest of tencache reads: peaks times efficiencies, sums over
 * drives, picoseconds, lanes, the hash, and the listing for people.
 */
#include "machine_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"

static enum tc_status overflow(const struct tc_machine *machine, const char *what,
                               struct tc_error *error)
{
	return tc_error_set(error, TC_TOO_LARGE, "%s: %s does not fit 64 bits", machine->file_name,
	                    what);
}

static void derive_gpu(struct tc_machine *machine, const uint64_t *v)
{
	machine->capacity_bytes[TC_GPU] = v[TCI_GPU_CAPACITY];
	machine->framework_bytes[TC_GPU] = v[TCI_GPU_FRAMEWORK];
	for (size_t c = 0; c < TC_OP_CLASS_COUNT; ++c) {
		/* Efficiencies are at most 1: the products fit. */
		(void)tc_mul_div_floor(v[TCI_GPU_MEMORY_RATE], v[TCI_MEMORY_EFFICIENCY + c],
		                       1000000, &machine->memory_bytes_per_s[c]);
		for (size_t d = 0; d < sizeof tci_flops_dtypes / sizeof *tci_flops_dtypes; ++d)
			(void)tc_mul_div_floor(v[TCI_FLOPS + d], v[TCI_FLOPS_EFFICIENCY + c],
			                       1000000,
			                       &machine->flops_per_s[tci_flops_dtypes[d]][c]);
	}
	machine->launch_ps = v[TCI_LAUNCH] * TC_PS_PER_NS;
	machine->hook_ps = v[TCI_HOOK] * TC_PS_PER_NS;
	machine->gpu_alloc_ps_per_call = v[TCI_GPU_ALLOC] * TC_PS_PER_NS;
}

static void derive_host_and_link(struct tc_machine *machine, const uint64_t *v)
{
	machine->capacity_bytes[TC_CPU] = v[TCI_HOST_CAPACITY];
	machine->framework_bytes[TC_CPU] = v[TCI_HOST_FRAMEWORK];
	machine->dram_bytes_per_s = v[TCI_DRAM];
	machine->cpu_cores = v[TCI_CORES];
	machine->adam_parameters_per_s_per_core = v[TCI_ADAM];
	machine->cpu_stream_bytes_per_s_per_core = v[TCI_STREAM];
	machine->pin_bytes_per_s = v[TCI_PIN];
	for (int h = 0; h < TC_HANDOVER_COUNT; ++h)
		machine->handover_ps[h] = v[TCI_HANDOVER + h] * TC_PS_PER_NS;
	machine->pinned_rounding = (enum tc_pinned_rounding)v[TCI_PINNED_ROUNDING];
	machine->h2d = (struct tc_link){v[TCI_H2D_RATE], v[TCI_H2D_LATENCY] * TC_PS_PER_NS};
	machine->d2h = (struct tc_link){v[TCI_D2H_RATE], v[TCI_D2H_LATENCY] * TC_PS_PER_NS};
	machine->duplex_bytes_per_s = v[TCI_DUPLEX];
	machine->pageable_ppm = v[TCI_PAGEABLE];
	machine->copy_dram_weight = (uint32_t)v[TCI_DRAM_WEIGHT];
	machine->chunk_bytes = v[TCI_CHUNK];
	machine->price_per_hour_micro_usd = v[TCI_PRICE];
}

/** Capacity and endurance are sums; rates are sums where the drives are striped. */
static enum tc_status derive_nvme(struct tc_machine *machine, const uint64_t *v,
                                  struct tc_error *error)
{
	uint64_t drives = v[TCI_DRIVES], together;
	if (drives > 1024)
		return tc_error_set(error, TC_FORMAT,
		                    "%s: nvme.drives is %" PRIu64 "; expected at most 1024",
		                    machine->file_name, drives);
	machine->nvme_drives = (uint32_t)drives;
	machine->nvme_striped = v[TCI_STRIPED] != 0;
	machine->gpu_direct = v[TCI_GPU_DIRECT] != 0;
	together = machine->nvme_striped ? drives : 1;
	if (v[TCI_QUEUE_DEPTH] > UINT32_MAX)
		return tc_error_set(error, TC_FORMAT,
		                    "%s: nvme.drive.queue_depth is %" PRIu64
		                    "; expected below 2^32",
		                    machine->file_name, v[TCI_QUEUE_DEPTH]);
	machine->nvme_queue_depth = (uint32_t)v[TCI_QUEUE_DEPTH];
	if (!tc_mul_u64(drives, v[TCI_DRIVE_CAPACITY], &machine->capacity_bytes[TC_NVME]) ||
	    !tc_mul_u64(drives, v[TCI_ENDURANCE], &machine->nvme_endurance_bytes) ||
	    !tc_mul_u64(together, v[TCI_READ_RATE], &machine->nvme_read.bytes_per_s) ||
	    !tc_mul_u64(together, v[TCI_WRITE_RATE], &machine->nvme_write.bytes_per_s) ||
	    !tc_mul_u64(together, v[TCI_MIXED], &machine->nvme_mixed_bytes_per_s) ||
	    !tc_mul_u64(together, v[TCI_SUSTAINED], &machine->nvme_sustained_write_bytes_per_s))
		return overflow(machine, "a value of nvme.drive times the number of drives", error);
	machine->nvme_read.latency_ps = v[TCI_READ_LATENCY] * TC_PS_PER_NS;
	machine->nvme_write.latency_ps = v[TCI_WRITE_LATENCY] * TC_PS_PER_NS;
	return TC_OK;
}

static enum tc_status derive_lanes(struct tc_machine *machine, const uint64_t *v,
                                   struct tc_error *error)
{
	uint64_t lanes[TC_QUEUE_COUNT], total = 0;
	for (size_t q = 0; q < TC_QUEUE_COUNT; ++q)
		lanes[q] = 1;
	lanes[TC_QUEUE_H2D] = v[TCI_LANES_H2D];
	lanes[TC_QUEUE_D2H] = v[TCI_LANES_D2H];
	lanes[TC_QUEUE_CPU] = v[TCI_LANES_CPU];
	bool per_drive = machine->nvme_drives > 0 && !machine->nvme_striped;
	lanes[TC_QUEUE_NVME_READ] = per_drive ? machine->nvme_drives : v[TCI_LANES_READ];
	lanes[TC_QUEUE_NVME_WRITE] = per_drive ? machine->nvme_drives : v[TCI_LANES_WRITE];
	if (machine->nvme_drives == 0)
		lanes[TC_QUEUE_NVME_READ] = lanes[TC_QUEUE_NVME_WRITE] = 1;
	for (size_t q = 0; q < TC_QUEUE_COUNT; ++q) {
		total = lanes[q] > TC_MAX_LANES ? TC_MAX_LANES + 1 : total + lanes[q];
		if (total > TC_MAX_LANES)
			return tc_error_set(
			    error, TC_FORMAT,
			    "%s: the queues have more than %d lanes together; lower "
			    "lanes.* or set nvme.striped to true",
			    machine->file_name, TC_MAX_LANES);
		machine->lanes[q] = (uint32_t)lanes[q];
	}
	return TC_OK;
}

static enum tc_status check_sense(const struct tc_machine *machine, const uint64_t *v,
                                  struct tc_error *error)
{
	static const char *const names[] = {"gpu", "host"};
	for (size_t tier = TC_GPU; tier <= TC_CPU; ++tier)
		if (machine->framework_bytes[tier] >= machine->capacity_bytes[tier])
			return tc_error_set(error, TC_FORMAT,
			                    "%s: %s.framework_bytes is %" PRIu64
			                    ", which leaves nothing of %s.capacity_bytes %" PRIu64
			                    "; give more memory or a smaller framework share",
			                    machine->file_name, names[tier],
			                    machine->framework_bytes[tier], names[tier],
			                    machine->capacity_bytes[tier]);
	if (v[TCI_DRAM_WEIGHT] > TC_MOST_DRAM_WEIGHT)
		return tc_error_set(error, TC_FORMAT,
		                    "%s: link.dram_weight is %" PRIu64
		                    ", expected 1 to %d: 1 where a GPU copies, 2 where the "
		                    "processor does",
		                    machine->file_name, v[TCI_DRAM_WEIGHT], TC_MOST_DRAM_WEIGHT);
	for (size_t d = 0; d < sizeof tci_flops_dtypes / sizeof *tci_flops_dtypes; ++d)
		if (v[TCI_FLOPS + d] > 0)
			return TC_OK;
	return tc_error_set(
	    error, TC_FORMAT,
	    "%s: gpu.flops_per_s names no data type; give at least float32, float16 "
	    "or bfloat16",
	    machine->file_name);
}

static void describe_value(const struct tci_field *field, uint64_t number,
                           struct tc_machine_value *value)
{
	char text[TC_UNIT_TEXT_BYTES];
	size_t size = sizeof value->text;
	switch (field->unit) {
	case TCI_BYTES:
		(void)snprintf(value->text, size, "%s", tc_format_bytes_both(number, text));
		break;
	case TCI_RATE:
		(void)snprintf(value->text, size, "%s", tc_format_rate(number, text));
		break;
	case TCI_PPM:
		(void)snprintf(value->text, size, "%" PRIu64 ".%02" PRIu64 " %%", number / 10000,
		               number % 10000 / 100);
		break;
	case TCI_NS:
		(void)snprintf(value->text, size, "%" PRIu64 " ns", number);
		break;
	case TCI_MICRO_USD:
		(void)snprintf(value->text, size, "%" PRIu64 ".%06" PRIu64 " USD/h",
		               number / 1000000, number % 1000000);
		break;
	case TCI_FLAG:
		(void)snprintf(value->text, size, "%s", number != 0 ? "yes" : "no");
		break;
	case TCI_ROUNDING:
		(void)snprintf(value->text, size, "%s",
		               number == TC_PINNED_POW2 ? "pow2" : "exact");
		break;
	default:
		(void)snprintf(value->text, size, "%" PRIu64, number);
	}
	/* Absent values that mean "unknown" or "no limit" are not numbers to read. */
	if (value->is_default && number == 0 && field->smallest > 0)
		(void)snprintf(value->text, size, "unknown");
}

static void derive_listing(struct tc_machine *machine, struct tci_machine_storage *storage)
{
	machine->confidence = TC_CONFIDENCE_HIGH;
	for (size_t i = 0; i < TCI_FIELD_COUNT; ++i) {
		struct tc_machine_value *value = &storage->listing[i];
		value->path = tci_fields[i].path;
		value->unit = tci_unit_name(tci_fields[i].unit);
		value->help = tci_fields[i].help;
		value->number = storage->values[i];
		describe_value(&tci_fields[i], value->number, value);
		if (!value->is_default && value->confidence < machine->confidence)
			machine->confidence = value->confidence;
	}
	storage->listing_count = TCI_FIELD_COUNT;
}

static enum tc_status derive_hash(struct tc_machine *machine, const json_t *root,
                                  struct tc_error *error)
{
	char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
	if (text == NULL)
		return tc_error_no_memory(error, "a machine description", 0);
	enum tc_status status = tci_sha256_of(text, strlen(text), machine->sha256, error);
	free(text);
	return status;
}

enum tc_status tci_machine_derive(struct tc_machine *machine, struct tc_error *error)
{
	struct tci_machine_storage *storage = machine->storage;
	const json_t *root = storage->root;
	machine->file_name = storage->file_name;
	machine->name = json_string_value(json_object_get(root, "name"));
	machine->source = json_string_value(json_object_get(root, "source"));
	machine->date = json_string_value(json_object_get(root, "date"));
	machine->summary = json_string_value(json_object_get(root, "summary"));
	if (machine->summary == NULL)
		machine->summary = "";
	derive_gpu(machine, storage->values);
	derive_host_and_link(machine, storage->values);
	TC_TRY(derive_nvme(machine, storage->values, error));
	TC_TRY(derive_lanes(machine, storage->values, error));
	TC_TRY(check_sense(machine, storage->values, error));
	derive_listing(machine, storage);
	return derive_hash(machine, root, error);
}
