/** @file replay_json.c
 * Predicted and measured as one JSON document; the two results have the keys of src/REPORT.md.
 */
#include "replay_session.h"

#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "print.h"
#include "tencache/units.h"

static void set(json_t *object, const char *key, uint64_t value)
{
	(void)json_object_set_new(
	    object, key,
	    json_integer((json_int_t)(value <= TC_MAX_JSON_INTEGER ? value : TC_MAX_JSON_INTEGER)));
}

static json_t *summary_json(const struct tci_queue_summary *summary)
{
	json_t *object = json_object(), *latency = json_object();
	uint64_t rate = 0, busy = 0;
	(void)tc_mul_div_floor(summary->bytes, TC_PS_PER_S, summary->busy_ps, &rate);
	(void)tc_mul_div_half_even(summary->busy_ps, 1000000, summary->window_ps, &busy);
	set(object, "commands", summary->commands);
	set(object, "bytes", summary->bytes);
	set(object, "busy_ps", summary->busy_ps);
	set(object, "busy_ppm", busy);
	set(object, "bytes_per_s", rate);
	set(latency, "p50", summary->p50_ps);
	set(latency, "p95", summary->p95_ps);
	set(latency, "p99", summary->p99_ps);
	set(latency, "max", summary->max_ps);
	(void)json_object_set_new(object, "latency_ps", latency);
	return object;
}

static json_t *queues_json(struct tci_queue_stats *stats)
{
	json_t *object = json_object();
	for (int queue = 0; queue < TC_QUEUE_COUNT; queue++) {
		struct tci_queue_summary summary = tci_queue_stats_of(stats, (enum tc_queue)queue);
		if (summary.commands > 0)
			(void)json_object_set_new(object, tc_queue_name((enum tc_queue)queue),
			                          summary_json(&summary));
	}
	return object;
}

static json_t *outcome_json(const struct tci_session *session, const struct tci_outcome *outcome)
{
	const struct tci_document document = {.trace = session->trace,
	                                      .machine = session->machine,
	                                      .steps = session->steps,
	                                      .iterations = session->iterations};
	json_t *object =
	    session->policy != NULL ? tci_result_json(&document, &outcome->result) : json_object();
	const struct tc_result *result = &outcome->result;
	if (session->policy == NULL) {
		json_t *stalls = json_object();
		set(object, "iteration_ps", result->iteration_ps);
		set(object, "cold_iteration_ps", result->cold_iteration_ps);
		set(object, "compute_ps", result->compute_ps);
		set(object, "stall_ps", result->stall_ps);
		for (int cause = 0; cause < TC_STALL_CAUSE_COUNT; cause++)
			set(stalls, tc_stall_cause_name((enum tc_stall_cause)cause),
			    result->stalls_ps[cause]);
		(void)json_object_set_new(object, "stalls_ps", stalls);
	}
	(void)json_object_set_new(object, "queues", queues_json(outcome->stats));
	return object;
}

static json_t *facts_json(const struct tci_session *session)
{
	const struct tc_replay_facts *facts = &session->facts;
	static const char *const verify[] = {"off", "sample", "full"};
	json_t *object = json_object();
	(void)json_object_set_new(object, "verify", json_string(verify[session->options.verify]));
	set(object, "verified_bytes", facts->verified_bytes);
	set(object, "verify_ps", facts->verify_ps);
	set(object, "setup_ps", facts->setup_ps);
	set(object, "pin_ps", facts->pin_ps);
	set(object, "file_ps", facts->file_ps);
	set(object, "run_ps", facts->run_ps);
	set(object, "cpu_ps", facts->cpu_ps);
	set(object, "overrun_commands", facts->overrun_commands);
	set(object, "overrun_ps", facts->overrun_ps);
	set(object, "bounced_bytes", facts->bounced_bytes);
	return object;
}

static json_t *storage_json(const struct tc_storage_facts *facts)
{
	json_t *object = json_object();
	(void)json_object_set_new(object, "backend", json_string(facts->backend));
	(void)json_object_set_new(object, "detail", json_string(facts->detail));
	set(object, "retries", facts->retries);
	set(object, "short_transfers", facts->short_transfers);
	return object;
}

static json_t *computer_json(void)
{
	struct utsname name;
	json_t *object = json_object();
	if (uname(&name) == 0) {
		(void)json_object_set_new(object, "system", json_string(name.sysname));
		(void)json_object_set_new(object, "release", json_string(name.release));
		(void)json_object_set_new(object, "architecture", json_string(name.machine));
	}
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	set(object, "cores", cores > 0 ? (uint64_t)cores : 0);
	return object;
}

static json_t *session_json(struct tci_session *session)
{
	const struct tc_plan_info *info = &session->schedule->info;
	json_t *root = json_object();
	const char *name = info->trace_name != NULL ? info->trace_name : "";
	(void)json_object_set_new(root, "format", json_string("tencache-replay"));
	(void)json_object_set_new(root, "version", json_integer(1));
	(void)json_object_set_new(root, "trace",
	                          json_pack("{s:s, s:s}", "name", name, "sha256",
	                                    info->trace_sha256 != NULL ? info->trace_sha256 : ""));
	(void)json_object_set_new(root, "machine",
	                          json_pack("{s:s, s:s}", "name", session->machine->name, "sha256",
	                                    session->machine->sha256));
	(void)json_object_set_new(root, "policy", json_string(info->policy));
	(void)json_object_set_new(root, "device", json_string(session->options.device));
	(void)json_object_set_new(root, "throttle", json_boolean(session->options.throttle));
	set(root, "scale", info->scale);
	set(root, "dilate", session->options.dilate);
	set(root, "iterations", session->iterations);
	set(root, "ratio_ppm", tci_session_ratio_ppm(session));
	set(root, "cpu_ns_per_gb", tci_session_cpu_ns_per_gb(session));
	(void)json_object_set_new(root, "predicted", outcome_json(session, &session->predicted));
	(void)json_object_set_new(root, "measured", outcome_json(session, &session->measured));
	(void)json_object_set_new(root, "run", facts_json(session));
	(void)json_object_set_new(root, "storage", storage_json(&session->facts.storage));
	(void)json_object_set_new(root, "computer", computer_json());
	return root;
}

enum tc_status tci_session_print_json(FILE *out, struct tci_session *session,
                                      struct tc_error *error)
{
	json_t *root = session_json(session);
	enum tc_status status = tci_print_json_value(out, root, 1, error);
	json_decref(root);
	if (status == TC_OK && ferror(out) != 0)
		return tc_error_set(error, TC_IO, "cannot write the report");
	return status;
}
