"""Where a build left its objects, and what it recorded of them; sys/nvcc writes both.

    <target>/convforge-objects/<package>/<images>-<compiler and flags>/csrc_..._cu.{o,ptxas,made}
"""

import os
import re
from pathlib import Path

PACKAGES = ["convforge", "convforge-check", "convforge-tools"]


class Failure(Exception):
    """Told to the user as it is, without a traceback."""


class Record:
    """What an object was made from, and what that took: FILE.made beside it."""

    def __init__(self, text):
        words = [line.split(" ", 1) for line in text.splitlines() if " " in line]
        first = dict(reversed(words))
        self.compiler = first.get("compiler", "")
        self.flags = first.get("flags", "")
        self.seconds = float(first.get("seconds", 0))
        self.cpu_seconds = float(first.get("cpu_seconds", 0))
        self.inputs = {}  # hashes by path
        self.phases = []  # (seconds, architecture, tool)
        for word, value in words:
            if word == "input":
                number, path = value.split(" ", 1)
                self.inputs[path] = int(number, 16)
            elif word == "phase":
                seconds, arch, tool = value.split(" ")
                self.phases.append((float(seconds), arch, tool))

    def source(self):
        return next(iter(self.inputs), "")

    def is_of(self, root):
        """Whether the package's files below `root` are those that the object was made from."""
        own = [(root / path, number) for path, number in self.inputs.items()
               if not path.startswith("include[")]
        return all(path.exists() and fnv1a(path.read_bytes()) == number for path, number in own)


def fnv1a(content):
    number = 0xCBF29CE484222325
    for byte in content:
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return number


def object_path(folder, source):
    """The object of a source, which is named relative to its package."""
    return folder / (re.sub(r"[/.]", "_", str(source)) + ".o")


def newest(root, package="convforge"):
    """The folder of the package's newest build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    made = target.glob(f"convforge-objects/{package}/*/*.made")
    last = max(made, key=lambda path: path.stat().st_mtime, default=None)
    if last is None:
        raise Failure(f"no build was found in {target}; `cargo build` makes one, --objects names it")
    return last.parent


def records(folder):
    return [Record(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.made"))]
