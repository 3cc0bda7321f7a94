#!/usr/bin/env bash
# scripts/plot: a name is text, whatever it holds. Names of trace and policy cannot change what is
# drawn, so the picture of a sweep whose names hold commas, quotes and more must be that of the same
# sweep with plain names, but for these names.
# Usage: cli_plot.sh DIRECTORY-OF-TENCACHE-SIM   (run from the top of the tree)
. "$(dirname "$0")/support/cli.sh"
for program in gnuplot python3; do
	command -v $program >/dev/null || { echo "skipped: no $program"; exit 77; }
done

# sweep TRACE: rows of two memory sizes and two policies
sweep() {
	"$sim" --quiet --trace "$1" --policy lru,10cache --gpu-memory 12GiB --csv
	"$sim" --quiet --trace "$1" --policy lru,10cache --gpu-memory 24GiB --csv | tail -n +2
}
# with_name TEXT_OF_SED FILE: the shipped trace under another name
with_name() {
	gzip -cd traces/gpt2.jsonl.gz |
		sed "1s|\"name\":\"openai-community/gpt2\"|\"name\":\"$1\"|" >"$2"
}
check() { # check 'WHAT' COMMAND...
	local what=$1
	shift
	"$@" >"$work/out" || { echo "FAIL: $what"; head -n 20 "$work/out"; failed=1; }
}

with_name 'Plain' "$work/plain.jsonl"
with_name "Müller, \\\\\"mild\\\\\" d'été \`id\` \$HOME {a}_b^c 5%" "$work/odd.jsonl"
sweep "$work/plain.jsonl" >"$work/plain.csv"
sweep "$work/odd.jsonl" | sed "s/,lru,/,\"lru, \"\"ältere\"\" d'ici\",/" >"$work/odd.csv"
check 'the odd names are in the table' grep -q '^"Müller, ""mild"" d' "$work/odd.csv"
check 'and the odd policy' test "$(grep -c ',"lru, ""ältere' "$work/odd.csv")" = 2

expect 0 '' '' scripts/plot "$work/plain.csv" "$work/plain"
# Another language must not matter, nor a folder that is not there yet.
expect 0 '' '' env LC_ALL=C scripts/plot "$work/odd.csv" "$work/new/odd"
check 'a PNG' test "$(head -c 4 "$work/new/odd.png" | tail -c 3)" = PNG
check 'the title' grep -qF "Müller, \"mild\" d'été \`id\` \$HOME {a}_b^c 5% on a100-40" "$work/new/odd.svg"
panels() { # panels FILE: without the legend, whose place depends on the names' lengths
	sed '/id="gnuplot_plot_1f"/,$d' "$1"
}
panels "$work/plain.svg" >"$work/plain-panels.svg"
panels "$work/new/odd.svg" |
	sed "s|Müller, \"mild\" d'été \`id\` \$HOME {a}_b^c 5%|Plain|; s|lru, \"ältere\" d'ici|lru|" \
		>"$work/odd-panels.svg"
check 'the same curves' diff "$work/plain-panels.svg" "$work/odd-panels.svg"
check 'in five panels' test "$(grep -c '<title>10cache</title>' "$work/odd-panels.svg")" = 5
check 'and the legend' grep -qF "<text>lru, \"ältere\" d'ici</text>" "$work/new/odd.svg"

expect 2 '' "plot: cannot read '$work/none.csv'" scripts/plot "$work/none.csv" "$work/none"
grep -v ',ok,' "$work/plain.csv" >"$work/empty.csv"
expect 2 '' 'plot: no feasible row' scripts/plot "$work/empty.csv" "$work/none"
sed '1s/stall_ps,/other,/' "$work/plain.csv" >"$work/column.csv"
expect 2 '' 'plot: no column stall_ps' scripts/plot "$work/column.csv" "$work/none"
sed 's/,ok,,[0-9]*,/,ok,,soon,/' "$work/plain.csv" >"$work/word.csv"
expect 2 '' "plot: column iteration_ps: found 'soon'" scripts/plot "$work/word.csv" "$work/none"
check 'nothing is left of what failed' test ! -e "$work/none.png"
exit $failed
