/** @file replay_run.c
 * tencache-replay run: plan or read a schedule, predict it, run it, compare.
 *
 * SIGINT and SIGTERM are blocked and taken by a thread of their own, which asks the replay to stop;
 * the program then cleans up as after any other failure.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "calibrate.h"
#include "folders.h"
#include "replay_session.h"
#include "tencache/units.h"
#include "verbs.h"
#include "verbs_replay.h"

/* ---------------------------------------------------------------- signals */

struct watcher {
	pthread_t thread;
	sigset_t signals, before;
	pthread_mutex_t mutex;
	struct tc_replay *replay; /**< NULL: none to stop */
	atomic_int caught;
	bool running;
};

static void *watch(void *argument)
{
	struct watcher *watcher = argument;
	int signal = 0;
	/* sigwait() is where pthread_cancel() ends this thread. */
	if (sigwait(&watcher->signals, &signal) != 0)
		return NULL;
	atomic_store(&watcher->caught, signal);
	pthread_mutex_lock(&watcher->mutex);
	if (watcher->replay != NULL)
		tc_replay_cancel(watcher->replay);
	pthread_mutex_unlock(&watcher->mutex);
	return NULL;
}

static enum tc_status watch_begin(struct watcher *watcher, struct tc_error *error)
{
	(void)sigemptyset(&watcher->signals);
	(void)sigaddset(&watcher->signals, SIGINT);
	(void)sigaddset(&watcher->signals, SIGTERM);
	(void)pthread_mutex_init(&watcher->mutex, NULL);
	(void)pthread_sigmask(SIG_BLOCK, &watcher->signals, &watcher->before);
	int failed = pthread_create(&watcher->thread, NULL, watch, watcher);
	watcher->running = failed == 0;
	return failed == 0 ? TC_OK
	                   : tc_error_set(error, TC_NO_MEMORY, "cannot start a thread: %s",
	                                  strerror(failed));
}

static void watch_replay(struct watcher *watcher, struct tc_replay *replay)
{
	pthread_mutex_lock(&watcher->mutex);
	watcher->replay = replay;
	if (replay != NULL && atomic_load(&watcher->caught) != 0)
		tc_replay_cancel(replay);
	pthread_mutex_unlock(&watcher->mutex);
}

/** For those who take long before there is a replay to stop. */
static bool was_stopped(void *self)
{
	struct watcher *watcher = self;
	return atomic_load(&watcher->caught) != 0;
}

static void watch_end(struct watcher *watcher)
{
	if (watcher->running) {
		(void)pthread_cancel(watcher->thread);
		(void)pthread_join(watcher->thread, NULL);
	}
	(void)pthread_sigmask(SIG_SETMASK, &watcher->before, NULL);
	pthread_mutex_destroy(&watcher->mutex);
}

/* ---------------------------------------------------------------- the run */

static enum tc_status predict(struct tci_session *session, struct tc_error *error)
{
	TC_TRY(tci_outcome_create(session, &session->predicted, "predicted", error));
	struct tc_timing_sink sink = tci_outcome_sink(&session->predicted);
	TC_TRY(tc_replay_predict(session->schedule, session->machine, session->options.throttle,
	                         &sink, error));
	return tci_outcome_finish(session, &session->predicted, error);
}

static void progress(const struct tci_session *session, uint32_t iteration)
{
	uint32_t count = session->iterations + 2;
	if (session->options.common.quiet || isatty(STDERR_FILENO) == 0)
		return;
	if (iteration < count)
		fprintf(stderr, "\r\033[K[iteration %u of %u]", iteration + 1, count);
	else
		fprintf(stderr, "\r\033[K");
	(void)fflush(stderr);
}

static enum tc_status advance(struct tci_session *session, struct tc_replay *replay,
                              struct tc_error *error)
{
	enum tc_status status = TC_OK;
	uint32_t count = session->iterations + 2;
	for (uint32_t iteration = 0; iteration < count && status == TC_OK; iteration++) {
		progress(session, iteration);
		if (iteration + 1 < count)
			status = tc_replay_advance(replay, iteration + 1, 0, error);
		else
			status = tc_replay_finish(replay, error);
	}
	progress(session, count);
	return status;
}

static enum tc_status measure(struct tci_session *session, struct watcher *watcher,
                              struct tc_error *error)
{
	const struct tci_replay_options *options = &session->options;
	struct tc_replay *replay;
	TC_TRY(tci_outcome_create(session, &session->measured, "measured", error));
	struct tc_timing_sink sink = tci_outcome_sink(&session->measured);
	struct tc_replay_options replay_options = {
	    .schedule = session->schedule,
	    .storage_options = {.directories = options->directories,
	                        .directory_count = options->directory_count,
	                        .depth = (uint32_t)options->depth,
	                        .block_bytes = options->block_bytes,
	                        .direct = !options->buffered,
	                        .cancelled = was_stopped,
	                        .cancelled_self = watcher},
	    .verify = options->verify,
	    .compute = options->compute,
	    .throttle = options->throttle ? session->machine : NULL,
	    .machine = session->machine,
	    .dilate = options->dilate,
	    .cpu_threads = options->threads,
	    .timing = &sink};
	TC_TRY(tc_device_find(options->device, &replay_options.device, error));
	TC_TRY(tc_storage_find(options->storage, &replay_options.storage, error));
	TC_TRY(tc_replay_create(&replay_options, &replay, error));
	watch_replay(watcher, replay);
	enum tc_status status = advance(session, replay, error);
	if (status == TC_OK)
		status = tci_outcome_finish(session, &session->measured, error);
	session->facts = *tc_replay_facts(replay);
	watch_replay(watcher, NULL);
	tc_replay_free(replay);
	return status;
}

static enum tc_status print(struct tci_session *session, struct tc_error *error)
{
	if (session->options.common.json)
		TC_TRY(tci_session_print_json(stdout, session, error));
	else
		TC_TRY(tci_session_print(stdout, session, error));
	if (fflush(stdout) != 0 || ferror(stdout) != 0)
		return tc_error_set(error, TC_IO, "cannot write the report to standard output");
	return TC_OK;
}

/** Was anything of the machine measured by `calibrate`, here or elsewhere? */
static bool is_measured(const struct tc_machine *machine)
{
	size_t count;
	const struct tc_machine_value *values = tc_machine_values(machine, &count);
	for (size_t i = 0; i < count; i++)
		if (strncmp(values[i].source, TCI_MEASURED, strlen(TCI_MEASURED)) == 0)
			return true;
	return false;
}

static void warn(const struct tci_session *session)
{
	const struct tc_replay_facts *facts = &session->facts;
	char text[TC_UNIT_TEXT_BYTES], run[TC_UNIT_TEXT_BYTES];
	if (session->options.common.quiet)
		return;
	if (!session->options.throttle && !is_measured(session->machine))
		fprintf(stderr,
		        "tencache-replay: the prediction is for %s, the measurement is this "
		        "computer as fast as it goes: pace it with --throttle, or describe this "
		        "computer with `tencache-replay calibrate` and name that with --machine\n",
		        session->machine->name);
	else if (!session->options.throttle && facts->verify_ps > facts->run_ps / 20)
		fprintf(stderr,
		        "tencache-replay: times include looking at content and leaving it, %s of "
		        "thread time in a run of %s; the prediction does not: --verify off "
		        "measures without\n",
		        tc_format_ps(facts->verify_ps, text), tc_format_ps(facts->run_ps, run));
	/* A percent of the run: below it, waiting lanes make up for it. */
	if (session->options.throttle && facts->overrun_ps > facts->run_ps / 100)
		fprintf(
		    stderr,
		    "tencache-replay: --dilate is too small: looking at content made %llu compute "
		    "commands longer, by %s in all; use more than --dilate %llu%s\n",
		    (unsigned long long)facts->overrun_commands,
		    tc_format_ps(facts->overrun_ps, text),
		    (unsigned long long)session->options.dilate,
		    session->options.verify == TC_VERIFY_FULL ? ", --verify sample or --verify off"
		                                              : " or --verify off");
	if (strcmp(facts->storage.backend, "sync") == 0 &&
	    strcmp(session->options.storage, "auto") == 0)
		fprintf(stderr, "tencache-replay: io_uring was not used: %s\n",
		        facts->storage.detail);
}

static enum tc_status run(struct tci_session *session, struct watcher *watcher,
                          struct tc_error *error)
{
	TC_TRY(tci_session_load(session, error));
	TC_TRY(predict(session, error));
	if (atomic_load(&watcher->caught) != 0)
		return tc_error_set(error, TC_IO, "stopped before the replay began");
	TC_TRY(tci_folders_make(session->options.directories, session->options.directory_count,
	                        error));
	TC_TRY(measure(session, watcher, error));
	warn(session);
	TC_TRY(print(session, error));
	if (session->timeline != NULL)
		TC_TRY(tc_timeline_finish(session->timeline, error));
	return TC_OK;
}

/** @return TCI_EXIT_OK, or TCI_EXIT_CHECK where --check is not kept */
static int check(const struct tci_session *session)
{
	uint64_t ratio = tci_session_ratio_ppm(session);
	uint64_t apart = ratio > 1000000 ? ratio - 1000000 : 1000000 - ratio;
	if (!session->options.check || apart <= session->options.check_ppm)
		return TCI_EXIT_OK;
	(void)fprintf(stderr,
	              "tencache-replay: check failed: measured and predicted iteration time differ "
	              "by %llu.%02llu %%, --check allows %llu.%02llu %%\n",
	              (unsigned long long)apart / 10000, (unsigned long long)apart / 100 % 100,
	              (unsigned long long)session->options.check_ppm / 10000,
	              (unsigned long long)session->options.check_ppm / 100 % 100);
	return TCI_EXIT_CHECK;
}

static int fail(const struct tc_error *error, int signal)
{
	if (signal != 0) {
		(void)fprintf(stderr, "tencache-replay: stopped by %s: %s\n",
		              signal == SIGINT ? "SIGINT" : "SIGTERM", error->text);
		return TCI_EXIT_FAILED;
	}
	(void)fprintf(stderr, "tencache-replay: %s\n", error->text);
	return tci_exit_code(error->status);
}

int tci_replay_run(int argc, char **argv)
{
	struct tci_session session = {.iterations = 0};
	struct watcher watcher = {.replay = NULL};
	struct tc_error error = {0};
	int code = TCI_EXIT_OK;
	enum tc_status status = tci_replay_options_parse(argc, argv, &session.options, &error);
	if (status == TC_OK && session.options.common.help) {
		tci_replay_run_help();
	} else if (status == TC_OK) {
		status = watch_begin(&watcher, &error);
		if (status == TC_OK)
			status = run(&session, &watcher, &error);
		watch_end(&watcher);
		if (status == TC_OK)
			code = check(&session);
	}
	if (status != TC_OK)
		code = fail(&error, atomic_load(&watcher.caught));
	tci_session_clear(&session);
	return code;
}
