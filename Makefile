# demo, test, build, run, lint, fuzz and bench need Go alone, whose tools are pinned in go.mod. race (and so check) also
# needs a C compiler, client and interop need Node and npm, page needs Node, e2e and pictures need chromium, which e2e installs.
GO ?= go
BIN := bin/pushrelay
FUZZTIME ?= 5000x
CRASH_KILLS ?= 300
RUN_DIR ?= .run

.PHONY: help demo test build run fmt lint race fuzz bench crash fulldisk client interop page e2e pictures check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## a relay, two sites and three daemons on this machine: jobs end to end
	./$(BIN) demo

test: ## all tests
	$(GO) test ./...

build: ## build bin/pushrelay
	$(GO) build -o $(BIN) ./cmd/pushrelay

run: build ## serve with demo keys from .run (made when missing)
	@test -f $(RUN_DIR)/projection.json || ./$(BIN) init $(RUN_DIR)
	./$(BIN) serve --projection $(RUN_DIR)/projection.json --data $(RUN_DIR)/data

fmt: ## format the sources
	$(GO) tool gofumpt -w cmd hub session store web wire

lint: ## formatting, vet, staticcheck and the house rules
	@out=$$($(GO) tool gofumpt -l cmd hub session store web wire); test -z "$$out" || { echo "not formatted (make fmt):"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags foreign ./cmd/pushrelay
	$(GO) vet -tags interop ./cmd/pushrelay
	$(GO) vet -tags e2e,pictures ./cmd/pushrelay
	$(GO) tool staticcheck ./...
	@! grep -rnE 'time\.Sleep\(' --include='*_test.go' . || { echo "tests don't sleep"; exit 1; }
	@big=$$(find . -name '*.go' -not -path './.git/*' | xargs wc -l | awk '$$2!="total" && $$1>600'); test -z "$$big" || { echo "over 600 lines:"; echo "$$big"; exit 1; }

race: ## all tests with the race detector (needs a C compiler)
	$(GO) test -race ./...

# Each package is built once for all of its targets: go test -fuzz would build it for each. A count, because a target that
# is at work when a short time is over fails.
fuzz: ## every fuzz target for FUZZTIME (5000x: so many inputs; or a time)
	@set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	for dir in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
	  $(GO) test -c -fuzz=. -o "$$tmp/fuzz" $$dir; \
	  for target in $$("$$tmp/fuzz" -test.list '^Fuzz'); do \
	    echo "$$dir $$target"; \
	    (cd $$dir && "$$tmp/fuzz" -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(FUZZTIME) \
	      -test.fuzzcachedir "$$($(GO) env GOCACHE)/fuzz/pushrelay/$$dir") >"$$tmp/log" 2>&1 || { cat "$$tmp/log"; exit 1; }; \
	  done; \
	done

bench: build ## the figures of docs/performance.md
	./$(BIN) bench lifecycle
	./$(BIN) bench latency
	./$(BIN) bench idle
	./$(BIN) bench storm
	./$(BIN) bench poll
	./$(BIN) bench poll --held 10000
	./$(BIN) bench store
	./$(BIN) bench lifecycle --store disk

crash: ## kill relays CRASH_KILLS (300) times while jobs go through them; make test does so 100 times
	CRASH_KILLS=$(CRASH_KILLS) $(GO) test -count=1 -timeout 30m -run TestKilledAtRandomMoments ./cmd/pushrelay/internal/crash

fulldisk: ## a relay on a disk that is full, mounted for this (needs root; make test limits its files instead)
	unshare --mount $(GO) test -count=1 -tags mount -run TestFullDisk ./cmd/pushrelay/internal/crash

client: build ## the client in another language, against a real relay (needs Node and npm)
	$(GO) test -count=1 -tags foreign -run TestForeignClient ./cmd/pushrelay

interop: build ## the public clients of npm, which poll, against a real relay: every mix, and how fast (needs Node and npm)
	$(GO) test -count=1 -tags interop -timeout 20m -v -run TestInterop ./cmd/pushrelay

page: ## the scripts of the debug page, as far as they are pure (needs Node)
	node --test web/statictest/

e2e: ## the debug page in a real Chromium (installs Debian's chromium when there is none and it may)
	@for b in chromium chromium-browser google-chrome; do command -v $$b >/dev/null && exit; done; { test "$$(id -u)" = 0 && command -v apt-get >/dev/null || { echo "install chromium"; exit 1; }; \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium; }
	$(GO) test -count=1 -timeout 20m -tags e2e -parallel 4 -run '^TestPage' ./cmd/pushrelay

pictures: ## take the pictures of docs/ anew, of the demonstration after PICTURES_AFTER (4m30s; needs chromium)
	$(GO) test -count=1 -timeout 20m -tags e2e,pictures -v -run '^TestPictures' ./cmd/pushrelay

check: ## what a change must pass: test, race, lint, fuzz
	$(MAKE) test
	$(MAKE) race
	$(MAKE) lint
	$(MAKE) fuzz

clean: ## remove what was built
	rm -rf bin .run
