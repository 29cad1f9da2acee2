"""The folder that pack.sh makes, as far as tests of gpu.sh need it: programs that stand in are put into it."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]


class PackedFolder(unittest.TestCase):
    """Has gpu.sh, its parts and the versions of the libraries, in a folder of each test's own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.results = self.folder / "results"
        self.copy("gpu.sh", "toolkit.lock")
        shutil.copytree(SCRIPTS / "gpu", self.folder / "gpu")

    def copy(self, *names):
        for name in names:
            shutil.copy(SCRIPTS / name, self.folder)

    def file(self, name, text):
        """Written, with its folders."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def program(self, name, text):
        self.file(name, text).chmod(0o755)

    def run_gpu(self, *arguments, **variables):
        """The answer of gpu.sh, and what programs that stand in wrote into $CALLS, a line each."""
        calls = self.file("calls", "")
        command = ["bash", self.folder / "gpu.sh", "--out", self.results, *arguments]
        environment = {**os.environ, "CALLS": str(calls), **variables}
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return answer, calls.read_text(encoding="utf-8").splitlines()
