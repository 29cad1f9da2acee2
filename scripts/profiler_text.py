"""What a profiler counted, as text."""

import counters


def duration(us):
    value, unit = (us, "us") if us < 1e3 else (us / 1e3, "ms") if us < 1e6 else (us / 1e6, "s")
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"


def size(count):
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1e3 or unit == "GB":
            return f"{count:.3g} {unit}"
        count /= 1e3


def percent(value):
    return f"{value:.1f}"


def plain(value):
    return f"{value:.4g}"


# What is shown of a kernel, and how.
COLUMNS = [
    ("duration", "duration_us", duration), ("SM %", "sm_pct", percent),
    ("memory %", "memory_pct", percent), ("L1 %", "l1_pct", percent), ("L2 %", "l2_pct", percent),
    ("DRAM %", "dram_pct", percent), ("read", "dram_read_bytes", size),
    ("written", "dram_write_bytes", size), ("warps %", "occupancy_pct", percent),
    ("of %", "theoretical_occupancy_pct", percent), ("registers", "registers", plain),
    ("shared", "shared_bytes", size), ("issue %", "issue_pct", percent), ("FMA %", "fma_pct", percent),
    ("ALU %", "alu_pct", percent), ("LSU %", "lsu_pct", percent), ("tensor %", "tensor_pct", percent),
    ("threads", "active_threads", percent), ("sectors", "load_sectors", percent),
    ("conflicts %", "bank_conflict_pct", percent),
]  # fmt: skip
# What two variants are compared by, what the reports have first.
COMPARED = [
    ("SM %", "sm_pct", percent), ("memory %", "memory_pct", percent), ("L1 %", "l1_pct", percent),
    ("duration", "duration_us", duration), ("L2 %", "l2_pct", percent),
    ("DRAM %", "dram_pct", percent), ("DRAM read", "dram_read_bytes", size),
    ("DRAM written", "dram_write_bytes", size), ("warps %", "occupancy_pct", percent),
    ("issue slots %", "issue_pct", percent), ("FMA %", "fma_pct", percent),
    ("instructions", "instructions", plain), ("threads active", "active_threads", percent),
]  # fmt: skip


def cell(values, field, show):
    return show(values[field]) if field in values else "n/a"


def aligned(rows, left=1):
    """Columns as wide as their widest cell, the first `left` of them to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    text = [
        "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths)))
        for row in rows
    ]
    return "\n".join("  " + line.rstrip() for line in text)


def summary_of(events):
    """What a timeline adds up to, per kind of work."""
    work = [event for event in events if event["ph"] == "X"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    groups = {}
    for event in work:
        groups.setdefault((lanes[event["tid"]], event["name"]), []).append(event["dur"])
    rows = [["", "", "times", "mean", "all"]]
    for (lane, name), times in groups.items():
        rows.append([lane, name, str(len(times)), duration(sum(times) / len(times)),
                     duration(sum(times))])
    return rows


def shown(result):
    """The counters of a call, a column per kernel."""
    rows = result["rows"]
    table = [["kernel", *(row["kernel"] for row in rows)],
             ["launches", *(str(row["launches"]) for row in rows)]]
    for label, field, show in COLUMNS:
        table.append([label, *(cell(row["counters"], field, show) for row in rows)])
    stalls = [(row["counters"].get("stall"), row["counters"].get("stall_pct")) for row in rows]
    table.append(["waits for", *(f"{name} {pct:.0f} %" if name else "n/a" for name, pct in stalls)])
    parts = [aligned(table)]
    for label, field in ("waiting", "hot_lines"), ("idle threads", "divergent_lines"):
        lines = {place: value for row in rows for place, value in row[field].items()}
        told = ", ".join(f"{place} {value} %" for place, value in lines.items())
        parts.append(f"  {label} by line: {told or 'n/a'}")
    return "\n".join(parts)


def compared(one, two):
    """Two calls side by side."""
    sums = [counters.whole(result["rows"]) for result in (one, two)]
    rows = [["", one["asked"], two["asked"], "change"]]
    for label, field, show in COMPARED:
        change = "n/a"
        if all(field in values for values in sums) and sums[0][field]:
            change = f"{100 * (sums[1][field] / sums[0][field] - 1):+.1f} %"
        rows.append([label, *(cell(values, field, show) for values in sums), change])
    return aligned(rows)
