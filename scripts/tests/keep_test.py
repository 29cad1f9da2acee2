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
        """The exit status, what was called, and what was said. Paths are from the folder."""
        calls = self.folder / "calls"
        calls.write_text("", encoding="utf-8")
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        environment = {**os.environ, "CALLS": str(calls), "CONVFORGE": "convforge", "PATH": path}
        command = ["bash", self.folder / "scripts/keep.sh", *arguments]
        answer = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        called = calls.read_text(encoding="utf-8").splitlines()
        return answer.returncode, called, answer.stdout + answer.stderr

    def test_what_was_measured_is_kept_and_all_is_written_from_it(self):
        other = self.folder / "other"
        shutil.copytree(self.folder / "measured", other)
        (self.folder / "benches/results/kept.jsonl").write_text("", encoding="utf-8")
        measured = self.folder / "measured"
        status, calls, _ = self.run_it("measured", other)
        self.assertEqual(status, 0)
        self.assertEqual(calls, [
            *(f"convforge report {one}/record/some.json --keep benches/results" for one in (measured, other)),
            "python3 scripts/cudnn_best.py benches/results/kept.jsonl",
            "python3 scripts/fit_estimates.py --write",
            "convforge tune ship",
            "python3 scripts/tables.py",
            "convforge page --out page.html",
            "python3 scripts/cudnn_best.py --check",
            "python3 scripts/tables.py --check",
        ])

    def test_a_bundle_is_kept_with_its_searches(self):
        (self.folder / "measured/cudnn-plans.jsonl").write_text("", encoding="utf-8")
        with tarfile.open(self.folder / "record.tgz", "w:gz") as bundle:
            bundle.add(self.folder / "measured", ".")
        status, calls, _ = self.run_it("record.tgz")
        self.assertEqual(status, 0)
        self.assertRegex(calls[1], r"^convforge searches .*/cudnn-plans\.jsonl --keep benches/cudnn-plans\.jsonl$")

    def test_nothing_is_kept_where_something_is_missing(self):
        (self.folder / "empty").mkdir()
        for arguments, said in (
            ((), "takes what `gpu.sh record` measured"),
            (("--fast",), "takes what `gpu.sh record` measured"),
            (("measured", "empty"), "empty has no record/*.json"),
            (("measured", "missing"), "there is no missing"),
            (("measured", "scripts/keep.sh"), "is no record.tgz"),
        ):
            status, calls, text = self.run_it(*arguments)
            self.assertEqual((status, calls), (2, []), arguments)
            self.assertIn(said, text)


if __name__ == "__main__":
    unittest.main()
