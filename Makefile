# Everything that is done to this repository. `make run` and `make test` need Go, make and git; what else the checks
# need, tests/requirements installs, or names what is left out. With CI=true a check left out is a failure.

DATA   ?= data
LISTEN ?= 127.0.0.1:8080
FUZZTIME ?= 10s
BENCH ?= .
# What the messages must stay compatible with: where this branch left main, or on main the commit before.
BASE ?= $(shell tests/base)

TOOL := go tool -modfile=tools/go.mod
# These hold locks, mailboxes or streams: a data race is found where there is one.
RACE := ./actors/... ./client/... ./cluster/... ./computer/... ./drive/... ./http/... ./persistence/... ./cmd/...

.DEFAULT_GOAL := build
.PHONY: build run test lint format vet staticcheck sums messages vulnerabilities generate check-generated fuzz bench clean

build:
	go build -o bin/atelier ./cmd/atelier

run: build
	@bin/atelier serve --quickstart --log-level=warn --data=$(DATA) --listen=$(LISTEN)

test: build
	tests/requirements chromium curl davfs2 gcc litmus nodejs npm rclone
	tests/modules browser oauth openapi
	@if tests/requirements --quiet gcc; then set -x; go test -race -timeout 40m $(RACE); else set -x; go test -timeout 40m $(RACE); fi
	go test -timeout 40m $$(go list ./... | grep -v -E '/(actors|client|cluster|computer|drive|http|persistence|cmd|tests)(/|$$)')
# What these build and start, Go's cache of results does not know.
	go test -count=1 -timeout 40m ./tests/...

lint: format vet staticcheck sums messages check-generated

format:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go' | xargs ls 2>/dev/null)); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi

vet:
	go vet ./...

staticcheck:
	$(TOOL) staticcheck ./...

# Switches over a sealed set name each of its messages.
sums:
	$(TOOL) go-check-sumtype ./...

messages:
	$(TOOL) buf lint
	tests/breaking "$(BASE)"

# Apart from lint: its verdict changes with a database elsewhere, and not with this repository.
vulnerabilities:
	$(TOOL) govulncheck ./...

generate:
	$(TOOL) buf generate
	go run ./cmd/atelier reference >docs/configuration.md
	go generate ./http/api

check-generated:
	tests/generated

fuzz:
	tests/fuzz $(FUZZTIME)

bench:
	go test -run '^$$' -bench '$(BENCH)' -timeout 30m ./...
	cd tests/peers && go test -run '^$$' -bench '$(BENCH)' -timeout 30m ./...

clean:
	rm -rf bin .tools
