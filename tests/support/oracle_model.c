/*
 * A small trace in memory: layers of one op each, forward and backward, then one optimizer op per
 * parameter. Sizes are multiples of 16 bytes so that mutants can shift by 16.
 */
#include <stdlib.h>
#include <string.h>

#include "oracle_model.h"
#include "random.h"

static uint32_t add_tensor(struct oracle_model *model, enum tc_tensor_kind kind, uint64_t bytes,
                           bool persistent)
{
	struct tc_tensor *tensor = &model->tensors[model->trace.tensor_count];
	*tensor = (struct tc_tensor){.bytes = bytes,
	                             .of = TC_NONE,
	                             .layer = TC_NONE,
	                             .bind_module = TC_NONE,
	                             .bound_at = -1,
	                             .name = "t",
	                             .kind = kind,
	                             .dtype = TC_FLOAT32,
	                             .persistent = persistent};
	return model->trace.tensor_count++;
}

static void list_add(struct oracle_model *model, struct tc_ids *list, uint32_t id)
{
	if (list->count == 0)
		list->items = &model->ids[model->id_count];
	model->ids[model->id_count++] = id;
	list->count++;
}

static struct tc_op *add_op(struct oracle_model *model, enum tc_phase phase)
{
	struct tc_op *op = &model->ops[model->trace.op_count++];
	*op = (struct tc_op){.name = "op",
	                     .module = TC_NONE,
	                     .event = TC_NONE,
	                     .layer = TC_NONE,
	                     .phase = phase,
	                     .op_class = TC_ELEMENTWISE,
	                     .timed = true,
	                     .measured_ps = 1000};
	return op;
}

static void add_layer_tensors(struct oracle_model *model, uint64_t *state, uint32_t l, bool masters)
{
	struct oracle_layer *layer = &model->layers[l];
	uint64_t bytes = 16 * (2 + test_random_below(state, 3));
	layer->param = add_tensor(model, TC_PARAM, bytes, true);
	layer->master = TC_NONE;
	if (masters) {
		layer->master = add_tensor(model, TC_OPTIMIZER_STATE, 2 * bytes, true);
		model->tensors[layer->master].role = TC_ROLE_MASTER;
		model->tensors[layer->master].of = layer->param;
	}
	layer->moment = add_tensor(model, TC_OPTIMIZER_STATE, 2 * bytes, true);
	model->tensors[layer->moment].role = TC_ROLE_EXP_AVG;
	model->tensors[layer->moment].of = layer->param;
	layer->buffer = TC_NONE;
	if (test_random_below(state, 2) == 0)
		layer->buffer = add_tensor(model, TC_BUFFER, 32, true);
	layer->activation = add_tensor(model, TC_ACTIVATION, 48, false);
	layer->gradient = add_tensor(model, TC_GRAD, bytes, false);
	model->tensors[layer->gradient].of = layer->param;
	layer->upstream = add_tensor(model, TC_TEMP, 48, false);
	layer->statistic = add_tensor(model, TC_TEMP, 16, false);
}

/** Reads parameter, buffer and the layer below; the buffer is written in place, its second half
 * only; the first op gathers a part of its parameter. */
static void add_forward(struct oracle_model *model, uint32_t l)
{
	const struct oracle_layer *layer = &model->layers[l];
	uint32_t below = l == 0 ? model->input : model->layers[l - 1].activation;
	struct tc_op *op = add_op(model, TC_FORWARD);
	list_add(model, &op->reads, layer->param);
	list_add(model, &op->reads, below);
	if (layer->buffer != TC_NONE)
		list_add(model, &op->reads, layer->buffer);
	list_add(model, &op->writes, layer->activation);
	if (layer->buffer != TC_NONE)
		list_add(model, &op->writes, layer->buffer);
	list_add(model, &op->allocates, layer->activation);
	if (l == 0) {
		struct tc_range *parts = &model->ranges[model->range_count];
		for (uint32_t r = 0; r < op->reads.count; r++)
			parts[r] = (struct tc_range){0, model->tensors[op->reads.items[r]].bytes};
		parts[0] = (struct tc_range){16, model->tensors[layer->param].bytes - 16};
		model->range_count += op->reads.count;
		op->read_ranges = parts;
	}
	if (layer->buffer != TC_NONE) {
		struct tc_range *parts = &model->ranges[model->range_count];
		parts[0] = (struct tc_range){0, model->tensors[layer->activation].bytes};
		parts[1] = (struct tc_range){16, 16};
		model->range_count += 2;
		op->write_ranges = parts;
	}
	if (l == 1)
		op->workspace = 32;
}

/** Three ops: the layer's own gradient, what the layer below needs, and a statistic. */
static void add_backward(struct oracle_model *model, uint32_t l)
{
	const struct oracle_layer *layer = &model->layers[l];
	uint32_t above = l + 1 == model->layer_count ? TC_NONE : model->layers[l + 1].upstream;
	uint32_t below = l == 0 ? model->input : model->layers[l - 1].activation;
	struct tc_op *op = add_op(model, TC_BACKWARD);
	list_add(model, &op->reads, above == TC_NONE ? layer->activation : above);
	list_add(model, &op->reads, below);
	list_add(model, &op->writes, layer->gradient);
	list_add(model, &op->allocates, layer->gradient);
	op = add_op(model, TC_BACKWARD);
	list_add(model, &op->reads, layer->param);
	list_add(model, &op->reads, above == TC_NONE ? layer->activation : above);
	list_add(model, &op->writes, layer->upstream);
	list_add(model, &op->allocates, layer->upstream);
	list_add(model, &op->frees, layer->activation);
	op = add_op(model, TC_BACKWARD);
	list_add(model, &op->reads, layer->upstream);
	list_add(model, &op->writes, layer->statistic);
	list_add(model, &op->allocates, layer->statistic);
}

static void add_optimizer(struct oracle_model *model, uint32_t l)
{
	const struct oracle_layer *layer = &model->layers[l];
	uint32_t master = layer->master == TC_NONE ? layer->param : layer->master;
	struct tc_op *op = add_op(model, TC_OPTIMIZER);
	list_add(model, &op->reads, layer->gradient);
	list_add(model, &op->reads, master);
	list_add(model, &op->reads, layer->moment);
	/* Before or after its master: an op has no order inside. */
	if (master != layer->param && l % 2 == 0)
		list_add(model, &op->writes, layer->param);
	list_add(model, &op->writes, master);
	list_add(model, &op->writes, layer->moment);
	if (master != layer->param && l % 2 == 1)
		list_add(model, &op->writes, layer->param);
	list_add(model, &op->frees, layer->gradient);
}

struct oracle_model *oracle_model_new(uint64_t seed, bool masters)
{
	struct oracle_model *model = calloc(1, sizeof *model);
	if (model == NULL)
		abort();
	uint64_t state = seed;
	model->layer_count = 2 + (uint32_t)test_random_below(&state, ORACLE_LAYERS - 1);
	model->trace.tensors = model->tensors;
	model->trace.ops = model->ops;
	model->trace.name = "oracle";
	model->trace.file_name = "oracle";
	memset(model->trace.sha256, 'a', 64);
	memset(model->trace.events_sha256, 'b', 64);
	model->input = add_tensor(model, TC_INPUT, 48, true);
	model->counter = add_tensor(model, TC_OPTIMIZER_STATE, 16, true);
	model->tensors[model->counter].role = TC_ROLE_OTHER;
	for (uint32_t l = 0; l < model->layer_count; l++)
		add_layer_tensors(model, &state, l, masters);
	for (uint32_t l = 0; l < model->layer_count; l++)
		add_forward(model, l);
	for (uint32_t l = model->layer_count; l-- > 0;)
		add_backward(model, l);
	/* Norm of the gradients: absorbed by the CPU's update. */
	struct tc_op *norm = add_op(model, TC_OPTIMIZER);
	for (uint32_t l = 0; l < model->layer_count; l++)
		list_add(model, &norm->reads, model->layers[l].gradient);
	model->first_update = model->trace.op_count;
	for (uint32_t l = 0; l < model->layer_count; l++)
		add_optimizer(model, l);
	struct tc_op *count = add_op(model, TC_OPTIMIZER);
	list_add(model, &count->reads, model->counter);
	list_add(model, &count->writes, model->counter);
	return model;
}

void oracle_model_free(struct oracle_model *model)
{
	free(model);
}

const struct tc_trace *oracle_model_trace(const struct oracle_model *model)
{
	return &model->trace;
}
