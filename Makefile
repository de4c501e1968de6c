# Every target sees to its own set-up: scripts/bootstrap.sh installs what is missing, or says what to install.
# CARGO_TARGET_DIR is honoured; PREFIX and DESTDIR are, by install and uninstall.

SHELL := /bin/sh
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
GRIDLANE := $(TARGET_DIR)/release/gridlane
ENV := . scripts/env.sh
export PREFIX DESTDIR

.PHONY: help build capi wheel install uninstall test test-long soak demo bench bench-trees bench-root bench-auth bench-gsi bench-wan bench-tpc bench-read lab-quick lab-own check-netem lint fmt clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

build: ## the release binary, at target/release/gridlane
	@sh scripts/bootstrap.sh
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@echo "built $(GRIDLANE)"

capi: ## the C library of the remote reader, shared and static, beside the binary; `make install` installs it too
	@sh scripts/bootstrap.sh
	@$(ENV) && cargo rustc --release --locked --package gridlane-capi --crate-type cdylib,staticlib
	@cp crates/capi/include/gridlane.h $(TARGET_DIR)/release/gridlane.h
	@sed -n 's/^version = "\(.*\)"$$/\1/p' Cargo.toml | head -n 1 >$(TARGET_DIR)/release/gridlane.version
	@echo "built $(TARGET_DIR)/release/libgridlane_capi.so and .a"

wheel: ## the wheel of the Python package for glibc 2.28 and newer, at target/wheels
	@sh scripts/bootstrap.sh --wheel
	@sh scripts/wheel.sh $(TARGET_DIR)/wheels

install: ## the binary (and library) without symbols, manual pages, completions, below PREFIX (/usr/local) in DESTDIR; builds nothing
	@sh scripts/install.sh install $(GRIDLANE)

uninstall: ## removes what install made
	@sh scripts/install.sh uninstall

test: ## everything that must hold: format, lints, layers, unit, property, end-to-end and interoperability tests
	@sh scripts/test.sh

test-long: ## what takes hours: the tests under load, again and again; longer fuzzing; servers that are killed under copies
	@sh scripts/test-long.sh $(STEPS)

soak: ## copies beside credentials of 20 seconds for ten minutes (SOAK_SECONDS): counts, and how late each was
	@sh scripts/soak.sh

demo: ## a minute of copies between real servers on this machine, as a table
	@sh scripts/bootstrap.sh --demo
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && exec python3 demo/run.py --gridlane $(GRIDLANE) $(DEMO_OPTIONS)

bench: ## paired runs on loopback against nginx, Apache, XRootD, curl and others (BENCH_OPTIONS=--quick for a first look)
	@sh scripts/bootstrap.sh --bench
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && exec python3 bench/loopback.py --gridlane $(GRIDLANE) $(BENCH_OPTIONS)

bench-trees: ## paired runs with uploads of small files, listings and ranges against rclone, nginx and Apache
	@sh scripts/bootstrap.sh --bench-trees
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && exec python3 bench/trees.py --gridlane $(GRIDLANE) $(BENCH_OPTIONS)

bench-root: ## paired runs over root:// against xrootd and xrdcp
	@sh scripts/bootstrap.sh --bench-root
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && cargo build --release --locked --package gridlane-xrd --example root_load
	@$(ENV) && exec python3 bench/root.py --gridlane $(GRIDLANE) --load $(TARGET_DIR)/release/examples/root_load $(BENCH_OPTIONS)

bench-auth: ## handshakes and requests with credentials beside nginx
	@sh scripts/bootstrap.sh --bench-auth
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && cargo build --release --locked --package gridlane-net --example tls_load
	@$(ENV) && exec python3 bench/auth.py --gridlane $(GRIDLANE) --load $(TARGET_DIR)/release/examples/tls_load $(BENCH_OPTIONS)

bench-gsi: ## logins by certificate over root:// (gsi) beside XRootD's server
	@sh scripts/bootstrap.sh --bench-gsi
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && cargo build --release --locked --package gridlane-gsi --example gsi_load
	@$(ENV) && exec python3 bench/gsi.py --gridlane $(GRIDLANE) --load $(TARGET_DIR)/release/examples/gsi_load $(BENCH_OPTIONS)

bench-wan: ## copies over emulated wide areas with faults, liars, losses and small files (half an hour; BENCH_OPTIONS=--list, --quick)
	@sh scripts/bootstrap.sh --bench-wan
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@mkdir -p bench/results
	@$(ENV) && cargo test --locked --package gridlane-plan --test scenarios -- --nocapture >bench/results/simulated.txt || \
		echo 'not every simulated scenario reaches its bound; see bench/results/simulated.txt'
	@$(ENV) && exec python3 bench/wan.py --gridlane $(GRIDLANE) --simulated bench/results/simulated.txt $(BENCH_OPTIONS)

bench-tpc: ## many small copies between two servers and the second of two, beside XRootD's (5 minutes; BENCH_OPTIONS=--quick)
	@sh scripts/bootstrap.sh --bench-tpc
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && exec python3 bench/tpc.py --gridlane $(GRIDLANE) $(BENCH_OPTIONS)

bench-read: ## reading a part of a remote file, beside pyxrootd, fsspec and each policy (an hour and a half; BENCH_OPTIONS=--list, --quick, '--row NAME')
	@sh scripts/bootstrap.sh --bench-read
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && cargo build --release --locked --package gridlane-read --example hindsight
	@sh scripts/wheel.sh $(TARGET_DIR)/wheels
	@$(ENV) && exec python3 bench/read.py --gridlane $(GRIDLANE) --simulator $(TARGET_DIR)/release/examples/hindsight \
		--wheel $(TARGET_DIR)/wheels $(BENCH_OPTIONS)

lab-quick: ## the published experiments in their quick sizes, with reports below lab/results (40 minutes; LAB_OPTIONS=NAME...)
	@sh scripts/bootstrap.sh --lab
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && exec sh scripts/lab-quick.sh "$$lab_python" $(GRIDLANE) $(LAB_OPTIONS)

lab-own: ## paired runs against gridlane's own targets, by the lab (quick: 5 minutes; LAB_SIZE=full: 2 hours; LAB_OPTIONS=own/NAME...)
	@sh scripts/bootstrap.sh --lab
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && exec sh scripts/lab-quick.sh "$$lab_python" $(GRIDLANE) $(or $(LAB_OPTIONS),own)

check-netem: ## the back end netem of gridlane wan, in a virtual machine whose kernel has it
	@sh scripts/bootstrap.sh
	@$(ENV) && cargo build --release --locked --package gridlane-cli
	@$(ENV) && exec sh scripts/check-netem.sh $(GRIDLANE)

lint: ## format and lints only
	@sh scripts/bootstrap.sh --test
	@sh scripts/check-tidy.sh
	@sh scripts/check-layers.sh
	@python3 scripts/check-cycles.py
	@python3 scripts/check-words.py
	@$(ENV) && cargo fmt --all --check
	@$(ENV) && cargo clippy --workspace --all-targets --locked -- -D warnings
	@$(ENV) && cargo clippy -p gridlane-net --no-default-features --locked -- -D warnings

fmt: ## formats the code
	@sh scripts/bootstrap.sh --test
	@$(ENV) && cargo fmt --all

clean: ## removes what was built
	@$(ENV) && cargo clean
	@rm -rf bench/results
