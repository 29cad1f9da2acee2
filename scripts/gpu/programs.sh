# shellcheck shell=bash
# The packed programs beside the command: tests, the host's time, the guide's programs, candle's models.
# Sourced by gpu.sh.

# Of a run's host time to that of the bare driver calls, or of a library's own and the other bare ones.
readonly HOST_LIMIT=1.3

# packed NAME: the path of a packed program, or what is missing.
packed() {
    [[ -x $here/bin/$1 ]] && echo "$here/bin/$1" && return
    echo "$1: there is no $here/bin/$1; scripts/pack.sh ${2-}makes it" >&2
    return 1
}

packed_tests() {
    local test tests=("$here"/bin/tests/*)
    if [[ ! -x ${tests[0]} ]]; then
        echo "test: there are no $here/bin/tests; scripts/pack.sh makes them" >&2
        failed=1
        return
    fi
    for test in "${tests[@]}"; do
        if [[ $test == */variants ]]; then
            variants_tests "$test"
        else
            late "test-$(basename "$test")" "$test"
        fi
    done
}

# variants_tests PROGRAM: twenty thousand trials, which take more than a step. Their names begin with a variant's; what
# follows it is a configuration or a blank.
variants_tests() {
    local variant configs end
    while read -r _ variant configs _; do
        end=:
        ((configs > 1)) || end=' '
        late "test-variants-$variant" "$1" "$variant$end" </dev/null
    done <<<"$listed"
}

# The libraries once more, with their own calls timed.
host() {
    local program inside
    program=$(packed host) || { failed=1 && return; }
    inside=$(packed inside.so) || { failed=1 && return; }
    # shellcheck disable=SC2016 # the inner shell's
    step host bash -o pipefail -c '"$1" 2>&1 | tee "$2"' host "$program" "$out/host.txt"
    # shellcheck disable=SC2016
    step host-libraries bash -o pipefail -c 'LD_PRELOAD=$3 "$1" cublas cudnn 2>&1 | tee "$2"' host "$program" \
        "$out/host-libraries.txt" "$inside"
}

# Rows of `host` over the limit; fails where there are some, or no rows. A library whose own calls were timed is held
# to these and the other bare calls, as it alone can mend its own; all else to the bare calls.
host_table() {
    local files=("$out/host-libraries.txt" "$out/host.txt")
    [[ -s ${files[1]} ]] || return 0
    [[ -s ${files[0]} ]] || files=("${files[1]}")
    awk -v limit="$HOST_LIMIT" '
        function number(text) { return text ~ /^[0-9.]+$/ }
        !/\(.* to .*\)/ || !number($2) || !number($NF) { next }
        number($(NF - 1)) && number($(NF - 2)) && number($(NF - 3)) {
            libraries[++library] = sprintf("%s takes %s times the bare calls, and %s times its own and the other " \
                "bare calls%s", $1, $(NF - 3), $NF, $NF > limit ? ": more than " limit : "")
            seen[$1] = 1
            slow += $NF > limit
            next
        }
        seen[$1]++ { next }
        { rows++; if ($NF > limit) over[++count] = $0; if ($NF > most) most = $NF }
        END {
            printf "\nhost: %d rows, of which %d take more than %s times the bare calls; the most is %.2f\n", \
                rows, count, limit, most
            for (i = 1; i <= count; i++) print "  " over[i]
            for (i = 1; i <= library; i++) print "host: " libraries[i]
            exit !rows || count + slow > 0
        }' "${files[@]}"
}

# The guide's programs one by one, and the example in C, which is linked with the driver.
guide() {
    local program
    if ! program=$(packed guide); then
        failed=1
    elif [[ $device == cpu ]]; then
        step guide "$program" --cpu
    else
        step guide "$program" --gpu
    fi
    [[ $device != cpu ]] || return 0
    if program=$(packed convolve); then step convolve "$program" --gpu; else failed=1; fi
}

readonly MODELS="resnet18 resnet50 convnext-t efficientnet-b0 vae"
readonly MODEL_BATCH=32 # images; of the autoencoder one

# A step for each model, type and build of candle: without cuDNN and with it. A line of JSON each.
candle() {
    local build program model type batch file on=cuda${device#gpu}
    [[ $device != cpu ]] || on=cpu
    python_libraries
    mkdir -p "$out/candle" || exit 1
    for build in candle candle-cudnn; do
        program=$(packed "$build" "--candle ") || { failed=1 && continue; }
        for type in f32 f16; do
            for model in $MODELS; do
                batch=$MODEL_BATCH
                [[ $model != vae && $device != cpu ]] || batch=1
                file=$out/candle/$build-$type-$model.json
                # shellcheck disable=SC2016 # the inner shell's
                late "$build-$type-$model" bash -c '"${@:2}" >"$1"' models "$file" "$program" --device "$on" \
                    --dtype "$type" --batch "$batch" --model "$model" --layers --json --seconds "$(seconds)"
            done
        done
    done
}

# For each time of `candle`.
seconds() { if [[ $device == cpu ]]; then echo 0; else echo 0.5; fi; }

candle_table() {
    compgen -G "$out/candle/*.json" >/dev/null || return 0
    echo
    python3 "$here/models.py" "$out"/candle/*.json
}

# Lets candle find the CUDA libraries of Python's packages, where no toolkit is installed.
python_libraries() {
    local folder
    while read -r folder; do
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    done < <(find / -xdev -path '*/nvidia/*' -name 'lib*.so*' -not -path '/proc/*' -printf '%h\n' 2>/dev/null | sort -u)
    export LD_LIBRARY_PATH
}
