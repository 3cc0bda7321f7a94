#!/usr/bin/env bash
# tencache-sim --timeline: the file is there, whole and readable, or not at all.
# Usage: cli_timeline.sh DIRECTORY-OF-TENCACHE-SIM   (run from the top of the tree)
set -u
sim=$1/tencache-sim
trace=traces/gpt2.jsonl.gz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

check() { # check 'WHAT' COMMAND...
	local what=$1
	shift
	if "$@" >/dev/null 2>&1; then
		passed=$((passed + 1))
	else
		echo "FAIL: $what"
		failed=$((failed + 1))
	fi
}
exits() { # exits CODE ARGUMENT...: tencache-sim ends with this code
	local code=$1 found
	shift
	timeout 60 "$sim" --quiet --trace "$trace" "$@" >"$work.out" 2>"$work.err"
	found=$?
	rm -f "$work.out"
	[ "$found" = "$code" ]
}
only() { # only FILE...: nothing else is in the folder
	[ "$(ls "$work")" = "$(printf '%s\n' "$@")" ]
}
says() { grep -qF -- "$1" "$work.err"; }
events() { zcat -f "$1" | grep -c '"ph":"'"$2"'"'; }

check 'a run' exits 0 --policy 10cache --timeline "$work/run.json"
check 'only the file is left' only run.json
check 'a compute slice of the first block' grep -q '"name":"forward transformer.h.0.attn.c_attn"' "$work/run.json"
check 'names of lanes' grep -q '"name":"h2d (CPU to GPU)"' "$work/run.json"
check 'as many arrow starts as ends' [ "$(events "$work/run.json" s)" = "$(events "$work/run.json" f)" ]
cp "$work/run.json" "$work/first.json"
check 'the same run again' exits 0 --policy 10cache --timeline "$work/run.json"
check 'the same bytes' cmp "$work/first.json" "$work/run.json"
check 'a compressed run' exits 0 --policy 10cache --timeline "$work/run.json.gz"
check 'gzip reads it' gzip -t "$work/run.json.gz"
check 'the same content' cmp "$work/run.json" <(gzip -dc "$work/run.json.gz")
if command -v python3 >/dev/null; then
	check 'another JSON reader takes it' python3 -m json.tool "$work/run.json" /dev/null
	# Pinning takes a minute of setup by this rate; times count from its end.
	check 'a long setup' exits 0 --policy lru --pin-rate 3GB/s --timeline "$work/setup.json"
	check 'is not in the picture' python3 - "$work/setup.json" <<'PYTHON'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
slices = [e for e in events if e["ph"] == "X"]
assert min(e["ts"] for e in slices) < 1e5
for e in slices:
    stalls = [v for k, v in e.get("args", {}).items() if k.startswith("stall ")]
    assert all(v < 1e6 for v in stalls if isinstance(v, (int, float))), e
PYTHON
else
	echo "skipped: reading it with Python (no python3)"
fi
rm -f "$work"/*

check 'nothing fits' exits 3 --policy lru --gpu-memory 1.1GB --timeline "$work/run.json"
check 'then nothing is left' only ''
check 'two policies' exits 2 --policy lru,ideal --timeline "$work/run.json"
check 'and the message says so' says 'name exactly one --policy (found 2)'
check 'the standard set' exits 2 --timeline "$work/run.json"
check 'no such folder' exits 2 --policy lru --timeline "$work/none/run.json"
check 'and the message names it' says "$work/none/run.json"
check 'nothing is left' only ''
rm -f "$work.err"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
