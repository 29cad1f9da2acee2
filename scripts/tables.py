#!/usr/bin/env python3
"""Turns the reports in benches/results into tables: the README's, between its two markers, docs/results.md
with every suite, and docs/accuracy.md with the errors (accuracy.py). The reports are what `convforge
report --keep` makes of those of `compare`, `sweep` and `study`.

With --check nothing is written; the exit status says whether the tables agree with the reports.
"""

import argparse
import difflib
import math
import re
import sys
from pathlib import Path

import accuracy
import results

ROOT = Path(__file__).resolve().parent.parent
MARKERS = "<!-- results: begin -->", "<!-- results: end -->"
ERROR_MARKERS = "<!-- errors: begin -->", "<!-- errors: end -->"
NOTHING = "no results committed yet"
# Suites whose layers the README shows one by one; of the others it shows means.
HEADLINES = ["report-86", "report-70"]
# The kinds of element that the README sums up.
SUMMARY_KINDS = ("f32 NCHW", "f16 NCHW", "f16 NHWC")
ORDER = ["report-86", "report-70", "report-vgg", "report-gemv", "first", "vgg16", "resnet50", "batch1"]
BASELINES = {"cublas", "cudnn", "cpu"}


class Line:
    """One problem on one GPU: the best handwritten variant and what it stands beside."""

    def __init__(self, report, rows):
        first = rows[0]
        self.report = report
        self.suite, self.layer = first["suite"] or "others", first["layer"]
        self.problem, self.math = first["problem"], first["math"]
        self.gpu = report["environment"]["gpu"]
        self.run = run(report["environment"])
        self.images = int(re.search(r"mb(\d+)", self.problem)[1])
        words = self.problem.split("+")[1:]
        storage = next((w for w in words if w in ("f16", "bf16")), "f32")
        layout = "NHWC" if "nhwc" in words else "NCHW"
        same = {"f32": "fp32"}.get(storage, storage) == self.math
        self.kind = f"{storage} {layout}" + ("" if same else f", {self.math} math")
        self.kind += "" if first["cold"] else ", warm"
        timed = [r for r in rows if r["status"] == "passed" and r["median_us"] is not None]
        self.floor = first["floor_us"]
        self.failed = sorted(name(r) for r in rows if r["status"] == "failed")
        # What a pick chose is there by itself, too.
        variants = [r for r in timed if not r.get("chose")]
        self.best = fastest(r for r in variants if family(r) not in BASELINES)
        self.cublas = fastest(r for r in timed if family(r) == "cublas")
        self.cudnn = fastest(r for r in timed if family(r) == "cudnn")

    def speedup(self, other):
        if self.best and other:
            return other["median_us"] / self.best["median_us"]
        return None

    def cudnn_time(self):
        """cuDNN's time, marked where it is a transform's."""
        mark = " †" if self.cudnn and self.cudnn.get("arithmetic") == "transform" else ""
        return time(self.cudnn and self.cudnn["median_us"]) + mark

    def over_floor(self):
        if self.best and self.floor:
            return self.best["median_us"] / self.floor
        return None


def run(environment):
    """The day of a report and the code that it measured: "2026-11-22 `725cc9a8`"."""
    return f"{environment['date'].split('T')[0]} `{environment['csrc'][:8]}`"


def family(row):
    return row["variant"].split("_")[0]


def name(row):
    return row["variant"] + (f":{row['config']}" if row["config"] else "")


def fastest(rows):
    return min(rows, key=lambda r: (r["median_us"], name(r)), default=None)


def suite_key(suite):
    return (ORDER.index(suite) if suite in ORDER else len(ORDER), suite)


def read(folder):
    """The lines of all reports of GPUs, a study's layers among them; of a problem measured twice,
    those of the later report. A profile has counters and no times."""
    found = {}
    for path in results.files(folder):
        try:
            report = results.read(path)
            if "tool" in report or report.get("view") == "sweep":
                continue
            environment = report["environment"]
            rows = report["layers"] if "layers" in report else report["rows"]
        except (ValueError, KeyError, TypeError) as why:
            sys.exit(f"{path.name} is no file of `convforge report --keep`: {why!r}")
        if not environment["gpu"]:
            continue
        report["file"] = path.name
        problems = {}
        for row in rows:
            problems.setdefault((row["suite"], row["layer"], row["problem"]), []).append(row)
        for order, (key, rows) in enumerate(problems.items()):
            at = (environment["gpu"], rows[0]["cold"], *key)
            stamp = (environment["date"], path.name)
            if at not in found or found[at][0] < stamp:
                found[at] = (stamp, order, Line(report, rows))
    lines = sorted(
        found.values(),
        key=lambda f: (suite_key(f[2].suite), f[2].gpu, f[2].kind, f[2].images, f[1]),
    )
    return [line for _, _, line in lines]


def time(us):
    if us is None:
        return "-"
    value, unit = (us, "us") if us < 1e3 else (us / 1e3, "ms") if us < 1e6 else (us / 1e6, "s")
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def times(value):
    return "-" if value is None else f"{value:.2f}"


def mean(values):
    values = [v for v in values if v is not None]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def table(header, rows, left):
    """Markdown; the first `left` columns and the last one are text, the rest numbers."""
    last = len(header) - 1
    ruler = ["---" if i < left or i == last else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ruler, *rows])


COLUMNS = ["cuBLAS", "cuDNN", "floor", "x floor", "vs cuDNN", "measured"]


def numbers(line):
    return [
        time(line.cublas and line.cublas["median_us"]),
        line.cudnn_time(),
        time(line.floor),
        times(line.over_floor()),
        times(line.speedup(line.cudnn)),
        line.run,
    ]


def best(line):
    row = line.best
    return [f"`{name(row)}`", time(row["median_us"])] if row else ["-", "-"]


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
    shown = [line for line in lines if line.suite in HEADLINES and line.kind == "f32 NCHW"]
    rest = [line for line in lines if line not in shown and line.kind in SUMMARY_KINDS]
    parts = []
    if shown:
        header = ["suite", "layer", "problem", "best handwritten", "time", *COLUMNS]
        rows = [
            [line.suite, line.layer, f"`{line.problem}`", *best(line), *numbers(line)]
            for line in shown
        ]
        parts.append(table(header, rows, 4))
    if rest:
        parts.append("Best handwritten variant per layer, geometric means:")
        parts.append(summary(rest))
    parts.append(
        "Medians; vs is how many times faster than that library at its best: of cuDNN the fastest plan\n"
        "that passed, marked † where it is a transform (Winograd, FFT); measured is the day of a row's\n"
        "report and the hash of csrc that it ran. Every layer, type and layout is in\n"
        "[docs/results.md](docs/results.md), the reports in benches/results. The runs:"
    )
    parts.append("\n".join(f"- {text}" for text in places(lines)))
    return "\n\n".join(parts)


def summary(lines):
    """Geometric means per suite and kind of element."""
    groups = {}
    for line in lines:
        groups.setdefault((line.suite, line.kind, line.gpu), []).append(line)
    header = ["suite", "elements", "layers", "x floor", "vs cuBLAS", "vs cuDNN", "measured"]
    rows = [
        [
            suite,
            kind,
            str(len(group)),
            times(mean(line.over_floor() for line in group)),
            times(mean(line.speedup(line.cublas) for line in group)),
            times(mean(line.speedup(line.cudnn) for line in group)),
            ", ".join(sorted({line.run for line in group})),
        ]
        for (suite, kind, _), group in groups.items()
    ]
    return table(header, rows, 2)


def document(lines):
    head = "# Results\n\nWritten by `scripts/tables.py` from the reports in benches/results."
    if not lines:
        return f"{head}\n\n{NOTHING.capitalize()}.\n"
    parts = [
        head + " Medians\nof calls on buffers that rotate beyond the L2, each variant checked in "
        "the same run. vs cuDNN\nis how many times faster the best handwritten variant is than the "
        "fastest plan of cuDNN that\npassed; † marks one that is a transform (Winograd, FFT). Floor "
        "is what the bandwidth or the\narithmetic measured in the same run allow at least; measured is the "
        "day of a row's report\nand the hash of csrc that it ran.",
        "## Summary\n\nBest handwritten variant per layer, geometric means:",
        summary(lines),
    ]
    groups = {}
    for line in lines:
        groups.setdefault((line.suite, line.kind, line.gpu), []).append(line)
    for (suite, kind, _), group in groups.items():
        parts.append(f"## {suite}, {kind}")
        files = sorted({line.report["file"] for line in group})
        links = ", ".join(f"[{file}](../benches/results/{file})" for file in files)
        parts.append("\n".join(f"- {text}" for text in places(group)) + f"\n- {links}")
        header = ["layer", "problem", "best handwritten", "time", *COLUMNS]
        rows = [
            [line.layer or "-", f"`{line.problem}`", *best(line), *numbers(line)] for line in group
        ]
        parts.append(table(header, rows, 3))
        failed = [f"- `{line.problem}`: {', '.join(line.failed)}" for line in group if line.failed]
        if failed:
            parts.append("Failed their check or stopped with an error:\n\n" + "\n".join(failed))
    return "\n\n".join(parts) + "\n"


def put(name, old, markers, text):
    """The text of a file with what stands between its two markers replaced."""
    begin, end = markers
    if old.count(begin) != 1 or old.count(end) != 1:
        sys.exit(f"{name} must have {begin} and {end} once each")
    before, rest = old.split(begin)
    after = rest.split(end)[1]
    return f"{before}{begin}\n{text}\n{end}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository (this one)")
    args = parser.parse_args()
    folder = args.root / results.FOLDER
    lines = read(folder)
    readme, page = args.root / "README.md", args.root / "docs/results.md"
    errors = accuracy.latest(folder)
    prose = args.root / "docs/accuracy.md"
    wanted = {
        readme: put(
            readme.name, readme.read_text(encoding="utf-8"), MARKERS, headline(lines)
        ),
        page: document(lines),
        prose: put(
            prose.name, prose.read_text(encoding="utf-8"), ERROR_MARKERS, accuracy.section(errors)
        ),
    }
    if errors:
        wanted[prose.with_suffix(".svg")] = accuracy.drawing(errors[1])
    if not lines:
        print(NOTHING)
    stale = False
    for path, text in wanted.items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old == text:
            continue
        shown = path.relative_to(args.root)
        if args.check:
            stale = True
            diff = difflib.unified_diff(old.splitlines(), text.splitlines(), lineterm="", n=0)
            print(f"{shown} does not agree with benches/results; run scripts/tables.py")
            print("\n".join(list(diff)[:20]))
        else:
            path.write_text(text, encoding="utf-8")
            print(f"{shown} written")
    sys.exit(stale)


if __name__ == "__main__":
    main()
