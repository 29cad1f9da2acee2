"""Tests of keep.sh, with programs in place of convforge and python3 that write down how they were called."""

import os
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]
CALLED = '#!/bin/sh\necho "$(basename "$0") $*" >>"$CALLS"\n'


class Keeping(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("scripts", "bin", "benches/results", "measured/record"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy(SCRIPTS / "keep.sh", self.folder / "scripts")
        for name in ("convforge", "python3"):
            (self.folder / "bin" / name).write_text(CALLED, encoding="utf-8")
            (self.folder / "bin" / name).chmod(0o755)
        (self.folder / "measured/record/some.json").write_text("{}", encoding="utf-8")

    def run_it(self, *arguments):
        """The exit status, and what was called."""
        calls = self.folder / "calls"
        calls.write_text("", encoding="utf-8")
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, "CALLS": str(calls), "CONVFORGE": "convforge", "PATH": path}
        command = ["bash", self.folder / "scripts/keep.sh", *arguments]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return answer.returncode, calls.read_text(encoding="utf-8").splitlines()

    def test_a_folder_is_kept_and_all_is_written_from_it(self):
        measured = self.folder / "measured"
        status, calls = self.run_it(measured)
        self.assertEqual(status, 0)
        self.assertEqual(calls[0], f"convforge report {measured}/record/some.json --keep benches/results")
        self.assertEqual([call.split()[:2] for call in calls[1:]], [
            ["python3", "scripts/cudnn_best.py"], ["python3", "scripts/fit_estimates.py"], ["convforge", "tune"],
            ["python3", "scripts/tables.py"], ["convforge", "page"], ["python3", "scripts/cudnn_best.py"],
            ["python3", "scripts/tables.py"]])

    def test_a_bundle_is_kept_with_its_searches(self):
        (self.folder / "measured/cudnn-plans.jsonl").write_text("", encoding="utf-8")
        with tarfile.open(self.folder / "record.tgz", "w:gz") as bundle:
            bundle.add(self.folder / "measured", ".")
        status, calls = self.run_it(self.folder / "record.tgz")
        self.assertEqual(status, 0)
        self.assertRegex(calls[1], r"^convforge searches .*/cudnn-plans\.jsonl --keep benches/cudnn-plans\.jsonl$")

    def test_without_results_it_says_what_it_takes(self):
        self.assertEqual(self.run_it(), (2, []))


if __name__ == "__main__":
    unittest.main()
