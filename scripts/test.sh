#!/usr/bin/env bash
# All tests from a bare machine: installs the CUDA toolkit's compiler if there is none, then
# `cargo test --features cudnn`, and adds up what passed and what was ignored, and why. Arguments go
# to cargo test.
set -uo pipefail
cd "$(dirname "$0")/.."
python3 scripts/toolkit.py || exit
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo test --features cudnn --no-fail-fast "$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
awk '
    match($0, /\.\.\. ignored \(.*\)$/) {
        reasons[substr($0, RSTART + 13, RLENGTH - 14)]++
    }
    /^test result:/ { passed += $4; failed += $6; ignored += $8 }
    END {
        print "\nIgnored, by reason:"
        for (reason in reasons) printf "%6d  %s\n", reasons[reason], reason | "sort -rn"
        close("sort -rn")
        printf "\n%d passed, %d failed, %d skipped\n", passed, failed, ignored
    }' "$log"
exit "$status"
