#!/bin/sh
# The slower tests, on real weights and a real Ollama server. Fetches the models,
# builds the server, starts it on a loopback port of its own, stops it. What
# cannot be had is said, and its tests skip with that reason.
set -eu
cd "$(dirname "$0")/.."
GO=${GO:-go}
export CGO_ENABLED=0
port=${DEMUR_OLLAMA_PORT:-11435}

tools/models.sh || echo "test-real: SmolLM2 could not be fetched; its tests skip" >&2

store=$(mktemp -d)
cleanup() {
	tools/ollama.sh stop "$port" >/dev/null 2>&1 || true
	rm -rf "$store"
}
trap cleanup EXIT INT TERM
if tools/ollama.sh build-plain && tools/ollama.sh start "$port" "$store"; then
	export DEMUR_TEST_OLLAMA=http://127.0.0.1:$port OLLAMA_MODELS=$store
else
	echo "test-real: no Ollama server could be built and started; its tests skip" >&2
fi
export DEMUR_LONG=1
# Left out, for each takes long by itself and needs no real model: the full
# coverage grid of analysis, the thousand simulated demos and the builds with a
# fault in each (make test-long); and models that judge, whose figures are read.
# One package at a time: an Ollama server's answers depend on who else it serves.
$GO test -count=1 -p 1 -timeout 40m -skip 'SeededFaultsAreCaught|SoundInstrument|Distortion|ModelJudgesOnXSTest' "$@" ./cmd/... ./inference/... ./protocol/... ./models/...
