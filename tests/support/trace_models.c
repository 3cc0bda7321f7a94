/* Regular and random models: see trace_builder.h for what their ops read and write. */
#include "trace_builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

/** What the generator remembers about one parameter and one leaf module. */
struct param {
	uint32_t tensor, grad, master, exp_avg, exp_avg_sq;
};

struct leaf {
	uint32_t module;
	uint32_t first_param, param_count; /* indexes into params */
	uint32_t input, output;            /* tensors; renewed by a recomputation */
};

struct generator {
	struct test_builder *b;
	struct test_model model;
	struct param *params;
	uint32_t param_count;
	struct leaf *leaves;
	uint32_t leaf_count;
	uint32_t *containers;     /* one module per layer */
	uint32_t head, head_grad; /* tied head: module, its part of the first gradient */
	uint32_t gradient;        /* of the newest output, flowing backwards */
	uint64_t random;
};

static void *array_of(size_t count, size_t bytes)
{
	void *items = calloc(count + 1, bytes);
	if (items == NULL) {
		fprintf(stderr, "trace_models: out of memory\n");
		abort();
	}
	return items;
}

static void event(struct generator *g, enum tc_event_kind kind, uint32_t subject)
{
	if (!g->model.no_events)
		test_add_event(g->b, kind, subject);
}

static bool chance(struct generator *g, uint64_t one_in)
{
	return g->model.seed != 0 && test_random_below(&g->random, one_in) == 0;
}

static struct test_op *op(struct generator *g, enum tc_phase phase, uint32_t module, uint64_t us)
{
	uint32_t id = test_add_op(g->b, phase, module, TEST_NO_IDS, TEST_NO_IDS);
	struct test_op *added = test_op(g->b, id);
	added->us = us;
	return added;
}

static uint32_t tensor(struct generator *g, enum tc_tensor_kind kind, uint64_t bytes)
{
	uint32_t id = test_add_tensor(g->b, kind, bytes);
	if (g->model.half && kind != TC_OPTIMIZER_STATE && kind != TC_INPUT)
		test_tensor(g->b, id)->dtype = TC_FLOAT16;
	return id;
}

static void add_params(struct generator *g)
{
	const struct test_model *model = &g->model;
	test_add_tensor(g->b, TC_INPUT, model->activation_bytes);
	for (uint32_t i = 0; i < g->param_count; i++) {
		uint64_t bytes = model->param_bytes_count == 0
		                     ? 1024
		                     : model->param_bytes[i % model->param_bytes_count];
		g->params[i].tensor = tensor(g, TC_PARAM, bytes);
		snprintf(test_tensor(g->b, g->params[i].tensor)->name, 64, "param%u", i);
	}
}

static uint32_t add_state(struct generator *g, uint32_t param, enum tc_role role)
{
	uint64_t bytes = test_tensor(g->b, param)->bytes * (g->model.half ? 2 : 1);
	uint32_t id = tensor(g, TC_OPTIMIZER_STATE, bytes);
	test_tensor(g->b, id)->role = role;
	test_tensor(g->b, id)->of = param;
	return id;
}

static void add_states(struct generator *g)
{
	for (uint32_t i = 0; i < g->param_count && !g->model.no_optimizer; i++) {
		struct param *param = &g->params[i];
		if (g->model.half)
			param->master = add_state(g, param->tensor, TC_ROLE_MASTER);
		param->exp_avg = add_state(g, param->tensor, TC_ROLE_EXP_AVG);
		param->exp_avg_sq = add_state(g, param->tensor, TC_ROLE_EXP_AVG_SQ);
	}
}

static void name_gradient(struct generator *g, const struct param *param)
{
	struct test_tensor *grad = test_tensor(g->b, param->grad);
	grad->of = param->tensor;
	grad->eager_until_end = !g->model.no_optimizer;
	grad->persist = g->model.gradients == TEST_DROPPED ? -1 : 1;
}

static void add_persistent_gradients(struct generator *g)
{
	for (uint32_t i = 0; i < g->param_count && g->model.gradients != TEST_DROPPED; i++) {
		struct param *param = &g->params[i];
		param->grad = tensor(g, TC_GRAD, test_tensor(g->b, param->tensor)->bytes);
		name_gradient(g, param);
	}
}

static void add_leaf(struct generator *g, uint32_t layer, uint32_t index)
{
	uint32_t number = layer * g->model.modules_per_layer + index;
	struct leaf *leaf = &g->leaves[number];
	char path[64];
	snprintf(path, sizeof path, "layers.%u.leaf%u", layer, index);
	leaf->module = test_add_module(g->b, path, TEST_NO_IDS);
	leaf->param_count = g->model.params_per_module;
	leaf->first_param = number * g->model.params_per_module;
	struct test_module *module = &g->b->modules[leaf->module];
	module->layer = layer;
	for (uint32_t i = 0; i < leaf->param_count; i++) {
		struct test_tensor *param =
		    test_tensor(g->b, g->params[leaf->first_param + i].tensor);
		test_ids_add(&module->params, g->params[leaf->first_param + i].tensor);
		snprintf(param->name, sizeof param->name, "%.50s.p%u", path, i);
		param->layer = layer;
	}
}

static void add_modules(struct generator *g)
{
	test_add_module(g->b, "", TEST_NO_IDS);
	for (uint32_t layer = 0; layer < g->model.layers; layer++) {
		char path[64];
		snprintf(path, sizeof path, "layers.%u", layer);
		g->containers[layer] = test_add_module(g->b, path, TEST_NO_IDS);
		g->b->modules[g->containers[layer]].layer = layer;
		for (uint32_t i = 0; i < g->model.modules_per_layer; i++)
			add_leaf(g, layer, i);
	}
	if (g->model.tied_head)
		g->head = test_add_module(g->b, "head", TEST_IDS(g->params[0].tensor));
}

/** Random models read more than what their module owns: any parameter, any live activation. */
static void add_random_reads(struct generator *g, struct test_op *added, uint32_t leaf)
{
	if (g->param_count > 0 && chance(g, 4)) {
		uint32_t other = g->params[test_random_below(&g->random, g->param_count)].tensor;
		bool present = false;
		for (size_t i = 0; i < added->reads.count; i++)
			present = present || added->reads.items[i] == other;
		if (!present)
			test_ids_add(&added->reads, other);
	}
	if (!g->model.checkpoint && leaf > 1 && chance(g, 4))
		test_ids_add(&added->reads,
		             g->leaves[test_random_below(&g->random, leaf - 1)].output);
}

static void run_leaf(struct generator *g, uint32_t number, uint32_t input, bool again)
{
	struct leaf *leaf = &g->leaves[number];
	enum tc_phase phase = again ? TC_BACKWARD : TC_FORWARD;
	event(g, TC_EVENT_FORWARD_PRE, leaf->module);
	bool last = (number + 1) % g->model.modules_per_layer == 0;
	leaf->input = input;
	if (!(again && g->model.early_stop && last)) {
		leaf->output = tensor(g, TC_ACTIVATION, g->model.activation_bytes);
		struct test_op *added = op(g, phase, leaf->module, g->model.forward_us);
		added->recompute = again;
		added->op_class = TC_GEMM;
		for (uint32_t i = 0; i < leaf->param_count; i++)
			test_ids_add(&added->reads, g->params[leaf->first_param + i].tensor);
		test_ids_add(&added->reads, input);
		test_ids_add(&added->writes, leaf->output);
		add_random_reads(g, added, number);
	}
	event(g, TC_EVENT_FORWARD_POST, leaf->module);
}

static uint32_t run_layer(struct generator *g, uint32_t layer, uint32_t input, bool again)
{
	event(g, TC_EVENT_FORWARD_PRE, g->containers[layer]);
	for (uint32_t i = 0; i < g->model.modules_per_layer; i++) {
		uint32_t number = layer * g->model.modules_per_layer + i;
		run_leaf(g, number, input, again);
		input = g->leaves[number].output;
	}
	event(g, TC_EVENT_FORWARD_POST, g->containers[layer]);
	return input;
}

/** Zero all persistent gradients, whatever the last event is. */
static void zero_gradients(struct generator *g, enum test_gradients when)
{
	struct test_op *added = NULL;
	for (uint32_t i = 0; i < g->param_count && g->model.gradients == when; i++) {
		if (added == NULL || !g->model.zero_at_once)
			added = op(g, TC_ZERO_GRAD, TC_NONE, g->model.optimizer_us);
		if (g->model.zero_reads)
			test_ids_add(&added->reads, g->params[i].grad);
		test_ids_add(&added->writes, g->params[i].grad);
	}
}

static uint32_t run_forward(struct generator *g)
{
	event(g, TC_EVENT_START, TC_NONE);
	zero_gradients(g, TEST_ZEROED_FIRST);
	event(g, TC_EVENT_MICRO_BATCH, 0);
	event(g, TC_EVENT_FORWARD_PRE, 0);
	uint32_t output = 0;
	for (uint32_t layer = 0; layer < g->model.layers; layer++)
		output = run_layer(g, layer, output, false);
	if (g->model.tied_head) {
		event(g, TC_EVENT_FORWARD_PRE, g->head);
		struct test_op *added = op(g, TC_FORWARD, g->head, g->model.forward_us);
		test_ids_add(&added->reads, g->params[0].tensor);
		test_ids_add(&added->reads, output);
		output = tensor(g, TC_ACTIVATION, g->model.activation_bytes);
		test_ids_add(&added->writes, output);
		event(g, TC_EVENT_FORWARD_POST, g->head);
	}
	event(g, TC_EVENT_FORWARD_POST, 0);
	struct test_op *loss = op(g, TC_FORWARD, 0, g->model.forward_us);
	test_ids_add(&loss->reads, output);
	test_ids_add(&loss->writes, tensor(g, TC_TEMP, 4));
	return loss->writes.items[0];
}

static void backward_head(struct generator *g, uint32_t input)
{
	event(g, TC_EVENT_BACKWARD, g->head);
	struct test_op *added = op(g, TC_BACKWARD, g->head, g->model.backward_us);
	test_ids_add(&added->reads, g->gradient);
	test_ids_add(&added->reads, g->params[0].tensor);
	uint32_t arriving = g->gradient;
	g->gradient = tensor(g, TC_TEMP, g->model.activation_bytes);
	test_ids_add(&added->writes, g->gradient);
	added = op(g, TC_BACKWARD, g->head, g->model.backward_us);
	test_ids_add(&added->reads, arriving);
	test_ids_add(&added->reads, input);
	g->head_grad = tensor(g, TC_TEMP, test_tensor(g->b, g->params[0].tensor)->bytes);
	test_ids_add(&added->writes, g->head_grad);
}

/** Add `piece` to a gradient in place. */
static void accumulate(struct generator *g, const struct leaf *leaf, uint32_t grad, uint32_t piece)
{
	struct test_op *added = op(g, TC_BACKWARD, leaf->module, g->model.backward_us);
	test_ids_add(&added->reads, grad);
	test_ids_add(&added->reads, piece);
	test_ids_add(&added->writes, grad);
}

static void backward_params(struct generator *g, const struct leaf *leaf, uint32_t arriving)
{
	bool kept = g->model.gradients != TEST_DROPPED;
	for (uint32_t i = 0; i < leaf->param_count; i++) {
		struct param *param = &g->params[leaf->first_param + i];
		uint32_t made =
		    tensor(g, kept ? TC_TEMP : TC_GRAD, test_tensor(g->b, param->tensor)->bytes);
		if (!kept) {
			param->grad = made;
			name_gradient(g, param);
		}
		struct test_op *added = op(g, TC_BACKWARD, leaf->module, g->model.backward_us);
		test_ids_add(&added->reads, arriving);
		if (i == 0)
			test_ids_add(&added->reads, leaf->input);
		test_ids_add(&added->writes, made);
		if (kept)
			accumulate(g, leaf, param->grad, made);
		if (g->head_grad != TC_NONE && leaf->first_param + i == 0)
			accumulate(g, leaf, param->grad, g->head_grad);
	}
	for (uint32_t i = leaf->param_count; i-- > 0;)
		event(g, TC_EVENT_GRADIENT, g->params[leaf->first_param + i].tensor);
}

static void backward_leaf(struct generator *g, uint32_t number)
{
	const struct leaf *leaf = &g->leaves[number];
	uint32_t arriving = g->gradient;
	event(g, TC_EVENT_BACKWARD, leaf->module);
	if (number > 0) {
		struct test_op *added = op(g, TC_BACKWARD, leaf->module, g->model.backward_us);
		test_ids_add(&added->reads, arriving);
		if (leaf->param_count > 0)
			test_ids_add(&added->reads, g->params[leaf->first_param].tensor);
		test_ids_add(&added->reads, leaf->input);
		g->gradient = tensor(g, TC_TEMP, g->model.activation_bytes);
		test_ids_add(&added->writes, g->gradient);
		add_random_reads(g, added, number);
	}
	backward_params(g, leaf, arriving);
}

static void run_backward(struct generator *g, uint32_t loss)
{
	event(g, TC_EVENT_BACKWARD_START, TC_NONE);
	struct test_op *seed = op(g, TC_BACKWARD, TC_NONE, g->model.backward_us);
	test_ids_add(&seed->reads, loss);
	g->gradient = tensor(g, TC_TEMP, g->model.activation_bytes);
	test_ids_add(&seed->writes, g->gradient);
	event(g, TC_EVENT_BACKWARD, 0);
	g->head_grad = TC_NONE;
	if (g->model.tied_head)
		backward_head(g, g->leaves[g->leaf_count - 1].output);
	for (uint32_t layer = g->model.layers; layer-- > 0;) {
		uint32_t first = layer * g->model.modules_per_layer;
		event(g, TC_EVENT_BACKWARD, g->containers[layer]);
		if (g->model.checkpoint)
			run_layer(g, layer, g->leaves[first].input, true);
		for (uint32_t i = g->model.modules_per_layer; i-- > 0;)
			backward_leaf(g, first + i);
	}
}

static void run_norms(struct generator *g)
{
	for (uint32_t i = 0; i < g->param_count; i++) {
		event(g, TC_EVENT_NORM, g->params[i].tensor);
		struct test_op *added = op(g, TC_OPTIMIZER, TC_NONE, g->model.optimizer_us);
		added->op_class = TC_REDUCTION;
		test_ids_add(&added->reads, g->params[i].grad);
		test_ids_add(&added->writes, tensor(g, TC_TEMP, 4));
	}
	for (uint32_t i = 0; i < g->param_count && g->model.scale_in_place; i++) {
		struct test_op *added = op(g, TC_OPTIMIZER, TC_NONE, g->model.optimizer_us);
		test_ids_add(&added->reads, g->params[i].grad);
		test_ids_add(&added->writes, g->params[i].grad);
	}
}

static void run_optimizer(struct generator *g)
{
	if (g->model.clip)
		run_norms(g);
	for (uint32_t i = 0; i < g->param_count; i++) {
		const struct param *param = &g->params[i];
		uint32_t bucket = test_add_bucket(g->b, TEST_IDS(param->tensor));
		event(g, TC_EVENT_OPTIMIZER, bucket);
		struct test_op *added = op(g, TC_OPTIMIZER, TC_NONE, g->model.optimizer_us);
		snprintf(added->name, sizeof added->name, "optim.adamw");
		added->op_class = TC_OPTIMIZER_OP;
		test_ids_add(&added->reads, param->grad);
		const uint32_t states[] = {param->tensor, param->master, param->exp_avg,
		                           param->exp_avg_sq};
		for (size_t k = 0; k < 4; k++) {
			if (k == 1 && !g->model.half)
				continue;
			test_ids_add(&added->reads, states[k]);
			test_ids_add(&added->writes, states[k]);
		}
	}
}

static struct test_model with_defaults(const struct test_model *given)
{
	struct test_model model = *given;
	model.layers = model.layers == 0 ? 2 : model.layers;
	model.modules_per_layer = model.modules_per_layer == 0 ? 1 : model.modules_per_layer;
	model.params_per_module = model.params_per_module == 0 ? 1 : model.params_per_module;
	model.activation_bytes = model.activation_bytes == 0 ? 4096 : model.activation_bytes;
	return model;
}

struct test_builder *test_model_builder(const struct test_model *given)
{
	struct generator g = {.b = test_builder_new(), .model = with_defaults(given)};
	g.random = g.model.seed;
	g.leaf_count = g.model.layers * g.model.modules_per_layer;
	g.param_count = g.leaf_count * g.model.params_per_module;
	g.params = array_of(g.param_count, sizeof *g.params);
	g.leaves = array_of(g.leaf_count, sizeof *g.leaves);
	g.containers = array_of(g.model.layers, sizeof *g.containers);
	g.b->param_dtype = g.model.half ? TC_FLOAT16 : TC_FLOAT32;
	g.b->has_master = g.model.half;
	g.b->has_clip = g.model.clip;
	add_params(&g);
	add_states(&g);
	add_persistent_gradients(&g);
	add_modules(&g);
	run_backward(&g, run_forward(&g));
	if (!g.model.no_optimizer)
		run_optimizer(&g);
	zero_gradients(&g, TEST_ZEROED_LAST);
	event(&g, TC_EVENT_END, TC_NONE);
	test_fill_lifetimes(g.b);
	free(g.params);
	free(g.leaves);
	free(g.containers);
	return g.b;
}

struct tc_trace *test_model_trace(const struct test_model *model)
{
	struct test_builder *builder = test_model_builder(model);
	struct tc_trace *trace = test_builder_trace(builder);
	test_builder_free(builder);
	return trace;
}

/* ---------------------------------------------------------------- random */

static uint64_t up_to(uint64_t *random, uint64_t given, uint64_t usual)
{
	return 1 + test_random_below(random, given == 0 ? usual : given);
}

struct test_builder *test_random_builder(uint64_t seed, const struct test_limits *limits)
{
	uint64_t random = seed * 2 + 1, sizes[7];
	struct test_model model = {
	    .layers = (uint32_t)up_to(&random, limits->layers, 4),
	    .modules_per_layer = (uint32_t)up_to(&random, limits->modules_per_layer, 3),
	    .params_per_module = (uint32_t)up_to(&random, limits->params_per_module, 3),
	    .activation_bytes = 4 * up_to(&random, (limits->activation_bytes + 3) / 4, 16384),
	    .no_optimizer = limits->no_optimizer,
	    .no_events = limits->no_events,
	    .seed = test_random(&random) | 1,
	    .param_bytes = sizes,
	    .param_bytes_count = sizeof sizes / sizeof *sizes,
	};
	uint64_t size = 4 * up_to(&random, (limits->param_bytes + 3) / 4, 16384);
	for (size_t i = 0; i < model.param_bytes_count; i++)
		sizes[i] = limits->equal_sizes
		               ? size
		               : 4 * up_to(&random, (limits->param_bytes + 3) / 4, 16384);
	model.forward_us = test_random_below(&random, 100);
	model.backward_us = test_random_below(&random, 100);
	model.optimizer_us = test_random_below(&random, 100);
	model.half = !limits->equal_sizes && test_random_below(&random, 2) == 0;
	model.checkpoint = test_random_below(&random, 3) == 0;
	model.early_stop = test_random_below(&random, 2) == 0;
	model.tied_head = test_random_below(&random, 3) == 0;
	model.clip = test_random_below(&random, 4) == 0;
	if (limits->persistent_gradients) {
		model.gradients =
		    test_random_below(&random, 2) == 0 ? TEST_ZEROED_LAST : TEST_ZEROED_FIRST;
		model.zero_reads = test_random_below(&random, 3) == 0;
		model.zero_at_once = test_random_below(&random, 2) == 0;
		model.scale_in_place = test_random_below(&random, 2) == 0;
	}
	return test_model_builder(&model);
}

struct tc_trace *test_random_trace(uint64_t seed, const struct test_limits *limits)
{
	struct test_builder *builder = test_random_builder(seed, limits);
	struct tc_trace *trace = test_builder_trace(builder);
	test_builder_free(builder);
	return trace;
}
