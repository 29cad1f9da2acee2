# shellcheck shell=bash
# What is measured beside the suites and the record. Sourced by gpu.sh.

readonly DRAWN_PER_STEP=8 # problems, each with a search of cuDNN's plans

# All variants, or with --within N those near the fastest, on a tenth of the problems of the committed results.
tenth() {
    local list=$out/tenth-$seed part parts=0 slice near=()
    right_libraries
    find_searches
    [[ -z $within ]] ||
        near=(--again --within "$within" --unless "$benches/results" --unless "$benches/results/rows")
    if [[ ! -s $list.txt ]]; then
        python3 "$here/tenth.py" --seed "$seed" >"$list.txt" || die "tenth needs python3 and benches/results"
    fi
    mkdir -p "$list" && split -l "$DRAWN_PER_STEP" -d -a 3 "$list.txt" "$list/tenth-" || exit 1
    for slice in "$list"/tenth-*; do parts=$((parts + 1)); done
    for ((part = 1; part <= parts; part++)); do
        printf -v slice '%s/tenth-%03d' "$list" $((part - 1))
        step "tenth-$seed-$part-of-$parts" "$convforge" compare --device "$device" --suite "$slice" \
            "${known[@]}" "${near[@]}" --out "$out/tenth-$seed.json" --resume
    done
    echo "To compare: $here/agree.py $benches/results $out/tenth-$seed.json," \
        "or of two such runs FIRST/tenth-$seed.json SECOND/tenth-$seed.json"
}

# ncu's counters of the lines of benches/counters.txt, into profiles/profile.json.
largest() {
    local benches variant problem number=0
    benches=$(find_benches) || exit 2
    while read -r variant problem; do
        number=$((number + 1))
        step "counters-$number-$variant" "$here/profile.sh" --device "$device" --out "$out/profiles" \
            "$variant" "$problem" </dev/null
    done < <(grep -v '^#' "$benches/counters.txt")
}
