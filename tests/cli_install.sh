#!/usr/bin/env bash
# Install into an empty prefix, then use what was installed as somebody else's project would: the
# program finds its presets, a CMake project finds the package and its libraries.
# Usage: cli_install.sh DIRECTORY-OF-TENCACHE-SIM   (run from the top of the tree)
set -eu
build=$(cd "$1/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/log"
for file in bin/tencache-sim include/tencache/simulate.h share/tencache/machines/a100-40.json \
	share/tencache/traces/opt13b.json; do
	[ -e "$work/prefix/$file" ] || { echo "FAIL: $file was not installed"; exit 1; }
done
if grep -q 'fsanitize' "$build/CMakeCache.txt" && grep -qE '^TENCACHE_SANITIZE:STRING=.+' "$build/CMakeCache.txt"; then
	echo "skipped: a downstream project of a sanitizer build"
	echo "1 passed, 0 failed, 1 skipped"
	exit 0
fi
mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.24)
project(downstream C)
find_package(tencache REQUIRED)
add_executable(downstream main.c)
target_link_libraries(downstream tencache::tencache_sim tencache::tencache)
END
cat >"$work/project/main.c" <<'END'
#include <stdio.h>
#include <tencache/simulate.h>
int main(void)
{
	size_t count;
	struct tc_error error = {0};
	struct tc_machine *machine = NULL;
	(void)tc_policies(&count);
	if (tc_machine_load("a100-40", NULL, &machine, &error) != TC_OK) {
		puts(error.text);
		return 1;
	}
	tc_machine_free(machine);
	return count == 0;
}
END
cmake -S "$work/project" -B "$work/project/build" -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1 &&
	cmake --build "$work/project/build" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
(cd / && TENCACHE_MACHINES="$work/prefix/share/tencache/machines" "$work/project/build/downstream")
(cd / && "$work/prefix/bin/tencache-sim" --version)
echo "2 passed, 0 failed"
