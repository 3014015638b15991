# Each target sets up what it misses (scripts/setup). Flags pass through ARGS:
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

# With this command alone, and optimised less, it builds in less than half of the time.
demo: ## ACP+ beside Tenth, Lazy and two fixed rates, on the same emulated path
	@scripts/setup rust
	@cargo run --profile demo -p freshline-cli --no-default-features --features demo -- demo $(ARGS)

test: ## tests, format and clippy; what needs root says so and is skipped without
	@scripts/setup build test
	@scripts/test $(ARGS)

test-all: ## the same with the long tests: rates and delays in real time, guests, training
	@scripts/setup build test test-all
	@TEST_ALL=1 scripts/test $(ARGS)

bench: ## a table of benchmarks, each compared with its baseline and its goal; ARGS="--only lab"
	@scripts/setup build test test-all
	@python3 tools/bench/table.py $(ARGS)

train: ## the estimators of Wi-Fi frames and bottlenecks, anew; docs/wlan.md says what comes out
	@scripts/setup build train
	@cmp -s tools/requirements.lock target/python/requirements.lock # it has said what is missing
	@target/python/bin/python tools/wlan/train.py $(ARGS)

docs: ## the book to target/book, the API to target/doc
	@scripts/setup build docs
	@mdbook build docs
	@[ ! -d target/lab-page ] || { rm -rf target/book/lab && cp -R target/lab-page target/book/lab; }
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	@echo "target/book/index.html and target/doc/freshline/index.html"

docs-check: ## links, anchors and diagrams of the documents, and their commands, which run in a namespace as root
	@scripts/docs-check $(ARGS)

lab-page: ## the lab as a page, to target/lab-page, and beside the book
	@scripts/setup rust web
	@scripts/lab-page

lint: ## format and clippy, warnings as errors
	@scripts/setup build
	@scripts/lint

fmt: ## format everything
	@cargo fmt --all
	@cargo fmt --manifest-path fuzz/Cargo.toml

fuzz-smoke: ## each fuzz target for FUZZ_SECONDS (60)
	@scripts/setup build fuzz
	@for target in $(FUZZ_TARGETS); do scripts/fuzz $$target $(FUZZ_SECONDS) || exit 1; done

install-c: ## the library for C and C++ into PREFIX (/usr/local): headers, libraries, pkg-config
	@scripts/setup rust
	@crates/c/install $(PREFIX)

python: ## the Python package: a wheel for this machine in target/wheels, and its tests
	@scripts/setup rust python
	@scripts/python $(ARGS)

wheels: ## wheels for x86-64 and aarch64, glibc and musl, in target/wheels
	@scripts/setup rust python
	@scripts/wheels $(ARGS)
