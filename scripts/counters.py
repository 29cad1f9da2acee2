"""What Nsight Compute counted, as the fields of the study's `Counters`
(crates/tools/src/study/profile.rs), out of the CSV of its raw and its source page."""

import csv
import io
import re
from collections import Counter, defaultdict

STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")
PEAK = "pct_of_peak_sustained"

# Counters that are a share, or a mean: of several launches the mean weighted with their time. The
# first metric that the chip has is taken.
MEANS = {
    "sm_pct": [f"sm__throughput.avg.{PEAK}_elapsed"],
    "memory_pct": [f"gpu__compute_memory_throughput.avg.{PEAK}_elapsed"],
    "l1_pct": [f"l1tex__throughput.avg.{PEAK}_active"],
    "l2_pct": [f"lts__throughput.avg.{PEAK}_elapsed"],
    "dram_pct": [f"gpu__dram_throughput.avg.{PEAK}_elapsed", f"dram__throughput.avg.{PEAK}_elapsed"],
    "issue_pct": [f"smsp__issue_active.avg.{PEAK}_active"],
    "fma_pct": [f"sm__pipe_fma_cycles_active.avg.{PEAK}_active"],
    "alu_pct": [f"sm__pipe_alu_cycles_active.avg.{PEAK}_active"],
    "lsu_pct": [f"sm__inst_executed_pipe_lsu.avg.{PEAK}_active"],
    "tensor_pct": [
        f"sm__pipe_tensor_cycles_active.avg.{PEAK}_active",
        f"sm__pipe_tensor_op_hmma_cycles_active.avg.{PEAK}_active",
    ],
    "occupancy_pct": [f"sm__warps_active.avg.{PEAK}_active"],
    "theoretical_occupancy_pct": ["sm__maximum_warps_per_active_cycle_pct"],
    "active_threads": ["smsp__thread_inst_executed_per_inst_executed.ratio"],
}
# What adds up over launches.
SUMS = {
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "instructions": "smsp__inst_executed.sum",
}
# What is the same for every launch; the most of several.
MOST = {
    "registers": ["launch__registers_per_thread"],
    "shared_bytes": [
        "launch__shared_mem_per_block_static",
        "launch__shared_mem_per_block_dynamic",
    ],
}
# One sum over another, and what a counter has beyond that: a factor.
LOADS = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
RATIOS = {
    "load_sectors": (LOADS.format("sectors"), LOADS.format("requests"), 1),
    "bank_conflict_pct": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
        100,
    ),
}
DURATION = "gpu__time_duration.sum"
# The reasons to wait come with their section, whatever the chip calls them.
SECTIONS = ["WarpStateStats", "SourceCounters"]
# To microseconds; everything else is asked for in base units.
SCALES = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "s": 1e6,
          "second": 1e6}

# Lines of source that are named, for each reason.
LINES = 5


def metrics():
    """The names to ask ncu for."""
    names = [DURATION, *SUMS.values()]
    for several in [*MEANS.values(), *MOST.values()]:
        names += several
    for upper, lower, _ in RATIOS.values():
        names += [upper, lower]
    return names


def number(text):
    """A number as ncu prints it, 1,234.5; none for n/a or nothing."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def short_name(kernel):
    """`fused` of `void (anonymous namespace)::fused<float, 0>(cf_problem, const float *)`."""
    text = kernel.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    text = re.split(r"[<(]", text.removeprefix("void "), maxsplit=1)[0]
    return text.split("::")[-1].strip() or kernel


def launches(raw):
    """The launches on the raw page: their kernel and their metrics, times in microseconds. The first
    row has names, the second units."""
    rows = list(csv.reader(io.StringIO(raw)))
    while rows and "Kernel Name" not in rows[0]:  # remarks of ncu's
        del rows[0]
    if len(rows) < 2:
        return []
    names, units = rows[:2]
    at = names.index("Kernel Name")
    found = []
    for row in rows[2:]:
        if len(row) <= at:
            continue
        values = {}
        for name, unit, text in zip(names, units, row):
            value = number(text)
            if value is not None:
                values[name] = value * SCALES.get(unit, 1)
        found.append((short_name(row[at]), values))
    return found


def mean(group, name):
    """Over launches, weighted with their time."""
    pairs = [(v[name], v.get(DURATION, 0)) for v in group if name in v]
    weight = sum(w for _, w in pairs)
    if not pairs:
        return None
    if weight == 0:
        return sum(v for v, _ in pairs) / len(pairs)
    return sum(v * w for v, w in pairs) / weight


def total(group, name):
    values = [v[name] for v in group if name in v]
    return sum(values) if values else None


def counters(group):
    """The fields of `Counters` for launches of one kernel; what ncu does not have is left out."""
    found = {"duration_us": total(group, DURATION)}
    for field, names in MEANS.items():
        known = (mean(group, name) for name in names)
        found[field] = next((value for value in known if value is not None), None)
    for field, name in SUMS.items():
        found[field] = total(group, name)
    for field, names in MOST.items():
        sums = [sum(v[n] for n in names if n in v) for v in group if names[0] in v]
        found[field] = max(sums, default=None)
    for field, (upper, lower, factor) in RATIOS.items():
        of = total(group, lower)
        if of:
            found[field] = factor * (total(group, upper) or 0) / of
    reasons = {}
    for name in {name for values in group for name in values}:
        match = STALL.fullmatch(name)
        # A warp that was selected issues; some versions have each reason twice.
        if match and match[1] != "selected" and not match[1].endswith("_not_issued"):
            reasons[match[1]] = mean(group, name)
    waiting = sum(reasons.values())
    if waiting > 0:
        found["stall"] = max(sorted(reasons), key=reasons.get)
        found["stall_pct"] = 100 * reasons[found["stall"]] / waiting
    return {field: value for field, value in found.items() if value is not None}


def lines(source):
    """Of each kernel, lines of source by what they cost in percent of all: `hot`, of the samples of
    waiting warps; `divergent`, of the places for threads in executed instructions, those left idle.

    The source page with CUDA and SASS has a part per file and function. A row with a line's number
    stands for all its instructions, which follow it in rows without one."""
    hot, divergent = defaultdict(Counter), defaultdict(Counter)
    file = kernel = columns = None
    for row in csv.reader(io.StringIO(source)):
        if len(row) < 2:
            continue
        if row[0] in ("File Path", "File Name"):
            file, columns = re.split(r"[/\\]", row[1])[-1], None
        elif row[0] in ("Function Name", "Kernel Name"):
            kernel, columns = short_name(row[1]), None
        elif row[0] == "Line No":
            columns = row
        elif columns and file and kernel and row[0].isdigit():
            value = lambda name: number(dict(zip(columns, row)).get(name, "")) or 0
            place = f"{file}:{row[0]}"
            hot[kernel][place] += value("Warp Stall Sampling (All Samples)") or value("# Samples")
            executed = 32 * value("Instructions Executed")
            divergent[kernel][""] += executed
            divergent[kernel][place] += executed - value("Thread Instructions Executed")
    found = {}
    for kernel in hot:
        places = divergent[kernel].pop("")
        found[kernel] = {
            "hot": shares(hot[kernel], sum(hot[kernel].values())),
            "divergent": shares(divergent[kernel], places),
        }
    return found


def shares(lines, whole):
    """The first few, in percent; nothing under a hundredth."""
    if whole <= 0:
        return {}
    percent = {place: round(100 * value / whole, 1) for place, value in lines.most_common(LINES)}
    return {place: value for place, value in percent.items() if value >= 1}


def rows(variant, problem, raw, source=""):
    """The study's rows of one call: a row per kernel, in the order of their first launches."""
    groups = {}
    for kernel, values in launches(raw):
        groups.setdefault(kernel, []).append(values)
    where = lines(source)
    return [
        {
            "variant": variant,
            "problem": problem,
            "kernel": kernel,
            "launches": len(group),
            "counters": counters(group),
            "hot_lines": where.get(kernel, {}).get("hot", {}),
            "divergent_lines": where.get(kernel, {}).get("divergent", {}),
        }
        for kernel, group in groups.items()
    ]


def whole(rows):
    """The counters of all kernels of a call together, as far as they add up or average."""
    values = [row["counters"] for row in rows]
    us = sum(v.get("duration_us", 0) for v in values)
    found = {"duration_us": us} if us else {}
    for field in MEANS:
        pairs = [(v[field], v.get("duration_us", 0)) for v in values if field in v]
        weight = sum(w for _, w in pairs)
        if weight:
            found[field] = sum(v * w for v, w in pairs) / weight
    for field in SUMS:
        known = [v[field] for v in values if field in v]
        if known:
            found[field] = sum(known)
    return found
