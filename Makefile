# demur: build, test, measure. `make demo` and `make test` are all a newcomer needs.

SHELL      := /bin/sh
GO         ?= go
VERSION    := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
export CGO_ENABLED := 0

.PHONY: help
help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: go-there
go-there:
	@command -v $(GO) >/dev/null 2>&1 || { echo "make: Go is not on the PATH" >&2; \
		echo "hint: install Go 1.26 or newer from https://go.dev/dl, or name it: make GO=/path/to/go" >&2; exit 1; }

.PHONY: setup
setup: libraries build ## fetch the llama.cpp libraries, build bin/demur

.PHONY: libraries
libraries:
	@tools/setup.sh

.PHONY: build
build: go-there ## build bin/demur
	@[ -x bin/demur ] || echo "make: building bin/demur (1 to 3 minutes the first time)" >&2
	@$(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/demur ./cmd/demur

.PHONY: demo
demo: setup ## run the whole job on the phantom and compare with the truth
	@bin/demur demo

.PHONY: test
test: setup ## pass the tests (real models and servers where they are set up)
	@$(GO) test ./...

.PHONY: test-real
test-real: setup ## the slower tests: real models, a real Ollama server
	@tools/test-real.sh

.PHONY: test-long
test-long: setup ## what takes an hour or more: coverage of intervals, simulated demos, seeded faults
	@DEMUR_LONG=1 $(GO) test -count=1 -timeout 4h ./analysis ./cmd/demur -run 'Coverage|CorrectionRecovers|Million|SeededFaults|SoundInstrument|Distortion|ModelJudges' -v

.PHONY: check
check: go-there ## what a change must pass: format, vet, static checks, tidy, race, fuzz
	@tools/check.sh

.PHONY: bench
bench: setup ## measure demur against Ollama, a plain loop and llama-server (an hour)
	@tools/bench.sh

.PHONY: bench-quick
bench-quick: setup ## the same in short, under five minutes
	@tools/bench.sh --quick

.PHONY: bundle
bundle: setup ## one archive that runs on a machine without network
	@tools/bundle.sh

.PHONY: clean
clean: ## remove what was built here (not the cache)
	@rm -rf bin dist
