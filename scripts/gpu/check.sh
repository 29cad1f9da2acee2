# shellcheck shell=bash
# Variants against the oracle. Sourced by gpu.sh.

readonly CASES=5000   # of a step, less than a minute on an H200: 100 to 180 are judged in a second
readonly JOBS=8       # cases at a time: more wait for each other's memory
readonly HUGE_PARTS=7 # as many as the suite has problems

# check [N], check --each N [NAME...]
check() {
    if [[ ${1-} == --each ]]; then
        shift
        check_each "$@"
    else
        check_generated "${1-2000}"
    fi
}

# One seed per step: each has problems of its own.
check_generated() {
    is_number "$1" || die "check takes a number of problems, not '$1'"
    local total=$1 count at=$seed
    while ((total > 0)); do
        count=$((total < shard ? total : shard))
        late "check-$count-seed-$at" \
            "$convforge" check --device "$device" --generated "$count" --seed "$at"
        total=$((total - count)) at=$((at + 1))
    done
}

# judged JOBS: sets who compares, with so many cases at a time. On the CPU it is the CPU.
judged() {
    judge=(--judge gpu --jobs "$1")
    [[ $device != cpu ]] || judge=()
}

# check_each N [NAME...]: so many problems of the own range of every family, or of these families and
# variants, shared by their configurations.
check_each() {
    is_number "${1-}" || die "check --each takes a number of problems, not '${1-}'"
    local wanted=$1 name chosen variant configs share
    shift
    # A family is looked up before the first step runs.
    for name in "$@"; do rows_of "$name" >/dev/null || exit 2; done
    for name in $(families "$@"); do
        chosen=$(rows_of "$name")
        configs=$(awk '{ sum += $3 } END { print sum }' <<<"$chosen")
        share=$(((wanted + configs - 1) / configs))
        while read -r _ variant configs _; do
            check_variant "$variant" "$configs" "$share"
        done <<<"$chosen"
    done
}

# check_variant VARIANT CONFIGS N: N problems of each configuration.
check_variant() {
    local left=$3 most=$(((CASES + $2 - 1) / $2)) count at=$seed judge
    judged "$JOBS"
    while ((left > 0)); do
        count=$((left < most ? left : most))
        late "each-$1-$count-seed-$at" "$convforge" check --device "$device" --variant "$1" \
            --configs all --each "$count" --seed "$at" "${judge[@]}" </dev/null
        left=$((left - count)) at=$((at + 1))
    done
}

# Tensors of more than 2^31 elements: a problem and a family at a time, since each takes about 20 GB.
huge() {
    local name part variants variant judge
    for name in "$@"; do rows_of "$name" >/dev/null || exit 2; done
    judged 1
    for name in $(families "$@"); do
        variants=()
        while read -r _ variant _; do variants+=(--variant "$variant"); done < <(rows_of "$name")
        for ((part = 1; part <= HUGE_PARTS; part++)); do
            late "huge-$name-$part-of-$HUGE_PARTS" "$convforge" check --device "$device" --suite huge \
                --shard "$part/$HUGE_PARTS" "${variants[@]}" --configs first "${judge[@]}" </dev/null
        done
    done
}

# Every dimension one below, at and one above each tile's size, by every configuration.
tails() {
    local list=$out/tails.txt name variant configs part parts judge problems
    for name in "$@"; do rows_of "$name" >/dev/null || exit 2; done
    judged "$JOBS"
    tail_problems >"$list"
    problems=$(wc -l <"$list")
    for name in $(families "$@"); do
        while read -r _ variant configs _; do
            # A share may hold nothing that a variant can do; all problems may not.
            parts=$((problems * configs / CASES + 2))
            for ((part = 1; part <= parts; part++)); do
                late "tails-$variant-$part-of-$parts" "$convforge" check --device "$device" --suite "$list" \
                    --shard "$part/$parts" --variant "$variant" --configs all --data integer --data normal \
                    --seed "$seed" "${judge[@]}" </dev/null
            done
        done < <(rows_of "$name")
    done
}

# The problems of `tails`: layers of each kind, in which one size goes through the edges of tiles.
tail_problems() {
    local edges types words type
    edges=$(for tile in 4 8 16 32 64 96 128 192 256; do echo $((tile - 1)) "$tile" $((tile + 1)); done)
    types=('' +math=tf32 +f16 +nhwc +nhwc+math=tf32 +f16+nhwc +bf16+nhwc)
    for type in "${types[@]}"; do
        while read -r words; do
            echo "$words$type"
        done < <(layers_at_edges "${edges//$'\n'/ }" | awk '!seen[$0]++')
    done
}

# layers_at_edges EDGES: a problem per line, without storage, math and layout.
layers_at_edges() {
    awk -v list="$1" '
        # Of a dense layer: images, channels, height, width, filters.
        function dense(window, n, c, h, w, k) {
            print "mb" n "ic" c "ih" h "iw" w "oc" k window
        }
        # Groups of so many channels, so many out as in.
        function grouped(window, n, of, h, w, groups) {
            print "g" groups "mb" n "ic" groups * of "ih" h "iw" w "oc" groups * of window
        }
        BEGIN {
            count = split(list, edge, " ")
            split("kh3ph1 kh1 kh3sh2ph1", windows, " ")
            split("kh3ph1 kh5sh2ph2 kh7ph3", own, " ")
            split("1 4 8 16 32", of, " ")
            for (i = 1; i <= count; i++) {
                e = edge[i]
                for (j = 1; j in windows; j++) {
                    dense(windows[j], 2, e, 12, 20, 32)
                    dense(windows[j], 2, 32, 12, 20, e)
                    dense(windows[j], 1, 24, 12, e, 40)
                    if (e < 130) dense(windows[j], 1, 24, e, 12, 40)
                    if (e < 70) dense(windows[j], e, 16, 7, 7, 24)
                }
                # Few channels under a large filter.
                if (e < 40) { dense("kh7", 3, 3, 40, 40, e); dense("kh7", e, 1, 30, 30, 4) }
                dense("kh7", 2, 4, 40, e + 6, 16)
                for (j = 1; j in own; j++) {
                    grouped(own[j], 2, 1, 14, 20, e + 1)
                    grouped(own[j], 1, 1, 10, e, 40)
                    if (e < 130) grouped(own[j], 1, 1, e, 10, 40)
                }
                for (j = 2; j in of; j++) {
                    grouped("kh3ph1", 2, of[j], 14, e, 4)
                    if (e < 40) grouped("kh3ph1", 2, of[j], e, 14, 5)
                    if (e < 70) grouped("kh3ph1", 1, of[j], 7, 9, e)
                }
            }
        }'
}

# A line for each variant that was checked: what its steps counted, and how many gave no count.
check_table() {
    awk -F '\t' '
        match($1, /^(check|each|huge|tails)-/) {
            what = $1
            sub(/-[0-9]+-seed-[0-9]+$/, "", what); sub(/-[0-9]+-of-[0-9]+$/, "", what); sub(/-/, " ", what)
            if (!(what in steps)) order[++rows] = what
            steps[what]++
            if (split($4, n, /[^0-9]+/) && $4 ~ /^[0-9]+ passed, [0-9]+ failed/) {
                passed[what] += n[1]; wrong[what] += n[2]; skipped[what] += n[3]; refused[what] += n[4]
                # Too few problems of a range.
                if ($2 != 0 && !n[2]) short[what]++
            } else short[what]++
        }
        END {
            if (!rows) exit
            printf "\n%-36s %6s %9s %7s %8s %8s  %s\n", "check", "steps", "passed", "failed", "skipped", "refused", ""
            for (i = 1; i <= rows; i++) {
                what = order[i]
                printf "%-36s %6d %9d %7d %8d %8d  %s\n", what, steps[what], passed[what], wrong[what],
                    skipped[what], refused[what], short[what] ? short[what] " steps have no answer: log.txt" : ""
                all[1] += steps[what]; all[2] += passed[what]; all[3] += wrong[what]
                all[4] += skipped[what]; all[5] += refused[what]
            }
            printf "%-36s %6d %9d %7d %8d %8d\n", "all", all[1], all[2], all[3], all[4], all[5]
        }' "$out/steps.tsv"
}
