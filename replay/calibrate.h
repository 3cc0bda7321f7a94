/**
 * @file calibrate.h
 * `tencache-replay calibrate`: measures this machine and writes a machine description. What is
 * measured and how: replay/CALIBRATE.md.
 */
#ifndef TENCACHE_REPLAY_CALIBRATE_H
#define TENCACHE_REPLAY_CALIBRATE_H

/** How the source of each value begins that calibrate measured. */
#define TCI_MEASURED "measured by tencache-replay calibrate"

/** The verb: argv[0] is its name. @return an exit code */
int tci_replay_calibrate(int argc, char **argv);

#endif
