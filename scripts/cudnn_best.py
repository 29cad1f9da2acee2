#!/usr/bin/env python3
"""Keeps the fastest time of cuDNN's ever seen of each problem, benches/cudnn-best.jsonl, and holds the
committed results against it: a baseline must not weaken unseen.

    cudnn_best.py FILE...   adds what is faster in these reports of `compare` or `study`, in either
                            form
    cudnn_best.py --check   the exit status says whether cuDNN's times that the tables show stand up

A line of the file is a problem's fastest time on a device in reports: of a plan that passed the check, and that
no report found wrong since. Beside them stand anchors: times that PyTorch took with every plan tried. An anchor's plan is
not known and was not checked. Where it is not comparable, the line says why.

The check looks at times over 20 us. It fails where cuDNN's is more than 1.1 times slower than the file's;
than a batch of 1000 images or more, scaled; than its own fp32 plan, under TF32; and where the search of
its plans was not complete; and where a committed report has a faster time than the file.
benches/cudnn-open.txt lists what fails and is to be measured again; a line of
it that no longer fails is an error as well. And it fails where a search of benches/cudnn-plans.jsonl, which later ones go
by, has a winner over 1.1 times slower than the fastest of a report.
"""

import argparse
import json
import re
import sys
from pathlib import Path

import comparisons
import results

ROOT = Path(__file__).resolve().parent.parent
BEST, OPEN = ROOT / comparisons.BEST, ROOT / comparisons.OPEN
PLANS = ROOT / "benches/cudnn-plans.jsonl"
# How much slower cuDNN may be, and from how many microseconds on that is looked at.
SLOWER, LEAST_US = 1.1, 20.0
# From this many images on a time grows with them.
MANY_IMAGES = 1000
# The source of times that were taken through PyTorch, which no report has.
ANCHORS = "anchors"
REMARK = re.compile(r"the fastest transform is (.+?) at ([\d.]+) us")
DROPPED = re.compile(r"dropped (.+?) at ([\d.]+) us: ([^;]*)")
NO_TIME = re.compile(r"\d+ excluded \(no time left[^)]*\)")


def name(plan):
    """A plan's name, of a note that goes on with its version and how it was found."""
    return plan.split(", cuDNN")[0] if plan else None


def rows(report):
    """The rows of a report that compares on a GPU; none of other files."""
    if not isinstance(report, dict) or not (report.get("environment") or {}).get("gpu"):
        return []
    all_rows = report.get("layers") or report.get("rows") or []
    return [row for row in all_rows if "variant" in row and row.get("cold", True)]


def dropped(report):
    """The plans that were fast and wrong, by problem: (problem, plan) and the time."""
    for row in rows(report):
        for text in (row.get("plan"), row.get("reason")):
            for plan, us, _ in DROPPED.findall(text or ""):
                yield (row["problem"], plan), float(us)
        if row.get("cudnn_any_us"):
            yield (row["problem"], row["cudnn_any_plan"]), row["cudnn_any_us"]


def report_times(report, source):
    """cuDNN's times in a report."""
    environment = report["environment"]
    common = {
        "cudnn": environment["libraries"].get("cuDNN"),
        "device": environment["gpu"],
        "date": environment["date"],
        "source": source,
    }

    def line(row, us, plan):
        return {"problem": row["problem"], "us": round(us, 3), "plan": plan, **common}

    for row in rows(report):
        if row.get("cudnn_us") and row.get("cudnn_plan"):
            yield line(row, row["cudnn_us"], name(row["cudnn_plan"]))
        if comparisons.family(row) != "cudnn" or row["status"] != "passed" or row.get("how") != "graph":
            continue
        if row["median_us"] and row.get("plan"):
            yield line(row, row["median_us"], name(row["plan"]))
            for plan, us in REMARK.findall(row["plan"]):
                yield line(row, float(us), plan)


def key(line):
    return line["device"], line["problem"], line["source"] == ANCHORS


def best_of(lines, wrong):
    """The fastest of each problem, without plans that were found wrong later: on that date."""
    best = {}
    for line in lines:
        if (line["date"] or "") < wrong.get((line["problem"], line["plan"]), ""):
            continue
        kept = best.setdefault(key(line), line)
        if line["us"] < kept["us"]:
            best[key(line)] = line
    return [best[at] for at in sorted(best)]


def load(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def merged(lines, files):
    """The best of these lines and of the times of files."""
    lines, wrong = list(lines), {}
    for file in files:
        content = results.read(file)
        if rows(content):
            lines += report_times(content, file.stem)
            date = content["environment"]["date"]
            wrong.update({plan: max(date, wrong.get(plan, "")) for plan, _ in dropped(content)})
    return best_of(lines, wrong)


def add(path, files):
    """Adds the times of files to the best ones."""
    lines = merged(load(path) if path.exists() else [], files)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


class Best:
    """The fastest times, and those of plans that are wrong."""

    def __init__(self, lines, wrong):
        self.reports = {(b["device"], b["problem"]): b for b in lines if b["source"] != ANCHORS}
        comparable = [b for b in lines if b["source"] == ANCHORS and "not_comparable" not in b]
        self.anchors = {(b["device"], b["problem"]): b["us"] for b in comparable}
        self.wrong = wrong

    def us(self, device, problem):
        """The fastest time of a report."""
        line = self.reports.get((device, problem))
        return line and line["us"]

    def anchor(self, device, problem):
        """The anchor's time, unless a plan that is as fast was found wrong: it may have been that."""
        us = self.anchors.get((device, problem))
        wrong = (fast for (of, _), fast in self.wrong.items() if of == problem)
        return None if us and any(fast <= us * SLOWER for fast in wrong) else us

    def fewer(self, device, problem):
        """The times of the same problem with fewer images, but many, scaled: (images, time)."""
        images = re.search(r"mb(\d+)", problem)
        for (of, other), line in self.reports.items():
            few = int(re.search(r"mb(\d+)", other)[1])
            if of == device and MANY_IMAGES <= few < int(images[1]):
                if other.replace(f"mb{few}", images[0], 1) == problem:
                    yield few, line["us"] * int(images[1]) / few


def faults(device, row, best):
    """What is wrong with a time of cuDNN's that the tables show."""
    us, problem = row["median_us"], row["problem"]
    search, left = row.get("cudnn_search"), NO_TIME.search(row.get("plan") or "")
    if search not in (None, "complete"):
        yield f"the search was not complete: {search}"
    elif left:
        yield f"the search was not complete: {left[0]}"
    if us <= LEAST_US:
        return
    limits = [
        (best.us(device, problem), "in a report"),
        (best.anchor(device, problem), "in the anchors"),
        *((scaled, f"scaled from {few} images") for few, scaled in best.fewer(device, problem)),
    ]
    if problem.endswith("+math=tf32"):
        limits.append((best.us(device, problem.removesuffix("+math=tf32")), "with its fp32 plan"))
    for limit, what in limits:
        if limit and us > limit * SLOWER:
            yield f"{us:.1f} us, and {limit:.1f} {what}"


def failing(folder, lines):
    """The problems whose times do not stand up: by device and problem, why."""
    wrong = {}
    for path in results.files(folder):
        for plan, us in dropped(results.read(path)):
            wrong[plan] = min(us, wrong.get(plan, us))
    best, found = Best(lines, wrong), {}
    for line in comparisons.read(folder, comparisons.Checkout()):
        if line.cudnn and line.cudnn.get("cold", True):
            why = list(faults(line.gpu, line.cudnn, best))
            if why:
                found[line.at] = "; ".join(why)
    return found


def weak_searches(searches, lines):
    """Kept searches whose winner is slower than it may be."""
    best = {(line["device"], line["problem"]): line["us"] for line in lines if line["source"] != ANCHORS}
    for search in searches:
        problem, _, place = search["key"].partition(" on ")
        device = place.partition(" by ")[0]
        us = min(search[of]["us"] for of in ("exact", "transform") if of in search)
        limit = best.get((device, problem), us) * SLOWER
        if us > max(limit, LEAST_US):
            yield (f"{search['key']}: the winner takes {us:.1f} us in {PLANS.name}, over {limit:.1f}; delete its line, so that"
                   " `record` searches in full")


def check(folder, lines, known):
    """What must not be: problems that fail and are not listed, and the other way round; a report whose
    times were not added."""
    found = failing(folder, lines)
    errors = [f"{at}: cuDNN's time does not stand up: {why}" for at, why in found.items() if at not in known]
    errors += [f"{at}: no longer fails; delete its line of {OPEN.name}" for at in known if at not in found]
    if merged(lines, results.files(folder)) != lines:
        command = f"{Path(__file__).name} {results.FOLDER}/*.jsonl"
        errors.append(f"{BEST.name} lacks times of the reports: {command}")
    return errors


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.check == bool(arguments.files):
        parser.error("either files or --check")
    if arguments.files:
        add(BEST, arguments.files)
        return
    errors = check(ROOT / results.FOLDER, load(BEST), results.listed(OPEN))
    errors += weak_searches(load(PLANS), load(BEST))
    print("\n".join(errors), file=sys.stderr, end="\n" if errors else "")
    sys.exit(bool(errors))


if __name__ == "__main__":
    main()
