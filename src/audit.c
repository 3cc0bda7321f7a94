/*
 * The auditor: a sink that walks a schedule once and proves it safe, or says where it is not.
 * Clocks in audit_clock.c, content in audit_map.c, accesses in audit_access.c, and each kind of
 * command in audit_walk.c and audit_work.c; which op when in audit_order.c.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit_state.h"
#include "schedule_check.h"

/** Who is at fault: the command at hand, or the plan as a whole. */
static int describe_command(const struct tc_audit *audit, char *text, size_t bytes)
{
	const struct tc_command *command = audit->command;
	if (command == NULL)
		return snprintf(text, bytes, "plan: ");
	const char *kind = tc_command_kind_name(command->kind);
	if (command->iteration == TC_ITERATION_INIT)
		return snprintf(text, bytes,
		                "command %llu (%s, init): ", (unsigned long long)command->id, kind);
	return snprintf(text, bytes, "command %llu (%s, iteration %u, step %u): ",
	                (unsigned long long)command->id, kind, command->iteration, command->step);
}

void tci_audit_report(struct tc_audit *audit, const char *format, ...)
{
	struct tc_audit_report *report = &audit->report;
	if (report->findings++ >= TCI_AUDIT_SHOWN)
		return;
	char line[512];
	int used = describe_command(audit, line, sizeof line);
	if (used < 0)
		return;
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
	va_end(arguments);
	size_t room = sizeof report->first - audit->text_used;
	int written = snprintf(report->first + audit->text_used, room, "%s%s",
	                       audit->text_used > 0 ? "\n" : "", line);
	if (written > 0)
		audit->text_used += (size_t)written < room ? (size_t)written : room - 1;
}

/** What the sink returns after a record. */
static enum tc_status verdict(const struct tc_audit *audit, struct tc_error *error)
{
	if (audit->out_of_memory)
		return tc_error_no_memory(error, "the auditor", sizeof(struct tci_segment));
	if (audit->stop && audit->report.findings > 0)
		return tc_error_set(error, TC_UNSAFE, "unsafe schedule: %s", audit->report.first);
	return TC_OK;
}

static enum tc_status audit_begin(void *self, const struct tc_plan_info *info,
                                  struct tc_error *error)
{
	struct tc_audit *audit = self;
	if (info->trace == NULL)
		return tc_error_set(
		    error, TC_ARGUMENT,
		    "the auditor needs the trace that the schedule was planned from, "
		    "since versions come from it; give the trace file");
	if (audit->info != NULL)
		return tc_error_set(error, TC_ARGUMENT,
		                    "an auditor takes one plan only; create another one");
	TC_TRY(tci_plan_info_check(info, error));
	audit->info = info;
	TC_TRY(tci_audit_begin_tables(audit, error));
	return verdict(audit, error);
}

static void walk(struct tc_audit *audit)
{
	switch (audit->command->kind) {
	case TC_FETCH:
	case TC_LOAD:
	case TC_EVICT:
	case TC_SPILL:
	case TC_PUBLISH:
	case TC_GRADIENT:
		tci_audit_move(audit);
		break;
	case TC_COMPUTE:
		tci_audit_compute(audit);
		break;
	case TC_UPDATE:
		tci_audit_update(audit);
		break;
	case TC_CONVERT:
		tci_audit_convert(audit);
		break;
	case TC_DROP:
		tci_audit_drop(audit);
		break;
	case TC_WAIT:
	case TC_ALLOC:
	case TC_COMMAND_KIND_COUNT:
		break;
	}
}

static bool has_work(enum tc_command_kind kind)
{
	return kind == TC_COMPUTE || kind == TC_UPDATE || kind == TC_CONVERT;
}

/** A command that fails its own check is counted once and then left out: what it would do is
 * unknown. Its place in the order stays. */
static enum tc_status audit_command(void *self, const struct tc_command *command,
                                    struct tc_error *error)
{
	struct tc_audit *audit = self;
	uint64_t id = audit->report.commands++;
	audit->command = command;
	audit->scratch.status = TC_OK;
	struct tci_sizes sizes = {&audit->tensors->bytes,
	                          sizeof *audit->tensors / sizeof audit->tensors->bytes};
	bool sound =
	    tci_command_check_sized(audit->info, sizes, command, id, &audit->scratch) == TC_OK;
	if (!sound)
		tci_audit_report(audit, "%s", audit->scratch.text);
	uint32_t lane = 0;
	if ((unsigned)command->queue < TC_QUEUE_COUNT &&
	    command->lane < audit->info->lanes[command->queue])
		lane = audit->first_lane[command->queue] + command->lane;
	if (!tci_clocks_issue(&audit->clocks, lane, command->deps, command->dep_count,
	                      command->queue == TC_QUEUE_HOST))
		audit->out_of_memory = true;
	audit->report.peak_clocks = audit->clocks.peak_slots;
	if (sound && !audit->out_of_memory) {
		audit->lane = lane;
		audit->mark = id + 1;
		tci_audit_iteration(audit, command->iteration);
		if (has_work(command->kind) && !tci_audit_bind_all(audit))
			audit->out_of_memory = true;
		else
			walk(audit);
	}
	audit->command = NULL;
	return verdict(audit, error);
}

static enum tc_status audit_end(void *self, const struct tc_plan_end *end, struct tc_error *error)
{
	struct tc_audit *audit = self;
	struct tc_error found = {0};
	if (tci_plan_end_check(audit->info, end, audit->report.commands, &found) != TC_OK) {
		tci_audit_report(audit, "%s", found.text);
		return verdict(audit, error);
	}
	tci_audit_iteration_done(audit);
	if (audit->iterations_begun != audit->info->iterations)
		tci_audit_report(audit, "found %u iterations, expected %u", audit->iterations_begun,
		                 audit->info->iterations);
	TC_TRY(tci_audit_final(audit, end, error));
	return verdict(audit, error);
}

enum tc_status tc_audit_create(bool stop, struct tc_audit **audit, struct tc_error *error)
{
	*audit = calloc(1, sizeof **audit);
	if (*audit == NULL)
		return tc_error_no_memory(error, "an auditor", sizeof **audit);
	(*audit)->stop = stop;
	return TC_OK;
}

struct tc_sink tc_audit_sink(struct tc_audit *audit)
{
	return (struct tc_sink){audit, audit_begin, audit_command, audit_end};
}

const struct tc_audit_report *tc_audit_result(const struct tc_audit *audit)
{
	return &audit->report;
}

void tc_audit_free(struct tc_audit *audit)
{
	if (audit == NULL)
		return;
	tci_audit_clear_tables(audit);
	free(audit);
}
