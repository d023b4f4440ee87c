#!/bin/sh
# Builds and runs an Ollama server for tests and for make bench.
#
#   tools/ollama.sh build                   server and its CPU kernels (about 5 minutes on 2 cores)
#   tools/ollama.sh build-plain             server with portable kernels only, quicker, two to four times slower to run
#   tools/ollama.sh start PORT [MODELSDIR]  starts it on 127.0.0.1:PORT with a model store of its own, waits until it answers
#   tools/ollama.sh stop [PORT]             stops it, or every server that start started
#   tools/ollama.sh path                    prints the server's file name
#
# Everything lives in ${XDG_CACHE_HOME:-~/.cache}/demur/ollama-v0.6.5; a build
# that is there already is a no-op. v0.6.5 is the last version whose module
# builds whole. The source comes through the Go module proxy, nothing else is
# fetched. OLLAMA_NUM_PARALLEL and the like are passed through to start.
set -eu

version=v0.6.5
root="${XDG_CACHE_HOME:-$HOME/.cache}/demur/ollama-$version"
server="$root/bin/ollama"
kernels="$root/lib/ollama"
running="$root/run"

say() { echo "ollama.sh: $*" >&2; }
die() { say "$1"; [ $# -lt 2 ] || echo "hint: $2" >&2; exit 1; }
need() { command -v "$1" >/dev/null 2>&1 || die "$1 is not installed" "$2"; }

jobs() { nproc 2>/dev/null || echo 2; }

build_server() {
	if [ -x "$server" ]; then
		say "server is there: $server"
		return
	fi
	need go "install Go 1.26 or later, https://go.dev/dl"
	need g++ "install a C++ compiler, on Debian: apt-get install g++"
	say "building the server, about 3 minutes"
	mkdir -p "$root/bin.new"
	# The server reports 0.0.0 unless it is told its version.
	(cd "$root" && env -u GOFLAGS CGO_ENABLED=1 GOBIN="$root/bin.new" nice go install \
		-ldflags "-s -w -X github.com/ollama/ollama/version.Version=${version#v}" \
		"github.com/ollama/ollama@$version")
	mkdir -p "$root/bin"
	mv "$root/bin.new/ollama" "$server"
	rmdir "$root/bin.new"
}

build_kernels() {
	if ls "$kernels"/libggml-cpu-*.so >/dev/null 2>&1; then
		say "CPU kernels are there: $kernels"
		return
	fi
	need cmake "install cmake 3.21 or later, on Debian: apt-get install cmake; elsewhere: pip install cmake"
	need g++ "install a C++ compiler, on Debian: apt-get install g++"
	say "building the CPU kernels, about 2 minutes"
	module="$(cd "$root" && env -u GOFLAGS go mod download -json "github.com/ollama/ollama@$version" |
		sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')"
	[ -d "$module" ] || die "the source of Ollama $version is not in Go's module cache" "go mod download github.com/ollama/ollama@$version"
	# The module cache is read-only and its build would not be kept: work on a copy.
	work="$root/source"
	rm -rf "$work"
	cp -r "$module" "$work"
	chmod -R u+w "$work"
	nice cmake -S "$work" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DGGML_CPU_ALL_VARIANTS=ON \
		-DGGML_BACKEND_DL=ON -DBUILD_SHARED_LIBS=ON >"$root/cmake.log" 2>&1 ||
		die "cmake gave up on the kernels, see $root/cmake.log"
	nice cmake --build "$work/build" --target ggml-cpu -j"$(jobs)" >>"$root/cmake.log" 2>&1 ||
		die "the kernels do not compile, see $root/cmake.log"
	mkdir -p "$root/lib"
	rm -rf "$kernels" "$kernels.new"
	mkdir "$kernels.new"
	cp "$work"/build/lib/ollama/*.so "$kernels.new/"
	mv "$kernels.new" "$kernels"
	rm -rf "$work"
}

answers() { curl -fs --noproxy '*' --max-time 2 "http://127.0.0.1:$1/api/version" >/dev/null 2>&1; }

# alive tells whether the server that start recorded for a port still runs: the
# process id may have gone to another program since.
alive() {
	pid="$(cat "$running/$1.pid" 2>/dev/null)" || return 1
	kill -0 "$pid" 2>/dev/null || return 1
	# Bare containers have no ps.
	name="$(readlink "/proc/$pid/exe" 2>/dev/null || ps -o args= -p "$pid" 2>/dev/null)"
	case "$name" in
	*/ollama*) return 0 ;;
	*) return 1 ;;
	esac
}

start() {
	port="$1"
	case "$port" in *[!0-9]* | '') die "port '$port' is not a number" ;; esac
	store="${2:-$root/models}"
	[ -x "$server" ] || die "the server is not built" "tools/ollama.sh build"
	need curl "install curl, on Debian: apt-get install curl"
	mkdir -p "$store" "$running/home"
	if alive "$port"; then
		[ "$(cat "$running/$port.store" 2>/dev/null)" = "$store" ] ||
			die "a server with another model store runs on port $port" "tools/ollama.sh stop $port, or choose another port"
		say "a server runs on port $port already"
		return
	fi
	if answers "$port"; then
		die "another Ollama server listens on port $port" "choose another port"
	fi
	# Its own home, so that the user's ~/.ollama is neither read nor written.
	HOME="$running/home" OLLAMA_HOST="127.0.0.1:$port" OLLAMA_MODELS="$store" OLLAMA_NOPRUNE=1 \
		nohup "$server" serve >"$running/$port.log" 2>&1 </dev/null &
	echo $! >"$running/$port.pid"
	echo "$store" >"$running/$port.store"
	tries=0
	until answers "$port"; do
		tries=$((tries + 1))
		alive "$port" || die "the server ended at once, see $running/$port.log"
		[ "$tries" -lt 120 ] || die "the server does not answer, see $running/$port.log"
		sleep 0.5
	done
	say "listening on http://127.0.0.1:$port, log in $running/$port.log"
}

stop_one() {
	if alive "$1"; then
		kill "$pid"
		tries=0
		while kill -0 "$pid" 2>/dev/null; do
			tries=$((tries + 1))
			if [ "$tries" -ge 40 ]; then
				# Its runners would outlive a server that is killed.
				for child in $(cat "/proc/$pid/task/$pid/children" 2>/dev/null || ps -o pid= --ppid "$pid" 2>/dev/null); do
					kill -9 "$child" 2>/dev/null || true
				done
				kill -9 "$pid" 2>/dev/null || true
				break
			fi
			sleep 0.25
		done
		say "stopped the server on port $1"
	fi
	rm -f "$running/$1.pid" "$running/$1.store"
}

stop() {
	if [ $# -gt 0 ]; then
		stop_one "$1"
		return
	fi
	for file in "$running"/*.pid; do
		[ -e "$file" ] || continue
		stop_one "$(basename "$file" .pid)"
	done
}

command="${1:-}"
[ $# -eq 0 ] || shift
case "$command" in
build) mkdir -p "$root" && build_server && build_kernels ;;
build-plain) mkdir -p "$root" && build_server ;;
start) [ $# -ge 1 ] || die "start needs a port" "tools/ollama.sh start 11435"; start "$@" ;;
stop) stop "$@" ;;
path) echo "$server" ;;
*)
	sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//;p;}' "$0" >&2
	exit 2
	;;
esac
