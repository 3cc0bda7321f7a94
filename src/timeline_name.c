/**
 * @file timeline_name.c
 * What a command is called in a timeline: what it does, and the tensor or module it is about.
 */
#include <inttypes.h>
#include <stdio.h>

#include "timeline_parts.h"

/** Keep a cut name valid UTF-8: drop the bytes of a character that did not fit. */
static void trim(char *buffer)
{
	size_t length = 0, last = 0;
	for (; buffer[length] != '\0'; ++length)
		if (((unsigned char)buffer[length] & 0xC0u) != 0x80u)
			last = length;
	unsigned char lead = (unsigned char)buffer[last];
	size_t needed = lead < 0x80u ? 1u : lead < 0xE0u ? 2u : lead < 0xF0u ? 3u : 4u;
	if (length - last < needed)
		buffer[last] = '\0';
}

/** What a nameless tensor of a parameter is to it: "grad", "exp_avg". */
static const char *part_of_parameter(const struct tc_tensor *tensor)
{
	return tensor->role != TC_ROLE_NONE ? tc_role_name(tensor->role)
	                                    : tc_tensor_kind_name(tensor->kind);
}

/**
 * A tensor as people know it. One without a name goes by the parameter it belongs to
 * ("fc1.weight.grad"), a derived one called ".suffix" by its source, any other by kind and number.
 */
static void name_tensor(const struct tc_plan_info *info, uint32_t tensor, char *buffer,
                        size_t bytes)
{
	const char *suffix = "", *dot = "", *part = "";
	const struct tc_plan_tensor *found =
	    tensor < info->tensor_count ? &info->tensors[tensor] : NULL;
	if (found != NULL && found->name != NULL && found->name[0] == '.' &&
	    found->derived_from < info->tensor_count) {
		suffix = found->name;
		tensor = found->derived_from;
		found = &info->tensors[tensor];
	}
	if (found != NULL && (found->name == NULL || found->name[0] == '\0') &&
	    info->trace != NULL && tensor < info->trace->tensor_count &&
	    info->trace->tensors[tensor].of < info->tensor_count) {
		dot = ".";
		part = part_of_parameter(&info->trace->tensors[tensor]);
		found = &info->tensors[info->trace->tensors[tensor].of];
	}
	if (found != NULL && found->name != NULL && found->name[0] != '\0')
		(void)snprintf(buffer, bytes, "%s%s%s%s", found->name, dot, part, suffix);
	else
		(void)snprintf(buffer, bytes, "%s %" PRIu32 "%s",
		               found != NULL ? tc_tensor_kind_name(found->kind) : "tensor", tensor,
		               suffix);
	trim(buffer);
}

static void name_compute(const struct tc_plan_info *info, const struct tc_command *command,
                         char *buffer, size_t bytes)
{
	const struct tc_steps *steps = info->steps;
	if (steps == NULL || info->trace == NULL || command->step >= steps->step_count) {
		(void)snprintf(buffer, bytes, "%s step %" PRIu32, tc_phase_name(command->phase),
		               command->step);
		return;
	}
	const struct tc_step *step = &steps->steps[command->step];
	const char *where = info->trace->ops[step->first_op].name;
	if (step->module != TC_NONE && info->trace->modules[step->module].path[0] != '\0')
		where = info->trace->modules[step->module].path;
	(void)snprintf(buffer, bytes, "%s %s",
	               step->recompute ? "recomputed forward" : tc_phase_name(step->phase), where);
}

/** The parameters that its ops write: the first by name, the others by count. */
static void name_update(const struct tc_plan_info *info, const struct tc_command *command,
                        char *buffer, size_t bytes)
{
	const struct tc_trace *trace = info->trace;
	uint32_t first = TC_NONE;
	unsigned others = 0;
	if (trace != NULL && command->first_op != TC_NONE && command->last_op < trace->op_count) {
		for (uint32_t op = command->first_op; op <= command->last_op; ++op) {
			struct tc_ids writes = trace->ops[op].writes;
			for (uint32_t i = 0; i < writes.count; ++i) {
				if (trace->tensors[writes.items[i]].kind != TC_PARAM)
					continue;
				others += first != TC_NONE;
				first = first == TC_NONE ? writes.items[i] : first;
			}
		}
	}
	if (first == TC_NONE) {
		(void)snprintf(buffer, bytes, "update %" PRIu64 " parameters", command->elements);
		return;
	}
	char name[192];
	name_tensor(info, first, name, sizeof name);
	if (others == 0)
		(void)snprintf(buffer, bytes, "update %s", name);
	else
		(void)snprintf(buffer, bytes, "update %s and %u more", name, others);
}

void tci_timeline_name(const struct tc_plan_info *info, const struct tc_command *command,
                       char *buffer, size_t bytes)
{
	const char *kind = tc_command_kind_name(command->kind);
	char tensor[192];
	if (command->kind == TC_COMPUTE)
		name_compute(info, command, buffer, bytes);
	else if (command->kind == TC_UPDATE)
		name_update(info, command, buffer, bytes);
	else if (command->kind == TC_WAIT)
		(void)snprintf(buffer, bytes, "wait for %" PRIu32 " command%s", command->dep_count,
		               command->dep_count == 1 ? "" : "s");
	else if (command->tensor == TC_NONE)
		(void)snprintf(buffer, bytes, "%s", kind);
	else {
		name_tensor(info, command->tensor, tensor, sizeof tensor);
		(void)snprintf(buffer, bytes, "%s %s", kind, tensor);
	}
	trim(buffer);
}
