#!/usr/bin/env bash
# keep.sh RESULTS...: takes what `gpu.sh record` measured, each a folder of its --out or a record.tgz, into benches/,
# and writes all that is made of it: what ships for tuning, the libraries' estimates, README, docs, and page.html.
# CONVFORGE names the program (target/release/convforge).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

convforge=${CONVFORGE:-target/release/convforge}

take() {
    local folder=$1
    if [[ -f $1 ]]; then
        folder=$(mktemp -d "$temporary/XXXXXX")
        tar -xzf "$1" -C "$folder"
    fi
    "$convforge" report "$folder"/record/*.json --keep benches/results
    [[ ! -e $folder/cudnn-plans.jsonl ]] ||
        "$convforge" searches "$folder/cudnn-plans.jsonl" --keep benches/cudnn-plans.jsonl
}

if [[ $# -eq 0 || $1 == -h || $1 == --help ]]; then
    sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"
    [[ $# -gt 0 ]] && exit
    exit 2
fi
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
for one in "$@"; do take "$one"; done
python3 scripts/cudnn_best.py benches/results/*.jsonl
python3 scripts/fit_estimates.py --write
"$convforge" tune ship
python3 scripts/tables.py
"$convforge" page --out page.html
echo "What is left is to say why, where these ask for it, and to build and test: estimates are in the source."
python3 scripts/cudnn_best.py --check && python3 scripts/tables.py --check
