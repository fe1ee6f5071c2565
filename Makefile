# Builds, tests and installs everything. The output of builds and tests stays inside target/ and .tools/.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# Directory in which `make install` puts debugging symbols, e.g. /usr/lib/debug. Empty: they are not installed.
SYMBOLS ?=
# Seconds that `make fuzz` spends on each target; `make audit` spends 10.
FUZZ_SECONDS ?= 60
# KEEP=keep: `make fuzz` adds inputs that reach new code to fuzz/seeds.
KEEP ?=
# Processes killed by each part of `make campaign`.
KILLS ?= 1000
# Number of ranks of sharded copies that `make campaign` kills in each of three tests.
FLEET_KILLS ?= 50
# Servers that `make campaign` kills during the fetch of a file, and during the fetch of a tree.
SERVER_KILLS ?= 100
# Mutated requests that `make campaign` sends to nginx and to thalweg's parser.
REQUESTS ?= 1000000
# Rounds of each race between root and another user in `make campaign`.
USER_RACES ?= 10000
# Power cuts during each command on each file system in `make campaign`. FAULTS: runs of each command on failing disks.
CUTS ?= 1000
FAULTS ?= 500
# Rounds of `make flaky`.
FLAKY ?= 50
# Arguments of `thalweg study`, for `make study`: e.g. STUDY='002 --quick'. Empty: list the studies.
STUDY ?=
# Directory for the results of `make study`.
RESULTS ?= studies/results
# Arguments of JMH, for `make jmh`: patterns and options, e.g. JMH='-f 1 Clears'. Empty: all.
JMH ?=
# Suites of `make audit`, e.g. SUITES='http fuzz'. Empty: all.
SUITES ?=
# Not empty: `make audit` builds no release, and uses the programs of `make test`.
TESTED ?=
# Arguments of `make campaign-speed`: e.g. SPEED='--only serve --rounds 15'. SPEED=--list lists the rows.
SPEED ?=
# Not empty: `make programs` builds a position-independent command, like cargo. Such a command starts more slowly.
PIE ?=
# The oldest systems on which the result of `make wheel` runs, e.g. COMPAT=manylinux_2_28. Empty: this system.
export COMPAT ?=
# Extra arguments for cargo test, e.g. TESTS='-p thalweg-core plan'.
TESTS ?= --workspace

# Exported, so that binaries, scripts and cargo use the same output directory.
export CARGO_TARGET_DIR ?= $(CURDIR)/target
# A test that cannot run here appends a line with the reason to this file. `make test` counts the lines at the end.
export THALWEG_SKIPS := $(CARGO_TARGET_DIR)/skips.txt
# Only test builds contain the code that injects faults.
FEATURES := --features thalweg-sys/faults

BIN := $(CARGO_TARGET_DIR)/release/thalweg
ARCHIVE := $(dir $(BIN))libthalweg_c.a
# A static program at a fixed address starts fastest: it needs no loader and no relocations (docs/decisions/022).
START := $(if $(PIE),,-C target-feature=+crt-static -C relocation-model=static)

.NOTPARALLEL:
.PHONY: help build programs docs test audit campaign campaign-speed flaky honesty lint report study bench jars wheel sdist dist deb api commands packages release jmh fuzz tsan miri cross install clean setup clippy start-skips

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the command, as `cargo build --release` does, and show which crates took longest
	@tests/setup/timed $(CARGO) build --release --locked

programs: ## build what is installed: the command, static and at a fixed address, thalweg-packets, the C library; PIE=1: a position-independent command with a loader
	$(CARGO) build --release --locked --package thalweg-packets --package thalweg-capi
	$(CARGO) rustc --release --locked --package thalweg-cli --bin thalweg -- $(START)

test: start-skips setup ## install missing packages (Debian, as root), lint, run every test, count the skipped tests
	@# The wheel is built here too, so that nothing is compiled while tests run.
	@tests/setup/python environment & status=0; tests/setup/cargo-test --no-run $(TESTS) || status=$$?; wait; \
	((status)) || THALWEG_PROGRAM=$$CARGO_TARGET_DIR/debug/thalweg tests/setup/python build || status=$$?; exit $$status
	@# The tests in Java and Python run beside those in Rust: they mostly wait, and measure nothing. The wheel contains the same
	@# command as the tests in Rust use, and the Java module the same C library.
	@# The tests in Java use the first JIT compiler only, because the second one takes longer than the tests. The audit suite `whole`
	@# uses both.
	@# Studies build programs into the user's cache. XDG_CACHE_HOME keeps those of tests in target/.
	@# The state of unfinished studies goes there too.
	@status=0; export XDG_CACHE_HOME="$$CARGO_TARGET_DIR/cache" XDG_STATE_HOME="$$CARGO_TARGET_DIR/state"; \
	THALWEG_PROGRAM=$$CARGO_TARGET_DIR/debug/thalweg THALWEG_ARCHIVE=$$(tests/setup/tested-archive) \
	tests/setup/with-filesystems tests/setup/run "java=tests/setup/java verify '-Dtest.jvm=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'" \
		"python=env THALWEG_WHEEL_BUILT=1 tests/setup/python test" "lint=tests/setup/lint" -- \
		$(TESTS) || status=$$?; \
	tests/setup/skips summary; exit $$status

audit: export THALWEG_SKIPS := $(CARGO_TARGET_DIR)/audit/skips.txt
audit: export FUZZ_SECONDS := 10
audit: start-skips setup $(if $(TESTED),,build) ## run the tests that need tools built from source, or tests of other projects: SUITES of tests/audit/suites, all by default; TESTED=1: with the programs that `make test` built
	@status=0; $(if $(TESTED),THALWEG="$$CARGO_TARGET_DIR/debug/thalweg" THALWEG_ARCHIVE=$$(tests/setup/tested-archive)) \
	tests/audit/run $(SUITES) || status=$$?; tests/setup/skips summary; exit $$status

campaign: ## long: kill KILLS processes at each end of rings and bulk transfers, of fetch, and of Python's ends and queues; FLEET_KILLS ranks of fleets; SERVER_KILLS servers; cut the power CUTS times and let a disk fail FAULTS times for each command on each file system; a fleet under Slurm; a million messages with Python views of random lifetimes; buffers over 2 GiB by every mechanism; 100,000 messages between languages; 100,000 requests for files that change at the same time; 10,000 random syncs, pattern lists and filter files compared with rsync and git; USER_RACES rounds of each race between root and another user
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
	THALWEG_CASES=10000 $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario -- sync_differential:: sync_faults:: sync_safety:: sync_operands::random remote_filters::random --nocapture
	THALWEG_CASES=10000 $(CARGO) test --locked --package thalweg-tree $(FEATURES) --test tree -- exclude:: filter_files:: --nocapture
	THALWEG_SAMPLE=1 THALWEG_MESSAGES=100000 $(CARGO) test --locked --package thalweg-capi --test capi -- both_ways messages what --nocapture
	THALWEG_ALLOCATIONS=1000000 $(CARGO) test --locked --package thalweg-capi --test capi -- out_of_memory:: --nocapture
	THALWEG_RACES=100000 $(CARGO) test --locked --package thalweg-serve --test serve -- swapped whatever --nocapture
	THALWEG_REQUESTS=$(REQUESTS) $(CARGO) test --locked --package thalweg-fuzzing --test inputs -- nginx:: --nocapture
	THALWEG_CASES=10000 $(CARGO) test --locked --package thalweg-serve --test serve -- joins:: --nocapture
	THALWEG_RACES=$(USER_RACES) $(CARGO) test --locked --package thalweg-cli $(FEATURES) --test scenario -- two_users::races --nocapture

campaign-speed: start-skips setup programs ## about an hour, on an idle machine, best as root: measure thalweg beside other tools, without `thalweg compare`; write docs/benchmarks/machines/DATE-CPU.json and its page; SPEED: arguments
	@status=0; python3 -B peers/speed --thalweg $(BIN) --page $(SPEED) || status=$$?; tests/setup/skips summary; exit $$status

flaky: ## long: run every test FLAKY times, the last fifth of the rounds with a busy core; list the tests that failed in any round
	tests/setup/cargo-test --no-run $(TESTS)
	@XDG_CACHE_HOME="$$CARGO_TARGET_DIR/cache" tests/setup/flaky $(FLAKY) $$(($(FLAKY) / 5)) $(TESTS)

honesty: ## long, on an idle machine: count how often a comparison of equal work shows a difference, in 100 real runs
	$(CARGO) test --locked --package thalweg-lab $(FEATURES) --test lab honesty:: -- --ignored --nocapture

lint: clippy ## check formatting, clippy, dependencies between crates, licences and sources, shell scripts, wording
	@# Rules that the compiler does not check: dependencies between crates and modules, lengths of files.
	$(CARGO) test --quiet --locked --package thalweg-architecture
	@tests/setup/lint

clippy:
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings

docs: ## build the pages for a browser, with a search, into target/book
	@tests/setup/docs

report: build ## make the pages of the kept results: docs/report.html, its picture, docs/benchmarks/articles.md
	$(BIN) report -o docs/report.html studies/results
	$(BIN) report --articles -o docs/benchmarks/articles.md studies/results
	tests/setup/picture docs/report.html docs/report.png

study bench: programs ## measure: STUDY=name runs a study and saves its result in RESULTS; without STUDY, list the studies
	$(BIN) study $(STUDY) --allow-missing --save $(RESULTS)

jars: programs ## build the Java module, and the jar that contains the C library for it
	THALWEG_ARCHIVE=$(ARCHIVE) tests/setup/java package -DskipTests

packages: start-skips ## build all packages (in target/packages, target/wheels, java/target) and test them: the tarball in an empty root, Debian's in a clean Debian, the jar from a local repository, the wheel in an empty environment, the crates from their archives
	@built=$$(CARGO_TARGET_DIR=$$CARGO_TARGET_DIR/packages/build tests/setup/release-build | tail -n 1); status=0; \
	THALWEG=$$built/thalweg THALWEG_BUILT=$$built tests/audit/run packages tarball debian maven wheel || status=$$?; \
	tests/setup/skips summary; exit $$status

dist: ## build the tarball of static programs into target/packages
	@tests/setup/tarball "$$CARGO_TARGET_DIR/packages"

deb: ## build the Debian packages into target/packages/debian
	@tests/setup/deb "$$CARGO_TARGET_DIR/packages/debian"

release: ## release the committed state as VERSION: set versions, changelog and a local tag, build all packages into dist/; upload nothing
	@tests/setup/release "$(VERSION)"

wheel: ## build the Python wheel with the command inside into target/wheels; COMPAT=manylinux_2_28 for older systems
	@tests/setup/python wheel

sdist: ## build the source archive of the Python package, with all crates that it needs, into target/packages
	@tests/setup/sdist "$$CARGO_TARGET_DIR/packages"

commands: build ## write docs/reference/commands.md from the help of every command
	@tests/setup/commands --write $(BIN)

api: ## update docs/api, the lists of the public items of the library crates
	@tests/setup/api --write

jmh: programs ## run the micro-benchmarks of the Java module that JMH names, all by default
	THALWEG_ARCHIVE=$(ARCHIVE) tests/setup/java -Pjmh test-compile exec:exec "-Djmh=$(JMH)"

fuzz: ## run every fuzz target for FUZZ_SECONDS; KEEP=keep: add the inputs that reach new code to fuzz/seeds
	@tests/setup/fuzz $(FUZZ_SECONDS) $(KEEP)

tsan: ## run the ring's tests under ThreadSanitizer (nightly compiler with rust-src)
	@tests/setup/tsan

miri: ## run the portable kernels under miri, as x86-64 and as aarch64 (installs a nightly compiler into .tools/)
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
