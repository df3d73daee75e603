# Everything runs on a fresh Debian or Ubuntu machine with Go, make and, for the
# race detector, a C compiler. Real servers are downloaded once into a cache
# folder (see deploy/lab); nothing is installed on the machine.

GO          ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK ?= golang.org/x/vuln/cmd/govulncheck@v1.9.0

# Two packages at a time and eight tests in each: the tests wait for servers more
# than they compute, and a few servers run for each package.
TESTFLAGS   ?= -p 2 -parallel 8 -timeout 20m
PKG         ?= ./...
FUZZTIME    ?= 10s
DURATION    ?= 2m
BENCH       ?= all

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
RACE    := $(shell command -v gcc >/dev/null 2>&1 && echo -race)

.DEFAULT_GOAL := help
.PHONY: help demo test lint vuln build bench torture fuzz lab-setup clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Set up and run the demo on real servers (ARGS="--database mariadb1011"; bin/demo --help)
	@$(GO) build -buildvcs=false -o bin/demo ./cmd/demo
	@bin/demo $(ARGS)

test: lint lab-setup ## Set up, look at the code, and run all tests on real servers (PKG=./relay/...)
	@test -n "$(RACE)" || echo "no gcc on PATH: the tests run without the race detector (apt-get install gcc libc6-dev)"
	$(GO) test $(RACE) -count=1 $(TESTFLAGS) $(PKG)

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted, run gofmt -w:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

vuln: ## Known vulnerabilities in what is called, where their database can be reached
	@if timeout 10 bash -c '</dev/tcp/vuln.go.dev/443' 2>/dev/null; then $(GO) run $(GOVULNCHECK) ./...; \
	else echo "vuln.go.dev cannot be reached from here: known vulnerabilities were NOT looked up"; fi

build: ## Build the static program into bin/towpath
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.release=$(VERSION)" -o bin/towpath ./cmd/towpath

bench: lab-setup ## A short version of every benchmark, in pairs (BENCH=drain, latency, polling, takeover, matrix, growth, foreign or consume: one at full length; ARGS="--rounds 3")
	$(GO) run ./cmd/bench $(BENCH) --json bench.json $(ARGS)

torture: lab-setup ## Do harm to relays and servers and account for every row (DURATION=30m SEED=42 ARGS="--source mariadb1011 --broker rabbit310")
	$(GO) run ./cmd/torture --duration $(DURATION) $(if $(SEED),--seed $(SEED)) --json torture.json $(ARGS)

torture-bites: lab-setup ## Break one promise at a time in the relay and see the torture fail each
	$(GO) test -count=1 -timeout 60m -run TestTheTortureFailsWhenAPromiseIsBroken ./cmd/torture -args -bites=all

fuzz: ## Run every fuzz test for FUZZTIME (10s)
	@set -e; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' .); do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
			$(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) $$(dirname $$file); \
		done; \
	done

lab-setup: ## Download and unpack the servers that are missing
	@$(GO) run ./deploy/lab/cmd/lab setup

clean: ## Remove what was built (the servers stay in their cache folder)
	rm -rf bin dist
