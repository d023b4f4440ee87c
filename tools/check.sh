#!/bin/sh
# What a change must pass before it is committed. Every step runs; the script
# fails if one did.
#   FUZZ_SECONDS=5   seconds for each fuzz target (0: none)
set -u
cd "$(dirname "$0")/.."
GO=${GO:-go}
failed=0
step() {
	name=$1
	shift
	printf '%s\n' "check: $name" >&2
	"$@" || { printf '%s\n' "check: $name: FAILED" >&2; failed=1; }
}
tool() { $GO tool -modfile=go.tools.mod "$@"; }

formatted() {
	unformatted=$(tool gofumpt -l .) || return 1
	[ -z "$unformatted" ] || { printf '%s\n' "$unformatted" "hint: $GO tool -modfile=go.tools.mod gofumpt -w ." >&2; return 1; }
}
race() {
	# The race detector alone needs cgo and a C compiler.
	command -v cc >/dev/null 2>&1 || { echo "check: race: no C compiler; apt-get install gcc" >&2; return 1; }
	CGO_ENABLED=1 $GO test -race -short -timeout 20m ./...
}
fuzz() {
	[ "${FUZZ_SECONDS:-5}" -gt 0 ] || return 0
	for package in $($GO list ./...); do
		for target in $($GO test -list '^Fuzz' "$package" 2>/dev/null | grep '^Fuzz'); do
			$GO test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZ_SECONDS:-5}s" "$package" >/dev/null 2>"${TMPDIR:-/tmp}/demur-fuzz.$$" ||
				{ echo "check: $package $target" >&2; cat "${TMPDIR:-/tmp}/demur-fuzz.$$" >&2; return 1; }
		done
	done
	rm -f "${TMPDIR:-/tmp}/demur-fuzz.$$"
}

export CGO_ENABLED=0
step gofumpt formatted
step vet $GO vet ./...
step staticcheck tool staticcheck ./...
step tidy $GO mod tidy -diff
step race race
step fuzz fuzz
exit $failed
