#!/usr/bin/env bash
# What goes wrong around tencache-replay while it runs: signals, kill -9, other processes, a
# directory that goes away, a full drive, io_uring forbidden, little memory to lock. Always a clear
# message or a sound run, the documented exit code, no hang, and no file left behind.
# Usage: cli_replay_faults.sh DIRECTORY_OF_TENCACHE_SIM, from the top of the source tree.
set -u
replay=$1/../replay/tencache-replay
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
nvme=$work/nvme
mkdir "$nvme"
passed=0 failures=0 skipped=0
trace=(--trace traces/gpt2.jsonl.gz --scale 256 --policy lru:state=nvme --quiet)
short=("${trace[@]}" --iterations 1 --compute none --nvme-dir "$nvme")
# Hours, unless something ends it.
long=("${trace[@]}" --throttle --dilate 100000 --nvme-dir "$nvme")

fail() {
	echo "FAILED: $1"
	[ -f "$work/out" ] && head -c 500 "$work/out"
	[ -f "$work/err" ] && head -c 800 "$work/err"
	failures=$((failures + 1))
}
pass() { passed=$((passed + 1)); }
skip() {
	echo "skipped: $1"
	skipped=$((skipped + 1))
}

# ends CODE WHAT PATTERN COMMAND...: exit code, and an extended regular expression on stderr
ends() {
	local code=$1 what=$2 pattern=$3 got
	shift 3
	timeout -k 5 60 "$@" >"$work/out" 2>"$work/err"
	got=$?
	if [ $got -ne "$code" ]; then
		fail "$what: exit code $got, expected $code"
	elif [ -n "$pattern" ] && ! grep -qE -- "$pattern" "$work/err"; then
		fail "$what: no \"$pattern\" on stderr"
	else
		pass
	fi
}
nothing_left() { # nothing_left WHAT [DIRECTORY]
	local left
	left=$(ls -A "${2:-$nvme}")
	[ -z "$left" ] && pass || fail "$1 left files: $left"
}

# begin ARGUMENT...: start a long run and wait for its files and a moment more; sets $pid
begin() {
	"$replay" "$@" >"$work/long.out" 2>"$work/long.err" &
	pid=$!
	for _ in $(seq 400); do
		[ -n "$(find "$nvme" -name "*-$pid-*")" ] && break
		sleep 0.05
	done
	sleep 0.5
	kill -0 $pid 2>/dev/null || { cp "$work/long.err" "$work/err"; fail "a long run ended early"; }
}
# finished WHAT CODE [PATTERN]: the long run ends by itself within ten seconds
finished() {
	local code
	for _ in $(seq 200); do
		kill -0 $pid 2>/dev/null || break
		sleep 0.05
	done
	if kill -0 $pid 2>/dev/null; then
		kill -KILL $pid
		wait $pid
		rm -rf "${nvme:?}"/*
		fail "$1: still there after ten seconds"
		return
	fi
	wait $pid
	code=$?
	cp "$work/long.out" "$work/out"
	cp "$work/long.err" "$work/err"
	if [ $code -ne "$2" ]; then
		fail "$1: exit code $code, expected $2"
	elif [ -n "${3:-}" ] && ! grep -qE -- "$3" "$work/err"; then
		fail "$1: no \"$3\" on stderr"
	else
		pass
	fi
}

# ---------------------------------------------------------------- signals
for signal in INT TERM; do
	for storage in io_uring sync; do
		begin "${long[@]}" --storage $storage
		kill -$signal $pid
		finished "SIG$signal with $storage" 1 "stopped by SIG$signal.*cancelled"
		nothing_left "SIG$signal with $storage"
	done
done
# While files are written: a large file, the signal as soon as its name is there.
"$replay" --trace traces/opt13b.json --scale 64 --policy lru:state=nvme --quiet \
	--nvme-dir "$nvme" >"$work/long.out" 2>"$work/long.err" &
pid=$!
for _ in $(seq 400); do
	[ -n "$(ls -A "$nvme")" ] && break
	sleep 0.02
done
kill -TERM $pid
finished "SIGTERM while files are written" 1 "stopped by SIGTERM"
nothing_left "SIGTERM while files are written"

# ---------------------------------------------------------------- kill -9, and what is not ours
echo "precious" >"$nvme/holiday.jpg"
begin "${long[@]}"
kill -KILL $pid
wait $pid 2>/dev/null
left=$(ls -A "$nvme" | grep -vc '^holiday.jpg$')
[ "$left" -ge 1 ] && pass || fail "kill -9: expected the files of the killed run, found none"
ours=$(ls -A "$nvme" | grep -v '^holiday.jpg$' | head -n 1)
# The name of one of ours, but the content of something else: not ours to remove.
foreign=${ours/$pid/1$pid}
if [ "$foreign" != "$ours" ]; then
	echo "not a stripe" >"$nvme/$foreign"
else
	fail "kill -9: the file name $ours does not hold the process id $pid"
fi
ends 0 "a run after kill -9" "" "$replay" "${short[@]}" --verify full
[ "$(ls -A "$nvme" | sort | tr '\n' ' ')" = "$(printf '%s\n' "$foreign" holiday.jpg | sort | tr '\n' ' ')" ] &&
	pass || fail "after kill -9 and another run: $(ls -A "$nvme")"
[ "$(cat "$nvme/holiday.jpg")" = precious ] && pass || fail "a foreign file was changed"
rm -f "${nvme:?}"/*

# ---------------------------------------------------------------- two processes, one directory
begin "${long[@]}"
before=$(ls -A "$nvme")
ends 0 "a second process in the same directory" "" "$replay" "${short[@]}" --verify full
[ "$(ls -A "$nvme")" = "$before" ] && pass || fail "the second process took files of the first"
kill -0 $pid 2>/dev/null && pass || fail "the first process did not survive the second"
kill -TERM $pid
finished "the first of two processes" 1 "stopped by SIGTERM"
nothing_left "two processes"
"$replay" "${short[@]}" --verify full >"$work/long.out" 2>"$work/long.err" &
pid=$!
ends 0 "two at once, one" "" "$replay" "${short[@]}" --verify full
finished "two at once, the other" 0
nothing_left "two at once"

# ---------------------------------------------------------------- the directory goes away
# Open files stay usable without their names: the run goes on and ends well.
begin "${trace[@]}" --throttle --dilate 2 --iterations 1 --verify full --nvme-dir "$nvme"
rm -rf "$nvme"
finished "directory removed, to the end" 0
[ ! -e "$nvme" ] && pass || fail "the removed directory came back"
mkdir "$nvme"
begin "${long[@]}"
rm -rf "$nvme"
kill -TERM $pid
finished "directory removed" 1 "stopped by SIGTERM"
[ ! -e "$nvme" ] && pass || fail "the removed directory came back"
mkdir "$nvme"
ends 2 "no directory" "$work/none" "$replay" "${trace[@]}" --nvme-dir "$work/none/nvme"
ends 2 "a file for a directory" "" "$replay" "${trace[@]}" --nvme-dir "$replay"
ends 2 "--nvme-dir is missing" "--nvme-dir" "$replay" "${trace[@]}"
if [ "$(id -u)" != 0 ]; then
	mkdir -m 500 "$work/readonly"
	ends 2 "a directory without permission" "readonly" \
		"$replay" "${trace[@]}" --nvme-dir "$work/readonly"
else
	skip "a directory without permission (root may write everywhere)"
fi

# ---------------------------------------------------------------- a full drive
full_drive() {
	mkdir -p "$work/small"
	# In a user namespace of its own where that is needed and allowed.
	cat >"$work/full.sh" <<'END'
mount -t tmpfs -o size=2m tmpfs "$1" || exit 77
directory=$1
shift
"$@" --nvme-dir "$directory"
code=$?
[ -z "$(ls -A "$directory")" ] || { echo "left behind: $(ls -A "$directory")" >&2; code=99; }
exit $code
END
	unshare "$@" --mount sh "$work/full.sh" "$work/small" true >/dev/null 2>&1
}
if full_drive; then
	space=(unshare --mount)
elif full_drive --user --map-root-user; then
	space=(unshare --user --map-root-user --mount)
else
	space=()
	skip "a full drive (no tmpfs can be mounted here; test_replay_storage has ENOSPC)"
fi
if [ ${#space[@]} -gt 0 ]; then
	for storage in io_uring sync; do
		ends 2 "a full drive with $storage" "([Nn]o space|only .* free|free)" \
			"${space[@]}" sh "$work/full.sh" "$work/small" \
			"$replay" "${trace[@]}" --storage $storage
	done
fi

# ---------------------------------------------------------------- io_uring forbidden
# A filter refuses the system call io_uring_setup (425) with EPERM, as containers do.
cat >"$work/forbid.py" <<'END'
import ctypes, os, struct, sys
def op(code, jump_true, jump_false, k):
    return struct.pack("HBBI", code, jump_true, jump_false, k)
program = op(0x20, 0, 0, 0) + op(0x15, 0, 1, 425) + op(0x06, 0, 0, 0x00050001) \
    + op(0x06, 0, 0, 0x7FFF0000)
buffer = ctypes.create_string_buffer(program, len(program))
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
filter = Filter(len(program) // 8, ctypes.addressof(buffer))
zero = ctypes.c_ulong(0)
if libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero) or \
        libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(filter), zero, zero):
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
END
if command -v python3 >/dev/null && python3 "$work/forbid.py" /bin/true 2>/dev/null; then
	ends 0 "io_uring forbidden, storage auto" "" python3 "$work/forbid.py" \
		"$replay" "${short[@]}" --verify full
	grep -qE '^storage +sync.*io_uring' "$work/out" && pass ||
		fail "io_uring forbidden: the report does not say that and why sync was taken"
	ends 2 "io_uring forbidden and asked for" "io_uring" python3 "$work/forbid.py" \
		"$replay" "${short[@]}" --storage io_uring
	nothing_left "io_uring forbidden"
else
	skip "io_uring forbidden (no system call filter; test_replay_storage has it)"
fi

# ---------------------------------------------------------------- little memory to lock
(
	ulimit -l 0 2>/dev/null || exit 77
	exec timeout -k 5 60 "$replay" "${short[@]}" --verify full >"$work/out" 2>"$work/err"
)
case $? in
0) grep -q 'no wrong byte' "$work/out" && pass || fail "memory lock limit" ;;
77) skip "memory lock limit (cannot be lowered)" ;;
*) fail "memory lock limit" ;;
esac
nothing_left "memory lock limit"

# ---------------------------------------------------------------- schedules that do not belong
ends 0 "writing a schedule" "" "$replay" "${short[@]}" --write-schedule "$work/plan.jsonl"
ends 2 "another scale" "planned with scale 256, --scale asks for 8" \
	"$replay" --schedule "$work/plan.jsonl" --scale 8 --nvme-dir "$nvme"
ends 2 "another trace" "SHA-256 .* plan again" "$replay" --schedule "$work/plan.jsonl" \
	--trace traces/opt6.7b-paper.jsonl.gz --nvme-dir "$nvme"
head -c 5000 "$work/plan.jsonl" >"$work/cut.jsonl"
ends 2 "a schedule that was cut off" "cut.jsonl" \
	"$replay" --schedule "$work/cut.jsonl" --nvme-dir "$nvme"
nothing_left "schedules that do not belong"

echo "$passed checks passed, $failures failed, $skipped skipped"
[ $failures -eq 0 ]
