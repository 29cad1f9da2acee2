"""Tests of build_times.py and objects.py on records as sys/nvcc writes them."""

import re
import tempfile
import unittest
from pathlib import Path

import build_times
import objects

RECORD = """compiler Build cuda_13.0
flags -O3 -gencode=arch=compute_80,code=[sm_80] -gencode=arch=compute_90,code=[sm_90,compute_90]
input af63dc4c8601ec8c csrc/a.cu
input 000000000000000a include[1]/row.h
seconds 10.00
cpu_seconds 5.00
phase 1.000 compute_90 cudafe++
phase 2.000 compute_80 cicc
phase 1.000 sm_80 ptxas
phase 3.000 compute_90 cicc
phase 2.000 sm_90 ptxas
"""


ROOT = Path(__file__).resolve().parents[2]


def compiled(root):
    """All files of kernels, each as its package names it."""
    packages = [root, *sorted((root / "crates").iterdir())]
    return {path.relative_to(package).as_posix()
            for package in packages for path in (package / "csrc").rglob("*.cu")}


class Committed(unittest.TestCase):
    def test_the_table_has_every_file_of_kernels_and_no_other(self):
        text = (ROOT / "benches/results/evidence/build-times.txt").read_text(encoding="utf-8")
        listed = re.findall(r"^\| (\S+\.cu) \|", text, re.MULTILINE)
        self.assertGreater(len(listed), 80)
        self.assertEqual(sorted(compiled(ROOT)), sorted(listed), "build it cold, and put build_times.py's table there")
        self.assertIn(f"\n| {len(listed)} files |", text)

    def test_files_of_every_package_count(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("csrc/a.cu", "csrc/kernels/f/b.cu", "crates/tools/csrc/c.cu", "crates/tools/csrc/c.h"):
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            self.assertEqual({"csrc/a.cu", "csrc/kernels/f/b.cu", "csrc/c.cu"}, compiled(Path(folder)))


class Records(unittest.TestCase):
    def test_what_was_recorded(self):
        record = objects.Record(RECORD)
        self.assertEqual(record.source(), "csrc/a.cu")
        self.assertEqual((record.seconds, record.cpu_seconds), (10, 5))
        self.assertIn("sm_80", record.flags)
        self.assertEqual(len(record.phases), 5)

    def test_objects_are_of_files_with_the_same_content(self):
        record = objects.Record(RECORD)
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            self.assertFalse(record.is_of(root))
            (root / "csrc").mkdir()
            (root / "csrc/a.cu").write_text("a")
            self.assertTrue(record.is_of(root))
            (root / "csrc/a.cu").write_text("b")
            self.assertFalse(record.is_of(root))

    def test_the_newest_build_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            with self.assertRaises(objects.Failure):
                objects.newest(root)
            made = root / "target/convforge-objects/convforge/80-1/csrc_a_cu.made"
            made.parent.mkdir(parents=True)
            made.write_text(RECORD)
            self.assertEqual(objects.newest(root), made.parent)
            self.assertEqual(objects.object_path(made.parent, "csrc/a.cu"), made.with_suffix(".o"))


class Times(unittest.TestCase):
    def test_steps_share_what_the_file_took(self):
        steps = build_times.split(objects.Record(RECORD))
        expected = {"compute_80": 1, "sm_80": 0.5, "compute_90": 1.5, "sm_90": 1, "rest": 1}
        self.assertEqual(steps, expected)

    def test_side_by_side_they_take_longer_than_the_file(self):
        record = objects.Record(RECORD.replace("seconds 10.00", "seconds 4.00", 1))
        self.assertAlmostEqual(sum(build_times.split(record).values()), 5)

    def test_the_longest_comes_first_and_sums_last(self):
        other = RECORD.replace("cpu_seconds 5.00", "cpu_seconds 15.00").replace("a.cu", "b.cu")
        header, lines = build_times.times([objects.Record(RECORD), objects.Record(other)])
        self.assertEqual(header[3:], ["compute_80", "compute_90", "sm_80", "sm_90", "rest"])
        self.assertEqual([line[0] for line in lines], ["csrc/b.cu", "csrc/a.cu", "2 files"])
        self.assertEqual(lines[0][1:3], ["15.0", "75 %"])
        self.assertEqual(lines[-1][1], "20.0")


if __name__ == "__main__":
    unittest.main()
