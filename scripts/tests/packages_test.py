"""Tests of what packages.py takes for wrong."""

import io
import os
import tarfile
import tempfile
import unittest
from pathlib import Path

import packages


class Faults(unittest.TestCase):
    def crate(self, files):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name, "a-0.1.0.crate")
        with tarfile.open(path, "w:gz") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(f"a-0.1.0/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return path

    def faults(self, **more):
        files = {"Cargo.toml": b"", "LICENSE-MIT": b"", "LICENSE-APACHE": b"", "src/lib.rs": b""}
        return list(packages.faults(self.crate({**files, **more})))

    def test_a_crate_is_fine(self):
        self.assertEqual(self.faults(), [])

    def test_licences_are_there(self):
        crate = self.crate({"LICENSE-MIT": b"", "src/LICENSE-APACHE": b""})
        self.assertEqual(list(packages.faults(crate)), ["has no LICENSE-APACHE"])

    def test_what_only_a_checkout_needs_stays_there(self):
        self.assertEqual(self.faults(**{"data/README.md": b""}), ["carries data"])

    def test_none_is_large(self):
        self.assertIn("is larger", *self.faults(large=os.urandom(packages.MOST_BYTES)))


if __name__ == "__main__":
    unittest.main()
