#!/bin/sh
# Measures demur against its peers, side by side; see tools/bench/main.go. Writes
# bench.json.
#
#   tools/bench.sh           an hour where the machine is fast enough, see FRACTION
#   tools/bench.sh --quick   under five minutes: one model, one round, a loop only
#
#   LLAMA_SERVER=FILE        also measures this llama-server (tools/llama-server.sh builds one)
#   TRANSFORMERS=FILE        also measures extract against Transformers in this Python, which
#                            has torch, transformers, accelerate and gguf
#   DEMUR_ORGANISM=FILE      also measures on this small model that refuses
#   ROUNDS=3                 interleaved rounds
#   FRACTION=5               peers run every fifth request; by default 5, 10 or 20, by the
#                            machine's speed, and it says how long it will take
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
export CGO_ENABLED=0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/demur
port=${DEMUR_OLLAMA_PORT:-11437}

tools/models.sh
q4=$cache/models/SmolLM2-135M-Instruct.Q4_1.gguf
q8=$cache/models/SmolLM2-135M-Instruct.Q8_0.gguf
[ -f "$q8" ] || $GO run ./tools/quantise "$q4" "$q8" q8_0
f16=$cache/models/SmolLM2-135M-Instruct.F16.gguf
[ -f "$f16" ] || $GO run ./tools/quantise "$q4" "$f16" f16
$GO build -o bin/bench ./tools/bench

if [ "${1:-}" = --quick ]; then
	exec bin/bench -q8_0 "$q8" -rounds 1 -requests 4 -fraction 2 -sides loop,bare
fi

organism=${DEMUR_ORGANISM:-}
if [ -z "$organism" ] && [ -f "${DEMUR_SHARED:-../shared}/models/demur-organism-135m-Q8_0.gguf" ]; then
	organism=${DEMUR_SHARED:-../shared}/models/demur-organism-135m-Q8_0.gguf
fi
store=$(mktemp -d)
cleanup() {
	tools/ollama.sh stop "$port" >/dev/null 2>&1 || true
	rm -rf "$store"
}
trap cleanup EXIT INT TERM
server=
if tools/ollama.sh build && OLLAMA_NUM_PARALLEL=4 tools/ollama.sh start "$port" "$store"; then
	server=http://127.0.0.1:$port
else
	echo "bench: no Ollama server could be built and started; it is not measured" >&2
fi
bin/bench -q8_0 "$q8" -q4_1 "$q4" -f16 "$f16" -transformers "${TRANSFORMERS:-}" ${organism:+-organism "$organism"} \
	-rounds "${ROUNDS:-3}" -fraction "${FRACTION:-0}" -ollama "$server" -llama-server "${LLAMA_SERVER:-}" ${BENCH_FLAGS:-}
