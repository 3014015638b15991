# Each target installs its missing tools (scripts/setup). Flags are passed in ARGS:
#     make demo ARGS="--duration 5s"
#     make test ARGS="-p freshline-core"
.DEFAULT_GOAL := help
SHELL := /bin/sh
export PATH := $(PATH):$(HOME)/.cargo/bin
ARGS ?=
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
FUZZ_TARGETS := $(sort $(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs))))

.PHONY: help demo test test-all bench train docs docs-check lab-page lint fmt fuzz-smoke install-c python wheels

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

# Only this command is built, with less optimisation: that takes less than half of the time.
demo: ## compare ACP+, Tenth, Lazy and two fixed rates on the same emulated path
	@scripts/setup rust
	@cargo run --profile demo -p freshline-cli --no-default-features --features demo -- demo $(ARGS)

test: ## run tests, format check and clippy; without root, tests that need it are skipped with a message
	@scripts/setup build test
	@scripts/test $(ARGS)

test-all: ## the same with the long tests: rates and delays in real time, virtual machines, training
	@scripts/setup build test test-all
	@TEST_ALL=1 scripts/test $(ARGS)

bench: ## print a table of benchmarks, each compared with its baseline and its goal; ARGS="--only lab"
	@scripts/setup build test test-all
	@python3 tools/bench/table.py $(ARGS)

train: ## train the estimators of Wi-Fi frames and bottlenecks again; docs/wlan.md has the results
	@scripts/setup build train
	@cmp -s tools/requirements.lock target/python/requirements.lock # scripts/setup has printed the reason
	@target/python/bin/python tools/wlan/train.py $(ARGS)

docs: ## build the book in target/book, and the API reference in target/doc
	@scripts/setup build docs
	@mdbook build docs
	@[ ! -d target/lab-page ] || { rm -rf target/book/lab && cp -R target/lab-page target/book/lab; }
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	@echo "target/book/index.html and target/doc/freshline/index.html"

docs-check: ## check links, anchors, diagrams and commands of the documents; as root, commands run in a namespace
	@scripts/docs-check $(ARGS)

lab-page: ## build the lab as a web page in target/lab-page, and in target/book if the book is built
	@scripts/setup rust web
	@scripts/lab-page

lint: ## check format and clippy, warnings as errors
	@scripts/setup build
	@scripts/lint

fmt: ## format everything
	@cargo fmt --all
	@cargo fmt --manifest-path fuzz/Cargo.toml

fuzz-smoke: ## run each fuzz target for FUZZ_SECONDS (60)
	@scripts/setup build fuzz
	@for target in $(FUZZ_TARGETS); do scripts/fuzz $$target $(FUZZ_SECONDS) || exit 1; done

install-c: ## install the library for C and C++ into PREFIX (/usr/local): headers, libraries, pkg-config
	@scripts/setup rust
	@crates/c/install $(PREFIX)

python: ## build the Python package, a wheel for this machine in target/wheels, and run its tests
	@scripts/setup rust python
	@scripts/python $(ARGS)

wheels: ## build wheels for x86-64 and aarch64, glibc and musl, in target/wheels
	@scripts/setup rust python
	@scripts/wheels $(ARGS)
