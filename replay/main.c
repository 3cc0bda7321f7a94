/* tencache-replay: its verbs. Each has a file of its own. */
#include "calibrate.h"
#include "dispatch.h"
#include "verbs_replay.h"

static const struct tci_verb verbs[] = {
    {"run", tci_replay_run, "replay one policy's schedule with real copies"},
    {"calibrate", tci_replay_calibrate, "measure this computer and write a machine description"},
};

static const struct tci_program program = {
    .name = "tencache-replay",
    .version = TENCACHE_VERSION,
    .headline = "runs an offloading schedule for real and compares with the prediction",
    .examples =
        "Examples:\n"
        "  tencache-replay --trace traces/opt13b.json --policy 10cache --device host \\\n"
        "      --nvme-dir ./nvme --scale 256\n"
        "  tencache-replay --schedule plan.json --nvme-dir ./nvme\n"
        "  tencache-replay calibrate --device host --nvme-dir ./nvme -o this-machine.json\n"
        "\n`tencache-replay VERB --help` explains a verb. Exit codes: 0 ok, 1 failed, 2 usage\n"
        "or bad input, 3 the policy does not fit, 4 --check found too large a difference.\n",
    .verbs = verbs,
    .verb_count = sizeof verbs / sizeof *verbs,
};

int main(int argc, char **argv)
{
	return tci_program_main(&program, argc, argv);
}
