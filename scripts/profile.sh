#!/usr/bin/env bash
# Profiles variants under nsys and ncu, and compares two of them; profile.sh --help says how. The
# work is profiler.py's, which lies beside it.
set -euo pipefail
if ! command -v python3 >/dev/null; then
    echo "profile.sh: there is no python3 on PATH; it needs 3.9 or newer, without packages" >&2
    exit 1
fi
exec python3 "$(dirname "${BASH_SOURCE[0]}")/profiler.py" "$@"
