"""What each variant is made of, and a hash of it: its own files in csrc and all that they include, without
comments, and the passes where it calls them. A build's `convforge list --json` says the same (build.rs,
`hash_of`). By itself it prints them: the hash of all of csrc, then of every variant.
"""

import argparse
import re
import sys
from pathlib import Path

import objects

INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
ROW = re.compile(r"^(?:ROW|UNRANKED)\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
# What is no code, and strings, which may look so.
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
# Who includes this header calls the passes, as all libraries' variants do.
PASSES = "csrc/passes.h"
# Who includes one of these multiplies on tensor cores.
TENSOR = {"csrc/ptx/mma.cuh", "csrc/ptx/wgmma.cuh", "csrc/kernels/fused/wmma.cuh"}
BASELINES = ["cublas_gemm", "cudnn", "cudnn_transform"]


def code_of(content):
    """A file of C++ without its comments, blank lines and blanks at the end of others."""
    code = COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else "", content)
    return "\n".join(line.rstrip() for line in code.split("\n") if line.strip())


class Sources:
    """The files of a checkout, each read once."""

    def __init__(self, root):
        self.root = root
        self.known = {}  # by path: its hash, and the files that it names

    def file(self, path):
        if path not in self.known:
            content = (self.root / path).read_text(encoding="utf-8")
            named = {f"csrc/{name}" for name in INCLUDE.findall(content)}
            if path == PASSES:
                named |= self.sources("csrc/passes")
            self.known[path] = objects.fnv1a(code_of(content).encode()), named
        return self.known[path]

    def sources(self, folder):
        return {f"{folder}/{path.name}" for path in (self.root / folder).glob("*.cu")}

    def all(self, paths):
        """Files with all that they include."""
        found, left = set(), set(paths)
        while left:
            path = left.pop()
            found.add(path)
            left |= self.file(path)[1] - found
        return found

    def hash(self, paths):
        """The hash of files with all that they include."""
        found = self.all(paths)
        # As paths are sorted, component by component.
        text = "".join(f"{path} {self.file(path)[0]:016x}\n" for path in sorted(found, key=lambda p: p.split("/")))
        return f"{objects.fnv1a(text.encode()):016x}"


def rows(sources):
    """The own files of every row of the table, by its name."""
    table = (sources.root / "csrc/kernels.def").read_text(encoding="utf-8")
    for family, file in ROW.findall(table):
        own = f"csrc/kernels/{family}/{file}"
        yield f"{family}_{file}", {f"{own}.cu"} | sources.sources(own)


def hashes(root):
    """The hash of every variant that is made of files of csrc, by its name."""
    sources = Sources(root)
    found = {name: sources.hash(own) for name, own in rows(sources)}
    return found | dict.fromkeys(BASELINES, sources.hash([PASSES]))


def on_tensor_cores(root):
    """The names of the rows whose products tensor cores make."""
    sources = Sources(root)
    return {name for name, own in rows(sources) if TENSOR & sources.all(own)}


def csrc(root):
    """The hash of all of csrc, as build.rs has it."""
    files = [path.relative_to(root).as_posix() for path in (root / "csrc").rglob("*")
             if path.is_file() and path.suffix != ".md"]
    files.sort(key=lambda path: path.split("/"))
    content = b"".join(path.encode() + (root / path).read_bytes() for path in files)
    return f"{objects.fnv1a(content):016x}"


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    here = Path(__file__).resolve().parent.parent
    print("csrc", csrc(here))
    for variant, number in hashes(here).items():
        print(variant, number)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(0)
