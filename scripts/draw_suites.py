#!/usr/bin/env python3
"""Draws the suites of layers of real networks, `random` and `heldout`, and writes their files in
crates/tools/src/suites.

Of each network (networks.py) a suite has all distinct convolutions of its kind, or 12 that are drawn where there are
more: first one of each filter and stride, then others. `nets-tenth` has a tenth of all of them. `heldout` has layers
of networks that are in no other suite, and random problems; no layer of it is a layer of another suite, or of
another suite's network. `random` has other random problems. A draw depends on the seed and on names alone.

With --check nothing is written; the exit status says whether the files are what would be drawn.
"""

import argparse
import hashlib
import itertools
import math
import random
import re
import sys
from pathlib import Path
from typing import NamedTuple

import networks
from layers import Conv

ROOT = Path(__file__).resolve().parent.parent
SUITES = ROOT / "crates/tools/src/suites"
SEED = 17
IMAGES = 64
MOST = 12  # layers of a network
HELD_OUT_MOST, HELD_OUT_RANDOM = 6, 48
RANDOM_SEED, RANDOM = SEED + 1, 72

# By kind: the suite, its function in networks.py, what people call it.
NETS = {
    "depthwise": [
        ("mobilenet-v1", "mobilenet_v1", "MobileNet v1"),
        ("mobilenet-v2", "mobilenet_v2", "MobileNet v2"),
        ("mobilenet-v3-large", "mobilenet_v3_large", "MobileNet v3 large"),
        ("efficientnet-b0", "efficientnet_b0", "EfficientNet-B0"),
        ("convnext-t", "convnext_t", "ConvNeXt-T"),
        ("replknet-31b", "replknet31_b", "RepLKNet-31B"),
        ("shufflenet-v2", "shufflenet_v2", "ShuffleNet v2 1x"),
    ],
    "grouped": [
        ("resnext50", "resnext50", "ResNeXt-50 32x4d"),
        ("regnety-800mf", "regnety_800mf", "RegNetY-800MF"),
        ("regnety-1600mf", "regnety_1600mf", "RegNetY-1.6GF"),
    ],
    "dense": [
        ("resnet18", "resnet18", "ResNet-18"),
        ("resnet50-v15", "resnet50_v15", "ResNet-50 v1.5"),
        ("efficientnet-b0", "efficientnet_b0", "EfficientNet-B0"),
        ("convnext-t", "convnext_t", "ConvNeXt-T"),
        ("unet", "unet", "U-Net on 256x256 pixels, padded"),
        ("yolov8-n", "yolov8_n", "YOLOv8-n"),
        ("sd15-unet", "sd15_unet", "Stable Diffusion 1.5's U-Net on 64x64 latents"),
        ("densenet121", "densenet121", "DenseNet-121"),
        ("inception-v3", "inception_v3", "Inception v3"),
    ],
}
HELD_OUT = [
    ("mnasnet", "mnasnet", "MnasNet 1.0"),
    ("xception", "xception", "Xception"),
    ("resnext101", "resnext101_64x4d", "ResNeXt-101 64x4d"),
    ("regnetx-400mf", "regnetx_400mf", "RegNetX-400MF"),
    ("wide-resnet50", "wide_resnet50", "Wide-ResNet-50-2"),
    ("squeezenet11", "squeezenet11", "SqueezeNet 1.1"),
    ("googlenet", "googlenet", "GoogLeNet"),
    ("efficientnet-v2-s", "efficientnet_v2_s", "EfficientNetV2-S"),
]

# Of the random problems. Filters with their paddings that keep the size; most of a kind's problems have common ones.
FILTERS = {
    "dense": [1, 1, 1, 3, 3, 3, 3, 2, 4, 5, 7, 11, (1, 3), (7, 1), (1, 5), (3, 5)],
    "grouped": [1, 3, 3, 3, 3, 3, 5, 7, (1, 3), (3, 1)],
    "depthwise": [3, 3, 3, 3, 5, 5, 7, 7, 9, 11, 13, (1, 7), (5, 1), 2],
}
SIZES, CHANNELS = (5, 256), {"dense": (3, 1024), "depthwise": (16, 1536)}
MOST_MACS, MOST_ELEMENTS = 2e11, 2e8


def place(suite, name):
    """Where a layer stands in the draw of a suite."""
    return hashlib.sha256(f"{SEED} {suite} {name}".encode()).digest()


def draw(suite, layers, most):
    """So many of the layers, in their order: one of each filter and stride before any other."""
    forms, first, others = set(), [], []
    for name, conv in sorted(layers, key=lambda layer: place(suite, layer[0])):
        form = conv.kind, conv.r, conv.s, conv.stride
        (others if form in forms else first).append(name)
        forms.add(form)
    drawn = (first + others)[:most]
    return [(name, conv) for name, conv in layers if name in drawn]


class Suite(NamedTuple):
    """Layers of one kind of a network."""

    name: str
    kind: str
    network: str
    layers: list  # names and convolutions
    distinct: int  # of how many they are

    @property
    def about(self):
        some = "All" if len(self.layers) == self.distinct else f"{len(self.layers)} of the"
        return f"{some} {self.distinct} distinct {self.kind} layers of {self.network}, {IMAGES} images."


def suites_of_networks():
    for kind, nets in NETS.items():
        for net, function, title in nets:
            name = net if kind == "dense" else f"{net}-{kind}"
            distinct = getattr(networks, function)().distinct(kinds=(kind,))
            yield Suite(name, kind, title, draw(name, distinct, MOST), len(distinct))


def tenth(suites):
    """A tenth of the layers of each kind, by their suites' names and their own."""
    chosen = []
    for kind in NETS:
        of_kind = [suite for suite in suites if suite.kind == kind]
        layers = [(f"{suite.name}/{name}", conv) for suite in of_kind for name, conv in suite.layers]
        chosen += draw(f"tenth-{kind}", layers, math.ceil(len(layers) / 10))
    return chosen


def shape(problem):
    """A problem's text without images, storage, layout and math."""
    return re.sub(r"mb\d+", "", problem.split("+")[0], count=1)


def read(path):
    """The names and problems of a suite's file."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return [(words[0], words[1]) for words in lines if words and words[0] != "#"]


def taken():
    """Every shape that `heldout` may not have: of the other suites, and of the networks that they are drawn from."""
    drawn_later = "heldout.txt", "nets-tenth.txt", "random.txt"
    files = [path for path in SUITES.glob("*.txt") if path.name not in drawn_later]
    shapes = {shape(problem) for path in files for _, problem in read(path)}
    for _, function, _ in itertools.chain.from_iterable(NETS.values()):
        shapes |= {shape(conv.text(1)) for _, conv in getattr(networks, function)().convs}
    return shapes


class Dice:
    """Numbers by seed. Of the generator only random() is used: it returns the same in every Python."""

    def __init__(self, seed):
        self.generator = random.Random(seed)

    def below(self, ends):
        return int(self.generator.random() * ends)

    def one(self, choices):
        return choices[self.below(len(choices))]

    def between(self, least, most):
        """By the logarithm."""
        return round(math.exp(math.log(least) + self.generator.random() * math.log(most / least)))


def random_channels(dice, kind):
    """Input channels, output channels, groups. Half of the numbers of channels are multiples of eight."""
    def channels():
        c = dice.between(*CHANNELS[kind])
        return c if dice.below(2) else max(8, c // 8 * 8)

    if kind == "dense":
        return channels(), channels(), 1
    if kind == "depthwise":
        c = channels()
        return c, c * dice.one((1, 1, 1, 1, 2, 3)), c
    groups = dice.one((2, 3, 4, 8, 16, 24, 32, 40))
    inside, outside = (dice.one((4, 5, 6, 8, 12, 16, 24, 32, 48, 64)) for _ in range(2))
    return groups * inside, groups * (inside if dice.below(3) else outside), groups


def random_problem(dice, kind):
    """A convolution and a number of images."""
    r, s = (dice.one(FILTERS[kind]),) * 2
    if isinstance(r, tuple):
        r, s = r
    h = dice.between(*SIZES)
    w = h if dice.below(2) else dice.between(*SIZES)
    stride = dice.one(((1, 1),) * 6 + ((2, 2),) * 3 + ((3, 3), (1, 2)))
    dilation = dice.one(((1, 1),) * 5 + ((2, 2), (3, 2))) if stride == (1, 1) and r * s > 1 else (1, 1)
    pad = tuple(d * (k - 1) // 2 for k, d in zip((r, s), dilation)) if dice.below(4) else (0, 0)
    c, k, groups = random_channels(dice, kind)
    conv = Conv(c, h, w, k, r, s, stride, pad, dilation, groups)
    if min(conv.out) < 1:
        return random_problem(dice, kind)
    images = dice.one((1, 1, 2, 8, 16, 32, 64, 128))
    elements = max(c * h * w, k * math.prod(conv.out))
    while images > 1 and (images * conv.macs > MOST_MACS or images * elements > MOST_ELEMENTS):
        images //= 2
    return conv, images


def held_out():
    """Names and problems, none of which is taken."""
    met, problems = taken(), []

    def keep(name, conv, images):
        met.add(shape(conv.text(1)))
        problems.append((name, conv.text(images)))

    for net, function, _ in HELD_OUT:
        distinct = getattr(networks, function)().distinct(kinds=tuple(NETS))
        free = [(name, conv) for name, conv in distinct if shape(conv.text(1)) not in met]
        for name, conv in draw(f"heldout-{net}", free, HELD_OUT_MOST):
            keep(f"{net}/{name}", conv, IMAGES)
    return problems + [(f"random/{name}", problem) for name, problem in random_problems(SEED, HELD_OUT_RANDOM, met)]


def random_problems(seed, count, met):
    """Names and problems, as many of each kind, none of which was met before."""
    problems = []
    for number, kind in zip(range(count), itertools.cycle(NETS)):
        dice = Dice(1000 * seed + number)  # one that is taken changes no other
        conv, images = random_problem(dice, kind)
        while shape(conv.text(1)) in met:
            conv, images = random_problem(dice, kind)
        met.add(shape(conv.text(1)))
        problems.append((f"{number:02}.{kind}", conv.text(images)))
    return problems


def of_images(layers):
    """Names and problems."""
    return [(name, conv.text(IMAGES)) for name, conv in layers]


def text(about, problems):
    """A suite's file."""
    width = max(len(name) for name, _ in problems)
    lines = [*(f"# {line}" for line in about), *(f"{name:<{width}} {problem}" for name, problem in problems)]
    return "".join(f"{line}\n" for line in lines)


def drawn():
    """Every file and what belongs into it."""
    suites = list(suites_of_networks())
    by = f"Drawn by scripts/draw_suites.py, seed {SEED}."
    files = {
        f"nets/{suite.kind}/{suite.name}.txt": text([suite.about, by], of_images(suite.layers)) for suite in suites
    }
    about = f"A tenth of the layers of nets-depthwise, nets-grouped and nets-dense, {IMAGES} images."
    files["nets-tenth.txt"] = text([about, by], of_images(tenth(suites)))
    titles = [title for _, _, title in HELD_OUT]
    about = [
        "Held out: never fit nor tune anything on these problems, nor look at one of them while you do. They say how",
        f"good a choice is on what it was not made for. Layers of {', '.join(titles[:4])},",
        f"{', '.join(titles[4:-1])} and {titles[-1]}, {IMAGES} images, and random problems; none",
        "of them is in another suite.",
        by,
    ]
    kept = held_out()
    files["heldout.txt"] = text(about, kept)
    about = [
        "Random problems, a third of them depthwise, grouped and dense each: what a choice is fitted to beside networks.",
        f"Drawn by scripts/draw_suites.py, seed {RANDOM_SEED}.",
    ]
    met = taken() | {shape(problem) for _, problem in kept}
    files["random.txt"] = text(about, random_problems(RANDOM_SEED, RANDOM, met))
    return files


def differing(files):
    """What is not as it would be drawn: files that differ, and such that nothing draws any more."""
    for name, content in files.items():
        path = SUITES / name
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            yield f"{name} is not what {Path(__file__).name} draws"
    for path in sorted((SUITES / "nets").rglob("*.txt")):
        name = path.relative_to(SUITES).as_posix()
        if name not in files:
            yield f"{name} is drawn no more: delete it"


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    files = drawn()
    if arguments.check:
        faults = list(differing(files))
        print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
        return 1 if faults else 0
    for name, content in files.items():
        path = SUITES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
