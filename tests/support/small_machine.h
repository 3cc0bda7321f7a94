/**
 * @file small_machine.h
 * A complete machine description with round numbers, for tests.
 */
#ifndef TENCACHE_TEST_SMALL_MACHINE_H
#define TENCACHE_TEST_SMALL_MACHINE_H

#include "tencache/machine.h"

#define SMALL_MACHINE_EFFICIENCIES                                                                 \
	"{\"gemm\":500000,\"attention\":500000,\"elementwise\":250000,\"reduction\":250000,"       \
	"\"gather\":250000,\"optimizer\":250000,\"communication\":250000,\"copy\":250000}"

/** 1 GB/s to the GPU, 2 GB/s back, two drives that read 300 and write 200 MB/s. */
#define SMALL_MACHINE_JSON                                                                         \
	"{\"format\":\"tencache-machine\",\"version\":1,\"name\":\"small\",\"source\":\"a test\"," \
	"\"date\":\"2026-11-30\",\"confidence\":\"medium\","                                       \
	"\"gpu\":{\"capacity_bytes\":1000000000,\"framework_bytes\":1000,"                         \
	"\"memory_bytes_per_s\":1000000000,\"memory_efficiency_ppm\":" SMALL_MACHINE_EFFICIENCIES  \
	","                                                                                        \
	"\"flops_per_s\":{\"float32\":2000000000,\"float16\":8000000000},"                         \
	"\"flops_efficiency_ppm\":" SMALL_MACHINE_EFFICIENCIES ",\"launch_ns\":5000},"             \
	"\"host\":{\"capacity_bytes\":4000000000,\"dram_bytes_per_s\":2800000000,\"cores\":4,"     \
	"\"adam_parameters_per_s_per_core\":{\"value\":10000000,\"confidence\":\"low\","           \
	"\"source\":\"measured by hand\"},"                                                        \
	"\"stream_bytes_per_s_per_core\":500000000,\"pin_bytes_per_s\":1000000000},"               \
	"\"link\":{\"h2d\":{\"bytes_per_s\":1000000000,\"latency_ns\":3000},"                      \
	"\"d2h\":{\"bytes_per_s\":2000000000}},"                                                   \
	"\"nvme\":{\"drives\":2,\"drive\":{\"capacity_bytes\":8000000000,"                         \
	"\"read\":{\"bytes_per_s\":300000000},\"write\":{\"bytes_per_s\":200000000},"              \
	"\"endurance_bytes\":600000000000}},\"x_note\":\"anything\"}"

/** Parse a description; a refusal fails the test with the message. */
struct tc_machine *small_machine_parse(const char *json);

#endif
