#!/usr/bin/env bash
# The verb `inspect`: what it prints, where messages go, exit codes.
# Usage: cli_inspect.sh DIRECTORY-OF-TENCACHE-SIM   (run from the top of the tree)
. "$(dirname "$0")/support/cli.sh"

trace=traces/opt6.7b-paper.jsonl.gz
expect 0 'Examples' '' "$sim" inspect --help
expect 0 'forward +260 +517 ' '' "$sim" inspect --trace $trace
expect 0 'backward +260 +517 ' '' "$sim" inspect $trace
expect 0 'reads\) .*by modules' '' "$sim" inspect --trace $trace --requests reads
expect 0 '"granularity": "layer"' '' "$sim" inspect --json --trace $trace --granularity layer
expect 0 '"frees": "eager"' '' "$sim" inspect --json --trace $trace --frees eager
expect 2 '' 'no trace given' "$sim" inspect
expect 2 '' 'No such file' "$sim" inspect --trace "$work/none"
expect 2 '' 'is a directory' "$sim" inspect --trace traces
expect 2 '' 'did you mean "--granularity"' "$sim" inspect --trace $trace --granularty op
expect 2 '' 'expected one of module, layer, op; did you mean "layer"' \
	"$sim" inspect --trace $trace --granularity layers
expect 2 '' 'needs a value' "$sim" inspect --trace
expect 2 '' 'unexpected argument "two"' "$sim" inspect --trace $trace two

# A trace without events: requests are reads without being asked, asking for hooks is an error.
printf '%s\n' '{"format":"tencache-trace","version":"1.0"}' \
	'{"t":0,"kind":"param","bytes":8,"name":"w"}' '{"t":1,"kind":"buffer","bytes":8}' \
	'{"op":0,"name":"mm","phase":"f","r":[0]}' '{"end":true,"ops":1,"tensors":2}' >"$work/t.jsonl"
expect 0 'requests \(reads\)' 'warning: .*tensor 1: no op reads or writes' \
	"$sim" inspect --trace "$work/t.jsonl"
expect 2 '' 'use --requests reads' "$sim" inspect --trace "$work/t.jsonl" --requests hook

"$sim" inspect --all --trace $trace >"$work/one"
"$sim" inspect --all --trace $trace >"$work/two"
cmp -s "$work/one" "$work/two" || { echo "two runs differ"; failed=1; }
exit $failed
