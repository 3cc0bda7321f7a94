/** @file replay_print.c
 * Predicted beside measured, as tables for people.
 */
#include "replay_session.h"

#include "tencache/units.h"
#include "text_table.h"

/** `+3.4 %` of the second value against the first. */
static void ratio_cell(struct tci_table *table, uint64_t predicted, uint64_t measured)
{
	uint64_t ppm;
	if (predicted == 0 || !tc_mul_div_half_even(measured, 1000000, predicted, &ppm)) {
		tci_table_cell(table, "%s", "");
		return;
	}
	uint64_t apart = ppm > 1000000 ? ppm - 1000000 : 1000000 - ppm;
	tci_table_cell(table, "%s%llu.%llu %%", ppm >= 1000000 ? "+" : "-",
	               (unsigned long long)apart / 10000, (unsigned long long)apart / 1000 % 10);
}

static void time_row(struct tci_table *table, const char *name, uint64_t predicted,
                     uint64_t measured)
{
	char left[TC_UNIT_TEXT_BYTES], right[TC_UNIT_TEXT_BYTES];
	if (predicted == 0 && measured == 0)
		return;
	tci_table_cell(table, "%s", name);
	tci_table_cell(table, "%s", tc_format_ps(predicted, left));
	tci_table_cell(table, "%s", tc_format_ps(measured, right));
	ratio_cell(table, predicted, measured);
}

static enum tc_status print_times(FILE *out, const struct tci_session *session,
                                  struct tc_error *error)
{
	const struct tc_result *p = &session->predicted.result, *m = &session->measured.result;
	struct tci_table table = {.alignment = "lrrr"};
	static const char *const head[] = {"one iteration", "predicted", "measured", "difference"};
	for (int i = 0; i < 4; i++)
		tci_table_cell(&table, "%s", head[i]);
	time_row(&table, "time (the last)", p->iteration_ps, m->iteration_ps);
	time_row(&table, "  shortest", p->iteration_min_ps, m->iteration_min_ps);
	time_row(&table, "  longest", p->iteration_max_ps, m->iteration_max_ps);
	time_row(&table, "cold iteration", p->cold_iteration_ps, m->cold_iteration_ps);
	for (int phase = 0; phase < TC_PHASE_COUNT; phase++)
		time_row(&table, tc_phase_name((enum tc_phase)phase), p->phases[phase].time_ps,
		         m->phases[phase].time_ps);
	time_row(&table, "compute", p->compute_ps, m->compute_ps);
	time_row(&table, "stall", p->stall_ps, m->stall_ps);
	for (int cause = 0; cause < TC_STALL_CAUSE_COUNT; cause++) {
		char name[48];
		(void)snprintf(name, sizeof name, "  %s",
		               tc_stall_cause_name((enum tc_stall_cause)cause));
		time_row(&table, name, p->stalls_ps[cause], m->stalls_ps[cause]);
	}
	enum tc_status status = tci_table_print(&table, out, error);
	tci_table_clear(&table);
	return status;
}

static void rate_cell(struct tci_table *table, const struct tci_queue_summary *summary)
{
	uint64_t rate;
	char text[TC_UNIT_TEXT_BYTES];
	if (summary->busy_ps > 0 && summary->bytes > 0 &&
	    tc_mul_div_floor(summary->bytes, TC_PS_PER_S, summary->busy_ps, &rate))
		tci_table_cell(table, "%s", tc_format_rate(rate, text));
	else
		tci_table_cell(table, "%s", "");
}

static void share_cell(struct tci_table *table, const struct tci_queue_summary *summary)
{
	uint64_t ppm;
	if (tc_mul_div_half_even(summary->busy_ps, 1000000, summary->window_ps, &ppm))
		tci_table_cell(table, "%llu.%llu %%", (unsigned long long)ppm / 10000,
		               (unsigned long long)ppm / 1000 % 10);
	else
		tci_table_cell(table, "%s", "");
}

static void queue_row(struct tci_table *table, struct tci_session *session, enum tc_queue queue)
{
	struct tci_queue_summary p = tci_queue_stats_of(session->predicted.stats, queue);
	struct tci_queue_summary m = tci_queue_stats_of(session->measured.stats, queue);
	char text[TC_UNIT_TEXT_BYTES];
	if (m.commands == 0)
		return;
	tci_table_cell(table, "%s", tc_queue_name(queue));
	tci_table_cell(table, "%llu", (unsigned long long)m.commands);
	tci_table_cell(table, "%s", m.bytes > 0 ? tc_format_bytes(m.bytes, text) : "");
	rate_cell(table, &p);
	rate_cell(table, &m);
	share_cell(table, &p);
	share_cell(table, &m);
	tci_table_cell(table, "%s", tc_format_ps(m.p50_ps, text));
	tci_table_cell(table, "%s", tc_format_ps(m.p95_ps, text));
	tci_table_cell(table, "%s", tc_format_ps(m.p99_ps, text));
	tci_table_cell(table, "%s", tc_format_ps(m.max_ps, text));
}

static enum tc_status print_queues(FILE *out, struct tci_session *session, struct tc_error *error)
{
	struct tci_table table = {.alignment = "lrrrrrrrrrr"};
	static const char *const head[] = {"queue",    "commands", "bytes",    "predicted",
	                                   "measured", "busy pr.", "busy me.", "p50",
	                                   "p95",      "p99",      "max"};
	for (int i = 0; i < 11; i++)
		tci_table_cell(&table, "%s", head[i]);
	for (int queue = 0; queue < TC_QUEUE_COUNT; queue++)
		queue_row(&table, session, (enum tc_queue)queue);
	enum tc_status status = tci_table_print(&table, out, error);
	tci_table_clear(&table);
	return status;
}

static void print_facts(FILE *out, const struct tci_session *session)
{
	const struct tc_replay_facts *facts = &session->facts;
	static const char *const verify[] = {"off", "sample", "full"};
	char a[TC_UNIT_TEXT_BYTES], b[TC_UNIT_TEXT_BYTES], c[TC_UNIT_TEXT_BYTES];
	fprintf(out, "content   verify %s: %s looked at in %s of thread time; no wrong byte\n",
	        verify[session->options.verify], tc_format_bytes(facts->verified_bytes, a),
	        tc_format_ps(facts->verify_ps, b));
	fprintf(out, "setup     %s (memory %s, files %s), outside every time above\n",
	        tc_format_ps(facts->setup_ps, a), tc_format_ps(facts->pin_ps, b),
	        tc_format_ps(facts->file_ps, c));
	fprintf(out, "run       %s, CPU %s, that is %s for each GB that links and drives moved\n",
	        tc_format_ps(facts->run_ps, a), tc_format_ps(facts->cpu_ps, b),
	        tc_format_ps(tci_session_cpu_ns_per_gb(session) * TC_PS_PER_NS, c));
	if (facts->storage.backend[0] != '\0')
		fprintf(out, "storage   %s: %s; %llu retries, %llu short transfers\n",
		        facts->storage.backend, facts->storage.detail,
		        (unsigned long long)facts->storage.retries,
		        (unsigned long long)facts->storage.short_transfers);
}

enum tc_status tci_session_print(FILE *out, struct tci_session *session, struct tc_error *error)
{
	const struct tc_plan_info *info = &session->schedule->info;
	fprintf(out, "%s, policy %s, machine %s, scale %llu, device %s%s",
	        info->trace_name != NULL ? info->trace_name : "schedule", info->policy,
	        session->machine->name, (unsigned long long)info->scale, session->options.device,
	        session->options.throttle ? ", throttled" : "");
	if (session->options.dilate > 1)
		fprintf(out, ", time stretched %llu times (shown divided)",
		        (unsigned long long)session->options.dilate);
	fprintf(out, "\n\n");
	TC_TRY(print_times(out, session, error));
	fprintf(out, "\n");
	TC_TRY(print_queues(out, session, error));
	fprintf(out, "\n");
	print_facts(out, session);
	return TC_OK;
}
