# shellcheck shell=bash
# Measuring what of the displayed results is stale, and how long that takes. Sourced by gpu.sh.

# The folder with record.txt and the committed results: the checkout's, or the one that was packed.
find_benches() {
    local candidate
    for candidate in "$here/benches" "$here/../benches"; do
        [[ -r $candidate/record.txt ]] && echo "$candidate" && return
    done
    die "there is no benches/record.txt in $here or beside it"
}

# Sets BENCHES, and KNOWN to the options of compare by which finalists of earlier searches race. Searches stay for
# the next call.
find_searches() {
    benches=$(find_benches) || exit 2
    export CONVFORGE_CUDNN_PLANS=${CONVFORGE_CUDNN_PLANS:-$out/cudnn-plans}
    known=(--cudnn-stored finalists --cudnn-seconds 120)
    [[ ! -r $benches/cudnn-plans.jsonl ]] || known+=(--cudnn-known "$benches/cudnn-plans.jsonl")
}

# Sets what `record` and `plan` share, and makes COMPARISONS those of record.txt without a star, in its order,
# or those whose names fit these patterns, in theirs: a name, its number among those of this name, the options. What
# has a star is a whole suite, minutes each: where several GPUs share the comparisons it comes in as many shards. With
# another number of GPUs these are other steps, which leave out what is measured.
begin_record() {
    right_libraries
    mkdir -p "$out/record" || exit 1
    find_searches
    made_with=$("$convforge" devices --json | json 'print(it["csrc"][:8])') || exit 1
    [[ -z $any_libraries ]] || made_with+=-cublas-$(version_of cuBLAS)-cudnn-$(version_of cuDNN)
    chip=$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0 2>/dev/null | head -n 1)
    chip=${chip#NVIDIA } && chip=${chip%% *}
    comparisons=()
    [[ $# -gt 0 ]] || add_comparisons '' '*'
    local pattern
    for pattern in "$@"; do
        add_comparisons any "$pattern" || die "record.txt has no comparison named '$pattern'"
    done
}

# add_comparisons STARRED PATTERN: those that fit, with a star or without; without alone if STARRED is empty.
add_comparisons() {
    local star name number options found=1 shards=${#devices[@]} i
    while read -r star name number options; do
        # shellcheck disable=SC2053 # a pattern
        [[ $name == $2 && (-n $1 || $star == 0) ]] || continue
        found=0
        if [[ $star == 0 || $shards -eq 1 ]]; then
            comparisons+=("$name $number $options")
            continue
        fi
        for ((i = 1; i <= shards; ++i)); do
            comparisons+=("$name $number-$i-of-$shards $options --shard $i/$shards")
        done
    done < <(awk '/^\*?[a-z]/ { star = sub(/^\*/, ""); name = $1; sub(/^[^ ]+ /, "")
                                print star, name, ++number[name], $0 }' "$benches/record.txt")
    return $found
}

# file_of NAME: where results of this device go. One of other code is another file, and one of another GPU, since a
# file is of one run.
file_of() {
    local gpu=''
    [[ $device != *:* ]] || gpu=-gpu${device#*:}
    echo "$out/record/$(tr '[:upper:]' '[:lower:]' <<<"${chip:-cpu}")-$1-$made_with${again:+-again}$gpu.json"
}

# compare_line OPTIONS MORE...: what is stale of a line of record.txt, by these words too. What another GPU has
# measured, or an earlier call, is fresh. Beside a default the fastest configuration is recorded, as searched plans of
# cuDNN's are.
compare_line() {
    local words
    read -ra words <<<"$1"
    set -- "${words[@]}" "${@:2}" --fastest-configs --unless "$benches/results" --unless "$out/record" "${known[@]}"
    # Rows that ran by themselves make no problem fresh, but say who is near.
    [[ -z $within ]] || set -- "$@" --unless "$benches/results/rows" --within "$within"
    [[ -z $again ]] || set -- "$@" --again
    line=("$convforge" compare "$@")
}

# A line of output per comparison in the order in which they are made, and the sum.
plan() {
    local name number options place=(--device "${device%%,*}") line
    [[ -z $as ]] || place=(--as "$as")
    begin_record "$@"
    local one
    for one in "${comparisons[@]}"; do
        read -r name number options <<<"$one"
        compare_line "$options" "${place[@]}" --plan
        "${line[@]}" </dev/null | tail -n 1 | tr '\n' '\t'
        [[ ${PIPESTATUS[0]} -eq 0 ]] || exit 1
        echo "$name $options"
    done | awk '{ print; sum += $1 } END { printf "%.0f minutes of one GPU\n", sum / 60 }'
    return "${PIPESTATUS[0]}"
}

record() {
    begin_record "$@"
    claimed=$(mktemp -d) || exit 1
    if [[ ${#devices[@]} -eq 1 ]]; then record_on; else workers record_on; fi
    rm -rf "$claimed"
    echo "To commit it: scripts/keep.sh $out/record.tgz, in a checkout with a build"
}

# A worker's part: it takes the next comparison that none has taken.
record_on() {
    local one name number options
    for one in "${comparisons[@]}"; do
        read -r name number options <<<"$one"
        mkdir "$claimed/$name-$number" 2>/dev/null || continue
        record_line "$name" "$number" "$options" </dev/null
        bundle
    done
}

# One file to bring back from a machine whose folders are lost later, record.tgz: the results,
# and in short what searches found. Several GPUs write it in turns.
bundle() {
    local whole=$out/record.tgz.$device parts=(steps.tsv record)
    if [[ -d $CONVFORGE_CUDNN_PLANS ]] && ! "$convforge" searches "$CONVFORGE_CUDNN_PLANS" \
        --keep "$out/cudnn-plans.jsonl" >>"$out/log.txt" 2>&1; then
        echo "searches are not in $out/record.tgz: log.txt says why; bring back $CONVFORGE_CUDNN_PLANS, too" >&2
    fi
    [[ ! -e $out/cudnn-plans.jsonl ]] || parts+=(cudnn-plans.jsonl)
    # A file that is replaced while it is read is in the next one.
    tar -czf "$whole" -C "$out" --ignore-failed-read --warning=no-file-changed "${parts[@]}" 2>>"$out/log.txt"
    mv "$whole" "$out/record.tgz"
}

readonly TRIES=3 # of a comparison that does not get on: a search of cuDNN's plans may need one for itself

# record_line NAME NUMBER OPTIONS: a comparison that the step's eight minutes cut off goes on in another step, while it
# gets on.
record_line() {
    local step_name=record-$1-$2-$made_with${within:+-within-$within}${again:+-again} file whole=0 now tries=0 others=$unfinished line
    file=$(file_of "$1")
    compare_line "$3" --device "$device" --out "$file" --resume
    while ! is_done "$step_name"; do
        if minutes_are_over || ((tries == TRIES)); then
            unfinished=1
            return
        fi
        step "$step_name" "${line[@]}"
        now=$(measured "$file") || now=0
        tries=$((now > whole ? 0 : tries + 1)) whole=$now
    done
    unfinished=$others
}

# measured FILE: how many of its rows have an answer.
measured() {
    [[ -e $1 ]] || { echo 0 && return; }
    json 'print(sum(row["reason"] is None for row in it["rows"]))' <"$1"
}
