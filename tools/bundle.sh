#!/bin/sh
# Packs demur, the llama.cpp libraries, licences, documentation and checksums
# into one archive that runs on a machine without network:
#
#   tar -xzf demur-*.tar.gz && demur-*/bin/demur demo
#
# demur finds the libraries in the lib folder beside bin by itself.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}

libraries=$(bin/demur doctor --print-lib)
version=$(bin/demur --version | awk '{ print $NF }')
name=demur-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
root=$work/$name

mkdir -p "$root/bin" "$root/lib" "$root/licences" "$root/docs"
cp bin/demur "$root/bin/"
cp -P "$libraries"/*.so "$root/lib/"
cp "$libraries"/LICENSE* "$root/licences/" 2>/dev/null || true
cp LICENSE README.md CHANGELOG.md "$root/"
cp -r docs/. "$root/docs/"
cp data/FORMAT.md "$root/docs/"
cp data/requests/README.md "$root/docs/requests.md"

# The licence of each module that is linked in.
CGO_ENABLED=0 $GO list -deps -f '{{with .Module}}{{.Path}} {{.Dir}}{{end}}' ./cmd/demur | sort -u |
	while read -r module dir; do
		[ "$module" != demur ] && [ -n "$dir" ] || continue
		for f in "$dir"/LICENSE* "$dir"/LICENCE* "$dir"/COPYING* "$dir"/NOTICE*; do
			[ ! -f "$f" ] || cp "$f" "$root/licences/$(printf '%s' "$module" | tr '/' '_')-$(basename "$f")"
		done
	done
chmod -R u+w "$root"

(cd "$root" && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
mkdir -p dist
# The same tree gives the same archive: fixed order, owner and time.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime='2026-01-01 00:00Z' -C "$work" -cf - "$name" | gzip -n >"dist/$name.tar.gz"
echo "dist/$name.tar.gz"
