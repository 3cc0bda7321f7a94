#!/usr/bin/env bash
# Every shipped trace with every policy of the standard set that can run for real (and plans whose
# optimizer state lives on the drive) replayed at a large scale: each byte that is read, moved or
# kept is looked at (--verify full), and none is wrong.
# Usage: cli_replay_fidelity.sh DIRECTORY_OF_TENCACHE_SIM, from the top of the source tree.
set -u
replay=$1/../replay/tencache-replay
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# A shipped trace that is in no case fails the test.
cases=(gpt2.jsonl.gz:256:a100-40 opt6.7b-paper.jsonl.gz:4096:a100-40
	opt13b.json:8192:a100-40 opt13b-paper.jsonl.gz:8192:a100-40
	opt13b-full.jsonl.gz:8192:a100-80)
failed=0

# The standard set is what tencache-sim runs unasked; `ideal` has unlimited memory.
"$1/tencache-sim" --trace traces/gpt2.jsonl.gz --quiet --csv >"$work/standard" || exit 1
column=$(head -n 1 "$work/standard" | tr , '\n' | grep -nx policy | cut -d: -f1)
mapfile -t policies < <(tail -n +2 "$work/standard" | cut -d, -f"$column" | grep -vx ideal)
policies+=(lru:state=nvme)
[ ${#policies[@]} -ge 6 ] || { echo "FAILED: only ${#policies[@]} policies"; exit 1; }

if LC_ALL=C ldd "$replay" 2>/dev/null | grep -qE 'lib(a|t)san'; then
	echo "a sanitizer is at work: two traces only"
	cases=("${cases[@]:0:2}")
else
	for trace in traces/*.json traces/*.jsonl.gz; do
		case " ${cases[*]} " in
		*" $(basename "$trace"):"*) ;;
		*) echo "FAILED: $trace is in no case"; failed=1 ;;
		esac
	done
fi

# one NUMBER POLICY TRACE SCALE MACHINE: leaves NUMBER.code and NUMBER.out
one() {
	local number=$1 policy=$2 trace=$3 scale=$4 machine=$5
	mkdir "$work/$number"
	timeout 120 "$replay" --trace "traces/$trace" --machine "$machine" --policy "$policy" \
		--scale "$scale" --nvme-dir "$work/$number" --iterations 1 --verify full \
		--compute none --quiet >"$work/$number.out" 2>&1
	echo "$?" >"$work/$number.code"
	[ -z "$(ls -A "$work/$number")" ] || echo "files left behind" >>"$work/$number.out"
}

number=0 names=()
for case in "${cases[@]}"; do
	IFS=: read -r trace scale machine <<<"$case"
	for policy in "${policies[@]}"; do
		names[number]="$policy on $trace, scale $scale, machine $machine"
		one $number "$policy" "$trace" "$scale" "$machine" &
		number=$((number + 1))
		while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
	done
done
wait

for ((n = 0; n < number; n++)); do
	code=$(cat "$work/$n.code")
	looked=$(sed -n 's/^content   verify full: \(.*\) looked at .*no wrong byte$/\1/p' "$work/$n.out")
	if [ "$code" != 0 ] || [ -z "$looked" ] || grep -q 'left behind' "$work/$n.out"; then
		echo "FAILED (exit code $code): ${names[n]}"
		head -c 600 "$work/$n.out"
		failed=1
	else
		echo "ok: ${names[n]}: $looked"
	fi
done
[ "$failed" = 0 ] && echo "$number replays, no wrong byte"
exit $failed
