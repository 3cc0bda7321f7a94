#!/usr/bin/env bash
# Predicted against measured: three policies on OPT-6.7B, every lane paced by the default machine.
# Iteration times within 20 %, and the order of the policies as predicted wherever predictions
# differ by more than 10 %. Up to three attempts, the best counts. A computer on which even an idle
# thread wakes up late cannot keep deadlines: then the test is skipped, with the figures.
# Usage: cli_predict.sh DIRECTORY_OF_TENCACHE_SIM, from the top of the source tree.
set -u
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
if LC_ALL=C ldd "$1/../replay/tencache-replay" 2>/dev/null | grep -qE 'lib(a|t)san'; then
	echo "skipped: a sanitizer is at work, times mean nothing"
	exit 77
fi
work=$(mktemp -d) || exit 1
# Pools of drives lie in memory where possible: the pace is the machine description's, and another
# process that writes much would only make a slow disk miss it.
shm=$(mktemp -d -p /dev/shm 2>/dev/null) || shm=$work
trap 'rm -rf "$work" "$shm"' EXIT
python3 scripts/predict-vs-measure --build "$1/.." --machines a100-40 \
	--traces traces/opt6.7b-paper.jsonl.gz --policies lru,zero-infinity:device=cpu,10cache \
	--scale 4096 --nvme-dir "$shm" --check 20 --attempts 3 --output "$work/table.csv"
code=$?
[ $code -eq 77 ] && exit 77
[ $code -eq 0 ] || exit 1
[ "$(grep -c ',ok,' "$work/table.csv")" -eq 3 ] || { echo "FAILED: not three rows"; exit 1; }
[ -z "$(ls -A "$shm" | grep -v table.csv)" ] || { echo "FAILED: files left"; exit 1; }
