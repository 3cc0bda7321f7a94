#!/usr/bin/env bash
# The verbs `machines` and `policies`: what they print, where messages go, exit codes.
. "$(dirname "$0")/support/cli.sh"

expect 0 'a100-40 .*two 3.2 GB/s drives' '' "$sim" machines
expect 0 'host.cores +32 +low +assumption' '' "$sim" machines a100-40
expect 0 '"name": "h100"' '' "$sim" machines --json
expect 0 '"format": "tencache-machine"' '' "$sim" machines --json rtx4090
expect 0 'Examples' '' "$sim" machines --help
expect 2 '' 'did you mean "h100"' "$sim" machines h1000
expect 2 '' 'cannot open' "$sim" machines "$work/none.json"
expect 2 '' 'cannot read' "$sim" machines "$work/"
expect 2 '' 'did you mean "--json"?' "$sim" machines --jsn
expect 0 '^ideal ' '' "$sim" policies
expect 0 'slack=30 ' '' "$sim" policies 10cache
expect 0 '"default": "30"' '' "$sim" policies --json 10cache
expect 0 'Examples' '' "$sim" policies --help
expect 2 '' 'did you mean "belady"' "$sim" policies beladi

# What one prints as JSON can be given back as a file, and is the same machine.
"$sim" machines --json l40s >"$work/copy.json"
if [ "$("$sim" machines l40s | grep sha256)" != "$("$sim" machines "$work/copy.json" | grep sha256)" ]; then
	echo "a machine printed as JSON is another machine"
	failed=1
fi

# A value set by its path is the value set by its option.
for change in '--cores 7' '--set host.cores=7'; do
	# shellcheck disable=SC2086
	"$sim" --trace traces/gpt2.jsonl.gz --policy ideal --json --quiet $change |
		grep -A 4 '"machine": {' | grep sha256
done >"$work/hashes"
if [ "$(wc -l <"$work/hashes")" != 2 ] || [ "$(sort -u "$work/hashes" | wc -l)" != 1 ]; then
	echo "--set host.cores=7 and --cores 7 differ"
	failed=1
fi

# What was proven is said, on standard error.
expect 0 '^lru ' '1 plan audited, nothing unsafe found' "$sim" --trace traces/gpt2.jsonl.gz \
	--policy lru --audit

# A directory of one's own comes first.
mkdir "$work/presets"
sed 's/"name": "l40s"/"name": "mine"/' "$work/copy.json" >"$work/presets/mine.json"
TENCACHE_MACHINES="$work/presets" expect 0 '^mine ' '' "$sim" machines

exit $failed
