# Targets for people; .ci/run calls the same ones. `make` alone lists them.

SHELL := /bin/sh
.DEFAULT_GOAL := help

GO    ?= go
# Paths are absolute, so that the tools also run from the contract module's directory.
TOOL  := $(GO) tool -modfile=$(CURDIR)/tools/go.mod
GEN   := internal/envd/gen
COUNT ?= 10
BENCH ?= .
# E2B's published OpenAPI file, which is not part of the repository.
E2B_OPENAPI ?= ../shared/spec/openapi.yml
# Seconds that one example may take before it counts as hung.
EXAMPLE_LIMIT ?= 120

# Nothing here may reach a real account, whatever the shell that calls make has set.
unexport E2B_API_KEY E2B_ACCESS_TOKEN E2B_API_URL E2B_SANDBOX_URL E2B_DOMAIN E2B_DEBUG

LIMIT := $(shell command -v timeout || command -v gtimeout)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## run all tests, with the race detector where it works
	@if why=$$($(GO) build -race runtime/cgo 2>&1); then race=-race; else \
		race=; \
		echo "testing without -race, which needs cgo and a C compiler: $$(printf '%s\n' "$$why" | grep -v '^#' | head -n 1)"; \
	fi; \
	echo "$(GO) test -vet=off $$race ./..."; \
	$(GO) test -vet=off $$race ./... # make vet does it, and once

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...
	cd internal/contract && $(GO) vet ./...

.PHONY: staticcheck
staticcheck: ## staticcheck
	$(TOOL) staticcheck ./...
	cd internal/contract && $(TOOL) staticcheck ./...

.PHONY: lint
lint: ## golangci-lint, with the rules of .golangci.yml
	$(TOOL) golangci-lint run ./...
	cd internal/contract && $(TOOL) golangci-lint run --config $(CURDIR)/.golangci.yml ./...

.PHONY: fmt
fmt: ## format all Go files
	$(TOOL) golangci-lint fmt ./...
	cd internal/contract && $(TOOL) golangci-lint fmt --config $(CURDIR)/.golangci.yml ./...

.PHONY: check-fmt
check-fmt: ## fail when a Go file is not gofmt-formatted
	@bad=$$(gofmt -l .); \
	if [ -n "$$bad" ]; then echo "not formatted, run make fmt:"; echo "$$bad"; exit 1; fi

.PHONY: tidy
tidy: ## tidy the modules
	$(GO) mod tidy
	cd internal/contract && $(GO) mod tidy

.PHONY: check-tidy
check-tidy: ## fail when a go.mod or go.sum is not tidy
	$(GO) mod tidy -diff
	cd internal/contract && $(GO) mod tidy -diff

.PHONY: generate
generate: ## generate the Connect clients from the .proto files
	$(TOOL) buf generate --template $(GEN)/buf.gen.yaml $(GEN)

.PHONY: check-generate
check-generate: ## fail when the generated code is not what the .proto files give
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	$(TOOL) buf generate --template $(GEN)/buf.gen.yaml --output "$$tmp" $(GEN) && \
	if ! diff -r -x '*.proto' -x 'buf*.yaml' "$$tmp/$(GEN)" $(GEN); then \
		echo "generated code differs from its sources, run make generate"; exit 1; \
	fi

.PHONY: cross
cross: ## build and vet for the other systems
	@for os in darwin windows; do \
		echo "GOOS=$$os"; \
		CGO_ENABLED=0 GOOS=$$os $(GO) build ./... && CGO_ENABLED=0 GOOS=$$os $(GO) vet ./... || exit 1; \
	done

.PHONY: large
large: ## move a gigabyte and 10,000 files each way, without the race detector
	$(GO) test -vet=off -count=1 -run '^(TestGigabyte|TestCopyManyFiles)$$' -v .

.PHONY: examples
examples: ## build all examples and run them on the emulator
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	$(GO) build -o "$$tmp/" ./examples/... && \
	for dir in examples/*/; do \
		name=$$(basename "$$dir"); [ -f "$$dir/main.go" ] || continue; \
		echo "--- examples/$$name"; \
		$(if $(LIMIT),$(LIMIT) -k 5 $(EXAMPLE_LIMIT)) "$$tmp/$$name" </dev/null \
			|| { echo "--- examples/$$name failed with status $$?"; exit 1; }; \
	done

.PHONY: bench
bench: ## run the benchmarks COUNT times in turn and compare them with benchstat
	@: > bench.txt; for i in $$(seq $(COUNT)); do \
		$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./... >> bench.txt || { cat bench.txt; exit 1; }; \
	done
	$(TOOL) benchstat -col /by bench.txt

.PHONY: cover
cover: ## measure test coverage, written to cover.out
	@pkgs=$$($(GO) list ./... | grep -v -e '/examples/' -e '/$(GEN)/' | paste -s -d , -) && \
	$(GO) test -coverpkg="$$pkgs" -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1

.PHONY: contract
contract: ## check requests and recorded answers against the OpenAPI file E2B_OPENAPI
	@if [ -f "$(E2B_OPENAPI)" ]; then \
		cd internal/contract && E2B_OPENAPI="$(abspath $(E2B_OPENAPI))" $(GO) test -count=1 ./...; \
	else \
		echo "contract check skipped: there is no $(E2B_OPENAPI)"; [ "$$CI" != true ]; \
	fi

.PHONY: parity
parity: ## write the README's table of routes
	cd internal/contract && E2B_WRITE_PARITY=1 E2B_OPENAPI="$(abspath $(E2B_OPENAPI))" $(GO) test -count=1 -run TestSDK ./...

.PHONY: interop
interop: ## run the official JavaScript SDK against cmd/e2b-local (needs node, npm and network)
	bash e2btest/interop/run.sh
