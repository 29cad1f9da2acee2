#!/usr/bin/env python3
"""The estimates by which depthwise_nhwc, depthwise_nchw, depthwise_rows and grouped_nhwc choose among strips, against times of
many plans; and their constants, fitted to them. The planners are the sources themselves, compiled by nvcc.

    scripts/fit_strips.py depthwise_nhwc                  # what the constants in its source are worth
    scripts/fit_strips.py depthwise_nhwc --search 40000   # looks for better ones for so many steps, and prints them

The times are in benches/results/evidence, of H200s. What counts is how much longer the plan with the least estimate takes
than the fastest that was timed, and the fastest of the first eight, which a row's configurations name.
"""

import argparse
import csv
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from estimate_model import Problem

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "benches/results/evidence"
STATEMENT = re.compile(r"^constexpr double ([^;]+);", re.MULTILINE)
CONSTANT = re.compile(r"(\w+)\s*=\s*[-\d.e]+")
# In place of core/ranking.cuh: it keeps all options.
RANKING = """#pragma once
#include <vector>
namespace cf {
template <class Choice>
struct Ranking {
    std::vector<Choice> options;
    void meet(const Choice &choice, double) { options.push_back(choice); }
    bool met_none() const { return options.empty(); }
};
}
"""
# The same of core/ranking_of_kinds.cuh.
OF_KINDS = """#pragma once
#include "core/ranking.cuh"
namespace cf {
template <class Choice>
struct RankingOfKinds : Ranking<Choice> {
    void meet(bool, const Choice &choice, double) { this->options.push_back(choice); }
};
}
"""


@dataclass(frozen=True)
class Row:
    """Where a planner is, which words tell its plans apart, and which of its constants are fitted (none named: all)."""

    header: str
    words: tuple
    files: tuple  # of times, and of which forms of a file's
    fitted: tuple = ()


FORMS = ("h200-depthwise-forms.csv", ("present", "room"))
ORDERED = ("h200-ordered-blocks.csv", ("ordered", "persistent"))
ROWS = {
    "depthwise_nhwc": Row(
        "kernels/depthwise/nhwc_plan.cuh",
        ("images", "tiles", "rows", "steps", "stages", "blocks", "lanes", "group", "of_sm"),
        (
            FORMS,
            ("h200-depthwise-residency.csv", ("kept", "kept again", "no more room")),
            ("h200-depthwise-nhwc-groups.csv", ("pairs",)),
            ORDERED,
        ),
    ),
    "depthwise_nchw": Row(
        "kernels/depthwise/nchw_plan.cuh",
        ("set", "strip_rows", "rows", "columns", "stages", "blocks", "bands"),
        (
            FORMS,
            ("h200-depthwise-residency.csv", ("kept", "kept again")),
            ("h200-depthwise-nchw-first-strips.csv", ("first strip alone",)),
        ),
        ("StreamShare", "LatencyClocks", "StripSlots", "VisitSlots", "MoverSlots", "FilterSlots", "SharedShare",
         "EndsShare", "Unbalanced", "Filling"),
    ),
    "depthwise_rows": Row(
        "kernels/depthwise/rows_plan.cuh",
        ("planes", "tiles", "rows", "steps", "stages", "blocks"),
        (FORMS,),
    ),
    "grouped_nhwc": Row(
        "kernels/grouped/nhwc_plan.cuh",
        ("boxes", "images", "units", "rows", "steps", "warps", "stages", "blocks", "of_sm"),
        (FORMS, ORDERED),
        ("OfItem", "StreamShare", "AgainShare", "SpreadShare", "ApartShare", "OrderedShare", "FrontShare", "OrderedStart",
         "OrderedUs"),
    ),
}  # fmt: skip


def columns(problem):
    """A thread's of depthwise_nchw before plans said so: 7 by single words in large filters of f32 alone."""
    if problem.stride[0] == 2:
        return 4
    whole = problem.w * problem.size % 16 == 0
    if problem.size == 2 or (whole and (problem.r == 3 or problem.q % 4 == 0)):
        return 8
    return 7 if problem.r > 3 else 4


def words_of(row, problem, plan):
    """A plan's words as the compiled planner writes them; none where a word that tells plans apart is not there."""
    found = dict(word.split("=") for word in plan.split())
    if "columns" in row.words:
        found.setdefault("columns", columns(problem))
        tensor_cores = problem.size == 2 and found["rows"] in ("16", "32", "64", "128")
        found.setdefault("bands", int(tensor_cores))
    return " ".join(f"{word}={found[word]}" for word in row.words if word in found)


def times(name, row):
    """Of each problem: what a plan took, whether there may have been room for further blocks, and the plan."""
    found = {}
    for file, forms in row.files:
        with open(EVIDENCE / file, encoding="utf-8") as lines:
            for line in csv.DictReader(line for line in lines if not line.startswith("#")):
                if line["row"] != name or line["form"] not in forms:
                    continue
                first_strips = "median_us" in line
                if first_strips and "f16" not in line["problem"]:
                    continue
                us = float(line["median_us" if first_strips else "us"])
                # Pixels were copied one by one where nothing says otherwise.
                plan = words_of(row, Problem(line["problem"]), f"{line['plan']} group={line.get('group', 1)}")
                found.setdefault(line["problem"], []).append((us, int(first_strips), plan))
    return found


def standard_input(found):
    lines = [str(len(found))]
    for text, plans in sorted(found.items()):
        p = Problem(text)
        pad = [((o - 1) * s + k - size + 1) // 2 for o, s, k, size in
               zip((p.p, p.q), p.stride, (p.r, p.s), (p.h, p.w))]  # fmt: skip
        sizes = (p.n, p.c, p.h, p.w, p.k, p.r, p.s, p.p, p.q, *p.stride, *pad, p.groups, int(p.nhwc), p.storage, p.math)
        lines += [" ".join(map(str, (text, *sizes))), str(len(plans))]
        lines += [f"{us} {any_room} {plan}" for us, any_room, plan in plans]
    return "\n".join(lines) + "\n"


def compiled(name, row, folder, nvcc):
    """The program of a row's planner, with variables in place of its constants."""
    header = folder / row.header
    header.parent.mkdir(parents=True)
    (folder / "core").mkdir()
    (folder / "core/ranking.cuh").write_text(RANKING, encoding="utf-8")
    (folder / "core/ranking_of_kinds.cuh").write_text(OF_KINDS, encoding="utf-8")
    source = (ROOT / "csrc" / row.header).read_text(encoding="utf-8")
    names = [one for statement in STATEMENT.findall(source) for one in CONSTANT.findall(statement)]
    header.write_text(STATEMENT.sub(r"inline double \1;", source), encoding="utf-8")
    lines = [f'{{"{one}", &{one}}},' for one in names if not row.fitted or one in row.fitted]
    (folder / "constants.inc").write_text("\n".join(lines), encoding="utf-8")
    program = folder / "fit_strips"
    command = [nvcc, "-std=c++20", "-O2", f"-D{name.upper()}", f"-I{folder}", f"-I{ROOT / 'csrc'}", "-w"]
    subprocess.run([*command, "-o", program, ROOT / "scripts/fit_strips.cu"], check=True)
    return program


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", choices=ROWS, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--search", type=int, default=0, metavar="STEPS", help="steps of a search for better constants")
    parser.add_argument("--seed", type=int, default=1, help="of the search (1)")
    options = parser.parse_args(arguments)
    row = ROWS[options.row]
    toolkit = subprocess.run([sys.executable, ROOT / "scripts/toolkit.py", "--print"], capture_output=True, text=True)
    if toolkit.returncode:
        sys.exit(f"fit_strips.py compiles the planner by nvcc: {toolkit.stderr.strip()}")
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(options.row, row, Path(folder), Path(toolkit.stdout.strip()) / "bin/nvcc")
        command = [program, str(options.search), str(options.seed)]
        subprocess.run(command, input=standard_input(times(options.row, row)), text=True, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
