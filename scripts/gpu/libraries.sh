# shellcheck shell=bash
# cuBLAS and cuDNN of the versions that results are kept of, toolkit.lock's. Sourced by gpu.sh.

# A library's name, its file, the variable that names its folder, its Python package.
readonly LIBRARIES='cuBLAS libcublas.so.1[0-9] CONVFORGE_CUBLAS_LIB nvidia-cublas
cuDNN libcudnn.so.9 CONVFORGE_CUDNN_LIB nvidia-cudnn-cu13'

# Another version makes what is measured beside it stale at once. So it is taken from another folder, or all ends here.
right_libraries() {
    [[ -z $any_libraries && -z $as && $device != cpu ]] || return 0
    [[ -r $here/toolkit.lock ]] || die "there is no $here/toolkit.lock, which has the libraries' versions"
    local name file variable package wrong=0
    while read -r name file variable package; do
        right_library "$name" "$file" "$variable" "$package" || wrong=1
    done <<<"$LIBRARIES"
    ((wrong == 0)) || exit 1
}

# right_library NAME FILE VARIABLE PACKAGE: what the user names is not replaced.
right_library() {
    local pinned wanted opened folder version others=''
    pinned=$(sed -n "s/^$4==\([^ ]*\).*/\1/p" "$here/toolkit.lock")
    wanted=$(grep -oE '^[0-9]+\.[0-9]+\.[0-9]+' <<<"$pinned") || die "toolkit.lock has no version of $4"
    opened=$(version_of "$1") || exit 1
    [[ $opened != "$wanted" ]] || return 0
    while read -r folder; do
        version=$(version_of "$1" "$3=$folder")
        if [[ $version == "$wanted" && -z ${!3-} ]]; then
            export "$3=$folder"
            echo "$1 $wanted of $folder is taken, as toolkit.lock has it; what is found first is ${opened:-none}" >&2
            return 0
        fi
        others+="  ${version:-cannot be opened}: $folder"$'\n'
    done < <(folders_with "$2")
    {
        echo "gpu.sh: $1 is ${opened:-missing or cannot be opened}${!3:+ (by ${!3})}, and results are kept of $wanted" \
            "(toolkit.lock): what is measured with another one is stale at once."
        [[ -z $others ]] || printf 'On this machine are:\n%s' "$others"
        echo "$3=FOLDER takes it from a folder; python3 -m pip install $4==$pinned installs it where it is found;" \
            "--any-libraries measures with what is here."
    } >&2
    return 1
}

# version_of NAME [VARIABLE=FOLDER]: as the program opens it, or nothing.
version_of() {
    env "${@:2}" "$convforge" devices --json </dev/null | json '
versions = {one["name"]: one["version"] for one in it["libraries"]}
print(versions.get(sys.argv[1]) or "")' "$1"
}

# folders_with FILE: those that have it, what is likely first; what half a minute does not find is not found, as disks
# may be large. It is opened, so it must be this user's or the system's.
folders_with() {
    timeout 30 find "${VIRTUAL_ENV:-/usr}" /usr /opt ~ / '(' -path /proc -o -path /sys ')' -prune \
        -o -name "$1" '(' -user root -o -user "$(id -un)" ')' -exec dirname {} ';' 2>/dev/null </dev/null |
        while read -r folder; do
            readlink -f "$folder"
        done | awk '!seen[$0]++ { print; fflush() }'
}
