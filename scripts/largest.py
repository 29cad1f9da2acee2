#!/usr/bin/env python3
"""The largest layer of each filter size among the layers of networks, with the rows that are for it: what
`gpu.sh counters` gives to ncu. benches/counters.txt is its answer; --check says whether that is so.

The largest of depthwise and grouped layers moves the most bytes, of dense ones it has the most products. What is
held out is left out, and dense layers of so few channels that they are no matter for the general rows.
"""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTED = ROOT / "benches/counters.txt"
SUITES = ROOT / "crates/tools/src/suites/nets"
# By kind: the rows, and the words that follow the problem.
ROWS = {
    "depthwise": [
        ("depthwise_nhwc", "+f16+nhwc"), ("depthwise_nhwc", "+nhwc"), ("depthwise_mma", "+f16+nhwc"),
        ("depthwise_rows", ""),
        ("depthwise_nchw", "+f16"), ("depthwise_nchw", ""), ("depthwise_planar", "+f16"),
        ("depthwise_any", "+f16+nhwc"), ("depthwise_any", "+nhwc"), ("depthwise_any", "+f16"),
    ],
    "grouped": [
        ("grouped_nhwc", "+f16+nhwc"), ("grouped_nhwc", "+nhwc"),
        ("grouped_nchw", "+f16"), ("grouped_nchw", ""), ("grouped_planar", "+f16"), ("grouped_planar", ""),
    ],
    "dense": [
        ("implicit_gemm_nhwc", "+f16+nhwc"), ("implicit_gemm_nhwc", "+nhwc+math=tf32"),
        ("implicit_gemm_f32_nhwc", "+nhwc"),
        ("implicit_gemm_f32_nchw", ""),
        ("implicit_gemm_nchw", "+f16"), ("implicit_gemm_mma", "+f16+nhwc"),
    ],
}
LARGEST_FAST = 11  # depthwise_any is for filters beyond the fast paths
LEAST_CHANNELS = 8
PLANAR_GROUPS = (4, 8)  # channels of a group that grouped_planar takes in every type
SIZE = re.compile(r"(mb|ic|ih|iw|oc|oh|ow|kh|kw|g)(\d+)")


def sizes(problem):
    found = {name: int(value) for name, value in SIZE.findall(problem)}
    for width, height in (("iw", "ih"), ("ow", "oh"), ("kw", "kh")):
        found.setdefault(width, found[height])
    found.setdefault("g", 1)
    return found


def takes(variant, problem):
    """Whether the row is for the problem, one of its kind."""
    at = sizes(problem)
    if variant == "grouped_planar":
        without_stride = (at["kh"], at["kw"], at["oh"]) == (3, 3, at["ih"])
        return without_stride and at["ic"] // at["g"] in PLANAR_GROUPS
    if variant == "depthwise_rows":
        return at["kh"] in (5, 7) and at["oh"] == at["ih"] and at["iw"] % 4 == at["ic"] % 4 == 0
    if variant.startswith("depthwise"):
        return (max(at["kh"], at["kw"]) > LARGEST_FAST) == (variant == "depthwise_any")
    return True


def weight(kind, problem):
    """What makes a layer a large one."""
    at = sizes(problem)
    outputs = at["mb"] * at["oc"] * at["oh"] * at["ow"]
    if kind == "dense":
        return outputs * at["ic"] // at["g"] * at["kh"] * at["kw"]
    return outputs + at["mb"] * at["ic"] * at["ih"] * at["iw"]


def largest(kind, problems):
    """One of each filter size, the smallest filter first."""
    best = {}
    for problem in sorted(set(problems)):
        at = sizes(problem)
        key = (at["kh"] * at["kw"], at["kh"])
        if key not in best or weight(kind, problem) > weight(kind, best[key]):
            best[key] = problem
    return [best[key] for key in sorted(best)]


def problems(kind):
    for path in sorted((SUITES / kind).glob("*.txt")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            problem = line.split()[-1]
            if kind != "dense" or sizes(problem)["ic"] >= LEAST_CHANNELS:
                yield problem


def lines():
    yield "# The largest layer of each filter size, and the rows that ncu counts it by (`gpu.sh counters`)."
    yield "# Written by scripts/largest.py."
    for kind, rows in ROWS.items():
        of_kind = list(problems(kind))
        for variant, words in rows:
            for problem in largest(kind, [problem for problem in of_kind if takes(variant, problem)]):
                yield f"{variant} {problem}{words}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say whether benches/counters.txt is so")
    args = parser.parse_args()
    text = "".join(f"{line}\n" for line in lines())
    if not args.check:
        LISTED.write_text(text, encoding="utf-8")
    elif not LISTED.exists() or LISTED.read_text(encoding="utf-8") != text:
        print("benches/counters.txt is not what scripts/largest.py writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
