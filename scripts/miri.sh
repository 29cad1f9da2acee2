#!/usr/bin/env bash
# Runs what is unsafe on the CPU under Miri: host buffers, views, plain loops, chunks. No kernel is
# built, and neither threads' pools nor vector instructions, which Miri knows little of.
#
# It takes nightly Rust with Miri: rustup component add --toolchain nightly miri rust-src
set -euo pipefail
cd "$(dirname "$0")/.."
cargo +nightly miri --version >/dev/null 2>&1 || { echo "skipped: nightly Rust has no Miri" && exit; }

exec env MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test \
    --manifest-path fuzz/Cargo.toml -p convforge-miri --target-dir target/miri "$@"
