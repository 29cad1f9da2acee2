#!/usr/bin/env python3
"""The estimates of implicit_gemm_nhwc and implicit_gemm_nchw, by which their plans are chosen, against times of many plans;
and their constants, fitted to them.

    scripts/fit_plans.py                     # what the constants in the source of nhwc's are worth
    scripts/fit_plans.py nchw --check        # whether nchw's are what the times were told by, and choose well
    scripts/fit_plans.py nchw --search 120   # looks for better ones for so many seconds, and prints them

The constants are those of csrc/kernels/implicit_gemm/nhwc_estimate.cuh and nchw_estimate.cuh, whose estimate() are here once
more. The times are in benches/results/evidence/h200-implicit-gemm-nhwc-plans.csv and its like. What counts is how much
longer the plan with the least estimate takes than the fastest that was timed (its regret), and by what root mean square
the logarithms of estimates are off, of plans within a third of the fastest.
"""

import argparse
import csv
import json
import math
import random
import re
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parent.parent
CONSTANT = re.compile(r"\b([A-Z]\w+) = ([\d.]+)")
NORM_OF_SOURCE = re.compile(r"\bnorm<(\d+)>")
# What of core/estimate.cuh and of the H200 the estimate asks for.
SHORT_LAUNCH_US, CLOCKS_PER_US, BYTES_PER_US = 1.5, 0.884 * 1980, 2 * 3201 * 6144 / 8
STEPS, WARPGROUPS, STAGED, ROWS, PORT_BYTES, LINE_BYTES = 4, 2, 8192, 64, 128, 128
NARROW = 64  # columns of products of which two blocks share a multiprocessor
NEAR = 1.35  # times the fastest, within which an estimate should be right


class Plan:
    """A line of the times: integers but for what is told, what it took, and whose it is."""

    def __init__(self, line):
        self.run, self.problem = line.pop("run"), line.pop("problem")
        self.told_us, self.us = float(line.pop("told_us")), float(line.pop("us"))
        self.__dict__.update({name: int(value) for name, value in line.items()})


def read_plans(path):
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file if not line.startswith("#")]
    return [Plan(line) for line in csv.DictReader(lines)]


def read_constants(path):
    """The numbers of the source's `constexpr`s, by name."""
    statements = re.findall(r"^constexpr (?:double|int) [^;]+;", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: float(value) for one in statements for name, value in CONSTANT.findall(one)}


def together(a, b, norm):
    longer = max(a, b)
    return longer * ((a / longer) ** norm + (b / longer) ** norm) ** (1 / norm) if longer > 0 else 0.0


def clocks_of_pixel(plan, c):
    """Of an im2col copy, by the problem's channels and groups."""
    groups, channels = re.search(r"(?:g(\d+))?mb.*?ic(\d+)", plan.problem).groups()
    pixel = int(channels) * plan.element_bytes
    if not plan.im2col:
        return 0
    return c["OddPixel"] if pixel % 64 else c["SplitPixel"] if pixel // int(groups or 1) % LINE_BYTES else 0


def of_nhwc(plan, c, norm):
    """As estimate() of nhwc_estimate.cuh, in microseconds."""
    blocks = -(-plan.blocks // plan.parts)
    loads = blocks * plan.loads
    of_last = plan.last_steps if plan.parts == 1 else STEPS
    steps = WARPGROUPS * plan.taps * ((blocks - 1) * STEPS + of_last)
    sharing = plan.pixel_peers * plan.weight_peers
    rounds = -(-plan.tiles // (plan.grid // (sharing * plan.parts)))
    weights = blocks * plan.taps / (1 if plan.reload else max(rounds, 1))
    pixel_bytes = loads * plan.pixel_bytes * (WARPGROUPS if plan.apart else 1)
    weight_bytes = weights * plan.weight_bytes
    own_pixels = pixel_bytes / plan.pixel_peers
    filled = max(
        (own_pixels + weight_bytes / plan.weight_peers) / c["FillBytes"],
        own_pixels / LINE_BYTES * clocks_of_pixel(plan, c),
    )
    port = steps * (16 + plan.columns / 4) + (pixel_bytes + weight_bytes) / PORT_BYTES
    at_once = c["TapOfFirst"] if plan.once and plan.columns <= NARROW else 0
    share = c["ProductShare"] * (1 + c["WideShare"] * max(plan.columns / c["WideColumns"] - 1, 0))
    products = max(
        share * max(steps * plan.columns / 2, port) + blocks * plan.taps * c["TapRound"],
        blocks * plan.taps * at_once,
    )

    def issue(count, clocks, stages, warps):
        first = min(count, stages / max(rounds, 1))
        others = max(clocks / warps, c["Latency"] / max(stages - 1, 1))
        refill = c["Refill"] if count > first and rounds <= 1 else 0
        return first * c["FirstIssue"] / warps + (count - first) * others + refill

    issued = max(
        issue(loads, c["PixelRound"], plan.pixel_stages, 1 if plan.apart else 2),
        issue(weights, c["WeightRound"], plan.weight_stages, 2),
    )
    main = together(products, together(filled, issued, norm), norm) * (1 + c["ClusterShare"] * (sharing - 1))
    meet = 0
    if plan.parts > 1:
        meet = c["Meet"] + c["MeetColumn"] * plan.columns + (c["Ready"] if plan.replace else 0)
    store = c["OfTile"] + c["OfPiece"] * plan.columns * ROWS * plan.element_bytes / STAGED
    bare = max(store - plan.lead * main / (blocks * plan.taps), 0)
    kept = together(main, main / 2 + store, norm) if rounds <= 1 else main + store
    tile = main + store + 2 * bare if plan.reload else kept
    clocks = rounds * tile + c["Fill"] + (c["Clustered"] if sharing > 1 else 0) + meet + store / plan.parts
    launch = c["AloneUs"]
    if plan.beside:
        launch = c["BesidePartsUs"] if plan.parts > 1 else c["BesideUs"]
    memory_us = plan.memory_bytes / (c["ReadShare"] * BYTES_PER_US)
    return SHORT_LAUNCH_US + launch + together(clocks / CLOCKS_PER_US, memory_us, norm)


def of_nchw(plan, c, norm):
    """As estimate() of nchw_estimate.cuh, in microseconds."""
    blocks = -(-plan.blocks // plan.parts)
    loads = blocks * plan.loads
    of_last = plan.last_steps if plan.parts == 1 else STEPS
    steps = WARPGROUPS * plan.taps * ((blocks - 1) * STEPS + of_last)
    rounds = -(-plan.tiles // (plan.grid // plan.parts))
    weights = blocks * plan.taps / (1 if plan.reload else max(rounds, 1))
    sets = WARPGROUPS if plan.apart else 1
    pixel_bytes, weight_bytes = loads * plan.pixel_bytes * sets, weights * plan.weight_bytes
    port = steps * (16 + plan.columns / 4) + (pixel_bytes + weight_bytes) / PORT_BYTES
    products = c["ProductShare"] * max(steps * plan.columns / 2, port) + blocks * plan.taps * c["TapRound"]
    filled = (pixel_bytes + weight_bytes) / c["FillBytes"]

    def copied(count, clocks, stages):
        first = min(count, stages / max(rounds, 1))
        return first * c["FirstShare"] * clocks + (count - first) * max(clocks, c["Latency"] / max(stages - 1, 1))

    turned = loads * sets * (plan.batches * c["OfBatch"] / plan.loaders + c["OfBox"])
    if plan.straight:
        turned = copied(loads * sets, c["PixelRound"], plan.pixel_stages)
    issue = max(turned, copied(weights, c["WeightRound"], plan.weight_stages))
    alone = products + max(filled, issue)
    main = alone if plan.pixel_stages == 1 else together(products, together(filled, issue, norm), norm)
    meet = 0
    if plan.parts > 1:
        meet = c["Meet"] + c["MeetColumn"] * plan.columns + (c["Ready"] if plan.replace else 0)
    store = c["OfTile"] + c["StoreColumn"] * plan.columns
    tile, last = (main, store / plan.parts) if rounds <= 1 else (main + c["StoreShare"] * store, store)
    clocks = rounds * tile + c["Fill"] + meet + last
    memory_us = plan.memory_bytes / (0.85 * BYTES_PER_US)
    return SHORT_LAUNCH_US + c["AloneUs"] + together(clocks / CLOCKS_PER_US, memory_us, norm)


@dataclass(frozen=True)
class Row:
    """What is fitted: where constants and times are, the formula, and what a check allows."""

    source: Path
    times: Path
    formula: Callable
    norm: int
    most_regret: float
    most_error: float

    @staticmethod
    def of(name, formula, norm, most_regret, most_error):
        source = ROOT / f"csrc/kernels/implicit_gemm/{name}_estimate.cuh"
        times = ROOT / f"benches/results/evidence/h200-implicit-gemm-{name}-plans.csv"
        return Row(source, times, formula, norm, most_regret, most_error)

    def plans(self):
        return read_plans(self.times)

    def constants(self):
        return read_constants(self.source)

    def estimate(self, plan, constants):
        return self.formula(plan, constants, self.norm)


FITTED = {"nhwc": Row.of("nhwc", of_nhwc, 4, 0.03, 0.08), "nchw": Row.of("nchw", of_nchw, 5, 0.03, 0.15)}


class Fit:
    """What constants are worth over problems, each with its plans."""

    def __init__(self, row, plans, constants):
        problems = defaultdict(list)
        for plan in plans:
            problems[plan.run, plan.problem].append(plan)
        self.picks, regrets, errors = [], [], []
        for (run, problem), among in problems.items():
            estimates = [(row.estimate(plan, constants), index) for index, plan in enumerate(among)]
            told, taken = min(estimates)
            fastest = min(plan.us for plan in among)
            self.picks.append((problem, run, among[taken].us, fastest, told))
            if len(among) > 1:
                regrets.append(math.log(among[taken].us / fastest))
            errors += [math.log(us / among[i].us) for us, i in estimates if among[i].us < NEAR * fastest]
        self.regret = sum(regrets) / len(regrets)
        self.error = math.sqrt(sum(error**2 for error in errors) / len(errors))
        # A plan that is far behind counts more than several that are a bit behind.
        self.score = self.regret + 4 * sum(one**2 for one in regrets) / len(regrets) + 0.6 * self.error

    def __str__(self):
        worst = max(us / fastest for _, _, us, fastest, _ in self.picks)
        return f"regret {self.regret:.3f}, at worst {worst:.2f} times the fastest; estimates off by {self.error:.3f}"


def search(row, plans, constants, seconds, seed):
    """Constants with a better score, by small random steps from these on; a score is as good as another if constants
    have gone less far."""
    draw, begin, start = random.Random(seed), dict(constants), time.monotonic()
    free = [name for name in constants if name != "WideColumns"]

    def score(c):
        return Fit(row, plans, c).score + 0.0008 * sum(math.log(c[name] / begin[name]) ** 2 for name in free)

    at, best = (score(begin), begin), (score(begin), begin)
    while (left := 1 - (time.monotonic() - start) / seconds) > 0:
        step = dict(at[1])
        for name in draw.sample(free, draw.choice((1, 1, 2, 3))):
            step[name] *= math.exp(draw.gauss(0, 0.2))
        new = score(step)
        if new < at[0] or draw.random() < math.exp((at[0] - new) / (0.004 * left + 1e-9)):
            at = (new, step)
            best = min(best, at, key=lambda one: one[0])
        if sys.stderr.isatty():
            print(f"\r{left * seconds:4.0f} s left, {best[0]:.4f}", end="", file=sys.stderr)
    return best[1]


def wrong(row, plans, constants):
    """What a check finds, in words."""
    fit = Fit(row, plans, constants)
    if fit.regret > row.most_regret or fit.error > row.most_error:
        yield f"{fit}: more than {row.most_regret} and {row.most_error}"
    if {int(norm) for norm in NORM_OF_SOURCE.findall(row.source.read_text(encoding="utf-8"))} != {row.norm}:
        yield f"{row.source.name} has another norm than {row.norm}"
    other = [plan for plan in plans if abs(row.estimate(plan, constants) / plan.told_us - 1) > 0.002]
    if other:
        yield f"{len(other)} of {len(plans)} estimates are not those of {row.times.name}: estimate() differs, or they were told by others"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", nargs="?", choices=FITTED, default="nhwc", help="whose estimate (nhwc)")
    parser.add_argument("--check", action="store_true", help="fail where the constants are not those of the times")
    parser.add_argument("--search", type=float, metavar="SECONDS", help="look for better constants")
    parser.add_argument("--seed", type=int, default=0, help="of the search (0)")
    parser.add_argument("--json", action="store_true", help="the picks, as JSON")
    arguments = parser.parse_args()
    row = FITTED[arguments.row]
    plans, constants = row.plans(), row.constants()
    if arguments.check:
        found = list(wrong(row, plans, constants))
        sys.exit("\n".join(found) if found else print("the estimate and its times agree"))
    if arguments.search:
        constants = search(row, plans, constants, arguments.search, arguments.seed)
        print(", ".join(f"{name} = {value:.4g}" for name, value in constants.items()))
    fit = Fit(row, plans, constants)
    if arguments.json:
        names = ("problem", "run", "us", "fastest_us", "told_us")
        print(json.dumps([dict(zip(names, pick)) for pick in fit.picks]))
        return
    for problem, run, us, fastest, told in fit.picks:
        print(f"{problem:<48} {run:<8} {us:8.2f} us, fastest {fastest:8.2f}, {us / fastest:.3f}; told {told:8.2f}")
    print(fit)


if __name__ == "__main__":
    main()
