# One entry for building, testing and installing. Everything written here stays inside target/ and .tools/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# Where `make install` keeps the debugging symbols of what it installs, e.g. /usr/lib/debug; empty keeps none.
SYMBOLS ?=
# Seconds that `make fuzz` spends on each target; `make audit` spends 10.
FUZZ_SECONDS ?= 60
# `keep`: `make fuzz` adds what it found worth keeping to fuzz/seeds.
KEEP ?=
# Processes killed by each part of `make campaign`.
KILLS ?= 1000
# Ranks of fleets that it kills, in each of three tests.
FLEET_KILLS ?= 50
# Servers that `make campaign` kills while a file, and while a tree, is fetched from them.
SERVER_KILLS ?= 100
# Mutated requests that `make campaign` sends to nginx and to our parser.
REQUESTS ?= 1000000
# Rounds of each race between root and another user in `make campaign`.
USER_RACES ?= 10000
# Power cuts of each command on each file system by `make campaign`, and runs of each on disks that fail.
CUTS ?= 1000
FAULTS ?= 500
# Rounds of `make flaky`.
FLAKY ?= 50
# What `make study` passes to `thalweg study`, as in STUDY='002 --quick'; empty lists the studies.
STUDY ?=
# Where its results are kept.
RESULTS ?= studies/results
# What `make jmh` tells JMH: patterns and options, e.g. JMH='-f 1 Clears'; empty runs all.
JMH ?=
# The suites that `make audit` runs, e.g. SUITES='licences fuzz'; empty runs all.
SUITES ?=
# Not empty: `make programs` makes a command that is loaded at an address of chance, as cargo alone does; it starts later.
PIE ?=
# The oldest systems that `make wheel` builds for, e.g. COMPAT=manylinux_2_28; empty is this one.
export COMPAT ?=
# Extra arguments for cargo test, e.g. TESTS='-p thalweg-core plan'.
TESTS ?= --workspace

# Exported, so that binaries and scripts agree with cargo about where the output goes.
export CARGO_TARGET_DIR ?= $(CURDIR)/target
# A test that cannot run here appends a line with the reason; `make test` counts them at the end.
export THALWEG_SKIPS := $(CARGO_TARGET_DIR)/skips.txt
# Only the tests carry the fault seam.
FEATURES := --features thalweg-sys/faults

BIN := $(CARGO_TARGET_DIR)/release/thalweg
ARCHIVE := $(dir $(BIN))libthalweg_c.a
# The command is there at once: nothing to load, nothing to relocate (docs/decisions/022).
START := $(if $(PIE),,-C target-feature=+crt-static -C relocation-model=static)

.NOTPARALLEL:
.PHONY: help build programs docs test audit campaign flaky honesty lint study bench jars wheel sdist dist deb api commands packages release jmh fuzz tsan miri cross install clean setup start-skips

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the command, as `cargo build --release` does, and show which crates took longest
	@tests/setup/timed $(CARGO) build --release --locked

programs: ## build what is installed: the command, static and at a fixed address, thalweg-packets, the C library; PIE=1: a command with a loader, at an address of chance
	$(CARGO) build --release --locked --package thalweg-packets --package thalweg-capi
	$(CARGO) rustc --release --locked --package thalweg-cli --bin thalweg -- $(START)

test: start-skips setup lint ## install what is missing (Debian, root), lint, run every test, count the skipped
	@# Nothing is compiled while tests run: the wheel is built here too.
	@status=0; $(CARGO) test --locked --no-run $(TESTS) $(FEATURES) || status=$$?; \
	((status)) || THALWEG_PROGRAM=$$CARGO_TARGET_DIR/debug/thalweg tests/setup/python build || status=$$?; exit $$status
	@# Java's and Python's tests mostly wait and measure nothing. The wheel that Python tests has the command that the tests were
	@# built with, and Java the C library.
	@# Studies build programs into the user's cache; those of tests stay here.
	@status=0; export XDG_CACHE_HOME="$$CARGO_TARGET_DIR/cache" THALWEG_PROGRAM=$$CARGO_TARGET_DIR/debug/thalweg; \
	THALWEG_ARCHIVE=$$(find "$$CARGO_TARGET_DIR/debug/deps" -name 'libthalweg_c-*.a' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2) \
	tests/setup/with-filesystems tests/setup/run "java=tests/setup/java verify" "python=tests/setup/python test" -- \
		--locked $(TESTS) $(FEATURES) || status=$$?; \
	tests/setup/skips summary; exit $$status

audit: export THALWEG_SKIPS := $(CARGO_TARGET_DIR)/audit/skips.txt
audit: export FUZZ_SECONDS := 10
audit: start-skips setup build ## what needs tools built from source or other projects' tests: SUITES of tests/audit/suites, all by default
	@status=0; tests/audit/run $(SUITES) || status=$$?; tests/setup/skips summary; exit $$status

campaign: ## long: KILLS of each end of rings and bulk transfers between processes, and of fetch, of Python's ends and queues, FLEET_KILLS of fleets, SERVER_KILLS of serve; CUTS of power and FAULTS of a disk for each command on each file system; a fleet under Slurm; a million messages whose views in Python live at random; buffers over 2 GiB by every mechanism; 100,000 messages between languages; 100,000 requests in races for files that change; 10,000 random syncs, pattern lists and filter files beside rsync and git; USER_RACES rounds of each race between root and another user
	THALWEG_KILLS=$(KILLS) THALWEG_HOLDS=536870912 env --default-signal=INT $(CARGO) test --locked --package thalweg-channel --test kills -- --nocapture
	THALWEG_KILLS=$(KILLS) $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario after_a_kill_the_same_command
	THALWEG_KILLS=$(FLEET_KILLS) $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario -- ranks_that_are_killed machines_that_die after_a_kill_at_any_moment --nocapture
	THALWEG_SLURM=1 $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario -- under_slurm
	THALWEG_KILLS=$(SERVER_KILLS) $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario after_a_kill_of_the_server
	THALWEG_CUTS=$(CUTS) THALWEG_FAULTS=$(FAULTS) THALWEG_CUT_SYSTEM=all $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario -- power_cut:: failing_disks:: --nocapture
	THALWEG_KILLS=$(KILLS) THALWEG_VIEWS=1000000 tests/setup/python test --timeout 3600 -s -k "killed or views_of_random_lives"
	THALWEG_LARGE=1 $(CARGO) test --locked --package thalweg-channel --test channel over_two_gibibytes_arrive_whole -- --nocapture
	THALWEG_MESSAGES=1000000 $(CARGO) test --locked --package thalweg-channel --test channel -- a_long_sequence --nocapture
	THALWEG_MESSAGES=100000 $(CARGO) test --locked --package thalweg-channel --test channel -- java:: --nocapture
	THALWEG_DEPTH=3000 $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario -- far_deeper
	THALWEG_CASES=1000 $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario -- cp_differential:: random_trees:: --nocapture
	THALWEG_CASES=10000 $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario -- sync_differential:: sync_faults:: sync_safety:: sync_operands::random --nocapture
	THALWEG_CASES=10000 $(CARGO) test --locked --package thalweg-tree $(FEATURES) --test tree -- exclude:: filter_files:: --nocapture
	THALWEG_SAMPLE=1 THALWEG_MESSAGES=100000 $(CARGO) test --locked --package thalweg-capi --test capi -- both_ways messages what --nocapture
	THALWEG_ALLOCATIONS=1000000 $(CARGO) test --locked --package thalweg-capi --test capi -- out_of_memory:: --nocapture
	THALWEG_RACES=100000 $(CARGO) test --locked --package thalweg-serve --test serve -- swapped whatever --nocapture
	THALWEG_REQUESTS=$(REQUESTS) $(CARGO) test --locked --package thalweg-fuzzing --test inputs -- nginx:: --nocapture
	THALWEG_CASES=10000 $(CARGO) test --locked --package thalweg-serve --test serve -- joins:: --nocapture
	THALWEG_RACES=$(USER_RACES) $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario -- two_users::races --nocapture

flaky: ## long: every test FLAKY times, the last fifth of the rounds beside a busy core; lists what failed in any
	$(CARGO) test --locked --no-run $(TESTS) $(FEATURES)
	@XDG_CACHE_HOME="$$CARGO_TARGET_DIR/cache" tests/setup/flaky $(FLAKY) $$(($(FLAKY) / 5)) --locked $(TESTS) $(FEATURES)

honesty: ## long, on a machine that does nothing else: how often the same work twice shows a difference, in 100 real runs
	$(CARGO) test --locked --package thalweg-lab $(FEATURES) --test lab honesty:: -- --ignored --nocapture

lint: ## formatting, clippy, arrows between crates, licences and sources, shell scripts, wording
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	@# The arrows between crates and modules, the lengths of files: what no compiler looks at.
	$(CARGO) test --quiet --locked --package thalweg-architecture
	@tests/setup/python lint
	@tests/setup/cargo-deny
	@tests/setup/shell
	@tests/setup/version
	@tests/setup/prose

docs: ## build the pages for a browser, with a search, into target/book
	@tests/setup/docs

study bench: programs ## measure: STUDY=name runs a study and keeps its result in RESULTS, none lists them
	$(BIN) study $(STUDY) --allow-missing --save $(RESULTS)

jars: programs ## build the Java module and the jar that carries the C library for it
	THALWEG_ARCHIVE=$(ARCHIVE) tests/setup/java package -DskipTests

packages: start-skips ## build what is installed elsewhere (target/packages, target/wheels, java/target) and prove it: in an empty root, in a clean Debian, from a repository of files, in an empty environment; crates from their archives
	@built=$$(CARGO_TARGET_DIR=$$CARGO_TARGET_DIR/packages/build tests/setup/release-build | tail -n 1); status=0; \
	THALWEG=$$built/thalweg THALWEG_BUILT=$$built tests/audit/run packages tarball debian maven wheel || status=$$?; \
	tests/setup/skips summary; exit $$status

dist: ## build the tarball, whose programs need no library, into target/packages
	@tests/setup/tarball "$$CARGO_TARGET_DIR/packages"

deb: ## build the Debian packages into target/packages/debian
	@tests/setup/deb "$$CARGO_TARGET_DIR/packages/debian"

release: ## name what is committed VERSION: versions, changelog, a tag here, all packages in dist/; uploads nothing
	@tests/setup/release "$(VERSION)"

wheel: ## build the Python package for release, the command inside, into target/wheels; COMPAT=manylinux_2_28 for older systems
	@tests/setup/python wheel

sdist: ## the sources of that, with all crates that it is built from, into target/packages
	@tests/setup/sdist "$$CARGO_TARGET_DIR/packages"

commands: build ## write docs/reference/commands.md from the help of every command
	@tests/setup/commands --write $(BIN)

api: ## renew docs/api, the lists of what the library crates offer
	@tests/setup/api --write

jmh: programs ## run the micro-benchmarks of the Java module, those that JMH names
	THALWEG_ARCHIVE=$(ARCHIVE) tests/setup/java -Pjmh test-compile exec:exec "-Djmh=$(JMH)"

fuzz: ## run every fuzz target for FUZZ_SECONDS; KEEP=keep: add the inputs that reach new code to fuzz/seeds
	@tests/setup/fuzz $(FUZZ_SECONDS) $(KEEP)

tsan: ## the ring's tests under ThreadSanitizer (nightly compiler with rust-src)
	@tests/setup/tsan

miri: ## the portable kernels under miri, as x86-64 and as aarch64 (installs a nightly compiler into .tools/)
	@tests/setup/miri

cross: ## compile the kernels and their tests for aarch64
	@tests/setup/cross

install: programs ## install the binaries, the C library, studies, man pages and completions under DESTDIR PREFIX
	@SYMBOLS="$(SYMBOLS:%=$(DESTDIR)%)" tests/setup/install $(BIN) $(ARCHIVE) "$(DESTDIR)" "$(abspath $(PREFIX))"

clean: ## remove target/ and .tools/
	$(CARGO) clean --quiet
	rm -rf .tools

setup:
	@tests/setup/packages
	@tests/setup/nginx

start-skips:
	@mkdir -p "$$(dirname "$$THALWEG_SKIPS")" && : >"$$THALWEG_SKIPS"
