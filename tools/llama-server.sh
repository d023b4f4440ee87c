#!/bin/sh
# Builds llama-server of llama.cpp v0.5.0, the strongest peer that make bench
# measures demur against: the same version as the libraries that demur loads.
#
#   tools/llama-server.sh          builds it (about 6 minutes on 2 cores) and prints its file name
#   tools/llama-server.sh path     prints its file name only
#
# It lands in ${XDG_CACHE_HOME:-~/.cache}/demur/llama-server; a build that is
# there already is a no-op. The source is vendor/llama.cpp of PyPI's source
# archive of llama-cpp-python, fetched by pip and checked by SHA-256. Use it as
#
#   LLAMA_SERVER="$(tools/llama-server.sh path)" make bench
set -eu

version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
root="${XDG_CACHE_HOME:-${HOME:?HOME is not set; set XDG_CACHE_HOME}/.cache}/demur/llama-server"
server="$root/llama-server"

say() { printf '%s\n' "llama-server: $*" >&2; }
die() {
	say "$1"
	[ $# -lt 2 ] || printf '%s\n' "hint: $2" >&2
	exit 1
}

case "${1:-build}" in
path)
	echo "$server"
	exit 0
	;;
build) ;;
*) die "unknown command $1" "tools/llama-server.sh [path]" ;;
esac

if [ -x "$server" ]; then
	say "it is there"
	echo "$server"
	exit 0
fi
for tool in python3 cmake g++; do
	command -v "$tool" >/dev/null 2>&1 || die "$tool is not installed" "on Debian: apt-get install python3-pip cmake g++"
done

mkdir -p "$root"
work="$root/work"
rm -rf "$work"
mkdir "$work"
trap 'rm -rf "$work"' EXIT INT TERM
say "fetching the source"
# pip asks a source archive for its name and version, with the build backend in
# a temporary environment of its own; nothing is installed.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
	--dest "$work" "llama-cpp-python==$version" >&2 ||
	die "pip could not fetch llama-cpp-python $version" "is PyPI reachable?"
archive="$(ls "$work"/llama_cpp_python-*.tar.gz)"
[ "$(sha256sum "$archive" | cut -d ' ' -f 1)" = "$sha256" ] || die "the source archive is not what it should be: wrong SHA-256"
tar -xzf "$archive" -C "$work" --strip-components 1
source="$work/vendor/llama.cpp"
[ -f "$source/CMakeLists.txt" ] || die "the source archive holds no vendor/llama.cpp"

# gcc before 13 declares eight of the 64 bytes that a tile configuration has, so
# it leaves the others unwritten, and the server dies on machines with AMX.
sed -i 's/^    _tile_loadconfig(&tc);/    __asm__ volatile("" : : "r"(\&tc) : "memory");\n&/' "$source/ggml/src/ggml-cpu/amx/mmq.cpp"

say "building, log in $root/build.log"
nice cmake -S "$source" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF \
	-DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF >"$root/build.log" 2>&1 ||
	die "cmake gave up, see $root/build.log"
nice cmake --build "$work/build" --target llama-server -j"$(nproc 2>/dev/null || echo 2)" >>"$root/build.log" 2>&1 ||
	die "it does not compile, see $root/build.log"
cp "$work/build/bin/llama-server" "$server.new"
mv "$server.new" "$server"
say "built: $("$server" --version 2>&1 | sed -n 1p)"
echo "$server"
