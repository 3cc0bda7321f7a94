/* tencache-sim: its verbs. Each has a file of its own. */
#include "dispatch.h"
#include "verbs.h"

static const struct tci_verb verbs[] = {
    {"run", tci_sim_run, "simulate policies on a trace"},
    {"policies", tci_sim_policies, "list policies and their parameters"},
    {"machines", tci_sim_machines, "list machine presets and their values"},
    {"inspect", tci_sim_inspect, "what is in a trace: sizes, what must fit, reuse"},
};

static const struct tci_program program = {
    .name = "tencache-sim",
    .version = TENCACHE_VERSION,
    .headline = "how fast a training step goes when its tensors are offloaded",
    .examples =
        "Examples:\n"
        "  tencache-sim --trace traces/opt13b.json\n"
        "  tencache-sim --trace traces/opt13b.json --policy 10cache,lru --gpu-memory 24GiB\n"
        "  tencache-sim policies 10cache\n"
        "  tencache-sim inspect --trace traces/gpt2.jsonl.gz\n"
        "\n`tencache-sim VERB --help` explains a verb. Exit codes: 0 ok, 1 failed, 2 usage or\n"
        "bad input, 3 everything asked for is infeasible.\n",
    .verbs = verbs,
    .verb_count = sizeof verbs / sizeof *verbs,
};

int main(int argc, char **argv)
{
	return tci_program_main(&program, argc, argv);
}
