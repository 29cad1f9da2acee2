"""A PTX string stands in csrc/ptx, and nowhere else but in one file that design.md names."""

import re
import unittest
from pathlib import Path

import sources

ROOT = Path(__file__).resolve().parents[2]
PLACE = "csrc/ptx/"
EXCEPTION = "csrc/core/element.cuh"
# The first string of the statement. Where it is empty, as in asm("" : "+l"(at)), there is no instruction:
# it only hides from the compiler how a value came about.
ASM = re.compile(r'\b(?:asm|__asm|__asm__)\b\s*(?:volatile\b|__volatile__\b)?\s*\(\s*(R?"[^"]*"|\w+)')


def strings(code):
    """What asm statements of a file begin with, comments left out."""
    return [first for first in ASM.findall(sources.code_of(code)) if first != '""']


def kernels():
    """Every file of CUDA or C with its code."""
    for folder in [ROOT / "csrc", *sorted((ROOT / "crates").glob("*/csrc"))]:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".cu", ".cuh", ".h"):
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def elsewhere(files):
    """The files with PTX that may have none."""
    return [name for name, code in files
            if strings(code) and not name.startswith(PLACE) and name != EXCEPTION]


class Ptx(unittest.TestCase):
    def test_it_stands_in_its_folder(self):
        files = list(kernels())
        self.assertGreater(len([name for name, code in files if strings(code)]), 15)
        self.assertEqual([], elsewhere(files), "a wrapper in csrc/ptx says it")

    def test_the_exception_is_one_and_named(self):
        self.assertEqual(1, len(strings((ROOT / EXCEPTION).read_text(encoding="utf-8"))))
        self.assertIn(f"`{EXCEPTION}`", (ROOT / "docs/design.md").read_text(encoding="utf-8"))

    def test_it_is_found_however_it_is_written(self):
        for code in ('asm("nop;");', 'asm volatile("{\\n"\n "nop;\\n}" ::: "memory");', 'asm volatile (\n"nop;");',
                     'asm volatile(INSTRUCTION : "=r"(v));', '__asm__ __volatile__("nop;");', 'asm(R"(nop;)");'):
            self.assertEqual(["csrc/core/a.cuh"], elsewhere([("csrc/core/a.cuh", code)]), code)
            self.assertEqual([], elsewhere([("csrc/ptx/a.cuh", code), (EXCEPTION, code)]))
        for code in ('asm("" : "+l"(at));', '// asm("nop;")', "int plasma(int);"):
            self.assertEqual([], elsewhere([("csrc/core/a.cuh", code)]), code)


if __name__ == "__main__":
    unittest.main()
