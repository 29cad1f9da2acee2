"""Tests of gpu.sh with a program in convforge's place that writes down how it was called."""

import os
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# It writes the file that it is told, and where $DIES names a file that is there, dies the first time.
PROGRAM = """#!/bin/sh
[ "$1" = devices ] && echo '"csrc": "0123456789abcdef"' && exit
echo "$@" >>"$CALLS"
[ -e "$DIES" ] && rm "$DIES" && kill -9 $$
while [ $# -gt 0 ]; do
    [ "$1" = --out ] && echo '"reason": null' >>"$2"
    shift
done
echo "     6 s for 1 problems, 0 are fresh"
"""
RECORD = """# A remark.
small --suite a --batch 1
small --suite a --batch 16
large --suite b
*more-f16 --suite c --storage f16
*more-f32 --suite c
*smaller --suite d
"""


class Records(unittest.TestCase):
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

    def run_it(self, *arguments, device="cpu"):
        """The answer, and the options of each call of `compare` before the device."""
        calls = self.folder / "calls"
        calls.write_text("", encoding="utf-8")
        place = ["--device", device] if device else []
        command = ["bash", self.folder / "gpu.sh", "--out", self.folder / "results", *place, *arguments]
        environment = {**os.environ, "CALLS": str(calls), "DIES": str(self.folder / "dies")}
        environment.pop("CONVFORGE_CUDNN_PLANS", None)
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        self.calls = calls.read_text(encoding="utf-8").splitlines()
        compared = [line.removeprefix("compare ") for line in self.calls if line.startswith("compare ")]
        return answer, [line.split(" --device")[0].split(" --as")[0] for line in compared]

    def test_what_has_a_star_is_left_out_and_the_order_is_the_files(self):
        answer, options = self.run_it("plan")
        self.assertEqual(options, ["--suite a --batch 1", "--suite a --batch 16", "--suite b"])
        self.assertTrue(all(" --plan" in line and "--out" not in line for line in self.calls))
        self.assertIn("6 s for 1 problems, 0 are fresh\tlarge --suite b\n", answer.stdout)
        self.assertIn("0 minutes of one GPU", answer.stdout)

    def test_what_has_a_star_is_taken_by_its_name(self):
        self.assertEqual(self.run_it("plan", "smaller", "large")[1], ["--suite d", "--suite b"])
        several = ["--suite c --storage f16", "--suite c"]
        self.assertEqual(self.run_it("plan", "more-*")[1], several)

    def test_a_chip_that_is_not_here_is_planned_for(self):
        answer, options = self.run_it("--as", "h200", "plan", "large", device=None)
        self.assertEqual((answer.returncode, options), (0, ["--suite b"]), answer.stderr)
        self.assertIn("compare --suite b --as h200 --plan --unless", self.calls[0])
        self.assertEqual(self.run_it("--as", "h200", "record")[0].returncode, 2)

    def test_what_cannot_be_planned_fails(self):
        program = self.folder / "bin/convforge"
        program.write_text(PROGRAM.replace('echo "     6 s', "exit 1 #"), encoding="utf-8")
        self.assertEqual(self.run_it("plan")[0].returncode, 1)

    def test_it_is_recorded_under_its_name(self):
        answer, options = self.run_it("record", "smaller")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(options, ["--suite d"])
        self.assertIn("record-smaller-1-01234567", answer.stdout)
        # What is done is not done again.
        self.assertEqual(self.run_it("record", "smaller")[1], [])

    def test_what_is_fresh_and_what_is_known_is_told(self):
        (self.folder / "benches/cudnn-plans.jsonl").write_text("", encoding="utf-8")
        self.run_it("record", "large")
        results, benches = self.folder / "results", self.folder / "benches"
        for words in (
            f"--unless {benches}/results --unless {benches}/results/rows --unless {results}/record",
            f"--cudnn-stored finalists --cudnn-seconds 120 --cudnn-known {benches}/cudnn-plans.jsonl",
        ):
            self.assertIn(words, self.calls[0])

    def test_gpus_share_comparisons_and_have_files_of_their_own(self):
        answer, options = self.run_it("record", device="gpu:0,gpu:1")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(sorted(options), ["--suite a --batch 1", "--suite a --batch 16", "--suite b"])
        for line in self.calls:
            device = line.split("--device gpu:")[1][0]
            self.assertIn(f"-01234567-gpu{device}.json --resume", line)
        for file in (self.folder / "results/record").iterdir():
            self.assertRegex(file.name, r"^\w+-(small|large)-01234567-gpu[01]\.json$")

    def test_who_is_killed_goes_on(self):
        (self.folder / "dies").write_text("", encoding="utf-8")
        answer, options = self.run_it("record", "large")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(options, ["--suite b"] * 2)
        steps = (self.folder / "results/steps.tsv").read_text(encoding="utf-8").splitlines()
        self.assertEqual([line.split("\t")[:2] for line in steps], [["record-large-1-01234567", "0"]])

    def test_searches_are_kept_after_each_comparison(self):
        plans = self.folder / "results/cudnn-plans"
        self.assertNotIn("searches", " ".join(self.run_it("record", "large")[1]))
        plans.mkdir()
        self.run_it("record", "small")
        kept = f"searches {plans} --keep {plans}.jsonl"
        self.assertEqual([line for line in self.calls if "compare" not in line], [kept] * 2)

    def test_one_file_has_all_that_is_to_be_brought_back(self):
        self.run_it("record", device="gpu:0,gpu:1")
        (self.folder / "results/cudnn-plans.jsonl").write_text("{}", encoding="utf-8")
        self.run_it("record", "smaller")
        with tarfile.open(self.folder / "results/record.tgz") as bundle:
            names = {Path(name).name for name in bundle.getnames()}
        measured = {file.name for file in (self.folder / "results/record").iterdir()}
        self.assertEqual(names, measured | {"record", "steps.tsv", "cudnn-plans.jsonl"})
        self.assertEqual([file.name for file in (self.folder / "results").glob("record.tgz*")], ["record.tgz"])

    def test_an_unknown_name_is_told(self):
        for name in ("smal", "*.x"):
            answer, options = self.run_it("plan", "large", name)
            self.assertEqual((answer.returncode, options), (2, []))
            self.assertIn(f"no comparison named '{name}'", answer.stderr)


if __name__ == "__main__":
    unittest.main()
