# shellcheck shell=bash
# The rows that steps are made for. Sourced by gpu.sh.

# Every variant, a line each: family, name, number of configurations, kind.
variants() {
    "$convforge" list --json | awk -F '"' '
        $2 == "name" { name = $4 }
        $2 == "family" { family = $4 }
        $2 == "kind" { kind = $4 }
        # A list without an end in its own line has an item per line.
        $2 == "configs" { count = 0; within = $0 !~ /\]/ }
        within && NF == 3 && $1 ~ /^ *$/ && $3 ~ /^,?$/ { count++ }
        within && /\]/ { within = 0 }
        $2 == "ranked" { print family, name, count ? count : 1, kind }'
}

# The handwritten ones. On the CPU, where steps are tried without a GPU, the CPU's own.
rows() {
    local kind=kernel
    [[ $device != cpu ]] || kind=cpu
    variants | awk -v kind="$kind" '$4 == kind'
}

# rows_of NAME: those of a family, or the one variant of this name.
rows_of() {
    local found
    found=$(rows | awk -v name="$1" '$1 == name || $2 == name')
    [[ -n $found ]] || die "there is no family or handwritten variant named '$1'"
    echo "$found"
}

# What is named, or else every family, in reading order.
families() {
    [[ $# -eq 0 ]] || { printf '%s\n' "$@" && return; }
    rows | awk '!seen[$1]++ { print $1 }'
}
