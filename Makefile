# One entry for building, testing and installing. Everything written here stays inside target/ and .tools/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# Seconds spent on each fuzz target by `make fuzz`, and by the short run inside `make test`.
FUZZ_SECONDS ?= 60
SMOKE_SECONDS ?= 5
# Processes killed by `make campaign`.
KILLS ?= 1000
# What `make study` passes to `thalweg study`, as in STUDY='002 --quick'; empty lists the studies.
STUDY ?=
# Where its results are kept.
RESULTS ?= studies/results
# Extra arguments for cargo test, e.g. TESTS='-p thalweg-core planner'.
TESTS ?= --workspace

# Exported, so that binaries and scripts agree with cargo about where the output goes.
export CARGO_TARGET_DIR ?= $(CURDIR)/target
# A test that cannot run here appends a line with the reason; `make test` counts them at the end.
export THALWEG_SKIPS := $(CARGO_TARGET_DIR)/skips.txt
# Only the tests carry the fault seam.
FEATURES := --features thalweg-sys/faults

BIN := $(CARGO_TARGET_DIR)/release/thalweg

.NOTPARALLEL:
.PHONY: help build test campaign lint study bench fuzz install clean setup start-skips

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build thalweg, thalweg-packets and the C library for release
	$(CARGO) build --release --locked --package thalweg --package thalweg-packets --package thalweg-capi

test: start-skips setup lint ## install what is missing (Debian, root), lint, run every test, count the skipped
	@tests/setup/fuzz smoke $(SMOKE_SECONDS)
	@# Whoever starts this in the background may have SIGINT ignored, and tests send it.
	@# Studies build programs into the user's cache; those of tests stay here.
	@status=0; XDG_CACHE_HOME="$$CARGO_TARGET_DIR/cache" env --default-signal=INT tests/setup/with-filesystems $(CARGO) test --locked --no-fail-fast $(TESTS) $(FEATURES) || status=$$?; \
	tests/setup/java verify || status=$$?; \
	tests/setup/skips summary; exit $$status

campaign: ## the long campaign of kills against rings between processes: KILLS of them
	THALWEG_KILLS=$(KILLS) env --default-signal=INT $(CARGO) test --locked --package thalweg-channel --test kills -- --nocapture

lint: ## formatting, clippy, licences and sources, shell scripts
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	@# The shipped binary has no test features; a use that only they make valid must not hide here.
	$(CARGO) check --quiet --locked --package thalweg
	@tests/setup/cargo-deny
	@tests/setup/shell

study bench: build ## measure: STUDY=name runs a study and keeps its result in RESULTS, none lists them
	$(BIN) study $(STUDY) --save $(RESULTS)

fuzz: ## run every fuzz target for FUZZ_SECONDS
	@tests/setup/fuzz run $(FUZZ_SECONDS)

install: build ## install the binaries, the C library, studies, man pages and completions under DESTDIR PREFIX
	@tests/setup/install $(BIN) $(dir $(BIN))libthalweg.a "$(DESTDIR)" "$(PREFIX)"

clean: ## remove target/ and .tools/
	$(CARGO) clean --quiet
	rm -rf .tools

setup:
	@tests/setup/packages
	@tests/setup/nginx

start-skips:
	@mkdir -p "$(CARGO_TARGET_DIR)" && : >"$(THALWEG_SKIPS)"
