"""docs/accuracy.md's tables and drawing, of made-up errors; and that tables.py --check sees a change."""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import accuracy
import results

ROOT = Path(__file__).resolve().parents[2]


def deviation(rms):
    return {"largest": rms * 10, "rms": rms}


def row(variant, math, rms, sums=None, problem="mb1ic4ih9oc2kh3", status="passed"):
    data = [
        {
            "data": data,
            "stored": deviation(rms),
            "rounded": sums and deviation(sums),
            "sequential": deviation(2.8e-8),
        }
        for data in accuracy.DATA
    ]
    word = "" if math == "fp32" else f"+math={math}"
    return {
        "suite": "s", "layer": "l", "problem": problem + word, "math": math, "variant": variant,
        "config": None, "seed": 1, "status": status, "reason": None,
        "data": data if status == "passed" else [],
    }  # fmt: skip


def study(rows, date="2026-01-02", gpu="H"):
    environment = {
        "gpu": gpu, "driver": "1", "date": date, "csrc": "0", "libraries": {"cuBLAS": "1"},
        "device": "H", "options": [],
    }  # fmt: skip
    return {"environment": environment, "layers": [], "network": [], "overlap": [], "errors": rows}


def lines(content):
    """A study as a file of lines, with nothing usual or common."""
    sections = {key: content[key] for key in ("layers", "network", "overlap", "errors")}
    found = [{key: value for key, value in content.items() if key not in sections}]
    for key, rows in sections.items():
        found += [{"section": key, "usual": {"passed": {}}}, *rows]
    return "".join(json.dumps(line) + "\n" for line in found)


ROWS = [
    row("a", "fp32", 2.8e-8),
    row("b", "fp32", 2.8e-8),
    row("c", "fp32", 1.3e-8),
    row("c", "fp32", 1.1e-8, problem="g2mb1ic8ih9oc2kh3kw5"),
    row("c", "f16", 1e-4, sums=3e-8),
    row("broken", "tf32", 0, status="failed"),
]


class Accuracy(unittest.TestCase):
    def test_terms_are_those_of_the_problem(self):
        self.assertEqual(accuracy.terms("mb100ic4ih40oc16oh34kh7"), 4 * 49)
        self.assertEqual(accuracy.terms("g2mb1ic8ih9oc2kh3kw5+math=f16"), 4 * 15)
        self.assertEqual(accuracy.terms("mb1ic8ih1oc2kh1"), 8)

    def test_who_agrees_stands_in_one_line(self):
        lines = accuracy.table(study(ROWS[:3] + ROWS[4:]), "wide").splitlines()
        self.assertEqual(
            lines,
            [
                "| variant | math | s l, 36 |",
                "| --- | --- | ---: |",
                "| a sequential fp32 loop, `a`, `b` | fp32 | 28.0 (2.8) |",
                "| `c` | fp32 | 13.0 (1.3) |",
                "| `c` | f16 | 100000 (10000) |",
                "| `c` | f16, sums | 30.0 (3.0) |",
            ],
        )

    def test_many_that_agree_are_a_group(self):
        many = [row(name, "fp32", 1e-8) for name in "efgh"]
        text = accuracy.table(study(ROWS[:1] + many), "normal")
        self.assertIn("| group 1 | fp32 | 10.0 (1.0) |", text)
        self.assertTrue(text.endswith("\n\n- group 1: `e`, `f`, `g`, `h`"), text)
        self.assertIn("| a sequential fp32 loop, `a` | fp32 |", text)

    def test_what_failed_is_named_and_has_no_number(self):
        text = accuracy.section(("f.json", study(ROWS)), [])
        self.assertIn("- `broken` on `mb1ic4ih9oc2kh3+math=tf32`", text)
        self.assertEqual(text.count("broken"), 1)
        self.assertEqual(accuracy.section(None, []), accuracy.NOTHING)

    def test_rows_without_errors_are_named(self):
        text = accuracy.section(("f.json", study(ROWS)), ["a", "broken", "new"])
        self.assertIn("\n\n2 layers. 2 rows have no errors in it: `broken`, `new`.\n\n", text)
        self.assertNotIn("have no errors", accuracy.section(("f.json", study(ROWS)), ["a", "c"]))

    def test_the_drawing_has_every_error_in_every_panel(self):
        svg = ElementTree.fromstring(accuracy.drawing(study(ROWS)))
        spell = "{http://www.w3.org/2000/svg}"
        kinds = [node.get("class") for node in svg.iter(f"{spell}circle")]
        # a and b are one point; the legend has one of each kind.
        self.assertEqual(kinds.count("fp32"), 3 * 3 + 1)
        self.assertEqual(kinds.count("f16"), 3 + 1)
        self.assertEqual(kinds.count("f16 sums"), 3 + 1)
        self.assertEqual(kinds.count("tf32"), 1)
        loops = [node for node in svg.iter(f"{spell}path") if node.get("class") == "loop"]
        self.assertEqual(len(loops), 3 + 1)

    def test_the_latest_of_a_gpu_counts_and_check_sees_a_change(self):
        with tempfile.TemporaryDirectory() as home:
            root = Path(home)
            folder = root / results.FOLDER
            folder.mkdir(parents=True)
            (root / "docs").mkdir()
            for name in ("README.md", "docs/accuracy.md"):
                shutil.copy(ROOT / name, root / name)
            files = {
                "old.jsonl": study([row("old", "fp32", 1e-7)], "2026-01-01"),
                "new.jsonl": study(ROWS),
                "cpu.jsonl": study([row("cpu_gemm", "fp32", 1e-7)], "2026-01-03", gpu=None),
                "none.jsonl": study([], "2026-01-04"),
            }
            for name, content in files.items():
                (folder / name).write_text(lines(content), encoding="utf-8")
            self.assertEqual(accuracy.latest(folder)[0], "new.jsonl")

            def tables(*more):
                command = [sys.executable, ROOT / "scripts/tables.py", "--root", root, *more]
                return subprocess.run(command, capture_output=True, text=True).returncode

            self.assertEqual((tables(), tables("--check")), (0, 0))
            text = (root / "docs/accuracy.md").read_text(encoding="utf-8")
            self.assertIn("`a`, `b`", text)
            svg = root / "docs/accuracy.svg"
            svg.write_text(svg.read_text(encoding="utf-8").replace("cx=", "cy=", 1), encoding="utf-8")
            self.assertEqual(tables("--check"), 1)


if __name__ == "__main__":
    unittest.main()
