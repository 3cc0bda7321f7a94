/*
 * Calibration on a device and a drive that refuse something, each time something else: every part
 * ends with that error, and gives back all that it was given, once. Each is given up after a
 * minute.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "calibrate_parts.h"
#include "memory_storage.h"

#define PATIENCE_S 60u
/** The first calls are refused one after the other, then one in so many. */
#define EACH 5u
#define ONE_IN 12007u

/** What may be refused. */
enum call { DEVICE_CREATE, ALLOCATE, DEVICE_SUBMIT, STORAGE_CREATE, STORAGE_SUBMIT, CALLS };

static atomic_uint calls[CALLS];
static unsigned refused[CALLS]; /**< which call, from 1; 0: none */
static atomic_int devices, memories, storages;

static enum tc_status refuse(enum call call, struct tc_error *error)
{
	if (atomic_fetch_add(&calls[call], 1) + 1 != refused[call])
		return TC_OK;
	return tc_error_set(error, TC_NO_MEMORY, "refused on purpose");
}

static enum tc_status device_create(uint32_t lanes, uint64_t (*clock_ps)(void *clock), void *clock,
                                    void **self, struct tc_error *error)
{
	*self = NULL;
	TC_TRY(refuse(DEVICE_CREATE, error));
	atomic_fetch_add(&devices, 1);
	return tc_device_host.create(lanes, clock_ps, clock, self, error);
}

static void device_destroy(void *self)
{
	atomic_fetch_sub(&devices, self != NULL);
	tc_device_host.destroy(self);
}

static enum tc_status allocate(void *self, enum tc_tier tier, bool pinned, uint64_t bytes,
                               void **memory, struct tc_error *error)
{
	*memory = NULL;
	TC_TRY(refuse(ALLOCATE, error));
	atomic_fetch_add(&memories, 1);
	return tc_device_host.allocate(self, tier, pinned, bytes, memory, error);
}

static void release(void *self, void *memory, uint64_t bytes)
{
	assert_non_null(self);
	atomic_fetch_sub(&memories, memory != NULL);
	tc_device_host.release(self, memory, bytes);
}

static enum tc_status device_submit(void *self, struct tc_device_task *task, struct tc_error *error)
{
	TC_TRY(refuse(DEVICE_SUBMIT, error));
	return tc_device_host.submit(self, task, error);
}

static enum tc_status storage_create(const struct tc_storage_options *options,
                                     uint64_t (*clock_ps)(void *clock), void *clock, void **self,
                                     struct tc_error *error)
{
	TC_TRY(refuse(STORAGE_CREATE, error));
	atomic_fetch_add(&storages, 1);
	return memory_storage.create(options, clock_ps, clock, self, error);
}

static void storage_destroy(void *self)
{
	atomic_fetch_sub(&storages, self != NULL);
	memory_storage.destroy(self);
}

static enum tc_status storage_submit(void *self, struct tc_storage_task *task,
                                     struct tc_error *error)
{
	TC_TRY(refuse(STORAGE_SUBMIT, error));
	return memory_storage.submit(self, task, error);
}

typedef enum tc_status measure(struct tci_calibration *calibration, struct tc_error *error);

static enum tc_status measure_with_drives(struct tci_calibration *calibration,
                                          struct tc_error *error)
{
	TC_TRY(tci_look_at_drives(calibration, error));
	return tci_measure_drives(calibration, error);
}

static enum tc_status run(measure *part, struct tc_error *error)
{
	const char *directories[] = {"."};
	const struct tci_calibrate_options options = {
	    .directories = directories, .directory_count = 1, .quick = true, .quiet = true};
	struct tc_device_backend device = tc_device_host;
	struct tc_storage_backend storage = memory_storage;
	device.create = device_create;
	device.destroy = device_destroy;
	device.allocate = allocate;
	device.release = release;
	device.submit = device_submit;
	storage.create = storage_create;
	storage.destroy = storage_destroy;
	storage.submit = storage_submit;
	struct tci_calibration calibration = {.options = &options,
	                                      .device = &device,
	                                      .storage = &storage,
	                                      .clockwork = {.quick = true, .drives = true},
	                                      .largest_bytes = UINT64_C(1) << 20,
	                                      .cores = 2};
	for (int call = 0; call < CALLS; ++call)
		atomic_store(&calls[call], 0);
	*error = (struct tc_error){0};
	tci_clockwork_start(&calibration.clockwork);
	(void)alarm(PATIENCE_S);
	enum tc_status status = part(&calibration, error);
	(void)alarm(0);
	assert_int_equal(atomic_load(&devices), 0);
	assert_int_equal(atomic_load(&memories), 0);
	assert_int_equal(atomic_load(&storages), 0);
	return status;
}

/** @return how often something was refused */
static unsigned refuse_in_turn(measure *part, enum call call)
{
	struct tc_error error;
	unsigned runs = 0;
	enum tc_status status;
	for (refused[call] = 1; (status = run(part, &error)) != TC_OK; ++runs) {
		assert_int_equal(status, TC_NO_MEMORY);
		if (strstr(error.text, "refused on purpose") == NULL)
			fail_msg("call %u of kind %d: %s", refused[call], (int)call, error.text);
		refused[call] += refused[call] < EACH ? 1 : ONE_IN;
	}
	refused[call] = 0;
	return runs;
}

static void test_copies(void **state)
{
	(void)state;
	assert_int_equal(refuse_in_turn(tci_measure_copies, DEVICE_CREATE), 1);
	/* Source and target each way, and unpinned memory. */
	assert_int_equal(refuse_in_turn(tci_measure_copies, ALLOCATE), 5);
	assert_true(refuse_in_turn(tci_measure_copies, DEVICE_SUBMIT) >= EACH);
}

static void test_commands(void **state)
{
	(void)state;
	assert_true(refuse_in_turn(tci_measure_command, DEVICE_CREATE) >= EACH);
	assert_true(refuse_in_turn(tci_measure_command, ALLOCATE) >= EACH);
	assert_true(refuse_in_turn(tci_measure_command, DEVICE_SUBMIT) >= EACH);
	assert_true(refuse_in_turn(tci_measure_command, STORAGE_CREATE) >= EACH);
	assert_true(refuse_in_turn(tci_measure_command, STORAGE_SUBMIT) >= EACH);
}

static void test_cpu(void **state)
{
	(void)state;
	assert_int_equal(refuse_in_turn(tci_measure_cpu, DEVICE_CREATE), 1);
	assert_int_equal(refuse_in_turn(tci_measure_cpu, ALLOCATE), 3); /* triad, AdamW, bf16 */
}

static void test_drives(void **state)
{
	(void)state;
	assert_int_equal(refuse_in_turn(measure_with_drives, DEVICE_CREATE), 1);
	assert_int_equal(refuse_in_turn(measure_with_drives, ALLOCATE), 1);
	assert_int_equal(refuse_in_turn(measure_with_drives, STORAGE_CREATE), 3); /* two depths */
	assert_true(refuse_in_turn(measure_with_drives, STORAGE_SUBMIT) >= EACH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_copies),
	    cmocka_unit_test(test_commands),
	    cmocka_unit_test(test_cpu),
	    cmocka_unit_test(test_drives),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
