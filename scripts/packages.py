#!/usr/bin/env python3
"""Says what `cargo package --workspace` put into target/package, and fails where a crate lacks a
licence, carries what only a checkout needs, or is large."""

import argparse
import json
import subprocess
import sys
import tarfile
from pathlib import Path

LICENCES = {"LICENSE-APACHE", "LICENSE-MIT"}
# A dependent compiles; it neither tests nor reads results.
ONLY_IN_A_CHECKOUT = {"benches", "data", "docs", "scripts", "tests"}
# Kernels and their headers are text, some 300 KB packed.
MOST_BYTES = 1 << 20


def faults(crate):
    """What is wrong with a .crate file."""
    with tarfile.open(crate) as archive:
        names = {Path(*Path(member.name).parts[1:]) for member in archive if member.isfile()}
    top = {name.parts[0] for name in names}
    for missing in sorted(LICENCES - top):
        yield f"has no {missing}"
    for folder in sorted(ONLY_IN_A_CHECKOUT & top):
        yield f"carries {folder}"
    if crate.stat().st_size > MOST_BYTES:
        yield f"is larger than {MOST_BYTES} bytes"


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"],
        stdout=subprocess.PIPE,
        check=True,
    )
    metadata = json.loads(metadata.stdout)
    failed = False
    for package in metadata["packages"]:
        name = f"{package['name']}-{package['version']}.crate"
        crate = Path(metadata["target_directory"], "package", name)
        if not crate.exists():
            sys.exit(f"there is no {crate}: cargo package --workspace --no-verify makes it")
        print(f"{crate.stat().st_size:8} bytes  {name}")
        for fault in faults(crate):
            failed = True
            print(f"{name} {fault}", file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
