# SPDX-License-Identifier: Apache-2.0 OR MIT
# `make help` lists what there is.

PREFIX ?= /usr/local
DESTDIR ?=
# What `make run` runs.
ARGS ?= top tcp_v4/conns_pps
# What `make bench` measures, one after the other: make bench BENCH='push read'
BENCH ?= push overhead read memory exact refresh
# Options for each of them: make bench BENCH=push BENCHFLAGS='--rounds 3'
BENCHFLAGS ?=
# Options for cargo: make test CARGOFLAGS=-j1
CARGOFLAGS ?=

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
TOPSTAT := $(TARGET)/release/topstat
VM := $(TARGET)/release/topstat-vm
# What `make vm` runs, and on which kernel: 5.10, 6.1, 6.12, 6.18, newest; all of them if none is named.
KERNEL ?=
CMD ?= $(TOPSTAT) check
# Loading eBPF programs takes root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
SHELL_SCRIPTS := .ci/run $(wildcard scripts/*)

# A toolchain of rustup's, where a shell that did not log in does not find it.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
export CARGO CARGOFLAGS

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## Install what building, testing and linting need (Debian; elsewhere say what is missing)
	@scripts/setup build test lint

.PHONY: build
build: ## Build the program: target/release/topstat
	$(CARGO) build --release --locked -p topstat $(CARGOFLAGS)

.PHONY: run
run: ## Install what is missing, build, and show the hottest connections of this host
	@scripts/setup build
	@$(MAKE) --no-print-directory build
	@$(AS_ROOT) $(TOPSTAT) $(ARGS)

.PHONY: test
test: ## Install what is missing and run every test; as root also those that need the kernel
	@scripts/setup build test
	@scripts/test

.PHONY: lint
lint: lint-format lint-rust lint-shell ## Check the formatting, and what clippy and shellcheck have to say

.PHONY: lint-format lint-rust lint-shell
lint-format lint-rust lint-shell: lint-setup
lint-format:
	$(CARGO) fmt --all --check
lint-rust:
	$(CARGO) clippy --workspace --all-targets --locked $(CARGOFLAGS) -- -D warnings
lint-shell:
	shellcheck $(SHELL_SCRIPTS)

.PHONY: lint-setup
lint-setup:
	@scripts/setup build lint

.PHONY: bench
bench: ## Measure what topstat costs, for the README; wants root and a quiet machine
	@scripts/setup build test bench
	$(CARGO) build --release --locked -p topstat -p topstat-bench $(CARGOFLAGS)
	@set -e; for what in $(BENCH); do $(AS_ROOT) $(TARGET)/release/topstat-bench $$what $(BENCHFLAGS); echo; done

.PHONY: vm
vm: build ## Run a command on other kernels: make vm KERNEL=6.12 CMD='target/release/topstat check' (all kernels without KERNEL)
	$(CARGO) build --release --locked -p topstat-vm $(CARGOFLAGS)
	@missing=$$(dpkg-query -W -f '$${db:Status-Status} $${Package}\n' $$($(VM) deps) 2>&1 | grep -v '^installed' || true); \
		[ -z "$$missing" ] || $(AS_ROOT) apt-get install -y $$($(VM) deps)
	$(AS_ROOT) $(VM) $(if $(KERNEL),run --kernel $(KERNEL),matrix) -- sh -c '$(CMD)'

.PHONY: vm-test
vm-test: ## Test the runner of other kernels itself, with real guests
	$(CARGO) test --locked -p topstat-vm $(CARGOFLAGS) -- --include-ignored --test-threads 1

.PHONY: install
install: ## Install the program and its licences below PREFIX (/usr/local), after `make build`
	@test -x $(TOPSTAT) || { echo "make: $(TOPSTAT) is missing; run 'make build' first" >&2; exit 1; }
	install -D -m 755 $(TOPSTAT) $(DESTDIR)$(PREFIX)/bin/topstat
	install -d $(DESTDIR)$(PREFIX)/share/doc/topstat/LICENSES
	install -m 644 README.md CHANGELOG.md LICENSE.md $(DESTDIR)$(PREFIX)/share/doc/topstat
	install -m 644 LICENSES/*.txt $(DESTDIR)$(PREFIX)/share/doc/topstat/LICENSES

.PHONY: clean
clean: ## Remove what was built
	$(CARGO) clean
