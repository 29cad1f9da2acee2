#!/usr/bin/env bash
# Packs what a machine with a GPU and without Rust needs into dist/convforge-gpu: the command, the
# test binary, gpu.sh with the results that are committed, profile.sh with the kernels' sources, which ncu
# shows line by line, images and weights, and, with --reports DIR, the source reports' weights and logits in DIR.
set -euo pipefail
cd "$(dirname "$0")/.."

reports=
case ${1-} in
    '') ;;
    --reports)
        reports=${2-}
        [[ -r $reports/weights-86.bin && -r $reports/logits-86.npy ]] ||
            { echo "pack.sh: '$reports' has no weights-86.bin and logits-86.npy" >&2; exit 2; }
        ;;
    *) echo "usage: pack.sh [--reports DIR]" >&2 && exit 2 ;;
esac

python3 scripts/toolkit.py
# The machine that it goes to may have another GPU than this one.
export CONVFORGE_ARCHS=${CONVFORGE_ARCHS:-all}
# ncu and the sanitizers show lines of the kernels.
export CONVFORGE_LINEINFO=1

# executable KIND NAME CARGO-ARGUMENTS...: builds, and prints where Cargo put the target.
executable() {
    local kind=$1 name=$2
    shift 2
    cargo "$@" --release --features cudnn --message-format=json-render-diagnostics |
        python3 -c '
import json, sys
kind, name = sys.argv[1:]
for message in map(json.loads, sys.stdin):
    target = message.get("target", {})
    if message.get("executable") and target["name"] == name and kind in target["kind"]:
        print(message["executable"])
' "$kind" "$name"
}

command=$(executable bin convforge build --bin convforge)
tests=$(executable test variants test --no-run --test variants)

pack=dist/convforge-gpu
rm -rf "$pack"
mkdir -p "$pack/bin"
cp "$command" "$pack/bin/convforge"
cp "$tests" "$pack/bin/variants"
strip "$pack/bin/convforge" "$pack/bin/variants"
cp scripts/gpu.sh scripts/profile.sh scripts/profiler.py scripts/profiler_text.py \
    scripts/counters.py "$pack/"
cp -r csrc data "$pack/"
mkdir -p "$pack/benches/results"
cp benches/record.txt "$pack/benches/"
cp benches/results/*.jsonl "$pack/benches/results/"
if [[ -n $reports ]]; then
    mkdir "$pack/reports"
    install -m 644 "$reports"/{weights-86.bin,logits-86.npy} "$pack/reports/"
fi

(cd "$pack" && find . -type f -exec du -h {} + | sort -k 2)
echo "$pack: $(du -sm "$pack" | cut -f 1) MB"
