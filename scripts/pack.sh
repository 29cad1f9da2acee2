#!/usr/bin/env bash
# Packs what a machine with a GPU and without Rust needs into dist/convforge-gpu: the command, the
# test binary, gpu.sh, profile.sh with the kernels' sources, which ncu shows line by line, and, with
# --data DIR, the images, weights and logits in DIR.
set -euo pipefail
cd "$(dirname "$0")/.."

data=
case ${1-} in
    '') ;;
    --data)
        data=${2-}
        [[ -d $data ]] || { echo "pack.sh: --data needs a folder, not '$data'" >&2; exit 2; }
        ;;
    *) echo "usage: pack.sh [--data DIR]" >&2 && exit 2 ;;
esac

python3 scripts/toolkit.py
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
cp -r csrc "$pack/"
if [[ -n $data ]]; then
    mkdir "$pack/data"
    # The training set is large, and nothing here reads it.
    for file in "$data"/t10k-* "$data"/weights-* "$data"/logits-*; do
        if [[ -f $file ]]; then install -m 644 "$file" "$pack/data/"; fi
    done
fi

(cd "$pack" && find . -type f -exec du -h {} + | sort -k 2)
echo "$pack: $(du -sm "$pack" | cut -f 1) MB"
