# Shared by the scripts: where things are, what is installed, how many jobs to start.
# Source it; do not run it.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${TENCACHE_BUILD:-$top/build/release}

say() { printf '%s\n' "$*" >&2; }

# jobs: cores, but never more than memory for compilers allows
jobs=$(nproc 2>/dev/null || echo 2)

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo "$@"
	else
		say "Need root to install packages: $*"
		say "Install them yourself, then run this again."
		return 1
	fi
}

# install_packages PACKAGE...: install the Debian or Ubuntu packages that are missing
install_packages() {
	local missing=() package
	if ! command -v dpkg-query >/dev/null 2>&1; then
		say "Not a Debian or Ubuntu system: please install what corresponds to: $*"
		return 0
	fi
	for package in "$@"; do
		dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
			missing+=("$package")
	done
	[ ${#missing[@]} -eq 0 ] && return 0
	say "Installing: ${missing[*]}"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq >/dev/null
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		"${missing[@]}" >/dev/null
}

build_packages="gcc libc6-dev cmake ninja-build pkg-config libjansson-dev zlib1g-dev libssl-dev liburing-dev libxxhash-dev"

# configure_and_build DIRECTORY [CMAKE OPTION...]
configure_and_build() {
	local directory=$1
	shift
	cmake -S "$top" -B "$directory" -G Ninja "$@" >/dev/null
	if ! cmake --build "$directory" -j "$jobs" >"$directory/build.log" 2>&1; then
		grep -E -A 6 '^FAILED|: (fatal )?(error|warning):' "$directory/build.log" | head -n 60 >&2
		say "The build in $directory failed; all of it is in $directory/build.log"
		return 1
	fi
}
