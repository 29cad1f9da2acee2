# shellcheck shell=bash
# compute-sanitizer over a problem of every configuration. Sourced by gpu.sh.

readonly TOOLS="memcheck initcheck synccheck racecheck"

# sanitize [NAME...]: all tools over every family, or over these families and variants.
sanitize() {
    local sanitizer tool name variant configs part parts
    [[ $device != cpu ]] || die "sanitize needs a GPU"
    if ! sanitizer=$(find_sanitizer); then
        echo "sanitize: there is no compute-sanitizer on PATH, in CUDA_HOME or in /usr/local/cuda*." \
            "It comes with the CUDA toolkit, by itself as the package cuda-sanitizer-13-0 of" \
            "NVIDIA's repository or nvidia-cuda-sanitizer-api of PyPI." >&2
        failed=1
        return
    fi
    for name in "$@"; do rows_of "$name" >/dev/null || exit 2; done
    for tool in $TOOLS; do
        for name in $(families "$@"); do
            while read -r _ variant configs _; do
                parts=$(parts_of "$tool" "$configs")
                for ((part = 1; part <= parts; part++)); do
                    sanitize_part "$tool" "$variant" "$part/$parts" </dev/null
                done
            done < <(rows_of "$name")
        done
    done
}

# parts_of TOOL CONFIGS: the steps for a variant. racecheck slows shared memory down by a thousand times: each
# configuration has a step, with one kind of data.
parts_of() {
    if [[ $1 == racecheck ]]; then echo "$2"; else echo $((($2 + 7) / 8)); fi
}

# sanitize_part TOOL VARIANT I/N
sanitize_part() {
    local data=()
    [[ $1 != racecheck ]] || data=(--data integer)
    late "sanitize-$1-$2-${3/\//-of-}" "$sanitizer" --tool "$1" --error-exitcode 9 \
        "$convforge" check --device "$device" --variant "$2" --configs all "${data[@]}" \
        --each 1 --seed "$seed" --shard "$3"
}

find_sanitizer() {
    local candidate
    for candidate in "$(command -v compute-sanitizer)" \
        "${CUDA_HOME:-/nonexistent}"/{bin,compute-sanitizer}/compute-sanitizer \
        /usr/local/cuda*/{bin,compute-sanitizer}/compute-sanitizer \
        /opt/nvidia/compute-sanitizer*/compute-sanitizer; do
        [[ -x $candidate ]] && echo "$candidate" && return
    done
    return 1
}

# A line for each variant, a column for each tool: the errors over the cases that passed. Below it the places of all errors.
sanitize_table() {
    awk -F '\t' -v tools="$TOOLS" '
        $1 ~ /^sanitize-/ {
            split($1, word, "-")
            tool = word[2]; variant = word[3]
            if (!(variant in seen)) { seen[variant]; order[++rows] = variant }
            ran[tool, variant]++
            cases = errors = -1
            if (match($4, /[0-9]+ passed/)) cases = substr($4, RSTART) + 0
            if (match($4, /[0-9]+ errors?([,)]|$)/)) errors = substr($4, RSTART) + 0
            wrong = match($4, /[0-9]+ failed/) ? substr($4, RSTART) + 0 : 0
            if (cases >= 0) passed[tool, variant] += cases
            if (errors >= 0) found[tool, variant] += errors
            # A case that failed by itself, or a tool that did not come to its end.
            if (errors < 0 || cases < 0 || wrong || (errors == 0 && $2 != 0)) broken[tool, variant]++
        }
        END {
            if (!rows) exit
            count = split(tools, name, " ")
            printf "\n%-30s", "errors / cases"
            for (i = 1; i <= count; i++) printf " %14s", name[i]
            print ""
            for (j = 1; j <= rows; j++) {
                printf "%-30s", order[j]
                for (i = 1; i <= count; i++) {
                    at = name[i] SUBSEP order[j]
                    text = at in ran ? found[at] + 0 "/" passed[at] + 0 : "-"
                    if (found[at]) { text = text " !"; all += found[at] }
                    else if (broken[at]) text = "no answer"
                    printf " %14s", text
                }
                print ""
            }
            printf "%d errors\n", all
        }' "$out/steps.tsv"
    sanitize_places
}

# No errors, and no answer missing, in the steps of `sanitize`.
sanitize_is_clean() {
    ! sanitize_table | grep -qE ' !|no answer'
}

# The first line of source of each error, and how often.
sanitize_places() {
    [[ -r $out/log.txt ]] || return 0
    awk '
        /^=== / { step = $2; sub(/:$/, "", step); sub(/^sanitize-/, "", step); sub(/-[0-9]+-of-[0-9]+$/, "", step) }
        /^========= .*(error|hazard|Invalid|Uninitialized|Race)/ && !/SUMMARY/ { due = 1 }
        due && /^=========     +.*at .* in [^ ]+:[0-9]+/ {
            place = $0
            sub(/^.* in /, "", place); sub(/.*\//, "", place)
            times[step " " place]++
            due = 0
        }
        END { for (place in times) print "  " place ": " times[place] " shown" }' "$out/log.txt" | sort
}
