/**
 * @file calibrate_describe.c
 * From measurements to a machine description. What was measured says so with its number of samples
 * and their spread; everything else comes from the base machine and says that it is assumed. The
 * text is read back as any description is before anybody gets it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate.h"
#include "calibrate_parts.h"

/** The head says medium: each value has a confidence of its own. */
#define HEAD_CONFIDENCE "medium"
#define LONGEST_SOURCE 512

/** The first failure of building, so that the many small steps need no checks. */
struct description {
	const struct tci_calibration *calibration;
	const struct tc_machine *base;
	json_t *root;
	bool failed;
};

/* ---------------------------------------------------------------- putting values */

/** The object that holds the last key of a dotted path, made where it is missing. */
static json_t *parent_of(struct description *description, const char *path, const char **last)
{
	json_t *object = description->root;
	for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
		char key[64];
		(void)snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
		if (json_object_get(object, key) == NULL &&
		    json_object_set_new(object, key, json_object()) != 0) {
			description->failed = true;
			return NULL;
		}
		object = json_object_get(object, key);
	}
	*last = path;
	return object;
}

/** Takes over `value`. */
static void put(struct description *description, const char *path, json_t *value)
{
	const char *last;
	json_t *parent = parent_of(description, path, &last);
	if (parent == NULL)
		json_decref(value);
	else if (json_object_set_new(parent, last, value) != 0)
		description->failed = true;
}

static json_t *sourced(const char *key, json_t *value, const char *source, const char *confidence)
{
	return json_pack("{s:o, s:s, s:s}", key, value, "source", source, "confidence", confidence);
}

static json_t *number(uint64_t value)
{
	return json_integer(
	    (json_int_t)(value > TC_MAX_JSON_INTEGER ? TC_MAX_JSON_INTEGER : value));
}

/** How far repeated samples agree is how far one may trust them. */
static const char *confidence_of(uint32_t spread_ppm)
{
	return spread_ppm <= 100000 ? "high" : spread_ppm <= 300000 ? "medium" : "low";
}

static void put_measured(struct description *description, const char *path, uint64_t value,
                         struct tci_measured measured, const char *how)
{
	char source[LONGEST_SOURCE];
	(void)snprintf(
	    source, sizeof source,
	    TCI_MEASURED ": %s, median of %" PRIu32 ", spread %" PRIu32 ".%" PRIu32 " %%", how,
	    measured.samples, measured.spread_ppm / 10000, measured.spread_ppm / 1000 % 10);
	put(description, path,
	    sourced("value", number(value), source, confidence_of(measured.spread_ppm)));
}

/** Pairs [bytes, bytes per second], divided by the number of drives. */
static json_t *points_of(const struct tci_curve_points *curve, uint64_t divisor)
{
	json_t *list = json_array();
	for (size_t i = 0; i < curve->count; ++i) {
		uint64_t rate = curve->rates[i].value / divisor;
		(void)json_array_append_new(list, json_pack("[o, o]", number(curve->bytes[i]),
		                                            number(rate > 0 ? rate : 1)));
	}
	return list;
}

static json_t *spreads_of(const struct tci_curve_points *curve)
{
	json_t *list = json_array();
	for (size_t i = 0; i < curve->count; ++i)
		(void)json_array_append_new(list, number(curve->rates[i].spread_ppm));
	return list;
}

static int compare_spreads(const void *a, const void *b)
{
	const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
	return left < right ? -1 : left > right;
}

/** The usual spread decides about confidence, not the one size that was disturbed. */
static void put_curve(struct description *description, const char *path,
                      const struct tci_curve_points *curve, uint64_t divisor, const char *how)
{
	char source[LONGEST_SOURCE];
	uint32_t fewest = UINT32_MAX, spreads[TCI_MOST_POINTS] = {0};
	for (size_t i = 0; i < curve->count; ++i) {
		spreads[i] = curve->rates[i].spread_ppm;
		fewest = curve->rates[i].samples < fewest ? curve->rates[i].samples : fewest;
	}
	qsort(spreads, curve->count, sizeof *spreads, compare_spreads);
	uint32_t usual = spreads[curve->count / 2], worst = spreads[curve->count - 1];
	(void)snprintf(source, sizeof source,
	               TCI_MEASURED ": %s, medians of at least %" PRIu32 ", spread %" PRIu32
	                            ".%" PRIu32 " %%, at most %" PRIu32 ".%" PRIu32 " %%",
	               how, fewest, usual / 10000, usual / 1000 % 10, worst / 10000,
	               worst / 1000 % 10);
	json_t *value = sourced("points", points_of(curve, divisor), source, confidence_of(usual));
	if (value != NULL && json_object_set_new(value, "x_spread_ppm", spreads_of(curve)) != 0)
		description->failed = true;
	put(description, path, value);
}

/* ---------------------------------------------------------------- the base machine */

static bool starts_with(const char *text, const char *start)
{
	return strncmp(text, start, strlen(start)) == 0;
}

/** What is of this machine, or of nobody's: not copied. */
static bool is_own(const struct tci_calibration *calibration, const char *path)
{
	static const char *const measured[] = {
	    "gpu.launch_ns",
	    "host.dram_bytes_per_s",
	    "host.cores",
	    "host.adam_parameters_per_s_per_core",
	    "host.stream_bytes_per_s_per_core",
	    "host.pin_bytes_per_s",
	    "host.handover_ns",
	    "link.h2d.",
	    "link.d2h.",
	    "link.duplex_bytes_per_s",
	    "link.pageable_ppm",
	    "link.dram_weight",
	    "price_per_hour_micro_usd",
	};
	for (size_t i = 0; i < sizeof measured / sizeof *measured; ++i)
		if (starts_with(path, measured[i]))
			return true;
	return calibration->drives > 0 && starts_with(path, "nvme.") &&
	       strcmp(path, "nvme.drive.capacity_bytes") != 0;
}

static json_t *value_of(const struct tc_machine_value *value)
{
	if (strcmp(value->unit, "true|false") == 0)
		return json_boolean(value->number != 0);
	if (strcmp(value->unit, "exact|pow2") == 0)
		return json_string(value->number == TC_PINNED_POW2 ? "pow2" : "exact");
	return number(value->number);
}

static void copy_base(struct description *description)
{
	size_t count;
	const struct tc_machine_value *values = tc_machine_values(description->base, &count);
	for (size_t i = 0; i < count; ++i) {
		char source[LONGEST_SOURCE];
		if (values[i].is_default || is_own(description->calibration, values[i].path))
			continue;
		(void)snprintf(source, sizeof source, "assumed: as of %s%s%.400s",
		               description->base->name, values[i].source[0] != '\0' ? "; " : "",
		               values[i].source);
		put(description, values[i].path,
		    sourced("value", value_of(&values[i]), source, "low"));
	}
}

/* ---------------------------------------------------------------- what was measured */

static void put_host(struct description *description)
{
	const struct tci_calibration *c = description->calibration;
	put(description, "host.cores",
	    sourced("value", number(c->cores), "counted: cores that are online", "high"));
	put_measured(description, "host.dram_bytes_per_s", c->dram.value, c->dram,
	             "triad a = b + s x c of all cores, 24 bytes an element");
	put_measured(description, "host.adam_parameters_per_s_per_core",
	             c->adam.value / c->cores > 0 ? c->adam.value / c->cores : 1, c->adam,
	             "AdamW by all cores, a core's share");
	put_measured(description, "host.stream_bytes_per_s_per_core",
	             c->stream.value / c->cores > 0 ? c->stream.value / c->cores : 1, c->stream,
	             "float32 to bfloat16 by all cores, 6 bytes an element, a core's share");
	put_measured(description, "host.pin_bytes_per_s", c->pin.value, c->pin,
	             "allocation of pinned memory");
}

/** The median over the sizes from 1 MiB on, where rates are level, and how these differ. */
static struct tci_measured usual_rate(const struct tci_curve_points *curve)
{
	struct tci_samples samples = {0};
	for (size_t i = 0; i < curve->count && samples.count < TCI_MOST_SAMPLES; ++i)
		if (curve->bytes[i] >= (UINT64_C(1) << 20) || i + 1 == curve->count)
			samples.values[samples.count++] = curve->rates[i].value;
	return tci_samples_median(&samples);
}

static void put_link(struct description *description)
{
	const struct tci_calibration *c = description->calibration;
	char how[96];
	(void)snprintf(how, sizeof how, "device %s, copies one after another on a lane",
	               c->device->name);
	put_curve(description, "link.h2d.curve", &c->up, 1, how);
	put_curve(description, "link.d2h.curve", &c->down, 1, how);
	struct tci_measured both = usual_rate(&c->both);
	uint64_t up = usual_rate(&c->up).value, down = usual_rate(&c->down).value;
	/* Both together are not slower than one alone: the computer was. */
	uint64_t least = up > down ? up : down;
	if (both.value < least)
		both.spread_ppm = 1000000;
	put_measured(description, "link.duplex_bytes_per_s",
	             both.value > least ? both.value : least, both,
	             "both directions at once, their sum, over sizes from 1 MiB");
	uint64_t ppm = 1000000;
	(void)tc_mul_div_floor(c->pageable.value, 1000000, c->up.rates[c->up.count - 1].value,
	                       &ppm);
	ppm = ppm > 1000000 ? 1000000 : ppm;
	put_measured(description, "link.pageable_ppm", ppm > 0 ? ppm : 1, c->pageable,
	             "largest copy from memory that is not pinned, against pinned");
	if (strcmp(c->device->name, tc_device_host.name) == 0)
		put(description, "link.dram_weight",
		    sourced("value", number(2),
		            "a copy within host memory reads each byte and writes it", "high"));
	put_measured(description, "gpu.launch_ns",
	             (c->issue_ps.value + TC_PS_PER_NS - 1) / TC_PS_PER_NS, c->issue_ps,
	             "issuing a command of a schedule of independent copies");
}

static const struct tci_depth_rates *default_depth(const struct tci_calibration *calibration)
{
	return &calibration->depths[0];
}

static void put_drives(struct description *description)
{
	const struct tci_calibration *c = description->calibration;
	char how[400];
	uint64_t drives = c->drives;
	const struct tci_depth_rates *depth = default_depth(c);
	put(description, "nvme.drives",
	    sourced("value", number(drives), "counted: devices of the folders named", "high"));
	put(description, "nvme.striped",
	    sourced("value", json_true(), "how tencache-replay uses them", "high"));
	/* The first thing that the backend tells is whether it goes past the page cache. */
	(void)snprintf(how, sizeof how, "storage %s at depth %" PRIu32 ", %.*s%s", c->facts.backend,
	               depth->depth, (int)strcspn(c->facts.detail, ";"), c->facts.detail,
	               drives > 1 ? ", a drive's share" : "");
	put_curve(description, "nvme.drive.read.curve", &c->read, drives, how);
	put_curve(description, "nvme.drive.write.curve", &c->write, drives, how);
	put_measured(description, "nvme.drive.mixed_bytes_per_s",
	             depth->mixed.value / drives > 0 ? depth->mixed.value / drives : 1,
	             depth->mixed, "reading and writing at once, their sum");
	put(description, "nvme.drive.queue_depth",
	    sourced("value", number(depth->depth), "the depth at which the rates were measured",
	            "high"));
	if (description->base->nvme_drives == 0)
		put(description, "nvme.drive.capacity_bytes",
		    sourced("value", number(c->drive_capacity_bytes), "free at the time", "high"));
}

static void put_handovers(struct description *description)
{
	static const char *const paths[] = {[TC_HANDOVER_COMPUTE] = "host.handover_ns.compute",
	                                    [TC_HANDOVER_DRIVE] = "host.handover_ns.drive",
	                                    [TC_HANDOVER_OTHER] = "host.handover_ns.other"};
	static const char *const how[] = {[TC_HANDOVER_COMPUTE] =
	                                      "from compute that is held to what waits for it",
	                                  [TC_HANDOVER_DRIVE] = "from or to a read",
	                                  [TC_HANDOVER_OTHER] = "between copies and the processor"};
	for (int h = 0; h < TC_HANDOVER_COUNT; ++h) {
		const struct tci_measured *measured = &description->calibration->handover_ps[h];
		if (measured->samples > 0)
			put_measured(description, paths[h],
			             (measured->value + TC_PS_PER_NS - 1) / TC_PS_PER_NS, *measured,
			             how[h]);
	}
}

/* ---------------------------------------------------------------- details for people */

static json_t *measured_json(const struct tci_measured *measured)
{
	return json_pack("{s:o, s:I, s:I}", "value", number(measured->value), "samples",
	                 (json_int_t)measured->samples, "spread_ppm",
	                 (json_int_t)measured->spread_ppm);
}

static int compare_depths(const void *a, const void *b)
{
	const struct tci_depth_rates *left = a, *right = b;
	return left->depth < right->depth ? -1 : left->depth > right->depth;
}

static json_t *depths_json(const struct tci_calibration *calibration)
{
	struct tci_depth_rates sorted[TCI_MOST_DEPTHS];
	json_t *list = json_array();
	memcpy(sorted, calibration->depths, sizeof sorted);
	qsort(sorted, calibration->depth_count, sizeof *sorted, compare_depths);
	for (size_t i = 0; i < calibration->depth_count; ++i)
		(void)json_array_append_new(
		    list, json_pack("{s:I, s:o, s:o, s:o}", "depth", (json_int_t)sorted[i].depth,
		                    "read_bytes_per_s", measured_json(&sorted[i].read),
		                    "write_bytes_per_s", measured_json(&sorted[i].write),
		                    "mixed_bytes_per_s", measured_json(&sorted[i].mixed)));
	return list;
}

/** What has no place in a description but helps to judge it. */
static void put_details(struct description *description, uint64_t seconds)
{
	const struct tci_calibration *c = description->calibration;
	put(description, "x_calibration.device", json_string(c->device->name));
	put(description, "x_calibration.quick", json_boolean(c->options->quick));
	put(description, "x_calibration.seconds", number(seconds));
	put(description, "x_calibration.both_ways",
	    json_pack("{s:o, s:o}", "points", points_of(&c->both, 1), "spread_ppm",
	              spreads_of(&c->both)));
	put(description, "x_calibration.round_trip_ps", measured_json(&c->round_trip_ps));
	if (c->drives == 0)
		return;
	put(description, "x_calibration.storage",
	    json_pack("{s:s, s:s, s:I, s:I}", "backend", c->facts.backend, "detail",
	              c->facts.detail, "retries", (json_int_t)c->facts.retries, "short_transfers",
	              (json_int_t)c->facts.short_transfers));
	put(description, "x_calibration.by_depth", depths_json(c));
}

/** Today, or the day that SOURCE_DATE_EPOCH names. */
static void put_date(struct description *description)
{
	char date[16] = "1970-01-01";
	const char *fixed = getenv("SOURCE_DATE_EPOCH");
	uint64_t seconds;
	struct tm day;
	time_t now = time(NULL);
	if (fixed != NULL && tc_parse_count(fixed, "SOURCE_DATE_EPOCH", &seconds, NULL) == TC_OK)
		now = (time_t)seconds;
	if (gmtime_r(&now, &day) != NULL)
		(void)strftime(date, sizeof date, "%Y-%m-%d", &day);
	put(description, "date", json_string(date));
}

/** The name of the file without folders and extension. */
static void put_name(struct description *description)
{
	const char *path = description->calibration->options->output;
	const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
	size_t length = strlen(name);
	if (length > 5 && strcmp(name + length - 5, ".json") == 0)
		length -= 5;
	put(description, "name", json_stringn(name, length));
}

static void put_head(struct description *description)
{
	const struct tci_calibration *c = description->calibration;
	char text[256];
	put(description, "format", json_string("tencache-machine"));
	put(description, "version", json_integer(1));
	put_name(description);
	(void)snprintf(text, sizeof text,
	               "measured: %" PRIu32 " cores, device %s, %" PRIu32
	               " drive%s; assumed: GPU and capacities of %s",
	               c->cores, c->device->name, c->drives, c->drives == 1 ? "" : "s",
	               description->base->name);
	put(description, "summary", json_string(text));
	(void)snprintf(text, sizeof text, "tencache-replay calibrate%s, base %s",
	               c->options->quick ? " --quick" : "", description->base->name);
	put(description, "source", json_string(text));
	put_date(description);
	put(description, "confidence", json_string(HEAD_CONFIDENCE));
}

enum tc_status tci_describe(const struct tci_calibration *calibration,
                            const struct tc_machine *base, char **text, struct tc_machine **machine,
                            struct tc_error *error)
{
	struct description description = {
	    .calibration = calibration, .base = base, .root = json_object()};
	struct tci_clockwork clockwork = calibration->clockwork;
	*text = NULL;
	put_head(&description);
	copy_base(&description);
	put_host(&description);
	put_link(&description);
	put_handovers(&description);
	if (calibration->drives > 0)
		put_drives(&description);
	put_details(&description, tci_clockwork_ps(&clockwork) / TC_PS_PER_S);
	if (!description.failed)
		*text = json_dumps(description.root, JSON_INDENT(2));
	json_decref(description.root);
	if (*text == NULL)
		return tc_error_no_memory(error, "a machine description (or its name is not UTF-8)",
		                          0);
	return tc_machine_parse(*text, strlen(*text), calibration->options->output, machine, error);
}
