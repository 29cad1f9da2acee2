#!/usr/bin/env bash
# Checks and measures convforge on a machine with a GPU and without Rust, from the folder that
# scripts/pack.sh packed. Work is split into steps; what is done is noted in the results' folder, so
# that the same command, given again, goes on where the last one stopped. gpu/ has the steps.
set -uo pipefail

usage() {
    cat <<'END'
usage: gpu.sh [options] COMMAND

  check [N]          check every variant on N generated problems (2000)
  check --each N [NAME...]
                     check every family of handwritten variants, or these families and variants, on N random
                     problems of its own range, shared by its configurations
  huge [NAME...]     check them on the suite of more than 2^31 elements
  tails [NAME...]    check them with every size one below, at and one above each tile's
  test               run the packed tests
  compare SUITE...   check and time suites; words change them, as in vgg16+f16+nhwc+math=f16acc
  sweep [SUITE...]   check and time every configuration of the variants that have several, on suites
                     as compare takes them (report-86 and report-70 with 1000 images)
  record [NAME...]   compare what of the displayed results is stale: the comparisons of benches/record.txt,
                     or those of these names, in that order, but for problems that the results in
                     benches/results have measured with the code and the libraries of now. Where
                     benches/cudnn-plans.jsonl knows cuDNN's fastest plans, only those race again. With
                     --device gpu:0,gpu:1 several GPUs share the comparisons. What has a star there is taken
                     only by its name, or by names with a star: 'nets-*'; several GPUs share its problems
  plan [NAME...]     say what `record` would measure, and about how many minutes of one GPU it would take;
                     with --as h200 on a machine without one
  infer [V...]       classify the images with the variants V (rule)
  study              measure what the reports measured: layers, the network, streams; and how far
                     results are from f64
  errors             the latter alone
  tenth              compare all on a tenth of the problems of the committed results, drawn by --seed; agree.py says
                     whether two such runs agree, or one with what is committed
  counters           ncu's counters of the largest layer of each filter size, by the family that it is for
  host               the host's time of a run beside bare driver calls, and of a library's beside its own calls too
  guide              the guide's programs and the example in C
  candle             models of candle, by convforge, by candle and by candle with cuDNN
  sanitize [NAME...] compute-sanitizer's memcheck, initcheck, synccheck and racecheck over a problem of
                     every configuration of the handwritten variants, or of these families and variants
  all                check, test, compare (its suites), sweep, infer, study and sanitize

  --out DIR          where results go (results): steps.tsv, log.txt, compare.json,
                     sweep.json, study.json, tenth-S.json, candle/, record/, cudnn-plans/,
                     cudnn-plans.jsonl; record.tgz: all of `record` that is to be brought back;
                     verdict.txt has all tables that end the command
  --device D         gpu, gpu:1 or cpu (gpu). For `record`, `check`, `huge`, `tails` and `sanitize` a list, gpu:0,gpu:1:
                     they share the steps, one on each device at a time
  --as CHIP          for `plan`: the chip that it is for, which need not be here
  --reports DIR      classify with the source reports' weights-86.bin, against their logits-86.npy, both
                     in DIR (the packed folder reports, if there is one; else with the project's own)
  --within N         of `record`, `plan` and `tenth`: leave out this project's variants that committed results have at over N times
                     the time of the fastest of them on a problem; their rows of before stay, stale where their code is another now
  --again            of `record` and `plan`: what is fresh, too, as where a faster configuration may be found; into files
                     of their own
  --any-libraries    of `record`, `plan` and `tenth`: use the cuBLAS and cuDNN that are found first, whatever their versions; otherwise
                     those of toolkit.lock are looked for, and without them nothing is measured
  --minutes M        begin nothing new after M minutes, 9 or 2.5, and stop what runs then (no limit)
  --shard N          generated problems per step of `check N` (250)
  --seed S           of random problems and of draws (1)

A step whose line is deleted from steps.tsv is done again.
Exit status: 0 all well, 1 something failed, 2 wrong usage, 75 not finished: call it again.
END
}

readonly STEP_SECONDS=480 # no step takes longer than eight minutes
readonly STUDY_STEPS=24   # shares of the study, so that one fits into a step
readonly SUITES="report-86 report-70 report-vgg report-gemv first stems vgg16 resnet50 batch1 grouped depthwise"

main() {
    read_options "$@"
    set -- "${request[@]}"
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    local part
    for part in "$here"/gpu/*.sh; do
        # shellcheck source=/dev/null
        source "$part"
    done
    check_request "$@"
    find_reports
    convforge=$(find_program) || exit 1
    IFS=, read -ra devices <<<"$device"
    check_devices "$1"
    [[ ${devices[0]} == cpu || -n $as ]] || export CONVFORGE_REQUIRE_GPU=1
    mkdir -p "$out" || exit 1
    touch "$out/steps.tsv"
    unfinished=0 failed=0 deferred=() taken=''
    run_command "$@"
    run_deferred
    summary
}

# Sets a variable for each option, and REQUEST to the words behind them: the command and its own.
read_options() {
    out=results device=gpu minutes='' shard=250 reports='' seed=1 as='' within='' again='' any_libraries=''
    while [[ ${1-} == --* ]]; do
        case $1 in
            --out | --device | --minutes | --shard | --reports | --seed | --as | --within)
                [[ -n ${2-} ]] || die "$1 needs a value"
                printf -v "${1#--}" %s "$2"
                shift 2
                ;;
            --again) again=yes && shift ;;
            --any-libraries) any_libraries=yes && shift ;;
            --help) usage && exit ;;
            *) die "there is no option $1" ;;
        esac
    done
    is_number "$seed" || die "--seed takes a number, not '$seed'"
    is_number "$shard" || die "--shard takes a number, not '$shard'"
    [[ -z $within ]] || is_number "$within" || die "--within takes a number, not '$within'"
    [[ -z $minutes ]] || is_decimal "$minutes" || die "--minutes takes a number of minutes, as 9 or 2.5, not '$minutes'"
    readonly LAST_SECOND=${minutes:+$(seconds_of "$minutes")}
    request=("$@")
}

# That there is the command, and that the options are for it.
check_request() {
    case ${1-} in
        check | huge | tails | test | compare | sweep | record | plan | infer | study | errors | tenth) ;;
        counters | host | guide | candle | sanitize | all) ;;
        '' | help) usage && exit 2 ;;
        *) die "there is no command '$1'" ;;
    esac
    [[ -z $as || $1 == plan ]] || die "--as is for plan"
    [[ -z $within || $1 =~ ^(plan|record|tenth)$ ]] || die "--within is for record, plan and tenth"
    [[ -z $again || $1 == plan || $1 == record ]] || die "--again is for record and plan"
    [[ -z $any_libraries || $1 =~ ^(plan|record|tenth)$ ]] || die "--any-libraries is for record, plan and tenth"
}

check_devices() {
    [[ ${#devices[@]} -eq 1 || $1 =~ ^(record|plan|check|huge|tails|sanitize)$ ]] || die "$1 takes one device, not '$device'"
    [[ -z $(printf '%s\n' "${devices[@]}" | sed 's/^gpu$/gpu:0/' | sort | uniq -d) ]] ||
        die "a device is named twice in '$device': processes on one GPU take turns, so that several do less than one"
}

run_command() {
    local command=$1
    shift
    case $command in check | huge | tails | sanitize | test | all) list_variants ;; esac
    case $command in
        check | huge | tails | sanitize) shared "$command" "$@" ;;
        test) packed_tests ;;
        compare) [[ $# -gt 0 ]] || die "compare needs the name of a suite" && measure compare "$@" ;;
        sweep) sweep "$@" ;;
        record) record "$@" ;;
        plan) plan "$@"; exit ;;
        infer) infer "$@" ;;
        study) study ;;
        errors) study_errors ;;
        tenth) tenth ;;
        counters) largest ;;
        host) host ;;
        guide) guide ;;
        candle) candle ;;
        all) everything ;;
    esac
}

die() {
    echo "gpu.sh: $*; see gpu.sh --help" >&2
    exit 2
}

is_number() { [[ $1 =~ ^[1-9][0-9]*$ ]]; }

# More than zero.
is_decimal() { [[ $1 =~ ^[0-9]+(\.[0-9]+)?$ && $1 =~ [1-9] ]]; }

# Of minutes; the shell counts in whole numbers alone.
seconds_of() { LC_ALL=C awk -v minutes="$1" 'BEGIN { printf "%.0f", minutes * 60 }'; }

find_program() {
    local candidate
    for candidate in "$here/bin/convforge" "$here/../target/release/convforge" \
        "${CONVFORGE:-}" "$(command -v convforge)"; do
        [[ -x $candidate ]] && echo "$candidate" && return
    done
    echo "gpu.sh: no convforge in $here/bin, in ../target/release or on PATH; CONVFORGE may name it" >&2
    exit 1
}

# json PYTHON [ARGUMENT...]: what these lines print of `it`, the JSON on standard input.
json() {
    python3 -c "import json, sys; it = json.load(sys.stdin)"$'\n'"$1" "${@:2}" && return
    echo "gpu.sh: python3 could not read what $convforge says" >&2
    return 1
}

# shared COMMAND...: all of its steps, by a worker for each device of the list: a step is done by whoever comes to it
# first.
shared() {
    if [[ ${#devices[@]} -eq 1 ]]; then
        "$@"
        return
    fi
    taken=$(mktemp -d) || exit 1
    workers "$@"
    rm -rf "$taken"
}

# workers COMMAND...: the command once for each device, at the same time. What they answer comes together in
# `unfinished` and `failed`. SIGINT or SIGTERM lets them end what has begun.
workers() {
    local one workers=() status interrupted=''
    for one in "${devices[@]}"; do
        (
            device=$one
            "$@"
            run_deferred
            exit $((unfinished + 2 * failed))
        ) &
        workers+=($!)
    done
    trap 'interrupted=yes; kill -TERM "${workers[@]}"' INT TERM
    for one in "${workers[@]}"; do
        wait "$one"
        status=$?
        [[ -z $interrupted ]] || { wait "$one"; status=1; }
        ((!(status & 1))) || unfinished=1
        ((!(status & 2))) || failed=1
    done
    trap - INT TERM
}

is_done() { grep -q "^$1"$'\t' "$out/steps.tsv"; }

minutes_are_over() { [[ -n $LAST_SECOND ]] && ((LAST_SECOND - SECONDS < 5)); }

# What a step says last; of a program under a sanitizer what both say.
last_line() {
    awk '/^========= .*SUMMARY/ { if (!/not printed/) summary = "; " $0; next }
         /^=========/ || /^[[:space:]]*$/ { next }
         { last = $0 }
         END { print last summary }' "$1" | tr '\t' ' ' | cut -c 1-250
}

# step NAME COMMAND...: runs it once, for eight minutes at most. Its output goes to log.txt, and a
# line with its name, exit status, seconds and last line to steps.tsv. A step that failed is done
# too; one that ran out of time is not.
step() {
    local name=$1 status began seconds last text limit=$STEP_SECONDS
    shift
    is_done "$name" && return
    [[ -z $taken ]] || mkdir "$taken/$name" 2>/dev/null || return 0
    if minutes_are_over; then
        unfinished=1
        return
    fi
    [[ -z $LAST_SECOND ]] || ((LAST_SECOND - SECONDS >= limit)) || limit=$((LAST_SECOND - SECONDS))
    text=$(mktemp) || exit 1
    began=$SECONDS
    # SIGINT, by the clock or by Ctrl-C, lets convforge finish what it is measuring and keep it.
    timeout --signal=INT --kill-after=30 "$limit" "$@" >"$text" 2>&1 &
    local pid=$! interrupted=''
    trap 'interrupted=yes; kill -INT "$pid"' INT TERM
    wait "$pid"
    status=$?
    [[ -z $interrupted ]] || wait "$pid"
    trap - INT TERM
    seconds=$((SECONDS - began))
    last=$(last_line "$text")
    # Workers write it in turns.
    (
        flock 9
        echo "=== $name: status $status after $seconds s"
        cat "$text"
    ) 9>>"$out/log.txt" >&9
    rm -f "$text"
    [[ -z $interrupted ]] || exit 130
    if ((status == 124 || status == 137)); then
        echo "$name: stopped after $seconds s"
        ((limit < STEP_SECONDS)) || echo "$name" >>"$out/stopped.txt"
        unfinished=1
        return
    fi
    printf '%s\t%s\t%s\t%s\n' "$name" "$status" "$seconds" "$last" >>"$out/steps.tsv"
    echo "$name: status $status, $seconds s: $last"
}

# late NAME COMMAND...: a step that begins anew each time; where its eight minutes were over once, it waits until all
# others are done.
late() {
    if ! is_done "$1" && grep -qxF -e "$1" "$out/stopped.txt" 2>/dev/null; then
        deferred+=("$(printf '%q ' "$@")")
    else
        step "$@"
    fi
}

run_deferred() {
    local one
    for one in "${deferred[@]}"; do
        eval "step $one </dev/null"
    done
}

# measure SUBCOMMAND SUITE...: a step for each suite, all into one file; words change the suite.
measure() {
    local subcommand=$1 name
    shift
    for name in "$@"; do
        local options=(--suite "${name%%+*}") words word
        IFS=+ read -ra words <<<"${name#"${name%%+*}"}"
        for word in "${words[@]}"; do
            case $word in
                '') ;;
                f32 | f16 | bf16) options+=(--storage "$word") ;;
                nchw | nhwc) options+=(--layout "$word") ;;
                math=*) options+=(--math "${word#math=}") ;;
                *) die "'$word' is no storage, layout or math" ;;
            esac
        done
        step "$subcommand-$name" "$convforge" "$subcommand" --device "$device" "${options[@]}" \
            --out "$out/$subcommand.json" --resume
    done
}

sweep() {
    if [[ $# -gt 0 ]]; then
        measure sweep "$@"
    else
        step sweep "$convforge" sweep --device "$device" --out "$out/sweep.json" --resume
    fi
}

infer() {
    local variant count
    [[ $# -gt 0 ]] || set -- rule
    for variant in "$@"; do
        for count in 100 1000 5000 10000; do
            step "infer-$variant-$count" "$convforge" infer --device "$device" \
                "${weights[@]}" --variant "$variant" --count "$count"
        done
    done
}

# The options that name the reports' files, if they are used.
find_reports() {
    weights=()
    [[ -n $reports || ! -d $here/reports ]] || reports=$here/reports
    [[ -n $reports ]] || return 0
    [[ -r $reports/weights-86.bin ]] || die "there is no $reports/weights-86.bin"
    weights=(--weights "$reports/weights-86.bin" --expect "$reports/logits-86.npy")
}

# All shares into one file, and the errors.
study() {
    local part
    for ((part = 1; part <= STUDY_STEPS; part++)); do
        step "study-$part-of-$STUDY_STEPS" "$convforge" study --device "$device" "${weights[@]}" \
            --shard "$part/$STUDY_STEPS" --out "$out/study.json" --resume
    done
    study_errors
}

study_errors() {
    step study-errors "$convforge" study --device "$device" --parts errors --out "$out/study.json" --resume
}

everything() {
    check 2000
    packed_tests
    # shellcheck disable=SC2086 # a list of words
    measure compare $SUITES
    sweep
    infer
    study
    sanitize
}

summary() {
    {
        awk -F '\t' '$2 != 0 { printf "FAILED %5d s  %-28s %s\n", $3, $1, $4; failed++ }
                     END { printf "%d steps done, %d of them failed\n", NR, failed }' "$out/steps.tsv"
        # Eight minutes were not enough for them.
        [[ ! -e $out/stopped.txt ]] || grep -vxFf <(cut -f 1 "$out/steps.tsv") "$out/stopped.txt" | sort -u |
            sed 's/^/stopped, not done: /'
        check_table
        sanitize_table
        host_table
        candle_table
    } >"$out/verdict.txt"
    echo
    cat "$out/verdict.txt"
    echo "Results are in $out."
    if ((unfinished)); then
        echo "Not all is done: the same command goes on."
        exit 75
    fi
    awk -F '\t' '$2 != 0 { exit 1 }' "$out/steps.tsv" && sanitize_is_clean &&
        host_table >/dev/null && ((!failed))
    exit
}

main "$@"
