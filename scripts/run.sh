#!/usr/bin/env bash
# The main job from a bare machine: installs the CUDA toolkit's compiler if there is none, builds
# convforge and runs it. Without arguments: the checked side-by-side comparison.
set -euo pipefail
cd "$(dirname "$0")/.."
python3 scripts/toolkit.py
if [ $# -eq 0 ]; then set -- compare; fi
exec cargo run --release --features cudnn -- "$@"
