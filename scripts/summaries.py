"""What README and chapters sum up of the committed comparisons: means against the libraries, of what was measured
with the code and the libraries of now, and the times of layers with few channels.
"""

import math
import re

from comparisons import family, fastest
from markdown import filled, table

# The families whose chapters have a table of all their rows beside cuDNN, and the suites that it is of.
FAMILIES = {
    "implicit_gemm": ("report-vgg", "vgg16", "resnet50", "batch1"),
    "depthwise": ("depthwise",),
    "grouped": ("grouped", "depthwise"),
}
# The suites of layers with few channels, and up to how many images the README's means have them apart.
SMALL, FEW_IMAGES = ("report-86", "report-70", "first"), 16
# Kinds of element as comparisons have them, and as the README heads their columns.
KINDS = {
    "f16 NHWC": "f16 NHWC", "f16 NCHW": "f16 NCHW", "bf16 NHWC": "bf16 NHWC", "bf16 NCHW": "bf16 NCHW",
    "f32 NHWC": "fp32 NHWC", "f32 NCHW": "fp32 NCHW",
    "f32 NHWC, tf32 math": "TF32 NHWC", "f32 NCHW, tf32 math": "TF32 NCHW",
}  # fmt: skip
# Networks whose layers of three channels the README's means leave out: the suite first is of such layers.
NETWORKS = {"vgg16", "resnet50", "batch1"}
# How many of the layers where a library is furthest ahead the README names.
WORST = 5
# The share of a suite's layers that a mean has to be of: which of them are fresh is no matter of chance.
MOST_OF = 4 / 5
# What the README says of its table.
INTRODUCTION = """\
How many times as fast the fastest handwritten variant is on an {chip} as the faster of two libraries: cuBLAS, and cuDNN by its
fastest plan that passes, or by its time in another run or through PyTorch, where that was [faster](benches/cudnn-open.txt). Geometric means over the
layers of a suite that were measured with the code and the libraries as they are now; in brackets the least and the most. ‡ is
where more than one in five was measured with others, § where cuDNN's best is not known of as many, - where nothing was measured.
Filters are packed before the clock starts and handwritten kernels begin early: tables below have times without either.
vgg16, resnet50 and batch1 are without their layers of three channels, which are as those of the suite first. A variant that is
newer than a comparison is not in it. [docs/results.md](docs/results.md#summary) compares with each library by itself."""


def times(value):
    return "-" if value is None else f"{value:.2f}"


def mean(values):
    values = [v for v in values if v is not None]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def of_readme(line):
    return line.kind in KINDS and not (line.suite in NETWORKS and line.channels <= 3)


def rows_of(line):
    """The README's row that a line counts for: few images and many of layers with few channels apart."""
    if line.suite not in SMALL:
        return line.suite
    return f"{line.suite}, {'1 and 16 images' if line.images <= FEW_IMAGES else '100 images and more'}"


def library(line):
    """The faster library's row."""
    return min((row for row in (line.cublas, line.cudnn) if line.us(row)), key=line.us, default=None)


def gain(line):
    """How many times as fast the fastest handwritten variant is as the faster library; None where cuDNN's best is
    not known."""
    return None if line.cudnn and not line.us(line.cudnn) else line.speedup(library(line))


def against_libraries(lines):
    """How many times as fast as the faster library the fastest handwritten variant is, by suite and kind, as means
    over what was measured with the code of now."""
    groups = {}
    for line in filter(of_readme, lines):
        groups.setdefault(rows_of(line), {}).setdefault(line.kind, []).append(line)
    header = ["suite", *KINDS.values()]
    rows = [[suite, *(cell(kinds.get(kind, [])) for kind in KINDS)] for suite, kinds in groups.items()]
    return table(*filled(header, rows), len(header))


def fresh(lines):
    """Those of which all that is compared was measured with the code and the libraries of now."""
    return [line for line in lines if line.are_fresh(line.best, line.cublas, line.cudnn)]


def cell(lines):
    """The mean, in brackets the least and the most, and of how many layers if not of all; none where that would be of
    a selection."""
    found = [value for value in map(gain, fresh(lines)) if value]
    if not lines:
        return "-"
    if len(found) < MOST_OF * len(lines):
        return "‡" if len(fresh(lines)) < MOST_OF * len(lines) else "§"
    text = times(mean(found))
    if len(found) > 1:
        text += f" ({times(min(found))} to {times(max(found))})"
    return text if len(found) == len(lines) else f"{text}, {len(found)} of {len(lines)}"


def behind(lines):
    """In how many of these comparisons a library is faster, and where by most."""
    found = [(value, line) for line in fresh(filter(of_readme, lines)) if (value := gain(line))]
    lost = sorted((pair for pair in found if pair[0] < 1), key=lambda pair: pair[0])
    text = f"A library is faster in {len(lost)} of these {len(found)} comparisons"
    if not lost:
        return f"{text}."
    cudnn = sum(family(library(line)) == "cudnn" for _, line in lost)
    worst = ",\n".join(f"{times(value)} ({place(line)})" for value, line in lost[:WORST])
    return f"{text}, cuDNN in {cudnn} and cuBLAS in {len(lost) - cudnn}, by most at\n{worst}."


def place(line):
    """Which layer it is, by how many images, and in which type."""
    images = "one image" if line.images == 1 else f"{line.images} images"
    return f"{line.suite} {line.layer}, {images}, {KINDS[line.kind]}"


def family_table(lines, name, rows):
    """How many times as fast as cuDNN each row of a family is, by suite and kind: means over what was measured with the
    code of now, of each row by the latest comparison that has it, and the layers where it is furthest behind and ahead."""
    groups = {}
    for line in filter(of_readme, lines):
        if line.suite in FAMILIES[name]:
            groups.setdefault((line.suite, line.kind), []).append(line)
    names = [row for row in rows if row.startswith(f"{name}_")]
    cells = [
        [suite, KINDS[kind], *(extremes(found, variant) for variant in names)]
        for (suite, kind), found in groups.items()
    ]
    cells = [row for row in cells if any(cell != "-" for cell in row[2:])]
    header = ["suite", "elements", *(f"`{row}`" for row in names)]
    return table(*filled(header, cells), len(header))


def extremes(lines, variant):
    """The mean of a variant over these lines, in which layers the least and the most are, and of how many layers if
    not of all; none where that would be of a selection of those that it was ever measured on."""
    found = []
    for line in lines:
        if value := line.latest(variant):
            alike = sum(other.layer == line.layer for other in lines)
            name = min(line.layer.split("."), key=len)
            found.append((value, name if alike == 1 else f"{name}, N = {line.images}"))
    measured = sum(any(one.of(variant) for one in [line, *line.earlier]) for line in lines)
    if len(found) < MOST_OF * measured:
        return "‡"
    if not found:
        return "-"
    (low, least), (high, most) = min(found), max(found)
    text = f"{mean(value for value, _ in found):.2f}, {low:.2f} ({least}) to {high:.2f} ({most})"
    text = f"{low:.2f} ({least})" if len(found) == 1 else text
    return text if len(found) == len(lines) else f"{text}; {len(found)} of {len(lines)}"


def three_products(lines):
    """What fp32 as three products of f16 could gain over cuDNN's fp32 at most, at the speed that the fastest
    handwritten variant has in f16, and what it does gain: means over layers that have both, by suite and layout."""
    halves = {(line.suite, line.problem.replace("+f16", "")): line for line in lines if line.kind.startswith("f16 ")}
    groups = {}
    for line in filter(of_readme, lines):
        half = halves.get((line.suite, line.problem))
        if line.suite in NETWORKS and line.kind in ("f32 NHWC", "f32 NCHW") and half and half.best:
            if line.speedup(line.cudnn) and line.are_fresh(line.best, line.cudnn) and half.are_fresh(half.best):
                groups.setdefault((line.suite, line.kind), []).append((line, 3 * half.best["median_us"]))
    header = ["suite", "layout", "layers", "cuDNN / three of f16", "cuDNN / fp32", "cuDNN without transforms / fp32",
              "fp32 / three of f16"]  # fmt: skip
    rows = [
        [
            suite,
            kind.split()[1],
            str(len(found)),
            times(mean(line.us(line.cudnn) / three for line, three in found)),
            times(mean(line.speedup(line.cudnn) for line, _ in found)),
            times(mean(line.speedup(line.of("cudnn")) for line, _ in found)),
            times(mean(line.best["median_us"] / three for line, three in found)),
        ]
        for (suite, kind), found in groups.items()
    ]
    return table(header, rows, 2)


def small(lines):
    """The chapter's tables of layers with few channels: the fastest variant / cuDNN, by images."""
    here = [line for line in lines if line.suite in SMALL]
    parts = []
    for kind in ("f32 NCHW", "f16 NHWC"):
        found = [line for line in here if line.kind == kind]
        layers = {}
        for line in found:
            layer = re.sub(r"^mb\d+|\+.*", "", line.problem)
            layers.setdefault(layer, {})[line.images] = f"{line.time(line.best)} / {line.time(line.cudnn)}"
        images = sorted({line.images for line in found})
        header = ["layer", *(f"N = {n}" for n in images)]
        rows = [[f"`{layer}`", *(times.get(n, "-") for n in images)] for layer, times in layers.items()]
        parts += [f"{KINDS[kind]}:", table(header, rows, len(header))] if found else []
    return "\n\n".join(parts)
