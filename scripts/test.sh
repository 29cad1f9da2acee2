#!/usr/bin/env bash
# All tests from a bare machine: installs the CUDA toolkit's compiler if there is none, then
# `cargo test --features cudnn`. Arguments go to cargo test.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 scripts/toolkit.py
exec cargo test --features cudnn "$@"
