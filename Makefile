# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make help` lists what there is.

PREFIX ?= /usr/local
DESTDIR ?=
# What `make run` runs instead: make run ARGS='top tasks/cpu'
ARGS ?=
# What `make bench` measures, one after the other: make bench BENCH='push read'
BENCH ?= push overhead read settle memory exact tree refresh view record switch custom events snmp netstack containers icount accuracy originals
# Options for each of them: make bench BENCH=push BENCHFLAGS='--rounds 3'
BENCHFLAGS ?=
# How long `make soak` and `make fuzz` take, in seconds.
SECONDS ?= 3600
# What `make fuzz` fuzzes, of tests/fuzz/corpus; all of it where this is empty.
FUZZ ?=
# Whose system calls `make faults` has fail: those of one command, such as unload; or of all.
FAULTS ?= all
# Which Debians `make fresh` tries: 12, 13.
FRESH ?= 12
# Variables that scripts/fresh gets also where sudo runs it.
FRESH_KEEPS := TOPSTAT_FRESH_CACHE TOPSTAT_FRESH_SECONDS TOPSTAT_LIVE_TAGS XDG_CACHE_HOME CARGO_INCREMENTAL
# How long `make test-all` takes at most, and how long `make faults` takes for each command (empty: as long as it takes), in
# seconds.
ALL_SECONDS ?= 7200
FAULTS_SECONDS ?=
# Which parts `make test` runs: lint, build, unit, live, guests, module, fresh. AGAIN=1 also runs parts that have passed with the
# same inputs.
PARTS ?= build unit live guests module
AGAIN ?=
# Options for cargo: make test CARGOFLAGS=-j1
CARGOFLAGS ?=

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
TOPSTAT := $(TARGET)/release/topstat
# `make run`, the tests and the guests share one build: of the whole workspace, so that its packages have the same features.
CI := $(TARGET)/ci
CI_BUILD = $(CARGO) build --profile ci --locked --workspace $(CARGOFLAGS)
VM := $(CI)/topstat-vm
# What `make vm` runs, and on which kernel: 5.10, 6.1, 6.12, 6.18, newest. Without both it is the live tests, on all.
KERNEL ?=
CMD ?=
# Loading eBPF programs takes root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
# By their first line: most have no ending.
SHELL_SCRIPTS = $(shell grep -rlE --exclude-dir=target --exclude-dir=.git --exclude-dir=.cache '^\#!.*\b(ba)?sh$$' .)

# A toolchain of rustup's, where a shell that did not log in does not find it.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
export CARGO CARGOFLAGS
# Tools that scripts/setup installs as Python packages.
PYTHON_ENV := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/topstat/python

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## Install what building, testing and linting need (Debian; elsewhere say what is missing)
	@scripts/setup build test lint

.PHONY: build
build: ## Build the program: target/release/topstat
	$(CARGO) build --release --locked -p topstat $(CARGOFLAGS)

.PHONY: run
run: ## Install what is missing, build, and show the hottest connections of this host (of none: of a load of its own)
	@scripts/setup build
	$(CI_BUILD) --bin topstat --bin topstat-load
ifeq ($(ARGS),)
	@AS_ROOT='$(AS_ROOT)' scripts/run $(CI)/topstat $(CI)/topstat-load tcp_v4/conns_pps
else
	@$(AS_ROOT) $(CI)/topstat $(ARGS)
endif

.PHONY: test
test: ## Install what is missing, and run what decides whether a change may land; as root also what needs the kernel
	@scripts/setup build test
	@[ -z "$${TOPSTAT_TEST_KERNELS-all}" ] || scripts/setup vm || \
		echo "tests on other kernels will be skipped: see above"
	$(CI_BUILD) --bin topstat-gate
	@PATH="$(PYTHON_ENV)/bin:$$PATH" $(CI)/topstat-gate $(if $(AGAIN),--again) land $(if $(LIMIT),--seconds $(LIMIT)) -- $(PARTS)

.PHONY: test-all
test-all: ## Run every test there is, for two hours (ALL_SECONDS=600); what has passed is not run again. In target/test-all.md
	@scripts/setup build test lint vm fuzz fresh patches packages readers
	$(CI_BUILD) --bin topstat-gate
	@PATH="$(PYTHON_ENV)/bin:$$PATH" $(CI)/topstat-gate $(if $(AGAIN),--again) all --seconds $(ALL_SECONDS) $(ALL)

.PHONY: fresh
fresh: ## The first two commands of a newcomer, on a bare Debian 12; FRESH='12 13' also on 13. Wants root, takes a while
	@scripts/setup fresh
	@$(AS_ROOT) env $(foreach name,$(FRESH_KEEPS),$(if $($(name)),$(name)='$($(name))')) scripts/fresh $(FRESH)

.PHONY: lint
lint: lint-format lint-rust lint-shell lint-kernel lint-text lint-lints ## Check formatting, clippy, shellcheck, that logic.h are kernel C, and plain English

.PHONY: lint-format lint-rust lint-shell lint-kernel lint-text lint-lints
lint-format lint-rust lint-shell lint-kernel lint-text lint-lints: lint-setup
# All files, not what cargo knows of: `cargo fmt` does not see the modules that a build script names.
lint-format:
	@find . \( -name target -o -name .cache \) -prune -o -name '*.rs' -print0 | xargs -0 rustfmt --check
lint-rust:
	$(CARGO) clippy --profile ci --workspace --all-targets --locked $(CARGOFLAGS) -- -D warnings
lint-shell:
	@shellcheck -x $(SHELL_SCRIPTS)
# Observers are to run in a kernel module, too.
lint-kernel:
	@tests/lint/kernel-c
	@tests/lint/kmod
lint-text:
	@tests/lint/plain-english
lint-lints:
	@tests/lint/sees-every-file

.PHONY: lint-setup
lint-setup:
	@scripts/setup build lint

.PHONY: bench
bench: ## Measure what topstat costs, for docs/benchmarks.md; wants root and a quiet machine
	@scripts/setup build test bench vm
	$(CARGO) build --release --locked -p topstat -p topstat-bench $(CARGOFLAGS)
	@set -e; for what in $(BENCH); do $(AS_ROOT) $(TARGET)/release/topstat-bench $$what $(BENCHFLAGS); echo; done

.PHONY: pictures
pictures: ## Draw the pictures of the README anew, from the live view under a load
	@scripts/setup build test
	@AS_ROOT='$(AS_ROOT)' scripts/pictures

.PHONY: bench-icount
bench-icount: ## The part of `make bench` that runs in virtual machines: instructions and accuracy, beside tcptop
	@$(MAKE) --no-print-directory bench BENCH='icount accuracy'

.PHONY: soak
soak: ## Keep a daemon under load, readers, settings and kills for an hour (SECONDS=600): does anything grow? And 100,000 tasks
	@scripts/setup build test
	@$(AS_ROOT) env TOPSTAT_CROWD=100000 $(CARGO) test --profile ci --locked --workspace --test live $(CARGOFLAGS) -- crowd::
	@$(AS_ROOT) env TOPSTAT_SOAK_SECONDS=$(SECONDS) $(CARGO) test --profile ci --locked --workspace --test live $(CARGOFLAGS) -- soak::
	@$(AS_ROOT) env TOPSTAT_SOAK_SECONDS=$(SECONDS) $(CARGO) test --profile ci --locked --workspace --test live $(CARGOFLAGS) -- tree_stopped::the_kernel

.PHONY: fuzz
fuzz: ## Fuzz for an hour (SECONDS=600), all targets or one (FUZZ=tree): docs/reliability.md
	@scripts/setup build fuzz
	@scripts/fuzz $(SECONDS) $(FUZZ)

.PHONY: faults
faults: ## Fail each system call of each command, once (FAULTS=unload): takes hours, see docs/reliability.md
	@scripts/setup build test
	@$(AS_ROOT) env TOPSTAT_FAULTS=$(FAULTS) TOPSTAT_FAULTS_SECONDS=$(FAULTS_SECONDS) $(CARGO) test --profile ci --locked --workspace --test live $(CARGOFLAGS) -- syscall_faults::

.PHONY: vm
vm: ## Tests on all other kernels; or any command: make vm KERNEL=6.12 CMD='target/ci/topstat check'
	@scripts/setup build vm
ifeq ($(KERNEL)$(CMD),)
	@AS_ROOT='$(AS_ROOT)' scripts/vm-tests --also 6.1:slub --also 6.1:debug \
		--also 6.1:systemd --also newest:systemd --also newest:numa
else
	$(CI_BUILD) --bin topstat --bin topstat-vm
	$(AS_ROOT) $(VM) $(if $(KERNEL),run --kernel $(KERNEL),matrix) -- sh -c '$(or $(CMD),$(CI)/topstat check)'
endif

.PHONY: vm-arm64
vm-arm64: ## Tests on aarch64, cross-compiled and emulated: on 6.1, and on the newest kernel with pages of 16 KiB
	@scripts/setup build vm packages
	@AS_ROOT='$(AS_ROOT)' scripts/vm-tests --arm64 --kernels 6.1
	@AS_ROOT='$(AS_ROOT)' scripts/vm-tests --arm64-16k --kernels newest

.PHONY: vm-test
vm-test: ## Test the runner of other kernels itself, with real guests
	@scripts/setup build vm
	$(CARGO) test --profile ci --locked --workspace --test guests $(CARGOFLAGS) -- --include-ignored --test-threads 1

.PHONY: readers
readers: ## Test with ClickHouse, Spark and an OpenTelemetry collector, which read what topstat writes: installs them, 1.5 GB
	@scripts/setup build readers
	$(CARGO) test --profile ci --locked --workspace --test fleet --test http $(CARGOFLAGS) -- --include-ignored engines:: otlp::

# Where things go; DESTDIR comes before each.
BINDIR := $(PREFIX)/bin
DOCDIR := $(PREFIX)/share/doc/topstat
MANDIR := $(PREFIX)/share/man
BASHDIR := $(PREFIX)/share/bash-completion/completions
ZSHDIR := $(PREFIX)/share/zsh/site-functions
FISHDIR := $(PREFIX)/share/fish/vendor_completions.d
UNITDIR := $(PREFIX)/lib/systemd/system
TMPFILESDIR := $(PREFIX)/lib/tmpfiles.d
SYSUSERSDIR := $(PREFIX)/lib/sysusers.d
DATADIR := $(PREFIX)/share/topstat
# The units; dist/*.in with the path of the program filled in.
UNITS = $(notdir $(basename $(wildcard dist/*.service.in dist/*.socket.in dist/*.timer.in)))
# The same version of the program for this machine, which writes manual and completions, if the installed one is for another.
TOPSTAT_HERE ?= $(TOPSTAT)
# A debugger's information is ten times the program. STRIP= leaves it in.
STRIP ?= -s

.PHONY: kmod
kmod: ## Build the kernel module (docs/kmod.md) for this kernel; or for one that guests run: make kmod KERNEL=6.1, or debug
ifneq ($(KERNEL),)
	@scripts/setup vm
	$(CI_BUILD) --bin topstat-vm
endif
	@TOPSTAT_VM=$(VM) scripts/kmod $(KERNEL)

.PHONY: kmod-test
kmod-test: ## Test the kernel module in guests: on 5.10, 6.1 and newest, and on the debug kernel
	@scripts/setup vm
	$(CI_BUILD) --bin topstat-vm
	@TOPSTAT_VM=$(VM) scripts/kmod-tests

.PHONY: kmod-patch
kmod-patch: ## Write topstat.ko as patches for a kernel, to target/kmod-patch: for Debian's source of KERNEL=6.1, or SOURCE=DIR; KUNIT=1 tests them
	@scripts/setup build patches
	@[ -n "$(SOURCE)" ] || $(CI_BUILD) --bin topstat-vm
	@TOPSTAT_VM=$(VM) scripts/kmod-patch $(or $(SOURCE),$(KERNEL),newest) $(TARGET)/kmod-patch $(if $(KUNIT),--kunit)

.PHONY: topstat-dkms
topstat-dkms: ## Put the module's source where DKMS builds it from: DESTDIR/usr/src/topstat-VERSION
	@scripts/kmod-dkms '$(DESTDIR)'

.PHONY: install
install: ## Install the program with its manual, completions and units below PREFIX (/usr/local), after `make build`
	@test -x $(TOPSTAT) || { echo "make: $(TOPSTAT) is missing; run 'make build' first" >&2; exit 1; }
	install -D -m 755 $(STRIP) $(TOPSTAT) $(DESTDIR)$(BINDIR)/topstat
	@scripts/install-docs $(DESTDIR)$(DOCDIR)
	install -d $(DESTDIR)$(BASHDIR) $(DESTDIR)$(ZSHDIR) $(DESTDIR)$(FISHDIR)
	$(TOPSTAT_HERE) completions bash >$(DESTDIR)$(BASHDIR)/topstat
	$(TOPSTAT_HERE) completions zsh >$(DESTDIR)$(ZSHDIR)/_topstat
	$(TOPSTAT_HERE) completions fish >$(DESTDIR)$(FISHDIR)/topstat.fish
	@# The pages are those of the program that is installed: it writes them itself.
	pages=$$(mktemp -d) && trap 'rm -r "$$pages"' EXIT && $(TOPSTAT_HERE) man "$$pages" >/dev/null && for page in "$$pages"/*; do \
		install -D -m 644 "$$page" "$(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/}" || exit 1; done
	install -d $(DESTDIR)$(UNITDIR)
	for unit in $(UNITS); do \
		sed 's|@BINDIR@|$(BINDIR)|' dist/$$unit.in >$(DESTDIR)$(UNITDIR)/$$unit || exit 1; done
	install -D -m 644 dist/topstat.tmpfiles.conf $(DESTDIR)$(TMPFILESDIR)/topstat.conf
	install -D -m 644 dist/topstat.sysusers.conf $(DESTDIR)$(SYSUSERSDIR)/topstat.conf
	install -d $(DESTDIR)$(DATADIR)/prometheus $(DESTDIR)$(DATADIR)/grafana
	install -m 644 dist/prometheus/*.yml $(DESTDIR)$(DATADIR)/prometheus
	install -m 644 dist/grafana/*.json $(DESTDIR)$(DATADIR)/grafana
	install -D -m 644 dist/spark/topstat_top.py $(DESTDIR)$(DATADIR)/spark/topstat_top.py

.PHONY: uninstall
uninstall: ## Remove what `make install` has put there; the configuration and what is pinned stay (docs/daemon.md)
	rm -f $(DESTDIR)$(BINDIR)/topstat $(DESTDIR)$(BASHDIR)/topstat $(DESTDIR)$(ZSHDIR)/_topstat
	rm -f $(DESTDIR)$(FISHDIR)/topstat.fish $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS))
	rm -f $(DESTDIR)$(TMPFILESDIR)/topstat.conf $(DESTDIR)$(SYSUSERSDIR)/topstat.conf
	rm -rf $(DESTDIR)$(DATADIR)
	rm -f $(DESTDIR)$(MANDIR)/man1/topstat.1 $(DESTDIR)$(MANDIR)/man[18]/topstat-*.[18]
	rm -f $(DESTDIR)$(MANDIR)/man5/topstat.toml.5
	rm -rf $(DESTDIR)$(DOCDIR)

.PHONY: packages
packages: ## Build .deb, .rpm and .tar.gz that run on other distributions: target/packages, docs/install.md
	@scripts/setup build packages
	@scripts/packages
	@scripts/image

.PHONY: release
release: ## Check the version, licences and changelog, and build, sum up and sign all packages: RELEASING.md
	@scripts/setup build packages
	@scripts/release

.PHONY: packages-test
packages-test: ## Install, use, upgrade and purge the packages in bare Debians 12 and 13, and unpack the others. Wants root
	@scripts/setup packages fresh
	@$(AS_ROOT) scripts/packages-test

.PHONY: clean
clean: ## Remove what was built
	$(CARGO) clean
