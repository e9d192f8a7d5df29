.PHONY: help demo run deb build image image-test build-tests test unit real otel sanity clients monitoring conformance conformance-host-path ceph-newest guest torture fuzz bench bench-delta bench-hop bench-lvm e2e-kubernetes e2e-kubernetes-short e2e-kubernetes-measure manifests lint check-texts oldest-rust fmt clean-run page-test
.DEFAULT_GOAL := help

# Where cargo puts what it builds; scripts look there too.
TARGET := $(or $(CARGO_TARGET_DIR),target)

# One build for everything that tests: another choice of packages would mean other features of
# their dependencies, and all of it built once more.
BUILD_ALL := cargo build --workspace --all-targets --locked

help:
	@awk '/^#:  / { sub(/^#: +/, ""); printf "%-27s %s\n", "", $$0; next } \
	    /^#: / { name = $$2; sub(/^#: [^ ]+ +/, ""); printf "make %-22s %s\n", name, $$0 }' $(MAKEFILE_LIST)

#: demo        what Orlop does, in half a minute on a throw-away pool that is removed at the end; as root
demo: build
	@$(TARGET)/release/orlop demo

#: run         the daemon on a new pool under .run/, until Ctrl-C; root, for staging
run: build
	@scripts/run

#: build       the release binary, target/release/orlop
build:
	cargo build --release --locked --package orlop

#: deb         a Debian package of the release binary, with unit and default configuration, in target/deb
deb: build
	scripts/deb

#: image       container images as OCI tars in target/image, without a registry or a container runtime; on Debian
image: build
	scripts/image

#: image-test  whether those images can be built again, run, and be imported; as root
image-test: image
	tests/image/run

#: test        everything, on Debian with Rust; fetches the rest; needs root
test:
	@scripts/test

#: unit        tests that need no root; the others are skipped, and counted as passed
unit:
	ORLOP_TEST_SKIP_ROOT=1 cargo test --workspace --locked

build-tests:
	$(BUILD_ALL)

#: real        all tests of the workspace, as root on real loop devices and mounts
real:
	$(BUILD_ALL)
	scripts/without-leaks scripts/suites

#: otel        the build that exports spans to an OpenTelemetry collector, and its tests; no root needed
otel:
	cargo test --package orlop --features otel --locked

#: sanity      csi-sanity on an XFS pool, a plain directory and Ceph, mount and block
sanity:
	$(BUILD_ALL)
	scripts/prerequisites
	scripts/without-leaks tests/sanity/run

#: clients     gRPC clients written elsewhere: Python, Node, Ruby, grpcurl, csc for csi.v1 and csi.v0;
#:             fetches what is missing
clients:
	$(BUILD_ALL)
	scripts/prerequisites
	scripts/without-leaks tests/clients/run

#: monitoring  alert rules and metrics under the eyes of promtool and of a Prometheus client; fetches both
monitoring:
	$(BUILD_ALL)
	scripts/without-leaks tests/monitoring/run

#: page-test   the page in headless Chromium; fetches it first; as root
page-test:
	$(BUILD_ALL)
	scripts/without-leaks tests/page/run

#: conformance the conformance suite against Orlop, and against a plugin that breaks the rules;
#:             writes docs/reports/conformance.md
conformance:
	$(BUILD_ALL)
	scripts/without-leaks tests/conformance/all

#: conformance-host-path  the same suite against csi-driver-host-path; writes docs/reports/conformance-host-path.md
conformance-host-path:
	cargo build --locked --package csi-conformance
	scripts/without-leaks tests/conformance/host-path

#: ceph-newest all tests of the rbd pool with the newest Ceph of Debian; as root, fetches 300 MB first
ceph-newest:
	$(BUILD_ALL)
	scripts/prerequisites
	scripts/without-leaks scripts/ceph-newest

#: guest       in a virtual machine with Debian's kernel: all that needs LVM and LUKS, the daemon on ext4, XFS and btrfs, and
#:             tests that find CAP_SYS_RESOURCE and cgroup v2 there; hours, as root, fetches 130 MB first
guest:
	$(BUILD_ALL)
	scripts/prerequisites
	scripts/without-leaks tests/guest/all

#: torture     the long versions of the tests that end the daemon; hours, as root
torture:
	@scripts/torture

#: bench       Orlop, csi-driver-host-path and bare system calls side by side; writes docs/reports/performance.md;
#:             as root, on an idle machine, in under 15 minutes
bench:
	cargo build --release --locked --package orlop --package orlop-bench
	scripts/bench

#: bench-delta what changed blocks of a 100 GiB volume cost; as root, on an idle machine
bench-delta:
	cargo build --release --locked --package orlop --package orlop-bench
	$(TARGET)/release/orlop-bench delta

#: bench-hop   what it costs that a router carries a call; as root, on an idle machine
bench-hop:
	cargo build --release --locked --package orlop --package orlop-bench
	$(TARGET)/release/orlop-bench hop

#: bench-lvm   I/O and calls on LVM beside LVM alone, as ratios, in the virtual machine of make guest; as root
bench-lvm:
	cargo build --release --locked --package orlop --package orlop-bench
	bench/lvm

#: e2e-kubernetes  a real Kubernetes of two nodes on this machine, with the chart's manifests: our scenarios, the
#:             examples and the official suite for CSI drivers; as root, an hour, 20 minutes more for the first builds
e2e-kubernetes: image
	scripts/without-leaks e2e/kubernetes/run

#: e2e-kubernetes-short  the same cluster and ten of the scenarios
e2e-kubernetes-short: image
	scripts/without-leaks e2e/kubernetes/run --short

#: e2e-kubernetes-measure  claims to pods, and 200 claims at once, beside csi-driver-host-path on the same cluster
e2e-kubernetes-measure: image
	scripts/without-leaks e2e/kubernetes/run --measure

#: manifests   deploy/kubernetes from the Helm chart; needs Helm, which e2e/kubernetes/build helm makes
manifests:
	scripts/manifests

#: fuzz        each target of fuzz/ for FUZZ_SECONDS (60); needs cargo-fuzz and a nightly toolchain
fuzz:
	@scripts/fuzz

#: lint        format, clippy, the architecture's rules, links in documents, licences where cargo-deny is installed
lint: check-texts
	cargo clippy --workspace --all-targets --locked -- -D warnings

# All of lint that compiles nothing.
check-texts:
	cargo fmt --all --check
	scripts/architecture
	scripts/links
	scripts/manifests --check
	@if cargo deny --version >/dev/null 2>&1; then \
	    cargo deny --locked check --hide-inclusion-graph bans licenses sources; \
	else \
	    echo 'cargo-deny is not installed: licences and sources of dependencies are not checked'; \
	fi

#: oldest-rust builds the binary's code with the oldest Rust that Cargo.toml promises; fetches it first
oldest-rust:
	scripts/oldest-rust

fmt:
	cargo fmt --all

#: clean-run   remove the pool of make run
clean-run:
	@scripts/clean-run
