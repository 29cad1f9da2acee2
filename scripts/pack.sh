#!/usr/bin/env bash
# Packs what a machine with a GPU and without Rust needs into dist/convforge-gpu: the command, the tests that need a
# GPU, the benchmark of the host's time with what times libraries' own calls, the guide's programs, the example in C,
# gpu.sh with the results that are committed, profile.sh with the kernels' sources, which ncu shows line by line, images
# and weights.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'END'
usage: pack.sh [--reports DIR] [--candle] [--xz]

  --reports DIR  with the source reports' weights-86.bin and logits-86.npy in DIR
  --candle       with candle's models; candle's own kernels take nvcc ten minutes for each of the two programs
  --xz           as dist/convforge-gpu.tar.xz too, in which kernels that several programs have count once

CONVFORGE_LINEINFO= leaves out the kernels' lines, which ncu and the sanitizers show, and takes the objects of an
ordinary build.
END
}

reports='' with_candle='' xz=''
while [[ $# -gt 0 ]]; do
    case $1 in
        --reports)
            reports=${2-}
            [[ -r $reports/weights-86.bin && -r $reports/logits-86.npy ]] ||
                { echo "pack.sh: '$reports' has no weights-86.bin and logits-86.npy" >&2; exit 2; }
            shift
            ;;
        --candle) with_candle=yes ;;
        --xz) xz=yes ;;
        --help) usage && exit ;;
        *) usage >&2 && exit 2 ;;
    esac
    shift
done

readonly TESTS="checker conv fused gpu launches pipeline profile streams tuning_gpu variants"

python3 scripts/toolkit.py
toolkit=$(python3 scripts/toolkit.py --print)
# The machine that it goes to may have another GPU than this one.
export CONVFORGE_ARCHS=${CONVFORGE_ARCHS:-all}
export CONVFORGE_LINEINFO=${CONVFORGE_LINEINFO-1}
[[ -n $CONVFORGE_LINEINFO ]] || unset CONVFORGE_LINEINFO

# executables CARGO-ARGUMENTS...: builds, and prints the name and the place of each executable that was asked for.
executables() {
    cargo "$@" --release --message-format=json-render-diagnostics | python3 -c '
import json, sys
for message in map(json.loads, sys.stdin):
    if message.get("executable") and message["target"]["name"] in sys.argv:
        print(message["target"]["name"], message["executable"])
' "$@"
}

# placed FOLDER CARGO-ARGUMENTS...: builds, and copies every executable there under its name.
placed() {
    local folder=$1 name path
    shift
    mkdir -p "$folder"
    executables "$@" | while read -r name path; do
        cp "$path" "$folder/$name"
        strip "$folder/$name"
    done
}

# stub FOLDER NAME SONAME: a library to link with where the real one is not installed, of the functions on standard
# input.
stub() {
    mkdir -p "$1"
    sort -u | sed 's/.*/void &(void) {}/' |
        cc -w -fno-builtin -shared -fPIC -Wl,-soname,"$3" -o "$1/lib$2.so" -x c -
}

# The example in C, for the driver of the machine that it runs on.
c_example() {
    local object=target/convolve.o stubs=target/stubs
    cargo build --release --package convforge-c --features cudnn
    cc -c -DCONVOLVE_CUDA -I crates/c/include -I "$toolkit/include" crates/c/examples/convolve.c -o "$object"
    nm --undefined-only "$object" | awk '$2 ~ /^cu[A-Z]/ { print $2 }' | stub "$stubs" cuda libcuda.so.1
    cp target/release/libconvforge_c.so "$pack/bin/"
    # shellcheck disable=SC2016 # the linker's
    cc "$object" -L target/release -lconvforge_c -L "$stubs" -lcuda -Wl,-rpath,'$ORIGIN' -o "$pack/bin/convolve"
}

# Models of candle-transformers by convforge and by candle, without cuDNN and with it.
candle() {
    local links=$PWD/target/candle-links build
    scripts/interop.sh fetch
    candle_links "$links"
    # Where convforge's kernels are compiled already.
    export CARGO_TARGET_DIR=$PWD/target
    export CUDA_COMPUTE_CAP=90 CUDA_HOME=$toolkit PATH=$toolkit/bin:$PATH
    export RUSTFLAGS="-L native=$links -C link-arg=-Wl,--allow-shlib-undefined"
    for build in candle:cuda candle-cudnn:cudnn; do
        placed "$pack/candle" build --manifest-path interop/shim/Cargo.toml --bin models \
            --features "models/${build#*:}"
        mv "$pack/candle/models" "$pack/bin/${build%:*}"
    done
    rmdir "$pack/candle"
}

# candle_links FOLDER: CUDA's libraries by the short names that candle links. What the toolkit lacks has the functions
# that cudarc declares.
candle_links() {
    local name folder soname sources found
    sources=$(cargo metadata --locked --format-version 1 --filter-platform x86_64-unknown-linux-gnu --features cudnn \
        --manifest-path interop/shim/models/Cargo.toml | python3 -c '
import json, pathlib, sys
packages = json.load(sys.stdin)["packages"]
print(*(pathlib.Path(p["manifest_path"]).parent for p in packages if p["name"] == "cudarc"))')
    rm -rf "$1"
    mkdir -p "$1"
    while read -r name folder soname; do
        sed -nE 's/^ +fn (cu[A-Za-z0-9_]+)\(.*/\1/p' "$sources/src/$folder/sys"/*.rs |
            stub "$1" "$name" "$soname"
    done <<<"cuda driver libcuda.so.1
curand curand libcurand.so.10"
    for name in cublas cublasLt cudart cudnn nvrtc; do
        found=("$toolkit/lib/lib$name".so.*)
        ln -s "${found[0]}" "$1/lib$name.so"
    done
}

pack=dist/convforge-gpu
rm -rf "$pack"
placed "$pack/bin" build --features cudnn --bin convforge --bench host
# shellcheck disable=SC2046,SC2086 # words
placed "$pack/bin/tests" test --no-run --features cudnn $(printf -- '--test %s ' $TESTS)
python3 scripts/guide.py --features cudnn target/guide
CARGO_TARGET_DIR=target placed "$pack/bin" build --manifest-path target/guide/Cargo.toml --bin guide
c_example
cc -O2 -shared -fPIC -o "$pack/bin/inside.so" benches/inside.c -ldl
[[ -z $with_candle ]] || (candle)

cp scripts/{gpu.sh,toolkit.lock,profile.sh} "$pack/"
cp scripts/{profiler.py,profiler_text.py,counters.py,tenth.py,agree.py,results.py,models.py} "$pack/"
cp -r scripts/gpu csrc data "$pack/"
mkdir -p "$pack/benches/results/rows"
cp benches/{record,counters}.txt benches/cudnn-plans.jsonl "$pack/benches/"
cp benches/results/*.jsonl "$pack/benches/results/"
cp benches/results/rows/*.jsonl "$pack/benches/results/rows/"
if [[ -n $reports ]]; then
    mkdir "$pack/reports"
    install -m 644 "$reports"/{weights-86.bin,logits-86.npy} "$pack/reports/"
fi

(cd "$pack" && find . -type f -exec du -h {} + | sort -k 2)
echo "$pack: $(du -sm "$pack" | cut -f 1) MB"
if [[ -n $xz ]]; then
    # A window over everything finds what programs have in common.
    tar -C dist -cf - convforge-gpu | xz --lzma2=preset=1,dict=256MiB >dist/convforge-gpu.tar.xz
    echo "dist/convforge-gpu.tar.xz: $(du -sm dist/convforge-gpu.tar.xz | cut -f 1) MB"
fi
