#!/usr/bin/env python3
"""Holds what the command reads in ONNX files against others, who are no part of the build.

scripts/onnx_reference.py check [FILE...]   against onnx.shape_inference: by default over the models that the Python package
                                  `onnx` has for its own tests; it is installed into a folder that is deleted again
scripts/onnx_reference.py tract             writes crates/tools/tests/onnx/tract.txt anew: what tract-onnx makes of the models
                                  of the tests; it takes Rust 1.95
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "crates/tools/tests/onnx"
MODELS = ROOT / "target/tmp/onnx"
ONNX = "onnx==1.23.2"
# Runs in a Python that has the package: a line of JSON for each file.
INFER = r"""
import json, sys
from pathlib import Path
import onnx

def dims(value):
    shape = value.type.tensor_type.shape
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in shape.dim]

def convs(graph):
    known = {value.name: dims(value) for value in [*graph.input, *graph.value_info, *graph.output]}
    known.update({tensor.name: list(tensor.dims) for tensor in graph.initializer})
    for node in graph.node:
        if node.op_type == "Conv" and node.domain in ("", "ai.onnx"):
            x, w, y = (known.get(name) for name in (node.input[0], node.input[1], node.output[0]))
            attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            rank = len(w) - 2 if w else 0
            yield {
                "x": x, "w": w, "y": y, "bias": len(node.input) > 2, "group": attributes.get("group", 1),
                "stride": attributes.get("strides", [1] * rank), "dilation": attributes.get("dilations", [1] * rank),
            }

files = sys.argv[1:]
if not files:
    data = Path(onnx.__file__).parent / "backend/test/data"
    files = sorted(str(path) for path in data.rglob("*.onnx"))
for path in files:
    inferred = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
    print(json.dumps({"file": path, "convs": list(convs(inferred.graph))}))
"""


def inferred(files, folder):
    """Each file with what the package knows of its convolutions."""
    python = folder / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", ONNX], check=True)
    lines = subprocess.run([python, "-c", INFER, *files], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in lines.splitlines()]


def numbers(conv):
    """A convolution of the package as the numbers of a problem; none where it is no problem or a shape is missing."""
    x, w, y = conv["x"], conv["w"], conv["y"]
    if not (x and w and y) or None in x + w + y or len(x) > 4:
        return None
    lines = len(x) == 3
    pair = lambda sizes, high: tuple([high, *sizes] if lines else sizes)
    return (
        conv["group"], x[0], x[1], pair(x[2:], 1), w[0], pair(y[2:], 1), pair(w[2:], 1),
        pair(conv["stride"], 1), pair(conv["dilation"], 1), conv["bias"],
    )


def problem(text):
    """The same numbers of a problem's text."""
    found = {key: int(number) for key, number in re.findall(r"([a-z]+)(\d+)", text.split("+")[0])}

    def pair(key, default=None):
        high = found.get(f"{key}h", default)
        return high, found.get(f"{key}w", high)

    dilation = tuple(size + 1 for size in pair("d", 0))
    return (
        found.get("g", 1), found["mb"], found["ic"], pair("i"), found["oc"], pair("o"), pair("k"), pair("s", 1),
        dilation, "+bias" in text,
    )


def read(path):
    """What the command reads in a file, one problem for each node; or why it reads nothing."""
    command = ["cargo", "run", "--quiet", "--no-default-features", "--package", "convforge-tools", "--"]
    args = ["list", "--device", "cpu", "--json", "--skip-unknown", "--model", path]
    answer = subprocess.run(command + args, cwd=ROOT, capture_output=True, text=True)
    if answer.returncode:
        return None, answer.stderr.strip()
    answers = (entry["answer"] for entry in json.loads(answer.stdout))
    layers = {layer["layer"]: layer for layer in answers}.values()
    return sorted(problem(layer["problem"]) for layer in layers for _ in layer["nodes"]), answer.stderr.strip()


def check(files):
    with tempfile.TemporaryDirectory() as folder:
        return compare(inferred(files, Path(folder)))


def compare(models):
    wrong = 0
    for model in models:
        convs = [numbers(conv) for conv in model["convs"]]
        expected = sorted(conv for conv in convs if conv)
        if not convs:
            continue
        found, why = read(model["file"])
        name = "/".join(Path(model["file"]).parts[-2:])
        if found == expected or not expected and found is None:
            left = f", {len(convs) - len(expected)} left out" if len(expected) < len(convs) else ""
            print(f"{name}: {len(expected)} convolutions agree{left}")
            continue
        wrong += 1
        print(f"{name}: DIFFERS: {why}\n  here  {found}\n  there {expected}")
    print(f"{len(models)} models, {wrong} differ")
    return 1 if wrong else 0


def tract():
    write = "cargo test --no-default-features --package convforge-tools --test onnx -- --ignored write_models"
    subprocess.run(write.split(), cwd=ROOT, check=True)
    run = f"cargo run --quiet --manifest-path {TESTS}/tract/Cargo.toml --target-dir {ROOT}/target/tract --"
    files = sorted(MODELS.glob("*.onnx"))
    lines = []
    for path in files:
        lines += subprocess.run([*run.split(), path], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    version = re.search(r'tract-onnx = "=(.*)"', (TESTS / "tract/Cargo.toml").read_text())[1]
    head = f"# What tract-onnx {version} makes of the Conv nodes of models.rs; scripts/onnx_reference.py tract writes it.\n"
    (TESTS / "tract.txt").write_text(head + "".join(f"{line}\n" for line in lines))
    return 0


def main(args):
    if args[:1] == ["check"]:
        return check(args[1:])
    if args == ["tract"]:
        return tract()
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
