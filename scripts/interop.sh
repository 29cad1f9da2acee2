#!/usr/bin/env bash
# Checks and tests the crates of interop/ on the CPU; `interop.sh fetch` only makes the copy of candle-nn
# that the stand-in for it needs. convforge-cudarc needs a CUDA toolkit to build, as convforge does.
set -euo pipefail
cd "$(dirname "$0")/../interop"

# The crate as the registry has it, at the version of the lock file.
fetch() {
    cargo fetch --locked --quiet
    local found copy=shim/fetched/candle-nn
    found=$(cargo metadata --locked --format-version 1 | python3 -c '
import json, pathlib, sys
packages = json.load(sys.stdin)["packages"]
(found,) = (p["manifest_path"] for p in packages if p["name"] == "candle-nn")
print(pathlib.Path(found).parent)')
    rm -rf "$copy"
    mkdir -p "$(dirname "$copy")"
    cp -r "$found" "$copy"
    rm -f "$copy"/.cargo-ok "$copy"/.cargo_vcs_info.json
    echo "$copy is $(basename "$found"), unchanged"
}

# Kernels that are compiled already are not compiled again.
objects() {
    mkdir -p target/convforge-objects
    if [[ -d ../target/convforge-objects ]]; then
        cp -r --no-clobber ../target/convforge-objects/* target/convforge-objects/
    fi
}

fetch
if [[ ${1:-} == fetch ]]; then
    exit
fi
for crate in cudarc candle shim/candle-nn shim/models; do
    cargo fmt --check --manifest-path "$crate/Cargo.toml"
done
cargo clippy --locked --package convforge-candle --all-targets -- -D warnings
cargo test --locked --package convforge-candle
(cd shim && cargo clippy --locked --package models --all-targets -- -D warnings)
(cd shim && cargo test --locked --package models)
objects
cargo clippy --locked --package convforge-cudarc --all-targets -- -D warnings
cargo test --locked --package convforge-cudarc
