#!/usr/bin/env python3
"""Whether two runs of `compare` agree: how far the same row's ratio to cuDNN differs between them. The first may be
the folder of the committed results: what they have of the same kind of GPU by the same code is compared, but for what is of
the second run itself.

A row over 20 us whose ratios differ by more than 5 % disagrees, unless the spreads say so: the ratios that lie
between the tenth and the ninetieth of a hundred samples of both sides overlap.

Exit status: 0 they agree, 1 they do not, 2 there is nothing to compare, or no report.
"""

import argparse
import math
import sys
from pathlib import Path

import results

LEAST_US = 20
MOST = 0.05
CUDNN = ("cudnn", "cudnn_transform")


def ratios(rows):
    """By problem and variant: the ratio to cuDNN, its spread from and to, and the row's time."""
    passed = [row for row in rows if row.get("status") == "passed" and row.get("median_us")]
    cudnn = {}
    for row in passed:
        best = cudnn.get(row["problem"])
        if row["variant"] in CUDNN and (best is None or row["median_us"] < best["median_us"]):
            cudnn[row["problem"]] = row
    found = {}
    for row in passed:
        other = cudnn.get(row["problem"])
        if other is None or row["variant"] in CUDNN:
            continue
        found[row["problem"], results.name(row)] = (
            other["median_us"] / row["median_us"],
            other["p10_us"] / row["p90_us"],
            other["p90_us"] / row["p10_us"],
            row["median_us"],
        )
    return found


def compared(first, second):
    """By problem and variant, for those over LEAST_US in both: the ratios, how far the second is from the first, and
    whether their spreads overlap."""
    answers = {}
    for key in sorted(first.keys() & second.keys()):
        (a, a_low, a_high, a_us), (b, b_low, b_high, b_us) = first[key], second[key]
        if min(a_us, b_us) > LEAST_US:
            answers[key] = (a, b, b / a - 1, a_low <= b_high and b_low <= a_high)
    return answers


def committed(folder, second):
    """The ratios of a folder's runs on the GPU of this one, the latest of each row that is of the same code."""
    here, rows = second.get("environment", {}), second.get("rows", [])
    sources = {(row["problem"], results.name(row)): row.get("source") for row in rows}
    runs = [run for run in map(results.read, results.files(folder)) if run.get("environment", {}).get("gpu") == here.get("gpu")]
    found = {}
    for run in sorted(runs, key=lambda run: run["environment"]["date"]):
        if run["environment"]["date"] == here.get("date"):
            continue
        found |= ratios([row for row in run.get("rows", []) if row["variant"] in CUDNN or
                         sources.get((row["problem"], results.name(row)), "") == row.get("source")])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=Path, help="a report, or the folder of the committed results")
    parser.add_argument("second", type=Path, help="a report")
    args = parser.parse_args()
    try:
        run = results.read(args.second)
        second = ratios(run.get("rows", []))
        first = committed(args.first, run) if args.first.is_dir() else ratios(results.read(args.first).get("rows", []))
    except (OSError, ValueError) as why:
        print(f"agree.py: no report: {why}", file=sys.stderr)
        return 2
    answers = compared(first, second)
    if not answers:
        print("agree.py: the two have no row over 20 us beside cuDNN in common", file=sys.stderr)
        return 2
    apart = {key: answer for key, answer in answers.items() if abs(answer[2]) > MOST}
    wrong = {key: answer for key, answer in apart.items() if not answer[3]}
    mean = math.exp(sum(math.log(b / a) for a, b, _, _ in answers.values()) / len(answers))
    problems = len({problem for problem, _ in answers})
    print(f"{len(answers)} rows over {LEAST_US} us on {problems} problems; the second's ratio to cuDNN is "
          f"{mean:.3f} times the first's in the geometric mean")
    print(f"{len(answers) - len(apart)} differ by at most {MOST:.0%}, {len(apart) - len(wrong)} by more as their "
          f"spreads say, {len(wrong)} by more than these say")
    for (problem, variant), (a, b, change, overlaps) in sorted(apart.items(), key=lambda item: -abs(item[1][2])):
        print(f"  {'spread' if overlaps else 'APART '} {change:+6.1%}  {a:6.2f} and {b:6.2f}  {variant} {problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
