"""What cublas_gemm and cudnn estimate of their time, as src/baselines/*/rank.rs reckons it: the same formulas
once more, so that their constants can be fitted. crates/tools/tests/estimates.rs holds the two to each other.
"""

import re
from dataclasses import dataclass

RANKS = {"cublas_gemm": "src/baselines/cublas/rank.rs", "cudnn": "src/baselines/cudnn/rank.rs"}
CONSTANT = re.compile(r"^const (\w+): f64 = ([\d._]+);", re.MULTILINE)
SIZE = re.compile(r"([a-z]+)(\d+)")
HALVES = ("f16", "bf16", "f16acc")
PASS = 0.712  # as in src/baselines/estimate.rs
SECTOR = 32  # bytes that memory gives at least
TILE, PLANE_TILE = 32, 64  # output channels, and pixels of an image where each has its own product
MOST_FMA_STEPS = 512
FEW, MOST_FEW_STEPS = 16, 300
DEPTHWISE_STEP = 330


def constants(text):
    """The numbers of a source that are fitted, by name."""
    return {name: float(value) for name, value in CONSTANT.findall(text)}


def up(value, to):
    return -(-value // to) * to


def together_us(a, b):
    return (a**3 + b**3) ** (1 / 3)


@dataclass(frozen=True)
class Limits:
    """What estimates ask of a device: `of_chip` in src/limits.rs, `peak` in src/baselines/estimate.rs."""

    sm_count: int
    mhz: float
    memory_mhz: float
    bits: int
    l2_bytes: int
    fma_peak: float
    half_peak: float

    def peak(self, math):
        return {"fp32": self.fma_peak, "tf32": self.half_peak / 2}.get(math, self.half_peak)

    def busy_us(self, flops, per_clock):
        return flops / (per_clock * self.sm_count * self.mhz)

    def memory_us(self, count, share):
        return count / (share * 2 * self.memory_mhz * self.bits / 8)


H200 = Limits(132, 1980, 3201, 6144, 60 << 20, 256, 4096)


class Problem:
    """A problem without an epilogue, read from its text (docs/problem.md)."""

    def __init__(self, text):
        sizes, *words = text.split("+")
        found = {name: int(value) for name, value in SIZE.findall(sizes)}

        def pair(name, left_out):
            high, wide = found.get(f"{name}h"), found.get(f"{name}w")
            if high is None and wide is None:
                return left_out
            return (wide if high is None else high), (high if wide is None else wide)

        self.groups, self.n = found.get("g", 1), found.get("mb", 2)
        self.c, self.k = found["ic"], found["oc"]
        self.h, self.w = pair("i", None)
        self.r, self.s = pair("k", None)
        self.stride = pair("s", (1, 1))
        dilation = [d + 1 for d in pair("d", (0, 0))]
        reach = [d * (size - 1) + 1 for d, size in zip(dilation, (self.r, self.s))]
        pad = pair("p", (0, 0))
        sides = zip((self.h, self.w), pad, reach, self.stride)
        self.p, self.q = pair("o", tuple((size + 2 * p - f) // s + 1 for size, p, f, s in sides))
        needs = zip((self.p, self.q), self.stride, reach, (self.h, self.w), pad)
        behind = [(o - 1) * s + f - size - p for o, s, f, size, p in needs]
        self.padded = any(pad) or any(b > 0 for b in behind)
        self.storage = next((word for word in words if word in ("f16", "bf16")), "f32")
        self.nhwc = "nhwc" in words
        math = [word[5:] for word in words if word.startswith("math=")]
        self.math = math[0] if math else {"f32": "fp32"}.get(self.storage, self.storage)
        known = ("f16", "bf16", "f32", "nhwc", "nchw")
        self.plain = all(word in known or word.startswith("math=") for word in words)

        self.half = self.math in HALVES
        self.size = 4 if self.storage == "f32" else 2
        self.reduction = self.c // self.groups * self.r * self.s
        self.plane = self.p * self.q
        self.pixels = self.n * self.plane
        self.flops = 2.0 * self.pixels * self.k * self.reduction
        self.weights = self.k * self.reduction
        axes = zip((self.h, self.w), (self.r, self.s), self.stride, (self.p, self.q))
        lines = [min(size, out * taps) if taps < step else size for size, taps, step, out in axes]
        neighbours = self.c if self.nhwc else 1
        column = neighbours * self.size
        line = min(self.w * column, lines[1] * max(column, SECTOR))
        self.read = self.n * lines[0] * (self.c // neighbours) * line
        others = self.size * (self.weights + self.pixels * self.k)
        self.bytes = self.read + others
        self.all_bytes = self.size * self.n * self.c * self.h * self.w + others
        tap = not self.padded and (self.r, self.s) == (1, 1)
        self.point = tap and (self.p, self.q) == (self.h, self.w)
        self.whole = not self.padded and (self.r, self.s) == (self.h, self.w)


class Product:
    """How cublas_gemm multiplies: Product::new in src/baselines/cublas/product.rs."""

    def __init__(self, p):
        channels = p.k // p.groups
        self.operand = 2 if p.half else 4
        operand = {"fp32": "f32", "tf32": "f32", "f16acc": "f16"}.get(p.math, p.math)
        storable = p.plain and p.storage in (("f16",) if p.math == "f16acc" else ("f32", operand))
        if p.nhwc and p.groups > 1 and channels < 8 and not p.point:
            many = "wide"
        elif p.nhwc or p.whole:
            many = "rows"
        else:
            narrow = p.math == "fp32" and 2 <= channels <= 4
            fills = p.plane >= 128 and p.groups == 1 and storable and not narrow
            word = p.plane * self.operand if p.math != "fp32" else 0
            batched = (p.point and word % 8 == 0) or (fills and word % 16 == 0)
            many = "batched" if batched else "wide"
        self.form = "batched" if many == "wide" and p.n <= 1 and not p.nhwc else many
        if many == "rows":
            self.direct = p.point or (p.whole and p.groups == 1) if p.nhwc else True
        else:
            self.direct = many == "batched" and p.point
        fill = not self.direct and (p.half and channels > 1 or p.math == "tf32" and channels >= 64)
        # What lies right is read as it is, unless the product takes another type.
        self.reads_x = self.direct and p.storage == operand
        self.depth = up(p.reduction, 16 // self.operand) if fill else p.reduction
        self.in_place = storable and self.form != "wide"
        self.sum = p.size if self.in_place else 2 if p.math == "f16acc" else 4
        outputs = p.k * p.plane
        self.product_bytes = 0 if self.in_place else up(outputs * self.sum, 256)
        self.sums_bytes = up(outputs * 4, 256) if not self.in_place and self.sum == 2 else 0


def cublas_gemm(p, limits, c):
    """Microseconds, with these constants."""
    product = Product(p)
    unrolled = p.pixels * p.groups * product.depth * product.operand
    # A call takes all images, or all groups.
    calls = max(min(p.n, p.groups), 1) if product.form == "batched" else 1
    us = calls * c["LAUNCH_US"]
    if not product.reads_x:
        share = c["UNROLL_HALF"] if product.operand == 2 else c["UNROLL_F32"]
        us += c["PASS_US"] + limits.memory_us(p.read + unrolled, share)
    if not product.in_place:
        count = p.n * 2 * (product.product_bytes + product.sums_bytes)
        us += c["PASS_US"] + limits.memory_us(count, PASS)
    return us + gemm(p, product, unrolled, limits, c)


def gemm(p, product, unrolled, limits, c):
    channels = p.k // p.groups
    plane = up(p.plane, PLANE_TILE) if product.form == "batched" else p.plane
    flops = 2.0 * p.n * plane * up(channels, TILE) * p.groups * p.reduction
    if p.math == "fp32":
        per_clock = c["FP32"] * limits.fma_peak
        clocks = c["FMA_STEP"] * min(p.reduction, MOST_FMA_STEPS)
    else:
        share = c["HALF"] if p.half else c["TF32"]
        per_clock = share * limits.peak(p.math)
        clocks = c["HALF_STEP"] * p.reduction * (1 if p.half else 2)
        if channels == 1:
            per_clock = c["ONE_CHANNEL"] * limits.fma_peak
    read = unrolled if product.reads_x else max(unrolled - limits.l2_bytes / 2, 0)
    count = read + p.weights * product.operand + p.pixels * p.k * product.sum
    # Of a short sum what is read and written is not hidden behind products.
    short = c["SHORT_FMA"] if p.math == "fp32" else c["SHORT_HALF"]
    memory = limits.memory_us(count, c["MEMORY"]) * (1 + short / p.reduction)
    stream = together_us(limits.busy_us(flops, per_clock), memory)
    line = {"rows": p.k, "batched": p.plane, "wide": 0}[product.form] * product.sum
    if p.half and p.plane > 1 and line % 16:
        stream *= c["UNALIGNED"]
    return together_us(stream, clocks / limits.mhz)


def cudnn(p, limits, c):
    """Microseconds, with these constants."""
    if p.groups == 1 and p.c < FEW:
        few = few_channels(p, limits, c)
        return few if p.pixels >= TILE else min(few, dense(p, limits, c))
    if p.groups > 1 and p.c == p.groups:
        share = c["DEPTHWISE" + ("_HALF" if p.size == 2 else "") + ("_NHWC" if p.nhwc else "_NCHW")]
        arithmetic = limits.busy_us(p.flops, share * limits.fma_peak)
        if not p.nhwc:
            clocks = c["DEPTHWISE_PLANE"] + c["DEPTHWISE_PIXEL"] * p.h * p.w
            arithmetic += limits.busy_us(p.n * p.c * clocks, 1)
        stream = together_us(arithmetic, limits.memory_us(p.bytes, c["DEPTHWISE_MEMORY"]))
        return c["LAUNCH_US"] + together_us(stream, DEPTHWISE_STEP * p.r * p.s / limits.mhz)
    return dense(p, limits, c)


def lies_right(p):
    """Whether tensor cores can read the tensors as they lie."""
    return p.nhwc or p.whole or (p.point and p.plane * p.size % 16 == 0)


def dense(p, limits, c):
    memory = c["MEMORY"] if p.groups == 1 else c["GROUPED_MEMORY"]
    if p.math != "fp32":
        share = c["HALF"] if p.half else c["TF32"]
        launch, clocks = c["LAUNCH_US"], c["HALF_STEP"] * (1 if p.half else 2)
    elif p.nhwc:
        share, memory = c["FP32_NHWC"], c["FP32_NHWC_MEMORY"]
        launch, clocks = c["FP32_NHWC_LAUNCH_US"], c["FP32_NHWC_STEP"]
    else:
        share, memory = c["FP32"], c["MEMORY"]
        launch, clocks = c["LAUNCH_US"], c["FMA_STEP"]
    channels = p.k // p.groups
    flops = p.flops * up(channels, TILE) / channels
    stream = together_us(
        limits.busy_us(flops, share * limits.peak(p.math)), limits.memory_us(p.bytes, memory)
    )
    us = launch + together_us(stream, clocks * p.reduction / limits.mhz)
    if p.math != "fp32" and not lies_right(p):
        us += c["TRANSPOSE_US"] + 2 * limits.memory_us(p.all_bytes, c["TRANSPOSE"])
    return us


def few_channels(p, limits, c):
    one_nhwc = p.c == 1 and p.nhwc and p.math != "bf16"
    inputs, outputs, per_clock = 1, TILE, c["FEW_FP32"] * limits.fma_peak
    if one_nhwc:
        outputs, per_clock = 1, c["FEW_ONE_NHWC"] * limits.fma_peak
    elif p.c > 1 and p.math != "fp32":
        inputs = 8 if p.half else 4
        per_clock = (c["FEW_HALF"] if p.half else c["FEW_TF32"]) * limits.peak(p.math)
    flops = p.flops * up(p.c, inputs) / p.c * up(p.k, outputs) / p.k
    memory = c["FEW_HALF" + ("_NHWC" if p.nhwc else "_NCHW") + "_MEMORY"] if p.half else c["FEW_MEMORY"]
    launch, clocks, steps = c["LAUNCH_US"], c["FMA_STEP"], p.reduction
    if one_nhwc:
        steps = 0
    elif p.math != "fp32":
        steps = min(steps, MOST_FEW_STEPS)
    elif p.nhwc:
        launch, clocks = c["FP32_NHWC_LAUNCH_US"], c["FP32_NHWC_STEP"]
    stream = together_us(limits.busy_us(flops, per_clock), limits.memory_us(p.bytes, memory))
    return launch + clocks * steps / limits.mhz + stream


MODELS = {"cublas_gemm": cublas_gemm, "cudnn": cudnn}
