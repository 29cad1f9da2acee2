#!/usr/bin/env python3
"""What variants estimate of their time, against the committed results; and the constants of the libraries'
estimates, fitted to them by least squares of logarithms.

    scripts/fit_estimates.py                                             # the constants, as they stand in the source
    scripts/fit_estimates.py --write                                     # puts them there
    scripts/fit_estimates.py --program target/release/convforge          # and what the estimates of all rows are worth
    scripts/fit_estimates.py --program target/release/convforge --check  # whether source, fit and program agree

The suite `heldout` is left out: it says how good the choice is on what nothing was fitted to.
"""

import argparse
import json
import math
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import estimate_model as model
import results

ROOT = Path(__file__).resolve().parent.parent
HELD_OUT = "heldout"
DEVICE = "NVIDIA H200"
# Passes that are up to fifteen times as fast since this day; older rows of them are of no use.
PASSES, PASSES_SINCE = {"unroll", "permute"}, "2026-11-22"
# Which of a library's configurations its estimate is of.
DEFAULTS = {"cublas_gemm": "auto", "cudnn": None}
# How far a constant of the source may be from the fit.
TOLERANCE = 0.03
STEPS = (1.3, 1.1, 1.03, 1.01, 1.003)
NUMBERED = re.compile(r"plan=\d+")


@dataclass(frozen=True)
class Timed:
    """The latest time of a variant on a problem."""

    suite: str
    problem: str
    variant: str
    config: str
    us: float
    date: str

    @property
    def name(self):
        return f"{self.variant}:{self.config}" if self.config else self.variant

    @property
    def is_numbered(self):
        """Whether it is `plan=2`, which names another plan wherever the estimate has changed since."""
        return bool(self.config) and NUMBERED.fullmatch(self.config) is not None

    @property
    def kind(self):
        """The suite and the words of its problem."""
        words = self.problem.split("+", 1)
        return f"{self.suite} {words[1] if len(words) > 1 else 'f32'}"


def held_out(root):
    """The problems of the suite, without images, layout and type."""
    lines = results.listed(root / f"crates/tools/src/suites/{HELD_OUT}.txt")
    return {shape(line.split()[-1]) for line in lines}


def shape(problem):
    sizes = problem.split("+")[0]
    return tuple(pair for pair in model.SIZE.findall(sizes) if pair[0] != "mb")


def is_old(row, date):
    return date < PASSES_SINCE and any(stage["name"] in PASSES for stage in row["stages"] or [])


def timed(root):
    """What was measured cold, of each variant and problem the latest, without what is held out."""
    latest, left_out = {}, held_out(root)
    for folder in (root / results.FOLDER, root / results.FOLDER / "rows"):
        for path in results.files(folder):
            report = results.read(path)
            where = report.get("environment", {})
            if where.get("device") != DEVICE:
                continue
            compared = report.get("rows", []) if report.get("view") == "compare" else []
            for row in compared + report.get("layers", []):
                is_useful = row.get("status") == "passed" and row.get("median_us") and row.get("cold")
                if not is_useful or row.get("chose") or is_old(row, where["date"]):
                    continue
                if row["suite"] == HELD_OUT or shape(row["problem"]) in left_out:
                    continue
                names = row["suite"], row["problem"], row["variant"], row["config"]
                one = Timed(*names, row["median_us"], where["date"])
                key = one.problem, one.name
                if key not in latest or latest[key].date <= one.date:
                    latest[key] = one
    return sorted(latest.values(), key=lambda one: (one.name, one.problem))


def estimates(program, chip, problems):
    """What the program's variants estimate: by problem and name, microseconds and whether the rule may take it."""
    command = [program, "list", "--problem", "-", "--as", chip, "--estimates"]
    done = subprocess.run(command, input="\n".join(problems), text=True, capture_output=True, check=True)
    lines = map(json.loads, done.stdout.splitlines())
    return {(line["problem"], line["name"]): (line["us"], line["counted"], line["ranked"]) for line in lines}


def mean(logs):
    return sum(logs) / len(logs)


def spread(logs):
    middle = mean(logs)
    return math.exp(math.sqrt(mean([(log - middle) ** 2 for log in logs])))


# -- The fit


class Fit:
    """The constants of a library's estimate, and the layers that they are fitted to."""

    def __init__(self, variant, rows, constants, limits=model.H200):
        self.model, self.limits, self.constants = model.MODELS[variant], limits, dict(constants)
        rows = [row for row in rows if row.variant == variant and row.config == DEFAULTS[variant]]
        asked = [(model.Problem(row.problem), math.log(row.us)) for row in rows]
        self.asked = [(problem, log) for problem, log in asked if problem.plain]

    def errors(self, asked):
        reckon, limits, constants = self.model, self.limits, self.constants
        return [log - math.log(reckon(problem, limits, constants)) for problem, log in asked]

    def touched(self, name):
        """The layers whose estimate this constant changes."""
        before, value = self.errors(self.asked), self.constants[name]
        found = set()
        for factor in (0.5, 2):
            self.constants[name] = value * factor
            changed = zip(before, self.errors(self.asked))
            found |= {i for i, (old, new) in enumerate(changed) if abs(old - new) > 1e-9}
        self.constants[name] = value
        return [self.asked[i] for i in sorted(found)]

    def cost(self, asked):
        return sum(error * error for error in self.errors(asked))

    def walk(self, name, asked, factor):
        """Moves one constant as long as that lessens the squares; whether it did."""
        least, moved = self.cost(asked), False
        while True:
            value = self.constants[name]
            self.constants[name] = value * factor
            cost = self.cost(asked)
            if cost >= least * (1 - 1e-7):
                self.constants[name] = value
                return moved
            least, moved = cost, True

    def run(self):
        """One constant after the other, by smaller and smaller steps."""
        touched = {name: self.touched(name) for name in self.constants}
        touched = {name: asked for name, asked in touched.items() if asked}
        for step in STEPS:
            for _ in range(8):
                moves = [self.walk(name, asked, f) for name, asked in touched.items() for f in (step, 1 / step)]
                if not any(moves):
                    break
        return self


def sources(root):
    return {variant: model.constants((root / path).read_text(encoding="utf-8")) for variant, path in model.RANKS.items()}


def tell_fit(variant, fit, source):
    logs = fit.errors(fit.asked)
    print(f"// {model.RANKS[variant]}: {len(logs)} layers, spread {spread(logs):.3f}")
    for name, value in fit.constants.items():
        print(f"const {name}: f64 = {digits(value)};  // {value / source[name]:.3f} of the source's")


def write(path, constants):
    """Puts constants into a source, to three digits."""
    text = path.read_text(encoding="utf-8")
    for name, value in constants.items():
        text = re.sub(rf"^(const {name}: f64 = )[\d._]+;", rf"\g<1>{digits(value)};", text, flags=re.MULTILINE)
    path.write_text(text, encoding="utf-8")


def digits(value):
    text = f"{value:.3g}"
    return text if "." in text else f"{text}.0"


def far(fit, source):
    """The constants that are not what the fit says."""
    pairs = [(name, value, source[name]) for name, value in fit.constants.items()]
    return [pair for pair in pairs if abs(pair[1] / pair[2] - 1) > TOLERANCE]


# -- What estimates are worth


def tell_ratios(title, groups):
    print(f"\n{title}: measured / estimated\n{'':40} rows   mean  spread  least   most  of")
    for name, found in sorted(groups.items()):
        logs = [math.log(ratio) for ratio, _ in found]
        low, high = min(found), max(found)
        text = f"{math.exp(mean(logs)):6.2f} {spread(logs):7.2f} {low[0]:6.2f} {high[0]:6.2f}"
        print(f"{name:40} {len(found):4} {text}  {high[1]}")


def ratios(rows, estimated):
    """By variant, and by suite and type: ratios and their problems."""
    variants, kinds = defaultdict(list), defaultdict(list)
    for row in rows:
        us, *_ = estimated.get((row.problem, row.name), (None,))
        if us and not row.is_numbered:
            variants[row.variant].append((row.us / us, row.problem))
            kinds[f"{row.variant} {row.kind}"].append((row.us / us, row.problem))
    return variants, kinds


def losses(rows, estimated):
    """Of each problem what the rule takes among what was measured, over the fastest: the worst first."""
    layers = defaultdict(list)
    for row in rows:
        us, counted, ranked = estimated.get((row.problem, row.name), (None, None, None))
        if us:
            layers[row.problem].append((row, us, counted, ranked))
    found = []
    for layer in layers.values():
        ranked = [(counted, row.name, row, us) for row, us, counted, is_ranked in layer
                  if is_ranked and not row.is_numbered]
        if ranked and len(layer) > 1:
            _, _, chosen, us = min(ranked, key=lambda one: one[:2])
            fastest, its_us, *_ = min(layer, key=lambda one: one[0].us)
            found.append((chosen.us / fastest.us, chosen, us, fastest, its_us))
    return sorted(found, key=lambda one: -one[0])


def tell_losses(found, most=20):
    print(f"\nThe rule: {math.exp(mean([math.log(one[0]) for one in found])):.4f} of {len(found)} problems; the worst:")
    for loss, chosen, us, fastest, its_us in found[:most]:
        taken = f"{chosen.name} (estimate {us:.1f}, measured {chosen.us:.1f})"
        print(f"{loss:.2f} {chosen.problem}: {taken}, {fastest.name} ({its_us:.1f}, {fastest.us:.1f})")
    kinds = defaultdict(list)
    for loss, chosen, *_ in found:
        kinds[chosen.kind].append(math.log(loss))
    print("\nBy suite and type:")
    for kind, logs in sorted(kinds.items()):
        print(f"{math.exp(mean(logs)):.3f} {len(logs):4}  {kind}")


def apart(rows, estimated, constants):
    """The first layer on which the program reckons otherwise than the model, in words."""
    for row in rows:
        us, *_ = estimated.get((row.problem, row.name), (None,))
        if row.variant not in model.MODELS or row.config != DEFAULTS[row.variant] or not us:
            continue
        problem = model.Problem(row.problem)
        ours = model.MODELS[row.variant](problem, model.H200, constants[row.variant])
        if problem.plain and abs(ours / us - 1) > 1e-6:
            return f"{row.variant} on {row.problem}: the program says {us:.3f} us, estimate_model.py {ours:.3f}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", help="a built convforge, whose estimates are judged")
    parser.add_argument("--write", action="store_true", help="write the constants into the source")
    parser.add_argument("--check", action="store_true", help="print what disagrees, and answer with 1 if anything does")
    args = parser.parse_args()
    rows, source = timed(ROOT), sources(ROOT)
    estimated = {}
    if args.program:
        estimated = estimates(args.program, "h200", sorted({row.problem for row in rows}))
    wrong = [apart(rows, estimated, source)] if estimated else []
    for variant in model.MODELS:
        fit = Fit(variant, rows, source[variant]).run()
        if args.write:
            write(ROOT / model.RANKS[variant], fit.constants)
        if not args.check:
            tell_fit(variant, fit, source[variant])
        wrong += [f"{variant} {n}: the source has {s}, the fit {f:.3g}" for n, f, s in far(fit, source[variant])]
    if estimated and not args.check:
        variants, kinds = ratios(rows, estimated)
        tell_ratios("By variant", variants)
        tell_ratios("By variant, suite and type", kinds)
        tell_losses(losses(rows, estimated))
    wrong = [line for line in wrong if line]
    if args.check:
        print("\n".join(wrong) or "source, fit and program agree")
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
