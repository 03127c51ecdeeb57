# Godwit. `make help` lists what there is to make.

SHELL   := /bin/bash
GO      := scripts/with-go go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGE   := build/guest/vmlinuz build/guest/initrd.img
PREFIX  ?= /usr/local

# All but the race detector compiles as the program is built, without C and without the clone's path: nothing twice.
export CGO_ENABLED := 0
export GOFLAGS += -trimpath

.DEFAULT_GOAL := help
.PHONY: help deps build demo test lint vet race install uninstall clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: # only looks where nothing is missing
	@scripts/install

build: deps ## install what is missing, then build bin/godwit, bin/godwit-guest and the guest image
	$(GO) build -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/godwit
	@scripts/image

demo: build ## build, then move a running guest across subnets before your eyes
	bin/godwit demo

test: build ## build, then run every test, the examples of CI, and a search for leftovers
	@scripts/install test
	@scripts/test

vet: deps ## go vet
	$(GO) vet ./...

lint: deps ## golangci-lint, at the version that scripts/lint pins
	@scripts/lint

# A process with the detector sleeps for 1 s before it ends, as each tunnel, agent and link of the tests would.
race: deps ## the tests that need no guest, under the race detector
	@scripts/install test
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=50 GODWIT_REQUIRE=1 GODWIT_GUESTS=off $(GO) test -race -vet=off -count=1 -p 3 -timeout 20m ./netstate ./agent ./lab/traffic ./... # they mostly wait; the longest first

install: build ## copy the binaries and the guest image into the system
	install -D -m 755 bin/godwit "$(DESTDIR)$(PREFIX)/bin/godwit"
	install -D -m 644 -t "$(DESTDIR)/var/lib/godwit/image" $(IMAGE)
	install -D -m 755 -t "$(DESTDIR)$(PREFIX)/share/godwit" bin/godwit-guest
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/share/godwit" packaging/godwit-guest.service
	install -D -m 644 -t "$(DESTDIR)$(PREFIX)/lib/systemd/system" packaging/godwit.service
	sed -i 's|^ExecStart=/usr/local/|ExecStart=$(PREFIX)/|' "$(DESTDIR)$(PREFIX)/lib/systemd/system/godwit.service"

uninstall: ## remove what install copied; what an agent keeps stays (docs/agent.md, Running it)
	rm -f "$(DESTDIR)$(PREFIX)/bin/godwit" "$(DESTDIR)$(PREFIX)/lib/systemd/system/godwit.service"
	rm -f "$(DESTDIR)$(PREFIX)/share/godwit/"{godwit-guest,godwit-guest.service}
	for file in $(notdir $(IMAGE)); do rm -f "$(DESTDIR)/var/lib/godwit/image/$$file" || exit 1; done
	for dir in "$(PREFIX)/share/godwit" /var/lib/godwit/image /var/lib/godwit; do \
		[ ! -d "$(DESTDIR)$$dir" ] || rmdir --ignore-fail-on-non-empty "$(DESTDIR)$$dir" || exit 1; done

clean: ## remove what was built
	rm -rf bin build
