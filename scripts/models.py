#!/usr/bin/env python3
"""What the models of interop/shim took, as a table in Markdown: files BUILD-TYPE-MODEL.json, as `gpu.sh candle` writes
them, each with a line of `models --json --layers`.

A time of convolutions is the sum over a model's layers, each timed by itself. `differ` is the RMS of the difference
between both outputs over that of the output; in 16 bits also how far each is from candle's output in f32.
"""

import argparse
import json
import re
import sys
from pathlib import Path

NAME = re.compile(r"(?P<build>candle(?:-cudnn)?)-(?P<type>f32|f16|bf16)-(?P<model>.+)\.json")
ORDER = ["resnet18", "resnet50", "convnext-t", "efficientnet-b0", "vae"]
TYPES = ["f32", "f16", "bf16"]
HEAD = ["model", "type", "candle", "convforge, ms", "candle, ms", "times as long", "convolutions, ms", "candle's, ms",
        "memory, MiB", "candle's, MiB", "differ"]
# As interop/shim/models has it: candle lets cuDNN multiply f32 in TF32.
MOST_F32 = 1e-4
MOST_TF32 = 2e-3
MOST_16 = 1.5


def differ(answer):
    """How far the outputs are apart, and whether that is too far."""
    apart = f"{answer['difference']:.1e}"
    if answer.get("from_f32") is None:
        return apart, not answer["difference"] <= (MOST_TF32 if answer["cudnn"] else MOST_F32)
    ours, candles = answer["from_f32"]
    return f"{apart} ({ours:.1e}, {candles:.1e})", not ours <= MOST_16 * candles


def row(found, answer):
    mib = [f"{value / 2**20:.1f}" if value is not None else "-"
           for value in (answer["convforge_bytes"], answer["candle_bytes"])]
    convolutions = [sum(layer["count"] * layer[key] for layer in answer["layers"])
                    for key in ("convforge_ms", "candle_ms")]
    text, wrong = differ(answer)
    return [
        found["model"], found["type"], "with cuDNN" if answer["cudnn"] else "without",
        f"{answer['convforge_ms']:.2f}", f"{answer['candle_ms']:.2f}",
        f"{answer['candle_ms'] / answer['convforge_ms']:.2f}",
        *(f"{time:.2f}" for time in convolutions), *mib, text + (" **wrong**" if wrong else ""),
    ]


def key(found):
    model = found["model"]
    return (TYPES.index(found["type"]), ORDER.index(model) if model in ORDER else len(ORDER), model, found["build"])


def table(paths):
    """Lines of Markdown, and what could not be read."""
    rows, missing = [], []
    for path in paths:
        found = NAME.fullmatch(path.name)
        try:
            answer = json.loads(path.read_text(encoding="utf-8"))
            rows.append((key(found), row(found, answer)))
        except (TypeError, KeyError, ValueError):
            missing.append(path.name)
    lines = ["| " + " | ".join(HEAD) + " |", "| --- | --- | --- |" + " ---: |" * (len(HEAD) - 3)]
    lines += ["| " + " | ".join(cells) + " |" for _, cells in sorted(rows)]
    return lines, missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    lines, missing = table(parser.parse_args().files)
    print("\n".join(lines))
    for name in missing:
        print(f"{name}: no answer")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
