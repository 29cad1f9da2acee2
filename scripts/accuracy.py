"""How far variants are from f64, of the latest study that has errors: the tables of docs/accuracy.md
and the drawing beside it. `scripts/tables.py` writes them."""

import math
import re
from html import escape

import results
from results import name

DATA = ("normal", "positive", "wide")
NOTHING = "No errors are committed yet: `convforge study --parts errors --out FILE` measures them."
MATHS = ("fp32", "tf32", "f16", "bf16", "f16acc")
LOOP = "a sequential fp32 loop"
# Names that one cell of a table may have.
FEW = 3


def latest(folder):
    """The latest study of a GPU that has errors, with its file's name, or nothing."""
    found = []
    for path in results.files(folder):
        study = results.read(path)
        if study.get("errors") and study["environment"]["gpu"]:
            found.append((study["environment"]["date"], path.name, study))
    return max(found, key=lambda f: f[:2])[1:] if found else None


def terms(problem):
    """The products in a sum: C R S, of the problem's text."""
    number = lambda word, default: int((re.search(rf"{word}(\d+)", problem) or [0, default])[1])
    rows = number("kh", 1)
    return number("ic", 1) // number("^g", 1) * rows * number("kw", rows)


def plain(study):
    """Names of variants without the configuration, where no other has the same name."""
    names = {name(row): row["variant"] for row in study["errors"]}
    count = lambda variant: list(names.values()).count(variant)
    return {full: variant if count(variant) == 1 else full for full, variant in names.items()}


def place(row):
    """What stands over a column: the layer, whatever the math."""
    return " ".join(filter(None, (row["suite"], row["layer"]))), terms(row["problem"])


def curves(study, data):
    """Errors by layer, of the loop and then of every variant and math: (who, how, {layer: error})."""
    found = {}
    for row in study["errors"]:
        for errors in row["data"]:
            if errors["data"] != data:
                continue
            # Of the first math, fp32: the wide data of f16 is narrower.
            found.setdefault((LOOP, "fp32"), {}).setdefault(place(row), errors["sequential"])
            found.setdefault((name(row), row["math"]), {})[place(row)] = errors["stored"]
            if errors["rounded"]:
                how = f"{row['math']}, sums"
                found.setdefault((name(row), how), {})[place(row)] = errors["rounded"]
    return [(who, how, errors) for (who, how), errors in found.items()]


def short(value):
    """Three digits, or one behind the point."""
    return f"{value:.1f}" if value < 100 else f"{float(f'{value:.3g}'):.0f}"


def cell(error):
    """The largest error and the RMS, in 1e-8."""
    return f"{short(error['largest'] * 1e8)} ({short(error['rms'] * 1e8)})" if error else "-"


def places(study):
    """The layers that have errors, short sums first."""
    found = {place(row) for row in study["errors"] if row["data"]}
    return sorted(found, key=lambda at: (at[1], at[0]))


def table(study, data):
    """Markdown: a line for all that agree to the last digit shown, a column per layer; and below who
    agrees, where that is a long list."""
    columns = places(study)
    names = plain(study)
    lines = {}
    for who, how, errors in curves(study, data):
        cells = tuple(cell(errors.get(at)) for at in columns)
        lines.setdefault((how, cells), []).append(who if who == LOOP else f"`{names[who]}`")
    order = [how for math in MATHS for how in (math, f"{math}, sums")]
    groups = []
    for alike in lines.values():
        if len(alike) > FEW and alike not in groups:
            groups.append(alike)
    group = lambda alike: f"group {groups.index(alike) + 1}"
    header = ["variant", "math", *(f"{layer}, {count}" for layer, count in columns)]
    ruler = ["---", "---", *("---:" for _ in columns)]
    rows = [
        [", ".join(alike) if len(alike) <= FEW else group(alike), how, *cells]
        for (how, cells), alike in sorted(lines.items(), key=lambda line: order.index(line[0][0]))
    ]
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ruler, *rows])
    gap = "\n\n" if groups else ""
    return text + gap + "\n".join(f"- {group(alike)}: {', '.join(alike)}" for alike in groups)


def maths(study):
    """A line per math: RMS errors of the variants that do it, the least and the largest, of the shortest
    and of the longest sums."""
    ends = [places(study)[0], places(study)[-1]]
    header, cells = ["math"], {}
    for at in ends:
        for data in ("normal", "positive"):
            header.append(f"{data}, {at[1]} products")
            found = {}
            for who, how, errors in curves(study, data):
                if at in errors and who != LOOP:
                    found.setdefault(how, []).append(errors[at]["rms"])
            for math in MATHS:
                rms = found.get(math)
                cells.setdefault(math, []).append(spread(min(rms), max(rms)) if rms else "-")
    return header, [[math, *row] for math, row in cells.items() if set(row) != {"-"}]


def spread(low, high):
    """Two numbers, or one where they are the same to the digits shown."""
    low, high = f"{low:.1e}", f"{high:.1e}"
    return low if low == high else f"{low} to {high}"


def without(study, rows):
    """The rows of the table that have no errors in it, in the table's order."""
    measured = {row["variant"] for row in study["errors"] if row["data"]}
    return [row for row in rows if row not in measured]


def section(found, rows):
    """What stands between the markers of docs/accuracy.md, `rows` being the names of all handwritten ones."""
    if not found:
        return NOTHING
    file, study = found
    e = study["environment"]
    libraries = ", ".join(f"{name} {version}" for name, version in e["libraries"].items())
    parts = [
        f"{e['gpu']}, driver {e['driver']}, {libraries}, {e['date'].split('T')[0]}, csrc `{e['csrc']}`, "
        f"[{file}](../benches/results/{file}). Largest error and, in brackets, RMS, in 1e-8; over each\n"
        "column the layer and its C R S.",
        "![RMS error over C R S](accuracy.svg)",
    ]
    if lacking := without(study, rows):
        names = ", ".join(f"`{row}`" for row in lacking)
        parts.insert(1, f"{len(places(study))} layers. {len(lacking)} rows have no errors in it: {names}.")
    for data in DATA:
        parts += [f"### {data.capitalize()} data", table(study, data)]
    failed = [row for row in study["errors"] if row["status"] == "failed"]
    if failed:
        lines = [f"- `{name(row)}` on `{row['problem']}`" for row in failed]
        parts += ["Did not pass their check, and have no numbers:", "\n".join(lines)]
    return "\n\n".join(parts)


# The drawing: panels beside each other, one per kind of data.
PANEL, GAP, LEFT, TOP, HIGH = 250, 34, 58, 44, 330
COLOURS = {"fp32": "fp32", "tf32": "tf32", "f16": "f16", "bf16": "bf16"}
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #333a40 }
.grid { stroke: #dfe3e6 } .loop { stroke: #be1e2d; stroke-width: 2; fill: none }
.fp32 { --c: #2e6eb4 } .tf32 { --c: #c25f0a } .f16 { --c: #2b8255 } .bf16 { --c: #8c4cc2 }
circle { fill: var(--c); stroke: var(--c) } .sums { fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #c5ccd3 } .grid { stroke: #303840 } .loop { stroke: #ff6f7b }
.fp32 { --c: #69a7ee } .tf32 { --c: #f0954a } .f16 { --c: #5cc28e } .bf16 { --c: #bd8cf0 }
}
"""


def drawing(study):
    """RMS errors over C R S, both to a log scale: a point per variant, layer and math."""
    all_curves = {data: curves(study, data) for data in DATA}
    points = [
        (at[1], error["rms"])
        for found in all_curves.values()
        for _, _, errors in found
        for at, error in errors.items()
        if error["rms"] > 0
    ]
    counts = sorted({count for count, _ in points})
    west, east = counts[0] / 1.5, counts[-1] * 1.5
    south = math.floor(math.log10(min(rms for _, rms in points)))
    north = math.ceil(math.log10(max(rms for _, rms in points)))
    foot = TOP + HIGH

    def across(panel, count):
        share = math.log(count / west) / math.log(east / west)
        return LEFT + panel * (PANEL + GAP) + share * PANEL

    def up(rms):
        return foot - (math.log10(rms) - south) / (north - south) * HIGH

    parts = []
    for decade in range(south, north + 1):
        y = up(10.0**decade)
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">1e{decade}</text>')
        for panel in range(len(DATA)):
            x = across(panel, west)
            parts.append(f'<path class="grid" d="M{x:.1f} {y:.1f}h{PANEL}"/>')
    for panel, data in enumerate(DATA):
        middle = LEFT + panel * (PANEL + GAP) + PANEL / 2
        parts.append(f'<text x="{middle}" y="{TOP - 14}" text-anchor="middle">{data} data</text>')
        shown = -math.inf
        for count in counts:
            x = across(panel, count)
            if x - shown >= 34:
                shown = x
                parts.append(f'<text x="{x:.1f}" y="{foot + 18}" text-anchor="middle">{count}</text>')
        drawn = set()
        line = ""
        for who, how, errors in all_curves[data]:
            ends = sorted((at[1], error["rms"]) for at, error in errors.items() if error["rms"] > 0)
            ends = [f"{across(panel, count):.1f} {up(rms):.1f}" for count, rms in ends]
            if who == LOOP:
                line = f'<path class="loop" d="M{"L".join(ends)}"/>'
                continue
            kind = how.split(", ")
            if kind[0] in COLOURS:
                drawn.update(" ".join([end, *kind]) for end in ends)
        for point in sorted(drawn):
            x, y, *kind = point.split()
            parts.append(f'<circle class="{" ".join(kind)}" cx="{x}" cy="{y}" r="3"/>')
        parts.append(line)
    wide = across(len(DATA) - 1, east) + 12
    x, y = LEFT, foot + 44
    for kind, words in [(m, m) for m in COLOURS] + [("f16 sums", "f16, bf16: the sums alone")]:
        parts.append(f'<circle class="{kind}" cx="{x + 4}" cy="{y - 4}" r="3"/>')
        parts.append(f'<text x="{x + 12}" y="{y}">{words}</text>')
        x += 30 + 7 * len(words)
    parts.append(f'<path class="loop" d="M{x} {y - 4}h16"/><text x="{x + 22}" y="{y}">{LOOP}</text>')
    parts.append(f'<text x="{LEFT}" y="{y + 22}">RMS error over C R S, both to a log scale</text>')
    title = "RMS error of every variant over C R S, per kind of data"
    size = f'viewBox="0 0 {wide:.0f} {y + 34}" width="{wide:.0f}" height="{y + 34}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    body = "\n".join(parts)
    return f"{head}\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n{body}\n</svg>\n"
