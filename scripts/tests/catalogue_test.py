"""Steps of the catalogue stay fair: no row is held back, or its base helped, by what the step is not about. Four
that once were are looked for in the sources, and in what they compiled to (docs/disassembly.md), and each test
plants its fault to see that it is found.
"""

import re
import unittest
from pathlib import Path

import sources
from sources import code_of

ROOT = Path(__file__).resolve().parents[2]
NAIVE = "csrc/kernels/direct/naive.cu"
WMMA, REUSE = "csrc/kernels/fused/wmma.cu", "csrc/kernels/fused/wmma_index_reuse.cu"
SHARED_UNROLL = "csrc/kernels/direct/shared_unroll.cu"
COLUMNS, GATHER = "csrc/passes/columns.cuh", "csrc/passes/unroll.cu"
UNROLL = "csrc/kernels/im2col_gemm/unroll.cu"
FORMS = {"Both": (True, True), "Restrict": (True, False), "Unroll": (False, True), "Plain": (False, False)}


def read(path):
    return code_of((ROOT / path).read_text(encoding="utf-8"))


def parameters(code, kernel):
    """What stands in the brackets behind a kernel's name where it is defined."""
    found = re.search(rf"\b{kernel}\(((?:const |int|cf::)[^{{;]*?)\)\s*{{", code)
    return found[1] if found else ""


def naive_faults(code):
    """direct_naive is the base of direct_unroll, which brings restrict and unrolled loops."""
    plain = parameters(code, "direct_naive_kernel")
    if plain.count("*") != 5:
        yield "direct_naive_kernel has five pointers"
    for word in ("__restrict__", "__restrict", "__ldg", "#pragma unroll", "asm"):
        if re.search(rf"{re.escape(word)}(?!\w)", code):
            yield f"direct_naive has {word}"


def wmma_faults(wmma, reuse, headers):
    """fused_wmma differs from fused_wmma_index_reuse in the indices alone: nothing is hidden from the compiler, all of
    a step's loads come first, and blocks meet as often."""
    for code in (wmma, *headers):
        for word in ("asm", "volatile", "__noinline__"):
            if re.search(rf"\b{word}\b", code):
                yield f"fused_wmma has {word}"
    for pragma in re.findall(r"#pragma unroll[^\n]*", wmma):
        if pragma != "#pragma unroll":
            yield f"fused_wmma has {pragma}"
    for what in ("__syncthreads()", "__syncwarp()"):
        if wmma.count(what) != reuse.count(what):
            yield f"{what} stands {wmma.count(what)} times in fused_wmma, {reuse.count(what)} in its step"
    for code in (wmma, reuse):
        loop = code[code.find("i0 += Step") :]
        loads, stage = loop.find("values[j] ="), loop.find("wmma_operand<Math>(values[j])")
        if not (0 <= loads < stage):
            yield "loads of a step come before the first of them is used"


def shared_unroll_faults(code):
    """direct_shared_unroll takes restrict and the pragma away one by one, so it has all four forms."""
    named = re.findall(r'"form=(\w+)"', re.search(r"configs\[\] = {([^}]*)}", code)[1])
    chosen = re.search(r"for_value<([\w, ]*)>\(query.config", code)[1].split(", ")
    declared = re.search(r"enum Form {([\w, ]*)}", code)[1].strip().split(", ")
    if sorted(named) != sorted(map(str.lower, FORMS)):
        yield f"the forms are {named}"
    if not list(map(str.lower, chosen)) == list(map(str.lower, declared)) == named:
        yield f"{named} stand for {chosen}"
    if "__restrict__" not in parameters(code, "direct_restrict_kernel"):
        yield "direct_restrict_kernel has restrict pointers"
    plain = parameters(code, "direct_plain_kernel")
    if "*" not in plain or code.count("__restrict__") != 1:
        yield "direct_plain_kernel has plain pointers, and what both kernels call"
    unrolled = set(re.findall(r"Form == (\w+)", re.search(r"bool Unrolled = ([^;]*);", code)[1]))
    restrict = set(re.findall(r"Form == (\w+)", re.search(r"if constexpr \((Form[^)]*)\)", code)[1]))
    found = {form: (form in restrict, form in unrolled) for form in FORMS}
    if found != FORMS:
        yield f"forms are {found}"


def widths(code):
    """Of how many elements the words are that columns of NCHW are written in."""
    return {int(count) for count in re.findall(r"columns_of<\w+, \w+, true, (\d+)", code)}


def unroll_faults(columns, gather, unroll):
    """im2col_gemm_unroll writes its matrix by the kernel of its base, in words as wide."""
    if widths(unroll) != widths(gather) or not widths(unroll) - {1}:
        yield f"columns are written by {widths(unroll)} and {widths(gather)}"
    if "__global__" in unroll:
        yield "im2col_gemm_unroll has an unrolling of its own"
    kernel = columns[columns.find("__global__ void unroll_columns") :]
    if "using Word = Pack<To, Pixels>;" not in kernel or "store(to[i], word);" not in kernel:
        yield "unroll_columns stores a word of all pixels"


def narrow_stores(disassembly):
    """Kernels of im2col_gemm_unroll that do not store each tap's pixels of f32 as one word."""
    lines = [line.split(" | ") for line in disassembly.splitlines() if line.startswith("|")]
    stores = next(line.index("STG") for line in lines if "STG" in line)
    found = []
    for line in lines:
        instance = re.search(r"unroll_columns<float, float, true, \w+, (\d+), 1, (\d+)>", line[1])
        if line[0] == "| `im2col_gemm_unroll`" and instance:
            pixels, side = map(int, instance.groups())
            count = {int(bits): int(n) for n, bits in re.findall(r"(\d+)x(\d+)", line[stores])}
            found.append((instance[0], count.get(32 * pixels, 0) >= side * side))
    return len(found), [kernel for kernel, wide in found if not wide]


class Catalogue(unittest.TestCase):
    def planted(self, faults, files, at, old, new):
        """That a change of one file is found."""
        self.assertIn(old, files[at])
        changed = [*files]
        changed[at] = files[at].replace(old, new)
        self.assertNotEqual([], list(faults(*changed)), f"{new} is found")

    def test_direct_naive_promises_nothing(self):
        files = [read(NAIVE)]
        self.assertEqual([], list(naive_faults(*files)))
        self.planted(naive_faults, files, 0, "const T *x", "const T *__restrict__ x")
        self.planted(naive_faults, files, 0, "for (int r", "#pragma unroll\nfor (int r")
        self.planted(naive_faults, files, 0, "cf::widen(x[xs", "cf::widen(__ldg(&x[xs")

    def test_fused_wmma_hides_nothing(self):
        paths = sources.Sources(ROOT).all({WMMA}) - {WMMA}
        own = [path for path in sorted(paths) if path.startswith("csrc/kernels/") or path == "csrc/core/taps.cuh"]
        headers = [read(path) for path in own]
        self.assertGreater(len(headers), 2)
        faults = lambda wmma, reuse, *others: wmma_faults(wmma, reuse, others)
        files = [read(WMMA), read(REUSE), *headers]
        self.assertEqual([], list(faults(*files)))
        hidden = 'asm volatile("" : "+r"(i)); Place at'
        self.planted(faults, files, 0, "Place at", hidden)
        self.planted(faults, files, 0, "#pragma unroll", "#pragma unroll 2")
        self.planted(faults, files, 0, "values[j] =", "xs.at(0, j) =")
        self.planted(faults, files, 0, "__syncthreads();", "__syncthreads();\n__syncthreads();")
        self.planted(faults, files, len(files) - 1, "#pragma once", 'asm volatile("");')

    def test_direct_shared_unroll_has_all_its_forms(self):
        files = [read(SHARED_UNROLL)]
        self.assertEqual([], list(shared_unroll_faults(*files)))
        self.planted(shared_unroll_faults, files, 0, ', "form=plain"', "")
        self.planted(shared_unroll_faults, files, 0, "const T *x, int begin", "const T *__restrict__ x, int begin")
        self.planted(shared_unroll_faults, files, 0, "<Both, Restrict, Unroll, Plain>", "<Both, Restrict, Unroll, Both>")
        self.planted(shared_unroll_faults, files, 0, "const T *__restrict__ x", "const T *x")
        self.planted(shared_unroll_faults, files, 0, "Form == Both || Form == Unroll", "Form == Both")
        self.planted(shared_unroll_faults, files, 0, "(Form == Both || Form == Restrict)", "(Form != Unroll)")

    def test_im2col_gemm_unroll_stores_as_its_base(self):
        files = [read(COLUMNS), read(GATHER), read(UNROLL)]
        self.assertEqual([], list(unroll_faults(*files)))
        self.planted(unroll_faults, files, 2, "columns_of<T, T, true, 4, Side>", "columns_of<T, T, true, 1, Side>")
        self.planted(unroll_faults, files, 2, "struct State", "__global__ void columns();\nstruct State")
        self.planted(unroll_faults, files, 0, "store(to[i], word);", "to[i][0] = word.v[0];")

    def test_it_compiled_to_stores_as_wide(self):
        text = (ROOT / "docs/disassembly.md").read_text(encoding="utf-8")
        count, narrow = narrow_stores(text)
        self.assertGreater(count, 10)
        self.assertEqual([], narrow)
        kernel = "unroll_columns<float, float, true, false, 4, 1, 7>"
        scalars = re.sub(rf"({kernel}.*?)4x32 49x128", r"\g<1>200x32", text)
        self.assertEqual([kernel], narrow_stores(scalars)[1])


if __name__ == "__main__":
    unittest.main()
