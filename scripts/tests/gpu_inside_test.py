"""Tests of benches/inside.c, put before a program that calls libraries that stand in."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Each takes 20 ms and answers with a sum of its arguments, weighted by their places.
LIBRARY = """
#include <unistd.h>
typedef const void *P;
typedef long long L;
#define A(i, v) (i) * (int)(L)(v)
int cublasGemmEx(P a, int b, int c, int d, int e, int f, P g, P h, int i, int j, P k, int l, int m, P n, P o, int p,
                 int q, int r, int s) {
    usleep(20000);
    return A(1, a) + A(2, b) + A(3, c) + A(4, d) + A(5, e) + A(6, f) + A(7, g) + A(8, h) + A(9, i) + A(10, j) +
           A(11, k) + A(12, l) + A(13, m) + A(14, n) + A(15, o) + A(16, p) + A(17, q) + A(18, r) + A(19, s);
}
int cublasGemmStridedBatchedEx(P a, int b, int c, int d, int e, int f, P g, P h, int i, int j, L k, P l, int m, int n,
                               L o, P p, P q, int r, int s, L t, int u, int v, int w) {
    usleep(20000);
    return A(1, a) + A(2, b) + A(3, c) + A(4, d) + A(5, e) + A(6, f) + A(7, g) + A(8, h) + A(9, i) + A(10, j) +
           A(11, k >> 33) + A(12, l) + A(13, m) + A(14, n) + A(15, o >> 33) + A(16, p) + A(17, q) + A(18, r) +
           A(19, s) + A(20, t >> 33) + A(21, u) + A(22, v) + A(23, w);
}
int cudnnBackendExecute(P a, P b, P c) {
    usleep(20000);
    return A(1, a) + A(2, b) + A(3, c);
}
int other(void) { return 5; }
"""
PROGRAM = """
import ctypes, sys
library, inside = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None)
inside.inside_us.restype = ctypes.c_double
P, I, L = ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong
kinds = {"cublasGemmEx": "PIIIIIPPIIPIIPPIIII", "cublasGemmStridedBatchedEx": "PIIIIIPPIILPIILPPIILIII",
         "cudnnBackendExecute": "PPP"}
for name, kind in kinds.items():
    function = getattr(library, name)
    function.argtypes = [{"P": P, "I": I, "L": L}[k] for k in kind]
    arguments = [i % 7 + 1 << (33 if k == "L" else 0) for i, k in enumerate(kind)]
    right = sum((i + 1) * (i % 7 + 1) for i in range(len(kind)))
    inside.inside_us()
    assert function(*arguments) == right, (name, function(*arguments), right)
    function(*arguments)
    us = inside.inside_us()
    assert 40e3 <= us < 4e6, (name, us)
    assert inside.inside_us() == 0
    inside.inside_skip(1)
    assert function(*arguments) == 0 and inside.inside_us() == 0, name
    inside.inside_skip(0)
assert library.other() == 5 and inside.inside_us() == 0
print("all three")
"""


class Inside(unittest.TestCase):
    def test_calls_are_handed_on_timed_and_skipped(self):
        with tempfile.TemporaryDirectory() as folder:
            inside, library = Path(folder) / "inside.so", Path(folder) / "library.so"
            source = Path(folder) / "library.c"
            source.write_text(LIBRARY, encoding="utf-8")
            flags = ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]
            subprocess.run([*flags, inside, ROOT / "benches/inside.c", "-ldl"], check=True)
            subprocess.run([*flags, library, source], check=True)
            answer = subprocess.run([sys.executable, "-c", PROGRAM, library], capture_output=True, text=True,
                                    env={**os.environ, "LD_PRELOAD": str(inside)}, check=False)
            self.assertEqual((answer.stdout, answer.returncode), ("all three\n", 0), answer.stderr)


if __name__ == "__main__":
    unittest.main()
