# shellcheck shell=bash
# The rows that steps are made for. Sourced by gpu.sh.

# Sets LISTED to every variant, a line each: family, name, number of configurations, kind. Done
# before the first step, as a list that fails within "< <()" or a pipe looks like one without rows.
list_variants() {
    listed=$("$convforge" list --json | json '
for one in it:
    print(one["family"], one["name"], len(one["configs"]) or 1, one["kind"])') || exit 1
}

# The handwritten ones. On the CPU, where steps are tried without a GPU, the CPU's own.
rows() {
    local kind=kernel
    [[ $device != cpu ]] || kind=cpu
    awk -v kind="$kind" '$4 == kind' <<<"$listed"
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
