#!/usr/bin/env python3
"""Turns the reports in benches/results into tables: docs/results.md with every suite, and between their markers the
README's, those of chapters of docs/kernels, of docs/accuracy.md (accuracy.py) and of the guide. The reports are what
`convforge report --keep` makes of those of `compare`, `sweep` and `study`. All of them are of the GPU that most was
measured on; what others measured is on a page of each, as docs/results-h100.md.

With --check nothing is written; the exit status says whether the tables agree with the reports, and
whether benches/slower.txt says why of every row that became slower than when it was kept last. A row is
stale where what its variant is made of (sources.py), or the version of its library, is not what it was
measured with: --stale lists them, and --check fails of those of the main GPU whose variant benches/stale.txt
does not name.
"""

import argparse
import difflib
import re
import sys
from pathlib import Path

import accuracy
import results
from comparisons import HEADLINES, ROOT, Checkout, Line, fastest, main_gpu, read, time
from markdown import filled, put, table
from results import name
from slower import EXCUSES as SLOWER, slower
from stale import EXCUSES as STALE, stale, unexcused
from summaries import (
    FAMILIES, INTRODUCTION, against_libraries, behind, family_table, mean, of_readme, small, three_products, times,
)  # fmt: skip

MARKERS = "<!-- results: begin -->", "<!-- results: end -->"
ERROR_MARKERS = "<!-- errors: begin -->", "<!-- errors: end -->"
DISASSEMBLY = "docs/disassembly.md"
MATH_MARKERS = "<!-- math: begin -->", "<!-- math: end -->"
STATE_MARKERS = "<!-- state: begin -->", "<!-- state: end -->"
SMALL_MARKERS = "<!-- small: begin -->", "<!-- small: end -->"
PRODUCT_MARKERS = "<!-- products: begin -->", "<!-- products: end -->"
FAMILY_MARKERS = "<!-- family: begin -->", "<!-- family: end -->"
NOTHING = "no results committed yet"


def mean_of(values, layers):
    """The mean as text, and over how many layers where it is over fewer."""
    values = [v for v in values if v is not None]
    text = times(mean(values))
    return text if len(values) in (0, layers) else f"{text} of {len(values)}"


COLUMNS = [
    "best handwritten", "time", "with packing", "in order", "cuBLAS", "cuDNN", "cuDNN that fails", "floor",
    "x floor", "x split floor", "vs cuDNN", "measured",
]  # fmt: skip


def columns(line):
    row = line.best
    return [
        f"`{name(row)}`" if row else "-",
        line.time(row),
        line.with_packing(row),
        line.in_order(row),
        line.time(line.cublas),
        line.time(line.cudnn),
        failing(line.failing_plan),
        floor(line.floor, line.floor_by),
        times(line.over_floor()),
        times(line.over_split_floor()),
        times(line.speedup(line.cudnn)),
        line.run,
    ]


def floor(us, by):
    return time(us) + (f", {by}" if us and by else "")


def failing(found):
    """A faster plan of cuDNN's that runs and is no baseline, and why it is none."""
    return f"{time(found[0])}, {found[1]}: {found[2]}" if found else "-"


LEGEND = """\
Times are medians of calls on buffers that rotate beyond the L2, each variant checked in the same run; in brackets
where a tenth of the samples are faster and slower; "of 5" says how many samples, where they are fewer
than 30, and of a mean how many layers, where some have nothing to be compared with.
Filters are packed before the clock starts, those marked ¶ too; "with packing" is a call that packs its filter first.
"In order" is a call whose kernels wait for those ahead of them to end: most handwritten kernels otherwise begin
early, and few of the libraries'. vs is how many times faster than that library at its best: of cuDNN the fastest plan that
passed, marked † where it is a transform (Winograd, FFT). A faster one that runs but fails its check, or cannot be part of a
CUDA graph, stands beside it with the reason, and nothing is compared with it. The floor is what the bandwidth or the
arithmetic measured in the same run allow, and says which: of fp32 it counts FMAs, and the split floor three products on
tensor cores for each, so that what multiplies there, and transforms, may be below the other. The rate of tensor cores is
that of cuBLAS's product of 8192 x 8192 x 8192, over which a layer may be by a few percent. ‡ marks what is stale: the code that it
measured, or the library's version, is another now. § marks a time of cuDNN's that is not its best ([the list](benches/cudnn-open.txt)):
it is compared with what it took in another run, or through PyTorch, where that was faster ([its fastest times](benches/cudnn-best.jsonl)).
Measured is the day of a row's report and the hash of csrc that it ran."""


def places(lines):
    """What the lines were measured on, and by which code."""
    texts = []
    for report in {line.report["file"]: line.report for line in lines}.values():
        e = report["environment"]
        cudnn = e["libraries"].get("cuDNN", "none")
        cublas = e["libraries"].get("cuBLAS", "none")
        texts.append(
            f"{e['gpu']}, driver {e['driver']}, cuDNN {cudnn}, cuBLAS {cublas}, "
            f"{e['date'].split('T')[0]}, csrc `{e['csrc']}`"
        )
    return sorted(set(texts))


def headline(lines):
    if not lines:
        return NOTHING.capitalize() + "."
    chip = lines[0].chip
    shown = [line for line in lines if line.suite in HEADLINES and line.kind == "f32 NCHW"]
    parts = [INTRODUCTION.format(chip=chip), against_libraries(lines), behind(lines)]
    if shown:
        kinds = [
            (f"Handwritten variants on FMAs, on an {chip}:", "x floor", lambda line: line.by_fma, Line.over_floor),
            (
                f"On tensor cores of an {chip}, each product of fp32 as three:",
                "x split floor",
                lambda line: line.by_tensor_cores,
                Line.over_split_floor,
            ),
        ]
        for title, against, chosen, over in kinds:
            header = ["suite", "layer", "problem", "variant", "time", "with packing", "in order"]
            header += [against, "vs cuDNN", "measured"]
            rows = [
                [
                    line.suite,
                    line.layer,
                    f"`{line.problem}`",
                    f"`{name(row)}`",
                    line.spread(row),
                    line.with_packing(row),
                    line.in_order(row),
                    times(over(line, row)),
                    times(line.speedup(line.cudnn, row)),
                    line.run,
                ]
                for line in shown
                if (row := chosen(line))
            ]
            if rows:
                parts += [title, table(*filled(header, rows), 4)]
        header = ["suite", "layer", "problem", "cuBLAS", "cuDNN", "floor", "split floor", "cuDNN's plan", "cuDNN that fails"]
        rows = [
            [
                line.suite,
                line.layer,
                f"`{line.problem}`",
                line.spread(line.cublas),
                line.spread(line.cudnn),
                floor(line.floor, line.floor_by),
                time(line.split_floor),
                plan(line.cudnn),
                failing(line.failing_plan),
            ]
            for line in shown
        ]
        parts += ["The libraries there, and the floors:", table(*filled(header, rows), 3)]
    parts.append(
        LEGEND + " Every layer, type and layout is\nin [docs/results.md](docs/results.md), the reports in"
        " benches/results. The runs:"
    )
    parts.append("\n".join(f"- {text}" for text in places([line for line in lines if line in shown or of_readme(line)])))
    return "\n\n".join(parts)


def plan(row):
    """The name of a library's plan, without how it was found."""
    return row["plan"].split(", cuDNN")[0].split(";")[0] if row and row.get("plan") else "-"


def speeds(lines):
    """How many times as fast as fp32 the fastest variant is, libraries included, by math: means over the
    same layers of VGG-16 and ResNet-50 in NHWC."""
    found = {}
    for line in lines:
        best = fastest(row for row in (line.best, line.cublas, line.cudnn) if row)
        if best and line.suite in ("vgg16", "resnet50") and " NHWC" in line.kind:
            at = line.suite, line.layer
            found.setdefault(line.math, {}).setdefault(at, best["median_us"])
    plain = found.get("fp32", {})
    return {
        math: mean(plain[at] / us for at, us in times.items() if at in plain)
        for math, times in found.items()
    }


def maths(lines, errors):
    """The guide's table: what each math costs in accuracy, and what it gains."""
    if not errors:
        return accuracy.NOTHING
    gains = speeds(lines)
    header, rows = accuracy.maths(errors[1])
    return table([*header, "speed"], [[*row, times(gains.get(row[0]))] for row in rows], 1)


def summary(lines):
    """Geometric means per suite and kind of element."""
    groups = {}
    for line in lines:
        groups.setdefault((line.suite, line.kind), []).append(line)
    header = ["suite", "elements", "layers", "x floor", "x split floor", "vs cuBLAS", "vs cuDNN", "measured"]
    rows = [
        [
            suite,
            kind,
            str(len(group)),
            mean_of((line.over_floor() for line in group), len(group)),
            mean_of((line.over_split_floor() for line in group), len(group)),
            mean_of((line.speedup(line.cublas) for line in group), len(group)),
            mean_of((line.speedup(line.cudnn) for line in group), len(group)),
            ", ".join(sorted({line.run for line in group})) + stale_share(group),
        ]
        for (suite, kind), group in groups.items()
    ]
    return table(*filled(header, rows), 2)


def stale_share(lines):
    """Of how many of its lines something is stale."""
    count = sum(any(map(line.why_stale, line.displayed())) for line in lines)
    return f", {count} ‡" if count else ""


def document(lines):
    written = "Written by `scripts/tables.py` from the reports in benches/results."
    if not lines:
        return f"# Results\n\n{written}\n\n{NOTHING.capitalize()}.\n"
    parts = [
        f"# Results on an {lines[0].chip}\n\n{written}\n" + LEGEND.replace("(benches/", "(../benches/"),
        "## Summary\n\nBest handwritten variant per layer, geometric means:",
        summary(lines),
    ]
    groups = {}
    for line in lines:
        groups.setdefault((line.suite, line.kind), []).append(line)
    for (suite, kind), group in groups.items():
        parts.append(f"## {suite}, {kind}")
        files = sorted({line.report["file"] for line in group})
        links = ", ".join(f"[{file}](../benches/results/{file})" for file in files)
        parts.append("\n".join(f"- {text}" for text in places(group)) + f"\n- {links}")
        header = ["layer", "problem", *COLUMNS]
        rows = [[line.layer or "-", f"`{line.problem}`", *columns(line)] for line in group]
        parts.append(table(*filled(header, rows), 3))
        failed = [f"- `{line.problem}`: {', '.join(line.failed)}" for line in group if line.failed]
        if failed:
            parts.append("Failed their check or stopped with an error:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def by_chip(measured, lines):
    """What was measured on other GPUs than these lines', by the names of their chips."""
    found = {}
    for line in measured:
        if lines and line.gpu != lines[0].gpu:
            found.setdefault(line.chip, []).append(line)
    return found


def excuses(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


def disassembly(text, csrc):
    """The document of sass.py, which says of which csrc it is, with a word on whether that is this one."""
    of = re.search(r"from csrc `(\w{16})`", text)
    stale = "" if of and of[1] == csrc else f"‡ Stale: csrc is `{csrc}` now."
    return put(DISASSEMBLY, text, STATE_MARKERS, stale or "Of csrc as it is.")


def chapters(root, lines, rows):
    """The chapters of docs/kernels that have tables, by their paths."""
    found = {}
    for name in ("small", *FAMILIES):
        path = root / f"docs/kernels/{name}.md"
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        if name in FAMILIES:
            text = put(path.name, text, FAMILY_MARKERS, family_table(lines, name, rows))
        else:
            text = put(path.name, text, SMALL_MARKERS, small(lines))
        if PRODUCT_MARKERS[0] in text:
            text = put(path.name, text, PRODUCT_MARKERS, three_products(lines))
        found[path] = text
    return found


def documents(root, measured, lines, checkout):
    """What all documents should say, by their paths."""
    readme, page, prose, guide, code = (
        root / name for name in ("README.md", "docs/results.md", "docs/accuracy.md", "docs/guide.md", DISASSEMBLY)
    )
    errors = accuracy.latest(root / results.FOLDER)
    read_text = lambda path: path.read_text(encoding="utf-8")
    section = accuracy.section(errors, checkout.rows)
    wanted = {
        readme: put(readme.name, read_text(readme), MARKERS, headline(lines)),
        page: document(lines),
        prose: put(prose.name, read_text(prose), ERROR_MARKERS, section),
        **chapters(root, lines, checkout.rows),
    }
    for chip, others in by_chip(measured, lines).items():
        wanted[page.with_stem(f"results-{chip.lower()}")] = document(others)
    if guide.exists():
        wanted[guide] = put(guide.name, read_text(guide), MATH_MARKERS, maths(lines, errors))
    if code.exists():
        wanted[code] = disassembly(read_text(code), checkout.csrc)
    if errors:
        wanted[prose.with_suffix(".svg")] = accuracy.drawing(errors[1])
    return wanted


def disagrees(shown, old, new):
    """Says how a document differs from what it should say."""
    diff = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    print(f"{shown} does not agree with benches/results and csrc; run scripts/tables.py")
    print("\n".join(list(diff)[:20]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument("--stale", action="store_true", help="list the displayed rows that are stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository (this one)")
    args = parser.parse_args()
    folder = args.root / results.FOLDER
    checkout = Checkout()  # the code is that beside this script
    measured = read(folder, checkout)
    if args.stale:
        print("\n".join(text for _, text in stale(measured)))
        return
    lines = [line for line in measured if line.gpu == main_gpu(measured)]
    if not lines:
        print(NOTHING)
    wrong = False
    for path, text in documents(args.root, measured, lines, checkout).items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        shown = path.relative_to(args.root)
        if old != text and args.check:
            wrong = True
            disagrees(shown, old, text)
        elif old != text:
            path.write_text(text, encoding="utf-8")
            print(f"{shown} written")
    old_rows = list(stale(lines))
    shown = sum(len(line.displayed()) for line in lines)
    print(f"{len(old_rows)} of {shown} displayed rows of the main GPU are stale (--stale lists them, and others')")
    if args.check:
        problems = [*slower(folder, excuses(args.root / SLOWER)), *unexcused(old_rows, excuses(args.root / STALE))]
        wrong = wrong or bool(problems)
        print("\n".join(problems), end="\n" if problems else "")
    sys.exit(wrong)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(0)
