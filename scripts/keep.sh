#!/usr/bin/env bash
# keep.sh RESULTS...: takes what `gpu.sh record` measured, each a folder of its --out or a record.tgz, into benches/,
# and writes all that is made of it: what ships for tuning, the libraries' estimates, README, docs, and page.html.
# CONVFORGE names the program (the checkout's target/release/convforge).
set -euo pipefail

die() {
    echo "keep.sh: $1" >&2
    exit 2
}

if [[ $# -eq 0 || $1 == -* ]]; then
    sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"
    [[ ${1-} == -h || ${1-} == --help ]] && exit
    exit 2
fi
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
convforge=$(command -v "${CONVFORGE:-$checkout/target/release/convforge}") ||
    die "there is no ${CONVFORGE:-target/release/convforge}: cargo build --release --features cudnn, or name it in CONVFORGE"
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

# Nothing is taken before all of it is there.
folders=()
for one in "$@"; do
    folder=$(realpath -e "$one") || die "there is no $one"
    if [[ -f $folder ]]; then
        bundle=$folder folder=$(mktemp -d "$temporary/XXXXXX")
        tar -xzf "$bundle" -C "$folder" || die "$one is no record.tgz"
    fi
    compgen -G "$folder/record/*.json" >/dev/null || die "$one has no record/*.json, which gpu.sh record writes"
    folders+=("$folder")
done

cd "$checkout"
for folder in "${folders[@]}"; do
    "$convforge" report "$folder"/record/*.json --keep benches/results
    [[ ! -e $folder/cudnn-plans.jsonl ]] ||
        "$convforge" searches "$folder/cudnn-plans.jsonl" --keep benches/cudnn-plans.jsonl
done
python3 scripts/cudnn_best.py benches/results/*.jsonl
python3 scripts/fit_estimates.py --write
"$convforge" tune ship
python3 scripts/tables.py
"$convforge" page --out page.html
echo "What is left is to say why, where these ask for it, and to build and test: estimates are in the source."
python3 scripts/cudnn_best.py --check && python3 scripts/tables.py --check
