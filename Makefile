# Every target that a person may want has a line after ##; make help lists them.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GO      ?= go
BIN     ?= bin
LDFLAGS := -X main.version=$(VERSION)
# go-nvml's header has deprecated declarations, which are no business of ours.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

# NVML is loaded by the agent alone and its functions are looked up when they are first called: the same program has to
# start without them, also where LD_BIND_NOW is set. rankagent/gpu/weak.h says more; cmd/gswarm/bind_test.go checks it.
WEAK := CGO_CFLAGS='$(CGO_CFLAGS) -include $(CURDIR)/rankagent/gpu/weak.h'
LAZY := -extldflags "-Wl,-z,lazy -Wl,-z,dynamic-undefined-weak"

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: $(BIN)/gswarm ## build bin/gswarm, with everything in it

GOFILES := $(shell find . -name '*.go' -not -path './.venv/*' -not -path './bin/*' 2>/dev/null)
$(BIN)/gswarm: $(GOFILES) go.mod go.sum rankagent/gpu/weak.h
	$(WEAK) $(GO) build -trimpath -ldflags '$(LDFLAGS) $(LAZY)' -o $@ ./cmd/gswarm

.PHONY: dist
dist: ## build dist/gswarm, static and without GPUs, and dist/gswarm-agent for any glibc from 2.28
	VERSION='$(VERSION)' GO='$(GO)' scripts/dist/build

.PHONY: demo
demo: build ## build gswarm and run it on a small job, whatever the machine has; GPU=replay plays half a minute of eight recorded GPUs
	@scripts/demo/run "$(GPU)"

.PHONY: test
test: ## unit tests, race detector on; no root, under three minutes
	$(GO) vet ./...
	$(GO) test -race -timeout 15m ./...
	$(GO) test -timeout 10m ./shard ./report

.PHONY: readers
readers: build ## open a timeline with DuckDB, pandas, PyArrow and Polars, and each export with its reader
	scripts/readers/run

.PHONY: html-check
html-check: build ## open the report's pages in headless Chromium and use them; PICTURES=DIR leaves pictures of them
	scripts/html/run $(PICTURES)

.PHONY: e2e
e2e: build ## end-to-end tests on a real four-node Slurm on this machine; needs root
	scripts/slurm/cluster install
	GO="$(GO)" scripts/ci/e2e

.PHONY: soak
soak: build ## the full fault tests, an hour or so; root for those that fill disks
	GSWARM_SOAK=1 $(GO) test -count=1 -parallel 8 -timeout 4h -v ./soak

.PHONY: soak-clock
soak-clock: ## what docs/clocks.md says of clocks, measured anew; the part between namespaces needs root
	$(GO) test ./clock -soak -count=1 -timeout 30m -run 'TestProof|TestManyJobs|TestDetection|TestComparison' -v
	$(GO) test ./clock -run '^$$' -bench Cluster -benchtime 1x
	$(GO) test ./clock/probe -run '^$$' -bench 'Answer|Burst'
	$(GO) test -tags e2e ./clock/probe -run Namespaces -count=1 -v -clockrun 2m

.PHONY: lint
lint: ## gofmt and golangci-lint, at the version that .golangci.yml names
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	"$$(scripts/ci/golangci-lint)" run ./...

FUZZTIME ?= 20s
.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (20s)
	@scripts/ci/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## benchmarks, six runs each, for benchstat
	$(GO) test -run '^$$' -bench . -benchmem -count 6 ./...

# What measures the merge against other programs; docs/merge.md says how to run it.
BENCHES := bench-merge bench-queries bench-footers
.PHONY: $(BENCHES)
bench-merge: ## compare the merge with DuckDB and Polars; ROWS, NODES, PAIRS, WHERE, LIMIT scale it
bench-queries: ## compare queries on a timeline with those on DuckDB's own output; ROWS, NODES, TILES scale it
bench-footers: ## what footers cost by how many row groups a file has; NODES, TILES, PER_FILE scale it
$(BENCHES): build
	scripts/readers/venv
	$(GO) build -trimpath -o bin/mergebench ./merge/mergebench
	.venv/bin/python -B scripts/bench/$(@:bench-%=%).py

.PHONY: cover
cover: ## test coverage by package
	$(GO) test -cover ./...

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
