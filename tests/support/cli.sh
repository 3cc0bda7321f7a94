# Shared by the command-line tests of tencache-sim; source it with $1 the folder of the program.
# Leaves $sim, $work (removed at the end) and $failed.
set -u
sim=$1/tencache-sim
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# expect CODE PATTERN_ON_STDOUT PATTERN_ON_STDERR COMMAND...: an empty pattern wants nothing there
expect() {
	local code=$1 out=$2 err=$3
	shift 3
	"$@" >"$work/out" 2>"$work/err"
	local got=$?
	if [ $got -ne "$code" ]; then
		echo "exit $got, wanted $code: $*"
		failed=1
	fi
	for stream in out err; do
		local pattern=${!stream}
		if [ -z "$pattern" ] && [ -s "$work/$stream" ]; then
			echo "unexpected output on std$stream: $*"
			cat "$work/$stream"
			failed=1
		elif [ -n "$pattern" ] && ! grep -qE -- "$pattern" "$work/$stream"; then
			echo "no \"$pattern\" on std$stream: $*"
			cat "$work/$stream"
			failed=1
		fi
	done
}
