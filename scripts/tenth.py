#!/usr/bin/env python3
"""A share of the problems of the committed results, drawn by a seed: a list that `convforge compare --suite` takes.

Each problem is drawn by itself, by a hash of the seed and its text, so that another problem that is committed
changes nothing of the others.
"""

import argparse
import hashlib
from pathlib import Path

import results


def problems(folder):
    """Those that a variant was timed on, each with its suite and layer."""
    found = {}
    for path in results.files(folder):
        for row in results.read(path).get("rows", []):
            if row.get("status") == "passed" and row.get("median_us"):
                found.setdefault(row["problem"], f"{row['suite']}.{row['layer']}")
    return sorted((name, problem) for problem, name in found.items())


def is_drawn(seed, problem, one_in):
    digest = hashlib.sha256(f"{seed} {problem}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % one_in == 0


def main():
    root = Path(__file__).resolve().parent
    places = [root / "benches/results", root.parent / "benches/results"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, help="their folder",
                        default=next((place for place in places if place.is_dir()), places[1]))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one-in", type=int, default=10, metavar="N", help="one of so many problems (10)")
    args = parser.parse_args()
    for name, problem in problems(args.results):
        if is_drawn(args.seed, problem, args.one_in):
            print(name.strip(".").replace(" ", "-") or "problem", problem)


if __name__ == "__main__":
    main()
