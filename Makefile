# Builds, tests and checks of this repository. `make run` and `make test` need Go, make and git. tests/requirements installs the
# other programs that the checks need, or names the checks that are skipped. With CI=true, a skipped check is a failure.

DATA   ?= data
LISTEN ?= 127.0.0.1:8080
# How long each of the long runs takes, and the seed of the first of its rounds.
DURATION ?= 10m
SEED ?= 1
# For each fuzz target.
FUZZTIME ?= 10s
# The rounds of make steady.
N ?= 3
BENCH ?= .
# A directory with a copy of the Go vulnerability database, for machines that cannot reach vuln.go.dev.
DB ?=
# The revision with which the messages must be compatible: the merge base with main, or on main the previous commit.
BASE ?= $(shell tests/base)

# The product is a static program, so that it runs everywhere, and so that its memory does not depend on whether a C compiler
# is installed (docs/operations.md, "Memory"). Only the race detector needs C.
export CGO_ENABLED := 0
# All builds and tests have the same flags, so that each package is compiled once.
export GOFLAGS := $(shell go env GOFLAGS) -trimpath
# -w omits the information for debuggers, a fifth of the program.
GOBUILD := go build -ldflags=-w

TOOL := go tool -modfile=tools/go.mod
# `make race` tests the packages with goroutines that share memory with the race detector, the longest first, but for the tests that say
# why they are left out (tests/race).
RACE := computer http cmd actors persistence drive client cluster edge runner
# argon2id is not instrumented, which hashes in one goroutine at a time: the detector nearly doubles the time of each password.
RACEFLAGS := -race -gcflags=golang.org/x/crypto/argon2=-race=false
# More packages than processors are tested at the same time, because many tests wait for processes. lint vets the tests. Go's cache of
# test results is not used, because it does not take into account the programs that many tests build and run.
TESTFLAGS := -p 4 -count=1 -vet=off -timeout 10m
# A part of the tests: make test PACKAGES='./entity/... ./limit' RUN=TestName. The packages whose tests take the longest begin first,
# so that they are tested beside others and not after them.
PACKAGES ?=
RUN ?=
RUNFLAG := $(if $(RUN),-run '$(RUN)')
LONGEST := ./cmd/node ./tests/process ./computer/local ./tests/agents ./tests/browser ./cmd/... ./tests/... ./computer/...
# The Debian packages of the programs that tests run.
PROGRAMS := busybox-static caddy chromium curl davfs2 haproxy litmus nginx nodejs npm podman prometheus rclone runc systemd

.DEFAULT_GOAL := build
.PHONY: build run test race steady lint format vet modules tidy staticcheck sums messages vulnerabilities generate check-generated \
	long kills histories soak systemd fuzz bench clean

build:
	$(GOBUILD) -o bin/atelier ./cmd/atelier

run: build
	@bin/atelier serve --quickstart --log-level=warn --data=$(DATA) --listen=$(LISTEN)

# Runs every test once, and what failed again (tests/suite).
test: build
	tests/requirements $(PROGRAMS) gcc
	tests/modules agents apps browser oauth openapi
	$(if $(RUN),,go -C tools test ./...)
	tests/suite '$(or $(PACKAGES),$(LONGEST) ./...)' $(TESTFLAGS) $(RUNFLAG)

# Runs tests a second time, with the race detector. Without gcc, it only says that it is skipped.
race:
	tests/requirements $(PROGRAMS) gcc
	@if tests/requirements --quiet gcc; then set -x; CGO_ENABLED=1 tests/suite '$(or $(PACKAGES),$(RACE:%=./%/...))' $(TESTFLAGS) $(RACEFLAGS) $(RUNFLAG); fi

# Runs the tests as a busy machine does, N times, and prints what failed and how often.
steady: build
	tests/requirements $(PROGRAMS) gcc
	tests/modules agents apps browser oauth openapi
	tests/steady $(N) '$(or $(PACKAGES),$(LONGEST) ./...)'

lint: format vet modules staticcheck sums messages check-generated

format:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go' | xargs ls 2>/dev/null)); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi

vet:
	go vet ./...

# The requirements of the other modules of the repository must be as committed: Go refuses an outdated go.mod.
modules:
	tests/each-module

# After a change of go.mod: tests/peers requires what the product requires.
tidy:
	for module in $$(git ls-files -co --exclude-standard '*go.mod'); do go -C $$(dirname $$module) mod tidy || exit; done

staticcheck:
	$(TOOL) staticcheck ./...

# A switch over a sealed set must have a case for each of its messages.
sums:
	$(TOOL) go-check-sumtype ./...

messages:
	$(TOOL) buf lint
	tests/breaking "$(BASE)"

# Not a part of lint, because its result depends on an external database and not on this repository only.
vulnerabilities:
	$(TOOL) govulncheck $(if $(DB),-db file://$(abspath $(DB))) ./...

generate:
	$(TOOL) buf generate
	go run ./cmd/atelier reference >docs/configuration.md
	go generate ./http/api
	go -C tools run ./notices .. >THIRD_PARTY_NOTICES.new && mv THIRD_PARTY_NOTICES.new THIRD_PARTY_NOTICES

check-generated:
	tests/generated

# The runs that take longer than a change can wait for (docs/contributing.md).
long: kills histories soak systemd fuzz

kills histories soak systemd:
	tests/long $@ $(DURATION) $(SEED)

fuzz:
	tests/fuzz $(FUZZTIME)

bench:
	tests/requirements apache2
	go test -run '^$$' -bench '$(BENCH)' -timeout 2h ./...
	cd tests/peers && go test -run '^$$' -bench '$(BENCH)' -timeout 1h ./...

clean:
	rm -rf bin .tools
