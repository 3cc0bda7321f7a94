/**
 * @file verbs_replay.h
 * The verbs of tencache-replay. Each takes its own argv (argv[0] is the verb's or program's name)
 * and returns an exit code (sim/verbs.h).
 */
#ifndef TENCACHE_REPLAY_VERBS_H
#define TENCACHE_REPLAY_VERBS_H

int tci_replay_run(int argc, char **argv);

#endif
