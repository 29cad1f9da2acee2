#!/usr/bin/env python3
"""What nvcc took for each file of kernels, in seconds of CPU, as the build recorded it: in all, and
by step and architecture.

Steps are measured by the clock and may run side by side; each has its share of the file's CPU time.
`compute_...` is the front end and optimiser (cicc), `sm_...` the assembler (ptxas), the rest the host's
compiler and what all architectures share. A file's time is that of its last compilation: on a busy
machine it is more.
"""

import argparse
import sys
from pathlib import Path

import objects
from markdown import table

ROOT = Path(__file__).resolve().parent.parent


def split(record):
    """A file's CPU seconds by step; what nvcc did not name is `rest`."""
    named = {}
    for seconds, arch, tool in record.phases:
        if tool != "cudafe++":
            named[arch] = named.get(arch, 0) + seconds
    steps = {"rest": 0}
    # Side by side, steps add up to more than the file took.
    scale = record.cpu_seconds / max(record.seconds, sum(named.values()), 0.01)
    for arch, seconds in named.items():
        steps[arch] = seconds * scale
    steps["rest"] = max(record.cpu_seconds - sum(steps.values()), 0)
    return steps


def order(arch):
    """cicc before ptxas, older chips first, the rest last."""
    return (arch == "rest", not arch.startswith("compute"), arch)


def times(records):
    """The table's header and lines, the longest first, and their sums."""
    files = sorted(((split(r), r) for r in records), key=lambda file: -file[1].cpu_seconds)
    columns = sorted({arch for steps, _ in files for arch in steps}, key=order)
    total = sum(record.cpu_seconds for _, record in files)
    lines = []
    for steps, record in files:
        share = f"{100 * record.cpu_seconds / total:.0f} %" if total else ""
        cells = [f"{steps[arch]:.1f}" if arch in steps else "" for arch in columns]
        lines.append([record.source(), f"{record.cpu_seconds:.1f}", share, *cells])
    sums = [sum(steps.get(arch, 0) for steps, _ in files) for arch in columns]
    lines.append([f"{len(files)} files", f"{total:.1f}", "", *(f"{v:.1f}" for v in sums)])
    return ["file", "CPU s", "share", *columns], lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=Path, metavar="DIR",
                        help="a folder of objects (the newest of each package)")
    args = parser.parse_args()
    if args.objects:
        folders = [args.objects]
    else:
        folders = [objects.newest(ROOT)]
        for package in objects.PACKAGES[1:]:
            try:
                folders.append(objects.newest(ROOT, package))
            except objects.Failure:
                pass  # only the library was built
    records = [record for folder in folders for record in objects.records(folder)]
    if not records:
        raise objects.Failure(f"no build was recorded in {', '.join(map(str, folders))}")
    header, lines = times(records)
    print(table(header, lines, 1))
    print(f"\n{records[0].compiler}")


if __name__ == "__main__":
    try:
        main()
    except objects.Failure as failure:
        sys.exit(f"build_times.py: {failure}")
