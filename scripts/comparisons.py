"""The committed comparisons: for each problem on each GPU the rows of its latest report, the fastest of
them, what they stand beside, and whether they were measured with the code of now.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import results
import sources
from results import name

ROOT = Path(__file__).resolve().parent.parent
# Suites whose layers the README shows one by one; of the others it shows means.
HEADLINES = ["report-86", "report-70"]
# Problems on which cuDNN's time does not stand up, and its fastest times in any run: scripts/cudnn_best.py keeps both.
OPEN, BEST = "benches/cudnn-open.txt", "benches/cudnn-best.jsonl"
ORDER = ["report-86", "report-70", "report-vgg", "report-gemv", "first", "stems", "vgg16", "resnet50", "batch1"]
BASELINES = {"cublas", "cudnn", "cpu"}
# The library of each baseline as reports call it, and the package that scripts/toolkit.lock pins.
LIBRARIES = {"cublas": ("cuBLAS", "nvidia-cublas"), "cudnn": ("cuDNN", "nvidia-cudnn-cu13")}
# Most images for which tables have times with packing, and those without early launch.
WITH_PACKING, IN_ORDER = 100, 16
ENOUGH_SAMPLES = 30


class Checkout:
    """What the code of now would be measured with."""

    def __init__(self, root=ROOT):
        self.csrc = sources.csrc(root)
        self.hashes = sources.hashes(root)
        self.rows = [name for name in self.hashes if name not in sources.BASELINES]
        self.on_tensor_cores = sources.on_tensor_cores(root)
        lock = (root / "scripts/toolkit.lock").read_text(encoding="utf-8")
        self.open = set(results.listed(root / OPEN))
        self.best_of_cudnn = best_of_cudnn(root / BEST)
        self.versions = dict(re.findall(r"^([\w-]+)==(\d+\.\d+\.\d+)", lock, re.MULTILINE))

    def has_library(self, family, environment):
        """Whether the library of these variants had the version of now."""
        library, package = LIBRARIES[family]
        return environment["libraries"].get(library) == self.versions[package]

    def why_stale(self, row, environment):
        """What of a row is not as it would be measured now; None where nothing is."""
        variant = (row.get("chose") or row["variant"]).split(":")[0]
        of = variant.split("_")[0]
        if of in LIBRARIES and not self.has_library(of, environment):
            library, package = LIBRARIES[of]
            return f"{library} {environment['libraries'].get(library)}, now {self.versions[package]}"
        if "source" not in row:
            same = environment["csrc"] == self.csrc
            return None if same else f"csrc {environment['csrc']}, now {self.csrc}"
        now = self.hashes.get(variant)
        return None if row["source"] == now else f"source {row['source']}, now {now}"


def best_of_cudnn(path):
    """cuDNN's fastest time in any run that is comparable, anchors among them, in microseconds, by GPU and problem."""
    best = {}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if "not_comparable" not in line:
            at = f"{line['device']}: {line['problem']}"
            best[at] = min(line["us"], best.get(at, line["us"]))
    return best


class Line:
    """One problem on one GPU: the best handwritten variant and what it stands beside."""

    def __init__(self, report, rows, checkout):
        first = rows[0]
        self.checkout = checkout
        self.report = report
        self.earlier = []  # what earlier reports have of it that no later one has, latest first
        self.suite, self.layer = first["suite"] or "others", first["layer"]
        self.problem, self.math = first["problem"], first["math"]
        self.gpu = report["environment"]["gpu"]
        self.at = f"{self.gpu}: {self.problem}"  # as benches/cudnn-open.txt has it
        self.chip = self.gpu.removeprefix("NVIDIA ").split()[0]
        self.run = run(report["environment"])
        self.images = int(re.search(r"mb(\d+)", self.problem)[1])
        self.channels = int(re.search(r"ic(\d+)", self.problem)[1])
        words = self.problem.split("+")[1:]
        storage = next((w for w in words if w in ("f16", "bf16")), "f32")
        layout = "NHWC" if "nhwc" in words else "NCHW"
        same = {"f32": "fp32"}.get(storage, storage) == self.math
        self.kind = f"{storage} {layout}" + ("" if same else f", {self.math} math")
        self.kind += "" if first["cold"] else ", warm"
        timed = [r for r in rows if r["status"] == "passed" and r["median_us"] is not None]
        self.floor, self.floor_by = first["floor_us"], first.get("floor_by")
        self.split_floor = first.get("floor_split_us")
        self.failed = sorted(name(r) for r in rows if r["status"] == "failed")
        # What a pick chose is there by itself, too.
        self.variants = [r for r in timed if not r.get("chose")]
        ours = [r for r in self.variants if family(r) not in BASELINES]
        self.best = fastest(ours)
        self.by_fma = fastest(r for r in ours if r["variant"] not in checkout.on_tensor_cores)
        self.by_tensor_cores = fastest(r for r in ours if r["variant"] in checkout.on_tensor_cores)
        self.cublas = fastest(r for r in timed if family(r) == "cublas")
        self.cudnn = fastest(r for r in timed if family(r) == "cudnn")
        self.failing_plan = min((found for r in rows if (found := failing_plan(r, self.cudnn))), default=None)

    def of(self, variant):
        """The fastest configuration of a variant."""
        return fastest(r for r in self.variants if r["variant"] == variant)

    def latest(self, variant):
        """By the latest report that has the variant with the code and cuDNN of now: how many times as fast as cuDNN
        its fastest configuration is there; None where there is none, or cuDNN's best is not known."""
        for line in [self, *self.earlier]:
            row = line.of(variant)
            if row and line.are_fresh(row) and self.checkout.has_library("cudnn", line.report["environment"]):
                # A row that stands by itself by now says what cuDNN took beside it.
                cudnn = line.at_best(line.cudnn["median_us"] if line.cudnn else row.get("cudnn_us"))
                return cudnn / row["median_us"] if cudnn else None
        return None

    def speedup(self, other, row=None):
        row, us = row or self.best, self.us(other)
        return us / row["median_us"] if row and us else None

    def us(self, row):
        """What is compared with: a row's time, but cuDNN's at its best."""
        us = row and row["median_us"]
        return self.at_best(us) if row and row is self.cudnn else us

    def at_best(self, us):
        """This time of cuDNN's, or where that is known not to be its best the fastest that it took in another run;
        None where none was faster."""
        if not us or not self.is_open():
            return us
        known = self.checkout.best_of_cudnn.get(self.at)
        # The file has times rounded, that of this report among them.
        return min(known, us) if known and known < us * 1.001 else None

    def is_open(self):
        """Whether cuDNN's time is known not to be its best."""
        return self.at in self.checkout.open

    def why_stale(self, row):
        return self.checkout.why_stale(row, self.report["environment"])

    def are_fresh(self, *rows):
        """Whether these, of which some may be missing, were measured with the code and libraries of now."""
        return not any(self.why_stale(row) for row in rows if row)

    def marks(self, row):
        """Behind a time: few samples, a stale row, a transform, a filter packed before the call."""
        few = f" of {row['samples']}" if row.get("samples", ENOUGH_SAMPLES) < ENOUGH_SAMPLES else ""
        transform = " †" if row.get("arithmetic") == "transform" else ""
        packed = " ¶" if family(row) in BASELINES and row.get("pack_us") is not None else ""
        weak = " §" if row is self.cudnn and self.is_open() else ""
        return few + transform + packed + weak + (" ‡" if self.why_stale(row) else "")

    def time(self, row):
        return time(row["median_us"]) + self.marks(row) if row else "-"

    def spread(self, row):
        """The median, and where a tenth of the samples are faster and slower."""
        if not row:
            return "-"
        if row.get("p10_us") is None or row.get("p90_us") is None:
            return self.time(row)
        low, high = (100 * (row[key] / row["median_us"] - 1) for key in ("p10_us", "p90_us"))
        return f"{time(row['median_us'])} ({low:+.0f} {high:+.0f} %){self.marks(row)}"

    def with_packing(self, row):
        """The time with the filter packed anew for each call. Packing into constant memory is timed by
        itself; in a report from before sources were noted, once."""
        if not row or self.images > WITH_PACKING or row.get("pack_us") and "source" not in row:
            return "-"
        return time(row.get("with_pack_us") or row["median_us"] + (row.get("pack_us") or 0))

    def in_order(self, row):
        """The time where no kernel begins before the one ahead of it has ended, if any does."""
        return time(row.get("serial_us")) if row and self.images <= IN_ORDER else "-"

    def over_floor(self, row=None):
        row = row or self.best
        return row["median_us"] / self.floor if row and self.floor else None

    def over_split_floor(self, row=None):
        row = row or self.best
        return row["median_us"] / self.split_floor if row and self.split_floor else None

    def displayed(self):
        """The rows that a table shows of it."""
        rows = [self.best, self.cublas, self.cudnn]
        if self.suite in HEADLINES and self.kind == "f32 NCHW":
            rows += [self.by_fma, self.by_tensor_cores]
        unique = {(row["variant"], row["config"]): row for row in rows if row}
        return list(unique.values())


def run(environment):
    """The day of a report and the code that it measured: "2026-11-22 `725cc9a8`"."""
    return f"{environment['date'].split('T')[0]} `{environment['csrc'][:8]}`"


def failing_plan(row, cudnn):
    """Of a row of cuDNN's the faster plan that is no baseline: its time, its name, and why; None where there is none."""
    us = row.get("cudnn_any_us")
    if not us or cudnn and us >= cudnn["median_us"]:
        return None
    why = row["cudnn_any_why"]
    if kind := re.match(r"(\w+) data: ", why):
        why = "rounds too far" if "rms" in why else f"wrong on {kind[1]} data"
    return us, row["cudnn_any_plan"], "no graph" if "graph" in why else why


def family(row):
    return row["variant"].split("_")[0]


def fastest(rows):
    return min(rows, key=lambda r: (r["median_us"], name(r)), default=None)


def suite_key(suite):
    return (ORDER.index(suite) if suite in ORDER else len(ORDER), suite)


def read(folder, checkout):
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
            found.setdefault(at, []).append((stamp, order, Line(report, rows, checkout)))
    latest = []
    for of_problem in found.values():
        (_, order, line), *earlier = sorted(of_problem, key=lambda one: one[0], reverse=True)
        line.earlier = [line for _, _, line in earlier]
        latest.append((order, line))
    most = main_gpu([line for _, line in latest])
    latest.sort(key=lambda f: (suite_key(f[1].suite), f[1].gpu != most, f[1].gpu, f[1].kind, f[1].images, f[0]))
    return [line for _, line in latest]


def main_gpu(lines):
    """The one that most of them were measured on."""
    gpus = Counter(line.gpu for line in lines)
    return gpus.most_common(1)[0][0] if gpus else None


def time(us):
    if us is None:
        return "-"
    value, unit = (us, "us") if us < 1e3 else (us / 1e3, "ms") if us < 1e6 else (us / 1e6, "s")
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"
