# shellcheck shell=bash
# Variants against the oracle. Sourced by gpu.sh.

readonly CASES=5000   # of a step, less than a minute on an H200: 100 to 180 are judged in a second
readonly JOBS=8       # cases at a time: more wait for each other's memory
readonly HUGE_PARTS=7 # as many as the suite has problems
readonly TAILS=6153   # as many as `convforge check --tails` has

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
    local name variant configs part parts judge
    for name in "$@"; do rows_of "$name" >/dev/null || exit 2; done
    judged "$JOBS"
    for name in $(families "$@"); do
        while read -r _ variant configs _; do
            # A share may hold nothing that a variant can do; all problems may not.
            parts=$((TAILS * configs / CASES + 2))
            for ((part = 1; part <= parts; part++)); do
                late "tails-$variant-$part-of-$parts" "$convforge" check --device "$device" --tails \
                    --shard "$part/$parts" --variant "$variant" --configs all --data integer --data normal \
                    --seed "$seed" "${judge[@]}" </dev/null
            done
        done < <(rows_of "$name")
    done
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
