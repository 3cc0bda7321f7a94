/** Inside of the oracle's small traces. */
#ifndef TENCACHE_TEST_ORACLE_MODEL_H
#define TENCACHE_TEST_ORACLE_MODEL_H

#include "oracle.h"

#define ORACLE_LAYERS 4u

struct oracle_layer {
	uint32_t param, master, moment, buffer; /**< master, buffer: TC_NONE where there is none */
	uint32_t activation, gradient, upstream;
	uint32_t statistic; /**< written in backward, read by nobody */
};

struct oracle_model {
	struct tc_trace trace;
	struct tc_tensor tensors[64];
	struct tc_op ops[64];
	uint32_t ids[1024];
	struct tc_range ranges[128];
	uint32_t id_count, range_count;
	uint32_t input, layer_count, first_update;
	uint32_t counter; /**< optimizer state that only its own op reads */
	struct oracle_layer layers[ORACLE_LAYERS + 1];
};

#endif
