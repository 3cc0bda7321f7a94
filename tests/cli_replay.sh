#!/usr/bin/env bash
# tencache-replay on the command line: a whole run, a schedule file, checks, signals, bad input.
# Usage: cli_replay.sh DIRECTORY_OF_TENCACHE_SIM, from the top of the source tree.
set -u
replay=$1/../replay/tencache-replay
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/nvme" "$work/second"
trace=traces/gpt2.jsonl.gz
failures=0

fail() {
	echo "FAILED: $1"
	[ -f "$work/out" ] && head -c 800 "$work/out"
	[ -f "$work/err" ] && head -c 800 "$work/err"
	failures=$((failures + 1))
}

# expect CODE WHAT ARGUMENT...: run, compare the exit code
expect() {
	local code=$1 what=$2
	shift 2
	timeout 120 "$replay" "$@" >"$work/out" 2>"$work/err"
	local got=$?
	[ $got -eq "$code" ] || fail "$what: exit code $got, expected $code"
}

says() { # says FILE TEXT WHAT
	grep -qF -- "$2" "$work/$1" || fail "$3: no \"$2\""
}

nothing_left() {
	[ -z "$(ls -A "$work/nvme" "$work/second" | grep -v -e ':$' -e '^$')" ] ||
		fail "$1 left files: $(ls -A "$work/nvme" "$work/second")"
}

base=(--trace $trace --nvme-dir "$work/nvme" --scale 256 --iterations 1 --quiet)

expect 0 "a run" "${base[@]}" --policy 10cache --verify full
for word in time forward optimizer stall h2d nvme_write "no wrong byte" "storage "; do
	says out "$word" "a run"
done
nothing_left "a run"

expect 0 "a preset, not paced" --trace $trace --nvme-dir "$work/made" --scale 256 --iterations 1
says err "the prediction is for a100-40" "a preset, not paced"
rmdir "$work/made" || fail "a folder that was missing was not made, or is not empty"
expect 2 "a folder in none" "${base[@]}" --nvme-dir "$work/none/nvme"
says err "cannot make this folder" "a folder in none"

expect 0 "striped, sync, JSON" "${base[@]}" --policy lru:state=nvme --nvme-dir "$work/second" \
	--storage sync --json
python3 - "$work/out" <<'PYTHON' || fail "the JSON document"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["format"] == "tencache-replay" and d["scale"] == 256
assert d["storage"]["backend"] == "sync", d["storage"]
for side in ("predicted", "measured"):
    r = d[side]
    assert r["compute_ps"] + r["stall_ps"] == r["iteration_ps"] > 0
    assert sum(r["stalls_ps"].values()) == r["stall_ps"]
    q = r["queues"]["nvme_read"]["latency_ps"]
    assert 0 < q["p50"] <= q["p95"] <= q["p99"] <= q["max"]
for key in ("fetches", "fetch_bytes", "evictions", "resident"):
    for phase in ("forward", "backward", "optimizer"):
        assert d["predicted"]["phases"][phase][key] == d["measured"]["phases"][phase][key], key
assert d["run"]["verified_bytes"] > 0 and d["run"]["cpu_ps"] > 0
PYTHON
nothing_left "striped"

# A schedule file; its ops are known only with the trace, its scale is its own.
expect 0 "writing a schedule" "${base[@]}" --policy 10cache --write-schedule "$work/plan.jsonl.gz"
expect 0 "a schedule file" --schedule "$work/plan.jsonl.gz" --nvme-dir "$work/nvme" \
	--verify full --compute none --quiet
says out "scale 256" "a schedule file"
expect 0 "a schedule file with its trace" --schedule "$work/plan.jsonl.gz" --trace $trace \
	--nvme-dir "$work/nvme" --verify full --quiet --json
expect 2 "another trace" --schedule "$work/plan.jsonl.gz" --trace traces/opt6.7b-paper.jsonl.gz
expect 2 "another scale" --schedule "$work/plan.jsonl.gz" --scale 4
says err "planned with scale 256" "another scale"

expect 0 "throttled" --trace $trace --scale 1024 --throttle --iterations 1 --policy lru \
	--timeline "$work/timeline.json"
python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
d = d["traceEvents"] if isinstance(d, dict) else d
names = {e["args"]["name"].split(":")[0] for e in d if e.get("name") == "process_name"}
assert names == {"predicted", "measured"}, names' "$work/timeline.json" || fail "the timeline"
expect 4 "a check that cannot hold" "${base[@]}" --policy lru --check 0.0001% --verify off
says err "check failed" "a check"

# Signals in the middle: a message, exit code 1, no file left, no hang.
for signal in INT TERM; do
	timeout 60 "$replay" --trace $trace --nvme-dir "$work/nvme" --scale 256 --policy 10cache \
		--throttle --dilate 100000 >"$work/out" 2>"$work/err" &
	pid=$!
	for _ in $(seq 100); do
		[ -n "$(ls -A "$work/nvme")" ] && break
		sleep 0.1
	done
	sleep 0.5
	# `timeout` hands the signal on, so that its exit code is the program's.
	pkill_child=$(ps -o pid= --ppid $pid | tr -d ' ')
	kill -$signal "$pkill_child"
	wait $pid
	code=$?
	[ $code -eq 1 ] || fail "SIG$signal: exit code $code, expected 1"
	says err "stopped by SIG$signal" "SIG$signal"
	nothing_left "SIG$signal"
done

expect 2 "nothing to do" --json
expect 2 "unknown option" --trace $trace --thorttle
says err 'did you mean "--throttle"' "unknown option"
expect 2 "two policies" --trace $trace --policy lru,belady
expect 2 "dilate alone" --trace $trace --dilate 2
expect 2 "unknown device" --trace $trace --scale 256 --device hots
expect 2 "iterations of a schedule file" --schedule "$work/plan.jsonl.gz" --nvme-dir "$work/nvme" --iterations 1
says err "--iterations and --schedule exclude each other" "iterations of a schedule file"
expect 2 "unknown storage" "${base[@]}" --storage ioring
expect 2 "no file" --trace "$work/none.json"
expect 2 "no directory" --trace $trace --scale 256 --policy 10cache --iterations 1
says err "--nvme-dir" "no directory"
expect 2 "a directory that is not there" --trace $trace --scale 256 --nvme-dir "$work/none/nvme"
expect 2 "unlimited memory" --trace $trace --policy ideal
says err "unlimited memory" "ideal"
expect 3 "too small" --trace $trace --policy lru --gpu-memory 1500MiB --scale 16
expect 2 "scale 0" --trace $trace --scale 0
expect 2 "unknown verb" rnu
says err 'did you mean' "unknown verb"
expect 0 "help" --help
expect 0 "help of run" run --help
says out "Examples:" "help of run"

if [ $failures -gt 0 ]; then
	echo "$failures checks failed"
	exit 1
fi
echo "all checks passed"
