#!/usr/bin/env bash
# Bad input to tencache-sim: each kind ends with its message and exit code 2 (3 where nothing fits),
# never with a crash (128 and above), a hang or output on stdout.
# Usage: cli_bad_input.sh DIRECTORY-OF-TENCACHE-SIM   (run from the top of the tree)
set -u
sim=$1/tencache-sim
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

# expect CODE 'PART OF THE MESSAGE' ARGUMENT...: run tencache-sim, look at exit code and stderr
expect() {
	local code=$1 text=$2 found
	shift 2
	timeout 20 "$sim" "$@" >"$work/out" 2>"$work/err"
	found=$?
	if [ "$found" != "$code" ]; then
		echo "FAIL: exit code $found, expected $code: tencache-sim $*"
		head -c 600 "$work/err"
	elif ! grep -qF -- "$text" "$work/err" && ! { [ "$code" = 3 ] && grep -qF -- "$text" "$work/out"; }; then
		echo "FAIL: message without '$text': tencache-sim $*"
		head -c 600 "$work/err"
	elif [ "$code" = 2 ] && [ -s "$work/out" ]; then
		echo "FAIL: bad input, and yet output on stdout: tencache-sim $*"
	else
		passed=$((passed + 1))
		return
	fi
	failed=$((failed + 1))
}

good=traces/gpt2.jsonl.gz
plain=$work/plain.jsonl
gzip -dc "$good" >"$plain"

# ---------------------------------------------------------------- the command line
expect 2 'no trace given' run
expect 2 'unknown verb "rum"; did you mean "run"?' rum
expect 2 'did you mean "--trace"?' --trase "$good"
expect 2 'unknown option "--bad"' run surplus --bad
expect 2 'unknown option "--bad"' inspect "$good" --bad
expect 2 'needs a value' --trace
expect 2 'did you mean "belady"?' --trace "$good" --policy beladi
expect 2 'unknown policy' --trace "$good" --policy ''
expect 2 "resident" --trace "$good" --policy 10cache:residnt=3
expect 2 'victim' --trace "$good" --policy 10cache:victim=nearest
expect 2 'resident' --trace "$good" --policy 10cache:resident=-1
# What a parameter's help offers is accepted: nothing but the memory is wrong here.
expect 3 'unmanaged' --trace "$good" --policy 10cache:barrier=auto --gpu-memory 2GiB
expect 2 'gpu-buffers' --trace "$good" --policy 10cache:gpu-buffers=12
expect 2 'gpu-buffers' --trace "$good" --policy 10cache:gpu-buffers=7x1
expect 2 '--iterations' --trace "$good" --iterations 0
expect 2 '--iterations' --trace "$good" --iterations 1e30
expect 2 'exclude each other' --trace "$good" --json --csv
expect 2 'exactly one --policy' --trace "$good" --schedule "$work/s.jsonl"
expect 2 'unexpected argument' --trace "$good" surplus
expect 2 'did you mean "module"?' --trace "$good" --granularity modul
expect 2 'gpu-memory' --trace "$good" --gpu-memory 24Gb1
expect 2 'gpu-memory' --trace "$good" --gpu-memory -5
expect 2 'gpu-memory' --trace "$good" --gpu-memory 99999999999999999999T

# ---------------------------------------------------------------- trace files
expect 2 'missing.jsonl' --trace "$work/missing.jsonl"
expect 2 "$work" --trace "$work"
: >"$work/empty.jsonl"
expect 2 'empty' --trace "$work/empty.jsonl"
head -c 4096 /dev/urandom >"$work/binary.jsonl"
expect 2 'binary.jsonl' --trace "$work/binary.jsonl"
head -c 20000 "$plain" >"$work/cut.jsonl"
expect 2 'cut.jsonl' --trace "$work/cut.jsonl"
head -c 9000 "$good" >"$work/cut.jsonl.gz"
expect 2 'cut.jsonl.gz' --trace "$work/cut.jsonl.gz"
{ head -c 500 "$good"; head -c 500 /dev/urandom; tail -c +1001 "$good"; } >"$work/corrupt.jsonl.gz"
expect 2 'corrupt.jsonl.gz' --trace "$work/corrupt.jsonl.gz"
{ head -c 200000 /dev/zero | tr '\0' '['; } >"$work/deep.json"
expect 2 'deep.json' --trace "$work/deep.json"
sed '2s/"bytes":[0-9]*/"bytes":1e400/' "$plain" >"$work/huge.jsonl"
expect 2 'huge.jsonl' --trace "$work/huge.jsonl"
sed '2s/"bytes":[0-9]*/"bytes":-4/' "$plain" >"$work/negative.jsonl"
expect 2 'negative.jsonl' --trace "$work/negative.jsonl"
sed '2s/"bytes":[0-9]*/"bytes":NaN/' "$plain" >"$work/nan.jsonl"
expect 2 'nan.jsonl' --trace "$work/nan.jsonl"
sed '2s/"bytes":[0-9]*/"bytes":0/' "$plain" >"$work/zero.jsonl"
expect 2 'zero.jsonl' --trace "$work/zero.jsonl"
sed '3s/"t":1,/"t":0,/' "$plain" >"$work/twice.jsonl"
expect 2 'twice.jsonl' --trace "$work/twice.jsonl"
sed '1s/"version":"1\.[0-9]*"/"version":"7.0"/' "$plain" >"$work/version.jsonl"
expect 2 '7.0' --trace "$work/version.jsonl"
sed '1s/"requires":\[\]/"requires":["time-travel"]/' "$plain" >"$work/requires.jsonl"
expect 2 'time-travel' --trace "$work/requires.jsonl"
if [ "$(id -u)" = 0 ]; then
	echo "skipped: a trace without read permission (root may read everything)"
	skipped=$((skipped + 1))
else
	cp "$good" "$work/secret.gz" && chmod 000 "$work/secret.gz"
	expect 2 'secret.gz' --trace "$work/secret.gz"
fi

# ---------------------------------------------------------------- machines
machine() { # machine NAME 'SED EXPRESSION': a changed copy of the default preset
	sed "$2" sim/machines/a100-40.json >"$work/$1.json"
}
expect 2 'did you mean "a100-40"?' --trace "$good" --machine a100-4
expect 2 'nowhere.json' --trace "$good" --machine "$work/nowhere.json"
printf '{' >"$work/broken.json"
expect 2 'broken.json' --trace "$good" --machine "$work/broken.json"
printf '[]' >"$work/list.json"
expect 2 'list.json' --trace "$good" --machine "$work/list.json"
expect 2 'h2d' --trace "$good" --h2d 0
expect 2 'PATH=VALUE' --trace "$good" --set host.cores
expect 2 'did you mean "host.cores"' --trace "$good" --set host.core=3
expect 2 'nvme.drive.read' --trace "$good" --nvme-read 0
expect 2 'cpu-memory' --trace "$good" --cpu-memory ''
expect 2 'raise --pin-rate' --trace "$good" --pin-rate 1 --policy lru
# The machine is checked as all options make it, in whatever order they come.
expect 3 'unmanaged' --trace "$good" --policy lru --gpu-memory 500M --gpu-framework 0

# ---------------------------------------------------------------- nothing fits: exit code 3
expect 3 'gpu-memory' --trace "$good" --policy lru --gpu-memory 2GiB
expect 3 'activation' --trace "$good" --policy lru --gpu-memory 10.55GiB
expect 3 'fp16-gpu' --trace "$good" --policy 10cache:gpu-buffers=77194752x900
# Host memory is what is short, and so it is said.
expect 3 '--cpu-memory would help' --trace "$good" --policy lru:activations=1 --gpu-memory 8GiB \
	--cpu-memory 20GiB
expect 3 '' --trace "$good" --policy 10cache:resident=1
expect 3 'embed_tokens' --trace traces/opt6.7b-paper.jsonl.gz \
	--policy zero-infinity:device=nvme:buffer-size=1e8

# ---------------------------------------------------------------- where output cannot go
expect 2 'nowhere/plan.jsonl' --trace "$good" --policy lru --schedule "$work/nowhere/plan.jsonl"
# full ARGUMENT...: a full device behind stdout
full() {
	local found
	timeout 20 "$sim" "$@" >/dev/full 2>"$work/err"
	found=$?
	if [ "$found" = 2 ] && grep -q 'standard output' "$work/err"; then
		passed=$((passed + 1))
	else
		echo "FAIL: exit code $found with a full device behind stdout: tencache-sim $*"
		failed=$((failed + 1))
	fi
}
if [ -c /dev/full ]; then
	full --trace "$good" --policy lru --quiet
	full inspect --trace "$good"
	full policies
	full policies --json
	full machines
	full machines --help
	full --version
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
