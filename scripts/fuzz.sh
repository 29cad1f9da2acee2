#!/usr/bin/env bash
# Fuzzes what is read from outside: scripts/fuzz.sh [SECONDS [TARGET...]], ten seconds for each target
# unless told otherwise. The targets are those of fuzz/Cargo.toml; plans needs a CUDA toolkit. Corpora and findings stay in fuzz/, which git ignores.
#
# It takes cargo-fuzz (cargo install cargo-fuzz) and nightly Rust, whose address sanitizer it turns on.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1-10}
targets=("${@:2}")
[[ ${#targets[@]} -gt 0 ]] || targets=(problem policy tuning idx npy weights model plans)
cargo fuzz --version >/dev/null 2>&1 || { echo "skipped, nothing was fuzzed: cargo install cargo-fuzz" && exit; }
cargo +nightly --version >/dev/null 2>&1 || { echo "skipped, nothing was fuzzed: rustup toolchain install nightly" && exit; }

for target in "${targets[@]}"; do
    features=()
    [[ $target != plans ]] || features=(--features cudnn)
    # Beside the other builds, whose compiled kernels it shares.
    cargo +nightly fuzz run --target-dir target "${features[@]}" "$target" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096
done
