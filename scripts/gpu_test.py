"""Tests of gpu.sh with a program in convforge's place that writes down how it was called."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """#!/bin/sh
[ "$1" = devices ] && echo '"csrc": "0123456789abcdef"' && exit
echo "$@" >>"$CALLS"
echo "     6 s for 1 problems"
"""
RECORD = """# A remark.
small --suite a --batch 1
small --suite a --batch 16
large --suite b
*more-f16 --suite c --storage f16
*more-f32 --suite c
*smaller --suite d
"""


class Plans(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        shutil.copy(ROOT / "scripts/gpu.sh", self.folder)
        shutil.copytree(ROOT / "scripts/gpu", self.folder / "gpu")
        for name, content in (("bin/convforge", PROGRAM), ("benches/record.txt", RECORD)):
            path = self.folder / name
            path.parent.mkdir()
            path.write_text(content, encoding="utf-8")
            path.chmod(0o755)

    def run_it(self, *arguments):
        """The answer, and the options that come after the device in each call of `compare`."""
        calls = self.folder / "calls"
        calls.write_text("", encoding="utf-8")
        command = ["bash", self.folder / "gpu.sh", "--out", self.folder / "results", "--device", "cpu", *arguments]
        answer = subprocess.run(
            command, env={**os.environ, "CALLS": str(calls)}, capture_output=True, text=True, check=False,
        )
        lines = calls.read_text(encoding="utf-8").splitlines()
        options = [line.removeprefix("compare --device cpu ").split(" --unless")[0] for line in lines]
        return answer, options

    def test_what_has_a_star_is_left_out(self):
        answer, options = self.run_it("plan")
        whole = ["--suite b --plan", "--suite a --batch 1 --plan", "--suite a --batch 16 --plan"]
        self.assertEqual(options, whole)
        self.assertIn("0 minutes of one GPU", answer.stdout)

    def test_what_has_a_star_is_taken_by_its_name(self):
        self.assertEqual(self.run_it("plan", "smaller", "large")[1], ["--suite d --plan", "--suite b --plan"])
        several = ["--suite c --storage f16 --plan", "--suite c --plan"]
        self.assertEqual(self.run_it("plan", "more-*")[1], several)

    def test_it_is_recorded_under_its_name(self):
        answer, options = self.run_it("record", "smaller")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(options, ["--suite d"])
        self.assertIn("record-smaller-1-01234567", answer.stdout)

    def test_an_unknown_name_is_told(self):
        for name in ("smal", "*.x"):
            answer, options = self.run_it("plan", "large", name)
            self.assertEqual((answer.returncode, options), (2, []))
            self.assertIn(f"no comparison named '{name}'", answer.stderr)


if __name__ == "__main__":
    unittest.main()
